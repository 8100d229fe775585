// SPDX-License-Identifier: Apache-2.0

// Package bond is the core of mpbond: streams, their meta buffers, the data sequence,
// acknowledgements, flow control, reassembly and reinjection. Package endpoint drives it with
// sockets, goroutines and the clock; package sched makes its choices. The package is sans-I/O:
// callers pass in bytes, frames and the time, and take frames out. Both ends of a bond run the same
// code: the primary schedules uploads as the server schedules downloads.
//
// A byte takes this way. Stream.Write puts it into the stream's sendBuffer. In NextSegment the
// turnChooser asks the scheduler for a subflow that can take a segment; the segmentWriter fills the
// segment from the send buffers and records it as in flight. At the far end ReceiveFrame puts the
// byte into the stream's reassembly, and Stream.Read returns it. Its ACK ends the flight. The
// reinjector requeues the bytes in flight of a subflow that is lost or silent.
// docs/explanation/datapath.md follows one segment by function names.
//
// Bond connects its parts and has the methods of its owner. Each part is a type that uses at most
// the parts above it in this list:
//
//	wakeTimer, memoryBudget, tracer, subflowTable, streamTable, controlQueue
//	classTable      traffic class of each group of streams and flows
//	ackClock        when ACKs are due, and on which subflow
//	silenceDetector which subflows make no progress
//	subflowFilter   which subflows a stream or frame may use
//	sendBuffer, reassembly: the bytes of one stream
//	bufferLimits    how much each stream may buffer
//	backlog         which stream has the next turn
//	flowTable       datagram flows
//	turnChooser, segmentWriter, reinjector: what is sent, and what is sent again
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

// Config configures a bond. A zero field means its default.
type Config struct {
	// OpensStreams reports that this end opens streams (the primary) and the other end accepts them
	// (the server).
	OpensStreams bool
	// Scheduler chooses a subflow for each segment. Default: sched.Default.
	Scheduler sched.Scheduler
	// MaxStreams bounds the number of streams. Default 4096.
	MaxStreams int
	// MaxFlows bounds the number of datagram flows. Default 1024.
	MaxFlows int
	// MetaBuffer bounds the unscheduled bytes of a stream. Default 4 MB, reduced to 64 KB a stream
	// once all streams together hold MaxBuffered.
	MetaBuffer unit.Bytes
	// MaxBuffered bounds the memory for bytes to send and, separately, for bytes received that
	// grown windows may use. docs/explanation/memory.md derives the total bound. Default 64 MB.
	MaxBuffered unit.Bytes
	// Memory is a budget shared with other bonds. It adds to the bond's own bound of 1 GB; nil:
	// only that bound.
	Memory Memory
	// Eta is the threshold η of the MPBond paper, for reinjection at the end of a transfer;
	// negative disables that. Bytes of lost and silent subflows are reinjected in any case. Default
	// 0.2.
	Eta float64
	// Trace receives events unless it is nil. The events lack Who. It is called with the lock of
	// the bond's owner held and must not block.
	Trace func(trace.Event)
	// ChangesOnly limits Trace to events that are changes (trace.Kind.IsChange).
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
	maxOpeningWindow   = 512 * unit.KB // of a stream that this end opens, while memory suffices

	segmentTime = 5 * time.Millisecond // a segment is as long as a subflow carries in this time
	minSegment  = 1400
	maxSegment  = 64 << 10
	// tlsOverhead is the overhead of a TLS 1.3 record (RFC 8446 section 5.2: header, content type,
	// tag). Segments are sized to fill whole packets with it.
	tlsOverhead = 22

	// Bounds that only a misbehaving peer, or one that never reads, can reach.
	maxUnackedFrames = 1 << 17
	maxMemory        = 1 * unit.GB

	// Bytes that a helper has held for overdueAfter longer than a round trip are reinjected:
	// schedulers let none wait nearly that long.
	overdueAfter = 2 * time.Second

	// maxReportAge bounds the age of a helper's report when it is passed on. The other end takes it
	// for the state at its arrival.
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
	wasActive   bool   // when queueDueHints was last called
	hintSerial  uint64 // of the last HINT
	chooser     turnChooser
	writer      segmentWriter
	reinject    reinjector
	stats       Stats
}

