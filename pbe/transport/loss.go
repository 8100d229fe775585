package transport

import (
	"fmt"
	"time"

	"mpbond/pbe/cc"
)

// onAck takes an acknowledgement. What it says of packets never sent is no reason
// to believe the rest; of a number that was left out it can only say if it
// acknowledges what it has not received.
func (e *engine) onAck(a *ackFrame) error {
	if a.spans[0].hi >= e.number {
		return nil
	}
	for i, j := len(e.skipped)-1, 0; i >= 0 && j < a.n; {
		switch n := e.skipped[i]; {
		case a.spans[j].lo > n:
			j++
		case a.spans[j].hi >= n:
			return fmt.Errorf("%w: packet %d is acknowledged, which was left out", errMalformed, n)
		default:
			i--
		}
	}
	e.send.raiseLimit(a.window)
	e.newAck = cc.Ack{Now: e.now, Radio: e.radioNow}
	var newest *packet
	e.newlyAcked(a)
	// From the lowest to the highest, so that samples see the order of sending.
	for i := len(e.fresh) - 1; i >= 0; i-- {
		s := e.fresh[i]
		for n := s.lo; n <= s.hi; n++ {
			p := e.flying.at(n)
			if p.lost {
				e.spurious(n, p)
			}
			if p.size > 0 {
				e.acked(n, p)
				newest = p
			}
		}
		e.ackedNumbers = e.ackedNumbers.add(s.lo, s.hi)
	}
	if newest == nil {
		e.trim() // what is known of those that asked for nothing is bounded too
		return nil
	}
	// A round trip is that of the largest, which may be one that asked for nothing,
	// if it is known only now (RFC 9002 section 5.1).
	if largest := a.spans[0].hi; largest >= e.largest {
		for n := max(e.largest, e.flying.first); n < largest; n++ {
			if p := e.flying.at(n); p != nil && p.size > 0 {
				e.missing = append(e.missing, n)
			}
		}
		e.largest = largest + 1
		if p := e.flying.at(largest); p != nil {
			// An ACK that is told again is older than any that was only held back.
			const held = ackDelay + granularity
			full := e.now - p.sent
			e.newAck.RTT = max(full-max(a.delay-held, 0), min(full, e.minRTT), time.Microsecond)
			e.sampleRTT(e.newAck.RTT-min(a.delay, held), e.newAck.RTT)
		}
	}
	e.timeouts, e.since = 0, e.now
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
	return nil
}

// newlyAcked puts into e.fresh, from the highest to the lowest, the numbers that are
// remembered and that no acknowledgement before this one named: most of it was told
// before, so that what it costs is not a matter of how much is in flight.
func (e *engine) newlyAcked(a *ackFrame) {
	e.fresh = e.fresh[:0]
	end := e.flying.first + uint64(e.flying.n) // of what is remembered
	j := len(e.ackedNumbers) - 1
	for _, s := range a.spans[:a.n] {
		lo, hi := max(s.lo, e.flying.first), s.hi
		if hi < lo || end == 0 {
			return
		}
		hi = min(hi, end-1)
		for lo <= hi {
			for j >= 0 && e.ackedNumbers[j].lo > hi {
				j--
			}
			if j < 0 || e.ackedNumbers[j].hi < lo {
				e.fresh = append(e.fresh, span{lo, hi})
				break
			}
			if e.ackedNumbers[j].hi < hi {
				e.fresh = append(e.fresh, span{e.ackedNumbers[j].hi + 1, hi})
			}
			if e.ackedNumbers[j].lo <= lo {
				break
			}
			hi = e.ackedNumbers[j].lo - 1
		}
	}
}

// acked is told of each packet in flight that has arrived.
func (e *engine) acked(number uint64, p *packet) {
	e.inFlight -= p.size
	e.newAck.Bytes += p.size
	e.newAck.Packets++
	e.sampler.Delivered(e.now, p.size)
	e.mtu.arrived(number, int(p.size-e.header), p.probe)
	p.size = 0
	e.acks.onConfirmed(p.acks)
	e.send.onAcked(p.segment())
}

// spurious is told of an acknowledgement of what was taken for lost: packets
// overtake each other on this path, so that the threshold grows.
func (e *engine) spurious(number uint64, p *packet) {
	p.lost = false
	e.counts.spurious++
	if by := e.largest - number; by > e.reorder && by < e.largest {
		e.reorder = min(by, maxThreshold)
	}
	e.send.onAcked(p.segment())
}

