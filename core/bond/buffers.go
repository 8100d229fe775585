// SPDX-License-Identifier: Apache-2.0

package bond

import "mpbond/base/unit"

// bufferLimits divides the memory for bytes to send, and that for bytes received, among the streams
// of a bond. It counts the bytes of all streams. A stream asks it how much to accept from its app
// and how large a window to grant. Not safe for concurrent use.
type bufferLimits struct {
	memory      *memoryBudget
	metaBuffer  unit.Bytes // bound on a stream's unsent bytes: Config.MetaBuffer
	maxBuffered unit.Bytes // Config.MaxBuffered
	firstWindow unit.Bytes // first window of every stream

	heldBytes    unit.Bytes // bytes in send buffers that are not acknowledged
	grownWindows unit.Bytes // receive windows beyond the first ones
}

// sendBufferRoom returns how many bytes a send buffer may take now. The meta buffer bounds unsent
// bytes. Bytes in flight count too if they exceed any window that we would grant, or if all streams
// together hold too much.
func (l *bufferLimits) sendBufferRoom(s *sendBuffer) unit.Bytes {
	unacked := s.unackedSpanBytes()
	room := min(l.metaBuffer-unit.Bytes(s.unsent.Size()), maxWindow+l.metaBuffer-unacked)
	if l.heldBytes >= l.maxBuffered {
		room = minMetaBuffer - unacked
	}
	if l.memory.isMemoryShort() {
		room = min(room, pageSize-unacked)
	}
	if l.heldBytes >= l.maxBuffered/4 {
		// Bytes that the receiver does not accept yet should stay at their source, so that streams
		// with slow readers leave memory to others.
		room = min(room, unit.Bytes(s.limit)+blockedAllowance-unit.Bytes(s.end))
	}
	return max(0, room)
}

// isNotableRoom reports whether to notify a waiting writer of that much room. A few bytes do not
// count, unless no later event would notify it.
func (l *bufferLimits) isNotableRoom(room unit.Bytes, s *sendBuffer) bool {
	return room >= min(minMetaBuffer, l.metaBuffer)/2 || room > 0 && s.isFullyAcked()
}

// maxWindowOf returns the upper bound of a window: the first window, and a third of the memory for
// grown windows that others leave. So each of n streams that need more gets 1/(n+2) of that memory,
// a new one finds some left, and each keeps its first window whatever slow readers hold (dynamic
// thresholds: Choudhury and Hahne, IEEE/ACM ToN 1998).
func (l *bufferLimits) maxWindowOf(window unit.Bytes) unit.Bytes {
	if l.memory.isMemoryShort() {
		return l.firstWindow
	}
	others := l.grownWindows - (window - l.firstWindow)
	return l.firstWindow + (l.maxBuffered-others)/3
}

// openingWindow returns the window of a stream that this end opens, which may exceed the first
// window. It leaves half of the memory to streams that have proved to use it. It returns false
// while memory is short.
func (l *bufferLimits) openingWindow() (window unit.Bytes, ok bool) {
	if l.memory.isMemoryShort() {
		return 0, false
	}
	more := min(maxOpeningWindow-l.firstWindow, (l.maxBuffered/2-l.grownWindows)/16)
	return l.firstWindow + max(0, more), true
}

// countWindowChange counts the change of a window.
func (l *bufferLimits) countWindowChange(from, to unit.Bytes) { l.grownWindows += to - from }