// Stats counts events of a bond, for status output. Byte counts are of stream bytes.
type Stats struct {
	StreamsTotal int
	// Duplicate bytes were received again and dropped. The others were given to a second subflow by
	// this end: LostSubflow after the loss of the first one, ReinjectedSilent after its silence,
	// ReinjectedTail by the rule of Eta: at the end of a transfer, when windows are full, and from
	// helpers that hold bytes too long.
	Duplicate, LostSubflow, ReinjectedSilent, ReinjectedTail unit.Bytes
	// Redundant bytes were given to more subflows as intended copies.
	Redundant  unit.Bytes
	FlowsTotal int
	// DatagramsDropped waited too long or found no room, at this end.
	DatagramsDropped int
}

// New returns one end of a bond, without subflows or streams.
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

// connectParts gives each part the parts that it uses. None refers to the bond.
func (b *Bond) connectParts() {
	b.memory.shared = b.cfg.Memory
	b.trace = tracer{sink: b.cfg.Trace, changesOnly: b.cfg.ChangesOnly, decisions: trace.NewRing[Decision](64)}
	b.pool.memory = &b.memory
	b.filter = subflowFilter{subflows: &b.subflows, classes: &b.classes}
	if !b.cfg.OpensStreams {
		b.filter.reports = &b.control
	}
	b.acks = ackClock{subflows: &b.subflows, timer: &b.timer}
	b.silence = silenceDetector{subflows: &b.subflows, filter: &b.filter, timer: &b.timer,
		opensStreams: b.cfg.OpensStreams}
	b.buffers = bufferLimits{memory: &b.memory, metaBuffer: b.cfg.MetaBuffer, maxBuffered: b.cfg.MaxBuffered,
		firstWindow: initialWindow(!b.cfg.OpensStreams)}
	b.backlog.classes = &b.classes
	b.reinject = reinjector{subflows: &b.subflows, filter: &b.filter, backlog: &b.backlog, control: &b.control,
		trace: &b.trace, stats: &b.stats, scheduler: b.cfg.Scheduler, eta: b.cfg.Eta}
	b.chooser = turnChooser{subflows: &b.subflows, filter: &b.filter, classes: &b.classes, backlog: &b.backlog,
		control: &b.control, flows: &b.flows, trace: &b.trace, timer: &b.timer, scheduler: b.cfg.Scheduler}
	b.writer = segmentWriter{subflows: &b.subflows, filter: &b.filter, classes: &b.classes, backlog: &b.backlog,
		flows:   &b.flows,
		control: &b.control, acks: &b.acks, streams: &b.streams, trace: &b.trace, stats: &b.stats, ledger: &b.reinject.ledger}
	_, b.writer.copiesMessages = b.cfg.Scheduler.(sched.MessageCopier)
	b.flows = flowTable{filter: &b.filter, classes: &b.classes, control: &b.control, memory: &b.memory, timer: &b.timer,
		trace: &b.trace, stats: &b.stats, accepts: !b.cfg.OpensStreams, maxFlows: b.cfg.MaxFlows}
}

// setDefault sets *v to def if it is zero.
func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// AddSubflow adds a subflow. It is busy until MarkIdle is called.
func (b *Bond) AddSubflow(id wire.SubflowID, helped bool, now time.Time) {
	b.RemoveSubflow(id, now)
	p := &subflow{id: id, lastProgress: now, lastHopProgress: now, lastActive: now,
		trainLeft: trainLength, trainUntil: now.Add(maxTrainDelay)}
	p.est.Helped = helped
	b.subflows.insertSubflow(p)
	b.filter.expireAnswers()
}

