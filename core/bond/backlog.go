// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"slices"
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// backlog holds the streams with sendable bytes in the order of their turns, and the number of
// bytes not yet given to a subflow. Streams of mode Latency have their own list and count: they
// precede all others. A stream's state is in its backlogEntry. Callers that change the sendable
// bytes of a stream must call updateStream. Not safe for concurrent use.
type backlog struct {
	classes *classTable

	ready             []*Stream // without streams of mode Latency
	pending           unit.Bytes
	pendingByPriority [wire.PriorityCount]unit.Bytes // pending, by priority
	lowLatency        []*Stream
	lowLatencyPending unit.Bytes // as pending, for mode Latency

	windowBlocked uint64 // how often a window kept a stream from filling a segment
}

// backlogEntry is the state of one stream in the backlog.
type backlogEntry struct {
	queued          bool          // it is in ready or lowLatency
	countedBytes    unit.Bytes    // its part of pending or lowLatencyPending
	countedPriority wire.Priority // its index in pendingByPriority
	sentCounter     uint64        // bytes sent, weighted; see classTable
	overtaken       unit.Bytes    // of short streams, queued before it since its last turn
	busySince       time.Time     // when its transfer began; zero: it had none
	pausedAt        time.Time     // when it last had no unsent bytes; zero: not since updateBusyTime
}

// maxPause is the longest pause within a transfer. After a longer one the stream begins the next.
const maxPause = 200 * time.Millisecond

// updateBusyTime returns how long a stream with bytes to send has been sending them, with pauses of
// at most maxPause. A pause ends when this is called.
func (e *backlogEntry) updateBusyTime(now time.Time) time.Duration {
	if e.busySince.IsZero() || !e.pausedAt.IsZero() && now.Sub(e.pausedAt) > maxPause {
		e.busySince = now
	}
	e.pausedAt = time.Time{}
	return now.Sub(e.busySince)
}

// rankStream returns the rank of a stream.
func (l *backlog) rankStream(s *Stream) rank {
	return l.classes.rankInGroup(s.permission.group, &s.backlog.sentCounter)
}

// updateStream updates counts and lists after a change to the stream.
func (l *backlog) updateStream(s *Stream) {
	e := &s.backlog
	n := unit.Bytes(s.send.unsent.Size())
	if s.permission.mode == wire.ModeLatency {
		l.lowLatencyPending += n - e.countedBytes
	} else {
		l.pending += n - e.countedBytes
		l.pendingByPriority[e.countedPriority] -= e.countedBytes
		e.countedPriority = l.rankStream(s).priority
		l.pendingByPriority[e.countedPriority] += n
	}
	e.countedBytes = n
	if s.send.isSendable() && !e.queued {
		e.queued = true
		l.enqueueStream(s)
	}
}

// enqueueStream queues a stream for its next turn. Short streams precede others unless classes
// differ in priority or weight. So that they cannot starve another stream, maxOvertaken bytes of
// them precede each of its turns.
func (l *backlog) enqueueStream(s *Stream) {
	switch {
	case s.permission.mode == wire.ModeLatency:
		l.lowLatency = append(l.lowLatency, s)
	case s.isShortStream() && !l.classes.ranked:
		at := len(l.ready)
		for at > 0 && !l.ready[at-1].isShortStream() && l.ready[at-1].backlog.overtaken < maxOvertaken {
			at--
			l.ready[at].backlog.overtaken += s.backlog.countedBytes
		}
		l.ready = slices.Insert(l.ready, at, s)
	default:
		l.ready = insertByRank(l.classes, l.ready, s, l.rankStream)
	}
}

// isShortStream reports whether the stream carries small messages, such as requests: what it has
// sent since it last had nothing to send, and what it has to send, is at most shortBurst.
func (s *Stream) isShortStream() bool { return s.permission.burst+s.backlog.countedBytes <= shortBurst }

// shortBurst is TCP's initial window (RFC 6928): what a connection of its own would send at once.
const shortBurst = unit.Bytes(10 * 1448)

// maxOvertaken is how many bytes of short streams may precede a turn of another stream.
const maxOvertaken = 8 * shortBurst

// dequeueStream removes a stream from the turns. Its bytes stay counted.
func (l *backlog) dequeueStream(s *Stream) {
	if s.backlog.queued {
		s.backlog.queued = false
		l.ready, l.lowLatency = removeStream(l.ready, s), removeStream(l.lowLatency, s)
	}
}

// requeueStream moves a queued stream to its turn by its present group.
func (l *backlog) requeueStream(s *Stream) {
	if i := slices.Index(l.ready, s); i >= 0 {
		l.ready = slices.Delete(l.ready, i, i+1)
		l.enqueueStream(s)
	}
}

