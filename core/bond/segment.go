// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"time"

	"mpbond/base/unit"
	"mpbond/core/sched"
	"mpbond/core/trace"
	"mpbond/link/wire"
)

// segmentWriter fills segments. It takes bytes from the send buffers and frames from the control
// queue, encodes them, and records each reliable one as in flight on its subflow. A segment is sent
// or withdrawn as a whole. Not safe for concurrent use.
type segmentWriter struct {
	subflows *subflowTable
	filter   *subflowFilter
	classes  *classTable
	backlog  *backlog
	flows    *flowTable
	control  *controlQueue
	acks     *ackClock
	streams  *streamTable
	trace    *tracer
	stats    *Stats
	ledger   *sched.Ledger

	copiesMessages bool // the scheduler wants copies of messages
	credit         messageCredit
}

// fillTurnData appends the data of a turn.
func (w *segmentWriter) fillTurnData(t turn, now time.Time, buf []byte) []byte {
	switch t.kind {
	case turnDatagrams:
		return w.flows.fillDatagrams(t.subflow, w.backlog, now, buf)
	case turnLowLatency:
		return w.fillLowLatency(t.subflow, t.stream, now, buf)
	case turnCopies:
		return w.fillCopies(t.subflow, now, buf)
	}
	return w.fillBulkData(t.subflow, t, now, buf)
}

// fillControl appends control frames, acknowledgements and relayed reports.
func (w *segmentWriter) fillControl(p *subflow, now time.Time, buf []byte) []byte {
	if len(buf) <= maxSegment {
		w.control.takeFrames(func(c controlFrame, repeated bool) bool {
			f := w.buildControlFrame(c)
			if f == nil {
				return true
			}
			at := len(buf)
			buf = wire.Append(buf, f)
			note := sentFrame{frameType: c.frameType, stream: c.stream, repeated: repeated,
				noRecall: c.frameType == wire.TypeFin && c.stream.finRecalled}
			if t, ok := f.(wire.ClassUpdate); ok {
				note.from, note.to = wire.DataSeq(t.Serial), wire.DataSeq(t.Serial)
			}
			p.recordSentFrame(len(buf)-at, note)
			if c.frameType == wire.TypeOpen {
				c.stream.openSentOn = p.id
			}
			return len(buf) <= maxSegment
		})
	}
	if w.acks.pending {
		buf = p.appendUnreliable(buf, w.acks.buildAckFrame(p, now))
	}
	for _, q := range w.subflows.list {
		if now.Sub(q.relayAt) <= maxReportAge {
			buf = p.appendUnreliable(buf, q.relay)
		}
		q.relayAt = time.Time{}
	}
	if len(buf) <= maxSegment {
		w.control.takeNotices(func(f wire.Frame) bool {
			buf = p.appendUnreliable(buf, f)
			return len(buf) <= maxSegment
		})
	}
	return buf
}

// buildControlFrame builds the frame, or nil if it is no longer needed.
func (w *segmentWriter) buildControlFrame(c controlFrame) wire.Frame {
	s := c.stream
	switch c.frameType {
	case wire.TypeBye:
		return wire.Bye{}
	case wire.TypeClassTable:
		return w.classes.buildFrame()
	}
	if c.frameType == wire.TypeReset {
		r, _ := s.err.(wire.Reset)
		return r
	}
	if s.err != nil {
		return nil
	}
	switch c.frameType {
	case wire.TypeOpen:
		return wire.Open{Stream: s.id, Mode: s.permission.mode, Group: s.permission.group, Dest: s.dest}
	case wire.TypeOpened:
		return wire.Opened{Stream: s.id}
	case wire.TypeFin:
		return wire.Fin{Stream: s.id, Seq: s.send.end}
	case wire.TypeChunk:
		return wire.Chunk{Stream: s.id, End: s.localChunkEnd}
	case wire.TypeWindow:
		return wire.Window{Stream: s.id, Limit: s.reassembly.limit}
	case wire.TypeClassUpdate:
		return wire.ClassUpdate{Stream: s.id, Serial: s.groups.serial, Mode: s.permission.mode, Group: s.permission.group}
	}
	return nil
}

// fillLowLatency appends a segment of the stream's next bytes, for the subflow p that it is pinned
// to.
func (w *segmentWriter) fillLowLatency(p *subflow, s *Stream, now time.Time, buf []byte) []byte {
	p.streamsFirst = false
	w.backlog.lowLatency = removeStream(w.backlog.lowLatency, s)
	buf, _ = w.fillStream(p, s, fillSpec{room: p.targetSegmentSize(now)}, now, buf)
	return buf
}

