package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"net/http"
	"time"

	"mpbond/base/unit"
)

// Player is a client that plays a video: it fetches segment by segment, each with
// one request over one connection that stays open, and lets time pass as a screen
// would. Nothing is decoded.
type Player struct {
	Video  Video         `json:"video"`
	Length time.Duration `json:"length_ns"` // of media to be played: the playback ends then
	URL    string        `json:"url"`       // the directory with a file for each level, named by its size
	SHA    []string      `json:"sha256"`    // of these files
	// How to get there: at most one of these.
	SOCKS   string   `json:"-"` // address of a proxy
	MPTCP   bool     `json:"-"` // ask the kernel for MPTCP
	Chunk   int64    `json:"-"` // in ranges of so many bytes, as Combine has it
	Proxies []string `json:"-"` // of Combine
}

// Run plays, and prints a Playback to out.
func (p *Player) Run(ctx context.Context, out io.Writer) error {
	if err := p.Video.checkLadder(); err != nil {
		return err
	}
	if len(p.SHA) != len(p.Video.Ladder) {
		return fmt.Errorf("video: %d hashes of %d levels", len(p.SHA), len(p.Video.Ladder))
	}
	fetch := p.plainFetcher()
	if p.Chunk > 0 {
		fetch = p.rangeFetcher()
	}
	result, err := p.playSegments(ctx, func(ctx context.Context, level int) error {
		check := &segmentCheck{hash: sha256.New()}
		if err := fetch(ctx, p.URL+"/"+fileName(p.Video.segmentSize(level)), p.Video.segmentSize(level), check); err != nil {
			return err
		}
		return check.verifySegment(p.Video.segmentSize(level), p.SHA[level])
	})
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(result)
}

// playSegments lets fetch get one segment after the other, and time pass.
func (p *Player) playSegments(ctx context.Context, fetch func(ctx context.Context, level int) error) (Playback, error) {
	begin := time.Now()
	now := func() time.Duration { return time.Since(begin) }
	core := &playback{video: p.Video, length: p.Length}
	for {
		level, wait := core.nextRequest(now())
		after, sure := core.timeToEnd()
		switch {
		case core.isOver():
			return core.summarize(), nil
		case wait > 0:
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return Playback{}, context.Cause(ctx)
			}
			continue
		}
		asked := now()
		part, cancel := context.WithCancel(ctx)
		if sure { // a segment that would come after the end is given up
			cancel()
			part, cancel = context.WithTimeout(ctx, after)
		}
		err := fetch(part, level)
		cancel()
		switch {
		case err == nil:
			core.addSegment(now(), level, now()-asked)
		case ctx.Err() != nil:
			return Playback{}, context.Cause(ctx)
		case !sure || !errors.Is(err, context.DeadlineExceeded):
			return Playback{}, err
		}
	}
}

// fetcher fetches a URL whose size is known and writes it to a writer.
type fetcher func(ctx context.Context, target string, size unit.Bytes, to io.Writer) error

// plainFetcher is getting by one request over one connection.
func (p *Player) plainFetcher() fetcher {
	dialer := &net.Dialer{}
	dialer.SetMultipathTCP(p.MPTCP)
	client := &http.Client{Transport: &http.Transport{DisableCompression: true, DialContext: dialer.DialContext, MaxConnsPerHost: 1, Proxy: proxyFunc("socks5h", p.SOCKS)}}
	return func(ctx context.Context, target string, _ unit.Bytes, to io.Writer) error {
		res, err := getRange(ctx, client, target, 0, 0)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		_, err = io.Copy(to, res.Body)
		return err
	}
}

// rangeFetcher is getting as COMBINE does. Its connections stay open likewise.
func (p *Player) rangeFetcher() fetcher {
	paths := (&CombineClient{Proxies: p.Proxies}).newPathClients()
	return func(ctx context.Context, target string, size unit.Bytes, to io.Writer) error {
		one := CombineClient{URL: target, Chunk: p.Chunk, Size: int64(size), clients: paths}
		return one.Run(ctx, to, io.Discard)
	}
}

// segmentCheck takes a segment, and nothing that is too long.
type segmentCheck struct {
	hash hash.Hash
	n    unit.Bytes
}

func (c *segmentCheck) Write(p []byte) (int, error) {
	c.n += unit.Bytes(len(p))
	return c.hash.Write(p)
}

func (c *segmentCheck) verifySegment(size unit.Bytes, sha string) error {
	if c.n != size || hex.EncodeToString(c.hash.Sum(nil)) != sha {
		return fmt.Errorf("a segment arrived with %d bytes of %d, or another content", c.n, size)
	}
	return nil
}

// playerCommand is the command that plays, to which schemes add how to get there.
func (b *Bench) playerCommand(t Transfer) []string {
	p := Player{Video: *t.Video, Length: t.Length, URL: b.webURL()}
	for level := range t.Video.Ladder {
		_, sha, _ := b.MakeFile(t.Video.segmentSize(level)) // made before
		p.SHA = append(p.SHA, hex.EncodeToString(sha[:]))
	}
	spec, _ := json.Marshal(p) // plain values
	return labCommand("player", string(spec))
}

// evaluatePlayback takes in what the player says, who has checked each segment.
func (r *Result) evaluatePlayback(out []byte) error {
	r.Video = &Playback{}
	if err := json.Unmarshal(out, r.Video); err != nil {
		return fmt.Errorf("what the player says: %w", err)
	}
	r.Seconds, r.FirstByte, r.Bytes, r.SHA = r.Video.Seconds, r.Video.StartUp, r.Video.Bytes, true
	return nil
}

// expectedPlaybackTime is how long it takes: at least as long as the links need for
// the lowest bitrate.
func (p RunSpec) expectedPlaybackTime(t *Topology) (time.Duration, error) {
	d, err := Bound(t, p.Video.Ladder[0].Bytes(p.Length), false)
	return max(p.Length, d), err
}

// playbackBytes are those of a playback that takes so long, about: of the highest
// bitrate that the links carry.
func (p RunSpec) playbackBytes(took time.Duration) unit.Bytes {
	n := p.Video.Ladder[len(p.Video.Ladder)-1].Bytes(p.Length)
	if d, err := Bound(p.Topology, n, false); err == nil && d > took {
		n = unit.Bytes(float64(n) * took.Seconds() / d.Seconds())
	}
	return n
}