// sampleRTT takes a round trip, with and without the time that the peer held its
// acknowledgement back (RFC 9002 section 5).
func (e *engine) sampleRTT(adjusted, full time.Duration) {
	e.latest = full
	if e.minRTT == 0 || full < e.minRTT {
		e.minRTT = full
	}
	if adjusted < e.minRTT {
		adjusted = full
	}
	if e.srtt == 0 {
		e.srtt, e.rttvar, e.firstRTT = adjusted, adjusted/2, e.now
		return
	}
	e.rttvar += ((e.srtt - adjusted).Abs() - e.rttvar) / 4
	e.srtt += (adjusted - e.srtt) / 8
}

// detect takes packets for lost that later ones have overtaken by far, or long ago
// (RFC 9002 section 6.1). Where packets overtake each other time counts twice. Where
// those lost in a row left over more than three probe timeouts, which is as long as
// no probe came through, the controller is told of a timeout (section 7.6:
// persistent congestion).
func (e *engine) detect() {
	e.lossAt = 0
	late := max(e.srtt, e.latest)
	late = max(late+late/8, granularity)
	if e.reorder > packetThreshold {
		late *= 2
	}
	var row struct {
		begun time.Duration
		last  uint64
		any   bool
	}
	kept := e.missing[:0]
	for _, n := range e.missing {
		p := e.flying.at(n)
		if p == nil || p.size == 0 {
			continue // it came late
		}
		if e.overtaken(n) < e.reorder && p.sent+late > e.now {
			if e.lossAt == 0 || p.sent+late < e.lossAt {
				e.lossAt = p.sent + late
			}
			kept = append(kept, n)
			continue
		}
		e.lose(n, p)
		if p.probe || e.firstRTT == 0 || p.sent <= e.firstRTT {
			continue
		}
		if !row.any || e.ackedNumbers.overlap(row.last, n) {
			row.begun, row.any = p.sent, true
		}
		row.last = n
		if p.sent-row.begun >= persistent*e.probeTimeout() {
			e.losses.Timeout = true
		}
	}
	e.missing = kept
}

// overtaken is by how many packets one was.
func (e *engine) overtaken(number uint64) uint64 {
	by := e.largest - 1 - number
	for i := len(e.skipped) - 1; i >= 0 && e.skipped[i] > number; i-- {
		if e.skipped[i] < e.largest {
			by--
		}
	}
	return by
}

// lose takes a packet in flight for lost.
func (e *engine) lose(number uint64, p *packet) {
	size := p.size
	e.inFlight -= size
	p.size, p.lost = 0, true
	e.counts.lost++
	e.send.onLost(p.segment())
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
	if l.Timeout {
		e.may = e.now
	}
}

// trim forgets packets that are answered for; lost ones are remembered for as
// long as their acknowledgements may still come.
func (e *engine) trim() {
	e.forget(func(p *packet) bool { return p.size == 0 && !(p.lost && p.sent+2*e.srtt > e.now) })
	if f := e.flying.first; f > 0 {
		e.ackedNumbers = e.ackedNumbers.remove(0, f-1)
	}
}

// makeRoom forgets what is answered for, so that there is room for another packet.
// It keeps those taken for lost, whatever their age: the ACK of all of them may come.
// Where there are too many, as behind a packet that a peer never
// acknowledges while it has all of its own acknowledged, the oldest is taken for
// lost, which says nothing about a queue, and forgotten.
func (e *engine) makeRoom() {
	for {
		e.forget(func(p *packet) bool { return p.size == 0 && !p.lost })
		if e.flying.n < maxFlying && e.quiet < maxQuiet {
			return
		}
		if p := e.flying.at(e.flying.first); p.size > 0 {
			losses := e.losses
			e.lose(e.flying.first, p)
			e.losses = losses
		}
		e.drop()
	}
}

// forget drops the oldest packets, until one that is not answered for.
func (e *engine) forget(answered func(p *packet) bool) {
	for e.flying.n > 0 && answered(e.flying.at(e.flying.first)) {
		e.drop()
	}
}

// drop forgets the oldest packet, which is not in flight.
func (e *engine) drop() {
	if e.flying.at(e.flying.first).quiet {
		e.quiet--
	}
	e.flying.drop()
}

// probeTimeout is how long to wait for an acknowledgement the first time (RFC 9002
// section 6.2.1).
func (e *engine) probeTimeout() time.Duration {
	if e.srtt == 0 {
		return firstTimeout
	}
	return e.srtt + max(4*e.rttvar, granularity) + ackDelay
}

// timeout is how long to wait for an acknowledgement now: each time twice as long, but
// not over maxTimeout, so that the end of an outage is soon found.
func (e *engine) timeout() time.Duration {
	t := e.probeTimeout()
	return max(t, min(t<<min(e.timeouts, 6), maxTimeout))
}

// onTimeout asks the peer what it has. That nothing was heard says nothing of what is
// in flight, which may only have been held back (RFC 9002 section 6.2): the answer will
// tell.
func (e *engine) onTimeout() {
	e.timeouts++
	e.ping, e.asked = true, e.now
}
