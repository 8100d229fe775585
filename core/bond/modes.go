package bond

import (
	"mpbond/base/unit"
	"mpbond/link/wire"
)

// SetMode tells how to treat the bytes of the stream that this end sends from
// now on. At the end that opened it the other end is told too, if that is done
// before Next is called.
func (s *Stream) SetMode(m wire.Mode) {
	if s.err != nil || s.route.mode == m {
		return
	}
	s.bond.backlog.setStreamMode(s, m)
}

// Mode is how the stream's bytes are treated.
func (s *Stream) Mode() wire.Mode { return s.route.mode }

// MarkChunkEnd tells that the bytes written so far, and n more, end a chunk, which the
// far end waits for: until its end is delivered, bytes are scheduled such that
// it is complete early, and not those that may be written after it.
func (s *Stream) MarkChunkEnd(n unit.Bytes) {
	s.SetChunkEnd(min(s.send.end, wire.MaxSeq) + wire.DataSeq(min(max(n, 0), wire.MaxSeq)))
}

// SetChunkEnd is Mark for a position.
func (s *Stream) SetChunkEnd(end wire.DataSeq) {
	s.peerChunkEnd = max(s.peerChunkEnd, min(end, wire.MaxSeq))
}

// RequestChunk tells the other end that this one waits for n more bytes than have been
// read from the stream: see Mark.
func (s *Stream) RequestChunk(n unit.Bytes) {
	end := min(s.reassembly.readOffset+wire.DataSeq(max(n, 0)), wire.MaxSeq)
	if s.err == nil && end > s.localChunkEnd {
		s.localChunkEnd = end
		s.bond.control.queueFrame(s, wire.TypeChunk)
	}
}

// awaitedEnd is the end of what the far end waits for, or of all.
func (s *Stream) awaitedEnd() wire.DataSeq {
	if s.peerChunkEnd > s.send.firstUnacked {
		return s.peerChunkEnd
	}
	return wire.MaxSeq
}
