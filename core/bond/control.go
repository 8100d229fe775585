// SPDX-License-Identifier: Apache-2.0

package bond

import "mpbond/link/wire"

// controlFrame is a reliable frame without stream bytes that waits to be sent. It is built from the
// state of its stream when it is sent.
type controlFrame struct {
	stream    *Stream // nil: a frame of the bond
	frameType wire.Type
}

// maxNotices bounds the waiting notices.
const maxNotices = 256

// controlQueue holds the waiting control frames, oldest first: reliable frames, at most one of each
// type for a stream, and notices, which may get lost. Not safe for concurrent use.
type controlQueue struct {
	frames       []controlFrame
	repeated     typeSet        // as Stream.repeated, for frames of the bond
	notices      []wire.Frame   // FLOW_END, FLOW_REFUSED, CHOICE, RATE, EXPECT and HINT
	repeatedFrom wire.SubflowID // the late subflow that carries the newest repetitions already
}

// typeSet is a set of types of control frames.
type typeSet uint64

func (t *typeSet) addFrameType(f wire.Type)      { *t |= 1 << f }
func (t *typeSet) hasFrameType(f wire.Type) bool { return *t&(1<<f) != 0 }

// removeFrameType removes a type and reports whether it was in the set.
func (t *typeSet) removeFrameType(f wire.Type) bool {
	had := t.hasFrameType(f)
	*t &^= 1 << f
	return had
}

// queueFrame queues a frame of a stream or, if s is nil, of the bond. It ignores a frame that the
// stream has already queued.
func (q *controlQueue) queueFrame(s *Stream, t wire.Type) {
	if s != nil {
		if s.queued.hasFrameType(t) {
			return
		}
		s.queued.addFrameType(t)
	}
	q.frames = append(q.frames, controlFrame{s, t})
}

// queueBondFrameOnce queues a frame of the bond unless one of its type is queued.
func (q *controlQueue) queueBondFrameOnce(t wire.Type) {
	for _, c := range q.frames {
		if c.frameType == t {
			return
		}
	}
	q.queueFrame(nil, t)
}

// queueNotice queues a frame that may get lost, or drops it if too many wait.
func (q *controlQueue) queueNotice(f wire.Frame) {
	if q.hasNoticeRoom() {
		q.notices = append(q.notices, f)
	}
}

// queueExpect queues an EXPECT in place of a waiting one of its stream, and reports whether it did. Other
// notices matter more: half of the room is for them.
func (q *controlQueue) queueExpect(f wire.Expect) bool {
	for i, other := range q.notices {
		if e, ok := other.(wire.Expect); ok && e.Stream == f.Stream {
			q.notices[i] = f
			return true
		}
	}
	if len(q.notices) >= maxNotices/2 {
		return false
	}
	q.notices = append(q.notices, f)
	return true
}

// hasNoticeRoom reports whether queueNotice would queue a notice.
func (q *controlQueue) hasNoticeRoom() bool { return len(q.notices) < maxNotices }

// hasNoFrames reports whether no frame waits.
func (q *controlQueue) hasNoFrames() bool { return len(q.frames) == 0 && len(q.notices) == 0 }

// repeatedTypes returns the types of control frames of a stream or, if s is nil, of the bond, whose
// next frame is a repetition.
func (q *controlQueue) repeatedTypes(s *Stream) *typeSet {
	if s == nil {
		return &q.repeated
	}
	return &s.repeated
}

// isRepeatedFrom reports whether a repetition waits that the subflow carries already: it must go
// over another one.
func (q *controlQueue) isRepeatedFrom(id wire.SubflowID) bool {
	return len(q.frames) > 0 && q.repeatedFrom == id
}

// takeFrames removes frames and calls f for each of them until f returns false. repeated reports
// that the frame is a repetition.
func (q *controlQueue) takeFrames(f func(c controlFrame, repeated bool) (more bool)) {
	n := 0
	for more := true; more && n < len(q.frames); n++ {
		c := q.frames[n]
		if c.stream != nil {
			c.stream.queued.removeFrameType(c.frameType)
		}
		more = f(c, q.repeatedTypes(c.stream).removeFrameType(c.frameType))
	}
	q.frames = q.frames[:copy(q.frames, q.frames[n:])]
	if len(q.frames) == 0 {
		q.repeatedFrom = 0
	}
}

// takeNotices is takeFrames for notices.
func (q *controlQueue) takeNotices(f func(wire.Frame) (more bool)) {
	n := 0
	for more := true; more && n < len(q.notices); n++ {
		more = f(q.notices[n])
	}
	q.notices = q.notices[:copy(q.notices, q.notices[n:])]
}
