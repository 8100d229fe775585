// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/core/sched"
)

// triangle is the lab's topology of that name: rates in Mbit/s of the direct path, then of each
// helper's HS-path and pipe. Its queues hold 100 ms, and at least 48 KB.
func triangle(ps float64, helpers ...float64) *Network {
	hop := func(name string, rate float64, rtt time.Duration) Hop {
		r := unit.Rate(rate * 1e6)
		l := Link{Rates: steady(r), Delay: rtt / 2, Queue: max(r.Bytes(100*ms), 48*unit.KB)}
		return Hop{name, l, l}
	}
	n := &Network{Seed: 1, Paths: []Path{{"direct", []Hop{hop("ps", ps, 50*ms)}}}}
	for i := 0; i < len(helpers); i += 2 {
		n.Paths = append(n.Paths, Path{fmt.Sprintf("helper%d", i/2+1),
			[]Hop{hop("pipe", helpers[i+1], 5*ms), hop("hs", helpers[i], 70*ms)}})
	}
	return n
}

// TestTriangle compares times with those that the lab measured with real packets, which README.md
// shows.
func TestTriangle(t *testing.T) {
	for _, c := range []struct {
		network      *Network
		size         unit.Bytes
		single, bond time.Duration
	}{
		{triangle(8, 10, 5), 2 * unit.MB, 2330 * ms, 1490 * ms},
		{triangle(8, 10, 5), 10 * unit.MB, 11020 * ms, 6920 * ms},
		{triangle(5, 10, 5), 2 * unit.MB, 3610 * ms, 1900 * ms},
		{triangle(8, 10, 5, 10, 5), 20 * unit.MB, 21890 * ms, 9970 * ms},
	} {
		w := &Workload{Size: c.size, Streams: 1, Objects: 1}
		check := func(r Result, want time.Duration) {
			off := float64(r.Time)/float64(want) - 1
			t.Logf("%v over %d paths, %s: %v, real packets %v, %+.1f %%", c.size, len(c.network.Paths), r.Scheme, r.Time,
				want, 100*off)
			if r.Err != "" || off < -0.03 || off > 0.03 {
				t.Errorf("%v over %s took %v, with real packets %v; %s", c.size, r.Scheme, r.Time, want, r.Err)
			}
		}
		check(RunSingle(c.network, 0, w, Options{}), c.single)
		check(RunBond(c.network, "auto", w, Options{}), c.bond)
	}
}

// TestReplay runs networks twice: a seed gives the same results.
func TestReplay(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		var results [2][]Result
		for i := range results {
			n, w := Generate(seed, Limits{})
			w.Size = min(w.Size, 500*unit.KB)
			o := CompareSchemes(n, w, []string{"auto", "ecf"}, Options{})
			results[i] = append(o.Singles, o.Schemes...)
		}
		for i, r := range results[0] {
			if r != results[1][i] {
				t.Errorf("seed %d: %+v, then %+v", seed, r, results[1][i])
			}
		}
	}
}

// TestBounds checks over random networks, with each scheduler, that no transfer fails, that no
// bound is beaten by over 1 %, and that the bound which pays slow start is not less than the fluid
// one. Apps check each byte.
func TestBounds(t *testing.T) {
	const networks = 60
	for seed := uint64(1000); seed < 1000+networks; seed++ {
		n, w := Generate(seed, Limits{})
		if w.Kind == Objects {
			w.Size = min(w.Size, unit.MB)
		}
		b := Bounds(n, w)
		if b.SlowStart < b.Fluid*99/100 {
			t.Errorf("seed %d: bounds %v", seed, b)
		}
		for _, control := range []string{"cubic", "bbr"} {
			name := sched.Names()[int(seed)%len(sched.Names())]
			r := RunBond(n, name, w, Options{Control: control})
			if r.Err != "" || r.Time < b.SlowStart*99/100 || r.Copied < 0 {
				t.Errorf("seed %d, %s, %s: %+v, bounds %v", seed, name, control, r, b)
			}
			if got := r.Total; w.Kind == Objects && got != w.Size*unit.Bytes(w.Objects) {
				t.Errorf("seed %d: %v of payload", seed, got)
			}
		}
	}
}

// TestBoundOfOnePath compares the bounds with closed forms: over a link of 1000 packets a second
// with a round trip of 100 ms, windows of 10, 20, 40 and 80 packets leave it unused for 250 ms.
func TestBoundOfOnePath(t *testing.T) {
	rate := 12 * unit.Mbps
	l := Link{Rates: steady(rate), Delay: 50 * ms, Queue: unit.MB}
	n := &Network{Paths: []Path{{"direct", []Hop{{"ps", l, l}}}}}
	for _, c := range []struct {
		packets         int
		direction       Direction
		objects         int
		fluid, slowPays time.Duration
	}{
		{1000, Download, 1, 1100 * ms, 1350 * ms},
		{1000, Download, 2, 1100 * ms, 1100 * ms},
		{1000, Upload, 1, 1100 * ms, 1350 * ms},
		{10, Download, 1, 110 * ms, 110 * ms},
		{20, Download, 1, 120 * ms, 210 * ms},
	} {
		w := &Workload{Direction: c.direction, Size: unit.Bytes(c.packets * mss), Streams: 1, Objects: c.objects}
		b := Bounds(n, w)
		for _, x := range [][2]time.Duration{{b.Fluid, c.fluid}, {b.SlowStart, c.slowPays}} {
			if d := x[0] - x[1]; d < -3*ms || d > 3*ms {
				t.Errorf("%d packets, %v, %d objects: bounds %v, want %v and %v", c.packets, c.direction, c.objects, b,
					c.fluid, c.slowPays)
			}
		}
	}
}
