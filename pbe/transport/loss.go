// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"fmt"
	"time"

	"mpbond/base/span"
	"mpbond/base/unit"
	"mpbond/pbe/cc"
)

// Specification.
const (
	packetThreshold               = 3 // RFC 9002 section 6.1.1; grows with reordering
	persistentCongestionThreshold = 3 // probe timeouts in which all packets are lost (RFC 9002 section 7.6.1)
)

// Tuning.
const (
	maxReorderThreshold = 300         // as Linux's tcp_max_reordering
	maxProbeTimeout     = time.Second // unless the round trip is longer

	// When a path that worked goes silent while data is in flight, a mobile link is probably in a handoff.
	// For outageProbeTime probes leave each outageProbeInterval, so that its end is noticed soon. Silence
	// from outageTimeouts probe timeouts to maxOutage counts as an outage, if the first answer then takes
	// as long as usual, or at most outageDelay longer than the least round trip.
	outageProbeInterval = 100 * time.Millisecond
	outageProbeTime     = 5 * time.Second
	outageTimeouts      = 2
	maxOutage           = 6 * time.Second
	outageDelay         = 50 * time.Millisecond

	maxSentPackets  = 1 << 16 // remembered packets
	maxNonEliciting = 1 << 12 // remembered packets that elicit no ACK
)

// lossDetector tracks sent packets until they are acknowledged or lost (RFC 9002). It knows the
// packets in flight and the round trip time, detects losses, and decides when to send a probe. It
// returns lists that are valid until its next call. The caller handles their content and the
// congestion controller. Sizes are bytes on the wire, times those of the connection. Memory is
// bounded. It is not safe for concurrent use.
type lossDetector struct {
	numbers       packetNumbers
	sent          sentPackets // at most maxSentPackets, of which maxNonEliciting elicit no ACK
	rtt           rttEstimator
	bytesInFlight unit.Bytes

	acked      span.Set[uint64] // acknowledged numbers that are in sent
	newlyAcked []ackRange       // numbers that the newest ACK acknowledges first, highest range first
	// ascending numbers in flight below afterLargestAcked; may include ones acknowledged late
	missing           []uint64
	afterLargestAcked uint64 // one more than the largest acknowledged number
	reorderThreshold  uint64
	probeStart        time.Duration
	progressTime      time.Duration // last acknowledgement, or when the first packet in flight was sent
	lossTime          time.Duration // when the loss timer expires; 0: not set
	ptoCount          int           // consecutive probe timeouts
	outage            outage
	unreportedLoss    cc.Loss // losses not yet passed to the controller

	ackedPackets  []numberedPacket // result of the current call
	lostPackets   []numberedPacket
	lostCount     uint64 // packets declared lost since the beginning
	spuriousCount uint64 // packets declared lost that had arrived
}

// outage is the newest time in which nothing arrived although the path was as before and after it.
// Packets sent before its end are lost because of it, which is no persistent congestion. If the queue
// was short before, it is no congestion at all. (The queue has drained since: the first answer says
// nothing about it.)
type outage struct {
	end       time.Duration
	wasQueued bool // packets waited in a queue before
}

// numberedPacket is a copy of a sent packet with its number.
type numberedPacket struct {
	number uint64
	sentPacket
}

// ackResult is the result of an ACK. acked has the newly acknowledged packets in ascending order. A
// packet of size 0 was not in flight: it had been declared lost. rtt is the RTT sample of the ACK,
// 0 if there is none.
type ackResult struct {
	acked, lost []numberedPacket
	rtt         time.Duration
}

// newLossDetector returns a detector without packets.
func newLossDetector() lossDetector {
	return lossDetector{numbers: newPacketNumbers(), reorderThreshold: packetThreshold}
}

