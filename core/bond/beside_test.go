// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"slices"
	"testing"
	"time"

	"mpbond/base/unit"
)

// TestDatagramsBesideBulkBothWays: bulk data fills the only subflow in both directions, a direct or
// a helped one, whichever of its hops is slower. A flow in both directions is delayed little.
func TestDatagramsBesideBulkBothWays(t *testing.T) {
	for _, hs := range []unit.Rate{0, 4 * unit.Mbps, 10 * unit.Mbps, 20 * unit.Mbps} {
		n := newSim(t, "auto", 0.2)
		oneWay := 25 * time.Millisecond
		if hs > 0 {
			oneWay += 2500 * time.Microsecond
			n.addSubflow(1, n.newHopPair(hs, 25*time.Millisecond), n.newHopPair(5*unit.Mbps, 2500*time.Microsecond))
		} else {
			n.addSubflow(1, n.newHopPair(10*unit.Mbps, oneWay), nil)
		}
		n.useDeepQueues()
		down, up := &transfer{size: int(8 * unit.MB)}, &transfer{size: int(8 * unit.MB), up: true}
		done := n.carry([]*transfer{down, up})
		n.openFlow(flowPlan{every: 20 * time.Millisecond, count: [2]int{250, 250}, size: 120})
		n.run(done)
		for d, by := range n.flows[1].by {
			late := slices.Sorted(slices.Values(by.delays[75:])) // not the first 1.5 s, as in TestDatagramsBesideBulk
			p95 := late[len(late)*95/100]
			t.Logf("HS %v, from %s: p95 %v, %d of %d came", hs, endNames[d], p95, len(by.delays), by.sent)
			if most := oneWay + maxStandingQueue + 30*time.Millisecond; p95 > most {
				t.Errorf("HS %v, from %s: p95 of the delay is %v, want at most %v", hs, endNames[d], p95, most)
			}
			if lost := int(by.sent) - len(by.delays); lost > 5 {
				t.Errorf("HS %v, from %s: %d of %d did not come", hs, endNames[d], lost, by.sent)
			}
		}
	}
}
