package transport

import (
	"io"
	"time"

	"mpbond/base/unit"
	"mpbond/pbe/cc"
)

// engine is one end of a connection without sockets and clocks: packets and the
// time go in, packets come out. Times are those since any fixed moment, over 0, and
// never go back. It is not safe for concurrent use.
type engine struct {
	ctl     cc.Controller
	sampler cc.Sampler
	header  unit.Bytes // of IP and UDP

	// The stream.
	send sender
	recv receiver

	// Packets.
	loss  lossDetector
	pacer pacer
	mtu   mtuSearch
	acks  ackTracker
	radio radioFeedback
	frame frame // that is being handled

	live       liveness
	closing    closing
	ping       bool      // something that asks for an ACK must leave
	challenge  []byte    // data of a CHALLENGE, to be returned
	response   []byte    // data of the newest RESPONSE
	rate       unit.Rate // newest sample
	appLimited bool      // it was taken while the app set the pace
	counts     counts
}

// counts are of packets, and of bytes on the wire.
type counts struct{ packets, wireOut, wireIn, duplicate, old uint64 }

func newEngine(ctl cc.Controller, header unit.Bytes) *engine {
	return &engine{ctl: ctl, header: header, send: sender{maxData: firstWindow}, recv: newReceiver(), loss: newLossDetector(),
		mtu: mtuSearch{size: minPayload}, live: liveness{keepAliveInterval: keepAlive}}
}

// take reads into p: 0 bytes mean to wait, io.EOF the end of the stream.
func (e *engine) take(now time.Duration, p []byte) (int, error) {
	n := e.recv.take(now, max(e.radio.peerMinRTT, e.loss.rtt.smoothed), p)
	switch {
	case n > 0:
		e.acks.ackNow = e.acks.ackNow || e.recv.needsUpdate()
		return n, nil
	case e.recv.isFinished():
		return 0, io.EOF
	}
	return 0, e.closing.err
}

// reroute forgets what was learned of a path: packets take another one from now
// on, and those in flight on the old one are not waited for.
func (e *engine) reroute(now time.Duration, ctl cc.Controller) {
	for _, p := range e.loss.resetPath() {
		e.send.onLost(p.segment())
	}
	e.ctl, e.mtu = ctl, mtuSearch{size: minPayload, fixed: e.mtu.fixed}
	e.radio.resetSending()
	e.pacer.reset(now)
	e.ping = true
}

// wait returns when tick and poll have something to do though nothing arrives; never is
// negative.
func (e *engine) wait(now time.Duration) time.Duration {
	switch {
	case e.closing.isOver(now):
		return -1
	case e.closing.err != nil && !e.closing.sendClose:
		return e.closing.drainUntil
	case e.acks.ackNow || e.closing.sendClose || e.ping || len(e.challenge) > 0:
		return now
	}
	at := e.live.nextTime(e.loss.waitingSince())
	if e.acks.ackTime > 0 {
		at = min(at, e.acks.ackTime)
	}
	if e.loss.lossTime > 0 {
		at = min(at, e.loss.lossTime)
	}
	if e.expectsAck() {
		at = min(at, e.loss.probeTime())
	}
	if e.send.hasPendingData() {
		switch lim := e.ctl.Limits(now); {
		case e.fits(lim.Window):
			at = min(at, max(now, e.pacer.nextSendTime))
		case lim.Until > 0:
			at = min(at, max(now+granularity, lim.Until))
		}
	}
	return at
}

func (e *engine) packetSize() unit.Bytes { return unit.Bytes(e.mtu.size) + e.header }

// fits reports whether a window lets another packet go. A single one always goes: it
// may be longer than the least window of a controller.
func (e *engine) fits(window unit.Bytes) bool {
	return e.loss.bytesInFlight == 0 || e.loss.bytesInFlight+e.packetSize() <= window
}

// expectsAck reports whether something is in flight, or only the peer can say that its
// window is open again.
func (e *engine) expectsAck() bool { return e.loss.bytesInFlight > 0 || e.send.isBlocked() }

// tick does what is due by time.
func (e *engine) tick(now time.Duration) {
	if e.closing.err != nil {
		return
	}
	if err := e.live.check(now, e.loss.waitingSince()); err != nil {
		e.closing.close(err)
		return
	}
	e.acks.onTime(now)
	e.onLost(now, e.loss.onTime(now))
	if e.expectsAck() && now >= e.loss.probeTime() {
		e.loss.onProbeTimeout(now)
		e.ping = true
	}
	e.ping = e.ping || e.live.needsPing(now)
}

