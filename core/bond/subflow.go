// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"slices"
	"time"

	"mpbond/base/unit"
	"mpbond/core/sched"
	"mpbond/link/estimate"
	"mpbond/link/wire"
)

// subflow is the bond's state of one subflow: the bytes and frames in flight on it, its estimates
// and the times that silence is detected by. Its Bond owns it.
type subflow struct {
	id   wire.SubflowID
	est  estimate.Subflow
	idle bool

	bytesSent       uint64     // bytes of frames given to the subflow
	bytesReceived   uint64     // bytes of whole frames received on it
	streamBytesSent unit.Bytes // stream bytes given to it
	inFlight        sentFrames
	// unwritten is the size of the segment that its writer has not begun, if it holds only stream
	// bytes and the OPEN before them, else 0. withdrawn reports that it was withdrawn.
	unwritten unit.Bytes
	withdrawn bool

	lastProgress    time.Time // of acknowledgements, or when something was first in flight
	lastHopProgress time.Time // of the sending hop's own acknowledgements
	progress        hopProgress
	silentSince     time.Time // zero if it is not silent
	stalledSince    time.Time // as silentSince, also while no other subflow is alive
	// The last stall: when it had made its last progress before, and when it was seen to go on.
	stallBegan, stallEnded time.Time
	lastProbeTime          time.Time // when it was last probed
	lastInFlight           time.Time // when a check last saw frames in flight
	inFlightSince          time.Time // since when checks have seen frames in flight each time
	probeDue               bool
	trainLeft              int       // packets of a train that are still to be sent
	trainUntil             time.Time // later it is not begun
	train                  arrivingTrain

	lowLatencyUntil time.Time // until then bulk data keeps the queue short
	defersBulk      bool      // by the last survey it must not get bulk data now
	streamsFirst    bool      // streams have the next segment

	ack ackDebt

	hazard           Hazard
	stalls           stallHistory
	handoffAt        time.Time // report of the last handoff whose stall is not in stalls; else zero
	wasBusyAtHandoff bool      // frames were in flight in the second before handoffAt
	unsentHandoff    time.Time // the last handoff that the other end does not know of; zero: none
	hintDue          bool      // the other end must get the hazard
	hintedAt         time.Time // when the last HINT about it was queued
	hintSerial       uint64    // of the last HINT received about it

	lastTraced time.Time // when its estimates were last traced
	lastData   time.Time // arrival of the last new stream byte or datagram
	lastActive time.Time // when anything was last sent or received
	lastSent   time.Time // when anything was last sent
	relay      wire.PipeState
	relayAt    time.Time // arrival of relay; zero if there is none to pass on

	copies []copiedSpan // bytes that other subflows carry and this one is to send too
}

// settleWhenIdle counts everything sent as received if nothing in flight needs an acknowledgement.
// Otherwise ACKs and reports, which are not acknowledged, would look like a queue that never
// drains.
func (p *subflow) settleWhenIdle(at time.Time) {
	if p.inFlight.len() == 0 {
		p.est.AssumeAllReceived(at)
	}
}

// isSilent reports whether the subflow is silent.
func (p *subflow) isSilent() bool { return !p.silentSince.IsZero() }

// schedulerView returns the subflow as a scheduler sees it.
func (p *subflow) schedulerView(n estimate.Estimate, now time.Time) sched.Subflow {
	h := p.est.LocalHop()
	doubtful := h.Queue > 0 && now.Sub(p.lastHopProgress) > p.hopLimit(h, now)/2
	return sched.Subflow{ID: p.id, Idle: p.idle, Doubtful: doubtful, PAD: n.PAD, PastPAD: n.PastPAD,
		Forecast: n.Forecast, HalfArrives: n.HalfArrives, FarQueueTime: n.FarQueueTime,
		FallenQueueTime: n.FallenQueueTime, SRTT: h.SRTT, MinRTT: 2 * n.OWD,
		Th: n.Th, DoublingTime: n.DoublingTime, Ceiling: n.Ceiling,
		Helped: p.est.Helped, TimeToAck: n.TimeToAck, IsAckLate: n.AckLate > 0, Acked: n.Acked, RTTVar: h.RTTVar,
		MSS: max(h.MSS, minSegment), Given: p.streamBytesSent, InFlight: p.est.BytesInFlight(),
		ExpectedStall: p.expectedStall(now),
		Cwnd:          h.Cwnd, Flight: h.Queue - h.Unsent, FarCwnd: n.FarCwnd, FarFlight: n.FarFlight}
}

// sentFrame is one reliable frame in flight.
type sentFrame struct {
	end          uint64 // the subflow's byte count after it
	frameType    wire.Type
	recalled     bool // it was requeued for another subflow
	tailRecalled bool // it was recalled because it would arrive too late
	noRecall     bool // it must stay here: other subflows carry the same bytes, or its stream is bound to this one
	repeated     bool // a control frame that repeats one on a late subflow
	stream       *Stream
	from, to     wire.DataSeq // span of TypeData; for TypeClassUpdate both are the serial
}

