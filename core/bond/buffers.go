package bond

import "mpbond/base/unit"

// bufferLimits shares the memory for bytes to send, and that for bytes received, among the
// streams of a bond. It counts what all streams hold; a stream asks how much it may accept
// from its app and how large a window it may grant. Not safe for concurrent use.
type bufferLimits struct {
	memory      *memoryBudget
	metaBuffer  unit.Bytes // of a stream, for unsent bytes: Config.MetaBuffer
	maxBuffered unit.Bytes // Config.MaxBuffered
	firstWindow unit.Bytes // the window of every stream at its beginning

	heldBytes    unit.Bytes // bytes in send buffers, acknowledged ones excluded
	grownWindows unit.Bytes // receive windows beyond the first ones
}

// sendRoom returns how many bytes a send buffer may take now. The meta buffer bounds what is to be
// sent; what is in flight counts too when it is more than any window that we
// would grant, or when all streams together hold too much.
func (l *bufferLimits) sendRoom(s *sendBuffer) unit.Bytes {
	unacked := s.unackedBytes()
	room := min(l.metaBuffer-unit.Bytes(s.unsent.Size()), maxWindow+l.metaBuffer-unacked)
	if l.heldBytes >= l.maxBuffered {
		room = minMetaBuffer - unacked
	}
	if l.memory.isShort() {
		room = min(room, pageSize-unacked)
	}
	if l.heldBytes >= l.maxBuffered/4 {
		// What the receiver does not take yet is better left where it comes from,
		// so that streams whose readers are slow leave the memory to others.
		room = min(room, unit.Bytes(s.limit)+blockedAllowance-unit.Bytes(s.end))
	}
	return max(0, room)
}

// isNotableRoom reports whether a writer that waits is told of that much room: not of a few bytes at
// a time, unless there is nothing else that could tell it.
func (l *bufferLimits) isNotableRoom(room unit.Bytes, s *sendBuffer) bool {
	return room >= min(minMetaBuffer, l.metaBuffer)/2 || room > 0 && s.isEmpty()
}

// maxWindowOf returns the most that a window may be now: beyond the first window, a third of the
// memory for grown windows that others leave. So n streams that all want more get 1/(n+2) of
// it each, a new one finds some left, and whatever those hold that do not read, each one goes
// on with its first window at least (dynamic thresholds: Choudhury and Hahne, IEEE/ACM ToN
// 1998).
func (l *bufferLimits) maxWindowOf(window unit.Bytes) unit.Bytes {
	if l.memory.isShort() {
		return l.firstWindow
	}
	others := l.grownWindows - (window - l.firstWindow)
	return l.firstWindow + (l.maxBuffered-others)/3
}

// maxOpeningWindow returns the window of a stream that this end opens, which may be more than the
// first one. Half of the memory is left to streams that were seen to use it. It reports false
// while memory is short.
func (l *bufferLimits) openingWindow() (window unit.Bytes, ok bool) {
	if l.memory.isShort() {
		return 0, false
	}
	more := min(maxOpeningWindow-l.firstWindow, (l.maxBuffered/2-l.grownWindows)/16)
	return l.firstWindow + max(0, more), true
}

// countWindowChange counts a window that changes.
func (l *bufferLimits) countWindowChange(from, to unit.Bytes) { l.grownWindows += to - from }
