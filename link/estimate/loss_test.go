// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestLossMeter checks that a share of lost packets is found, however many packets come between
// samples, that it is forgotten, and that new counters do no harm.
func TestLossMeter(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, step := range []int{1, 10, 300} {
		var m lossMeter
		var h Hop
		send := func(packets int, loss float64) {
			for sent := 0; sent < packets; sent += step {
				for range step {
					h.Packets++
					if random.Float64() < loss {
						h.Retransmitted++
					}
				}
				m.addLossSample(h)
			}
		}
		if send(20, .5); step <= 20 && m.share > .05 {
			t.Errorf("step %d: after 20 packets the share is %g", step, m.share)
		}
		if send(20_000, .02); math.Abs(m.share-.02) > .015 {
			t.Errorf("step %d: the share is %g, want 0.02", step, m.share)
		}
		before := m.share
		h = Hop{} // another connection
		if m.addLossSample(h); m.share != before {
			t.Errorf("step %d: the share was %g, and is %g after a new connection", step, before, m.share)
		}
		if send(5000, 0); m.share > .001 {
			t.Errorf("step %d: after 5000 packets without loss the share is %g", step, m.share)
		}
	}
	var m lossMeter
	if m.addLossSample(Hop{Packets: 1, Retransmitted: 5}); m.share > 1 || m.share < 0 {
		t.Errorf("counters that contradict each other: %g", m.share)
	}
}
