package bond

import (
	"fmt"
	"time"

	"mpbond/base/unit"
	"mpbond/core/trace"
	"mpbond/link/wire"
)

// frameHandler is what the bond does with a frame of one type. Take gets the subflow on which
// the frame came; an error means that the other end broke the protocol.
type frameHandler struct {
	take func(b *Bond, p *subflow, payload []byte, now time.Time) error
	// noAck tells that the frame asks for no acknowledgement, or ACKs would go on for ever.
	noAck bool
}

// frameHandlers is by type; a type without take does not belong on a subflow.
var frameHandlers = [256]frameHandler{
	wire.TypeAck:       {take: (*Bond).receiveAck, noAck: true},
	wire.TypePipeState: {take: (*Bond).receivePipeState, noAck: true},
	wire.TypeChoice:    {take: (*Bond).receiveChoice, noAck: true},

	wire.TypeData:   {take: aboutStream(wire.ParseData, func(f wire.Data) wire.StreamID { return f.Stream }, (*Stream).receiveData)},
	wire.TypeOpen:   {take: aboutStream(wire.ParseOpen, func(f wire.Open) wire.StreamID { return f.Stream }, (*Stream).receiveOpen)},
	wire.TypeOpened: {take: aboutStream(wire.ParseOpened, func(f wire.Opened) wire.StreamID { return f.Stream }, (*Stream).receiveOpened)},
	wire.TypeWindow: {take: aboutStream(wire.ParseWindow, func(f wire.Window) wire.StreamID { return f.Stream }, (*Stream).receiveWindow)},
	wire.TypeChunk:  {take: aboutStream(wire.ParseChunk, func(f wire.Chunk) wire.StreamID { return f.Stream }, (*Stream).receiveChunk)},
	wire.TypeFin:    {take: aboutStream(wire.ParseFin, func(f wire.Fin) wire.StreamID { return f.Stream }, (*Stream).receiveFin)},
	wire.TypeReset:  {take: aboutStream(wire.ParseReset, func(f wire.Reset) wire.StreamID { return f.Stream }, (*Stream).receiveReset)},
	wire.TypeTreat:  {take: fromOpener(wire.TypeTreat, aboutStream(wire.ParseTreat, func(f wire.Treat) wire.StreamID { return f.Stream }, (*Stream).receiveTreat))},

	wire.TypePlan:        {take: fromOpener(wire.TypePlan, (*Bond).receivePlan)},
	wire.TypeDatagram:    {take: (*Bond).receiveDatagram},
	wire.TypeFlowEnd:     {take: aboutFlow((*flowTable).receiveEnd)},
	wire.TypeFlowRefused: {take: aboutFlow((*flowTable).receiveRefused)},
	wire.TypeBye:         {take: func(b *Bond, _ *subflow, _ []byte, _ time.Time) error { b.byeSeen = true; return nil }},
}

// Receive takes one frame that arrived on a subflow. The payload is not kept.
// An error means that the other end broke the protocol: the subflow must be
// closed.
func (b *Bond) Receive(id wire.PathID, t wire.Type, payload []byte, now time.Time) error {
	p := b.subflows.find(id)
	if p == nil {
		return nil // removed a moment ago: its bytes come again on another one
	}
	p.bytesReceived += uint64(wire.HeaderLen + len(payload))
	p.lastActive = now
	h := &frameHandlers[t]
	if !h.noAck {
		b.acks.received(p, unit.Bytes(len(payload)), now)
		if len(b.control.frames)+b.subflows.framesInFlight() > maxUnackedFrames {
			return fmt.Errorf("%d frames are not acknowledged: %w", maxUnackedFrames, wire.ErrMalformed)
		}
	}
	if h.take != nil {
		return h.take(b, p, payload, now)
	}
	if t.Skippable() {
		return nil
	}
	return fmt.Errorf("%v does not belong on a subflow: %w", t, wire.ErrMalformed)
}

// aboutStream makes what takes a frame about one stream. Frames about a stream that has ended
// are ignored.
func aboutStream[F any](parse func([]byte) (F, error), id func(F) wire.StreamID, take func(s *Stream, p *subflow, f F, now time.Time) error) func(*Bond, *subflow, []byte, time.Time) error {
	return func(b *Bond, p *subflow, payload []byte, now time.Time) error {
		f, err := parse(payload)
		if err != nil {
			return err
		}
		s, err := b.streamOf(id(f))
		if s == nil {
			return err
		}
		return take(s, p, f, now)
	}
}

// aboutFlow makes what takes a frame about one datagram flow.
func aboutFlow(take func(t *flowTable, payload []byte, now time.Time) error) func(*Bond, *subflow, []byte, time.Time) error {
	return func(b *Bond, _ *subflow, payload []byte, now time.Time) error { return take(&b.flows, payload, now) }
}

