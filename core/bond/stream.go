package bond

import (
	"io"

	"mpbond/base/unit"
	"mpbond/core/trace"
	"mpbond/link/wire"
)

// Stream is one user connection inside a bond, seen from one end. Like its
// bond it is not safe for concurrent use.
type Stream struct {
	// User is for the owner of the bond.
	User any

	id        wire.StreamID
	bond      *Bond
	dest      string
	err       error // set once the stream was reset
	opened    bool  // the destination is connected
	seen      bool  // OPEN has arrived (accepting end)
	inChanged bool

	// Sending: todo is the meta buffer, what is to be given to a subflow, for
	// the first time or again; acked are the spans beyond outBase that have
	// arrived; the rest of [outBase … outEnd) is in flight.
	out              pages
	outBase, outEnd  wire.DataSeq
	outLimit         wire.DataSeq
	todo, acked      spans
	shared           spans // of todo, what a subflow that is alive carries already
	finSet, finAcked bool
	finRecalled      bool    // a second FIN was sent, its subflow being slow
	queued           typeSet // a bit for each type of control frame that is queued
	repeated         typeSet // likewise, of which the next one sent is a repetition
	backlog          backlogEntry

	route  route
	groups groupHistory
	pin    pinnedSubflow // of mode Latency
	chunk  wire.DataSeq  // the far end waits for the bytes before it; 0: for all
	wanted wire.DataSeq  // what this end waits for, as it is told in CHUNK

	// Receiving: [inBase … inNext) is readable, got is what has arrived beyond.
	in              pages
	inBase, inNext  wire.DataSeq
	inEnd           wire.DataSeq // valid if finSeen
	inLimit         wire.DataSeq
	window          unit.Bytes
	got             arrived
	marksTaken      unit.Bytes // the memory of got
	finSeen, eofGot bool
}

// ID is the stream's number.
func (s *Stream) ID() wire.StreamID { return s.id }

// Dest is the destination it was opened for.
func (s *Stream) Dest() string { return s.dest }

// Err is why the stream was reset, a wire.Reset, or nil.
func (s *Stream) Err() error { return s.err }

// Opened reports whether the destination is known to be connected. Bytes from
// it prove that too.
func (s *Stream) Opened() bool { return s.opened }

// SetOpened tells the other end that the destination is connected.
func (s *Stream) SetOpened() {
	if !s.opened && s.err == nil {
		s.opened = true
		s.bond.control.add(s, wire.TypeOpened)
	}
}

// Room is how many bytes Write takes now. The meta buffer bounds what is to be
// sent; what is in flight counts too when it is more than any window that we
// would grant, or when all streams together hold too much.
func (s *Stream) Room() int {
	if s.err != nil || s.finSet {
		return 0
	}
	b := s.bond
	unacked := unit.Bytes(s.outEnd - s.outBase)
	room := min(b.cfg.MetaBuffer-unit.Bytes(s.todo.size()), maxWindow+b.cfg.MetaBuffer-unacked)
	if b.held >= b.cfg.MaxBuffered {
		room = lowMetaBuffer - unacked
	}
	if b.memory.isShort() {
		room = min(room, pageSize-unacked)
	}
	if b.held >= b.cfg.MaxBuffered/4 {
		// What the receiver does not take yet is better left where it comes from,
		// so that streams whose readers are slow leave the memory to others.
		room = min(room, unit.Bytes(s.outLimit)+blockedBuffer-unit.Bytes(s.outEnd))
	}
	return int(max(0, room))
}

// roomy reports whether a writer that waits for room is to be told: not for a
// few bytes at a time, unless there is nothing else that could tell it.
func (s *Stream) roomy() bool {
	room := s.Room()
	return room >= int(min(lowMetaBuffer, s.bond.cfg.MetaBuffer)/2) || room > 0 && s.outBase == s.outEnd
}

// atHand reports whether the source is not ahead of the subflows: it has ended,
// or leaves more of the meta buffer empty than one write would fill.
func (s *Stream) atHand() bool {
	return s.finSet || s.Room() >= int(s.bond.cfg.MetaBuffer/4)
}

// WriteClosed reports whether CloseWrite was called.
func (s *Stream) WriteClosed() bool { return s.finSet }

// Write copies as much of p as there is room for into the meta buffer. Without memory it
// resets the stream.
func (s *Stream) Write(p []byte) int {
	p = p[:min(len(p), s.Room())]
	if !s.out.reserve(s.outEnd, s.outEnd+wire.DataSeq(len(p))) {
		s.Reset(wire.CodeLimit, errMemory)
		return 0
	}
	s.out.write(s.outEnd, p)
	s.todo.add(s.outEnd, s.outEnd+wire.DataSeq(len(p)))
	s.bond.avoid = 0
	s.outEnd += wire.DataSeq(len(p))
	s.bond.held += unit.Bytes(len(p))
	s.bond.backlog.update(s)
	return len(p)
}

// CloseWrite ends the sending direction after what was written.
func (s *Stream) CloseWrite() {
	if s.err == nil && !s.finSet {
		s.finSet = true
		s.bond.control.add(s, wire.TypeFin)
	}
}

// Readable is how many bytes can be read now.
func (s *Stream) Readable() int { return int(s.inNext - s.inBase) }

// EOF reports that everything the other end sent has been consumed.
func (s *Stream) EOF() bool { return s.finSeen && s.inBase == s.inEnd }

// Slices calls f with readable bytes in order, at most limit of them. They
// stay valid, also while Receive is called, until Consume.
func (s *Stream) Slices(limit int, f func([]byte)) {
	s.in.slices(s.inBase, s.inBase+wire.DataSeq(min(limit, s.Readable())), f)
}