// sentFrames is a FIFO queue of the reliable frames in flight on a subflow.
type sentFrames struct {
	frames             []sentFrame
	head               int
	recallable         int // number of recallable frames
	tailRecalledFrames int // number of frames recalled because they would arrive too late
}

// isRecallable reports whether the frame may be given to another subflow although its own is alive.
// Stream bytes and the end of a stream may, once.
func (s *sentFrame) isRecallable() bool {
	return !s.recalled && !s.noRecall && (s.frameType == wire.TypeData || s.frameType == wire.TypeFin)
}

// isControlFrame reports whether the frame is needed and holds no bytes of a stream or flow.
func (s *sentFrame) isControlFrame() bool {
	switch s.frameType {
	case wire.TypeData, wire.TypeDatagram, wire.TypePing, wire.TypeTrain:
		return false
	}
	return true
}

// isStillWanted reports whether the frame is recallable and the far end waits for it.
func (s *sentFrame) isStillWanted() bool {
	return s.isRecallable() && (s.stream == nil || s.from < s.stream.awaitedEnd())
}

// firstUncarried returns the number of unsent bytes of a stream before the first one that is not in
// flight on the same subflow, and whether the window has room for that one. Bytes recalled from a
// live subflow must not be sent on it again.
func (f *sentFrames) firstUncarried(s *Stream) (ahead unit.Bytes, found bool) {
	if f.tailRecalledFrames == 0 || !s.send.sharesNext() {
		return 0, s.send.isSendable()
	}
	for _, part := range s.send.unsent {
		to := min(part.To, s.send.limit)
		for part.From < to {
			end := f.recalledFrameEnd(s, part.From)
			if end <= part.From {
				return ahead, true
			}
			ahead += unit.Bytes(min(end, to) - part.From)
			part.From = min(end, to)
		}
	}
	return 0, false
}

// missesRecalled reports whether bytes of a stream that were recalled because they would arrive too
// late are still missing.
func (f *sentFrames) missesRecalled(s *Stream) bool {
	return f.tailRecalledFrames > 0 && slices.ContainsFunc(f.unackedFrames(), func(x sentFrame) bool {
		return x.tailRecalled && x.stream == s && s.send.hasUnacked(seqSpan{From: x.from, To: x.to})
	})
}

// recalledFrameEnd returns the end of the recalled frame that carries the byte of a stream at that
// position, or 0 if there is none.
func (f *sentFrames) recalledFrameEnd(s *Stream, at wire.DataSeq) wire.DataSeq {
	all := f.unackedFrames()
	for i := range all {
		if x := &all[i]; x.tailRecalled && x.stream == s && x.from <= at && at < x.to {
			return x.to
		}
	}
	return 0
}

// newestWanted returns the subflow's byte count after the newest wanted frame, if there is one.
func (f *sentFrames) newestWanted() (end uint64, found bool) {
	if f.recallable == 0 {
		return 0, false
	}
	for i := len(f.frames) - 1; i >= f.head; i-- {
		if f.frames[i].isStillWanted() {
			return f.frames[i].end, true
		}
	}
	return 0, false
}

// pushSentFrame appends a frame.
func (f *sentFrames) pushSentFrame(s sentFrame) {
	if s.isRecallable() {
		f.recallable++
	}
	f.frames = append(f.frames, s)
}

// markRecalled marks a frame of the queue as recalled.
func (f *sentFrames) markRecalled(s *sentFrame) {
	if s.isRecallable() {
		f.recallable--
	}
	s.recalled = true
}

// forbidRecall makes frames within a span of a stream not recallable.
func (f *sentFrames) forbidRecall(s *Stream, part seqSpan) {
	for i := f.head; i < len(f.frames); i++ {
		if x := &f.frames[i]; x.stream == s && x.isRecallable() && x.from >= part.From && x.to <= part.To && x.to > x.from {
			f.recallable--
			x.noRecall = true
		}
	}
}

func (f *sentFrames) len() int                   { return len(f.frames) - f.head }
func (f *sentFrames) unackedFrames() []sentFrame { return f.frames[f.head:] }

// endsWithTrain reports whether the newest frame belongs to a packet train: others would wait
// behind it.
func (f *sentFrames) endsWithTrain() bool {
	return f.len() > 0 && f.frames[len(f.frames)-1].frameType == wire.TypeTrain
}

// popOldestFrame removes the oldest frame.
func (f *sentFrames) popOldestFrame() (s sentFrame) {
	s = f.frames[f.head]
	if s.isRecallable() {
		f.recallable--
	}
	if s.tailRecalled {
		f.tailRecalledFrames--
	}
	f.frames[f.head].stream = nil
	f.head++
	if f.head > 64 && f.head*2 > len(f.frames) {
		n := copy(f.frames, f.frames[f.head:])
		clear(f.frames[n:])
		f.frames, f.head = f.frames[:n], 0
	}
	return s
}

// SubflowInfo describes a subflow, for status output.
type SubflowInfo struct {
	ID             wire.SubflowID
	Helped, Silent bool
	StalledFor     time.Duration // time without progress, also if it is the only subflow
	LastData       time.Time     // arrival of the last new stream byte or datagram; zero: none yet
	Sent, Received uint64        // bytes of frames
	InFlight       unit.Bytes    // sent and not acknowledged
	ExpectedStall  time.Duration // by which a forecast handoff delays what is sent now, on average
	estimate.Estimate
}

