// SPDX-License-Identifier: Apache-2.0

package network

import (
	"testing"
	"time"

	"mpbond/base/unit"
)

// triangle is the network of the published setup.
func triangle(ps, hs, pipe unit.Rate) *Network {
	hop := func(name string, r unit.Rate, rtt time.Duration) Hop {
		l := Link{Rates: steady(r), Delay: rtt / 2, Queue: max(r.Bytes(200*ms), 32<<10)}
		return Hop{name, l, l}
	}
	return &Network{Seed: 1, Paths: []Path{
		{"direct", []Hop{hop("ps", ps, 50*ms)}},
		{"helper1", []Hop{hop("pipe", pipe, 5*ms), hop("hs", hs, 70*ms)}},
	}}
}

// TestTriangle compares times with those that the lab measured with real packets: 2 and 10 MB at
// 8/10/5.
func TestTriangle(t *testing.T) {
	n := triangle(8*unit.Mbps, 10*unit.Mbps, 5*unit.Mbps)
	for _, c := range []struct {
		size         unit.Bytes
		single, bond time.Duration
	}{{2 * unit.MB, 2330 * ms, 1490 * ms}, {10 * unit.MB, 11020 * ms, 6920 * ms}} {
		w := &Workload{Size: c.size, Streams: 1, Objects: 1}
		check := func(r Result, want time.Duration) {
			t.Logf("%v: %+v, real packets %v", c.size, r, want)
			if off := float64(r.Time)/float64(want) - 1; r.Err != "" || off < -0.05 || off > 0.05 {
				t.Errorf("%v over %s took %v, with real packets %v; %s", c.size, r.Scheme, r.Time, want, r.Err)
			}
		}
		check(RunSingle(n, 0, w, Options{}), c.single)
		check(RunBond(n, "auto", w, Options{}), c.bond)
	}
}

// TestReplay runs networks twice: a seed gives the same results.
func TestReplay(t *testing.T) {
	for seed := range uint64(20) {
		var times [2][]Result
		for i := range times {
			n, w := Generate(seed+1, Limits{})
			w.Size = min(w.Size, 500*unit.KB)
			o := Judge(n, w, []string{"auto", "ecf"}, Options{})
			times[i] = append(o.Singles, o.Schemes...)
		}
		for i, r := range times[0] {
			if r != times[1][i] {
				t.Errorf("seed %d: %+v, then %+v", seed+1, r, times[1][i])
			}
			if r.Err != "" {
				t.Errorf("seed %d: %+v", seed+1, r)
			}
		}
	}
}
