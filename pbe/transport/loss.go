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
	packetThreshold               = 3 // RFC 9002 section 6.1.1; grows where packets overtake each other
	persistentCongestionThreshold = 3 // probe timeouts of nothing but losses (RFC 9002 section 7.6.1)
)

// Tuning.
const (
	maxReorderThreshold = 300         // as Linux' tcp_max_reordering
	maxProbeTimeout     = time.Second // if the round trip is not longer
	maxSentPackets      = 1 << 16     // packets sent that are remembered
	maxNonEliciting     = 1 << 12     // of them, those that ask for no ACK
)

// lossDetector follows the packets that were sent until they are acknowledged or lost
// (RFC 9002): which are in flight, how long a round trip takes, which are lost as later
// ones have arrived, and when a probe must ask for an acknowledgement. What it finds it
// returns, as lists that are valid until its next call; what to do about it, and what the
// packets carry, is its owner's business. Sizes are bytes on the wire, times those of the
// connection. Its memory is bounded. It is not safe for concurrent use.
type lossDetector struct {
	numbers       packetNumbers
	sent          sentPackets // maxSentPackets at most, maxNonEliciting of them
	rtt           rttEstimator
	bytesInFlight unit.Bytes

	acked             span.Set[uint64] // numbers that were acknowledged, of those in sent
	newlyAcked        []ackRange       // of them, those that the newest ACK named first, from the highest downwards
	missing           []uint64         // in flight though a later one was acknowledged, ascending; and some that came late
	largestAcked      uint64           // + 1
	reorderThreshold  uint64
	lastElicitingSent time.Duration
	progressTime      time.Duration // when one was acknowledged last, or the first was sent that is not
	lossTime          time.Duration // then packets may be lost; 0: none
	ptoCount          int           // probe timeouts in turn
	unreportedLoss    cc.Loss       // not reported yet

	ackedPackets  []numberedPacket // of this call
	lostPackets   []numberedPacket
	lostCount     uint64 // packets, since the beginning
	spuriousCount uint64 // of them, those that had arrived
}

// numberedPacket is a copy of a packet.
type numberedPacket struct {
	number uint64
	sentPacket
}

// ackResult is what an ACK says. Acked are the packets that it names first, from the
// lowest to the highest; those of size 0 were not in flight: they had been taken for lost.
// RTT is the round trip that it shows, 0 if it shows none.
type ackResult struct {
	acked, lost []numberedPacket
	rtt         time.Duration
}

func newLossDetector() lossDetector {
	return lossDetector{numbers: newPacketNumbers(), reorderThreshold: packetThreshold}
}

// onPacketSent follows a packet from now on, of p.size bytes if it asks for an ACK, else 0.
// It returns its number, and those that are given up to make room.
func (d *lossDetector) onPacketSent(p sentPacket) (number uint64, lost []numberedPacket) {
	d.lostPackets = d.lostPackets[:0]
	if p.nonEliciting = p.size == 0; !p.nonEliciting {
		if d.bytesInFlight == 0 {
			d.progressTime = p.sentTime
		}
		d.bytesInFlight += p.size
		d.lastElicitingSent = p.sentTime
	}
	if d.numbers.next == d.numbers.skipAt {
		d.makeRoom()
	}
	if n, skipped := d.numbers.skipIfDue(d.sent.count + 1); skipped {
		d.sent.add(n, sentPacket{})
	}
	d.makeRoom()
	number = d.numbers.allocate()
	d.sent.add(number, p)
	return number, d.lostPackets
}

// makeRoom forgets what is answered for, so that there is room for another packet.
// It keeps those taken for lost, whatever their age: the ACK of all of them may come.
// Where there are too many, as behind a packet that a peer never
// acknowledges while it has all of its own acknowledged, the oldest is taken for
// lost, which says nothing about a queue, and forgotten.
func (d *lossDetector) makeRoom() {
	for {
		d.sent.dropWhile(func(p *sentPacket) bool { return p.size == 0 && !p.lost })
		if d.sent.count < maxSentPackets && d.sent.nonEliciting < maxNonEliciting {
			return
		}
		if p := d.sent.lookup(d.sent.first); p.size > 0 {
			d.declareLost(d.sent.first, p)
		}
		d.sent.dropFirst()
	}
}

