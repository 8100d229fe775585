// SPDX-License-Identifier: Apache-2.0

package transport

import "time"

// handlePacket handles the frames of one packet from the peer. It ignores duplicates. An error
// means that no valid peer sends such a packet.
func (e *engine) handlePacket(now time.Duration, number uint64, frames []byte) error {
	e.counts.wireIn += uint64(len(frames)+overhead) + uint64(e.headerSize)
	if e.closing.err != nil {
		e.closing.onLatePacket(now, e.needsNoReply(frames))
		return nil
	}
	if e.acks.isTooOld(number) {
		e.counts.tooOld++ // if it had not arrived, it is lost
		return nil
	}
	if e.acks.isDuplicate(number) || e.lacksRoomFor(frames) {
		e.counts.duplicate++
		return nil
	}
	e.liveness.lastReceived = now
	e.radio.beginPacket()
	newest := number >= e.acks.nextExpected()
	eliciting := false
	for r := (frameReader{buf: frames}); len(r.buf) > 0; {
		err := r.readFrame(&e.frame)
		if err == nil {
			err = e.onFrame(now, newest)
		}
		if err != nil {
			return err
		}
		eliciting = eliciting || e.frame.elicitsAck()
	}
	e.acks.onPacket(now, number, eliciting)
	return nil
}

// lacksRoomFor reports whether a packet must be dropped because the stream has too many gaps for
// its data. Such a packet counts as not received, and none of its frames is handled.
func (e *engine) lacksRoomFor(frames []byte) bool {
	if !e.receiver.isFragmented() {
		return false
	}
	for r := (frameReader{buf: frames}); len(r.buf) > 0; {
		if r.readFrame(&e.frame) != nil {
			return false
		}
		if e.frame.kind == frameStream && e.frame.value > e.receiver.receivedBytes() {
			return true
		}
	}
	return false
}

// onFrame handles e.frame. newest reports whether it is in the newest packet.
func (e *engine) onFrame(now time.Duration, newest bool) error {
	switch f := &e.frame; f.kind {
	case frameAck:
		return e.onAck(now, &f.ack)
	case frameRadio:
		if newest { // otherwise a newer report has arrived
			e.radio.onRadio(f.radio)
		}
	case frameStream:
		return e.receiver.onStream(f.value, f.data)
	case frameStamp:
		e.onStamp(now, newest)
	case frameFin:
		return e.receiver.onFin(f.value)
	case frameClose:
		e.closing.closeByPeer(errClosedByPeer)
	case frameChallenge:
		e.pendingChallenge = append(e.pendingChallenge[:0], f.data...)
	case frameResponse:
		e.pathResponse = append(e.pathResponse[:0], f.data...)
	}
	return nil
}

// onStamp handles the sending time of a packet.
func (e *engine) onStamp(now time.Duration, newest bool) {
	oneWay := uint32(now.Microseconds()) - e.frame.sent
	if newest {
		e.acks.oneWayDelay = oneWay
	}
	e.radio.onArrival(now, oneWay, time.Duration(min(e.frame.value, 1e7))*time.Microsecond)
}

// needsNoReply reports whether to ignore a packet that arrives after the end: the peer has ended
// the connection too, or the packet is malformed.
func (e *engine) needsNoReply(frames []byte) bool {
	for r := (frameReader{buf: frames}); len(r.buf) > 0; {
		if r.readFrame(&e.frame) != nil || e.frame.kind == frameClose {
			return true
		}
	}
	return false
}

// appendAck appends radio feedback and an ACK.
func (e *engine) appendAck(now time.Duration, b []byte) []byte {
	return e.acks.appendAck(now, e.radio.appendReport(now, b), e.receiver.advertiseMaxData())
}