// fromOpener makes an error of a frame that only the end that opens may send.
func fromOpener(t wire.Type, take func(*Bond, *subflow, []byte, time.Time) error) func(*Bond, *subflow, []byte, time.Time) error {
	return func(b *Bond, p *subflow, payload []byte, now time.Time) error {
		if b.cfg.Opens {
			return fmt.Errorf("%v of the server: %w", t, wire.ErrMalformed)
		}
		return take(b, p, payload, now)
	}
}

// streamOf returns the stream that a frame is about. It is nil for one that has
// ended. Frames overtake each other on different subflows, so at the accepting
// end a number not seen before opens its stream and all lower ones.
func (b *Bond) streamOf(id wire.StreamID) (*Stream, error) {
	if id <= b.streams.lastID {
		return b.streams.all[id], nil
	}
	if b.cfg.Opens {
		return nil, fmt.Errorf("stream %d was never opened: %w", id, wire.ErrMalformed)
	}
	if len(b.streams.all)+int(min(id-b.streams.lastID, 1<<20)) > b.cfg.MaxStreams {
		return nil, fmt.Errorf("stream %d is beyond the limit of %d streams: %w", id, b.cfg.MaxStreams, wire.ErrMalformed)
	}
	for b.streams.lastID < id {
		b.streams.lastID++
		b.newStream(b.streams.lastID)
	}
	return b.streams.all[id], nil
}

// receiveAck ends the flight of what has arrived.
func (b *Bond) receiveAck(on *subflow, payload []byte, now time.Time) error {
	f, err := wire.ParseAck(payload, b.acks.view)
	if err != nil {
		return err
	}
	b.acks.view = f.Paths
	b.silence.lastAck = now
	// What it tells was true before it travelled.
	travelled := on.est.At(now).OWD
	at := now.Add(-f.Delay - travelled)
	for _, a := range f.Paths {
		p := b.subflows.find(a.Path)
		if p == nil {
			continue
		}
		if a.Received > p.bytesSent {
			return fmt.Errorf("ACK of %d bytes of path %d, which has sent %d: %w", a.Received, a.Path, p.bytesSent, wire.ErrMalformed)
		}
		if b.trace.segments() && p.inFlight.len() > 0 {
			b.trace.at(now, trace.Event{Kind: trace.Ack, Path: uint32(p.id), Offset: a.Received})
		}
		p.est.Acked(a.Received, at, travelled)
		for p.inFlight.len() > 0 && p.inFlight.all()[0].end <= a.Received {
			b.acknowledged(p.inFlight.pop())
			p.lastProgress = now
		}
		if p.inFlight.len() == 0 {
			p.lastProgress = now
		}
		p.settleIdle(at)
	}
	b.checkSilence(now)
	return nil
}

// acknowledged ends the flight of a frame that has arrived.
func (b *Bond) acknowledged(f sentFrame) {
	s := f.stream
	if s == nil || s.err != nil {
		return
	}
	switch f.frameType {
	case wire.TypeData:
		b.buffers.held -= s.send.acknowledge(seqSpan{From: f.from, To: f.to})
		b.backlog.update(s)
		if s.roomy() {
			b.streams.notify(s)
		}
	case wire.TypeFin:
		s.finAcked = true
	case wire.TypeTreat:
		s.groups.confirm(uint64(f.from))
		return
	default:
		return
	}
	b.finishStream(s)
}

// receivePipeState takes a helper's report that the other end has passed on.
func (b *Bond) receivePipeState(_ *subflow, payload []byte, now time.Time) error {
	f, err := wire.ParsePipeState(payload)
	if err == nil {
		b.Remote(f.Path, now, f.HopState)
	}
	return err
}

// receiveChoice takes the server's word about a stream.
func (b *Bond) receiveChoice(_ *subflow, payload []byte, _ time.Time) error {
	f, err := wire.ParseChoice(payload)
	if s := b.streams.all[f.Stream]; err == nil && s != nil && b.cfg.Opens {
		s.route.choice = f
	}
	return err
}

// receivePlan takes the primary's class table.
func (b *Bond) receivePlan(_ *subflow, payload []byte, now time.Time) error {
	f, err := wire.ParsePlan(payload)
	if err == nil && f.Serial > b.classes.serial {
		b.applyClasses(f.Serial, f.Groups)
		b.endRetired(now)
	}
	return err
}

// receiveDatagram hands a datagram to its flow.
func (b *Bond) receiveDatagram(p *subflow, payload []byte, now time.Time) error {
	d, err := wire.ParseDatagram(payload)
	if err != nil {
		return err
	}
	isNew, err := b.flows.receiveDatagram(d, now)
	if isNew {
		b.silence.received(p, now)
	}
	return err
}
