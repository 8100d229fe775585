// SPDX-License-Identifier: Apache-2.0

package network

import (
	"time"

	"mpbond/base/unit"
	"mpbond/link/congestion"
	"mpbond/pbe/cc"
)

// Sizes of packets (RFC 791, RFC 9293, RFC 7323), and the constants of Linux that the model follows
// (include/net/tcp.h, net/ipv4/tcp*.c).
const (
	mss        = 1448
	headers    = 52 // IPv4, TCP, time stamps
	sackHeader = 4
	sackBlock  = 8

	minTimeout      = 200 * time.Millisecond // TCP_RTO_MIN
	maxTimeout      = 120 * time.Second      // TCP_RTO_MAX
	firstTimeout    = time.Second            // TCP_TIMEOUT_INIT
	delayedAck      = 40 * time.Millisecond  // TCP_DELACK_MIN, TCP_ATO_MIN
	quickAcks       = 16                     // TCP_MAX_QUICKACKS
	maxReadBuffer   = 8 << 20                // half of the largest tcp_rmem of the lab, as Linux counts it
	firstReadBuffer = 64 << 10               // half of the second value of tcp_rmem
	reorderPackets  = 3                      // tcp_reordering
	initialWindow   = 10                     // packets, RFC 6928
)

// tcpEnd is one end of a TCP connection, for both directions: a model of Linux at packet level.
// It counts bytes and does not hold them. Selective acknowledgements, RACK, tail loss probes,
// proportional rate reduction, timeouts and their undo by time stamps follow Linux.
type tcpEnd struct {
	sim   *sim
	peer  *tcpEnd
	route []*line

	// Sender. flight holds the packets in flight, by sequence number.
	control          windowControl
	sampler          cc.Sampler
	flight           []*segment
	spare            []*segment
	written          uint64 // bytes that the app has written
	next             uint64 // the next byte to send for the first time
	unacked          uint64 // the first byte that is not acknowledged
	allowed          uint64 // end of the peer's window
	sackedOut        int
	lostOut          int
	retransmittedOut int
	lostFrom         uint64 // no lost segment lies before it
	highSacked       uint64 // end of the highest segment that was selectively acknowledged

	srtt, deviation  time.Duration // tcpi_rtt, tcpi_rttvar
	maxDeviation     time.Duration // of this round trip and the last one, at least 50 ms
	roundDeviation   time.Duration
	deviationUntil   uint64
	minRTT           time.Duration
	backoff          uint
	lastSent         time.Duration
	rackSent         time.Duration // of the packet sent last of those that have arrived
	rackEnd          uint64
	rackRTT          time.Duration
	reorderSeen      bool
	probeOutstanding bool
	lossTimer        *timer
	lossKind         lossKind
	paceTimer        *timer
	nextSend         time.Duration

	// The delivery rate of struct tcp_info.
	rate        unit.Rate
	rateLimited bool

	recovery recovery

	lowat         unit.Bytes
	wantsWrite    bool // the writer waits for onWritable
	onWritable    func()
	onAnswer      func() // optional: a probe was answered
	onAcked       func() // optional: unacked has advanced
	sentPackets   uint32
	retransmitted uint32

	receiver
}

// segment is a packet in flight.
type segment struct {
	seq               uint64
	length            int
	mark              cc.Mark
	sentAt            time.Duration
	sacked            bool
	lost              bool // an earlier copy is lost; counted in lostOut
	retransmitted     bool // the newest copy is in flight; counted in retransmittedOut
	everRetransmitted bool // sent more than once
}

func (g *segment) endSequence() uint64 { return g.seq + uint64(g.length) }

// lossKind says what the loss timer is set for.
type lossKind uint8

const (
	timeoutLoss  lossKind = iota // retransmission timeout
	probeLoss                    // tail loss probe
	reorderLoss                  // end of RACK's reordering window
	persistProbe                 // probe of a closed window
)

// connectTCPEnds returns both ends of an open connection over the lines of each direction. Its
// handshake has measured a round trip.
func connectTCPEnds(s *sim, forth, back []*line, control string, seed uint64) (a, b *tcpEnd) {
	a, b = newTCPEnd(s, forth, control, seed), newTCPEnd(s, back, control, seed+1)
	a.peer, b.peer = b, a
	rtt := baseRoundTrip(forth, back)
	for _, e := range []*tcpEnd{a, b} {
		e.updateRTTEstimate(rtt, rtt)
		e.allowed = firstReadBuffer
	}
	return a, b
}

// baseRoundTrip returns the round trip of small packets over idle lines.
func baseRoundTrip(forth, back []*line) (d time.Duration) {
	for _, l := range append(forth[:len(forth):len(forth)], back...) {
		d += l.Delay + l.Jitter/2
		if r := l.Rates[0].Rate; r > 0 {
			d += r.Time(headers + 20)
		}
	}
	return d
}