// fillBulkData appends a segment of stream bytes for subflow p.
//
// The decision's Diff is how many bytes faster subflows will take before p delivers (PAMS). So p
// gets bytes from that far ahead in the meta buffer. They arrive about when they are needed, few
// bytes wait for reassembly, and the app does not wait for what a slow subflow loses.
func (w *segmentWriter) fillBulkData(p *subflow, t turn, now time.Time, buf []byte) []byte {
	l := w.backlog
	l.moveToFront(t.stream)
	f := fillSpec{room: p.targetSegmentSize(now), copies: t.decision.Copy,
		ahead: l.streamShare(t.decision.Diff, t.stream)} // streams share the faster subflows
	p.streamsFirst = false
	redundant := len(l.ready) > 0 && l.ready[0].permission.mode == wire.ModeRedundant
	for i, n := 0, len(l.ready); n > 0 && f.room > wire.MaxDataHeader; n-- {
		s := l.ready[i]
		if (s.permission.mode == wire.ModeRedundant) != redundant {
			break
		}
		if s != t.stream { // the scheduler was asked about that one
			w.filter.refreshPermission(s.id, &s.permission, s.demandOf(l.contendingBytes(s), now), now)
		}
		if !w.filter.permissionAllows(&s.permission, p.id) || !p.permitsBulkOf(s) {
			i++
			continue
		}
		l.ready = append(l.ready[:i], l.ready[i+1:]...)
		// The stream goes to the end of the turns while it has more bytes.
		buf, f.room = w.fillStream(p, s, f, now, buf)
		if f.room > wire.MaxDataHeader && len(s.send.unsent) > 0 {
			w.backlog.windowBlocked++
		}
	}
	return buf
}

// fillSpec says how to fill a segment from a stream.
type fillSpec struct {
	room   int        // bytes of frames left
	ahead  unit.Bytes // start this far into the meta buffer
	copies bool       // also copy to every other subflow
}

// fillStream appends bytes of a stream that was removed from the turns, and queues it again if it
// has more. It returns the room left.
func (w *segmentWriter) fillStream(p *subflow, s *Stream, f fillSpec, now time.Time, buf []byte) ([]byte, int) {
	r := w.backlog.rankStream(s)
	w.classes.beginRankedTurn(r)
	start := len(buf)
	if s.send.isSendable() && s.send.unsent[0].From == 0 {
		buf = w.appendSecondOpen(p, s, buf)
	}
	f.room -= len(buf) - start
	message, isNew := copiedSpan{stream: s, from: s.send.end, to: s.send.end, message: true}, true
	for f.room > wire.MaxDataHeader {
		skip, found := p.inFlight.firstUncarried(s)
		if !found {
			break
		}
		at := len(buf)
		part := s.send.nextUnsentSpan(max(f.ahead, skip), wire.DataSeq(f.room-wire.MaxDataHeader))
		buf = wire.AppendData(buf, s.id, part.From, int(part.To-part.From))
		buf = s.send.appendSpan(buf, part)
		sent := sentFrame{frameType: wire.TypeData, stream: s, from: part.From, to: part.To}
		wasInFlight := s.send.markSpanSent(part)
		sent.noRecall = wasInFlight || s.permission.boundTo != 0 // a bound stream may use no other subflow
		message.from, isNew = min(message.from, part.From), isNew && !wasInFlight
		if f.copies {
			sent.noRecall = w.copyToOthers(p, copiedSpan{stream: s, from: part.From, to: part.To}) || sent.noRecall
		}
		sent.end = p.recordSentFrame(len(buf)-at, sent)
		s.run.recordSent(now, s, unit.Bytes(part.To-part.From))
		s.permission.burst += unit.Bytes(part.To - part.From)
		r.countSentBytes(unit.Bytes(part.To - part.From))
		w.ledger.Given += unit.Bytes(part.To - part.From)
		w.trace.traceBytes(now, trace.Segment, p, sent, "")
		f.room -= len(buf) - at
	}
	if len(s.send.unsent) == 0 {
		if isNew && message.from == s.send.firstUnacked { // all earlier bytes have arrived
			w.copyMessage(p, message, r.priority, now)
		}
		if s.permission.burst <= shortBurst && w.backlog.othersMayWait(s, r.priority) {
			p.extendLowLatency(now.Add(lowLatencyPeriod)) // they must not make it wait for their queue
		}
		s.permission.burst, s.backlog.pausedAt = 0, now
	}
	if !s.send.isSendable() {
		s.permission.backloggedSince = time.Time{}
	}
	s.backlog.queued, s.backlog.overtaken = false, 0
	w.backlog.updateStream(s)
	if len(buf) > start && s.hasNotableRoom() {
		w.streams.notifyStreamChange(s)
	}
	return buf, f.room
}

// appendSecondOpen appends OPEN, before the first byte of a stream, if that goes over another subflow
// than OPEN did. Otherwise the byte would wait at the far end for OPEN if that takes longer.
func (w *segmentWriter) appendSecondOpen(p *subflow, s *Stream, buf []byte) []byte {
	if s.opened || s.openSentOn == 0 || s.openSentOn == p.id {
		return buf
	}
	at := len(buf)
	buf = wire.Append(buf, w.buildControlFrame(controlFrame{s, wire.TypeOpen}))
	p.recordSentFrame(len(buf)-at, sentFrame{frameType: wire.TypeOpen, stream: s, repeated: true})
	s.openSentOn = p.id
	return buf
}