// onPacketSent starts to track a packet. p.size is 0 if the packet elicits no ACK. It returns the
// packet's number and the packets declared lost to make room.
func (d *lossDetector) onPacketSent(p sentPacket) (number uint64, lost []numberedPacket) {
	d.lostPackets = d.lostPackets[:0]
	if p.nonEliciting = p.size == 0; !p.nonEliciting {
		if d.bytesInFlight == 0 {
			d.progressTime = p.sentTime
		}
		d.bytesInFlight += p.size
		d.probeStart = p.sentTime
	}
	if d.numbers.next == d.numbers.skipAt {
		d.makeTrackingRoom()
	}
	if n, skipped := d.numbers.skipNumberIfDue(d.sent.count + 1); skipped {
		d.sent.addSentPacket(n, sentPacket{})
	}
	d.makeTrackingRoom()
	number = d.numbers.allocateNumber()
	d.sent.addSentPacket(number, p)
	return number, d.lostPackets
}

// makeTrackingRoom forgets acknowledged packets so that another one can be tracked. It keeps
// packets declared lost, because their ACK may still arrive. If too many remain, it declares the
// oldest lost and forgets it. That happens behind a packet that the peer never acknowledges. Such a
// loss says nothing about a queue and is not reported to the controller.
func (d *lossDetector) makeTrackingRoom() {
	for {
		d.sent.dropPacketsWhile(func(p *sentPacket) bool { return p.size == 0 && !p.lost })
		if d.sent.count < maxSentPackets && d.sent.nonEliciting < maxNonEliciting {
			return
		}
		if p := d.sent.findSentPacket(d.sent.first); p.size > 0 {
			d.declareLost(d.sent.first, p)
		}
		d.sent.dropFirstPacket()
	}
}

// validateAck reports whether to handle an ACK. It returns false if the ACK names a packet that was
// never sent. It returns an error if the ACK names a skipped number: the peer acknowledges packets
// that it has not received.
func (d *lossDetector) validateAck(a *ackFrame) (ok bool, err error) {
	if a.ranges[0].hi >= d.numbers.next {
		return false, nil
	}
	if n, found := d.numbers.skippedInRanges(a.ranges[:a.count]); found {
		return false, fmt.Errorf("%w: packet %d was acknowledged but never sent", errMalformed, n)
	}
	return true, nil
}

// onAckReceived handles an ACK that validateAck has accepted. It returns the newly acknowledged
// packets and the packets that are lost.
func (d *lossDetector) onAckReceived(now time.Duration, a *ackFrame) (r ackResult) {
	d.lostPackets = d.lostPackets[:0]
	r.acked = d.collectAcked(a)
	eliciting := false
	for i := range r.acked {
		eliciting = eliciting || r.acked[i].size > 0
	}
	if !eliciting {
		d.forgetOldPackets(now) // bounds packets that elicit no ACK
		return r
	}
	before := d.rtt
	if largest := a.ranges[0].hi; largest >= d.afterLargestAcked {
		r.rtt = d.onLargestAcked(now, largest, a.delay)
	}
	if silence := now - d.progressTime; before.firstSample > 0 && r.rtt > 0 && silence <= maxOutage &&
		silence >= outageTimeouts*before.probeTimeout() && r.rtt <= max(before.usualMost(), before.min+outageDelay) {
		d.outage = outage{now, before.latest > before.min+max(before.min/4, outageDelay/2)}
	}
	d.ptoCount, d.progressTime = 0, now
	r.lost = d.detectLostPackets(now)
	return r
}

// collectAcked removes the packets that an ACK names from flight. It returns those that were in
// flight or declared lost, in the order of sending.
func (d *lossDetector) collectAcked(a *ackFrame) []numberedPacket {
	d.ackedPackets = d.ackedPackets[:0]
	d.findNewlyAcked(a)
	for i := len(d.newlyAcked) - 1; i >= 0; i-- {
		s := d.newlyAcked[i]
		for n := s.lo; n <= s.hi; n++ {
			p := d.sent.findSentPacket(n)
			if p.lost {
				d.onSpuriousLoss(n, p)
			} else if p.size == 0 {
				continue
			}
			d.ackedPackets = append(d.ackedPackets, numberedPacket{n, *p})
			d.bytesInFlight -= p.size
			p.size = 0
		}
		d.acked.Add(s.lo, s.hi+1)
	}
	return d.ackedPackets
}