// setStreamMode changes the mode of a stream.
func (l *backlog) setStreamMode(s *Stream, m wire.Mode) {
	l.dequeueStream(s)
	all := s.send.unsent
	s.send.unsent = nil
	l.updateStream(s) // removes its bytes from the count of the old mode
	s.send.unsent, s.permission.mode = all, m
	l.updateStream(s)
}

// reorderStreams sorts all turns after the classes have changed.
func (l *backlog) reorderStreams(streams map[wire.StreamID]*Stream) {
	ready := l.ready
	l.ready = nil
	for _, s := range ready {
		l.enqueueStream(s)
	}
	for _, s := range streams {
		l.updateStream(s) // counts by priority
	}
}

// dropUnsendable removes streams without sendable bytes from the front of both lists: other streams
// must not wait for them.
func (l *backlog) dropUnsendable(now time.Time) {
	for _, list := range []*[]*Stream{&l.lowLatency, &l.ready} {
		for len(*list) > 0 && !(*list)[0].send.isSendable() { // reset, or acknowledged meanwhile
			(*list)[0].backlog.queued, (*list)[0].backlog.pausedAt = false, now
			*list = slices.Delete(*list, 0, 1)
		}
	}
}

// moveToFront gives a ready stream the next turn.
func (l *backlog) moveToFront(s *Stream) {
	if i := slices.Index(l.ready, s); i > 0 {
		copy(l.ready[1:i+1], l.ready[:i])
		l.ready[0] = s
	}
}

// contendingBytes returns how many pending bytes precede bytes of stream s or take turns with them.
func (l *backlog) contendingBytes(s *Stream) unit.Bytes {
	if !l.classes.ranked {
		return l.pending
	}
	n, own := unit.Bytes(0), l.rankStream(s).priority
	for c, waits := range l.pendingByPriority {
		if !own.Above(wire.Priority(c)) {
			n += waits
		}
	}
	return n
}

// bytesUntilDone returns how many bytes are sent in all until stream s has sent its last one, if
// the ready streams take turns: those of higher priority first, others of the same priority at most
// as much as s, by weight. If faster subflows carry as many in time, a slower one gets none of s.
func (l *backlog) bytesUntilDone(s *Stream) unit.Bytes {
	own := s.backlog.countedBytes
	all := own
	if !l.classes.ranked { // for speed: without ranks
		for _, o := range l.ready {
			if o != s {
				all += min(o.backlog.countedBytes, own)
			}
		}
		return all
	}
	r := l.rankStream(s)
	for _, o := range l.ready {
		switch q := l.rankStream(o); {
		case o == s:
		case q.priority == r.priority:
			all += min(o.backlog.countedBytes, own*unit.Bytes(q.weight)/unit.Bytes(r.weight))
		case q.priority.Above(r.priority):
			all += o.backlog.countedBytes
		}
	}
	return all
}

// othersMayWait reports whether streams other than s, of priority p, have pending bytes, and none a
// higher priority.
func (l *backlog) othersMayWait(s *Stream, p wire.Priority) bool {
	return !l.hasPendingAbove(p) && l.pending > s.backlog.countedBytes
}

// hasPendingAbove reports whether streams of a higher priority than p have pending bytes.
func (l *backlog) hasPendingAbove(p wire.Priority) bool {
	for q, n := range l.pendingByPriority {
		if n > 0 && wire.Priority(q).Above(p) {
			return true
		}
	}
	return false
}

// streamShare returns the part of n bytes that s would send if the ready streams take turns.
func (l *backlog) streamShare(n unit.Bytes, s *Stream) unit.Bytes {
	if !l.classes.ranked {
		return n / unit.Bytes(max(len(l.ready), 1))
	}
	r, all := l.rankStream(s), unit.Bytes(0)
	for _, o := range l.ready {
		if q := l.rankStream(o); q.priority == r.priority {
			all += unit.Bytes(q.weight)
		}
	}
	return n * unit.Bytes(r.weight) / max(all, unit.Bytes(r.weight))
}

// allScheduled reports whether all bytes that far ends wait for and windows permit have been given
// to subflows. Streams without a live subflow do not count.
func (l *backlog) allScheduled(subflows []*subflow) bool {
	for _, s := range l.ready {
		if s.send.isSendable() && l.classes.findGroupClass(s.permission.group).permitsLiveSubflow(subflows) &&
			s.send.unsent[0].From < s.awaitedEnd() {
			return false
		}
	}
	return true
}

// removeStream removes a stream from a list.
func removeStream(list []*Stream, s *Stream) []*Stream {
	return slices.DeleteFunc(list, func(x *Stream) bool { return x == s })
}
