// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"fmt"
	"time"

	"mpbond/base/unit"
	"mpbond/core/trace"
	"mpbond/link/wire"
)

// frameHandler handles frames of one type. handle gets the subflow that the frame arrived on. An
// error means that the other end broke the protocol.
type frameHandler struct {
	handle handlerFunc
	// needsNoAck reports that the frame asks for no acknowledgement, so that ACKs do not cause
	// ACKs.
	needsNoAck bool
}

// handlerFunc handles a frame that arrived on subflow p.
type handlerFunc func(b *Bond, p *subflow, payload []byte, now time.Time) error

// frameHandlers holds the handlers by type. A type without one is not allowed on a subflow.
var frameHandlers = [256]frameHandler{
	wire.TypeAck:       {handle: (*Bond).receiveAckFrame, needsNoAck: true},
	wire.TypePipeState: {handle: (*Bond).receivePipeState, needsNoAck: true},
	wire.TypeChoice:    {handle: (*Bond).receiveChoice, needsNoAck: true},
	wire.TypeTrain:     {handle: (*Bond).receiveTrain},
	wire.TypeRate:      {handle: (*Bond).receiveRate, needsNoAck: true},
	wire.TypeExpect:    {handle: openerOnly(wire.TypeExpect, (*Bond).receiveExpect), needsNoAck: true},
	wire.TypeHint:      {handle: openerOnly(wire.TypeHint, (*Bond).receiveHint), needsNoAck: true},

	wire.TypeData: {handle: streamHandler(wire.ParseData, func(f wire.Data) wire.StreamID { return f.Stream },
		(*Stream).receiveStreamData)},
	wire.TypeOpen: {handle: streamHandler(wire.ParseOpen, func(f wire.Open) wire.StreamID { return f.Stream },
		(*Stream).receiveOpen)},
	wire.TypeOpened: {handle: streamHandler(wire.ParseOpened, func(f wire.Opened) wire.StreamID { return f.Stream },
		(*Stream).receiveOpened)},
	wire.TypeWindow: {handle: streamHandler(wire.ParseWindow, func(f wire.Window) wire.StreamID { return f.Stream },
		(*Stream).receiveWindow)},
	wire.TypeChunk: {handle: streamHandler(wire.ParseChunk, func(f wire.Chunk) wire.StreamID { return f.Stream },
		(*Stream).receiveChunk)},
	wire.TypeFin: {handle: streamHandler(wire.ParseFin, func(f wire.Fin) wire.StreamID { return f.Stream },
		(*Stream).receiveFin)},
	wire.TypeReset: {handle: streamHandler(wire.ParseReset, func(f wire.Reset) wire.StreamID { return f.Stream },
		(*Stream).receiveReset)},
	wire.TypeClassUpdate: {handle: openerOnly(wire.TypeClassUpdate,
		streamHandler(wire.ParseClassUpdate, func(f wire.ClassUpdate) wire.StreamID { return f.Stream },
			(*Stream).receiveClassUpdate))},

	wire.TypeClassTable:  {handle: openerOnly(wire.TypeClassTable, (*Bond).receiveClassTable)},
	wire.TypeDatagram:    {handle: (*Bond).receiveDatagram},
	wire.TypeFlowEnd:     {handle: flowHandler((*flowTable).receiveFlowEnd)},
	wire.TypeFlowRefused: {handle: flowHandler((*flowTable).receiveFlowRefused)},
	wire.TypeBye:         {handle: (*Bond).receiveBye},
}

// ReceiveFrame takes a frame that arrived on a subflow. It does not keep the payload. An error
// means that the other end broke the protocol: close the subflow.
func (b *Bond) ReceiveFrame(id wire.SubflowID, t wire.Type, payload []byte, now time.Time) error {
	p := b.subflows.subflowByID(id)
	if p == nil {
		return nil // just removed: its bytes arrive again on another one
	}
	p.bytesReceived += uint64(wire.HeaderLen + len(payload))
	p.lastActive = now
	h := &frameHandlers[t]
	if !h.needsNoAck {
		b.acks.recordArrivedFrame(p, unit.Bytes(len(payload)), now)
		if len(b.control.frames)+b.subflows.framesInFlight() > maxUnackedFrames {
			return fmt.Errorf("%d frames are not acknowledged: %w", maxUnackedFrames, wire.ErrMalformed)
		}
	}
	if h.handle != nil {
		return h.handle(b, p, payload, now)
	}
	if t.Skippable() {
		return nil
	}
	return fmt.Errorf("%v is not allowed on a subflow: %w", t, wire.ErrMalformed)
}

// streamHandler returns the handler of a frame about one stream. It ignores frames about ended
// streams.
func streamHandler[F any](parse func([]byte) (F, error), id func(F) wire.StreamID,
	handle func(s *Stream, p *subflow, f F, now time.Time) error) handlerFunc {
	return func(b *Bond, p *subflow, payload []byte, now time.Time) error {
		f, err := parse(payload)
		if err != nil {
			return err
		}
		s, err := b.findOrOpenStream(id(f))
		if s == nil {
			return err
		}
		return handle(s, p, f, now)
	}
}

// flowHandler returns the handler of a frame about one datagram flow.
func flowHandler(handle func(t *flowTable, payload []byte, now time.Time) error) handlerFunc {
	return func(b *Bond, _ *subflow, payload []byte, now time.Time) error { return handle(&b.flows, payload, now) }
}

