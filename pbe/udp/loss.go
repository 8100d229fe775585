package udp

import (
	"time"

	"mpbond/pbe/cc"
	"mpbond/unit"
)

// onAck takes an acknowledgement. What it says of packets never sent is no reason
// to believe the rest.
func (e *engine) onAck(a *ackFrame) {
	if a.spans[0].hi >= e.number {
		return
	}
	e.room = max(e.room, min(a.window, e.out.base+1<<32))
	e.newAck = cc.Ack{Now: e.now, Radio: e.radioNow}
	var newest *packet
	// From the lowest to the highest, so that samples see the order of sending.
	for i := a.n - 1; i >= 0; i-- {
		for n := max(a.spans[i].lo, e.first); n <= a.spans[i].hi && n-e.first < uint64(len(e.flying)); n++ {
			p := &e.flying[n-e.first]
			if p.lost {
				e.spurious(n, p)
			}
			if p.size > 0 {
				e.acked(n, p)
				newest = p
			}
		}
	}
	if newest == nil {
		return
	}
	// A round trip is that of the largest, which may be one that asked for nothing,
	// if it is known only now (RFC 9002 section 5.1).
	if largest := a.spans[0].hi; largest >= e.largest {
		e.largest = largest + 1
		if p := e.flyingAt(largest); p != nil {
			// An ACK that is told again is older than any that was only held back.
			const held = ackDelay + granularity
			e.newAck.RTT = max(e.now-p.sent-max(a.delay-held, 0), e.minRTT, time.Microsecond)
			e.sampleRTT(e.newAck.RTT-min(a.delay, held), e.newAck.RTT)
		}
	}
	e.timeouts = 0
	if !e.wayKnown {
		e.wayKnown, e.wayBase = true, a.oneWay
	}
	e.newAck.OneWay = time.Duration(int32(a.oneWay-e.wayBase)) * time.Microsecond
	e.sampler.Fill(&e.newAck, newest.mark, e.minRTT)
	if e.newAck.Rate > 0 {
		e.rate, e.limited = e.newAck.Rate, e.newAck.AppLimited
	}
	e.detect()
	e.newAck.InFlight = e.inFlight
	e.tellLoss()
	e.ctl.OnAck(e.newAck)
	e.trim()
}

func (e *engine) flyingAt(number uint64) *packet {
	if number < e.first || number-e.first >= uint64(len(e.flying)) {
		return nil
	}
	return &e.flying[number-e.first]
}

// acked is told of each packet in flight that has arrived.
func (e *engine) acked(number uint64, p *packet) {
	e.inFlight -= p.size
	e.newAck.Bytes += p.size
	e.newAck.Packets++
	e.sampler.Delivered(e.now, p.size)
	e.mtu.arrived(number, int(p.size-e.header), p.probe)
	p.size = 0
	e.knows = max(e.knows, p.tells)
	e.delivered(p)
}

// spurious is told of an acknowledgement of what was taken for lost: packets
// overtake each other on this path, so that the threshold grows.
func (e *engine) spurious(number uint64, p *packet) {
	p.lost = false
	e.counts.spurious++
	if by := e.largest - number; by > e.reorder && by < e.largest {
		e.reorder = min(by, maxThreshold)
	}
	e.delivered(p)
}

// delivered notes what of the stream the peer has.
func (e *engine) delivered(p *packet) {
	e.finAcked = e.finAcked || p.fin
	lo, hi := max(p.lo, e.out.base), p.hi
	if hi <= lo {
		return
	}
	e.resend = e.resend.remove(lo, hi-1)
	e.have = e.have.add(lo, hi-1)
	if e.have[0].lo == e.out.base {
		e.out.base = e.have[0].hi + 1
		e.have = append(e.have[:0], e.have[1:]...)
	}
}

// sampleRTT takes a round trip, with and without the time that the peer held its
// acknowledgement back (RFC 9002 section 5).
func (e *engine) sampleRTT(adjusted, full time.Duration) {
	if e.minRTT == 0 || full < e.minRTT {
		e.minRTT = full
	}
	if adjusted < e.minRTT {
		adjusted = full
	}
	if e.srtt == 0 {
		e.srtt, e.rttvar = adjusted, adjusted/2
		return
	}
	e.rttvar += ((e.srtt - adjusted).Abs() - e.rttvar) / 4
	e.srtt += (adjusted - e.srtt) / 8
}

