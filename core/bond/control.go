package bond

import "mpbond/link/wire"

// controlFrame is a reliable frame to be sent that carries no stream bytes. The frame itself is
// made when it is sent, from the state of its stream then.
type controlFrame struct {
	stream    *Stream // nil: of the bond
	frameType wire.Type
}

// maxNotices bounds the notices that wait.
const maxNotices = 256

// controlQueue is the control frames that wait to be sent, oldest first: reliable ones, of
// which a stream has one of each type at most, and notices, which may get lost. Not safe for
// concurrent use.
type controlQueue struct {
	frames   []controlFrame
	repeated typeSet      // as Stream.repeated, of frames of no stream
	notices  []wire.Frame // FLOW_END, FLOW_REFUSED and CHOICE
}

// typeSet is a set of types of control frames.
type typeSet uint64

func (t *typeSet) add(f wire.Type)      { *t |= 1 << f }
func (t *typeSet) has(f wire.Type) bool { return *t&(1<<f) != 0 }

// remove takes a type out and reports whether it was in the set.
func (t *typeSet) remove(f wire.Type) bool {
	had := t.has(f)
	*t &^= 1 << f
	return had
}

// queueFrame queues a frame of a stream or, if s is nil, of the bond. One that the stream has queued
// already is not queued again.
func (q *controlQueue) queueFrame(s *Stream, t wire.Type) {
	if s != nil {
		if s.queued.has(t) {
			return
		}
		s.queued.add(t)
	}
	q.frames = append(q.frames, controlFrame{s, t})
}

// queueOnce queues a frame of the bond unless one of its type is queued already.
func (q *controlQueue) queueOnce(t wire.Type) {
	for _, c := range q.frames {
		if c.frameType == t {
			return
		}
	}
	q.queueFrame(nil, t)
}

// queueNotice queues a frame that may get lost. It is dropped if too many wait.
func (q *controlQueue) queueNotice(f wire.Frame) {
	if q.hasNoticeRoom() {
		q.notices = append(q.notices, f)
	}
}

// hasNoticeRoom reports whether a notice would be queued.
func (q *controlQueue) hasNoticeRoom() bool { return len(q.notices) < maxNotices }

// isEmpty reports whether nothing waits.
func (q *controlQueue) isEmpty() bool { return len(q.frames) == 0 && len(q.notices) == 0 }

// repeatedTypes returns the set of types of control frames, of a stream or, if s is nil, of the
// bond, of which the next one that is sent is a repetition.
func (q *controlQueue) repeatedTypes(s *Stream) *typeSet {
	if s == nil {
		return &q.repeated
	}
	return &s.repeated
}

// takeFrames calls f for frames until it reports that it wants no more, and takes out those
// that it was called for. Again tells that the frame is a repetition.
func (q *controlQueue) takeFrames(f func(c controlFrame, again bool) (more bool)) {
	n := 0
	for more := true; more && n < len(q.frames); n++ {
		c := q.frames[n]
		if c.stream != nil {
			c.stream.queued.remove(c.frameType)
		}
		more = f(c, q.repeatedTypes(c.stream).remove(c.frameType))
	}
	q.frames = q.frames[:copy(q.frames, q.frames[n:])]
}

// takeNotices is takeFrames for notices.
func (q *controlQueue) takeNotices(f func(wire.Frame) (more bool)) {
	n := 0
	for more := true; more && n < len(q.notices); n++ {
		more = f(q.notices[n])
	}
	q.notices = q.notices[:copy(q.notices, q.notices[n:])]
}
