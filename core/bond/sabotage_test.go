// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"slices"
	"strings"
	"testing"

	"mpbond/link/wire"
)

// sabotage breaks an end of a bond after each of its events. It stands for a
// mistake in the bond's code.
type sabotage struct {
	name  string
	spoil func(n *simNet, d int, b *Bond)
}

// dropFrameType takes control frames of a type out of the queue before they are sent.
func dropFrameType(t wire.Type) func(*simNet, int, *Bond) {
	return func(_ *simNet, _ int, b *Bond) {
		b.control.frames = slices.DeleteFunc(b.control.frames, func(c controlFrame) bool { return c.frameType == t })
	}
}

// eachStream calls f for the streams of an end, by number.
func (n *simNet) eachStream(b *Bond, f func(s *Stream)) {
	for id := 1; id < len(n.transfers); id++ {
		if s := b.streams.all[wire.StreamID(id)]; s != nil {
			f(s)
		}
	}
}

var sabotages = []sabotage{
	{"what a lost or silent subflow had is not sent again", func(_ *simNet, _ int, b *Bond) {
		for _, p := range b.subflows.list {
			for i := range p.inFlight.unackedFrames() {
				p.inFlight.unackedFrames()[i].recalled = true
			}
		}
	}},
	{"a segment that was withdrawn is written all the same", func(n *simNet, d int, _ *Bond) {
		n.disobeys, n.lag[d] = true, 10*ms
	}},
	{"a byte too many is acknowledged", func(_ *simNet, _ int, b *Bond) {
		for _, p := range b.subflows.list {
			if p.bytesReceived == 10_000/1402*1402 || p.bytesReceived > 10_000 {
				p.bytesReceived++
			}
		}
	}},
	{"an acknowledgement lets go of too much", func(n *simNet, _ int, b *Bond) {
		n.eachStream(b, func(s *Stream) {
			if s.send.firstUnacked > 0 && s.send.firstUnacked < s.send.end && len(s.send.acked) == 0 && len(s.send.unsent) == 0 {
				b.buffers.heldBytes--
				s.send.firstUnacked++
			}
		})
	}},
	{"a byte is handed over twice", func(n *simNet, _ int, b *Bond) {
		n.eachStream(b, func(s *Stream) {
			if s.reassembly.readOffset%pageSize > 100 {
				s.reassembly.readOffset--
			}
		})
	}},
	{"a byte is left out", func(n *simNet, _ int, b *Bond) {
		n.eachStream(b, func(s *Stream) {
			if s.reassembly.readOffset > 100 && s.Readable() > 1 {
				s.reassembly.readOffset++
			}
		})
	}},
	{"a byte is never given to a subflow", func(n *simNet, _ int, b *Bond) {
		n.eachStream(b, func(s *Stream) {
			if len(s.send.unsent) > 0 && s.send.unsent[0].To-s.send.unsent[0].From > 1 {
				s.send.unsent.Remove(s.send.unsent[0].From, s.send.unsent[0].From+1)
				b.backlog.updateStream(s)
			}
		})
	}},
	{"bytes are mixed up in the buffer", func(n *simNet, _ int, b *Bond) {
		n.eachStream(b, func(s *Stream) {
			if len(s.send.pages.list) > 1 && s.send.pages.list[0] != nil {
				s.send.pages.list[0], s.send.pages.list[1] = s.send.pages.list[1], s.send.pages.list[0]
			}
		})
	}},
	{"a gap is taken for received", func(n *simNet, _ int, b *Bond) {
		n.eachStream(b, func(s *Stream) {
			if s.reassembly.arrived.count > 0 {
				from := s.reassembly.arrived.findPosition(true, s.reassembly.nextExpected, s.reassembly.arrived.end)
				to := s.reassembly.arrived.findPosition(false, from, s.reassembly.arrived.end)
				s.reassembly.arrived.removeArrived(from, to, 0)
				s.reassembly.nextExpected = to
				b.streams.notifyStreamChange(s)
			}
		})
	}},
	{"an end comes early", func(n *simNet, _ int, b *Bond) {
		n.eachStream(b, func(s *Stream) {
			if s.reassembly.readOffset > 0 && s.reassembly.readOffset == s.reassembly.nextExpected &&
				!s.reassembly.finalSizeKnown {
				s.reassembly.finalSizeKnown, s.reassembly.finalSize = true, s.reassembly.nextExpected
				b.streams.notifyStreamChange(s)
			}
		})
	}},
	{"FIN is forgotten", dropFrameType(wire.TypeFin)},
	{"RESET is forgotten", dropFrameType(wire.TypeReset)},
	{"OPEN is forgotten", dropFrameType(wire.TypeOpen)},
	{"CLASS_TABLE is forgotten", dropFrameType(wire.TypeClassTable)},
	{"WINDOW is forgotten", dropFrameType(wire.TypeWindow)},
	{"BYE is forgotten", dropFrameType(wire.TypeBye)},
	{"the window is overrun", func(n *simNet, _ int, b *Bond) {
		n.eachStream(b, func(s *Stream) { s.send.limit = max(s.send.limit, s.send.end) })
	}},
	{"more is granted than kept room for", func(n *simNet, _ int, b *Bond) {
		n.eachStream(b, func(s *Stream) {
			if s.reassembly.limit == s.reassembly.readOffset+wire.DataSeq(s.reassembly.window) {
				s.reassembly.limit++
			}
		})
	}},
	{"a stream resets itself", func(n *simNet, _ int, b *Bond) {
		n.eachStream(b, func(s *Stream) {
			if s.reassembly.readOffset > 1000 {
				s.Reset(wire.CodeLimit, "too many bytes")
			}
		})
	}},
	{"a page leaks", func(_ *simNet, _ int, b *Bond) {
		if b.pool.inUse > 0 && b.pool.inUse < 5 {
			b.pool.allocatePage()
		}
	}},
	{"pending bytes are miscounted", func(_ *simNet, _ int, b *Bond) {
		if b.backlog.pending > 0 {
			b.backlog.pending++
		}
	}},
	{"what is sent twice is not counted", func(_ *simNet, _ int, b *Bond) {
		b.stats.LostSubflow, b.stats.ReinjectedSilent, b.stats.ReinjectedTail, b.stats.Redundant = 0, 0, 0, 0
	}},
	{"writers are not notified of room", func(_ *simNet, _ int, b *Bond) {
		b.streams.changed = slices.DeleteFunc(b.streams.changed,
			func(s *Stream) bool { s.inChanged = false; return s.Readable() == 0 && !s.reassembly.finalSizeKnown })
	}},
	{"readers are not notified of bytes", func(_ *simNet, _ int, b *Bond) {
		b.streams.changed = slices.DeleteFunc(b.streams.changed,
			func(s *Stream) bool { s.inChanged = false; return s.Readable() > 0 })
	}},
	{"the timer is never set", func(n *simNet, _ int, b *Bond) { b.timer.next = n.now.Add(never) }},
	{"a datagram is handed over twice", func(n *simNet, _ int, b *Bond) {
		for _, g := range n.flows[1:] {
			for _, f := range g.f {
				if f != nil && f.table == &b.flows && g.plan.redundant {
					f.received = replayWindow{}
				}
			}
		}
	}},
	{"both copies of a datagram go over one subflow", func(n *simNet, _ int, b *Bond) {
		for _, f := range b.flows.all {
			if f.redundant && f.legs[1].subflow != nil {
				f.legs[1].subflow = f.legs[0].subflow
			}
		}
	}},
	{"datagrams overtake each other", func(n *simNet, _ int, b *Bond) {
		for _, l := range b.flows.ready {
			if len(l.waiting) > 1 {
				l.waiting[0].frame, l.waiting[1].frame = l.waiting[1].frame, l.waiting[0].frame
			}
		}
	}},
	{"old datagrams are sent", func(n *simNet, _ int, b *Bond) {
		for _, l := range b.flows.ready {
			for i := range l.waiting {
				l.waiting[i].queuedAt = n.now
			}
		}
	}},
	{"acknowledgements are not sent", func(_ *simNet, _ int, b *Bond) {
		b.acks.pending = false
		for _, p := range b.subflows.list {
			p.ack.owed = false
		}
	}},
}

// TestSabotage: each mistake is detected within a few seeds, which shows that TestTransfers detects
// it.
func TestSabotage(t *testing.T) {
	for _, sab := range sabotages {
		t.Run(strings.ReplaceAll(sab.name, " ", "_"), func(t *testing.T) {
			var l simulation
			for seed := range uint64(200) {
				out := l.run(newScenario(seed), nil, func(n *simNet) {
					n.sabotage = func(d int) { sab.spoil(n, d, n.ends[d]) }
				})
				if out.failed != nil {
					text, _, _ := strings.Cut(out.failed.text, "\n")
					t.Logf("seen with seed %d: %s", seed, text)
					return
				}
			}
			t.Error("not seen in 200 seeds")
		})
	}
}
