package bond

import (
	"mpbond/base/unit"
	"mpbond/link/wire"
)

// sendBuffer holds the bytes that a stream sends, from Write until the far end has them. A
// byte is unsent (the meta buffer), in flight on at least one subflow, or acknowledged; those
// before firstUnacked are acknowledged and their pages given up. Bytes in flight that are
// given back are unsent again, and shared while the subflow that carried them may still
// deliver them. Positions count from the start of the stream. It says nothing of the FIN. Not
// safe for concurrent use.
type sendBuffer struct {
	pages        pages
	firstUnacked wire.DataSeq // all before it is acknowledged
	end          wire.DataSeq // follows the last byte written
	limit        wire.DataSeq // the far end's window ends there
	unsent       seqSet
	acked        seqSet // beyond firstUnacked
	shared       seqSet // of unsent, what a live subflow carries already
}

// unackedBytes returns how many bytes lie between the first that is not acknowledged and the end.
func (s *sendBuffer) unackedBytes() unit.Bytes { return unit.Bytes(s.end - s.firstUnacked) }

// heldBytes returns how many bytes are not acknowledged.
func (s *sendBuffer) heldBytes() unit.Bytes { return s.unackedBytes() - unit.Bytes(s.acked.Size()) }

// isEmpty reports whether every byte that was written is acknowledged.
func (s *sendBuffer) isEmpty() bool { return s.firstUnacked == s.end }

// isSendable reports whether a byte is unsent that the window has room for.
func (s *sendBuffer) isSendable() bool { return len(s.unsent) > 0 && s.unsent[0].From < s.limit }

// sharesNext reports whether a live subflow may still deliver the next unsent byte.
func (s *sendBuffer) sharesNext() bool {
	return len(s.unsent) > 0 && s.shared.Contains(s.unsent[0].From, s.unsent[0].From+1)
}

// write copies p to the end, unsent. It reports false, and does nothing, if there is no memory.
func (s *sendBuffer) write(p []byte) bool {
	end := s.end + wire.DataSeq(len(p))
	if !s.pages.reserve(s.end, end) {
		return false
	}
	s.pages.write(s.end, p)
	s.unsent.Add(s.end, end)
	s.end = end
	return true
}

// raiseLimit lets the window end at limit and reports whether that is further on.
func (s *sendBuffer) raiseLimit(limit wire.DataSeq) bool {
	if limit <= s.limit {
		return false
	}
	s.limit = limit
	return true
}

// nextSpan returns what to send now of a sendable buffer, at most n bytes: from ahead unsent bytes
// on, or as far on as the window reaches, or from the end.
func (s *sendBuffer) nextSpan(ahead unit.Bytes, n wire.DataSeq, fromEnd bool) seqSpan {
	last := len(s.unsent) - 1
	for s.unsent[last].From >= s.limit {
		last--
	}
	if fromEnd {
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
	return seqSpan{} // not reached: the last part always returns
}

// appendSpan appends the bytes of a span, which are not acknowledged, to buf.
func (s *sendBuffer) appendSpan(buf []byte, part seqSpan) []byte {
	return s.pages.appendTo(buf, part.From, part.To)
}

// markSent notes that a span is in flight. It reports whether a byte of it was shared.
func (s *sendBuffer) markSent(part seqSpan) (wasShared bool) {
	s.unsent.Remove(part.From, part.To)
	return s.shared.Remove(part.From, part.To) > 0
}

// eachUnacked calls f for each part of a span that is not acknowledged.
func (s *sendBuffer) eachUnacked(part seqSpan, f func(seqSpan)) {
	for from, to := range s.acked.Missing(max(part.From, s.firstUnacked), max(part.To, s.firstUnacked)) {
		f(seqSpan{From: from, To: to})
	}
}

// hasUnacked reports whether a byte of a span is not acknowledged.
func (s *sendBuffer) hasUnacked(part seqSpan) bool {
	return !s.acked.Contains(max(part.From, s.firstUnacked), max(part.To, s.firstUnacked))
}

// requeueSpan makes the parts of a span that are not acknowledged unsent again and calls f for
// each. Alive tells that the subflow that carried them may still deliver them. It returns how
// many bytes were not unsent.
func (s *sendBuffer) requeueSpan(part seqSpan, alive bool, f func(seqSpan)) (n unit.Bytes) {
	s.eachUnacked(part, func(part seqSpan) {
		n += unit.Bytes(s.unsent.Add(part.From, part.To))
		if alive {
			s.shared.Add(part.From, part.To)
		} else {
			s.shared.Remove(part.From, part.To)
		}
		f(part)
	})
	return n
}

// acknowledge notes that the far end has a span, and returns how many bytes of it were not
// acknowledged yet.
func (s *sendBuffer) acknowledge(part seqSpan) unit.Bytes {
	n := s.acked.Add(max(part.From, s.firstUnacked), max(part.To, s.firstUnacked))
	s.unsent.Remove(part.From, part.To)
	s.shared.Remove(part.From, part.To)
	if end := s.acked.EndOf(s.firstUnacked); end > s.firstUnacked {
		s.acked.Remove(s.firstUnacked, end)
		s.firstUnacked = end
		if s.isEmpty() {
			s.pages.clear(s.firstUnacked)
		} else {
			s.pages.releaseBefore(s.firstUnacked)
		}
	}
	return unit.Bytes(n)
}

// dropAll gives up all bytes, as if they were acknowledged, and returns how many were not.
func (s *sendBuffer) dropAll() unit.Bytes {
	n := s.heldBytes()
	s.firstUnacked = s.end
	s.unsent, s.acked, s.shared = nil, nil, nil
	s.pages.dropAll()
	return n
}
