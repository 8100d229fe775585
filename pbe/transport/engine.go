// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"io"
	"time"

	"mpbond/base/unit"
	"mpbond/pbe/cc"
)

// engine is one end of a connection without sockets or clocks. Its inputs are packets and times,
// its outputs packets. Times count from any fixed moment, are over 0 and never decrease. It is not
// safe for concurrent use.
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
	frame frame // the frame being handled

	liveness         liveness
	closing          closing
	pendingPing      bool      // an ack-eliciting packet must be sent
	pendingChallenge []byte    // data of a CHALLENGE to be answered
	pathResponse     []byte    // data of the newest RESPONSE
	rate             unit.Rate // newest delivery rate sample
	appLimited       bool      // the application, not the network, limited that sample
	counts           packetCounts
}

// packetCounts counts packets, and bytes on the wire.
type packetCounts struct{ packets, wireOut, wireIn, duplicate, tooOld uint64 }

// newConnEngine returns the engine of a new connection.
func newConnEngine(ctl cc.Controller, headerSize unit.Bytes) *engine {
	return &engine{
		controller: ctl,
		headerSize: headerSize,
		sender:     sender{maxData: initialWindow},
		receiver:   newReceiver(),
		loss:       newLossDetector(),
		mtu:        mtuSearch{size: minPayload},
		liveness:   liveness{keepAliveInterval: defaultKeepAlive},
	}
}

// readAvailable reads into p. It returns 0 bytes if none are available yet, and io.EOF at the end
// of the stream.
func (e *engine) readAvailable(now time.Duration, p []byte) (int, error) {
	n := e.receiver.readStreamInto(now, max(e.radio.peerMinRTT, e.loss.rtt.smoothed), p)
	switch {
	case n > 0:
		e.acks.ackNow = e.acks.ackNow || e.receiver.needsWindowUpdate()
		return n, nil
	case e.receiver.isFinished():
		return 0, io.EOF
	}
	return 0, e.closing.err
}

// switchPath resets all state of the path when packets take another one. Packets in flight on the
// old path count as lost.
func (e *engine) switchPath(now time.Duration, ctl cc.Controller) {
	for _, p := range e.loss.resetMeasurements() {
		e.sender.onSegmentLost(p.streamSegment())
	}
	e.controller, e.mtu = ctl, mtuSearch{size: minPayload, fixed: e.mtu.fixed}
	e.radio.resetSending()
	e.pacer.allowSendNow(now)
	e.pendingPing = true
}