// validateAck reports whether an ACK is to be taken: it is not if it names a packet that was
// never sent. An error says that it names a number that was left out, which only who
// acknowledges what it has not received does.
func (d *lossDetector) validateAck(a *ackFrame) (ok bool, err error) {
	if a.ranges[0].hi >= d.numbers.next {
		return false, nil
	}
	if n, found := d.numbers.skippedIn(a.ranges[:a.count]); found {
		return false, fmt.Errorf("%w: packet %d is acknowledged, which was left out", errMalformed, n)
	}
	return true, nil
}

// onAck takes an ACK that validateAck has passed, and says which packets it shows to have
// arrived, and to be lost.
func (d *lossDetector) onAck(now time.Duration, a *ackFrame) (r ackResult) {
	d.lostPackets = d.lostPackets[:0]
	r.acked = d.collectAcked(a)
	eliciting := false
	for i := range r.acked {
		eliciting = eliciting || r.acked[i].size > 0
	}
	if !eliciting {
		d.forgetOldPackets(now) // what is known of those that asked for nothing is bounded too
		return r
	}
	if largest := a.ranges[0].hi; largest >= d.largestAcked {
		r.rtt = d.onLargestAcked(now, largest, a.delay)
	}
	d.ptoCount, d.progressTime = 0, now
	r.lost = d.detectLosses(now)
	return r
}