// RemoveSubflow removes a subflow. Other subflows carry its bytes in flight again.
func (b *Bond) RemoveSubflow(id wire.SubflowID, now time.Time) {
	p := b.subflows.deleteSubflow(id)
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

// SetJoinRTT sets the measured round trip of a subflow's handshake.
func (b *Bond) SetJoinRTT(id wire.SubflowID, d time.Duration) {
	if p := b.subflows.subflowByID(id); p != nil {
		p.est.JoinRTT = d
	}
}

// MarkIdle reports that a subflow's socket has room for a segment.
func (b *Bond) MarkIdle(id wire.SubflowID) {
	if p := b.subflows.subflowByID(id); p != nil {
		p.idle = true
	}
}

// ObserveLocalHop takes a sample of a subflow's local hop.
func (b *Bond) ObserveLocalHop(id wire.SubflowID, now time.Time, h estimate.Hop) {
	p := b.subflows.subflowByID(id)
	if p == nil {
		return
	}
	h = p.est.FillBlindHop(h)
	acknowledged := h.Acked != p.est.LocalHop().Acked
	p.progress.addSample(now, h.Queue > 0, acknowledged)
	if acknowledged || h.Queue == 0 {
		p.lastHopProgress = now
	}
	p.est.AddLocalSample(now, h)
	b.acks.confirmByHop(p, now)
}

// ObserveUnknownHop reports that no sample of a subflow's local hop is available because nothing
// carries it now. The subflow then makes no progress.
func (b *Bond) ObserveUnknownHop(id wire.SubflowID, now time.Time) {
	if p := b.subflows.subflowByID(id); p != nil {
		h := p.est.LocalHop()
		h.Queue = max(h.Queue, 1)
		b.ObserveLocalHop(id, now, h)
	}
}

// ObserveFarHop takes a helper's report about a subflow's far hop: at the server the pipe, at the
// primary the HS-path. It traces the report as PipeState at both ends.
func (b *Bond) ObserveFarHop(id wire.SubflowID, now time.Time, s wire.HopState) {
	p := b.subflows.subflowByID(id)
	if p == nil {
		return
	}
	p.est.AddHelperReport(now, s)
	if b.trace.wantsSegments() {
		e := trace.Event{Kind: trace.PipeState, Subflow: uint32(id), Rate: s.Rate, SRTT: s.RTT, Offset: s.Received,
			FarBacklog: unit.Bytes(s.Received - s.Forwarded)}
		if s.AppLimited {
			e.Reason = "app-limited"
		}
		b.trace.emitUnstamped(e)
	}
}

// RelayReport passes a helper's report that just arrived over the pipe on to the other end, in the
// next control segment if that leaves within maxReportAge. It causes no segment: while the pipe
// delivers bytes ACKs leave anyway, and afterwards no radio should work for it.
func (b *Bond) RelayReport(s wire.PipeState, now time.Time) {
	if p := b.subflows.subflowByID(s.Subflow); p != nil {
		p.relay, p.relayAt = s, now
	}
}

// OpenStream opens a stream to a destination. Only the end that opens streams may call it.
func (b *Bond) OpenStream(dest string) (*Stream, error) {
	if len(dest) > wire.MaxDest {
		return nil, fmt.Errorf("destination of %d bytes is too long", len(dest))
	}
	if len(b.streams.all) >= b.cfg.MaxStreams {
		return nil, wire.Reset{Code: wire.CodeLimit, Text: fmt.Sprintf("the limit of %d open streams is reached",
			len(b.streams.all))}
	}
	b.streams.lastID++
	s := b.addNewStream(b.streams.lastID)
	s.dest = dest
	b.traceStreamOpen(s)
	b.control.queueFrame(s, wire.TypeOpen)
	if window, ok := b.buffers.openingWindow(); ok {
		s.setReceiveWindow(window)
	}
	return s, nil
}

func (b *Bond) traceStreamOpen(s *Stream) {
	b.trace.emitUnstamped(trace.Event{Kind: trace.StreamOpen, Stream: uint64(s.id), Text: s.dest})
}

// addNewStream adds a stream of that ID to the table.
func (b *Bond) addNewStream(id wire.StreamID) *Stream {
	s := &Stream{id: id, bond: b, send: sendBuffer{pages: pages{pool: &b.pool},
		limit: wire.DataSeq(initialWindow(b.cfg.OpensStreams))},
		reassembly: reassembly{pages: pages{pool: &b.pool}, memory: &b.memory, limit: wire.DataSeq(b.buffers.firstWindow),
			window: b.buffers.firstWindow}}
	b.streams.all[id] = s
	b.stats.StreamsTotal++
	return s
}

// initialWindow returns the first window of every stream for bytes sent by the opening or by the
// accepting end.
func initialWindow(byOpener bool) unit.Bytes {
	if byOpener {
		return wire.InitialWindow
	}
	return wire.InitialDownWindow
}

// AcceptStream returns a stream that the other end has opened, or nil.
func (b *Bond) AcceptStream() *Stream { return b.streams.nextAcceptedStream() }

// NextChangedStream returns a stream whose readable bytes, room or state may have changed since it
// was last returned, or nil.
func (b *Bond) NextChangedStream() *Stream { return b.streams.nextChangedStream() }

// ByeReceived reports that the other end has ended the bond.
func (b *Bond) ByeReceived() bool { return b.byeReceived }

// StreamCount returns the number of streams.
func (b *Bond) StreamCount() int { return len(b.streams.all) }

// Stats returns the counters.
func (b *Bond) Stats() Stats { return b.stats }

// BufferedBytes returns the memory of stream buffers and, of that, the bytes not yet given to a
// subflow.
func (b *Bond) BufferedBytes() (memory, meta unit.Bytes) {
	return unit.Bytes(b.pool.inUse+len(b.pool.free)) * pageSize, b.backlog.pending + b.backlog.lowLatencyPending
}

// ReorderingBytes returns how many received bytes wait for earlier ones.
func (b *Bond) ReorderingBytes() (n unit.Bytes) {
	for _, s := range b.streams.all {
		n += unit.Bytes(s.reassembly.arrived.count)
	}
	return n
}

// Scheduler returns the name of the scheduler.
func (b *Bond) Scheduler() string { return b.cfg.Scheduler.Name() }

// ResetAll resets every stream at both ends, if the other end still receives, and ends every flow
// at this end.
func (b *Bond) ResetAll(code wire.Code, text string, now time.Time) {
	for _, s := range b.streams.all {
		s.Reset(code, text)
	}
	b.flows.failAllFlows(wire.Reset{Code: code, Text: text}, now)
}

// ResetUnopened resets the streams whose destination the other end has not connected yet.
func (b *Bond) ResetUnopened(code wire.Code, text string) {
	for _, s := range b.streams.all {
		if !s.opened {
			s.Reset(code, text)
		}
	}
}

// OpenFlow opens a flow. Only the end that opens streams may call it. A redundant flow sends every
// datagram over two subflows, in both directions.
func (b *Bond) OpenFlow(redundant bool, now time.Time) (*Flow, error) {
	return b.flows.openDatagramFlow(redundant, now)
}

// AcceptFlow returns a flow that the other end has opened, or nil.
func (b *Bond) AcceptFlow() *Flow { return b.flows.nextAcceptedFlow() }

// NextChangedFlow returns a flow that has a datagram to receive or has ended since it was last
// returned, or nil.
func (b *Bond) NextChangedFlow() *Flow { return b.flows.nextChangedFlow() }

// ListFlows describes at most limit flows, the most recently used first.
func (b *Bond) ListFlows(limit int) []FlowInfo { return b.flows.describeFlows(limit) }

// FlowCount returns the number of flows.
func (b *Bond) FlowCount() int { return len(b.flows.all) }