// detect takes packets for lost that later ones have overtaken by far, or long ago
// (RFC 9002 section 6.1). Where packets overtake each other time counts twice.
func (e *engine) detect() {
	e.lossAt = 0
	late := max(e.srtt+e.srtt/8, granularity)
	if e.reorder > packetThreshold {
		late *= 2
	}
	for n := e.first; n < e.largest && n-e.first < uint64(len(e.flying)); n++ {
		p := &e.flying[n-e.first]
		if p.size == 0 {
			continue
		}
		if e.largest-1-n < e.reorder && p.sent+late > e.now {
			if e.lossAt == 0 || p.sent+late < e.lossAt {
				e.lossAt = p.sent + late
			}
			continue
		}
		e.lose(n, p)
	}
}

// lose takes a packet in flight for lost.
func (e *engine) lose(number uint64, p *packet) {
	size := p.size
	e.inFlight -= size
	p.size, p.lost = 0, true
	e.counts.lost++
	if lo := max(p.lo, e.out.base); p.hi > lo {
		e.resend = e.resend.add(lo, p.hi-1)
		for _, h := range e.have {
			if h.lo < p.hi && h.hi >= lo {
				e.resend = e.resend.remove(h.lo, h.hi)
			}
		}
	}
	if p.fin {
		e.finSent = e.finAcked
	}
	e.mtu.lost(e.now, number, int(size-e.header), p.probe)
	if p.probe {
		return // says nothing about a queue
	}
	e.losses.Bytes += size
	e.losses.Sent = max(e.losses.Sent, p.sent)
}

// tellLoss tells the controller of what was lost since it was told last.
func (e *engine) tellLoss() {
	if e.losses.Bytes == 0 {
		return
	}
	l := e.losses
	l.Now, l.InFlight = e.now, e.inFlight
	e.losses = cc.Loss{}
	e.ctl.OnLoss(l)
}

// trim forgets packets that are answered for; lost ones are remembered for as
// long as their acknowledgements may still come.
func (e *engine) trim() {
	i := 0
	for i < len(e.flying) {
		p := &e.flying[i]
		if p.size > 0 || p.lost && p.sent+2*e.srtt > e.now {
			break
		}
		i++
	}
	e.forget(i)
}

// makeRoom forgets what is answered for, so that there is room for another packet.
// It keeps those taken for lost, whatever their age: after an outage the ACK of all
// of them may come. Where there are too many, as behind a packet that a peer never
// acknowledges while it has all of its own acknowledged, the oldest is taken for
// lost, which says nothing about a queue, and forgotten.
func (e *engine) makeRoom() {
	for {
		i := 0
		for i < len(e.flying) && e.flying[i].size == 0 && !e.flying[i].lost {
			i++
		}
		e.forget(i)
		if len(e.flying) < maxFlying && e.quiet < maxQuiet {
			return
		}
		if p := &e.flying[0]; p.size > 0 {
			losses := e.losses
			e.lose(e.first, p)
			e.losses = losses
		}
		e.forget(1)
	}
}

// forget drops the oldest n packets, none of which is in flight.
func (e *engine) forget(n int) {
	for _, p := range e.flying[:n] {
		if p.quiet {
			e.quiet--
		}
	}
	e.first += uint64(n)
	if n == len(e.flying) {
		e.flying = e.flying[:0]
		return
	}
	e.flying = e.flying[n:] // append moves it to new memory now and then
}

// timeout is how long to wait for an acknowledgement (RFC 9002 section 6.2).
func (e *engine) timeout() time.Duration {
	t := firstTimeout
	if e.srtt > 0 {
		t = e.srtt + max(4*e.rttvar, granularity) + ackDelay
	}
	return max(t, min(t<<min(e.timeouts, 6), maxTimeout))
}

// onTimeout asks the peer what it has, and takes all for lost when that was of no
// use several times, which RFC 9002 never does.
func (e *engine) onTimeout() {
	e.timeouts++
	e.ping, e.asked = true, e.now
	if e.timeouts != maxTimeouts || e.inFlight == 0 {
		return
	}
	for i := range e.flying {
		if p := &e.flying[i]; p.size > 0 {
			e.lose(e.first+uint64(i), p)
		}
	}
	e.losses.Timeout = true
	e.losses.Bytes = max(e.losses.Bytes, unit.Bytes(1)) // a lone probe counts here
	e.tellLoss()
	e.may = e.now
}
