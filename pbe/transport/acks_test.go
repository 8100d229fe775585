// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// ackOf returns the ACK that a tracker appends.
func ackOf(t *testing.T, a *ackTracker, now time.Duration) ackFrame {
	t.Helper()
	var f frame
	in := frameReader{buf: a.appendAckFrame(now, nil, 77)}
	if err := in.readNextFrame(&f); err != nil || len(in.buf) > 0 || f.kind != frameAck || f.ack.maxData != 77 {
		t.Fatalf("%+v, %v", f, err)
	}
	return f.ack
}

// TestAckTimes: an ACK is due with the second ack-eliciting packet, at once for one out of order,
// and after ackDelay for a single one. Packets that elicit no ACK wait.
func TestAckTimes(t *testing.T) {
	const now = time.Second
	for what, c := range map[string]struct {
		numbers   []uint64
		eliciting bool
		due       bool
		at        time.Duration
	}{
		"one":          {[]uint64{0}, true, false, now + ackDelay},
		"two":          {[]uint64{0, 1}, true, true, now + ackDelay},
		"a gap":        {[]uint64{1}, true, true, 0},
		"overtaken":    {[]uint64{0, 2, 1}, true, true, now + ackDelay},
		"asks nothing": {[]uint64{0, 1, 5}, false, false, 0},
	} {
		var a ackTracker
		for _, n := range c.numbers {
			a.onPacketReceived(now, n, c.eliciting)
		}
		if a.ackNow != c.due || a.ackTime != c.at {
			t.Errorf("%s: due %v, at %v", what, a.ackNow, a.ackTime)
		}
		if a.onAckDelayTimer(now + ackDelay); a.ackNow != (c.due || c.at > 0) {
			t.Errorf("%s: due later: %v", what, a.ackNow)
		}
		if ackOf(t, &a, now); a.ackNow || a.ackTime > 0 || a.pending > 0 {
			t.Errorf("%s: due again", what)
		}
		if a.shouldSend(false) || a.shouldSend(true) != c.eliciting {
			t.Errorf("%s: useful: %v", what, a.shouldSend(true))
		}
		if a.onAckConfirmed(a.eliciting); a.shouldSend(true) {
			t.Errorf("%s: useful though it is known to have arrived", what)
		}
	}
}

// TestAckRanges: an ACK has only numbers that arrived, the largest first, with the arrival time and
// one-way delay of that packet. Memory is bounded. Forgotten numbers count as received.
func TestAckRanges(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		var a ackTracker
		arrived, largest, at := map[uint64]bool{}, uint64(0), time.Duration(0)
		now, next := time.Second, uint64(0)
		for range 2000 {
			now += time.Duration(r.IntN(3000)) * time.Microsecond
			n := next + uint64(r.IntN(4))
			if r.IntN(4) == 0 && next > 0 {
				n = next - min(next, uint64(r.IntN(200)))
			}
			if a.isNumberTooOld(n) != (n < a.floor) || !a.isNumberTooOld(n) && a.isDuplicate(n) != arrived[n] {
				t.Fatalf("seed %d: %d: old %v, duplicate %v", seed, n, a.isNumberTooOld(n), a.isDuplicate(n))
			}
			if a.isNumberTooOld(n) || arrived[n] {
				continue
			}
			if n >= a.nextExpected() {
				largest, at, a.oneWayDelay = n, now, uint32(n)
			}
			a.onPacketReceived(now, n, r.IntN(2) == 0)
			arrived[n], next = true, max(next, n+1)
			if len(a.received) > maxReceivedRanges || a.nextExpected() != largest+1 {
				t.Fatalf("seed %d: %d ranges, %d is expected", seed, len(a.received), a.nextExpected())
			}
			if r.IntN(4) > 0 {
				continue
			}
			f := ackOf(t, &a, now)
			if f.ranges[0].hi != largest || f.oneWayDelay != uint32(largest) ||
				f.delay != (now-at).Truncate(time.Microsecond) {
				t.Fatalf("seed %d: %+v of %d", seed, f.ranges[0], largest)
			}
			for _, s := range f.ranges[:f.count] {
				for n := s.lo; n <= s.hi; n++ {
					if !arrived[n] {
						t.Fatalf("seed %d: %d is acknowledged", seed, n)
					}
				}
			}
		}
	}
}

// TestAckRepeats: a range is repeated for a second and in at least minRepeats ACKs, then no more.
func TestAckRepeats(t *testing.T) {
	for each, least := range map[time.Duration]int{10 * time.Millisecond: 100, 500 * time.Millisecond: minRepeats} {
		var a ackTracker
		a.onPacketReceived(time.Second, 0, true)
		now, in := time.Second, 0
		for n := uint64(2); n < 1000; n++ {
			now += each
			a.onPacketReceived(now, n, true)
			f := ackOf(t, &a, now)
			if !slices.Contains(f.ranges[:f.count], ackRange{0, 0}) {
				break
			}
			in++
		}
		if in < least || in > 2*least+minRepeats {
			t.Errorf("every %v: in %d acknowledgements", each, in)
		}
	}
}
