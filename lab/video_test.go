// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/unit"
	"mpbond/lab/radio"
)

var testVideo = Video{Ladder: []unit.Rate{unit.Mbps, 2 * unit.Mbps, 4 * unit.Mbps, 8 * unit.Mbps},
	Segment: 2 * time.Second}

// playVideo plays over a simulated link in virtual time: rate is the link's rate at a time, in
// Mbit/s, and each request takes rtt longer.
func playVideo(t *testing.T, v Video, length, rtt time.Duration, rate func(at time.Duration) float64) (r Playback) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		p := &Player{Video: v, Length: length}
		var err error
		r, err = p.playSegments(t.Context(), func(ctx context.Context, level int) error {
			wait := rtt + time.Duration(float64(8*v.segmentSizeAt(level))/rate(time.Since(begin))*1e3)
			select {
			case <-time.After(wait):
				return nil
			case <-ctx.Done():
				return fmt.Errorf("given up: %w", ctx.Err())
			}
		})
		if err != nil {
			t.Error(err)
		}
	})
	return r
}

func steadyRate(mbps float64) func(time.Duration) float64 {
	return func(time.Duration) float64 { return mbps }
}

func expectNear(t *testing.T, what string, got, want, by float64) {
	t.Helper()
	if math.Abs(got-want) > by {
		t.Errorf("%s: %v, not %v", what, got, want)
	}
}

// Three quarters of 6 Mbit/s allow 4. The buffer fills to its limit, then a segment is fetched
// every two seconds. The playback ends with the media.
func TestPlaybackSteady(t *testing.T) {
	r := playVideo(t, testVideo, 2*time.Minute, 0, steadyRate(6))
	expectNear(t, "start-up", r.StartUp, 2.0/6, 1e-6) // 2 s of the lowest bitrate
	expectNear(t, "seconds", r.Seconds, 120+r.StartUp, 1e-6)
	expectNear(t, "bitrate", r.Bitrate, 4e6-3e6*2/120, 1)
	if r.Switches != 1 || r.Stalls != 0 || r.StallRatio != 0 || r.Played != 120 {
		t.Errorf("%+v", r)
	}
	most := 0.0
	var sum unit.Bytes
	for _, s := range r.Segments {
		most = max(most, s.Buffer)
		sum += s.Rate.Bytes(2 * time.Second)
	}
	if most > maxMediaBuffer.Seconds() || most < 28 || sum != r.Bytes {
		t.Errorf("%v s of %v buffered, %v fetched of %v reported", most, maxMediaBuffer, sum, r.Bytes)
	}
	// 120 s played, and nearly 30 s more in the buffer.
	n := len(r.Segments)
	if n < 73 || n > 75 {
		t.Errorf("%d segments", n)
	}
	gap := r.Segments[n-1].At - r.Segments[n-2].At
	expectNear(t, "between segments when the buffer is full", gap, 2, 1e-6)
}

// 64 Mbit/s over 26 Mbit/s take 64/26 of the time.
func TestPlaybackStalls(t *testing.T) {
	v := Video{Ladder: []unit.Rate{64 * unit.Mbps}, Segment: time.Second}
	r := playVideo(t, v, 30*time.Second, 0, steadyRate(26))
	expectNear(t, "stall ratio", r.StallRatio, 64.0/26-1, 0.1) // less the buffer at the start
	expectNear(t, "seconds", r.Seconds, r.StartUp+30+r.Stalled, 1e-6)
	expectNear(t, "bitrate", r.Bitrate, 64e6, 1)
	if r.Stalls < 10 || r.Switches != 0 {
		t.Errorf("%+v", r)
	}
}

// When the link becomes slower, the bitrate follows within a few segments, without a stall if the
// buffer is full.
func TestPlaybackFalls(t *testing.T) {
	r := playVideo(t, testVideo, 100*time.Second, 50*time.Millisecond, func(at time.Duration) float64 {
		if at > 40*time.Second {
			return 2
		}
		return 12
	})
	if last := r.Segments[len(r.Segments)-1]; last.Rate != unit.Mbps || r.Stalls != 0 || r.Switches < 2 {
		t.Errorf("last at %v, %d stalls, %d switches", last.Rate, r.Stalls, r.Switches)
	}
	// A link that is silent for longer than the buffer lasts.
	r = playVideo(t, testVideo, 60*time.Second, 0, func(at time.Duration) float64 {
		if at > 20*time.Second && at < 50*time.Second {
			return 8 / 37.0 // 2 s of 4 Mbit/s take 37 s
		}
		return 6
	})
	if r.Stalls != 1 || r.Stalled < 24 || r.Stalled > 26 {
		t.Errorf("%d stalls, %v s", r.Stalls, r.Stalled)
	}
	expectNear(t, "seconds", r.Seconds, r.StartUp+60+r.Stalled, 1e-6)
}

// The throughput is the harmonic mean of the last three segments; the bitrate is at most three
// quarters of it.
func TestPlaybackShare(t *testing.T) {
	for _, c := range []struct {
		mbps  []float64
		level int
	}{{nil, 0}, {[]float64{0.5}, 0}, {[]float64{2.66}, 0}, {[]float64{2.67}, 1}, {[]float64{100, 100, 1}, 1},
		{[]float64{100, 100, 100}, 3}} {
		p := &playback{video: testVideo}
		for _, m := range c.mbps {
			p.rates = append(p.rates, m*1e6)
		}
		if got := p.chooseLevel(); got != c.level {
			t.Errorf("after %v Mbit/s level %d, not %d", c.mbps, got, c.level)
		}
	}
}

