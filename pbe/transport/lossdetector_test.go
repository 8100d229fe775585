// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"mpbond/base/span"
	"mpbond/base/unit"
)

// testDetector returns a detector with the same numbers each time, and a function that sends a
// packet of a size.
func testDetector(t *testing.T) (*lossDetector, func(now time.Duration, size unit.Bytes) uint64) {
	d := newLossDetector()
	d.numbers.skipAt = 1 << 40
	return &d, func(now time.Duration, size unit.Bytes) uint64 {
		number, lost := d.onPacketSent(sentPacket{sentTime: now, size: size})
		if len(lost) > 0 {
			t.Fatalf("%d packets are given up", len(lost))
		}
		return number
	}
}

// acks returns an ACK of ranges in descending order.
func acks(ranges ...ackRange) *ackFrame {
	a := &ackFrame{count: len(ranges)}
	copy(a.ranges[:], ranges)
	return a
}

// TestDetectorAccounts: each packet in flight is returned once as acknowledged or lost, and at most
// once more as acknowledged after it was declared lost. bytesInFlight is the sum of the others.
func TestDetectorAccounts(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		d := newLossDetector()
		d.numbers.randomBelow, d.numbers.skipAt = r.Uint64N, 50
		flying, lost := map[uint64]unit.Bytes{}, map[uint64]bool{}
		var arrived span.Set[uint64]
		now := time.Second
		check := func(r ackResult) {
			t.Helper()
			for _, p := range r.acked {
				if size, ok := flying[p.number]; ok && size == p.size {
					delete(flying, p.number)
				} else if !lost[p.number] || p.size != 0 {
					t.Fatalf("seed %d: %d of %v is acknowledged once more", seed, p.number, p.size)
				}
				delete(lost, p.number)
			}
			for _, p := range r.lost {
				if size, ok := flying[p.number]; !ok || size != p.size {
					t.Fatalf("seed %d: %d of %v is lost once more", seed, p.number, p.size)
				}
				delete(flying, p.number)
				lost[p.number] = true
			}
			var sum unit.Bytes
			for _, size := range flying {
				sum += size
			}
			if sum != d.bytesInFlight {
				t.Fatalf("seed %d: %v in flight, not %v", seed, d.bytesInFlight, sum)
			}
		}
		for range 3000 {
			now += time.Duration(r.IntN(2000)) * time.Microsecond
			switch x := r.IntN(10); {
			case x < 6:
				size := unit.Bytes(r.IntN(2) * (100 + r.IntN(1400)))
				number, given := d.onPacketSent(sentPacket{sentTime: now, size: size, probe: r.IntN(20) == 0})
				if size > 0 {
					flying[number] = size
				}
				check(ackResult{lost: given})
				if r.IntN(10) > 0 {
					arrived.Add(number, number+1)
				}
			case x < 9 && len(arrived) > 0:
				a := &ackFrame{}
				for i := len(arrived) - 1; i >= 0 && a.count < maxAckRanges; i-- {
					a.ranges[a.count] = ackRange{arrived[i].From, arrived[i].To - 1}
					a.count++
				}
				if ok, err := d.validateAck(a); !ok || err != nil {
					t.Fatalf("seed %d: %v, %v", seed, ok, err)
				}
				check(d.onAckReceived(now, a))
			case x == 9 && r.IntN(100) == 0:
				check(ackResult{lost: d.resetMeasurements()})
				clear(lost) // nothing more is said of them
			default:
				check(ackResult{lost: d.onLossTimer(now)})
			}
		}
		if d.lostCount == 0 || len(d.numbers.skipped) == 0 {
			t.Errorf("seed %d: %d lost, %d left out", seed, d.lostCount, len(d.numbers.skipped))
		}
	}
}

// TestDetectorThresholds: a packet is lost when three later ones have arrived, or after 9/8 of a
// round trip.
func TestDetectorThresholds(t *testing.T) {
	const rtt = 80 * time.Millisecond
	for arrived, want := range map[uint64]int{1: 0, 2: 0, 3: 1} {
		d, send := testDetector(t)
		for range 4 {
			send(time.Second, 1000)
		}
		r := d.onAckReceived(time.Second+rtt, acks(ackRange{1, arrived}))
		if len(r.lost) != want || r.rtt != rtt || d.bytesInFlight != unit.Bytes(4-int(arrived)-want)*1000 {
			t.Errorf("%d have arrived: %d are lost, round trip %v, %v in flight", arrived, len(r.lost), r.rtt,
				d.bytesInFlight)
		}
		if want > 0 {
			continue
		}
		if at := time.Second + rtt*9/8; d.lossTime != at || len(d.onLossTimer(at-1)) > 0 ||
			len(d.onLossTimer(at)) != 1 {
			t.Errorf("%d have arrived: lost at %v, not %v", arrived, d.lossTime, at)
		}
		if l, ok := d.takeLossReport(time.Minute); !ok || l.Bytes != 1000 || l.Sent != time.Second ||
			l.Now != time.Minute || l.PersistentCongestion {
			t.Errorf("%+v is reported", l)
		}
		if l, ok := d.takeLossReport(time.Minute); ok {
			t.Errorf("%+v is reported again", l)
		}
	}
}