func newTCPEnd(s *sim, route []*line, control string, seed uint64) *tcpEnd {
	e := &tcpEnd{sim: s, route: route, control: newWindowControl(control, seed), lowat: 16 * unit.KB}
	e.lossTimer = newSimTimer(s, e.handleLossTimer)
	e.paceTimer = newSimTimer(s, e.transmitAllowed)
	e.receiver.init(s, e)
	return e
}

// writeAppBytes gives n more bytes to TCP.
func (e *tcpEnd) writeAppBytes(n int) {
	e.checkAppLimited()
	e.written += uint64(n)
	e.transmitAllowed()
	if e.control.selector != nil {
		s := congestion.Sample{At: e.sim.now, Sent: uint64(e.sentPackets), Lost: uint64(e.retransmitted), SRTT: e.srtt,
			MinRTT: e.minRTT, InFlight: len(e.flight), Window: e.congestionWindow(),
			SlowStart: e.control.cubic != nil && e.control.cubic.InSlowStart()}
		if e.control.reselectController(s) {
			e.recovery.reduces = false
		}
	}
}

// neverSentBytes returns the bytes that were never sent.
func (e *tcpEnd) neverSentBytes() unit.Bytes { return unit.Bytes(e.written - e.next) }

// signalsPollOut reports whether the kernel would signal POLLOUT: half of the low-water mark is
// unsent at most (tcp_stream_memory_free).
func (e *tcpEnd) signalsPollOut() bool { return 2*e.neverSentBytes() < e.lowat }

// packetsInFlight returns the packets in flight (tcp_packets_in_flight).
func (e *tcpEnd) packetsInFlight() int {
	return len(e.flight) - e.sackedOut - e.lostOut + e.retransmittedOut
}

// checkAppLimited is tcp_rate_check_app_limited.
func (e *tcpEnd) checkAppLimited() {
	if e.written-e.next < mss && e.packetsInFlight() < e.congestionWindow() && e.lostOut <= e.retransmittedOut {
		e.sampler.SetAppLimited(unit.Bytes(e.packetsInFlight()) * cc.MSS)
	}
}

// congestionWindow returns the congestion window in packets.
func (e *tcpEnd) congestionWindow() int {
	if e.recovery.reduces {
		return e.recovery.window
	}
	return max(1, int(e.control.congestionLimits(e.sim.now).Window/cc.MSS))
}

// transmitAllowed sends what windows and pacing allow: lost packets first.
func (e *tcpEnd) transmitAllowed() {
	now := e.sim.now
	window := e.congestionWindow()
	for e.packetsInFlight() < window {
		g := e.nextLostSegment()
		if g == nil && !e.mayAdvance() {
			break
		}
		if e.control.pacesPackets() {
			if e.nextSend > now {
				e.paceTimer.setDueTime(e.nextSend)
				return
			}
			if r := e.control.congestionLimits(now).Rate; r > 0 {
				e.nextSend = max(e.nextSend, now-time.Millisecond) + r.Time(cc.MSS)
			}
		}
		if g != nil {
			e.retransmitSegment(g)
			continue
		}
		e.slowStartAfterIdle()
		window = e.congestionWindow()
		n := int(min(mss, e.written-e.next, e.allowed-e.next))
		e.sendNewSegment(n)
	}
	if len(e.flight) == 0 && e.written > e.next && !e.mayAdvance() {
		e.setLossTimer() // the peer's window is closed
	}
}

// mayAdvance reports whether there is a packet to send that the peer's window allows.
func (e *tcpEnd) mayAdvance() bool {
	n := min(mss, e.written-e.next)
	return n > 0 && e.allowed >= e.next+n
}

// nextLostSegment returns the first lost segment that was not sent again, or nil.
func (e *tcpEnd) nextLostSegment() *segment {
	if e.lostOut <= e.retransmittedOut {
		return nil
	}
	for i := e.findSegment(e.lostFrom); i < len(e.flight); i++ {
		if g := e.flight[i]; g.lost && !g.retransmitted {
			e.lostFrom = g.seq
			return g
		}
	}
	return nil
}

// findSegment returns the index of the first segment that ends after a position.
func (e *tcpEnd) findSegment(seq uint64) int {
	lo, hi := 0, len(e.flight)
	for lo < hi {
		if m := (lo + hi) / 2; e.flight[m].endSequence() > seq {
			hi = m
		} else {
			lo = m + 1
		}
	}
	return lo
}

// sendNewSegment sends n bytes for the first time.
func (e *tcpEnd) sendNewSegment(n int) {
	var g *segment
	if k := len(e.spare); k > 0 {
		g, e.spare = e.spare[k-1], e.spare[:k-1]
		*g = segment{}
	} else {
		g = &segment{}
	}
	g.seq, g.length = e.next, n
	g.mark = e.sampler.OnSent(e.sim.now, unit.Bytes(e.packetsInFlight())*cc.MSS)
	first := len(e.flight) == 0
	e.next += uint64(n)
	e.flight = append(e.flight, g)
	e.sendTCPSegment(g)
	if first || e.lossKind == probeLoss {
		e.setLossTimer()
	}
}

