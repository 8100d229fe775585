package transport

import (
	"encoding/binary"
	"slices"

	"mpbond/base/span"
	"mpbond/base/unit"
)

const (
	maxSendBuffer  = 16 << 20
	initialWindow  = 64 << 10 // which strangers have too
	maxWindowAhead = 1 << 32  // bytes over what is acknowledged that a peer's window may allow
)

// sender is the sending side of the stream: the bytes that the app wrote and the peer has
// not acknowledged, which of them must be sent again, and how far the peer lets us send.
// It cuts them into STREAM and FIN frames. All offsets are those of the stream, in bytes.
// It knows neither packets nor times, copies what is written, keeps it until it is
// acknowledged, and is not safe for concurrent use.
type sender struct {
	buf            ringBuffer       // from the first byte that is not acknowledged
	written        uint64           // end of what the app wrote
	next           uint64           // first byte never sent
	lost           span.Set[uint64] // to be sent again
	acked          span.Set[uint64] // above buf.base
	maxData        uint64           // the peer takes up to here
	fin            bool             // the app has closed its side
	finSent        bool
	finAcked       bool
	resentSegments uint64 // segments that were sent again
}

// segment is what one packet carries of the stream: the bytes from lo up to hi, none if
// these are equal, and with fin its end.
type segment struct {
	lo, hi uint64
	fin    bool
}

// write copies as much of p as there is room for, and returns how much.
func (s *sender) write(p []byte) int {
	n := min(len(p), maxSendBuffer-int(s.unackedBytes()))
	if n <= 0 {
		return 0
	}
	s.buf.grow(s.written + uint64(n))
	s.buf.copyIn(s.written, p[:n])
	s.written += uint64(n)
	return n
}

// unsentBytes returns how much was written and never sent.
func (s *sender) unsentBytes() unit.Bytes { return unit.Bytes(s.written - s.next) }

// unackedBytes returns how much was written and lies at or behind the first byte that is not
// acknowledged.
func (s *sender) unackedBytes() unit.Bytes { return unit.Bytes(s.written - s.buf.base) }

// ackedBytes returns how much is acknowledged.
func (s *sender) ackedBytes() uint64 { return s.buf.base + s.acked.Size() }

// isFlushed reports whether the peer has all that was written, and its end.
func (s *sender) isFlushed() bool { return s.finAcked && s.buf.base == s.written }

// isBlocked reports whether nothing but the peer's window holds the stream.
func (s *sender) isBlocked() bool {
	return s.next < s.written && s.next >= s.maxData && len(s.lost) == 0
}

// hasPendingData reports whether bytes, or the end of the stream, wait to be sent and the
// peer takes them.
func (s *sender) hasPendingData() bool {
	return len(s.lost) > 0 || s.next < s.written && s.next < s.maxData || s.fin && !s.finSent && s.next == s.written
}

// raiseMaxData lets the stream go up to offset maxData. Limits are never taken back.
func (s *sender) raiseMaxData(maxData uint64) {
	s.maxData = max(s.maxData, min(maxData, s.buf.base+maxWindowAhead))
}

// appendData appends frames with what was lost, else what is new, and with the end of
// the stream where it follows, in room bytes at most.
func (s *sender) appendData(b []byte, room int) ([]byte, segment) {
	const head = 1 + 9 + 3 // of STREAM
	var seg segment
	n := uint64(max(room-head, 1))
	switch {
	case len(s.lost) > 0:
		first := s.lost.TakeFirst(n)
		seg.lo, seg.hi = first.From, first.To
		s.resentSegments++
	case s.next < s.written && s.next < s.maxData:
		seg.lo = s.next
		seg.hi = min(s.written, s.maxData, s.next+n)
		s.next = seg.hi
	}
	b = s.appendStream(b, seg)
	if s.fin && !s.finSent && s.next == s.written && len(s.lost) == 0 && (seg.hi == seg.lo || room-int(seg.hi-seg.lo)-head > 10) {
		b = append(b, frameFin)
		b = binary.AppendUvarint(b, s.written)
		s.finSent, seg.fin = true, true
	}
	return b, seg
}

// appendOldest appends the oldest bytes that the peer lacks, if any were sent: a probe
// with them tells most (RFC 9002 section 6.2.4).
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
	s.buf.copyOut(seg.lo, b[at:])
	return b
}

// onAcked notes that the peer has a segment.
func (s *sender) onAcked(seg segment) {
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

// onLost has what the peer lacks of a segment sent again.
func (s *sender) onLost(seg segment) {
	if lo := max(seg.lo, s.buf.base); seg.hi > lo {
		for from, to := range s.acked.Missing(lo, seg.hi) {
			s.lost.Add(from, to)
		}
	}
	if seg.fin {
		s.finSent = s.finAcked
	}
}
