package bond

import (
	"fmt"
	"time"

	"mpbond/base/unit"
	"mpbond/core/trace"
	"mpbond/link/wire"
)

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
	switch t {
	case wire.TypeAck:
		return b.receiveAck(p, payload, now)
	case wire.TypePipeState:
		f, err := wire.ParsePipeState(payload)
		if err == nil {
			b.Remote(f.Path, now, f.HopState)
		}
		return err
	}
	if t == wire.TypeChoice {
		return b.receiveChoice(payload)
	}
	b.acks.received(p, unit.Bytes(len(payload)), now)
	if len(b.control.frames)+b.subflows.framesInFlight() > maxUntold {
		return fmt.Errorf("%d frames are not acknowledged: %w", maxUntold, wire.ErrMalformed)
	}
	switch t {
	case wire.TypeData:
		f, err := wire.ParseData(payload)
		if err != nil {
			return err
		}
		return b.receiveData(p, f, now)
	case wire.TypeOpen:
		f, err := wire.ParseOpen(payload)
		if err != nil {
			return err
		}
		s, err := b.stream(f.Stream)
		if s != nil && !s.seen && !b.cfg.Opens {
			s.seen, s.dest = true, f.Dest
			if s.groups.serial == 0 { // else TREAT came first, and is newer
				if b.classes.retired(f.Group) { // it was reset before this came
					s.Reset(wire.CodeClosed, "the other end has ended it")
					return nil
				}
				s.route.group = f.Group
				s.SetMode(f.Mode)
			}
			b.streams.accepted = append(b.streams.accepted, s)
			b.opened(s)
		}
		return err
	case wire.TypeOpened:
		f, err := wire.ParseOpened(payload)
		if err != nil {
			return err
		}
		s, err := b.stream(f.Stream)
		if s != nil {
			s.opened = true
			b.streams.notify(s)
		}
		return err
	case wire.TypeFin:
		f, err := wire.ParseFin(payload)
		if err != nil {
			return err
		}
		return b.receiveFin(f)
	case wire.TypeReset:
		f, err := wire.ParseReset(payload)
		if err != nil {
			return err
		}
		s, err := b.stream(f.Stream)
		if s != nil {
			s.fail(f)
		}
		return err
	case wire.TypeWindow:
		f, err := wire.ParseWindow(payload)
		if err != nil {
			return err
		}
		s, err := b.stream(f.Stream)
		if s != nil && s.send.raiseLimit(f.Limit) {
			b.backlog.update(s)
			if s.roomy() {
				b.streams.notify(s)
			}
		}
		return err
	case wire.TypeChunk:
		f, err := wire.ParseChunk(payload)
		if err != nil {
			return err
		}
		s, err := b.stream(f.Stream)
		if s != nil && s.err == nil {
			s.ChunkEnd(f.End)
		}
		return err
	case wire.TypeTreat:
		return b.receiveTreat(payload)
	case wire.TypePlan:
		return b.receivePlan(payload, now)
	case wire.TypeDatagram, wire.TypeFlowEnd, wire.TypeFlowRefused:
		isNew, err := b.flows.receive(t, payload, now)
		if isNew {
			b.silence.received(p, now)
		}
		return err
	case wire.TypeBye:
		b.byeSeen = true
		return nil
	}
	if t.Skippable() {
		return nil
	}
	return fmt.Errorf("%v does not belong on a subflow: %w", t, wire.ErrMalformed)
}

// stream finds the stream that a frame is about. It is nil for one that has
// ended. Frames overtake each other on different subflows, so at the accepting
// end a number not seen before opens its stream and all lower ones.
func (b *Bond) stream(id wire.StreamID) (*Stream, error) {
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

func (b *Bond) receiveData(p *subflow, f wire.Data, now time.Time) error {
	s, err := b.stream(f.Stream)
	if s == nil || s.err != nil {
		return err
	}
	if err := s.reassembly.check(f.Seq + wire.DataSeq(len(f.Bytes))); err != nil {
		return fmt.Errorf("stream %d: %w", f.Stream, err)
	}
	if b.cfg.Opens {
		s.opened = true // what comes from the destination proves it
	}
	added, delivered, ok := s.reassembly.receive(f.Seq, f.Bytes)
	if !ok {
		s.Reset(wire.CodeLimit, errMemory)
		return nil
	}
	if twice := len(f.Bytes) - added; twice > 0 {
		b.stats.Duplicate += unit.Bytes(twice)
		b.trace.bytes(now, trace.Duplicate, p, sentFrame{stream: s, from: f.Seq, to: f.Seq + wire.DataSeq(twice)}, "")
	}
	if added > 0 {
		b.silence.received(p, now)
	}
	if delivered.from < delivered.to {
		b.trace.bytes(now, trace.Deliver, p, sentFrame{stream: s, from: delivered.from, to: delivered.to}, "")
		b.streams.notify(s)
	}
	if !s.reassembly.takeMarks() {
		s.Reset(wire.CodeLimit, errMemory)
	}
	return nil
}

func (b *Bond) receiveFin(f wire.Fin) error {
	s, err := b.stream(f.Stream)
	if s == nil || s.err != nil || s.reassembly.finalSizeKnown {
		return err
	}
	if err := s.reassembly.receiveFin(f.Seq); err != nil {
		return fmt.Errorf("stream %d: %w", f.Stream, err)
	}
	b.streams.notify(s)
	return nil
}

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
			b.landed(p.inFlight.pop())
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

// landed ends the flight of a frame that has arrived.
func (b *Bond) landed(f sentFrame) {
	s := f.stream
	if s == nil || s.err != nil {
		return
	}
	switch f.frameType {
	case wire.TypeData:
		b.buffers.held -= s.send.acknowledge(span{f.from, f.to})
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
	b.finish(s)
}