// ListSubflows appends a description of every subflow to list.
func (b *Bond) ListSubflows(list []SubflowInfo, now time.Time) []SubflowInfo {
	for _, p := range b.subflows.list {
		i := SubflowInfo{ID: p.id, Helped: p.est.Helped, Silent: p.isSilent(), Sent: p.bytesSent, Received: p.bytesReceived,
			LastData: p.lastData, ExpectedStall: p.expectedStall(now), Estimate: p.est.EstimateAt(now)}
		if p.inFlight.len() > 0 {
			i.InFlight = p.est.BytesInFlight()
		}
		if !p.stalledSince.IsZero() {
			i.StalledFor = now.Sub(p.stalledSince)
		}
		list = append(list, i)
	}
	return list
}

// CarriedBytes returns the bytes of frames that a subflow has received and sent.
func (b *Bond) CarriedBytes(id wire.SubflowID) (received, sent uint64) {
	if p := b.subflows.subflowByID(id); p != nil {
		return p.bytesReceived, p.bytesSent
	}
	return 0, 0
}

// targetSegmentSize returns the number of frame bytes that fill whole packets for about
// segmentTime.
func (p *subflow) targetSegmentSize(now time.Time) int {
	packets := p.est.EstimateAt(now).Th.Bytes(segmentTime) / p.localHopMSS()
	return p.bytesOfPackets(max(int(packets), 1))
}

// bytesOfPackets returns the number of frame bytes that fill n packets, at most maxSegment.
func (p *subflow) bytesOfPackets(n int) int {
	room := int(p.localHopMSS())
	if p.est.Helped {
		room -= wire.HeaderLen + tlsOverhead // both hops add a header, and the pipe a TLS record
	}
	return min(n*room-tlsOverhead, maxSegment)
}

// localHopMSS returns the size of the local hop's packets.
func (p *subflow) localHopMSS() unit.Bytes {
	if mss := p.est.LocalHop().MSS; mss >= minSegment/2 {
		return mss
	}
	return minSegment
}

// A subflow that carries low-latency data, or the end of a short stream's message, counts as
// low-latency for a while. Bulk data then keeps its queue short: such data cannot overtake a queue
// in the network or at a helper, so it does not suffice to be first in NextSegment.
const (
	// lowLatencyPeriod is how long that lasts after the last such byte.
	lowLatencyPeriod = time.Second
	// maxStandingQueue bounds the delay of the bytes that wait on such a subflow before bulk data
	// gets a turn. It keeps a link busy between two checks of its queue and while its rate varies
	// (docs/explanation/latency.md shows the cost).
	maxStandingQueue = 25 * time.Millisecond
)

// extendLowLatency makes bulk data keep the queue of p short at least until t.
func (p *subflow) extendLowLatency(t time.Time) {
	if t.After(p.lowLatencyUntil) {
		p.lowLatencyUntil = t
	}
}

// mustDeferBulk reports whether p must not get bulk data now, because the queue of a low-latency
// subflow is long. If so, it sets the timer to when the queue will be short.
func (p *subflow) mustDeferBulk(n estimate.Estimate, now time.Time, timer *wakeTimer) bool {
	over := n.QueueTime - maxStandingQueue
	if over <= 0 || !now.Before(p.lowLatencyUntil) {
		return false
	}
	timer.requestWakeAt(now.Add(max(over, time.Millisecond)))
	return true
}

// permitsBulkOf reports whether stream s may use p now, by the last survey. Short streams always
// may.
func (p *subflow) permitsBulkOf(s *Stream) bool { return !p.defersBulk || s.isShortStream() }

// appendProbe appends a PING if the subflow must be probed.
func (p *subflow) appendProbe(buf []byte) []byte {
	if p.probeDue {
		p.probeDue = false
		at := len(buf)
		buf = wire.Append(buf, wire.Ping{})
		p.recordSentFrame(len(buf)-at, sentFrame{frameType: wire.TypePing})
	}
	return buf
}

// appendUnreliable appends a frame that is not sent again if it is lost.
func (p *subflow) appendUnreliable(buf []byte, f wire.Frame) []byte {
	at := len(buf)
	buf = wire.Append(buf, f)
	p.bytesSent += uint64(len(buf) - at)
	return buf
}

// recordSentFrame records a reliable frame of n bytes as in flight. It returns the subflow's byte
// count after it.
func (p *subflow) recordSentFrame(n int, f sentFrame) uint64 {
	p.bytesSent += uint64(n)
	f.end = p.bytesSent
	p.streamBytesSent += unit.Bytes(f.to - f.from)
	p.inFlight.pushSentFrame(f)
	return f.end
}

// startSilenceWatch resets the times of silence detection of a subflow with nothing in flight.
func (p *subflow) startSilenceWatch(now time.Time) {
	if p.inFlight.len() == 0 {
		p.lastProgress = now
	}
	if p.est.LocalHop().Queue == 0 {
		p.lastHopProgress = now
	}
}