// nextWakeTime returns when handleTimers and appendPacket must be called next if no packet arrives.
// A negative time means never.
func (e *engine) nextWakeTime(now time.Duration) time.Duration {
	switch {
	case e.closing.isFullyClosed(now):
		return -1
	case e.closing.err != nil && !e.closing.sendClose:
		return e.closing.drainUntil
	case e.acks.ackNow || e.closing.sendClose || e.pendingPing || len(e.pendingChallenge) > 0:
		return now
	}
	at := e.liveness.nextLivenessCheck(e.loss.waitingSince())
	if e.acks.ackTime > 0 {
		at = min(at, e.acks.ackTime)
	}
	if e.loss.lossTime > 0 {
		at = min(at, e.loss.lossTime)
	}
	if e.expectsAck() {
		at = min(at, e.loss.probeTimerExpiry(e.sender.hasDataInFlight()))
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

// fullPacketSize returns the current size of full packets on the wire.
func (e *engine) fullPacketSize() unit.Bytes { return unit.Bytes(e.mtu.size) + e.headerSize }

// fitsWindow reports whether the congestion window allows another packet. A single packet is always
// allowed, because it may be longer than a controller's minimum window.
func (e *engine) fitsWindow(window unit.Bytes) bool {
	return e.loss.bytesInFlight == 0 || e.loss.bytesInFlight+e.fullPacketSize() <= window
}

// expectsAck reports whether packets are in flight, or the stream waits for the peer's flow control
// window.
func (e *engine) expectsAck() bool { return e.loss.bytesInFlight > 0 || e.sender.isWindowBlocked() }

// handleTimers runs the timers that have expired.
func (e *engine) handleTimers(now time.Duration) {
	if e.closing.err != nil {
		return
	}
	if err := e.liveness.checkTimeouts(now, e.loss.waitingSince()); err != nil {
		e.closing.closeLocally(err)
		return
	}
	e.acks.onAckDelayTimer(now)
	e.handleLostPackets(now, e.loss.onLossTimer(now))
	if e.expectsAck() && now >= e.loss.probeTimerExpiry(e.sender.hasDataInFlight()) {
		e.loss.onProbeTimeout(now)
		e.pendingPing = true
	}
	e.pendingPing = e.pendingPing || e.liveness.needsKeepAlivePing(now)
}

// appendPacket appends the frames of the next packet to b and returns the packet's number. With
// overhead the packet is at most mtu.size bytes long. It returns false if nothing can be sent now.
func (e *engine) appendPacket(now time.Duration, b []byte) (out []byte, number uint64, ok bool) {
	start := len(b)
	p := sentPacket{sentTime: now}
	if e.closing.err != nil {
		if !e.closing.takeDueClose(now, e.loss.rtt.probeTimeout()) {
			return b, 0, false
		}
		b = append(b, frameClose, 0)
		return b, e.recordSentPacket(p, len(b)-start), true
	}
	lim := e.controller.Limits(now)
	payload := e.choosePayload(now, lim.Window)
	// An ACK may be lost. It is repeated in packets that leave anyway until one has arrived.
	if e.acks.shouldSend(payload.data || payload.ping) {
		b = e.appendAckAndRadio(now, b)
		p.acks = e.acks.eliciting
	}
	if len(e.pendingChallenge) > 0 {
		b = append(append(b, frameResponse), e.pendingChallenge...)
		e.pendingChallenge = e.pendingChallenge[:0]
	}
	if !e.sender.hasPendingData() && e.fitsWindow(lim.Window) {
		// A probe also counts as app-limited: a few packets in a round trip do not show what the
		// path can carry.
		e.sampler.SetAppLimited(e.loss.bytesInFlight)
	}
	if payload.hasElicitingFrame() {
		b = appendStamp(b, now, e.loss.rtt.min)
		b = e.appendPayload(b, start, payload, &p)
		p.size = unit.Bytes(len(b)-start+overhead) + e.headerSize
		p.mark = e.sampler.OnSent(now, e.loss.bytesInFlight)
		e.controller.OnSent(now, p.size, e.loss.bytesInFlight+p.size)
		e.pacer.scheduleNextSend(now, p.size, lim.Rate)
	}
	if len(b) == start {
		return b, 0, false
	}
	return b, e.recordSentPacket(p, len(b)-start), true
}

// packetPayload selects the ack-eliciting content of a packet. The first field that is set decides.
type packetPayload struct {
	probeSize int // length of an MTU probe packet; 0: none
	data      bool
	ping      bool
}

// hasElicitingFrame reports whether the payload elicits an ACK.
func (p packetPayload) hasElicitingFrame() bool { return p.probeSize > 0 || p.data || p.ping }

// choosePayload returns the payload of the next packet.
func (e *engine) choosePayload(now time.Duration, window unit.Bytes) packetPayload {
	payload := packetPayload{ping: e.pendingPing}
	if e.fitsWindow(window) && e.pacer.canSendPacket(now) {
		payload.data = e.sender.hasPendingData()
		if e.loss.rtt.smoothed > 0 && e.loss.ptoCount == 0 {
			payload.probeSize = e.mtu.nextProbeSize(now)
		}
	}
	return payload
}

// appendPayload appends the payload to a packet with frames from start on.
func (e *engine) appendPayload(b []byte, start int, payload packetPayload, p *sentPacket) []byte {
	var seg segment
	switch {
	case payload.probeSize > 0:
		p.probe = true
		b = append(b, framePing)
		return append(b, make([]byte, payload.probeSize-overhead-(len(b)-start))...) // PADDING
	case payload.data:
		b, seg = e.sender.appendStreamData(b, e.mtu.size-overhead-(len(b)-start))
	default:
		b, seg = e.sender.appendOldest(b, minPayload-overhead-(len(b)-start))
		b = append(b, framePing)
	}
	e.pendingPing = false
	p.setStreamSegment(seg)
	return b
}

// appendChallenge appends the frames of a packet that validates a new address of the peer. The
// packet is sent separately from all others.
func (e *engine) appendChallenge(now time.Duration, b, data []byte) (out []byte, number uint64) {
	start := len(b)
	b = append(append(b, frameChallenge), data...)
	return b, e.recordSentPacket(sentPacket{sentTime: now}, len(b)-start)
}

// recordSentPacket records a sent packet with frameBytes bytes of frames and returns its number.
func (e *engine) recordSentPacket(p sentPacket, frameBytes int) (number uint64) {
	number, lost := e.loss.onPacketSent(p)
	e.requeueLost(p.sentTime, lost)
	e.liveness.lastSent = p.sentTime
	e.counts.packets++
	e.counts.wireOut += uint64(frameBytes+overhead) + uint64(e.headerSize)
	return number
}

// onPacketsRefused corrects the counters for packets that the local system refused, for example
// because they exceed the MTU of the link. Loss detection finds that they are lost.
func (e *engine) onPacketsRefused(packets, bytes int) {
	e.counts.wireOut -= uint64(bytes) + uint64(packets)*uint64(e.headerSize)
	e.mtu.onProbeRefused(bytes)
}

// onAckFrame handles an ACK frame. It ignores a frame that names a packet never sent.
func (e *engine) onAckFrame(now time.Duration, f *ackFrame) error {
	if ok, err := e.loss.validateAck(f); !ok {
		return err
	}
	e.sender.raiseMaxData(f.maxData)
	r := e.loss.onAckReceived(now, f)
	ack := cc.Ack{Now: now, Cells: e.radio.current, RTT: r.rtt}
	var newest cc.Mark
	for i := range r.acked {
		p := &r.acked[i]
		e.sender.onSegmentAcked(p.streamSegment())
		if p.size == 0 {
			continue
		}
		ack.Bytes += p.size
		ack.Packets++
		e.sampler.OnDelivered(now, p.size)
		e.mtu.onPacketAcked(p.number, int(p.size-e.headerSize), p.probe)
		e.acks.onAckConfirmed(p.acks)
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
	e.handleLostPackets(now, r.lost)
	e.controller.OnAck(ack)
	return nil
}

// handleLostPackets queues the content of lost packets again and reports the losses to the
// controller.
func (e *engine) handleLostPackets(now time.Duration, lost []numberedPacket) {
	e.requeueLost(now, lost)
	if l, ok := e.loss.takeLossReport(now); ok {
		e.controller.OnLoss(l)
		if l.PersistentCongestion {
			e.pacer.allowSendNow(now)
		}
	}
}

// requeueLost queues the content of lost packets again.
func (e *engine) requeueLost(now time.Duration, lost []numberedPacket) {
	for i := range lost {
		p := &lost[i]
		e.sender.onSegmentLost(p.streamSegment())
		e.mtu.onPacketLost(now, p.number, int(p.size-e.headerSize), p.probe)
	}
}
