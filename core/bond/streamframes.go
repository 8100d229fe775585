// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"fmt"
	"time"

	"mpbond/base/unit"
	"mpbond/core/trace"
	"mpbond/link/wire"
)

// Handlers of frames about a stream. An error means that the other end broke the protocol. Frames
// on different subflows overtake each other and may arrive repeatedly.

// receiveStreamData takes bytes that arrived on p.
func (s *Stream) receiveStreamData(p *subflow, f wire.Data, now time.Time) error {
	if s.err != nil {
		return nil
	}
	b := s.bond
	if err := s.reassembly.checkLimit(f.Seq + wire.DataSeq(len(f.Bytes))); err != nil {
		return fmt.Errorf("stream %d: %w", s.id, err)
	}
	if b.cfg.OpensStreams {
		s.opened = true // bytes from the destination prove it
	}
	added, delivered, ok := s.reassembly.insertBytes(f.Seq, f.Bytes)
	if !ok {
		s.Reset(wire.CodeLimit, memoryExhausted)
		return nil
	}
	if n := len(f.Bytes) - added; n > 0 {
		b.stats.Duplicate += unit.Bytes(n)
		b.trace.traceBytes(now, trace.Duplicate, p, sentFrame{stream: s, from: f.Seq, to: f.Seq + wire.DataSeq(n)}, "")
	}
	if added > 0 {
		b.silence.recordNewBytes(p, now)
	}
	if delivered.From < delivered.To {
		b.trace.traceBytes(now, trace.Deliver, p, sentFrame{stream: s, from: delivered.From, to: delivered.To}, "")
		b.streams.notifyStreamChange(s)
	}
	if s.reassembly.nearsWindowEnd() {
		s.growReceiveWindow()
	}
	if !s.reassembly.chargeBitmaps() {
		s.Reset(wire.CodeLimit, memoryExhausted)
	}
	return nil
}

// receiveOpen makes the stream available to AcceptStream, unless it was reset before.
func (s *Stream) receiveOpen(_ *subflow, f wire.Open, _ time.Time) error {
	b := s.bond
	if s.openReceived || b.cfg.OpensStreams {
		return nil
	}
	s.openReceived, s.dest = true, f.Dest
	if s.groups.serial == 0 { // else a CLASS_UPDATE overtook it, and is newer
		if b.classes.isGroupRetired(f.Group) { // the stream was reset before OPEN arrived
			s.Reset(wire.CodeClosed, "the other end has ended it")
			return nil
		}
		s.permission.group = f.Group
		s.SetMode(f.Mode)
	}
	b.streams.accepted = append(b.streams.accepted, s)
	b.traceStreamOpen(s)
	return nil
}

// receiveOpened records that the destination is connected.
func (s *Stream) receiveOpened(*subflow, wire.Opened, time.Time) error {
	s.opened = true
	s.bond.streams.notifyStreamChange(s)
	return nil
}

// receiveWindow raises the send window.
func (s *Stream) receiveWindow(_ *subflow, f wire.Window, _ time.Time) error {
	if s.send.raiseLimit(f.Limit) {
		s.bond.backlog.updateStream(s)
		if s.hasNotableRoom() {
			s.bond.streams.notifyStreamChange(s)
		}
	}
	return nil
}

// receiveChunk records the end of the bytes that the far end waits for.
func (s *Stream) receiveChunk(_ *subflow, f wire.Chunk, _ time.Time) error {
	if s.err != nil {
		return nil
	}
	s.SetChunkEnd(f.End)
	if !s.bond.cfg.OpensStreams { // a server must not decide which radios of the primary wake
		s.announcedEnd = max(s.announcedEnd, f.End)
	}
	return nil
}

// setFinalSize records the end of the stream.
func (s *Stream) receiveFin(_ *subflow, f wire.Fin, _ time.Time) error {
	if s.err != nil || s.reassembly.finalSizeKnown {
		return nil
	}
	if err := s.reassembly.setFinalSize(f.Seq); err != nil {
		return fmt.Errorf("stream %d: %w", s.id, err)
	}
	s.bond.streams.notifyStreamChange(s)
	return nil
}

// receiveReset ends the stream at this end.
func (s *Stream) receiveReset(_ *subflow, f wire.Reset, _ time.Time) error {
	s.failStream(f)
	return nil
}

// receiveClassUpdate applies the primary's change of mode and group unless it is out of date.
func (s *Stream) receiveClassUpdate(_ *subflow, f wire.ClassUpdate, _ time.Time) error {
	if f.Serial > s.groups.serial && !s.bond.classes.isGroupRetired(f.Group) {
		s.changeClass(f.Serial, f.Mode, f.Group)
	}
	return nil
}
