// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// measureOutage runs a download at 5/10/5 Mbit/s during which one hop is dead for a
// second, if one is named, and returns the longest gap in delivery.
func measureOutage(t *testing.T, scheduler string, redundant bool,
	hop func(n *simNet, dir int) *simHop) (gap time.Duration, st Stats) {
	t.Helper()
	n := newSim(t, scheduler, 0.2)
	n.addTriangle(5*unit.Mbps, 10*unit.Mbps, 5*unit.Mbps)
	if hop != nil {
		for d := range 2 {
			h := hop(n, d)
			h.steps = append(h.steps, simStep{n.now.Add(time.Second), 0}, simStep{n.now.Add(2 * time.Second), 5 * unit.Mbps})
		}
	}
	tr := &transfer{size: int(2 * unit.MB)}
	done := n.carry([]*transfer{tr})
	last, read := n.now, 0
	n.run(func() bool {
		if tr.s[1] != nil && redundant {
			tr.s[1].SetMode(wire.ModeRedundant)
		}
		if tr.read > read {
			if read == 0 {
				last = n.now
			}
			gap, last, read = max(gap, n.now.Sub(last)), n.now, tr.read
		}
		return done()
	})
	return gap, n.ends[1].Stats()
}

// TestRedundant: no link's outage is felt, and every byte is sent twice; for
// the scheduler, and for a stream that asks for it under another one.
func TestRedundant(t *testing.T) {
	for _, c := range []struct {
		name string
		hop  func(n *simNet, dir int) *simHop
	}{
		{"nothing", nil},
		{"PS-path", func(n *simNet, d int) *simHop { return n.subflows[0].hops[d][0] }},
		{"HS-path", func(n *simNet, d int) *simHop { return n.subflows[1].hops[d][1-d] }},
		{"pipe", func(n *simNet, d int) *simHop { return n.subflows[1].hops[d][d] }},
	} {
		once, _ := measureOutage(t, "pams", false, c.hop)
		for _, how := range []string{"redundant", "pams"} {
			gap, st := measureOutage(t, how, how == "pams", c.hop)
			t.Logf("%s cut: longest gap %v by %s, %v with each byte once; %+v", c.name, gap.Round(time.Millisecond), how,
				once.Round(time.Millisecond), st)
			if gap > 50*time.Millisecond {
				t.Errorf("%s cut: %v without delivery by %s", c.name, gap, how)
			}
			if c.hop != nil {
				if once < 3*gap {
					t.Errorf("%s cut: %v without delivery though every byte goes once: the test shows nothing", c.name, once)
				}
				continue
			}
			if st.Redundant < 2*unit.MB*8/10 || st.Redundant > 2*unit.MB || st.ReinjectedTail > 0 {
				t.Errorf("%s: copies of %v of 2 MB", how, st.Redundant)
			}
		}
	}
}
