package transport

import (
	"time"

	"mpbond/pbe/cc"
)

// handle takes the frames of one packet of the peer. It does nothing if its number
// was there before. An error says what no peer of ours sends.
func (e *engine) handle(now time.Duration, number uint64, frames []byte) error {
	e.counts.wireIn += uint64(len(frames)+overhead) + uint64(e.header)
	if e.err != nil {
		e.late(now, frames)
		return nil
	}
	if e.acks.isOld(number) {
		e.counts.old++ // if it had not arrived it is lost
		return nil
	}
	if e.acks.isDuplicate(number) || e.full(frames) {
		e.counts.duplicate++
		return nil
	}
	e.heard = now
	e.radioNow = cc.Radio{}
	newest := number >= e.acks.expected()
	asks := false
	for r := (reader{b: frames}); len(r.b) > 0; {
		err := r.next(&e.frame)
		if err == nil {
			err = e.onFrame(now, newest)
		}
		if err != nil {
			return err
		}
		asks = asks || e.frame.asks()
	}
	e.acks.onPacket(now, number, asks)
	return nil
}

// full tells whether a packet has data for which there is no room, as there are too many
// gaps: it counts as not received, and nothing in it as said.
func (e *engine) full(frames []byte) bool {
	if !e.recv.isFragmented() {
		return false
	}
	for r := (reader{b: frames}); len(r.b) > 0; {
		if r.next(&e.frame) != nil {
			return false
		}
		if e.frame.kind == frameStream && e.frame.value > e.recv.received() {
			return true
		}
	}
	return false
}

// onFrame takes e.frame, of the newest packet or not.
func (e *engine) onFrame(now time.Duration, newest bool) error {
	switch f := &e.frame; f.kind {
	case frameAck:
		return e.onAck(now, &f.ack)
	case frameRadio:
		if newest { // else there was newer news before
			e.radioIn, e.radioNow = f.radio, f.radio
		}
	case frameStream:
		return e.recv.onStream(f.value, f.data)
	case frameStamp:
		e.onStamp(now, newest)
	case frameFin:
		return e.recv.onFin(f.value)
	case frameClose:
		if e.err == nil {
			e.err = errPeer
		}
	case frameChallenge:
		e.answer = append(e.answer[:0], f.data...)
	case frameResponse:
		e.proved = append(e.proved[:0], f.data...)
	}
	return nil
}

// onStamp takes the time at which the packet was sent.
func (e *engine) onStamp(now time.Duration, newest bool) {
	e.rtprop = time.Duration(min(e.frame.value, 1e7)) * time.Microsecond
	way := uint32(now.Microseconds()) - e.frame.sent
	if !e.rcvKnown {
		e.rcvKnown, e.rcvBase = true, way
	}
	if newest {
		e.acks.oneWayDelay = way
	}
	if e.feedback != nil {
		e.radioOut = e.feedback(now, time.Duration(int32(way-e.rcvBase))*time.Microsecond, e.rtprop)
		e.radioAt = now
	}
}

// appendAck appends what is reported of the cells, and an ACK.
func (e *engine) appendAck(now time.Duration, b []byte) []byte {
	if e.radioAt > 0 && now <= e.radioAt+feedbackFor {
		b = appendRadio(b, e.radioOut)
	}
	return e.acks.appendAck(now, b, e.recv.advertise())
}