// openerOnly returns a handler that accepts the frame only from the end that opens streams.
func openerOnly(t wire.Type, handle handlerFunc) handlerFunc {
	return func(b *Bond, p *subflow, payload []byte, now time.Time) error {
		if b.cfg.OpensStreams {
			return fmt.Errorf("%v from the server: %w", t, wire.ErrMalformed)
		}
		return handle(b, p, payload, now)
	}
}

// findOrOpenStream returns the stream of a frame, or nil if it has ended. Frames on different
// subflows overtake each other. So at the accepting end a new ID opens its stream and all lower
// ones.
func (b *Bond) findOrOpenStream(id wire.StreamID) (*Stream, error) {
	if id <= b.streams.lastID {
		return b.streams.all[id], nil
	}
	if b.cfg.OpensStreams {
		return nil, fmt.Errorf("stream %d was never opened: %w", id, wire.ErrMalformed)
	}
	if len(b.streams.all)+int(min(id-b.streams.lastID, 1<<20)) > b.cfg.MaxStreams {
		return nil, fmt.Errorf("stream %d is beyond the limit of %d streams: %w", id, b.cfg.MaxStreams, wire.ErrMalformed)
	}
	for b.streams.lastID < id {
		b.streams.lastID++
		b.addNewStream(b.streams.lastID)
	}
	return b.streams.all[id], nil
}

// receiveAckFrame removes acknowledged frames from flight.
func (b *Bond) receiveAckFrame(on *subflow, payload []byte, now time.Time) error {
	f, err := wire.ParseAck(payload, b.acks.ackBuffer)
	if err != nil {
		return err
	}
	b.acks.ackBuffer = f.Subflows
	b.silence.lastAck = now
	// The ACK describes a time before its own transmission.
	travelled := on.est.EstimateAt(now).OWD
	at := now.Add(-f.Delay - travelled)
	for _, a := range f.Subflows {
		p := b.subflows.subflowByID(a.Subflow)
		if p == nil {
			continue
		}
		if a.Received > p.bytesSent {
			return fmt.Errorf("ACK of %d bytes on subflow %d, which has sent %d: %w", a.Received, a.Subflow, p.bytesSent,
				wire.ErrMalformed)
		}
		if b.trace.wantsSegments() && p.inFlight.len() > 0 {
			b.trace.emitTimestamped(now, trace.Event{Kind: trace.Ack, Subflow: uint32(p.id), Offset: a.Received})
		}
		p.est.OnAcked(a.Received, at, travelled)
		for p.inFlight.len() > 0 && p.inFlight.unackedFrames()[0].end <= a.Received {
			b.frameAcknowledged(p.inFlight.popOldestFrame())
			p.lastProgress = now
		}
		if p.inFlight.len() == 0 {
			p.lastProgress = now
		}
		p.settleWhenIdle(at)
	}
	b.checkSilence(now)
	return nil
}

// frameAcknowledged handles the acknowledgement of a frame.
func (b *Bond) frameAcknowledged(f sentFrame) {
	s := f.stream
	if s == nil || s.err != nil {
		return
	}
	switch f.frameType {
	case wire.TypeData:
		b.buffers.heldBytes -= s.send.acknowledge(seqSpan{From: f.from, To: f.to})
		b.backlog.updateStream(s)
		if s.hasNotableRoom() {
			b.streams.notifyStreamChange(s)
		}
	case wire.TypeFin:
		s.finAcked = true
	case wire.TypeClassUpdate:
		s.groups.confirmChange(uint64(f.from))
		return
	default:
		return
	}
	b.forgetIfFinished(s)
}

// receivePipeState takes a helper's report that the other end passed on.
func (b *Bond) receivePipeState(_ *subflow, payload []byte, now time.Time) error {
	f, err := wire.ParsePipeState(payload)
	if err == nil {
		b.ObserveFarHop(f.Subflow, now, f.HopState)
	}
	return err
}

// receiveChoice stores the server's choice for a stream.
func (b *Bond) receiveChoice(_ *subflow, payload []byte, _ time.Time) error {
	f, err := wire.ParseChoice(payload)
	if s := b.streams.all[f.Stream]; err == nil && s != nil && b.cfg.OpensStreams {
		s.permission.choice = f
	}
	return err
}

// receiveExpect stores what the primary expects of a message. It ignores older expectations that come
// late over another subflow.
func (b *Bond) receiveExpect(_ *subflow, payload []byte, now time.Time) error {
	f, err := wire.ParseExpect(payload)
	if s := b.streams.all[f.Stream]; err == nil && s != nil && f.At >= s.permission.expected.At {
		e := Expectation{At: f.At, End: f.End}
		if f.NeededIn > 0 {
			e.NeededAt = now.Add(f.NeededIn)
		}
		s.ExpectSent(e)
	}
	return err
}

// receiveClassTable applies the primary's class table.
func (b *Bond) receiveClassTable(_ *subflow, payload []byte, now time.Time) error {
	f, err := wire.ParseClassTable(payload)
	if err == nil && f.Serial > b.classes.serial {
		b.applyClassTable(f.Serial, f.Groups)
		b.endRetiredStreams(now)
	}
	return err
}

// receiveBye records that the other end has ended the bond.
func (b *Bond) receiveBye(*subflow, []byte, time.Time) error {
	b.byeReceived = true
	return nil
}

// dispatchDatagram passes a datagram to its flow.
func (b *Bond) receiveDatagram(p *subflow, payload []byte, now time.Time) error {
	d, err := wire.ParseDatagram(payload)
	if err != nil {
		return err
	}
	isNew, err := b.flows.dispatchDatagram(d, now)
	if isNew {
		b.silence.recordNewBytes(p, now)
	}
	return err
}
