package bond

import (
	"time"

	"mpbond/base/unit"
	"mpbond/core/trace"
	"mpbond/link/wire"
)

// SetMode tells how to treat the bytes of the stream that this end sends from
// now on. At the end that opened it the other end is told too, if that is done
// before Next is called.
func (s *Stream) SetMode(m wire.Mode) {
	if s.err != nil || s.route.mode == m {
		return
	}
	s.bond.backlog.setMode(s, m)
}

// Mode is how the stream's bytes are treated.
func (s *Stream) Mode() wire.Mode { return s.route.mode }

// expressStream is a stream of mode Latency and the idle path that it is pinned
// to, if there is one with bytes to send.
func (b *Bond) expressStream(now time.Time) (*subflow, *Stream) {
	b.backlog.dropUnsendable()
	if len(b.backlog.lowLatency) == 0 {
		return nil, nil
	}
	all := b.filter.fastest(nil, nil, now)
	for _, s := range b.backlog.lowLatency {
		if !s.send.sendable() {
			continue
		}
		best := all
		if g := b.classes.find(s.route.group); g != nil && g.limited {
			best = b.filter.fastest(nil, g, now)
			if s.pin.subflow != nil && !g.permits(s.pin.subflow.id) {
				s.pin.subflow = nil
			}
		}
		if move, _ := s.pin.shouldMove(best, now); move {
			s.pin = pinnedSubflow{subflow: best}
		}
		if p := s.pin.subflow; p != nil {
			p.extendLowLatency(now.Add(expressFor))
			if p.idle {
				return p, s
			}
		}
	}
	return nil, nil
}

// fillExpress appends a segment of the stream's next bytes for the path p that
// it is pinned to.
func (b *Bond) fillExpress(p *subflow, s *Stream, now time.Time, buf []byte) []byte {
	p.streamsFirst = false
	b.backlog.lowLatency = removeStream(b.backlog.lowLatency, s)
	buf, _ = b.fillStream(p, s, fill{room: p.segmentSize(now)}, now, buf)
	return buf
}

// Mark tells that the bytes written so far, and n more, end a chunk, which the
// far end waits for: until its end is delivered, bytes are scheduled such that
// it is complete early, and not those that may be written after it.
func (s *Stream) Mark(n unit.Bytes) {
	s.ChunkEnd(min(s.send.end, wire.MaxSeq) + wire.DataSeq(min(max(n, 0), wire.MaxSeq)))
}

// ChunkEnd is Mark for a position.
func (s *Stream) ChunkEnd(end wire.DataSeq) {
	s.chunk = max(s.chunk, min(end, wire.MaxSeq))
}

// Await tells the other end that this one waits for n more bytes than have been
// read from the stream: see Mark.
func (s *Stream) Await(n unit.Bytes) {
	end := min(s.reassembly.readOffset+wire.DataSeq(max(n, 0)), wire.MaxSeq)
	if s.err == nil && end > s.wanted {
		s.wanted = end
		s.bond.control.add(s, wire.TypeChunk)
	}
}

// awaited is the end of what the far end waits for, or of all.
func (s *Stream) awaited() wire.DataSeq {
	if s.chunk > s.send.firstUnacked {
		return s.chunk
	}
	return wire.MaxSeq
}

// overdue reports whether a helped subflow holds bytes that another one could carry
// for longer than any that it was meant to hold: it is slower than was believed,
// or its pace has been limited since.
func (b *Bond) overdue(now time.Time) bool {
	for _, p := range b.subflows.list {
		if !p.est.Helped || p.inFlight.recallable == 0 {
			continue
		}
		if n := p.est.At(now); n.Overdue > overdueAfter || p.est.Hop().Limit > 0 && n.PAD > overdueAfter {
			return true
		}
	}
	return false
}

// fill is how a segment is filled from a stream.
type fill struct {
	room    int        // bytes of frames
	ahead   unit.Bytes // this far into the meta buffer
	fromEnd bool       // from the end of the meta buffer
	copies  bool       // for every other subflow too
}

// fillStream appends bytes of a stream that has been taken from its turn, and
// lets it have another one while it has more. It returns the room left.
func (b *Bond) fillStream(p *subflow, s *Stream, f fill, now time.Time, buf []byte) ([]byte, int) {
	r := b.backlog.rank(s)
	b.classes.beginTurn(r)
	for f.room > wire.MaxDataHeader && s.send.sendable() {
		at := len(buf)
		part := s.send.next(f.ahead, wire.DataSeq(f.room-wire.MaxDataHeader), f.fromEnd)
		buf = wire.AppendData(buf, s.id, part.from, int(part.to-part.from))
		buf = s.send.append(buf, part)
		sent := sentFrame{frameType: wire.TypeData, stream: s, from: part.from, to: part.to}
		sent.copied = s.send.markSent(part) || s.route.only != 0 // it is of no use elsewhere
		if f.copies {
			sent.copied = b.copyToOthers(p, copyOf{s, part.from, part.to}) || sent.copied
		}
		sent.end = p.noteFrame(len(buf)-at, sent)
		s.route.burst += unit.Bytes(part.to - part.from)
		r.count(unit.Bytes(part.to - part.from))
		b.ledger.Given += unit.Bytes(part.to - part.from)
		b.trace.bytes(now, trace.Segment, p, sent, "")
		f.room -= len(buf) - at
	}
	if len(s.send.unsent) == 0 {
		s.route.burst = 0
	}
	if !s.send.sendable() {
		s.route.fullSince = time.Time{}
	}
	s.backlog.queued = false
	b.backlog.update(s)
	if s.roomy() {
		b.notify(s)
	}
	return buf, f.room
}
