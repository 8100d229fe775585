// SPDX-License-Identifier: Apache-2.0

package network

import (
	"math"
	"time"

	"mpbond/base/unit"
	"mpbond/link/tcpinfo"
	"mpbond/pbe/cc"
)

// recoveryState is what a sender does about losses (enum tcp_ca_state).
type recoveryState uint8

const (
	open       recoveryState = iota
	recovering               // fast recovery
	lossState                // after a timeout
)

// recovery is the state of loss recovery.
type recovery struct {
	state           recoveryState
	until           uint64        // it ends when everything before this is acknowledged
	retransmittedAt time.Duration // when the first segment was sent again; 0: none was
	canUndo         bool

	// Proportional rate reduction (RFC 6937), for CUBIC.
	reduces   bool
	window    int // packets
	threshold int
	prior     int
	delivered int
	sent      int
}

// acked collects what one acknowledgement reports.
type acked struct {
	delivered int
	newest    *segment // delivered and sent last
	newestEnd uint64
	mark      cc.Mark
	firstRTT  time.Duration // of the first acknowledged segment that was sent once; 0: none
	lastRTT   time.Duration // of the last one
	sackRTT   time.Duration
	advanced  bool
}

// handlePacketAck handles the acknowledgement in a packet: what has arrived, what is lost, and what
// may be sent.
func (e *tcpEnd) handlePacketAck(p *packet) {
	if p.ack < e.unacked {
		return
	}
	e.allowed = max(e.allowed, p.ack+p.window)
	var a acked
	fack := e.highSacked
	for i := range p.sackCount {
		e.markSacked(p.sacks[i], fack, &a)
	}
	if p.ack > e.unacked {
		e.dropAckedSegments(p.ack, fack, &a)
	}
	now := e.sim.now
	if a.advanced {
		e.backoff = 0
		if e.probeOutstanding {
			e.probeOutstanding = false
		}
	}
	if rtt := firstNonZero(a.firstRTT, a.sackRTT); rtt > 0 {
		e.updateRTTEstimate(rtt, firstNonZero(a.lastRTT, a.sackRTT))
	} else if a.advanced && p.echo > 0 {
		e.updateRTTEstimate(max(now-p.echo, time.Microsecond), max(now-p.echo, time.Microsecond))
	}
	if a.delivered > 0 {
		e.takeRateSample(&a)
	}
	if a.advanced && e.recovery.state != open && e.recovery.canUndo && p.echo > 0 && p.echo < e.recovery.retransmittedAt {
		e.undoRecovery()
	}
	newlyLost, kind := 0, e.lossKind
	if e.sackedOut > 0 || e.recovery.state != open {
		newlyLost = e.detectRACKLosses()
	} else if e.lossKind == reorderLoss {
		e.lossKind = timeoutLoss
	}
	if e.recovery.state != open && e.unacked >= e.recovery.until {
		e.endRecovery()
	}
	if e.recovery.reduces && a.delivered > 0 {
		e.reduceProportionally(a.delivered, a.advanced && newlyLost == 0)
	}
	if e.lossKind != reorderLoss && (a.advanced || kind == reorderLoss || kind == probeLoss && e.sackedOut > 0) {
		e.setLossTimer()
	}
	e.transmitAllowed()
	if a.advanced && e.onAcked != nil {
		e.onAcked()
	}
	if e.wantsWrite && e.signalsPollOut() {
		e.wantsWrite = false
		e.onWritable()
	}
}

// firstNonZero returns the first duration that is not zero.
func firstNonZero(a, b time.Duration) time.Duration {
	if a > 0 {
		return a
	}
	return b
}

// markSacked marks the segments of a range as arrived. fack is highSacked before this
// acknowledgement.
func (e *tcpEnd) markSacked(r span, fack uint64, a *acked) {
	for i := e.findSegment(r.from); i < len(e.flight); i++ {
		g := e.flight[i]
		if g.endSequence() > r.to {
			break
		}
		if g.sacked || g.seq < r.from {
			continue
		}
		e.recordDelivered(g, fack, a)
		if !g.everRetransmitted {
			a.sackRTT = e.sim.now - g.sentAt
		}
		e.clearLossMarks(g)
		g.sacked = true
		e.sackedOut++
		e.highSacked = max(e.highSacked, g.endSequence())
	}
}

// dropAckedSegments removes the segments before a position. fack is as for markSacked.
func (e *tcpEnd) dropAckedSegments(to uint64, fack uint64, a *acked) {
	n := 0
	for n < len(e.flight) && e.flight[n].endSequence() <= to {
		g := e.flight[n]
		if g.sacked {
			e.sackedOut--
		} else {
			e.recordDelivered(g, fack, a)
			if !g.everRetransmitted {
				rtt := e.sim.now - g.sentAt
				if a.firstRTT == 0 {
					a.firstRTT = rtt
				}
				a.lastRTT = rtt
			}
			e.clearLossMarks(g)
		}
		e.spare = append(e.spare, g)
		n++
	}
	e.flight = e.flight[:copy(e.flight, e.flight[n:])]
	e.unacked, a.advanced = to, true
}