// findNewlyAcked fills newlyAcked with the remembered numbers that no earlier ACK named, highest
// range first. An ACK mostly repeats older ranges: the cost does not depend on the number of
// packets in flight.
func (d *lossDetector) findNewlyAcked(a *ackFrame) {
	d.newlyAcked = d.newlyAcked[:0]
	end := d.sent.endPacketNumber()
	j := len(d.acked) - 1
	for _, s := range a.ranges[:a.count] {
		lo, hi := max(s.lo, d.sent.first), s.hi
		if hi < lo || end == 0 {
			return
		}
		hi = min(hi, end-1)
		for lo <= hi {
			for j >= 0 && d.acked[j].From > hi {
				j--
			}
			if j < 0 || d.acked[j].To <= lo {
				d.newlyAcked = append(d.newlyAcked, ackRange{lo, hi})
				break
			}
			if d.acked[j].To <= hi {
				d.newlyAcked = append(d.newlyAcked, ackRange{d.acked[j].To, hi})
			}
			if d.acked[j].From <= lo {
				break
			}
			hi = d.acked[j].From - 1
		}
	}
}

// onSpuriousLoss handles the acknowledgement of a packet that was declared lost. The path reorders
// packets, so the reordering threshold grows.
func (d *lossDetector) onSpuriousLoss(number uint64, p *sentPacket) {
	p.lost = false
	d.spuriousCount++
	if distance := d.afterLargestAcked - number; distance > d.reorderThreshold && distance < d.afterLargestAcked {
		d.reorderThreshold = min(distance, maxReorderThreshold)
	}
}

// onLargestAcked handles an ACK with a new largest number. It returns the RTT sample of that
// packet, or 0 if the packet is not remembered. The sample may come from a packet that elicits no
// ACK (RFC 9002 section 5.1).
func (d *lossDetector) onLargestAcked(now time.Duration, largest uint64, delay time.Duration) (rtt time.Duration) {
	for n := max(d.afterLargestAcked, d.sent.first); n < largest; n++ {
		if p := d.sent.findSentPacket(n); p != nil && p.size > 0 {
			d.missing = append(d.missing, n)
		}
	}
	d.afterLargestAcked = largest + 1
	p := d.sent.findSentPacket(largest)
	if p == nil {
		return 0
	}
	// A repeated ACK is older than any delayed ACK: its delay is subtracted from the RTT.
	const held = ackDelay + granularity
	full := now - p.sentTime
	rtt = max(full-max(delay-held, 0), min(full, d.rtt.min), time.Microsecond)
	d.rtt.addRTTSample(now, rtt-min(delay, held), rtt)
	return rtt
}

// onLossTimer returns the packets that are lost if the loss timer has expired.
func (d *lossDetector) onLossTimer(now time.Duration) (lost []numberedPacket) {
	if d.lossTime == 0 || now < d.lossTime {
		return nil
	}
	d.lostPackets = d.lostPackets[:0]
	return d.detectLostPackets(now)
}

// detectLostPackets declares packets lost that were sent long before an acknowledged one, by number
// or by time (RFC 9002 section 6.1). The time threshold doubles on paths that reorder packets. If
// all packets over more than three probe timeouts are lost, it reports persistent congestion
// (section 7.6).
func (d *lossDetector) detectLostPackets(now time.Duration) (lost []numberedPacket) {
	d.lossTime = 0
	delay := d.rtt.lossDelay()
	if d.reorderThreshold > packetThreshold {
		delay *= 2
	}
	var row struct {
		begun time.Duration
		last  uint64
		any   bool
	}
	kept := d.missing[:0]
	for _, n := range d.missing {
		p := d.sent.findSentPacket(n)
		if p == nil || p.size == 0 {
			continue // acknowledged late
		}
		if d.reorderDistance(n) < d.reorderThreshold && p.sentTime+delay > now {
			if d.lossTime == 0 || p.sentTime+delay < d.lossTime {
				d.lossTime = p.sentTime + delay
			}
			kept = append(kept, n)
			continue
		}
		inOutage := p.sentTime < d.outage.end
		congested := !p.probe && (!inOutage || d.outage.wasQueued) // lost MTU probes do not indicate it
		if d.declareLost(n, p); congested {
			d.unreportedLoss.Bytes += d.lostPackets[len(d.lostPackets)-1].size
			d.unreportedLoss.Sent = max(d.unreportedLoss.Sent, p.sentTime)
		}
		if p.probe || inOutage || d.rtt.firstSample == 0 || p.sentTime <= d.rtt.firstSample {
			continue
		}
		if !row.any || d.acked.Overlaps(row.last, n+1) {
			row.begun, row.any = p.sentTime, true
		}
		row.last = n
		if p.sentTime-row.begun >= persistentCongestionThreshold*d.rtt.probeTimeout() {
			d.unreportedLoss.PersistentCongestion = true
		}
	}
	d.missing = kept
	d.forgetOldPackets(now)
	return d.lostPackets
}

