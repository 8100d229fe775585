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
	s.bond.backlog.setMode(s, m)
}

// Mode is how the stream's bytes are treated.
func (s *Stream) Mode() wire.Mode { return s.route.mode }

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