// A failed segment ends the playback with its error, unless it would have arrived after the end.
func TestPlayerErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := errors.New("bad")
		p := &Player{Video: testVideo, Length: time.Minute}
		if _, err := p.playSegments(t.Context(), func(context.Context, int) error {
			return bad
		}); !errors.Is(err, bad) {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := p.playSegments(ctx, func(ctx context.Context, _ int) error {
			<-ctx.Done()
			return ctx.Err()
		}); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
	for _, v := range []Video{{}, {Ladder: testVideo.Ladder}, {Ladder: testVideo.Ladder, Segment: time.Minute},
		{Ladder: []unit.Rate{2, 1}, Segment: time.Second}} {
		if v.checkLadder() == nil {
			t.Errorf("%+v was taken", v)
		}
	}
	for _, p := range []RunSpec{{Length: time.Second, Size: 1}, {}, {Length: time.Second, Upload: true},
		{Length: time.Second, Streams: 2}, {Length: time.Second, Schemes: []string{"relay"}}} {
		p.Video = &testVideo
		p.Topology, _ = Triangle("8/10/5")
		if _, err := p.parseSession(); err == nil {
			t.Errorf("%+v was taken", p)
		}
	}
}

// testPlayer is the player's command: VIDEO [--mptcp] [--chunk N --proxy ADDRESS].
func testPlayer(args []string) error {
	var p Player
	if err := json.Unmarshal([]byte(args[0]), &p); err != nil {
		return err
	}
	flags := flag.NewFlagSet("player", flag.ContinueOnError)
	flags.BoolVar(&p.MPTCP, "mptcp", false, "")
	flags.Int64Var(&p.Chunk, "chunk", 0, "")
	proxy := flags.String("proxy", "", "")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	p.Proxies = []string{*proxy}
	return p.Run(context.Background(), os.Stdout)
}

// TestPlayback plays over a real network with each scheme: every segment is checked, over one
// connection (of MPTCP by its counters), at the bitrate that the links allow.
func TestPlayback(t *testing.T) {
	t.Parallel()
	needTransfers(t)
	top, err := Triangle("8/10/5")
	if err != nil {
		t.Fatal(err)
	}
	v := Video{Ladder: []unit.Rate{unit.Mbps / 2, unit.Mbps, 2 * unit.Mbps}, Segment: time.Second}
	p := RunSpec{Topology: top, Schemes: []string{"single", "mptcp", "combine:64KB"}, Reps: 1, Length: 5 * time.Second,
		Video: &v, Traffic: true, KeepDisturbed: true}
	n := 0
	err = Run(t.Context(), p, func(r Result) {
		n++
		if r.Error != "" {
			t.Errorf("%s: %s", r.Scheme, r.Error)
			return
		}
		if r.Video.Played != 5 || r.Video.Bitrate <= 5e5 || r.Video.Stalls > 0 || r.Bytes != r.Video.Bytes || !r.SHA ||
			r.Seconds < 5 || r.Bound < 5 {
			t.Errorf("%s: %+v", r.Scheme, r.Video)
		}
		packets := 0
		for _, l := range r.Traffic {
			packets += len(l.Sizes)
		}
		if packets == 0 || packets > 4*2*int(r.Seconds/coarseStep.Seconds()+2) {
			t.Errorf("%s: %d packets", r.Scheme, packets)
		}
	})
	if err != nil || n != 3 {
		t.Error(n, err)
	}
}

// Coarse packets do not change the energy of radios, alone or several of one radio together, by any
// set; and few packets are left.
func TestCoarseEnergy(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var fat, slim [3]radio.Trace
		var was, is int
		for i := range fat {
			var log trafficLog
			at := time.Duration(0)
			for range 1 + rng.IntN(2000) {
				switch rng.IntN(100) {
				case 0:
					at += time.Duration(rng.Int64N(int64(15 * time.Second)))
				case 1, 2:
					at += time.Duration(rng.Int64N(int64(200 * time.Millisecond)))
				default:
					at += time.Duration(rng.Int64N(int64(3 * time.Millisecond)))
				}
				size := 40 + rng.IntN(1460)
				if rng.IntN(2) == 0 {
					size = -size
				}
				log.logTrafficPacket(at, size)
			}
			full := Traffic{Gaps: log.gaps, Sizes: log.sizes}
			thin := full.coarsened()
			was, is = was+len(full.Sizes), is+len(thin.Sizes)
			for into, from := range map[*radio.Trace]Traffic{&fat[i]: full, &slim[i]: thin} {
				into.Device, into.Radio = "primary", []radio.Kind{radio.LTE, radio.WiFi, radio.WiFi}[i]
				from.Each(func(at time.Duration, n unit.Bytes, sent bool) {
					into.Packets = append(into.Packets, radio.Packet{At: at, Size: n, Up: sent})
				})
			}
		}
		for _, set := range radio.Sets {
			want, err := set.Account(fat[:])
			got, err2 := set.Account(slim[:])
			if err != nil || err2 != nil || len(got) != len(want) {
				t.Fatal(err, err2)
			}
			for i := range want {
				w, g := reflect.ValueOf(want[i].Energy), reflect.ValueOf(got[i].Energy)
				for f := range w.NumField() {
					expectNear(t, fmt.Sprintf("%s, %s, %s", set.Name, want[i].Radio, w.Type().Field(f).Name),
						g.Field(f).Float(), w.Field(f).Float(), 1e-9*(1+w.Field(f).Float()))
				}
			}
			for _, m := range set.Models {
				if m.Inactivity <= coarseStep {
					t.Errorf("%s, %s: gaps of %v are seen", set.Name, m.Kind, m.Inactivity)
				}
			}
		}
		if is > was/2 && was > 1000 {
			t.Errorf("%d packets of %d are left", is, was)
		}
	}
}