// reorderDistance returns how many packets with larger numbers were sent up to afterLargestAcked.
func (d *lossDetector) reorderDistance(number uint64) uint64 {
	return d.afterLargestAcked - 1 - number - d.numbers.skippedBetween(number, d.afterLargestAcked)
}

// declareLost declares a packet in flight lost.
func (d *lossDetector) declareLost(number uint64, p *sentPacket) {
	d.lostPackets = append(d.lostPackets, numberedPacket{number, *p})
	d.bytesInFlight -= p.size
	p.size, p.lost = 0, true
	d.lostCount++
}

// takeLossReport returns the losses since the last call, without MTU probes and packets dropped to
// make room. It returns false if there are none.
func (d *lossDetector) takeLossReport(now time.Duration) (l cc.Loss, ok bool) {
	if d.unreportedLoss.Bytes == 0 {
		return l, false
	}
	l, d.unreportedLoss = d.unreportedLoss, cc.Loss{}
	l.Now, l.InFlight = now, d.bytesInFlight
	return l, true
}

// forgetOldPackets forgets acknowledged packets. It keeps lost packets while their ACK may still
// arrive.
func (d *lossDetector) forgetOldPackets(now time.Duration) {
	d.sent.dropPacketsWhile(func(p *sentPacket) bool {
		return p.size == 0 && !(p.lost &&
			p.sentTime+2*d.rtt.smoothed > now)
	})
	if f := d.sent.first; f > 0 {
		d.acked.Remove(0, f)
	}
}

// waitingSince returns since when packets in flight wait without progress, 0 if none are in flight.
func (d *lossDetector) waitingSince() time.Duration {
	if d.bytesInFlight == 0 {
		return 0
	}
	return d.progressTime
}

// probeTimerExpiry returns when the probe timer expires. hasData says that data is in flight. After the
// first timeout, probes leave each outageProbeInterval for outageProbeTime, one in a round trip at most.
// If the path never answered, or has been silent for longer, the timeout doubles up to maxProbeTimeout
// (RFC 9002 section 6.2.1).
func (d *lossDetector) probeTimerExpiry(hasData bool) time.Duration {
	t := d.rtt.probeTimeout()
	if hasData && d.ptoCount > 0 && d.rtt.firstSample > 0 && d.probeStart < d.progressTime+outageProbeTime {
		return d.probeStart + max(outageProbeInterval, d.rtt.smoothed)
	}
	return d.probeStart + max(t, min(t<<min(d.ptoCount, 6), maxProbeTimeout))
}

// onProbeTimeout restarts the probe timer. It declares nothing lost, because packets in flight may
// only be delayed (RFC 9002 section 6.2).
func (d *lossDetector) onProbeTimeout(now time.Duration) {
	d.ptoCount++
	d.probeStart = now
}

// resetMeasurements forgets all measurements of a path. It returns the packets in flight, which
// count as lost.
func (d *lossDetector) resetMeasurements() (lost []numberedPacket) {
	d.lostPackets = d.lostPackets[:0]
	for n := d.sent.first; n < d.sent.endPacketNumber(); n++ {
		if p := d.sent.findSentPacket(n); p.size > 0 {
			d.declareLost(n, p)
			p.lost = false // a late ACK says nothing about the new path
		}
	}
	d.missing, d.unreportedLoss = d.missing[:0], cc.Loss{}
	d.rtt, d.reorderThreshold = rttEstimator{}, packetThreshold
	d.lossTime, d.ptoCount = 0, 0
	return d.lostPackets
}