// clearLossMarks takes a segment that has arrived from the counts of lost ones.
func (e *tcpEnd) clearLossMarks(g *segment) {
	if g.lost {
		e.lostOut--
	}
	if g.retransmitted {
		e.retransmittedOut--
	}
	g.lost, g.retransmitted = false, false
}

// recordDelivered counts a segment that has arrived in a, and updates the state of RACK. fack is as
// for markSacked.
func (e *tcpEnd) recordDelivered(g *segment, fack uint64, a *acked) {
	if !g.everRetransmitted && g.endSequence() < fack {
		e.reorderSeen = true
	}
	rtt := e.sim.now - g.sentAt
	if !(g.everRetransmitted && rtt < e.minRTT) &&
		(g.sentAt > e.rackSent || g.sentAt == e.rackSent && g.endSequence() > e.rackEnd) {
		e.rackSent, e.rackEnd, e.rackRTT = g.sentAt, g.endSequence(), rtt
	}
	a.delivered++
	if a.newest == nil || g.sentAt > a.mark.Sent || g.sentAt == a.mark.Sent && g.endSequence() > a.newestEnd {
		a.newest, a.mark, a.newestEnd = g, g.mark, g.endSequence()
	}
}

// updateRTTEstimate updates the round trip and its deviation with a sample, as tcp_rtt_estimator
// does, and the least round trip with least.
func (e *tcpEnd) updateRTTEstimate(sample, least time.Duration) {
	if e.minRTT == 0 || least < e.minRTT {
		e.minRTT = least
	}
	if e.srtt == 0 {
		e.srtt, e.deviation = sample, sample/2
		e.maxDeviation = max(e.deviation, minTimeout/4)
		e.roundDeviation, e.deviationUntil = e.maxDeviation, e.next
		return
	}
	err := sample - e.srtt
	e.srtt += err / 8
	if err < 0 {
		err = -err
		if d := err - e.deviation; d > 0 { // a shorter round trip counts little
			e.deviation += d / 32
		} else {
			e.deviation += d / 4
		}
	} else {
		e.deviation += (err - e.deviation) / 4
	}
	e.roundDeviation = max(e.roundDeviation, e.deviation)
	e.maxDeviation = max(e.maxDeviation, e.roundDeviation)
	if e.unacked > e.deviationUntil {
		if e.roundDeviation < e.maxDeviation {
			e.maxDeviation -= (e.maxDeviation - e.roundDeviation) / 4
		}
		e.deviationUntil, e.roundDeviation = e.next, minTimeout/4
	}
}

// takeRateSample updates the delivery rate and passes the acknowledgement to the controller.
func (e *tcpEnd) takeRateSample(a *acked) {
	now := e.sim.now
	for range a.delivered {
		e.sampler.OnDelivered(now, cc.MSS)
	}
	s := cc.Ack{Now: now, Bytes: unit.Bytes(a.delivered) * cc.MSS, Packets: a.delivered,
		RTT: firstNonZero(a.lastRTT, a.sackRTT), InFlight: unit.Bytes(e.packetsInFlight()) * cc.MSS}
	e.sampler.FillAck(&s, a.mark, e.minRTT)
	if r := s.Rate * mss / unit.Rate(cc.MSS); r > 0 && (!s.AppLimited || r >= e.rate) {
		e.rate, e.rateLimited = r, s.AppLimited
	}
	e.control.applyAckSample(s, e.recovery.reduces, e.unacked, e.next)
}

// detectRACKLosses marks segments as lost that were sent long enough before one that has arrived
// (RACK, RFC 8985), and starts recovery. It returns how many it marked.
func (e *tcpEnd) detectRACKLosses() (n int) {
	now := e.sim.now
	window := e.reorderWindow()
	var wait time.Duration
	l := cc.Loss{Now: now}
	for _, g := range e.flight {
		if g.sacked || g.lost && !g.retransmitted {
			continue
		}
		if g.sentAt > e.rackSent || g.sentAt == e.rackSent && g.endSequence() >= e.rackEnd {
			if !g.everRetransmitted && !g.retransmitted {
				break // later ones were sent later
			}
			continue
		}
		if left := g.sentAt + e.rackRTT + window - now; left > 0 {
			wait = max(wait, left)
			continue
		}
		if g.retransmitted {
			g.retransmitted = false
			e.retransmittedOut--
		} else {
			g.lost = true
			e.lostOut++
		}
		e.lostFrom = min(e.lostFrom, g.seq)
		if n++; g.sentAt > l.Sent {
			l.Sent = g.sentAt
		}
	}
	if n > 0 {
		l.Bytes, l.InFlight = unit.Bytes(n)*cc.MSS, unit.Bytes(e.packetsInFlight())*cc.MSS
		e.enterRecovery(l)
	}
	if wait > 0 {
		e.lossKind = reorderLoss
		e.lossTimer.setDueTime(now + wait + time.Microsecond)
	} else if e.lossKind == reorderLoss {
		e.lossKind = timeoutLoss
	}
	return n
}

