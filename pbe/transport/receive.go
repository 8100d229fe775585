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
	if number < e.floor {
		e.counts.old++ // if it had not arrived it is lost
		return nil
	}
	if e.numbers.has(number) || e.full(frames) {
		e.counts.duplicate++
		return nil
	}
	e.now, e.heard = now, now
	e.radioNow = cc.Radio{}
	highest := uint64(0) // + 1
	if n := len(e.numbers); n > 0 {
		highest = e.numbers[n-1].hi + 1
	}
	asks := false
	for r := (reader{b: frames}); len(r.b) > 0; {
		err := r.next(&e.frame)
		if err == nil {
			err = e.onFrame(number >= highest)
		}
		if err != nil {
			return err
		}
		asks = asks || e.frame.asks()
	}
	if number >= highest {
		e.newestAt = now
	}
	e.numbers = e.numbers.add(number, number)
	if n := len(e.numbers); n > maxKept {
		e.floor = e.numbers[n-maxKept].lo
		e.numbers = append(e.numbers[:0], e.numbers[n-maxKept:]...)
	}
	e.tellFrom = min(e.tellFrom, number)
	if asks {
		e.asking++
		e.pending++
		if e.pending >= ackEvery || number != highest {
			e.ackNow = true
		} else if e.ackAt == 0 {
			e.ackAt = now + ackDelay
		}
	}
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
func (e *engine) onFrame(newest bool) error {
	switch f := &e.frame; f.kind {
	case frameAck:
		return e.onAck(&f.ack)
	case frameRadio:
		if newest { // else there was newer news before
			e.radioIn, e.radioNow = f.radio, f.radio
		}
	case frameStream:
		return e.recv.onStream(f.value, f.data)
	case frameStamp:
		e.onStamp(newest)
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
func (e *engine) onStamp(newest bool) {
	e.rtprop = time.Duration(min(e.frame.value, 1e7)) * time.Microsecond
	way := uint32(e.now.Microseconds()) - e.frame.sent
	if !e.rcvKnown {
		e.rcvKnown, e.rcvBase = true, way
	}
	if newest {
		e.way = way
	}
	if e.feedback != nil {
		e.radioOut = e.feedback(e.now, time.Duration(int32(way-e.rcvBase))*time.Microsecond, e.rtprop)
		e.radioAt = e.now
	}
}

// appendAck says what has arrived, and what there is room for.
func (e *engine) appendAck(b []byte) []byte {
	var a ackFrame
	if e.tells++; e.now >= e.tellAt+tellFor && e.tells > tellOften {
		e.tellAt, e.tells, e.tellFrom, e.nextFrom = e.now, 0, e.nextFrom, e.numbers[len(e.numbers)-1].hi
	}
	for i := len(e.numbers) - 1; i >= 0 && a.n < maxRanges; i-- {
		if a.n > 0 && e.numbers[i].hi < e.tellFrom {
			break
		}
		a.spans[a.n] = e.numbers[i]
		a.n++
	}
	a.delay, a.oneWay = e.now-e.newestAt, e.way
	a.window = e.recv.advertise()
	if e.radioAt > 0 && e.now <= e.radioAt+feedbackFor {
		b = appendRadio(b, e.radioOut)
	}
	e.pending, e.ackNow, e.ackAt = 0, false, 0
	return a.append(b)
}
