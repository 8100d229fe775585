// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"encoding/binary"
	"slices"

	"mpbond/base/span"
	"mpbond/base/unit"
)

const (
	maxSendBuffer  = 16 << 20
	initialWindow  = 64 << 10 // also for peers that are not authenticated yet
	maxWindowAhead = 1 << 32  // bytes beyond the acknowledged ones that a peer's window may allow
)

// sender is the sending side of the stream. It keeps the bytes that the application wrote until the
// peer has acknowledged them, knows which must be sent again, and obeys the peer's flow control
// window. It builds STREAM and FIN frames. Offsets are in bytes of the stream. It knows neither
// packets nor times. It copies its input. It is not safe for concurrent use.
type sender struct {
	buf                   ringBuffer       // from the first unacknowledged byte
	written               uint64           // offset after the last written byte
	next                  uint64           // offset of the first byte never sent
	lost                  span.Set[uint64] // ranges to send again
	acked                 span.Set[uint64] // acknowledged ranges above buf.base
	maxData               uint64           // the peer accepts bytes below this offset
	fin                   bool             // the application has closed its side
	finSent               bool
	finAcked              bool
	retransmittedSegments uint64 // segments sent again
}

// segment is the part of the stream in one packet: bytes from lo up to hi (none if they are equal),
// and the end of the stream if fin is set.
type segment struct {
	lo, hi uint64
	fin    bool
}

// writeToBuffer copies as much of p as fits into the buffer and returns the number of bytes.
func (s *sender) writeToBuffer(p []byte) int {
	n := min(len(p), maxSendBuffer-int(s.unackedStreamBytes()))
	if n <= 0 {
		return 0
	}
	s.buf.growToOffset(s.written + uint64(n))
	s.buf.copyToOffset(s.written, p[:n])
	s.written += uint64(n)
	return n
}

// unsentBytes returns how many written bytes were never sent.
func (s *sender) unsentBytes() unit.Bytes { return unit.Bytes(s.written - s.next) }

// unackedStreamBytes returns how many bytes were written from the first unacknowledged one on.
func (s *sender) unackedStreamBytes() unit.Bytes { return unit.Bytes(s.written - s.buf.base) }

// hasDataInFlight reports whether bytes, or the end of the stream, were sent and are not acknowledged.
func (s *sender) hasDataInFlight() bool { return s.buf.base < s.next || s.finSent && !s.finAcked }

// ackedBytes returns how many bytes are acknowledged.
func (s *sender) ackedBytes() uint64 { return s.buf.base + s.acked.Size() }

// isStreamFlushed reports whether the peer has acknowledged all bytes and the end of the stream.
func (s *sender) isStreamFlushed() bool { return s.finAcked && s.buf.base == s.written }

// isWindowBlocked reports whether only the peer's flow control window prevents sending.
func (s *sender) isWindowBlocked() bool {
	return s.next < s.written && s.next >= s.maxData && len(s.lost) == 0
}

// hasPendingData reports whether bytes, or the end of the stream, can be sent within the peer's
// window.
func (s *sender) hasPendingData() bool {
	return len(s.lost) > 0 || s.next < s.written && s.next < s.maxData || s.fin && !s.finSent && s.next == s.written
}

// raiseMaxData raises the peer's flow control limit. Lower limits are ignored.
func (s *sender) raiseMaxData(maxData uint64) {
	s.maxData = max(s.maxData, min(maxData, s.buf.base+maxWindowAhead))
}

// appendStreamData appends frames with lost bytes, or else with new ones, and with the end of the
// stream if it follows. It uses room bytes at most.
func (s *sender) appendStreamData(b []byte, room int) ([]byte, segment) {
	const head = 1 + 9 + 3 // STREAM frame header
	var seg segment
	n := uint64(max(room-head, 1))
	switch {
	case len(s.lost) > 0:
		first := s.lost.TakeFirst(n)
		seg.lo, seg.hi = first.From, first.To
		s.retransmittedSegments++
	case s.next < s.written && s.next < s.maxData:
		seg.lo = s.next
		seg.hi = min(s.written, s.maxData, s.next+n)
		s.next = seg.hi
	}
	b = s.appendStream(b, seg)
	finFits := seg.hi == seg.lo || room-int(seg.hi-seg.lo)-head > 10
	if s.fin && !s.finSent && s.next == s.written && len(s.lost) == 0 && finFits {
		b = append(b, frameFin)
		b = binary.AppendUvarint(b, s.written)
		s.finSent, seg.fin = true, true
	}
	return b, seg
}

// appendOldest appends the oldest unacknowledged bytes, if any were sent. They make the most useful
// probe (RFC 9002 section 6.2.4).
func (s *sender) appendOldest(b []byte, room int) ([]byte, segment) {
	var seg segment
	if n := room - 20; n > 0 && s.buf.base < s.next {
		seg.lo = s.buf.base
		seg.hi = min(s.next, seg.lo+uint64(n))
		if len(s.acked) > 0 {
			seg.hi = min(seg.hi, s.acked[0].From)
		}
	}
	return s.appendStream(b, seg), seg
}

// appendStream appends a STREAM frame with the bytes of a segment, if it has any.
func (s *sender) appendStream(b []byte, seg segment) []byte {
	if seg.hi == seg.lo {
		return b
	}
	b = append(b, frameStream)
	b = binary.AppendUvarint(b, seg.lo)
	b = binary.AppendUvarint(b, seg.hi-seg.lo)
	at, n := len(b), int(seg.hi-seg.lo)
	b = slices.Grow(b, n)[:at+n]
	s.buf.copyFromOffset(seg.lo, b[at:])
	return b
}

// onSegmentAcked records that the peer has received a segment.
func (s *sender) onSegmentAcked(seg segment) {
	s.finAcked = s.finAcked || seg.fin
	lo, hi := max(seg.lo, s.buf.base), seg.hi
	if hi <= lo {
		return
	}
	s.lost.Remove(lo, hi)
	s.acked.Add(lo, hi)
	if end := s.acked.EndOf(s.buf.base); end > s.buf.base {
		s.acked.Remove(s.buf.base, end)
		s.buf.base = end
	}
}

// onSegmentLost queues the unacknowledged bytes of a lost segment again.
func (s *sender) onSegmentLost(seg segment) {
	if lo := max(seg.lo, s.buf.base); seg.hi > lo {
		for from, to := range s.acked.Missing(lo, seg.hi) {
			s.lost.Add(from, to)
		}
	}
	if seg.fin {
		s.finSent = s.finAcked
	}
}