// retransmitSegment sends a lost segment once more.
func (e *tcpEnd) retransmitSegment(g *segment) {
	if e.recovery.retransmittedAt == 0 {
		e.recovery.retransmittedAt = e.sim.now
	}
	g.mark = e.sampler.OnSent(e.sim.now, unit.Bytes(e.packetsInFlight())*cc.MSS)
	g.retransmitted, g.everRetransmitted = true, true
	e.retransmittedOut++
	e.retransmitted++
	e.sendTCPSegment(g)
	if g == e.flight[0] && e.lossKind != reorderLoss {
		e.setLossTimer()
	}
}

// sendTCPSegment sends a segment, for the first time or again.
func (e *tcpEnd) sendTCPSegment(g *segment) {
	now := e.sim.now
	g.sentAt, e.lastSent = now, now
	e.sentPackets++
	e.recovery.sent++
	e.control.recordPacketSent(now, unit.Bytes(e.packetsInFlight())*cc.MSS)
	p := e.sim.allocatePacket()
	p.seq, p.length = g.seq, g.length
	e.sendPacketWithAck(p)
}

// sendPacketWithAck sends a packet with the acknowledgement of what has arrived.
func (e *tcpEnd) sendPacketWithAck(p *packet) {
	e.receiver.fillPacketAck(p)
	p.sentAt, p.to, p.route = e.sim.now, e.peer, e.route
	p.size = unit.Bytes(p.length) + headers
	if p.sackCount > 0 {
		p.size += sackHeader + sackBlock*unit.Bytes(p.sackCount)
	}
	e.route[0].enqueuePacket(p)
}

// slowStartAfterIdle reduces the window after an idle time (net.ipv4.tcp_slow_start_after_idle).
func (e *tcpEnd) slowStartAfterIdle() {
	idle := e.sim.now - e.lastSent
	if len(e.flight) > 0 || idle <= e.retransmitTimeout() || e.lastSent == 0 {
		return
	}
	e.control.restartIdleWindow(int(idle / e.retransmitTimeout()))
}

// retransmitTimeout returns the retransmission timeout.
func (e *tcpEnd) retransmitTimeout() time.Duration {
	if e.srtt == 0 {
		return firstTimeout
	}
	return min((e.srtt+max(4*e.maxDeviation, minTimeout))<<min(e.backoff, 10), maxTimeout)
}

// setLossTimer sets the timer for a tail loss probe or a timeout.
func (e *tcpEnd) setLossTimer() {
	now := e.sim.now
	if len(e.flight) == 0 {
		if e.written > e.next {
			e.lossKind = persistProbe
			e.lossTimer.setDueTime(now + e.retransmitTimeout())
			return
		}
		e.lossTimer.clearDueTime()
		return
	}
	rto := e.retransmitTimeout()
	if e.recovery.state == open && e.sackedOut == 0 && !e.probeOutstanding && e.srtt > 0 {
		probe := 2 * e.srtt
		if len(e.flight) == 1 {
			probe += minTimeout
		} else {
			probe += 2 * tick
		}
		if probe < rto {
			e.lossKind = probeLoss
			e.lossTimer.setDueTime(now + probe)
			return
		}
	}
	e.lossKind = timeoutLoss
	e.lossTimer.setDueTime(now + rto)
}

// tick is a tick of the kernel's clock (HZ of 250).
const tick = 4 * time.Millisecond

// handleLossTimer acts on what the loss timer was set for: see lossKind.
func (e *tcpEnd) handleLossTimer() {
	if e.lossKind == persistProbe {
		if len(e.flight) == 0 && e.written > e.next {
			e.backoff++
			e.sendAckProbe()
			e.setLossTimer()
		}
		return
	}
	if len(e.flight) == 0 {
		return
	}
	switch e.lossKind {
	case reorderLoss:
		e.detectRACKLosses()
		e.transmitAllowed()
		if e.lossKind != reorderLoss || e.lossTimer.due == never {
			e.setLossTimer()
		}
	case probeLoss:
		e.sendTailProbe()
	default:
		e.enterLossState()
	}
}

// sendTailProbe sends new data or the last segment again (RFC 8985 section 7).
func (e *tcpEnd) sendTailProbe() {
	e.probeOutstanding = true
	if e.mayAdvance() {
		e.sendNewSegment(int(min(mss, e.written-e.next, e.allowed-e.next)))
	} else {
		g := e.flight[len(e.flight)-1]
		g.everRetransmitted = true
		g.mark = e.sampler.OnSent(e.sim.now, unit.Bytes(e.packetsInFlight())*cc.MSS)
		e.retransmitted++
		if e.recovery.retransmittedAt == 0 {
			e.recovery.retransmittedAt = e.sim.now
		}
		e.sendTCPSegment(g)
	}
	e.lossKind = timeoutLoss
	e.lossTimer.setDueTime(e.sim.now + e.retransmitTimeout())
}

// sendAckProbe asks the peer for an acknowledgement.
func (e *tcpEnd) sendAckProbe() {
	p := e.sim.allocatePacket()
	p.seq, p.isProbe = e.next, true
	e.sendPacketWithAck(p)
}
