// SPDX-License-Identifier: Apache-2.0

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

// Player is a client that plays a video without decoding it. It fetches segment by segment, each
// with one request over one persistent connection, and lets time pass as a screen would.
type Player struct {
	Video  Video         `json:"video"`
	Length time.Duration `json:"length_ns"` // of media to play: then the playback ends
	URL    string        `json:"url"`       // directory with a file for each level, named by its size
	SHA    []string      `json:"sha256"`    // SHA-256 of these files
	// At most one of these is set.
	SOCKS   string   `json:"-"` // address of a proxy
	MPTCP   bool     `json:"-"` // ask the kernel for MPTCP
	Chunk   int64    `json:"-"` // bytes of a range, as in CombineClient
	Proxies []string `json:"-"` // of CombineClient
}

// Run plays the video and prints a Playback to out.
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
		if err := fetch(ctx, p.URL+"/"+fileNameForSize(p.Video.segmentSizeAt(level)), p.Video.segmentSizeAt(level),
			check); err != nil {
			return err
		}
		return check.verifySegment(p.Video.segmentSizeAt(level), p.SHA[level])
	})
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(result)
}

// playSegments plays segments that fetch gets one after the other.
func (p *Player) playSegments(ctx context.Context, fetch func(ctx context.Context, level int) error) (Playback, error) {
	begin := time.Now()
	now := func() time.Duration { return time.Since(begin) }
	core := &playback{video: p.Video, length: p.Length}
	for {
		level, wait := core.nextSegmentRequest(now())
		after, certain := core.timeToPlaybackEnd()
		switch {
		case core.isPlaybackOver():
			return core.summarizePlayback(), nil
		case wait > 0:
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return Playback{}, context.Cause(ctx)
			}
			continue
		}
		requested := now()
		part, cancel := context.WithCancel(ctx)
		if certain { // a segment that would arrive after the end is given up
			cancel()
			part, cancel = context.WithTimeout(ctx, after)
		}
		err := fetch(part, level)
		cancel()
		switch {
		case err == nil:
			core.addFetchedSegment(now(), level, now()-requested)
		case ctx.Err() != nil:
			return Playback{}, context.Cause(ctx)
		case !certain || !errors.Is(err, context.DeadlineExceeded):
			return Playback{}, err
		}
	}
}

// fetcher fetches a URL of known size and writes it to a writer.
type fetcher func(ctx context.Context, target string, size unit.Bytes, to io.Writer) error

// plainFetcher returns a fetcher with one request over one connection.
func (p *Player) plainFetcher() fetcher {
	dialer := &net.Dialer{}
	dialer.SetMultipathTCP(p.MPTCP)
	client := &http.Client{Transport: &http.Transport{DisableCompression: true, DialContext: dialer.DialContext,
		MaxConnsPerHost: 1, Proxy: httpProxyFunc("socks5h", p.SOCKS)}}
	return func(ctx context.Context, target string, _ unit.Bytes, to io.Writer) error {
		res, err := requestByteRange(ctx, client, target, 0, 0)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		_, err = io.Copy(to, res.Body)
		return err
	}
}

// rangeFetcher returns a fetcher that works like COMBINE, with persistent connections.
func (p *Player) rangeFetcher() fetcher {
	paths := (&CombineClient{Proxies: p.Proxies}).newPathClients()
	return func(ctx context.Context, target string, size unit.Bytes, to io.Writer) error {
		one := CombineClient{URL: target, Chunk: p.Chunk, Size: int64(size), clients: paths}
		return one.Run(ctx, to, io.Discard)
	}
}

// segmentCheck hashes and counts a segment.
type segmentCheck struct {
	hash hash.Hash
	n    unit.Bytes
}

func (c *segmentCheck) Write(p []byte) (int, error) {
	c.n += unit.Bytes(len(p))
	return c.hash.Write(p)
}

// verifySegment returns an error unless the segment has that size and SHA-256.
func (c *segmentCheck) verifySegment(size unit.Bytes, sha string) error {
	if c.n != size || hex.EncodeToString(c.hash.Sum(nil)) != sha {
		return fmt.Errorf("a segment arrived with %d of %d bytes, or with wrong content", c.n, size)
	}
	return nil
}

// playerCommand returns the command that plays. Schemes append options for the path to take.
func (b *Bench) playerCommand(t Transfer) []string {
	p := Player{Video: *t.Video, Length: t.Length, URL: b.webNodeURL()}
	for level := range t.Video.Ladder {
		_, sha, _ := b.MakeFile(t.Video.segmentSizeAt(level)) // makeTransferFiles made it
		p.SHA = append(p.SHA, hex.EncodeToString(sha[:]))
	}
	spec, _ := json.Marshal(p) // plain values cannot fail
	return labCommand("player", string(spec))
}

// evaluatePlayback takes the player's report into the result. The player has checked each segment.
func (r *Result) evaluatePlayback(out []byte) error {
	r.Video = &Playback{}
	if err := json.Unmarshal(out, r.Video); err != nil {
		return fmt.Errorf("report of the player: %w", err)
	}
	r.Seconds, r.FirstByte, r.Bytes, r.SHA = r.Video.Seconds, r.Video.StartUp, r.Video.Bytes, true
	return nil
}

// expectedPlaybackTime estimates the time of a playback: at least as long as the links need for the
// lowest bitrate.
func (p RunSpec) expectedPlaybackTime(t *Topology) (time.Duration, error) {
	d, err := Bound(t, p.Video.Ladder[0].Bytes(p.Length), false)
	return max(p.Length, d), err
}

// playbackBytes estimates the bytes of a playback of that duration, at the highest bitrate that the
// links carry.
func (p RunSpec) playbackBytes(took time.Duration) unit.Bytes {
	n := p.Video.Ladder[len(p.Video.Ladder)-1].Bytes(p.Length)
	if d, err := Bound(p.Topology, n, false); err == nil && d > took {
		n = unit.Bytes(float64(n) * took.Seconds() / d.Seconds())
	}
	return n
}
