package bond

import "mpbond/link/wire"

// control is a reliable frame to be sent that carries no stream bytes. The frame itself is
// made when it is sent, from the state of its stream then.
type control struct {
	s *Stream // nil: of the bond
	t wire.Type
}

// maxNotices bounds the notices that wait.
const maxNotices = 256

// controlQueue is the control frames that wait to be sent, oldest first: reliable ones, of
// which a stream has one of each type at most, and notices, which may get lost. Not safe for
// concurrent use.
type controlQueue struct {
	frames   []control
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

// add queues a frame of a stream or, if s is nil, of the bond. One that the stream has queued
// already is not queued again.
func (q *controlQueue) add(s *Stream, t wire.Type) {
	if s != nil {
		if s.queued.has(t) {
			return
		}
		s.queued.add(t)
	}
	q.frames = append(q.frames, control{s, t})
}

// addOnce queues a frame of the bond unless one of its type is queued already.
func (q *controlQueue) addOnce(t wire.Type) {
	for _, c := range q.frames {
		if c.t == t {
			return
		}
	}
	q.add(nil, t)
}

// notice queues a frame that may get lost. It is dropped if too many wait.
func (q *controlQueue) notice(f wire.Frame) {
	if q.hasRoom() {
		q.notices = append(q.notices, f)
	}
}

// hasRoom reports whether a notice would be queued.
func (q *controlQueue) hasRoom() bool { return len(q.notices) < maxNotices }

// empty reports whether nothing waits.
func (q *controlQueue) empty() bool { return len(q.frames) == 0 && len(q.notices) == 0 }

// repeatedOf returns the set of types of control frames, of a stream or, if s is nil, of the
// bond, of which the next one that is sent is a repetition.
func (q *controlQueue) repeatedOf(s *Stream) *typeSet {
	if s == nil {
		return &q.repeated
	}
	return &s.repeated
}

// takeFrames calls f for frames until it reports that it wants no more, and takes out those
// that it was called for. Again tells that the frame is a repetition.
func (q *controlQueue) takeFrames(f func(c control, again bool) (more bool)) {
	n := 0
	for more := true; more && n < len(q.frames); n++ {
		c := q.frames[n]
		if c.s != nil {
			c.s.queued.remove(c.t)
		}
		more = f(c, q.repeatedOf(c.s).remove(c.t))
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