// poll appends the frames of the next packet to b, at most mtu.size bytes with
// overhead, and returns its number. False: nothing is to be sent now.
func (e *engine) poll(now time.Duration, b []byte) (out []byte, number uint64, ok bool) {
	start := len(b)
	p := sentPacket{sent: now}
	if e.closing.err != nil {
		if !e.closing.takeClose(now, e.loss.rtt.probeTimeout()) {
			return b, 0, false
		}
		b = append(b, frameClose, 0)
		return b, e.sent(p, len(b)-start), true
	}
	lim := e.ctl.Limits(now)
	what := e.choosePayload(now, lim.Window)
	// What may be lost goes with all that leaves anyway, until it has arrived.
	if e.acks.isUseful(what.data || what.ping) {
		b = e.appendAck(now, b)
		p.acks = e.acks.eliciting
	}
	if len(e.challenge) > 0 {
		b = append(append(b, frameResponse), e.challenge...)
		e.challenge = e.challenge[:0]
	}
	if !e.send.hasPendingData() && e.fits(lim.Window) {
		// Also of a question, of which there are few in a round trip: what it shows is
		// not what the path has.
		e.sampler.AppLimited(e.loss.bytesInFlight)
	}
	if what.elicitsAck() {
		b = appendStamp(b, now, e.loss.rtt.min)
		b = e.appendPayload(b, start, what, &p)
		p.size = unit.Bytes(len(b)-start+overhead) + e.header
		p.mark = e.sampler.Sent(now, e.loss.bytesInFlight)
		e.ctl.OnSent(now, p.size, e.loss.bytesInFlight+p.size)
		e.pacer.onSent(now, p.size, lim.Rate)
	}
	if len(b) == start {
		return b, 0, false
	}
	return b, e.sent(p, len(b)-start), true
}

// payload is what a packet carries that asks for an acknowledgement, the first of these.
type payload struct {
	probe int // of the MTU, of that length; 0: none
	data  bool
	ping  bool
}

func (p payload) elicitsAck() bool { return p.probe > 0 || p.data || p.ping }

// choosePayload returns what the next packet is to carry.
func (e *engine) choosePayload(now time.Duration, window unit.Bytes) payload {
	what := payload{ping: e.ping}
	if e.fits(window) && e.pacer.isOpen(now) {
		what.data = e.send.hasPendingData()
		if e.loss.rtt.smoothed > 0 && e.loss.ptoCount == 0 {
			what.probe = e.mtu.probe(now)
		}
	}
	return what
}

// appendPayload appends it to a packet whose frames begin at start.
func (e *engine) appendPayload(b []byte, start int, what payload, p *sentPacket) []byte {
	var seg segment
	switch {
	case what.probe > 0:
		p.probe = true
		b = append(b, framePing)
		return append(b, make([]byte, what.probe-overhead-(len(b)-start))...) // PADDING
	case what.data:
		b, seg = e.send.appendData(b, e.mtu.size-overhead-(len(b)-start))
	default:
		b, seg = e.send.appendOldest(b, minPayload-overhead-(len(b)-start))
		b = append(b, framePing)
	}
	e.ping = false
	p.carry(seg)
	return b
}

// appendChallenge appends the frames of a packet that asks the peer to show that it
// receives where this one is sent to, apart from all others.
func (e *engine) appendChallenge(now time.Duration, b, data []byte) (out []byte, number uint64) {
	start := len(b)
	b = append(append(b, frameChallenge), data...)
	return b, e.sent(sentPacket{sent: now}, len(b)-start)
}

// sent notes a packet with so many bytes of frames, and returns its number.
func (e *engine) sent(p sentPacket, frames int) (number uint64) {
	number, lost := e.loss.onPacketSent(p)
	e.resend(p.sent, lost)
	e.live.lastSent = p.sent
	e.counts.packets++
	e.counts.wireOut += uint64(frames+overhead) + uint64(e.header)
	return number
}

// refused takes packets back that this device itself did not take, such as those
// longer than its own link carries: they went nowhere, and are lost.
func (e *engine) refused(packets, bytes int) {
	e.counts.wireOut -= uint64(bytes) + uint64(packets)*uint64(e.header)
	e.mtu.refused(bytes)
}

// onAck takes an acknowledgement. What it says of packets never sent is no reason to
// believe the rest.
func (e *engine) onAck(now time.Duration, f *ackFrame) error {
	if ok, err := e.loss.checkAck(f); !ok {
		return err
	}
	e.send.raiseLimit(f.window)
	r := e.loss.onAck(now, f)
	ack := cc.Ack{Now: now, Radio: e.radio.current, RTT: r.rtt}
	var newest cc.Mark
	for i := range r.acked {
		p := &r.acked[i]
		e.send.onAcked(p.segment())
		if p.size == 0 {
			continue
		}
		ack.Bytes += p.size
		ack.Packets++
		e.sampler.Delivered(now, p.size)
		e.mtu.arrived(p.number, int(p.size-e.header), p.probe)
		e.acks.onConfirmed(p.acks)
		newest = p.mark
	}
	if ack.Packets == 0 {
		return nil
	}
	ack.OneWay = e.radio.toPeer.of(f.oneWay)
	e.sampler.Fill(&ack, newest, e.loss.rtt.min)
	if ack.Rate > 0 {
		e.rate, e.appLimited = ack.Rate, ack.AppLimited
	}
	ack.InFlight = e.loss.bytesInFlight
	e.onLost(now, r.lost)
	e.ctl.OnAck(ack)
	return nil
}

// onLost has what was lost sent again, and reports it to the controller.
func (e *engine) onLost(now time.Duration, lost []numberedPacket) {
	e.resend(now, lost)
	if l, ok := e.loss.takeLosses(now); ok {
		e.ctl.OnLoss(l)
		if l.Timeout {
			e.pacer.reset(now)
		}
	}
}

// resend has what packets carried sent again.
func (e *engine) resend(now time.Duration, lost []numberedPacket) {
	for i := range lost {
		p := &lost[i]
		e.send.onLost(p.segment())
		e.mtu.lost(now, p.number, int(p.size-e.header), p.probe)
	}
}
