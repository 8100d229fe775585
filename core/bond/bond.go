// Package bond is the core of mpbond: streams, their meta buffers, the data
// sequence, acknowledgements, flow control, reassembly and reinjection. It
// stands between the live ends of package endpoint (sockets, goroutines, the
// clock) and the choices of package sched, and is sans-I/O: bytes, frames and
// the time are handed in, frames come out. Both ends of a bond run the same
// code, so uploads are scheduled by the primary as downloads are by the
// server.
//
// The way of a byte: Stream.Write puts it into the stream's sendBuffer; Next lets
// the turnChooser ask the scheduler for a subflow that can take a segment, and the
// segmentWriter fill it from the send buffers and note it as in flight; the far
// end's Receive puts it into the stream's reassembly and Stream.Read hands it
// over; its ACK ends the flight. A subflow that is lost or falls silent gives what
// it had in flight back (reinjector). docs/explanation/datapath.md follows one segment by the
// names of functions.
//
// Bond wires its parts and has the methods of the owner. Each part is a type with
// fields of its own, which knows those above it in this list at most:
//
//	wakeTimer, memoryBudget, tracer, subflowTable, streamTable, controlQueue
//	classTable      how each group of streams and flows is sent
//	ackClock        when ACKs are due, and where
//	silenceDetector which subflows make no progress
//	subflowFilter   by which subflows something may be sent
//	sendBuffer, reassembly: the bytes of one stream
//	bufferLimits    how much each stream may hold
//	backlog         whose turn it is among streams
//	flowTable       datagram flows
//	turnChooser, segmentWriter, reinjector: what goes where, and what goes again
package bond

import (
	"fmt"
	"time"

	"mpbond/base/unit"
	"mpbond/core/sched"
	"mpbond/core/trace"
	"mpbond/link/estimate"
	"mpbond/link/wire"
)

// Config is what a bond is made with. The zero value of a field means its
// default.
type Config struct {
	// OpensStreams tells that this end opens streams (the primary) and the other
	// accepts them (the server).
	OpensStreams bool
	// Scheduler decides where segments go. Default: sched.Default.
	Scheduler sched.Scheduler
	// MaxStreams bounds the streams that exist at once. Default 4096.
	MaxStreams int
	// MaxFlows bounds the datagram flows that exist at once. Default 1024.
	MaxFlows int
	// MetaBuffer bounds what a stream accepts ahead of scheduling. Default
	// 4 MB, cut to 64 KB a stream once all streams together hold MaxBuffered.
	MetaBuffer unit.Bytes
	// MaxBuffered is the memory for bytes to send, and again for bytes
	// received, that grown windows may use: see docs/explanation/datapath.md for the bound
	// that follows. Default 64 MB.
	MaxBuffered unit.Bytes
	// Memory is what the bond takes memory from, besides its own bound of 1 GB; nil:
	// that bound alone.
	Memory Memory
	// Eta is the reinjection threshold η of the MPBond paper; negative is off.
	// Default 0.2.
	Eta float64
	// Trace is told what happens, if it is set. Events lack the name of who
	// writes. It is called with the bond's owner's lock held and must not block.
	Trace func(trace.Event)
	// ChangesOnly leaves out of Trace what happens for each segment.
	ChangesOnly bool
}

// Tuning, ours unless a source is named.
const (
	defaultMaxStreams  = 4096
	defaultMetaBuffer  = 4 * unit.MB
	defaultMaxBuffered = 64 * unit.MB
	defaultEta         = 0.2 // MPBond, MobiSys 2020, section 4.4
	minMetaBuffer      = 64 * unit.KB
	blockedAllowance   = pageSize // beyond the receiver's window, when memory gets short
	maxWindow          = 16 * unit.MB
	maxOpeningWindow   = 512 * unit.KB // of a stream that this end opens, while memory is plenty

	segmentTime = 5 * time.Millisecond // a segment is what a subflow carries in this time
	minSegment  = 1400
	maxSegment  = 64 << 10
	// tlsOverhead is what TLS 1.3 adds to a record (RFC 8446 section 5.2: header,
	// content type, tag). Segments are sized so that whole packets result.
	tlsOverhead = 22

	// What only a peer that breaks the rules, or never reads, can reach.
	maxUnackedFrames = 1 << 17
	maxMemory        = 1 * unit.GB

	// While windows are full, what is not late and comes within maxDeliveryGap is waited for. What a
	// helper has held for overdueAfter, twice what schedulers let wait there at the
	// end, goes another way at any time.
	maxDeliveryGap = 250 * time.Millisecond
	overdueAfter   = 2 * time.Second

	// maxReportAge is how old a helper's report may be when it is passed on: the
	// other end takes it for the state at its arrival.
	maxReportAge = 200 * time.Millisecond
)

