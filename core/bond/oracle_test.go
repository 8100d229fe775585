// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"mpbond/base/unit"
	"mpbond/link/wire"
)

// What must be true of a bond all the time: a run that breaks one of these
// ends there, not where the harm shows.

// inspect checks a segment that end d gives to a subflow.
func (n *simNet) inspect(p *simSubflow, d int, seg []byte) {
	if len(seg) > 2*maxSegment+wire.MaxPayload {
		n.fatal("a segment of %d bytes", len(seg))
	}
	err := eachFrame(seg, func(t wire.Type, payload []byte) error {
		n.noteFrame(d, p.id, false, t, payload)
		switch t {
		case wire.TypeData:
			f, err := wire.ParseData(payload)
			if err != nil {
				return err
			}
			end := f.Seq + wire.DataSeq(len(f.Bytes))
			if limit := n.limitOf(d, f.Stream); *limit < end {
				n.fail(focus{f.Stream, d, *limit, end}, "%s sends stream %d up to %d, beyond the window of %d", endNames[d],
					f.Stream, end, *limit)
			}
			n.checkPattern(f.Stream, d, int(f.Seq), f.Bytes)
			n.checkGuided(p, d, f)
		case wire.TypeDatagram:
			f, err := wire.ParseDatagram(payload)
			if err != nil {
				return err
			}
			if int(f.Flow) < len(n.flows) {
				n.flows[f.Flow].recordSent(d, p.id, f.Number)
				if !n.ends[d].classes.findGroupClass(f.Group).permitsSubflow(p.id) {
					n.fatal("%s sends a datagram of group %d on subflow %d, which the plan forbids", endNames[d], f.Group, p.id)
				}
			}
		case wire.TypeWindow:
			f, err := wire.ParseWindow(payload)
			if err != nil {
				return err
			}
			limit := n.limitOf(1-d, f.Stream)
			*limit = max(*limit, f.Limit)
		case wire.TypeAck:
			f, err := wire.ParseAck(payload, nil)
			if err != nil {
				return err
			}
			for _, a := range f.Subflows {
				if q := n.findSubflow(a.Subflow); q == nil || a.Received > q.got[d] {
					n.fatal("%s acknowledges %d bytes of subflow %d, of which it has got %d", endNames[d], a.Received, a.Subflow,
						q.got[d])
				}
			}
		}
		return nil
	})
	if err != nil {
		n.fatal("%s writes what cannot be read: %v", endNames[d], err)
	}
}

// limitOf returns the window that end d received for a stream.
func (n *simNet) limitOf(d int, s wire.StreamID) *wire.DataSeq {
	for int(s) >= len(n.granted[d]) {
		n.granted[d] = append(n.granted[d], wire.DataSeq(initialWindow(n.ends[d].cfg.OpensStreams)))
	}
	return &n.granted[d][s]
}

// checkEnd checks an end after an event: cheap checks each time, others at intervals.
func (n *simNet) checkEnd(d int) {
	b, other := n.ends[d], n.ends[1-d]
	n.checks++
	streams := unit.Bytes(len(b.streams.all))
	if limit := b.cfg.MaxBuffered + minMetaBuffer*streams + b.cfg.MetaBuffer; b.buffers.heldBytes > limit {
		n.fatal("%s holds %v to send, bound %v", endNames[d], b.buffers.heldBytes, limit)
	}
	if b.buffers.grownWindows > b.cfg.MaxBuffered {
		n.fatal("windows of %s have grown by %v, bound %v", endNames[d], b.buffers.grownWindows, b.cfg.MaxBuffered)
	}
	// A stream has at most one frame of each kind in the queue; one that was
	// reset has its RESET.
	if limit := 5*len(n.transfers) + 2; len(b.control.frames) > limit {
		n.fatal("%d control frames queue at %s", len(b.control.frames), endNames[d])
	}
	if b.flows.outBytes > maxFlowBytes || b.flows.inBytes > maxFlowBytes {
		n.fatal("%s holds datagrams of %v to send and %v received", endNames[d], b.flows.outBytes, b.flows.inBytes)
	}
	if len(b.pool.free) > maxFreePages {
		n.fatal("%s keeps %d free pages", endNames[d], len(b.pool.free))
	}
	dup, twice := b.Stats().Duplicate, sentTwice(other.Stats())
	if dup > twice+n.dropped(d) {
		n.fatal("%s got %v twice, but %s has sent only %v twice", endNames[d], dup, endNames[1-d], twice)
	}
	if n.checks%16 == 0 {
		n.checkStreams(d)
	}
}

// sentTwice returns the bytes that an end gave to a second subflow, for all causes together.
func sentTwice(s Stats) unit.Bytes {
	return s.LostSubflow + s.ReinjectedSilent + s.ReinjectedTail + s.Redundant
}

