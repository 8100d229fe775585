package transport

import "time"

// handle takes the frames of one packet of the peer. It does nothing if its number
// was there before. An error says what no peer of ours sends.
func (e *engine) handle(now time.Duration, number uint64, frames []byte) error {
	e.counts.wireIn += uint64(len(frames)+overhead) + uint64(e.header)
	if e.closing.err != nil {
		e.closing.onLatePacket(now, e.closes(frames))
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
	e.live.lastReceived = now
	e.radio.beginPacket()
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

// full reports whether a packet has data for which there is no room, as there are too many
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
			e.radio.onRadio(f.radio)
		}
	case frameStream:
		return e.recv.onStream(f.value, f.data)
	case frameStamp:
		e.onStamp(now, newest)
	case frameFin:
		return e.recv.onFin(f.value)
	case frameClose:
		e.closing.end(errPeer)
	case frameChallenge:
		e.challenge = append(e.challenge[:0], f.data...)
	case frameResponse:
		e.response = append(e.response[:0], f.data...)
	}
	return nil
}

// onStamp takes the time at which the packet was sent.
func (e *engine) onStamp(now time.Duration, newest bool) {
	oneWay := uint32(now.Microseconds()) - e.frame.sent
	if newest {
		e.acks.oneWayDelay = oneWay
	}
	e.radio.onArrival(now, oneWay, time.Duration(min(e.frame.value, 1e7))*time.Microsecond)
}

// closes reports whether a packet that came after the end needs no answer: its sender has
// ended the connection too, or is none of ours.
func (e *engine) closes(frames []byte) bool {
	for r := (reader{b: frames}); len(r.b) > 0; {
		if r.next(&e.frame) != nil || e.frame.kind == frameClose {
			return true
		}
	}
	return false
}

// appendAck appends what is reported of the cells, and an ACK.
func (e *engine) appendAck(now time.Duration, b []byte) []byte {
	return e.acks.appendAck(now, e.radio.appendReport(now, b), e.recv.advertise())
}
