// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"mpbond/base/unit"
	"mpbond/link/wire"
)

// sendBuffer holds the bytes of a stream from Write until they are acknowledged. A byte that is not
// acknowledged is unsent, in flight on at least one subflow, or both. Unsent bytes are the meta
// buffer: they wait for a subflow, for the first time or again. Recalled bytes are unsent again,
// and in alsoInFlight while the subflow that carries them may still deliver them. The pages of
// bytes before firstUnacked are freed. Positions count from the start of the stream. The FIN is not
// included. Not safe for concurrent use.
type sendBuffer struct {
	pages        pages
	firstUnacked wire.DataSeq // all bytes before it are acknowledged
	end          wire.DataSeq // after the last byte written
	limit        wire.DataSeq // end of the far end's window
	unsent       seqSet
	acked        seqSet // beyond firstUnacked
	alsoInFlight seqSet // unsent bytes that are still in flight on a live subflow
}

// unackedSpanBytes returns how many bytes lie from the first unacknowledged byte to the end.
func (s *sendBuffer) unackedSpanBytes() unit.Bytes { return unit.Bytes(s.end - s.firstUnacked) }

// countUnacked returns how many bytes are not acknowledged.
func (s *sendBuffer) countUnacked() unit.Bytes {
	return s.unackedSpanBytes() - unit.Bytes(s.acked.Size())
}

// isFullyAcked reports whether every byte written is acknowledged.
func (s *sendBuffer) isFullyAcked() bool { return s.firstUnacked == s.end }

// isSendable reports whether an unsent byte lies within the window.
func (s *sendBuffer) isSendable() bool { return len(s.unsent) > 0 && s.unsent[0].From < s.limit }

// sendableRoom returns how many bytes of the window are still to be sent: unsent bytes, and those
// that may be written.
func (s *sendBuffer) sendableRoom() unit.Bytes {
	n := max(s.limit, s.end) - s.end
	for _, part := range s.unsent {
		n += max(min(part.To, s.limit), part.From) - part.From
	}
	return unit.Bytes(n)
}

// sharesNext reports whether a live subflow may still deliver the next unsent byte.
func (s *sendBuffer) sharesNext() bool {
	return len(s.unsent) > 0 && s.alsoInFlight.Contains(s.unsent[0].From, s.unsent[0].From+1)
}

// appendUnsent appends a copy of as much of p as there is memory for, as unsent bytes, and returns
// how much.
func (s *sendBuffer) appendUnsent(p []byte) int {
	end := s.pages.reservePages(s.end, s.end+wire.DataSeq(len(p)))
	p = p[:end-s.end]
	s.pages.writeBytesAt(s.end, p)
	s.unsent.Add(s.end, end)
	s.end = end
	return len(p)
}

// raiseLimit sets the end of the window and reports whether that raised it.
func (s *sendBuffer) raiseLimit(limit wire.DataSeq) bool {
	if limit <= s.limit {
		return false
	}
	s.limit = limit
	return true
}

// sharesAll reports whether live subflows may still deliver all unsent bytes.
func (s *sendBuffer) sharesAll() bool { return s.alsoInFlight.Size() == s.unsent.Size() }

// nextUnsentSpan returns at most n bytes of a sendable buffer to send next: after ahead unsent
// bytes, or as far as the window permits. If all were recalled from live subflows, these are the
// last ones: the subflows deliver the first ones meanwhile.
func (s *sendBuffer) nextUnsentSpan(ahead unit.Bytes, n wire.DataSeq) seqSpan {
	last := len(s.unsent) - 1
	for s.unsent[last].From >= s.limit {
		last--
	}
	if s.sharesAll() {
		ahead = unit.Bytes(s.end)
	}
	for i, part := range s.unsent[:last+1] {
		part.To = min(part.To, s.limit)
		size := unit.Bytes(part.To - part.From)
		if ahead < size || i == last {
			part.From += min(wire.DataSeq(ahead), max(part.To-part.From, n)-n)
			part.To = min(part.To, part.From+n)
			return part
		}
		ahead -= size
	}
	return seqSpan{} // unreachable: the last part always returns
}

// appendSpan appends the bytes of a span, which must not be acknowledged, to buf.
func (s *sendBuffer) appendSpan(buf []byte, part seqSpan) []byte {
	return s.pages.appendStored(buf, part.From, part.To)
}

// markSpanSent records that a span is in flight. It reports whether any byte of it already was, on
// another live subflow.
func (s *sendBuffer) markSpanSent(part seqSpan) (wasInFlight bool) {
	s.unsent.Remove(part.From, part.To)
	return s.alsoInFlight.Remove(part.From, part.To) > 0
}

// eachUnacked calls f for each unacknowledged part of a span.
func (s *sendBuffer) eachUnacked(part seqSpan, f func(seqSpan)) {
	for from, to := range s.acked.Missing(max(part.From, s.firstUnacked), max(part.To, s.firstUnacked)) {
		f(seqSpan{From: from, To: to})
	}
}

// hasUnacked reports whether a byte of a span is not acknowledged.
func (s *sendBuffer) hasUnacked(part seqSpan) bool {
	return !s.acked.Contains(max(part.From, s.firstUnacked), max(part.To, s.firstUnacked))
}

// requeueSpan makes the unacknowledged parts of a span unsent again and calls f for each. alive
// reports that the subflow that carried them is in use: then these bytes are not recalled from the
// next subflow too. It returns how many bytes were not unsent before.
func (s *sendBuffer) requeueSpan(part seqSpan, alive bool, f func(seqSpan)) (n unit.Bytes) {
	s.eachUnacked(part, func(part seqSpan) {
		n += unit.Bytes(s.unsent.Add(part.From, part.To))
		if alive {
			s.alsoInFlight.Add(part.From, part.To)
		} else {
			s.alsoInFlight.Remove(part.From, part.To)
		}
		f(part)
	})
	return n
}

// acknowledge records that the far end has received a span. It returns how many bytes of it are
// newly acknowledged.
func (s *sendBuffer) acknowledge(part seqSpan) unit.Bytes {
	n := s.acked.Add(max(part.From, s.firstUnacked), max(part.To, s.firstUnacked))
	s.unsent.Remove(part.From, part.To)
	s.alsoInFlight.Remove(part.From, part.To)
	if end := s.acked.EndOf(s.firstUnacked); end > s.firstUnacked {
		s.acked.Remove(s.firstUnacked, end)
		s.firstUnacked = end
		if s.isFullyAcked() {
			s.pages.restartPagesAt(s.firstUnacked)
		} else {
			s.pages.freePagesBefore(s.firstUnacked)
		}
	}
	return unit.Bytes(n)
}

// dropHeldBytes drops all bytes as if they were acknowledged. It returns how many were not.
func (s *sendBuffer) dropHeldBytes() unit.Bytes {
	n := s.countUnacked()
	s.firstUnacked = s.end
	s.unsent, s.acked, s.alsoInFlight = nil, nil, nil
	s.pages.freeAllPages()
	return n
}
