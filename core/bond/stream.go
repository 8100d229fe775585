// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"io"

	"mpbond/base/unit"
	"mpbond/core/trace"
	"mpbond/link/wire"
)

// Stream is one user connection inside a bond, seen from one end. Not safe for concurrent use.
type Stream struct {
	// User is free for use by the owner of the bond.
	User any

	id           wire.StreamID
	bond         *Bond
	dest         string
	err          error          // set when the stream is reset
	opened       bool           // the destination is connected
	openReceived bool           // OPEN has arrived, at the accepting end
	openSentOn   wire.SubflowID // carries the newest OPEN; 0: none was sent
	inChanged    bool

	send             sendBuffer
	finSet, finAcked bool
	finRecalled      bool    // a second FIN was sent because the first one's subflow is slow
	queued           typeSet // types of queued control frames
	repeated         typeSet // types whose next frame is a repetition
	backlog          backlogEntry

	permission    permission
	groups        groupHistory
	pin           pinnedSubflow // for mode Latency
	run           messageRun
	peerChunkEnd  wire.DataSeq // end of the bytes that the far end waits for; 0: all
	announcedEnd  wire.DataSeq // the same, as far as the primary's app announced it
	localChunkEnd wire.DataSeq // end of the bytes that this end waits for, as sent in CHUNK

	reassembly  reassembly
	eofConsumed bool // the app has consumed all bytes
}

// ID returns the stream's ID.
func (s *Stream) ID() wire.StreamID { return s.id }

// Dest returns the destination that the stream was opened for.
func (s *Stream) Dest() string { return s.dest }

// Err returns why the stream was reset, a wire.Reset, or nil.
func (s *Stream) Err() error { return s.err }

// Opened reports whether the destination is known to be connected. Bytes from it prove that too.
func (s *Stream) Opened() bool { return s.opened }

// SetOpened queues an OPENED frame: the destination is connected. It does so once.
func (s *Stream) SetOpened() {
	if !s.opened && s.err == nil {
		s.opened = true
		s.bond.control.queueFrame(s, wire.TypeOpened)
	}
}

// Room returns how many bytes Write takes now; see bufferLimits.
func (s *Stream) Room() int {
	if s.err != nil || s.finSet {
		return 0
	}
	return int(s.bond.buffers.sendBufferRoom(&s.send))
}

// hasNotableRoom reports whether to notify a writer that waits for room.
func (s *Stream) hasNotableRoom() bool {
	return s.bond.buffers.isNotableRoom(unit.Bytes(s.Room()), &s.send)
}

// isSourceLimit reports whether the source limits the stream, and not the subflows: it has ended,
// or leaves a quarter of the meta buffer empty.
func (s *Stream) isSourceLimit() bool {
	return s.finSet || s.Room() >= int(s.bond.cfg.MetaBuffer/4)
}

// WriteClosed reports whether CloseWrite was called.
func (s *Stream) WriteClosed() bool { return s.finSet }

// Write copies as much of p as there is room and memory for and returns how much. If that is less than Room, there is
// no memory: nothing notifies the writer when other bonds release some.
func (s *Stream) Write(p []byte) int {
	n := s.send.appendUnsent(p[:min(len(p), s.Room())])
	s.bond.buffers.heldBytes += unit.Bytes(n)
	s.bond.backlog.updateStream(s)
	return n
}

// CloseWrite ends the sending direction after the bytes written so far.
func (s *Stream) CloseWrite() {
	if s.err == nil && !s.finSet {
		s.finSet = true
		s.bond.control.queueFrame(s, wire.TypeFin)
	}
}

// Readable returns how many bytes can be read now.
func (s *Stream) Readable() int { return s.reassembly.readableBytes() }

// EOF reports whether all bytes that the other end sent have been consumed.
func (s *Stream) EOF() bool { return s.reassembly.isFullyConsumed() }

// ReadableSlices calls f with at most limit readable bytes, in order. They stay valid until
// Consume, also during ReceiveFrame.
func (s *Stream) ReadableSlices(limit int, f func([]byte)) {
	s.reassembly.eachReadable(limit, f)
}

// Read copies and consumes readable bytes. It returns io.EOF at the end of the stream and the
// stream's error after a reset. It returns 0, nil if nothing is readable yet.
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

// Consume releases n readable bytes and lets the other end send more.
func (s *Stream) Consume(n int) {
	r := &s.reassembly
	r.consumeBytes(n)
	if s.err == nil && r.isWindowDue() {
		s.growReceiveWindow()
	}
	if s.EOF() {
		s.eofConsumed = true
		s.bond.forgetIfFinished(s)
	}
}

// growReceiveWindow moves the window on, and doubles its size as far as memory permits.
func (s *Stream) growReceiveWindow() {
	r := &s.reassembly
	s.setReceiveWindow(r.nextWindow(s.bond.buffers.maxWindowOf(r.window)))
}

// setReceiveWindow sets the size of the window and sends it if it permits more.
func (s *Stream) setReceiveWindow(window unit.Bytes) {
	s.bond.buffers.countWindowChange(s.reassembly.window, window)
	if s.reassembly.setWindowSize(window) {
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

// ResetStream resets the stream of that ID. It reports whether the stream exists.
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
	b.buffers.heldBytes -= s.send.dropHeldBytes()
	b.backlog.updateStream(s)
	b.streams.notifyStreamChange(s)
	b.forgetStream(s)
}

// forgetIfFinished forgets a stream if both its directions have ended.
func (b *Bond) forgetIfFinished(s *Stream) {
	if s.eofConsumed && s.finAcked && s.send.isFullyAcked() {
		b.forgetStream(s)
		b.streams.notifyStreamChange(s)
	}
}

// forgetStream removes the stream from the bond. Its readable bytes stay readable.
func (b *Bond) forgetStream(s *Stream) {
	if b.streams.all[s.id] != s {
		return
	}
	delete(b.streams.all, s.id)
	b.backlog.dequeueStream(s)              // its turn may never come, for example if all subflows of its group are silent
	b.filter.markStreamEnded(&s.permission) // it may still have a turn, in which it blocks no other stream
	e := trace.Event{Kind: trace.StreamClose, Stream: uint64(s.id), Offset: uint64(s.reassembly.readOffset)}
	if s.err != nil {
		e.Reason = s.err.Error()
	}
	b.trace.emitUnstamped(e)
	b.buffers.countWindowChange(s.reassembly.window, b.buffers.firstWindow)
	s.send.pages.freeAllPages()
	if s.eofConsumed {
		s.reassembly.dropBuffers()
	} else if s.err != nil {
		s.reassembly.abandonBuffers() // a reader may still use its pages
	}
	if len(b.streams.all) == 0 {
		b.pool.free = nil // a server may have very many bonds that are idle
	}
}

// Done reports whether the bond has forgotten the stream.
func (s *Stream) Done() bool { return s.bond.streams.all[s.id] != s }