// Bond is one end of a bond. Not safe for concurrent use.
type Bond struct {
	cfg      Config
	subflows subflowTable
	streams  streamTable
	pool     pagePool
	memory   memoryBudget
	timer    wakeTimer
	trace    tracer

	flows flowTable

	classes classTable
	filter  subflowFilter
	backlog backlog
	buffers bufferLimits
	control controlQueue
	acks    ackClock
	silence silenceDetector

	byeReceived bool
	chooser     turnChooser
	writer      segmentWriter
	reinject    reinjector
	stats       Stats
}

// Stats counts what happened, for status output. Byte counts are stream bytes.
type Stats struct {
	StreamsTotal int
	// Duplicate bytes were received twice and dropped. The others were given
	// to a second subflow by this end, by cause.
	Duplicate, LostSubflow, Silent, Eta unit.Bytes
	// Redundant bytes were given to further subflows on purpose: copies.
	Redundant  unit.Bytes
	FlowsTotal int
	// DatagramsDropped waited too long or found no room, at this end.
	DatagramsDropped int
}

// New makes a bond end without paths or streams.
func New(cfg Config) *Bond {
	if cfg.Scheduler == nil {
		cfg.Scheduler, _ = sched.New(sched.Default)
	}
	setDefault(&cfg.MaxStreams, defaultMaxStreams)
	setDefault(&cfg.MaxFlows, defaultMaxFlows)
	setDefault(&cfg.MetaBuffer, defaultMetaBuffer)
	setDefault(&cfg.MaxBuffered, defaultMaxBuffered)
	setDefault(&cfg.Eta, defaultEta)
	b := &Bond{cfg: cfg, streams: streamTable{all: map[wire.StreamID]*Stream{}}}
	b.connectParts()
	return b
}

