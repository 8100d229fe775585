// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"errors"
	"testing"

	"mpbond/base/unit"
	"mpbond/link/tcp"
	"mpbond/link/wire"
)

// TestLimit checks that the far end of an HS-path follows the limit of the helper and gets each
// change once, and that a pipe refuses a limit.
func TestLimit(t *testing.T) {
	a, b := connectPair(t, TCP(tcp.Options{}), "127.0.0.1:0")
	h, s := hsPathPair(t, a, b)
	buf := make([]byte, 1)
	say := func(r unit.Rate, want unit.Rate) {
		t.Helper()
		sent := func() uint64 { p, _ := h.Probe(); return p.Acked + uint64(p.Queue) }
		for i := range 2 {
			before := sent()
			if err := h.SendLimit(r); err != nil {
				t.Fatal(err)
			}
			if i == 1 && sent() != before {
				t.Errorf("a limit of %v that is known was sent again", r)
			}
		}
		if _, err := h.Write([]byte{1}); err != nil { // after the limit
			t.Fatal(err)
		}
		if _, err := s.Read(buf); err != nil {
			t.Fatal(err)
		}
		if p, err := s.Probe(); err != nil || p.PacingLimit != want {
			t.Errorf("after a limit of %v the pace is %v, %v", r, p.PacingLimit, err)
		}
	}
	say(5*unit.Mbps, 5*unit.Mbps)
	say(1, wire.MinHopLimit)
	say(0, 0)

	a, b = connectPair(t, TCP(tcp.Options{}), "127.0.0.1:0")
	l, p := linkPair(t, a, b)
	l.appendFrame(wire.HopLimit{Rate: unit.Mbps})
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Read(buf); !errors.Is(err, wire.ErrMalformed) {
		t.Errorf("a pipe took a limit: %v", err)
	}
}