// checkStreams checks the streams of an end one by one, and their sums.
func (n *simNet) checkStreams(d int) {
	b := n.ends[d]
	var pending, held, grown unit.Bytes
	pages := 0
	for _, tr := range n.transfers[1:] {
		s := b.streams.all[tr.id]
		if s == nil {
			continue
		}
		out, in := unit.Bytes(s.send.end-s.send.firstUnacked), unit.Bytes(s.reassembly.limit-s.reassembly.readOffset)
		pending += unit.Bytes(s.send.unsent.Size())
		held += out - unit.Bytes(s.send.acked.Size())
		grown += s.reassembly.window - b.buffers.firstWindow
		if limit := maxWindow + b.cfg.MetaBuffer + minMetaBuffer; out > limit {
			n.fatal("stream %d holds %v to send at %s, bound %v", s.id, out, endNames[d], limit)
		}
		if s.reassembly.window > maxWindow || in > s.reassembly.window {
			n.fatal("stream %d grants %v beyond what was read at %s, of a window of %v", s.id, in, endNames[d],
				s.reassembly.window)
		}
		if have := unit.Bytes(s.reassembly.nextExpected-s.reassembly.readOffset) +
			unit.Bytes(s.reassembly.arrived.count); have > in {
			n.fatal("stream %d keeps %v received bytes at %s, more than the %v granted", s.id, have, endNames[d], in)
		}
		here := 0
		for _, list := range [][]*page{s.send.pages.list, s.reassembly.pages.list} {
			for _, pg := range list {
				if pg != nil {
					here++
				}
			}
		}
		if limit := int(out/pageSize) + int(in/pageSize) + 4; here > limit {
			n.fatal("stream %d has %d pages at %s, bound %d", s.id, here, endNames[d], limit)
		}
		pages += here
		n.checkAcked(tr, d, s)
	}
	if n.foreign != 0 {
		return // there is one more
	}
	if pending != b.backlog.pending+b.backlog.lowLatencyPending || held != b.buffers.heldBytes ||
		grown != b.buffers.grownWindows {
		n.fatal("%s counts %v pending, %v held, %v grown; its streams have %v, %v and %v", endNames[d], b.backlog.pending,
			b.buffers.heldBytes, b.buffers.grownWindows, pending, held, grown)
	}
	if ranks := b.backlog.pendingByPriority[0] + b.backlog.pendingByPriority[1] +
		b.backlog.pendingByPriority[2]; ranks != b.backlog.pending {
		n.fatal("%s counts %v pending, and %v by class", endNames[d], b.backlog.pending, b.backlog.pendingByPriority)
	}
	// Streams that have ended may have bytes that the app has not read.
	if len(b.streams.all) == len(n.transfers)-1 && pages != b.pool.inUse {
		n.fatal("%s counts %d pages in use; its streams have %d", endNames[d], b.pool.inUse, pages)
	}
}

// checkAcked fails if end d takes bytes of a stream for received that the
// other end does not have.
func (n *simNet) checkAcked(tr *transfer, d int, s *Stream) {
	peer := n.ends[1-d].streams.all[tr.id]
	if peer == nil || s.err != nil || peer.err != nil {
		return
	}
	if s.send.firstUnacked > peer.reassembly.nextExpected {
		n.fail(focus{tr.id, d, peer.reassembly.nextExpected, s.send.firstUnacked},
			"%s has let go of stream %d up to %d; %s has it up to %d",
			endNames[d], tr.id, s.send.firstUnacked, endNames[1-d], peer.reassembly.nextExpected)
	}
	for _, a := range s.send.acked {
		peer.reassembly.arrived.eachMissing(max(a.From, peer.reassembly.nextExpected),
			max(a.To, peer.reassembly.nextExpected), func(from, to wire.DataSeq) {
				n.fail(focus{tr.id, d, from, to}, "%s counts bytes %d to %d of stream %d as acknowledged, which %s does not have",
					endNames[d], from, to, tr.id, endNames[1-d])
			})
	}
}

// checkEmpty fails if anything is left behind after all streams have ended.
func (n *simNet) checkEmpty() {
	for d, b := range n.ends {
		if b.StreamCount() > 0 || b.pool.inUse != 0 || b.backlog.pending != 0 || b.buffers.heldBytes != 0 ||
			b.buffers.grownWindows != 0 || len(b.control.frames) > 0 || len(b.backlog.ready) > 0 {
			n.fatal("%s leaves %d streams, %d pages, %v pending, %v held, %v grown, %d control frames, %d ready%s", endNames[d],
				b.StreamCount(), b.pool.inUse, b.backlog.pending, b.buffers.heldBytes, b.buffers.grownWindows,
				len(b.control.frames), len(b.backlog.ready), n.unfinished())
		}
		if b.FlowCount() > 0 || b.flows.outBytes != 0 || b.flows.inBytes != 0 {
			n.fatal("%s leaves %d flows with %v to send and %v received", endNames[d], b.FlowCount(), b.flows.outBytes,
				b.flows.inBytes)
		}
	}
}