// connectParts gives each part the parts below it. None points back to the bond.
func (b *Bond) connectParts() {
	b.memory.shared = b.cfg.Memory
	b.trace = tracer{sink: b.cfg.Trace, changesOnly: b.cfg.ChangesOnly, decisions: trace.NewRing[Decision](64)}
	b.pool.memory = &b.memory
	b.filter = subflowFilter{subflows: &b.subflows, classes: &b.classes}
	if !b.cfg.OpensStreams {
		b.filter.reports = &b.control
	}
	b.acks = ackClock{subflows: &b.subflows, timer: &b.timer}
	b.silence = silenceDetector{subflows: &b.subflows, timer: &b.timer, opensStreams: b.cfg.OpensStreams}
	b.buffers = bufferLimits{memory: &b.memory, metaBuffer: b.cfg.MetaBuffer, maxBuffered: b.cfg.MaxBuffered, firstWindow: initialWindow(!b.cfg.OpensStreams)}
	b.backlog.classes = &b.classes
	b.reinject = reinjector{subflows: &b.subflows, filter: &b.filter, backlog: &b.backlog, control: &b.control,
		trace: &b.trace, stats: &b.stats, scheduler: b.cfg.Scheduler, eta: b.cfg.Eta}
	b.chooser = turnChooser{subflows: &b.subflows, filter: &b.filter, classes: &b.classes, backlog: &b.backlog, flows: &b.flows,
		trace: &b.trace, timer: &b.timer, scheduler: b.cfg.Scheduler}
	b.writer = segmentWriter{subflows: &b.subflows, filter: &b.filter, classes: &b.classes, backlog: &b.backlog, flows: &b.flows,
		control: &b.control, acks: &b.acks, streams: &b.streams, trace: &b.trace, stats: &b.stats, ledger: &b.reinject.ledger}
	b.flows = flowTable{filter: &b.filter, classes: &b.classes, control: &b.control, memory: &b.memory, timer: &b.timer,
		trace: &b.trace, stats: &b.stats, accepts: !b.cfg.OpensStreams, maxFlows: b.cfg.MaxFlows}
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// AddSubflow makes a subflow usable. It is busy until Idle is called.
func (b *Bond) AddSubflow(id wire.SubflowID, helped bool, now time.Time) {
	b.RemoveSubflow(id, now)
	p := &subflow{id: id, lastProgress: now, lastHopProgress: now, lastActive: now}
	p.est.Helped = helped
	b.subflows.insert(p)
	b.filter.expireAnswers()
}

// RemoveSubflow tells that a subflow is gone. What it had in flight is sent again
// on others.
func (b *Bond) RemoveSubflow(id wire.SubflowID, now time.Time) {
	p := b.subflows.remove(id)
	if p == nil {
		return
	}
	b.filter.expireAnswers()
	b.flows.unpinSubflow(p)
	for _, s := range b.streams.all {
		if s.pin.subflow == p {
			s.pin.subflow = nil
		}
	}
	b.resetBoundStreams(p)
	b.stats.LostSubflow += b.reinject.recallInFlight(p, 0, now, "lost")
	b.acks.reacknowledge(now)
}

// SetJoinRTT tells how long the round trip of a subflow's handshake took.
func (b *Bond) SetJoinRTT(id wire.SubflowID, d time.Duration) {
	if p := b.subflows.find(id); p != nil {
		p.est.JoinRTT = d
	}
}

// MarkIdle tells that a subflow's socket has room for a segment.
func (b *Bond) MarkIdle(id wire.SubflowID) {
	if p := b.subflows.find(id); p != nil {
		p.idle = true
	}
}

// ObserveLocalHop takes a sample of a subflow's own hop.
func (b *Bond) ObserveLocalHop(id wire.SubflowID, now time.Time, h estimate.Hop) {
	p := b.subflows.find(id)
	if p == nil {
		return
	}
	h = p.est.FillBlindHop(h)
	if h.Acked != p.est.LastHop().Acked || h.Queue == 0 {
		p.lastHopProgress = now
	}
	p.est.AddLocalSample(now, h)
	b.acks.confirmByHop(p, now)
}

// ObserveUnknownHop tells that no sample of a subflow's own hop can be had: nothing
// carries it at present. Then it makes no progress, whatever was last seen.
func (b *Bond) ObserveUnknownHop(id wire.SubflowID, now time.Time) {
	if p := b.subflows.find(id); p != nil {
		h := p.est.LastHop()
		h.Queue = max(h.Queue, 1)
		b.ObserveLocalHop(id, now, h)
	}
}

// ObserveFarHop takes a helper's report about a subflow's far hop.
func (b *Bond) ObserveFarHop(id wire.SubflowID, now time.Time, s wire.HopState) {
	p := b.subflows.find(id)
	if p == nil {
		return
	}
	p.est.AddHelperReport(now, s)
	if b.trace.wantsSegments() {
		e := trace.Event{Kind: trace.PipeState, Subflow: uint32(id), Rate: s.Rate, SRTT: s.RTT, Offset: s.Received, Backlog: unit.Bytes(s.Received - s.Forwarded)}
		if s.AppLimited {
			e.Reason = "app-limited"
		}
		b.trace.emit(e)
	}
}

// RelayReport lets a helper's report, which reached this end over the pipe now, go on
// to the other end with the next control segment, if that leaves within
// maxReportAge: while the pipe brings bytes these are acknowledged, and afterwards
// no radio need work for it. Nothing is sent on its account.
func (b *Bond) RelayReport(s wire.PipeState, now time.Time) {
	if p := b.subflows.find(s.Subflow); p != nil {
		p.relay, p.relayAt = s, now
	}
}

// OpenStream makes a stream to a destination. Only the end that opens may call it.
func (b *Bond) OpenStream(dest string) (*Stream, error) {
	if len(dest) > wire.MaxDest {
		return nil, fmt.Errorf("destination of %d bytes is too long", len(dest))
	}
	if len(b.streams.all) >= b.cfg.MaxStreams {
		return nil, wire.Reset{Code: wire.CodeLimit, Text: fmt.Sprintf("%d streams are open, which is the limit", len(b.streams.all))}
	}
	b.streams.lastID++
	s := b.newStream(b.streams.lastID)
	s.dest = dest
	b.traceStreamOpen(s)
	b.control.queueFrame(s, wire.TypeOpen)
	if window, ok := b.buffers.openingWindow(); ok {
		s.setWindow(window)
	}
	return s, nil
}

func (b *Bond) traceStreamOpen(s *Stream) {
	b.trace.emit(trace.Event{Kind: trace.StreamOpen, Stream: uint64(s.id), Text: s.dest})
}

func (b *Bond) newStream(id wire.StreamID) *Stream {
	s := &Stream{id: id, bond: b, send: sendBuffer{pages: pages{pool: &b.pool}, limit: wire.DataSeq(initialWindow(b.cfg.OpensStreams))},
		reassembly: reassembly{pages: pages{pool: &b.pool}, memory: &b.memory, limit: wire.DataSeq(b.buffers.firstWindow), window: b.buffers.firstWindow}}
	b.streams.all[id] = s
	b.stats.StreamsTotal++
	return s
}

// initialWindow returns the window of every stream at its beginning, for what is sent by the end
// that opens streams or by the other one.
func initialWindow(byOpener bool) unit.Bytes {
	if byOpener {
		return wire.InitialWindow
	}
	return wire.InitialDownWindow
}

// AcceptStream returns a stream that the other end has opened, or nil.
func (b *Bond) AcceptStream() *Stream { return b.streams.nextAccepted() }

// NextChangedStream returns a stream whose readable bytes, writable room or state may
// have changed since it was last returned, or nil.
func (b *Bond) NextChangedStream() *Stream { return b.streams.nextChanged() }

// ByeReceived reports that the other end has given up the bond.
func (b *Bond) ByeReceived() bool { return b.byeReceived }

// StreamCount is how many streams exist.
func (b *Bond) StreamCount() int { return len(b.streams.all) }

// Stats returns the counters.
func (b *Bond) Stats() Stats { return b.stats }

// BufferedBytes returns the memory in stream buffers and, of that, the bytes not yet
// given to any subflow.
func (b *Bond) BufferedBytes() (memory, meta unit.Bytes) {
	return unit.Bytes(b.pool.inUse+len(b.pool.free)) * pageSize, b.backlog.pending + b.backlog.lowLatencyPending
}

// ReorderingBytes is how many received bytes wait for earlier ones.
func (b *Bond) ReorderingBytes() (n unit.Bytes) {
	for _, s := range b.streams.all {
		n += unit.Bytes(s.reassembly.arrived.count)
	}
	return n
}

// Scheduler is the name of the scheduler.
func (b *Bond) Scheduler() string { return b.cfg.Scheduler.Name() }

// ResetAll resets every stream, here and at the other end as far as it listens, and
// ends every flow at this end.
func (b *Bond) ResetAll(code wire.Code, text string, now time.Time) {
	for _, s := range b.streams.all {
		s.Reset(code, text)
	}
	b.flows.failAll(wire.Reset{Code: code, Text: text}, now)
}

// OpenFlow makes a flow. Only the end that opens may call it. A redundant flow
// sends everything on two paths, in both directions.
func (b *Bond) OpenFlow(redundant bool, now time.Time) (*Flow, error) {
	return b.flows.openFlow(redundant, now)
}

// AcceptFlow returns a flow that the other end has opened, or nil.
func (b *Bond) AcceptFlow() *Flow { return b.flows.nextAccepted() }

// NextChangedFlow returns a flow that has something to be received, or has ended,
// since it was last returned, or nil.
func (b *Bond) NextChangedFlow() *Flow { return b.flows.nextChanged() }

// ListFlows describes the flows, the one used last first, at most limit of them.
func (b *Bond) ListFlows(limit int) []FlowInfo { return b.flows.describeFlows(limit) }

// FlowCount is how many flows exist.
func (b *Bond) FlowCount() int { return len(b.flows.all) }