// TestDetectorSpurious: the ACK of a packet declared lost raises the threshold to its reordering
// distance.
func TestDetectorSpurious(t *testing.T) {
	d, send := testDetector(t)
	for range 12 {
		send(time.Second, 1000)
	}
	if r := d.onAckReceived(1050*time.Millisecond, acks(ackRange{2, 10}, ackRange{0, 0})); len(r.lost) != 1 ||
		r.lost[0].number != 1 {
		t.Fatalf("%d are lost", len(r.lost))
	}
	r := d.onAckReceived(1060*time.Millisecond, acks(ackRange{0, 10}))
	if len(r.acked) != 1 || r.acked[0].size != 0 || r.rtt != 0 || d.spuriousCount != 1 || d.reorderThreshold != 10 {
		t.Errorf("%d acknowledged, threshold %d", len(r.acked), d.reorderThreshold)
	}
	if d.resetMeasurements(); d.reorderThreshold != packetThreshold || d.bytesInFlight != 0 || d.rtt != (rttEstimator{}) {
		t.Errorf("another path has a threshold of %d", d.reorderThreshold)
	}
}

// TestDetectorProbeTime: the probe timeout doubles up to maxProbeTimeout. An acknowledgement resets
// it.
func TestDetectorProbeTime(t *testing.T) {
	d, send := testDetector(t)
	now := time.Second
	send(now, 1000)
	for _, want := range []time.Duration{initialTimeout, maxProbeTimeout, maxProbeTimeout} {
		if got := d.probeTimerExpiry(true) - now; got != want {
			t.Fatalf("probe %d after %v, not %v", d.ptoCount, got, want)
		}
		now = d.probeTimerExpiry(true)
		d.onProbeTimeout(now)
	}
	send(now, 1000)
	d.onAckReceived(now+20*time.Millisecond, acks(ackRange{1, 1}))
	if got := d.probeTimerExpiry(true) - now; d.ptoCount != 0 || got != 20*time.Millisecond+40*time.Millisecond+ackDelay {
		t.Errorf("after an acknowledgement: after %v", got)
	}
}

// TestDetectorOutage: when a path that answered goes silent with data in flight, probes leave each
// outageProbeInterval, and after outageProbeTime each second. If the first answer takes about as long as
// before, the lost packets are no persistent congestion, and none at all if no queue was seen before.
func TestDetectorOutage(t *testing.T) {
	const rtt, second = 20 * time.Millisecond, time.Second
	type report struct{ loss, persistent bool }
	for what, c := range map[string]struct {
		before, after time.Duration // round trips
		silence       time.Duration
		noData        bool
		want          report
	}{
		"a failed handoff":                 {rtt, rtt, 2 * second, false, report{}},
		"the round trip is longer for 1 s": {rtt, rtt + 40*time.Millisecond, 2 * second, false, report{}},
		"a queue before":                   {rtt + 80*time.Millisecond, rtt, 2 * second, false, report{loss: true}},
		"a queue afterwards":               {rtt, rtt + 300*time.Millisecond, 2 * second, false, report{true, true}},
		"too long":                         {rtt, rtt, 8 * second, false, report{true, true}},
		"too short":                        {rtt, rtt, 10 * time.Millisecond, false, report{loss: true}},
		"no data in flight":                {rtt, rtt, 2 * second, true, report{}},
	} {
		d, send := testDetector(t)
		now := second
		for i := range 40 { // the variance vanishes
			took := rtt
			if i >= 20 {
				took = c.before
			}
			n := send(now, 1000)
			d.onAckReceived(now+took, acks(ackRange{n, n}))
			now += took
		}
		begin := now
		for range 10 {
			send(now, 1000)
		}
		for probes := 0; ; probes++ {
			at := d.probeTimerExpiry(!c.noData)
			if at-begin > c.silence {
				break
			}
			if wait := at - now; probes > 0 && !c.noData && now-begin < outageProbeTime &&
				wait != max(outageProbeInterval, d.rtt.smoothed) {
				t.Errorf("%s: probe %d after %v", what, probes, wait)
			} else if c.noData && probes == 4 && wait < 3*outageProbeInterval {
				t.Errorf("%s: probe %d after %v: the timeout does not double", what, probes, wait)
			}
			now = at
			d.onProbeTimeout(now)
			send(now, 100)
		}
		now = begin + c.silence
		for range 4 { // so that the packet threshold finds the loss
			send(now, 1000)
		}
		last := d.numbers.next - 1
		r := d.onAckReceived(now+c.after, acks(ackRange{last, last}))
		for range 3 { // some are lost by time
			r.lost = append(r.lost, d.onLossTimer(max(d.lossTime, now+c.after))...)
		}
		l, reported := d.takeLossReport(now + c.after)
		if got := (report{reported, l.PersistentCongestion}); len(r.lost) < 10 || got != c.want {
			t.Errorf("%s: %d are lost, reported %+v, want %+v", what, len(r.lost), got, c.want)
		}
	}
}