// collectAcked takes the packets that an ACK names out of flight, and returns those of them
// that were in flight, or taken for lost, from the lowest to the highest, so that samples
// see the order of sending.
func (d *lossDetector) collectAcked(a *ackFrame) []numberedPacket {
	d.ackedPackets = d.ackedPackets[:0]
	d.findNewlyAcked(a)
	for i := len(d.newlyAcked) - 1; i >= 0; i-- {
		s := d.newlyAcked[i]
		for n := s.lo; n <= s.hi; n++ {
			p := d.sent.lookup(n)
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

// findNewlyAcked puts into newlyAcked, from the highest to the lowest, the numbers that are
// remembered and that no acknowledgement before this one named: most of it was told
// before, so that what it costs is not a matter of how much is in flight.
func (d *lossDetector) findNewlyAcked(a *ackFrame) {
	d.newlyAcked = d.newlyAcked[:0]
	end := d.sent.endNumber()
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

// onSpuriousLoss takes the acknowledgement of what was taken for lost: packets overtake each
// other on this path, so that the threshold grows.
func (d *lossDetector) onSpuriousLoss(number uint64, p *sentPacket) {
	p.lost = false
	d.spuriousCount++
	if distance := d.largestAcked - number; distance > d.reorderThreshold && distance < d.largestAcked {
		d.reorderThreshold = min(distance, maxReorderThreshold)
	}
}

// onLargestAcked takes the highest number acknowledged so far. The round trip is that of its
// packet, which may be one that asked for nothing, if it is known only now (RFC 9002
// section 5.1).
func (d *lossDetector) onLargestAcked(now time.Duration, largest uint64, delay time.Duration) (rtt time.Duration) {
	for n := max(d.largestAcked, d.sent.first); n < largest; n++ {
		if p := d.sent.lookup(n); p != nil && p.size > 0 {
			d.missing = append(d.missing, n)
		}
	}
	d.largestAcked = largest + 1
	p := d.sent.lookup(largest)
	if p == nil {
		return 0
	}
	// An ACK that is told again is older than any that was only held back.
	const held = ackDelay + granularity
	full := now - p.sentTime
	rtt = max(full-max(delay-held, 0), min(full, d.rtt.min), time.Microsecond)
	d.rtt.addSample(now, rtt-min(delay, held), rtt)
	return rtt
}

// onLossTimer takes the passing of time, and returns the packets that are lost by it.
func (d *lossDetector) onLossTimer(now time.Duration) (lost []numberedPacket) {
	if d.lossTime == 0 || now < d.lossTime {
		return nil
	}
	d.lostPackets = d.lostPackets[:0]
	return d.detectLosses(now)
}

// detectLosses takes packets for lost that later ones have overtaken by far, or long ago
// (RFC 9002 section 6.1). Where packets overtake each other time counts twice. Where
// those lost in a row left over more than three probe timeouts, which is as long as
// no probe came through, a timeout is reported (section 7.6: persistent congestion).
func (d *lossDetector) detectLosses(now time.Duration) (lost []numberedPacket) {
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
		p := d.sent.lookup(n)
		if p == nil || p.size == 0 {
			continue // it came late
		}
		if d.reorderDistance(n) < d.reorderThreshold && p.sentTime+delay > now {
			if d.lossTime == 0 || p.sentTime+delay < d.lossTime {
				d.lossTime = p.sentTime + delay
			}
			kept = append(kept, n)
			continue
		}
		if d.declareLost(n, p); !p.probe { // else it says nothing about a queue
			d.unreportedLoss.Bytes += d.lostPackets[len(d.lostPackets)-1].size
			d.unreportedLoss.Sent = max(d.unreportedLoss.Sent, p.sentTime)
		}
		if p.probe || d.rtt.firstSample == 0 || p.sentTime <= d.rtt.firstSample {
			continue
		}
		if !row.any || d.acked.Overlaps(row.last, n+1) {
			row.begun, row.any = p.sentTime, true
		}
		row.last = n
		if p.sentTime-row.begun >= persistentCongestionThreshold*d.rtt.probeTimeout() {
			d.unreportedLoss.Timeout = true
		}
	}
	d.missing = kept
	d.forgetOldPackets(now)
	return d.lostPackets
}

// reorderDistance returns by how many packets one was.
func (d *lossDetector) reorderDistance(number uint64) uint64 {
	return d.largestAcked - 1 - number - d.numbers.skippedBetween(number, d.largestAcked)
}

// declareLost takes a packet in flight for lost.
func (d *lossDetector) declareLost(number uint64, p *sentPacket) {
	d.lostPackets = append(d.lostPackets, numberedPacket{number, *p})
	d.bytesInFlight -= p.size
	p.size, p.lost = 0, true
	d.lostCount++
}

// takeLossReport returns what was lost since it was called last, but for probes and what was
// given up to make room. False: nothing was.
func (d *lossDetector) takeLossReport(now time.Duration) (l cc.Loss, ok bool) {
	if d.unreportedLoss.Bytes == 0 {
		return l, false
	}
	l, d.unreportedLoss = d.unreportedLoss, cc.Loss{}
	l.Now, l.InFlight = now, d.bytesInFlight
	return l, true
}

// forgetOldPackets forgets packets that are answered for; lost ones are remembered for as
// long as their acknowledgements may still come.
func (d *lossDetector) forgetOldPackets(now time.Duration) {
	d.sent.dropWhile(func(p *sentPacket) bool { return p.size == 0 && !(p.lost && p.sentTime+2*d.rtt.smoothed > now) })
	if f := d.sent.first; f > 0 {
		d.acked.Remove(0, f)
	}
}

// waitingSince returns since when something in flight waits for an acknowledgement without
// any progress, 0 if nothing is in flight.
func (d *lossDetector) waitingSince() time.Duration {
	if d.bytesInFlight == 0 {
		return 0
	}
	return d.progressTime
}

// probeTime returns when a probe must ask for an acknowledgement: each time after twice
// as long, but not over maxProbeTimeout, so that the end of an outage is soon found.
func (d *lossDetector) probeTime() time.Duration {
	t := d.rtt.probeTimeout()
	return d.lastElicitingSent + max(t, min(t<<min(d.ptoCount, 6), maxProbeTimeout))
}

// onProbeTimeout begins the next wait. That nothing was heard says nothing of what is in
// flight, which may only have been held back (RFC 9002 section 6.2): the answer will tell.
func (d *lossDetector) onProbeTimeout(now time.Duration) {
	d.ptoCount++
	d.lastElicitingSent = now
}

// resetPath forgets what was learned of a path, and returns the packets in flight, which
// are not waited for.
func (d *lossDetector) resetPath() (lost []numberedPacket) {
	d.lostPackets = d.lostPackets[:0]
	for n := d.sent.first; n < d.sent.endNumber(); n++ {
		if p := d.sent.lookup(n); p.size > 0 {
			d.declareLost(n, p)
			p.lost = false // what is heard of it late says nothing of the new path
		}
	}
	d.missing, d.unreportedLoss = d.missing[:0], cc.Loss{}
	d.rtt, d.reorderThreshold = rttEstimator{}, packetThreshold
	d.lossTime, d.ptoCount = 0, 0
	return d.lostPackets
}
