// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"mpbond/base/unit"
	"mpbond/link/wire"
)

// SetMode sets the mode of the bytes that this end sends from now on. At the end that opened the
// stream it also sets the mode of the other end if it is called before NextSegment.
func (s *Stream) SetMode(m wire.Mode) {
	if s.err != nil || s.permission.mode == m {
		return
	}
	s.bond.backlog.setStreamMode(s, m)
}

// Mode returns the stream's mode.
func (s *Stream) Mode() wire.Mode { return s.permission.mode }

// MarkChunkEnd marks the end of a chunk that the far end waits for, n bytes after the bytes written
// so far. Until the chunk is delivered, bytes are scheduled so that it is complete early; later
// bytes do not count.
func (s *Stream) MarkChunkEnd(n unit.Bytes) {
	end := min(s.send.end, wire.MaxSeq) + wire.DataSeq(min(max(n, 0), wire.MaxSeq))
	s.SetChunkEnd(end)
	s.announcedEnd = max(s.announcedEnd, end)
}

// SetChunkEnd is MarkChunkEnd with a position.
func (s *Stream) SetChunkEnd(end wire.DataSeq) {
	s.peerChunkEnd = max(s.peerChunkEnd, min(end, wire.MaxSeq))
}

// RequestChunk announces to the other end that this end waits for n bytes beyond those read from
// the stream: see MarkChunkEnd.
func (s *Stream) RequestChunk(n unit.Bytes) {
	end := min(s.reassembly.readOffset+wire.DataSeq(max(n, 0)), wire.MaxSeq)
	if s.err == nil && end > s.localChunkEnd {
		s.localChunkEnd = end
		s.bond.control.queueFrame(s, wire.TypeChunk)
	}
}

// awaitedEnd returns the end of the bytes that the far end waits for; MaxSeq if it waits for all.
func (s *Stream) awaitedEnd() wire.DataSeq {
	if s.peerChunkEnd > s.send.firstUnacked {
		return s.peerChunkEnd
	}
	return wire.MaxSeq
}
