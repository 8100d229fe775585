// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"errors"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// TestBound: each direction of a bound stream stays on its subflow, at the rate of that one, with
// and without a guide. Another stream uses all subflows.
func TestBound(t *testing.T) {
	for _, up := range []bool{false, true} {
		for _, guide := range []Guide{nil, byNumber{unit.GB}} {
			n := newSim(t, "auto", 0.2)
			n.addTriangle(8*unit.Mbps, 10*unit.Mbps, unit.Mbps)
			for _, b := range n.ends {
				b.SetGuide(guide)
			}
			bound := &transfer{size: int(500 * unit.KB), up: up, only: 2}
			n.run(n.carry([]*transfer{bound}))
			from := n.ends[1]
			if up {
				from = n.ends[0]
			}
			alone := unit.RateOf(500*unit.KB, bound.done.Sub(simStart))
			if twice := from.Stats().ReinjectedTail; from.subflows.subflowByID(1).streamBytesSent != 0 || twice != 0 ||
				alone < 900*unit.Kbps ||
				alone > unit.Mbps {
				t.Errorf("up %v, guide %v: %v of it went elsewhere, %v twice, at %v", up, guide != nil,
					from.subflows.subflowByID(1).streamBytesSent, twice, alone)
			}
			again, free := &transfer{size: int(unit.MB), up: up, only: 2}, &transfer{size: int(4 * unit.MB), up: up}
			begun := n.now
			n.run(n.carry([]*transfer{again, free}))
			if took := free.done.Sub(begun); took > 4600*time.Millisecond { // 4.2 s over subflow 1
				t.Errorf("up %v, guide %v: the other stream took %v", up, guide != nil, took)
			}
		}
	}
}

// TestBoundEnds: a stream ends with the subflow that it is bound to, at both
// ends, and others do not.
func TestBoundEnds(t *testing.T) {
	n := newSim(t, "auto", 0.2)
	n.addTriangle(8*unit.Mbps, 10*unit.Mbps, 4*unit.Mbps)
	bound := &transfer{size: int(8 * unit.MB), only: 2}
	free := &transfer{size: int(2 * unit.MB)}
	bound.talk[1].Bytes = bound.size
	n.open(bound)
	n.after(time.Second, func() { n.kill(n.findSubflow(2)) })
	n.run(n.carry([]*transfer{free}))
	n.run(func() bool { return bound.s[0].Done() && bound.s[1].Done() })
	var r wire.Reset
	if !errors.As(bound.s[0].Err(), &r) || r.Code != wire.CodeUnreachable {
		t.Errorf("it ended with %v", bound.s[0].Err())
	}
	for d, b := range n.ends {
		if b.filter.boundStreams != 0 {
			t.Errorf("end %d counts %d bound streams", d, b.filter.boundStreams)
		}
	}
	s := bound.s[0]
	if s.BindToSubflow(1) {
		t.Error("an ended stream was bound")
	}
}
