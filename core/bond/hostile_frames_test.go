// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"time"

	"mpbond/link/wire"
)

// frame sends a frame of whatever kind to the bond.
func (h *hostilePeer) frame(id wire.SubflowID) {
	f := h.anyFrame(id)
	t, payload := f.Type(), f.AppendPayload(nil)
	switch h.numberBelow(24) {
	case 0:
		payload = payload[:h.numberBelow(len(payload)+1)]
	case 1:
		if len(payload) > 0 {
			payload[h.numberBelow(len(payload))] ^= 1 << h.numberBelow(8)
		}
	case 2:
		t = wire.Type(h.byte())
	}
	if t == wire.TypeData { // whatever became of it: its bytes are those of its place
		if d, err := wire.ParseData(payload); err == nil {
			k := h.stream(d.Stream)
			for i := range d.Bytes {
				d.Bytes[i] = content(d.Stream, uint64(d.Seq)+uint64(i), 0)
			}
			for at, end := uint64(d.Seq), uint64(d.Seq)+uint64(len(d.Bytes)); at < end; {
				next := min(end, at-at%64+64)
				k.there[at/64] |= (1<<(next-at) - 1) << (at % 64)
				at = next
			}
		}
	}
	if t == wire.TypeWindow {
		if w, err := wire.ParseWindow(payload); err == nil {
			k := h.stream(w.Stream)
			k.limit = max(k.limit, uint64(w.Limit))
		}
	}
	h.sent++
	h.frames--
	h.fed[id] += uint64(wire.HeaderLen + len(payload))
	if h.b.subflows.subflowByID(id) == nil {
		h.fed[id] = 0
	}
	if err := h.b.ReceiveFrame(id, t, payload, h.now); err != nil { // as package endpoint does
		h.b.RemoveSubflow(id, h.now)
	}
}

// anyFrame makes a frame that often fits the bond's state.
func (h *hostilePeer) anyFrame(on wire.SubflowID) wire.Frame {
	id := h.anyStream()
	s := h.b.streams.all[id]
	var next, end uint64
	if s != nil {
		next, end = uint64(s.reassembly.nextExpected), uint64(s.reassembly.limit)
		if s.reassembly.arrived.count > 0 && h.numberBelow(2) == 0 {
			next = uint64(s.reassembly.arrived.end)
		}
	}
	switch h.numberBelow(24) {
	case 0:
		return wire.Open{Stream: id, Dest: "far:1", Mode: wire.Mode(h.numberBelow(3)), Group: wire.GroupID(h.numberBelow(4))}
	case 1:
		return wire.Opened{Stream: id}
	case 2:
		return wire.Fin{Stream: id, Seq: wire.DataSeq(h.valueNear(next))}
	case 3:
		return wire.Reset{Stream: id, Code: wire.CodeClosed, Text: "so"}
	case 4:
		return wire.Window{Stream: id, Limit: wire.DataSeq(h.valueNear(end))}
	case 5:
		return wire.Chunk{Stream: id, End: wire.DataSeq(h.valueNear(next))}
	case 6:
		return wire.ClassUpdate{Stream: id, Serial: 1 + uint64(h.numberBelow(20)), Mode: wire.Mode(h.numberBelow(3)),
			Group: wire.GroupID(h.numberBelow(6))}
	case 7:
		g := wire.Group{ID: wire.GroupID(1 + h.numberBelow(4)),
			Priority: wire.Priority(h.numberBelow(int(wire.PriorityCount))), Weight: byte(1 + h.numberBelow(255)),
			Limited: h.numberBelow(2) == 0}
		if g.Limited {
			g.Subflows = []wire.SubflowID{on}
		}
		return wire.ClassTable{Serial: uint64(h.numberBelow(30)), Groups: []wire.Group{g}}
	case 8, 9:
		return wire.Datagram{Flow: wire.FlowID(1 + h.numberBelow(12)), Number: h.valueNear(uint64(h.sent)),
			Redundant: h.numberBelow(2) == 0, Group: wire.GroupID(h.numberBelow(4)),
			Addr: wire.Addr{Name: "far", Port: 53}, Bytes: make([]byte, h.numberBelow(1500))}
	case 10:
		return wire.FlowEnd{Flow: wire.FlowID(1 + h.numberBelow(12)), Code: wire.CodeClosed, Text: "so"}
	case 11:
		return wire.FlowRefused{Flow: wire.FlowID(1 + h.numberBelow(12)), Addr: wire.Addr{Name: "far", Port: 53},
			Code: wire.CodeForbidden}
	case 12, 13, 14:
		var a wire.Ack
		a.Delay = time.Duration(h.numberBelow(1<<10)) * time.Millisecond
		for range 1 + h.numberBelow(4) {
			p := wire.SubflowID(1 + h.numberBelow(4))
			_, sent := h.b.CarriedBytes(p)
			received := sent
			switch h.numberBelow(8) {
			case 0:
				received = h.valueNear(sent)
			case 1:
				received = sent / 2
			}
			a.Subflows = append(a.Subflows, wire.SubflowAck{Subflow: p, Received: received})
		}
		return a
	case 15:
		return wire.PipeState{Subflow: wire.SubflowID(1 + h.numberBelow(4)), HopState: h.hopState()}
	case 16:
		return wire.Choice{Stream: id, Subflows: []wire.SubflowID{on}, Reason: "so"}
	case 17:
		return wire.Expect{Stream: id, At: wire.DataSeq(h.valueNear(next)), End: wire.DataSeq(h.valueNear(end)),
			NeededIn: time.Duration(h.numberBelow(1000)) * time.Millisecond}
	case 18:
		if h.numberBelow(16) == 0 {
			return wire.Bye{}
		}
	}
	return wire.Data{Stream: id, Seq: wire.DataSeq(h.valueNear(next)), Bytes: make([]byte, h.size())}
}
