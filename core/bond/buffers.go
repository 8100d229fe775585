package bond

import "mpbond/base/unit"

// bufferLimits shares the memory for bytes to send, and that for bytes received, among the
// streams of a bond. It counts what all streams hold; a stream asks how much it may accept
// from its app and how large a window it may grant. Not safe for concurrent use.
type bufferLimits struct {
	memory *memoryBudget
	meta   unit.Bytes // of a stream, for unsent bytes: Config.MetaBuffer
	most   unit.Bytes // Config.MaxBuffered
	first  unit.Bytes // the window of every stream at its beginning

	held  unit.Bytes // bytes in send buffers, acknowledged ones excluded
	grown unit.Bytes // receive windows beyond the first ones
}

// room returns how many bytes a send buffer may take now. The meta buffer bounds what is to be
// sent; what is in flight counts too when it is more than any window that we
// would grant, or when all streams together hold too much.
func (l *bufferLimits) room(s *sendBuffer) unit.Bytes {
	unacked := s.unacked()
	room := min(l.meta-unit.Bytes(s.unsent.Size()), maxWindow+l.meta-unacked)
	if l.held >= l.most {
		room = lowMetaBuffer - unacked
	}
	if l.memory.isShort() {
		room = min(room, pageSize-unacked)
	}
	if l.held >= l.most/4 {
		// What the receiver does not take yet is better left where it comes from,
		// so that streams whose readers are slow leave the memory to others.
		room = min(room, unit.Bytes(s.limit)+blockedBuffer-unit.Bytes(s.end))
	}
	return max(0, room)
}

// notable reports whether a writer that waits is told of that much room: not of a few bytes at
// a time, unless there is nothing else that could tell it.
func (l *bufferLimits) notable(room unit.Bytes, s *sendBuffer) bool {
	return room >= min(lowMetaBuffer, l.meta)/2 || room > 0 && s.empty()
}

// share returns the most that a window may be now: beyond the first window, a third of the
// memory for grown windows that others leave. So n streams that all want more get 1/(n+2) of
// it each, a new one finds some left, and whatever those hold that do not read, each one goes
// on with its first window at least (dynamic thresholds: Choudhury and Hahne, IEEE/ACM ToN
// 1998).
func (l *bufferLimits) share(window unit.Bytes) unit.Bytes {
	if l.memory.isShort() {
		return l.first
	}
	others := l.grown - (window - l.first)
	return l.first + (l.most-others)/3
}

// openingWindow returns the window of a stream that this end opens, which may be more than the
// first one. Half of the memory is left to streams that were seen to use it. It reports false
// while memory is short.
func (l *bufferLimits) openingWindow() (window unit.Bytes, ok bool) {
	if l.memory.isShort() {
		return 0, false
	}
	more := min(openingWindow-l.first, (l.most/2-l.grown)/16)
	return l.first + max(0, more), true
}

// resize counts a window that changes.
func (l *bufferLimits) resize(from, to unit.Bytes) { l.grown += to - from }
