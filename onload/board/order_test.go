// SPDX-License-Identifier: Apache-2.0

package board_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/onload/board"
	"mpbond/onload/simulate"
)

// buffers are the shares of the items that a player buffers before it starts, up to all.
var buffers = []float64{0.2, 0.4, 0.6, 0.8, 1}

// bufferTimes returns when these shares are complete, without a gap from the first item on.
func bufferTimes(res simulate.Result) (at []time.Duration) {
	for _, share := range buffers {
		at = append(at, slices.Max(res.Completed[:int(math.Ceil(share*float64(len(res.Completed))-1e-9))]))
	}
	return at
}

// randomHome returns a video of 200 s and 738 kbit/s over a home line and two phones of about 2
// Mbit/s each. Sizes and range support are unknown until responses.
func randomHome(r *rand.Rand, mbps float64) simulate.Case {
	c := simulate.Case{SizesFromResponses: true,
		Paths: []simulate.Path{{Rates: []simulate.Step{{Rate: unit.Rate(mbps * 1e6)}}, RTT: 40 * time.Millisecond}}}
	for range 2 {
		p, mean := simulate.Path{RTT: 100 * time.Millisecond}, uniform(r, 1.5e6, 2.5e6)
		for at := time.Duration(0); at < 5*time.Minute; at += time.Second {
			p.Rates = append(p.Rates, simulate.Step{At: at, Rate: unit.Rate(mean * math.Exp(0.3*r.NormFloat64()))})
		}
		c.Paths = append(c.Paths, p)
	}
	for i := range 20 {
		c.Items = append(c.Items, board.Item{Object: i, To: 922_500, Splittable: true})
	}
	return c
}

// TestPrebuffer is g2: slow phones do not delay the first items. In the mean these arrive earlier
// than over the home line alone, for each home; in a single case they are late at most by what it
// takes to judge whether help pays.
func TestPrebuffer(t *testing.T) {
	for _, home := range []struct {
		mbps float64
		most []float64 // mean changes in %, with a small margin
	}{
		{6.48, []float64{-20, -27, -29, -31, -36}},
		{21.64, []float64{-4, -2, -4, -6, -12}},
		{8.67, []float64{-14, -18, -22, -25, -30}},
		{2, []float64{-50, -58, -60, -61, -65}},
	} {
		const n = 20
		sum := make([]float64, len(buffers))
		for seed := range n {
			c := randomHome(rand.New(rand.NewPCG(uint64(seed), 5)), home.mbps)
			both := bufferTimes(runCase(t, c, "auto"))
			c.Paths = c.Paths[:1]
			for i, alone := range bufferTimes(runCase(t, c, "auto")) {
				sum[i] += 100 * (float64(both[i])/float64(alone) - 1) / n
				if late := 20 * c.Paths[0].RTT; both[i] > alone+late {
					t.Errorf("%v Mbit/s, seed %d: %v of the items are there after %v, alone after %v", home.mbps, seed,
						buffers[i], both[i], alone)
				}
			}
		}
		for i, most := range home.most {
			if sum[i] > most {
				t.Errorf("%v Mbit/s: %v of the items: %+.1f %%, over %+.1f %%", home.mbps, buffers[i], sum[i], most)
			}
		}
		t.Logf("%v Mbit/s: %+.1f %%", home.mbps, sum)
	}
}

// TestInOrder checks that in the mean of random cases auto completes each share of the items before
// any other scheduler, or at the same time without ranges.
func TestInOrder(t *testing.T) {
	for _, k := range []caseKind{{split: true}, {split: true, vary: true}, {split: true, vary: true, fail: true},
		{vary: true, fail: true}} {
		sums := map[string][]time.Duration{}
		for seed := range max(30, *seeds/3) {
			c := randomCase(seed, k)
			c.SizesFromResponses = seed%2 == 1
			for _, name := range []string{"auto", "grd", "min", "queue"} {
				if sums[name] == nil {
					sums[name] = make([]time.Duration, len(buffers))
				}
				for i, at := range bufferTimes(runCase(t, c, name)) {
					sums[name][i] += at
				}
			}
		}
		for name, all := range sums {
			for i, at := range all {
				if !k.split {
					at += at / 50
				}
				if sums["auto"][i] > at {
					t.Errorf("%v, %v of the items: auto %v, %s %v", k, buffers[i], sums["auto"][i], name, at)
				}
			}
		}
		t.Logf("%v: %v", k, sums)
	}
}

// TestKeptFromIt checks that an item is not reserved for an excluded path.
func TestKeptFromIt(t *testing.T) {
	b := newBoard(t, "auto", 2, makeItems(3, 1_000_000, false)...)
	first := drainOrders(b, at(0))
	b.ReportProgress(first[0].Job.ID, 0, at(0.1))
	b.ReportProgress(first[1].Job.ID, 0, at(0.1))
	b.Finish(first[0].Job.ID, at(0.2)) // the faster path
	second := drainOrders(b, at(0.2))
	expectOrders(t, second, "start p0 2:0-1000000")
	b.AddItems(board.Item{Object: 3, To: 1_000_000}, board.Item{Object: 4, To: 1_000_000},
		board.Item{Object: 5, To: 1_000_000})
	b.Exclude(0, 3, at(0.2))
	b.ReportProgress(second[0].Job.ID, 0, at(0.9))
	b.ReportProgress(second[0].Job.ID, 900_000, at(1))
	b.Finish(first[1].Job.ID, at(1))
	expectOrders(t, drainOrders(b, at(1)), "start p1 3:0-1000000")
}
