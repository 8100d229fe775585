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
	controller cc.Controller
	sampler    cc.Sampler
	headerSize unit.Bytes // of IP and UDP

	// The stream.
	sender   sender
	receiver receiver

	// Packets.
	loss  lossDetector
	pacer pacer
	mtu   mtuSearch
	acks  ackTracker
	radio radioFeedback
	frame frame // that is being handled

	liveness         liveness
	closing          closing
	pendingPing      bool      // something that asks for an ACK must leave
	pendingChallenge []byte    // data of a CHALLENGE, to be returned
	pathResponse     []byte    // data of the newest RESPONSE
	rate             unit.Rate // newest sample
	appLimited       bool      // it was taken while the app set the pace
	counts           packetCounts
}

// packetCounts are of packets, and of bytes on the wire.
type packetCounts struct{ packets, wireOut, wireIn, duplicate, tooOld uint64 }

func newEngine(ctl cc.Controller, headerSize unit.Bytes) *engine {
	return &engine{controller: ctl, headerSize: headerSize, sender: sender{maxData: initialWindow}, receiver: newReceiver(), loss: newLossDetector(),
		mtu: mtuSearch{size: minPayload}, liveness: liveness{keepAliveInterval: defaultKeepAlive}}
}

// readStream reads into p: 0 bytes mean to wait, io.EOF the end of the stream.
func (e *engine) readStream(now time.Duration, p []byte) (int, error) {
	n := e.receiver.readInto(now, max(e.radio.peerMinRTT, e.loss.rtt.smoothed), p)
	switch {
	case n > 0:
		e.acks.ackNow = e.acks.ackNow || e.receiver.needsWindowUpdate()
		return n, nil
	case e.receiver.isFinished():
		return 0, io.EOF
	}
	return 0, e.closing.err
}

// switchPath forgets what was learned of a path: packets take another one from now
// on, and those in flight on the old one are not waited for.
func (e *engine) switchPath(now time.Duration, ctl cc.Controller) {
	for _, p := range e.loss.resetPath() {
		e.sender.onLost(p.segment())
	}
	e.controller, e.mtu = ctl, mtuSearch{size: minPayload, fixed: e.mtu.fixed}
	e.radio.resetSending()
	e.pacer.reset(now)
	e.pendingPing = true
}

// nextWakeTime returns when tick and poll have something to do though nothing arrives; never is
// negative.
func (e *engine) nextWakeTime(now time.Duration) time.Duration {
	switch {
	case e.closing.isOver(now):
		return -1
	case e.closing.err != nil && !e.closing.sendClose:
		return e.closing.drainUntil
	case e.acks.ackNow || e.closing.sendClose || e.pendingPing || len(e.pendingChallenge) > 0:
		return now
	}
	at := e.liveness.nextTime(e.loss.waitingSince())
	if e.acks.ackTime > 0 {
		at = min(at, e.acks.ackTime)
	}
	if e.loss.lossTime > 0 {
		at = min(at, e.loss.lossTime)
	}
	if e.expectsAck() {
		at = min(at, e.loss.probeTime())
	}
	if e.sender.hasPendingData() {
		switch lim := e.controller.Limits(now); {
		case e.fitsWindow(lim.Window):
			at = min(at, max(now, e.pacer.nextSendTime))
		case lim.Until > 0:
			at = min(at, max(now+granularity, lim.Until))
		}
	}
	return at
}

func (e *engine) packetSize() unit.Bytes { return unit.Bytes(e.mtu.size) + e.headerSize }

// fitsWindow reports whether a window lets another packet go. A single one always goes: it
// may be longer than the least window of a controller.
func (e *engine) fitsWindow(window unit.Bytes) bool {
	return e.loss.bytesInFlight == 0 || e.loss.bytesInFlight+e.packetSize() <= window
}

// expectsAck reports whether something is in flight, or only the peer can say that its
// window is open again.
func (e *engine) expectsAck() bool { return e.loss.bytesInFlight > 0 || e.sender.isBlocked() }

// handleTimers does what is due by time.
func (e *engine) handleTimers(now time.Duration) {
	if e.closing.err != nil {
		return
	}
	if err := e.liveness.checkTimeouts(now, e.loss.waitingSince()); err != nil {
		e.closing.closeLocally(err)
		return
	}
	e.acks.onTimer(now)
	e.onLost(now, e.loss.onLossTimer(now))
	if e.expectsAck() && now >= e.loss.probeTime() {
		e.loss.onProbeTimeout(now)
		e.pendingPing = true
	}
	e.pendingPing = e.pendingPing || e.liveness.needsPing(now)
}

// appendPacket appends the frames of the next packet to b, at most mtu.size bytes with
// overhead, and returns its number. False: nothing is to be sent now.
func (e *engine) appendPacket(now time.Duration, b []byte) (out []byte, number uint64, ok bool) {
	start := len(b)
	p := sentPacket{sentTime: now}
	if e.closing.err != nil {
		if !e.closing.takeClose(now, e.loss.rtt.probeTimeout()) {
			return b, 0, false
		}
		b = append(b, frameClose, 0)
		return b, e.recordSent(p, len(b)-start), true
	}
	lim := e.controller.Limits(now)
	payload := e.choosePayload(now, lim.Window)
	// What may be lost goes with all that leaves anyway, until it has arrived.
	if e.acks.shouldSend(payload.data || payload.ping) {
		b = e.appendAck(now, b)
		p.acks = e.acks.eliciting
	}
	if len(e.pendingChallenge) > 0 {
		b = append(append(b, frameResponse), e.pendingChallenge...)
		e.pendingChallenge = e.pendingChallenge[:0]
	}
	if !e.sender.hasPendingData() && e.fitsWindow(lim.Window) {
		// Also of a question, of which there are few in a round trip: what it shows is
		// not what the path has.
		e.sampler.SetAppLimited(e.loss.bytesInFlight)
	}
	if payload.elicitsAck() {
		b = appendStamp(b, now, e.loss.rtt.min)
		b = e.appendPayload(b, start, payload, &p)
		p.size = unit.Bytes(len(b)-start+overhead) + e.headerSize
		p.mark = e.sampler.OnSent(now, e.loss.bytesInFlight)
		e.controller.OnSent(now, p.size, e.loss.bytesInFlight+p.size)
		e.pacer.onSent(now, p.size, lim.Rate)
	}
	if len(b) == start {
		return b, 0, false
	}
	return b, e.recordSent(p, len(b)-start), true
}

