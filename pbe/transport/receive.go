// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"time"

	"mpbond/base/unit"
)

// handlePacketFrames handles the frames of one packet from the peer. It ignores duplicates. An
// error means that no valid peer sends such a packet.
func (e *engine) handlePacketFrames(now time.Duration, number uint64, frames []byte) error {
	size := unit.Bytes(len(frames)+overhead) + e.headerSize
	e.counts.wireIn += uint64(size)
	if e.closing.err != nil {
		e.closing.onLatePacket(now, e.needsNoReply(frames))
		return nil
	}
	if e.acks.isNumberTooOld(number) {
		e.counts.tooOld++ // if it had not arrived, it is lost
		return nil
	}
	if e.acks.isDuplicate(number) || e.lacksRoomFor(frames) {
		e.counts.duplicate++
		return nil
	}
	e.liveness.lastReceived = now
	e.radio.beginPacket(size)
	newest := number >= e.acks.nextExpected()
	eliciting := false
	for r := (frameReader{buf: frames}); len(r.buf) > 0; {
		err := r.readNextFrame(&e.frame)
		if err == nil {
			err = e.dispatchFrame(now, newest)
		}
		if err != nil {
			return err
		}
		eliciting = eliciting || e.frame.isAckEliciting()
	}
	e.acks.onPacketReceived(now, number, eliciting)
	return nil
}

// lacksRoomFor reports whether a packet must be dropped because the stream has too many gaps for
// its data. Such a packet counts as not received, and none of its frames is handled.
func (e *engine) lacksRoomFor(frames []byte) bool {
	if !e.receiver.isFragmented() {
		return false
	}
	for r := (frameReader{buf: frames}); len(r.buf) > 0; {
		if r.readNextFrame(&e.frame) != nil {
			return false
		}
		if e.frame.kind == frameStream && e.frame.value > e.receiver.inOrderBytes() {
			return true
		}
	}
	return false
}

// dispatchFrame handles e.frame. newest reports whether it is in the newest packet.
func (e *engine) dispatchFrame(now time.Duration, newest bool) error {
	switch f := &e.frame; f.kind {
	case frameAck:
		return e.onAckFrame(now, &f.ack)
	case frameRadio:
		if newest { // otherwise a newer report has arrived
			e.radio.onRadioFrame(f.radio)
		}
	case frameStream:
		return e.receiver.onStreamData(f.value, f.data)
	case frameStamp:
		e.onStampFrame(now, newest)
	case frameFin:
		return e.receiver.onFinalSize(f.value)
	case frameClose:
		e.closing.closeByPeer(errClosedByPeer)
	case frameChallenge:
		e.pendingChallenge = append(e.pendingChallenge[:0], f.data...)
	case frameResponse:
		e.pathResponse = append(e.pathResponse[:0], f.data...)
	}
	return nil
}

// onStampFrame handles the sending time of a packet.
func (e *engine) onStampFrame(now time.Duration, newest bool) {
	oneWay := uint32(now.Microseconds()) - e.frame.sent
	if newest {
		e.acks.oneWayDelay = oneWay
	}
	e.radio.onOneWayDelay(now, oneWay, time.Duration(min(e.frame.value, 1e7))*time.Microsecond)
}

// needsNoReply reports whether to ignore a packet that arrives after the end: the peer has ended
// the connection too, or the packet is malformed.
func (e *engine) needsNoReply(frames []byte) bool {
	for r := (frameReader{buf: frames}); len(r.buf) > 0; {
		if r.readNextFrame(&e.frame) != nil || e.frame.kind == frameClose {
			return true
		}
	}
	return false
}

// appendAckAndRadio appends radio feedback and an ACK.
func (e *engine) appendAckAndRadio(now time.Duration, b []byte) []byte {
	return e.acks.appendAckFrame(now, e.radio.appendReport(now, b), e.receiver.advertiseMaxData())
}