// TestDetectorChecksAcks: an ACK of a packet never sent is ignored. An ACK of a skipped number is
// an error.
func TestDetectorChecksAcks(t *testing.T) {
	d, send := testDetector(t)
	d.numbers.skipAt = 3
	for range 5 {
		send(time.Second, 0) // 0, 1, 2, 4, 5
	}
	for _, c := range []struct {
		ack *ackFrame
		ok  bool
		lie bool
	}{
		{acks(ackRange{0, 2}), true, false},
		{acks(ackRange{4, 5}, ackRange{0, 2}), true, false},
		{acks(ackRange{4, 6}), false, false},
		{acks(ackRange{0, 5}), false, true},
		{acks(ackRange{5, 5}, ackRange{3, 3}), false, true},
	} {
		if ok, err := d.validateAck(c.ack); ok != c.ok || errors.Is(err, errMalformed) != c.lie {
			t.Errorf("%v: %v, %v", c.ack.ranges[:c.ack.count], ok, err)
		}
	}
	if d.numbers.skippedBetween(0, 5) != 1 || d.numbers.skippedBetween(3, 5) != 0 ||
		d.numbers.skippedBetween(0, 3) != 0 {
		t.Error("what was left out is counted wrong")
	}
}

// TestDetectorMemory: a peer that acknowledges nothing costs bounded memory. Dropped packets are
// returned but not reported to the controller.
func TestDetectorMemory(t *testing.T) {
	for size, most := range map[unit.Bytes]int{1000: maxSentPackets, 0: maxNonEliciting} {
		d := newLossDetector()
		given := 0
		d.onPacketSent(sentPacket{sentTime: time.Second, size: 1000})
		for range maxSentPackets + 1000 {
			_, lost := d.onPacketSent(sentPacket{sentTime: time.Second, size: size})
			given += len(lost)
		}
		if d.sent.count > most || given == 0 || given != int(d.lostCount) {
			t.Errorf("%d packets are remembered, %d given up", d.sent.count, given)
		}
		if l, ok := d.takeLossReport(time.Second); ok {
			t.Errorf("%+v is reported", l)
		}
	}
}

// TestRTTEstimator: mean and variation are those of RFC 9002. The minimum RTT ignores the peer's
// acknowledgement delay.
func TestRTTEstimator(t *testing.T) {
	const ms = time.Millisecond
	var r rttEstimator
	if r.probeTimeout() != initialTimeout {
		t.Errorf("%v before any", r.probeTimeout())
	}
	for i, c := range []struct{ adjusted, full, smoothed, variation, min time.Duration }{
		{80 * ms, 82 * ms, 82 * ms, 41 * ms, 82 * ms}, // less than the least counts in full
		{90 * ms, 98 * ms, 83 * ms, 32750 * time.Microsecond, 82 * ms},
		{59 * ms, 59 * ms, 80 * ms, 30562500, 59 * ms},
	} {
		r.addRTTSample(time.Second, c.adjusted, c.full)
		if r.smoothed != c.smoothed || r.rttVar != c.variation || r.min != c.min || r.latest != c.full {
			t.Errorf("sample %d: %+v", i, r)
		}
	}
	if r.firstSample != time.Second || r.probeTimeout() != 80*ms+4*r.rttVar+ackDelay || r.lossDelay() != 90*ms {
		t.Errorf("%v, %v", r.probeTimeout(), r.lossDelay())
	}
}