// Read copies and consumes readable bytes. It returns io.EOF at the end of the
// stream and the stream's error after a reset; 0, nil means that nothing is
// readable yet.
func (s *Stream) Read(p []byte) (int, error) {
	n := 0
	s.Slices(len(p), func(b []byte) { n += copy(p[n:], b) })
	if n > 0 {
		s.Consume(n)
		return n, nil
	}
	if s.err != nil {
		return 0, s.err
	}
	if s.EOF() {
		s.Consume(0)
		return 0, io.EOF
	}
	return 0, nil
}

// Consume frees n readable bytes and lets the other end send more.
func (s *Stream) Consume(n int) {
	b := s.bond
	s.inBase += wire.DataSeq(n)
	if s.inBase == s.inNext && s.got.count == 0 {
		s.in.clear(s.inBase)
	} else {
		s.in.release(s.inBase)
	}
	if s.err == nil && s.wantsMore() {
		// A window doubles each time a quarter of it was consumed, up to the
		// stream's share, or shrinks towards that as it is consumed: what is
		// granted cannot be taken back.
		if free := unit.Bytes(s.inLimit - s.inBase); free <= s.window*3/4 {
			share := min(maxWindow, s.share())
			if s.window > share {
				share = max(share, free)
			}
			s.resize(min(2*s.window, share))
		}
	}
	if s.EOF() {
		s.eofGot = true
		b.finish(s)
	}
}

// share is the most that the stream's window may be now: beyond the first
// window, a third of the memory for grown windows that others leave. So n streams
// that all want more get 1/(n+2) of it each, a new one finds some left, and
// whatever those hold that do not read, each one goes on with its first window at
// least (dynamic thresholds: Choudhury and Hahne, IEEE/ACM ToN 1998).
func (s *Stream) share() unit.Bytes {
	b, first := s.bond, s.bond.first(false)
	if b.memory.isShort() {
		return first
	}
	others := b.grown - (s.window - first)
	return first + (b.cfg.MaxBuffered-others)/3
}

// widen grants a stream that this end opens more than the first window. Half of
// the memory is left to streams that were seen to use it.
func (s *Stream) widen() {
	b, first := s.bond, s.bond.first(false)
	if b.memory.isShort() {
		return
	}
	more := min(openingWindow-first, (b.cfg.MaxBuffered/2-b.grown)/16)
	s.resize(first + max(0, more))
}

// resize changes the window and grants what it allows now.
func (s *Stream) resize(window unit.Bytes) {
	s.bond.grown += window - s.window
	s.window = window
	if limit := s.inBase + wire.DataSeq(window); limit > s.inLimit {
		s.inLimit = limit
		s.bond.control.add(s, wire.TypeWindow)
	}
}

// wantsMore reports whether the other end has bytes that it may not send yet.
func (s *Stream) wantsMore() bool { return !s.finSeen || s.inLimit < s.inEnd }

// Reset ends the stream at both ends at once.
func (s *Stream) Reset(code wire.Code, text string) {
	if s.err != nil || s.bond.streams[s.id] != s {
		return
	}
	s.fail(wire.Reset{Stream: s.id, Code: code, Text: text})
	s.bond.control.add(s, wire.TypeReset)
}

// ResetStream is Reset of the stream of that number. It reports whether there is
// one.
func (b *Bond) ResetStream(id wire.StreamID, code wire.Code, text string) bool {
	s := b.streams[id]
	if s == nil {
		return false
	}
	s.Reset(code, text)
	return true
}

// fail ends the stream at this end.
func (s *Stream) fail(r wire.Reset) {
	if s.err != nil {
		return
	}
	s.err = r
	b := s.bond
	b.held -= unit.Bytes(uint64(s.outEnd-s.outBase) - s.acked.size())
	s.outBase = s.outEnd
	s.todo, s.acked, s.shared = nil, nil, nil
	s.out.drop()
	b.backlog.update(s)
	b.notify(s)
	b.forget(s)
}

// sendable is what may be given to a subflow now.
func (s *Stream) sendable() bool {
	return len(s.todo) > 0 && s.todo[0].from < s.outLimit
}

func (b *Bond) notify(s *Stream) {
	if !s.inChanged {
		s.inChanged = true
		b.changed = append(b.changed, s)
	}
}

// finish forgets a stream whose two directions have ended in order.
func (b *Bond) finish(s *Stream) {
	if s.eofGot && s.finAcked && s.outBase == s.outEnd {
		b.forget(s)
		b.notify(s)
	}
}

// forget takes the stream out of the bond. Its readable bytes stay readable.
func (b *Bond) forget(s *Stream) {
	if b.streams[s.id] != s {
		return
	}
	delete(b.streams, s.id)
	b.backlog.remove(s)    // its turn may never come: of a group whose subflows are all silent, say
	b.filter.end(&s.route) // in its turn, which it may still have, it stands in nobody's way
	e := trace.Event{Kind: trace.StreamClose, Stream: uint64(s.id), Offset: uint64(s.inBase)}
	if s.err != nil {
		e.Reason = s.err.Error()
	}
	b.trace.emit(e)
	b.grown -= s.window - b.first(false)
	s.out.drop()
	if s.eofGot {
		s.in.drop()
		s.dropMarks()
	} else if s.err != nil {
		s.dropMarks()
		// A reader may still be copying out of these pages.
		s.in.abandon()
		s.inNext = s.inBase
	}
}

// Done reports that the bond has forgotten the stream.
func (s *Stream) Done() bool { return s.bond.streams[s.id] != s }
