package bond

import (
	"slices"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// backlog is the streams with bytes that may be sent now, in the order of their turns, and
// how many bytes of all streams wait to be given to a subflow. Streams of mode Latency have a
// list and a count of their own: they go before the others. A stream's part is in its
// backlogEntry; whoever changes what a stream has to send calls update. Not safe for
// concurrent use.
type backlog struct {
	classes *classTable

	ready             []*Stream // but of mode Latency
	pending           unit.Bytes
	pendingByPriority [wire.PriorityCount]unit.Bytes // pending by class
	lowLatency        []*Stream
	lowLatencyPending unit.Bytes // as pending, of mode Latency

	windowBlocked uint64 // how often a segment had room that a stream's window did not let it use
	// avoided is the subflow that all pending bytes were recalled from at the end of a transfer, or
	// 0: they must not go there again, and the last go first.
	avoided wire.SubflowID
}

// backlogEntry is a stream's part of the backlog.
type backlogEntry struct {
	queued          bool          // it is in ready or turnLowLatency
	countedBytes    unit.Bytes    // its part of pending or urgent
	countedPriority wire.Priority // and which of pendingByPriority that is
	sentCounter     uint64        // its counter of bytes sent, see classTable
}

func (l *backlog) rankStream(s *Stream) rank {
	return l.classes.rankGroup(s.route.group, &s.backlog.sentCounter)
}

// updateStream brings the counts and lists up to date after a change to the stream.
func (l *backlog) updateStream(s *Stream) {
	e := &s.backlog
	n := unit.Bytes(s.send.unsent.Size())
	if s.route.mode == wire.Latency {
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

// enqueueStream puts a stream where its next turn is.
func (l *backlog) enqueueStream(s *Stream) {
	if s.route.mode == wire.Latency {
		l.lowLatency = append(l.lowLatency, s)
	} else {
		l.ready = insertByRank(l.classes, l.ready, s, l.rankStream)
	}
}

// dequeueStream takes a stream out of the turns. It stays counted.
func (l *backlog) dequeueStream(s *Stream) {
	if s.backlog.queued {
		s.backlog.queued = false
		l.ready, l.lowLatency = removeStream(l.ready, s), removeStream(l.lowLatency, s)
	}
}

// requeueStream puts a stream of the turns where its turn is by its group now.
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
	l.updateStream(s) // takes its bytes out of the count of the old mode
	s.send.unsent, s.route.mode = all, m
	l.updateStream(s)
}

// reorderStreams brings all turns into order after the classes have changed.
func (l *backlog) reorderStreams(streams map[wire.StreamID]*Stream) {
	ready := l.ready
	l.ready = nil
	for _, s := range ready {
		l.enqueueStream(s)
	}
	for _, s := range streams {
		l.updateStream(s) // which counts by class
	}
}

// dropUnsendable takes streams of mode Latency that have nothing to send any more out of the
// turns, up to the first that has.
func (l *backlog) dropUnsendable() {
	for len(l.lowLatency) > 0 && !l.lowLatency[0].send.isSendable() { // reset, or acknowledged meanwhile
		l.lowLatency[0].backlog.queued = false
		l.lowLatency = l.lowLatency[:copy(l.lowLatency, l.lowLatency[1:])]
	}
}

// moveToFront makes it the turn of a ready stream.
func (l *backlog) moveToFront(s *Stream) {
	if i := slices.Index(l.ready, s); i > 0 {
		copy(l.ready[1:i+1], l.ready[:i])
		l.ready[0] = s
	}
}

// contendingBytes returns what there is to send that goes before bytes of stream s, or takes turns
// with them.
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

// streamShare returns the part of n bytes that s would send, if those that are ready take turns.
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

// allScheduled reports whether all bytes that the far ends wait for, and that windows have room
// for, have been given to subflows; streams whose subflows are all gone or silent apart.
func (l *backlog) allScheduled(subflows []*subflow) bool {
	for _, s := range l.ready {
		if s.send.isSendable() && l.classes.findClass(s.route.group).permitsLiveSubflow(subflows) && s.send.unsent[0].From < s.awaitedEnd() {
			return false
		}
	}
	return true
}

// removeStream takes a stream out of a list.
func removeStream(list []*Stream, s *Stream) []*Stream {
	return slices.DeleteFunc(list, func(x *Stream) bool { return x == s })
}
