// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"testing"
	"time"

	"mpbond/base/unit"
)

// TestDownloadAgainstBound: on ideal links each scheduler's time stands beside
// the time in which the links can carry the bytes at all.
func TestDownloadAgainstBound(t *testing.T) {
	for _, c := range []struct {
		scheduler string
		up        bool
		worst     float64 // of the bound
	}{
		{"auto", false, 1.04}, {"auto", true, 1.04}, {"pams", false, 1.04}, {"pams", true, 1.04}, {"minpad", false, 1.6},
		{"minrtt", false, 2.5}, {"roundrobin", false, 2.5},
	} {
		n := newSim(t, c.scheduler, -1)
		n.addTriangle(8*unit.Mbps, 10*unit.Mbps, 5*unit.Mbps)
		start := n.now
		tr := &transfer{size: int(10 * unit.MB), up: c.up}
		n.run(n.carry([]*transfer{tr}))
		took, bound := tr.done.Sub(start), (13 * unit.Mbps).Time(10*unit.MB)
		t.Logf("%-10s up=%-5v %.3f s, %.3f of the bound", c.scheduler, c.up, took.Seconds(), float64(took)/float64(bound))
		if ratio := float64(took) / float64(bound); ratio > c.worst {
			t.Errorf("%s: %v is %.3f of the bound, want at most %.2f", c.scheduler, took, ratio, c.worst)
		}
	}
}

// TestRateDrops: the published hard cases.
func TestRateDrops(t *testing.T) {
	for _, c := range []struct {
		name  string
		hop   func(*simNet) *simHop
		bound time.Duration
	}{
		{"HS 10 to 1 at 2 s", func(n *simNet) *simHop { return n.subflows[1].hops[1][0] }, 2800 * time.Millisecond},
		{"pipe 5 to 1 at 2 s", func(n *simNet) *simHop { return n.subflows[1].hops[1][1] }, 3100 * time.Millisecond},
	} {
		n := newSim(t, "auto", 0.2)
		n.addTriangle(8*unit.Mbps, 10*unit.Mbps, 5*unit.Mbps)
		h := c.hop(n)
		h.steps = append(h.steps, simStep{n.now.Add(2 * time.Second), unit.Mbps})
		start := n.now
		tr := &transfer{size: int(4 * unit.MB)}
		n.run(n.carry([]*transfer{tr}))
		t.Logf("%s: %.3f s, bound about %.1f s; %+v", c.name, tr.done.Sub(start).Seconds(), c.bound.Seconds(),
			n.ends[1].Stats())
		if took := tr.done.Sub(start); took > c.bound*5/4 {
			t.Errorf("%s: %v, want at most %v", c.name, took, c.bound*5/4)
		}
	}
}

// TestLinkIsTakenBack: the owner of a helper's link leaves next to nothing of it early in a
// transfer. Bytes on the way there move to the direct subflow, even while the small window of the
// stream has no room for more.
func TestLinkIsTakenBack(t *testing.T) {
	n := newSim(t, "auto", 0.2)
	n.addTriangle(10*unit.Mbps, 3*unit.Mbps, 100*unit.Mbps)
	h := n.subflows[1].hops[1][0]
	h.knownRates = true
	h.steps = append(h.steps, simStep{n.now.Add(250 * time.Millisecond), 64 * unit.Kbps})
	tr := &transfer{size: int(4 * unit.MB)}
	last, gap, read := n.now, time.Duration(0), 0
	n.onEnd[0] = func(*Bond) {
		if tr.read > read {
			gap, last, read = max(gap, n.now.Sub(last)), n.now, tr.read
		}
	}
	n.run(n.carry([]*transfer{tr}))
	if gap > 400*time.Millisecond {
		t.Errorf("delivery stood still for %v: %+v", gap, n.ends[1].Stats())
	}
}

// TestSilence: a subflow that goes silent costs at most a second.
func TestSilence(t *testing.T) {
	for hop, name := range []string{"PS-path", "HS-path", "pipe"} {
		n := newSim(t, "auto", 0.2)
		n.addTriangle(8*unit.Mbps, 10*unit.Mbps, 5*unit.Mbps)
		cut := n.now.Add(time.Second)
		for d := range 2 {
			h := n.subflows[0].hops[d][0]
			if hop > 0 {
				h = n.subflows[1].hops[d][(hop-1)^(1-d)]
			}
			h.steps = append(h.steps, simStep{cut, 0})
		}
		tr := &transfer{size: int(4 * unit.MB)}
		done := n.carry([]*transfer{tr})
		last, gap, read := n.now, time.Duration(0), 0
		n.run(func() bool {
			if tr.read > read || tr.read == tr.size {
				gap, last, read = max(gap, n.now.Sub(last)), n.now, tr.read
			}
			return done()
		})
		t.Logf("%s cut: longest gap %v, %+v", name, gap.Round(time.Millisecond), n.ends[1].Stats())
		if gap > time.Second {
			t.Errorf("%s cut: delivery stood still for %v", name, gap)
		}
	}
}