// reorderWindow returns how much later than its successors a packet may arrive
// (tcp_rack_reo_wnd).
func (e *tcpEnd) reorderWindow() time.Duration {
	if !e.reorderSeen && (e.recovery.state != open || e.sackedOut >= reorderPackets) {
		return 0
	}
	return min(e.minRTT/4, e.srtt)
}

// enterRecovery reacts to losses. CUBIC reacts once until what was in flight has arrived.
func (e *tcpEnd) enterRecovery(l cc.Loss) {
	r := &e.recovery
	if e.control.cubic == nil {
		e.control.reduceWindow(l)
	}
	if r.state != open {
		return
	}
	*r = recovery{state: recovering, until: e.next, canUndo: true, prior: e.congestionWindow(),
		retransmittedAt: r.retransmittedAt}
	if !e.probeOutstanding {
		r.retransmittedAt = 0
	}
	if e.control.cubic != nil {
		r.threshold, r.reduces, r.window = e.control.reduceWindow(l), true, e.packetsInFlight()+1
	}
}

// reduceProportionally sets the window of proportional rate reduction, as tcp_cwnd_reduction does.
func (e *tcpEnd) reduceProportionally(delivered int, safe bool) {
	r := &e.recovery
	r.delivered += delivered
	more := 0
	if left := r.threshold - e.packetsInFlight(); left < 0 {
		more = (r.threshold*r.delivered+r.prior-1)/r.prior - r.sent
	} else {
		more = max(r.delivered-r.sent, delivered)
		if safe {
			more++
		}
		more = min(left, more)
	}
	if r.sent == 0 {
		more = max(more, 1)
	}
	r.window = e.packetsInFlight() + max(more, 0)
}

// endRecovery ends the reaction to losses: what was in flight when it began has arrived.
func (e *tcpEnd) endRecovery() {
	e.recovery, e.probeOutstanding = recovery{}, false
}

// undoRecovery undoes the reaction to losses that did not happen: the acknowledgement is of a
// packet that was sent before the first retransmission (tcp_try_undo_recovery, tcp_try_undo_loss).
func (e *tcpEnd) undoRecovery() {
	e.control.undoReduction()
	for _, g := range e.flight {
		if g.lost && !g.retransmitted {
			g.lost = false
			e.lostOut--
		}
	}
	e.recovery = recovery{}
}

// enterLossState handles a timeout: everything that has not arrived is lost.
func (e *tcpEnd) enterLossState() {
	now := e.sim.now
	l := cc.Loss{Now: now, PersistentCongestion: true}
	e.retransmittedOut = 0
	for _, g := range e.flight {
		g.retransmitted = false
		if g.sacked {
			continue
		}
		if !g.lost {
			g.lost = true
			e.lostOut++
		}
		l.Bytes += cc.MSS
		l.Sent = max(l.Sent, g.sentAt)
	}
	e.lostFrom = e.unacked
	if e.recovery.state != lossState || e.unacked >= e.recovery.until {
		wasOpen := e.recovery.state == open
		saved := e.control.saved
		e.control.reduceWindow(l)
		if !wasOpen {
			e.control.saved = saved
		}
		e.recovery = recovery{state: lossState, until: e.next, canUndo: true}
	}
	e.backoff++
	e.probeOutstanding = false
	e.lossKind = timeoutLoss
	e.lossTimer.setDueTime(now + e.retransmitTimeout())
	e.transmitAllowed()
}

// readTCPInfo returns what TCP_INFO reports.
func (e *tcpEnd) readTCPInfo() *tcpinfo.Info {
	i := &tcpinfo.Info{RTT: microseconds(e.srtt), RTTVar: microseconds(e.deviation), MinRTT: microseconds(e.minRTT),
		DeliveryRate: uint64(e.rate / 8), DeliveryRateAppLimited: e.rateLimited,
		CongestionWindow:   uint32(e.congestionWindow()),
		SlowStartThreshold: math.MaxInt32, MSS: mss, Sacked: uint32(e.sackedOut),
		InFlight: uint32(max(e.packetsInFlight(), 0)), Unsent: uint32(e.neverSentBytes()),
		Queue: uint32(e.written - e.unacked), BytesAcked: e.unacked, BytesReceived: e.receiver.next, PathMTU: 1500,
		Packets: e.sentPackets, Retransmission: e.retransmitted}
	if c := e.control.cubic; c != nil && c.SlowStartThreshold() < math.MaxInt32 {
		i.SlowStartThreshold = uint32(c.SlowStartThreshold())
	}
	return i
}

func microseconds(d time.Duration) uint32 { return uint32(d / time.Microsecond) }