// packetPayload is what a packet carries that asks for an acknowledgement, the first of these.
type packetPayload struct {
	probeSize int // of the MTU, of that length; 0: none
	data      bool
	ping      bool
}

func (p packetPayload) elicitsAck() bool { return p.probeSize > 0 || p.data || p.ping }

// choosePayload returns what the next packet is to carry.
func (e *engine) choosePayload(now time.Duration, window unit.Bytes) packetPayload {
	payload := packetPayload{ping: e.pendingPing}
	if e.fitsWindow(window) && e.pacer.canSend(now) {
		payload.data = e.sender.hasPendingData()
		if e.loss.rtt.smoothed > 0 && e.loss.ptoCount == 0 {
			payload.probeSize = e.mtu.nextProbeSize(now)
		}
	}
	return payload
}

// appendPayload appends it to a packet whose frames begin at start.
func (e *engine) appendPayload(b []byte, start int, payload packetPayload, p *sentPacket) []byte {
	var seg segment
	switch {
	case payload.probeSize > 0:
		p.probe = true
		b = append(b, framePing)
		return append(b, make([]byte, payload.probeSize-overhead-(len(b)-start))...) // PADDING
	case payload.data:
		b, seg = e.sender.appendData(b, e.mtu.size-overhead-(len(b)-start))
	default:
		b, seg = e.sender.appendOldest(b, minPayload-overhead-(len(b)-start))
		b = append(b, framePing)
	}
	e.pendingPing = false
	p.setSegment(seg)
	return b
}

// appendChallenge appends the frames of a packet that asks the peer to show that it
// receives where this one is sent to, apart from all others.
func (e *engine) appendChallenge(now time.Duration, b, data []byte) (out []byte, number uint64) {
	start := len(b)
	b = append(append(b, frameChallenge), data...)
	return b, e.recordSent(sentPacket{sentTime: now}, len(b)-start)
}

// recordSent notes a packet with so many bytes of frames, and returns its number.
func (e *engine) recordSent(p sentPacket, frameBytes int) (number uint64) {
	number, lost := e.loss.onPacketSent(p)
	e.requeueLost(p.sentTime, lost)
	e.liveness.lastSent = p.sentTime
	e.counts.packets++
	e.counts.wireOut += uint64(frameBytes+overhead) + uint64(e.headerSize)
	return number
}

// onSendRefused takes packets back that this device itself did not take, such as those
// longer than its own link carries: they went nowhere, and are lost.
func (e *engine) onSendRefused(packets, bytes int) {
	e.counts.wireOut -= uint64(bytes) + uint64(packets)*uint64(e.headerSize)
	e.mtu.onSendRefused(bytes)
}

// onAck takes an acknowledgement. What it says of packets never sent is no reason to
// believe the rest.
func (e *engine) onAck(now time.Duration, f *ackFrame) error {
	if ok, err := e.loss.validateAck(f); !ok {
		return err
	}
	e.sender.raiseMaxData(f.maxData)
	r := e.loss.onAck(now, f)
	ack := cc.Ack{Now: now, Radio: e.radio.current, RTT: r.rtt}
	var newest cc.Mark
	for i := range r.acked {
		p := &r.acked[i]
		e.sender.onAcked(p.segment())
		if p.size == 0 {
			continue
		}
		ack.Bytes += p.size
		ack.Packets++
		e.sampler.OnDelivered(now, p.size)
		e.mtu.onAcked(p.number, int(p.size-e.headerSize), p.probe)
		e.acks.onConfirmed(p.acks)
		newest = p.mark
	}
	if ack.Packets == 0 {
		return nil
	}
	ack.OneWay = e.radio.delayToPeer.sinceFirst(f.oneWayDelay)
	e.sampler.FillAck(&ack, newest, e.loss.rtt.min)
	if ack.Rate > 0 {
		e.rate, e.appLimited = ack.Rate, ack.AppLimited
	}
	ack.InFlight = e.loss.bytesInFlight
	e.onLost(now, r.lost)
	e.controller.OnAck(ack)
	return nil
}

// onLost has what was lost sent again, and reports it to the controller.
func (e *engine) onLost(now time.Duration, lost []numberedPacket) {
	e.requeueLost(now, lost)
	if l, ok := e.loss.takeLossReport(now); ok {
		e.controller.OnLoss(l)
		if l.Timeout {
			e.pacer.reset(now)
		}
	}
}

// requeueLost has what packets carried sent again.
func (e *engine) requeueLost(now time.Duration, lost []numberedPacket) {
	for i := range lost {
		p := &lost[i]
		e.sender.onLost(p.segment())
		e.mtu.onLost(now, p.number, int(p.size-e.headerSize), p.probe)
	}
}
