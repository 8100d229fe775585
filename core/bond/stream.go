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

	id           wire.StreamID
	bond         *Bond
	dest         string
	err          error // set once the stream was reset
	opened       bool  // the destination is connected
	openReceived bool  // OPEN has arrived (accepting end)
	inChanged    bool

	send             sendBuffer
	finSet, finAcked bool
	finRecalled      bool    // a second FIN was sent, its subflow being slow
	queued           typeSet // a bit for each type of control frame that is queued
	repeated         typeSet // likewise, of which the next one sent is a repetition
	backlog          backlogEntry

	route         route
	groups        groupHistory
	pin           pinnedSubflow // of mode Latency
	peerChunkEnd  wire.DataSeq  // the far end waits for the bytes before it; 0: for all
	localChunkEnd wire.DataSeq  // what this end waits for, as it is told in CHUNK

	reassembly  reassembly
	eofConsumed bool // the app has consumed everything
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
		s.bond.control.queueFrame(s, wire.TypeOpened)
	}
}

// Room is how many bytes Write takes now, see bufferLimits.
func (s *Stream) Room() int {
	if s.err != nil || s.finSet {
		return 0
	}
	return int(s.bond.buffers.sendRoom(&s.send))
}

// hasNotableRoom reports whether a writer that waits for room is to be told.
func (s *Stream) hasNotableRoom() bool {
	return s.bond.buffers.isNotableRoom(unit.Bytes(s.Room()), &s.send)
}

// noMoreData reports whether the source is not ahead of the subflows: it has ended,
// or leaves more of the meta buffer empty than one write would fill.
func (s *Stream) noMoreData() bool {
	return s.finSet || s.Room() >= int(s.bond.cfg.MetaBuffer/4)
}

// WriteClosed reports whether CloseWrite was called.
func (s *Stream) WriteClosed() bool { return s.finSet }

// Write copies as much of p as there is room for into the meta buffer. Without memory it
// resets the stream.
func (s *Stream) Write(p []byte) int {
	p = p[:min(len(p), s.Room())]
	if !s.send.write(p) {
		s.Reset(wire.CodeLimit, memoryExhausted)
		return 0
	}
	s.bond.backlog.avoided = 0
	s.bond.buffers.heldBytes += unit.Bytes(len(p))
	s.bond.backlog.updateStream(s)
	return len(p)
}

// CloseWrite ends the sending direction after what was written.
func (s *Stream) CloseWrite() {
	if s.err == nil && !s.finSet {
		s.finSet = true
		s.bond.control.queueFrame(s, wire.TypeFin)
	}
}

// Readable is how many bytes can be read now.
func (s *Stream) Readable() int { return s.reassembly.readableBytes() }

// EOF reports that everything the other end sent has been consumed.
func (s *Stream) EOF() bool { return s.reassembly.isComplete() }

// ReadableSlices calls f with readable bytes in order, at most limit of them. They
// stay valid, also while Receive is called, until Consume.
func (s *Stream) ReadableSlices(limit int, f func([]byte)) {
	s.reassembly.eachReadable(limit, f)
}

// Read copies and consumes readable bytes. It returns io.EOF at the end of the
// stream and the stream's error after a reset; 0, nil means that nothing is
// readable yet.
func (s *Stream) Read(p []byte) (int, error) {
	n := 0
	s.ReadableSlices(len(p), func(b []byte) { n += copy(p[n:], b) })
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
	r := &s.reassembly
	r.consume(n)
	if s.err == nil && r.isWindowDue() {
		s.setWindow(r.nextWindow(s.bond.buffers.maxWindowOf(r.window)))
	}
	if s.EOF() {
		s.eofConsumed = true
		s.bond.finishStream(s)
	}
}

// setWindow changes the window and grants what it allows now.
func (s *Stream) setWindow(window unit.Bytes) {
	s.bond.buffers.countWindowChange(s.reassembly.window, window)
	if s.reassembly.setWindow(window) {
		s.bond.control.queueFrame(s, wire.TypeWindow)
	}
}

// Reset ends the stream at both ends at once.
func (s *Stream) Reset(code wire.Code, text string) {
	if s.err != nil || s.bond.streams.all[s.id] != s {
		return
	}
	s.failStream(wire.Reset{Stream: s.id, Code: code, Text: text})
	s.bond.control.queueFrame(s, wire.TypeReset)
}

// ResetStream is Reset of the stream of that number. It reports whether there is
// one.
func (b *Bond) ResetStream(id wire.StreamID, code wire.Code, text string) bool {
	s := b.streams.all[id]
	if s == nil {
		return false
	}
	s.Reset(code, text)
	return true
}

// failStream ends the stream at this end.
func (s *Stream) failStream(r wire.Reset) {
	if s.err != nil {
		return
	}
	s.err = r
	b := s.bond
	b.buffers.heldBytes -= s.send.dropAll()
	b.backlog.updateStream(s)
	b.streams.notifyChange(s)
	b.forgetStream(s)
}

// finishStream forgets a stream whose two directions have ended in order.
func (b *Bond) finishStream(s *Stream) {
	if s.eofConsumed && s.finAcked && s.send.isEmpty() {
		b.forgetStream(s)
		b.streams.notifyChange(s)
	}
}

// forgetStream takes the stream out of the bond. Its readable bytes stay readable.
func (b *Bond) forgetStream(s *Stream) {
	if b.streams.all[s.id] != s {
		return
	}
	delete(b.streams.all, s.id)
	b.backlog.dequeueStream(s)  // its turn may never come: of a group whose subflows are all silent, say
	b.filter.endRoute(&s.route) // in its turn, which it may still have, it stands in nobody's way
	e := trace.Event{Kind: trace.StreamClose, Stream: uint64(s.id), Offset: uint64(s.reassembly.readOffset)}
	if s.err != nil {
		e.Reason = s.err.Error()
	}
	b.trace.emit(e)
	b.buffers.countWindowChange(s.reassembly.window, b.buffers.firstWindow)
	s.send.pages.dropAll()
	if s.eofConsumed {
		s.reassembly.dropAll()
	} else if s.err != nil {
		s.reassembly.abandon() // a reader may still be copying out of its pages
	}
}

// Done reports that the bond has forgotten the stream.
func (s *Stream) Done() bool { return s.bond.streams.all[s.id] != s }
