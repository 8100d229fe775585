// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"math"
	"testing"
	"time"

	"mpbond/base/unit"
)

// link is a model of one direction of a link, in virtual time. Senders get what they offer. If that
// is too much they get equal parts, as with TCP, but grow no faster than tcpStep permits. Shared
// traffic keeps to the limit, which takes effect one delay after the decision.
type link struct {
	LinkShare
	now         time.Time
	capacity    unit.Rate
	own, shared float64 // bytes
	ownRate     float64 // bit/s, now
	asked       uint64
	limits      []float64
	last        ShareDecision
}

const (
	modelStep  = 5 * time.Millisecond
	limitDelay = 100 * time.Millisecond // one way, and what is queued
	ownGain    = 0.05                   // of the missing rate, each step: about 100 ms
)

func newLink(capacity unit.Rate) *link {
	return &link{now: time.Unix(1000, 0), capacity: capacity}
}

// run lets the owner offer the rate own, and others the rate shared, for d. It returns the rate of
// each, in Mbit/s.
func (l *link) run(d time.Duration, own, shared unit.Rate) (gotOwn, gotShared float64) {
	ownBefore, sharedBefore := l.own, l.shared
	for t := time.Duration(0); t < d; t += modelStep {
		if l.now.UnixNano()/int64(modelStep)%10 == 0 {
			l.last = l.Observe(l.now, LinkBytes{Owner: uint64(l.own), Shared: uint64(l.shared), Requested: l.asked})
		}
		limit := math.Inf(1)
		if l.last.Limited {
			limit = float64(l.last.Limit)
		}
		l.limits = append(l.limits, limit)
		if n := int(limitDelay / modelStep); len(l.limits) > n {
			limit = l.limits[len(l.limits)-n-1]
		}
		want, c := float64(own), float64(l.capacity)
		b := min(float64(shared), limit)
		fair := max(c/2, c-b)
		target := min(want, fair)
		l.ownRate += (target - l.ownRate) * ownGain
		b = min(b, c-l.ownRate)
		sec := modelStep.Seconds() / 8
		l.own += l.ownRate * sec
		l.shared += b * sec
		l.now = l.now.Add(modelStep)
	}
	sec := d.Seconds() * 1e6 / 8
	return (l.own - ownBefore) / sec, (l.shared - sharedBefore) / sec
}

const much = 1000 * unit.Mbps

func TestOwnerComesFirst(t *testing.T) {
	for _, c := range []struct {
		name               string
		before             unit.Rate // shared, 5 s, while the owner is idle
		own                unit.Rate // then, for 10 s, beside all that can be shared
		leastOwn           float64   // Mbit/s it gets
		leastShared, atMax float64
	}{
		{"owner in bulk, link known", much, much, 9.5, 0, 0.6},
		{"owner in bulk, nothing known", 0, much, 9.3, 0, 0.7},
		{"owner needs a little", much, 1 * unit.Mbps, 0.97, 7, 9.1},
		{"owner needs half", much, 5 * unit.Mbps, 4.8, 2.5, 5},
		{"owner hardly there", much, 200 * unit.Kbps, 0.18, 9, 10},
	} {
		l := newLink(10 * unit.Mbps)
		l.run(5*time.Second, 0, c.before)
		own, shared := l.run(10*time.Second, c.own, much)
		if own < c.leastOwn || shared < c.leastShared || shared > c.atMax {
			t.Errorf("%s: owner %.2f, shared %.2f Mbit/s; at the end %+v", c.name, own, shared, l.last)
		}
	}
}

// TestIdleOwnerSharesAll: without limit at first, and soon again after the
// owner was busy.
func TestIdleOwnerSharesAll(t *testing.T) {
	l := newLink(5 * unit.Mbps)
	if _, shared := l.run(3*time.Second, 0, much); shared < 4.99 || l.last.Limited {
		t.Errorf("shared %.2f Mbit/s, %+v", shared, l.last)
	}
	l.run(3*time.Second, much, much)
	if !l.last.Limited || l.last.Limit > 110*unit.Kbps || l.last.Reason != reasonYielding {
		t.Errorf("while the owner is busy: %+v", l.last)
	}
	l.run(time.Second, 0, much)
	if _, shared := l.run(time.Second, 0, much); shared < 4.9 || l.last.Limited {
		t.Errorf("a second after the owner ended: shared %.2f Mbit/s, %+v", shared, l.last)
	}
}

// TestSmallThingsDoNotCount: requests of 10 KB each second take nothing from others.
func TestSmallThingsDoNotCount(t *testing.T) {
	l := newLink(5 * unit.Mbps)
	l.run(2*time.Second, 0, much)
	for range 10 {
		l.run(35*time.Millisecond, 2500*unit.Kbps, much)
		l.run(965*time.Millisecond, 0, much)
		if l.last.Limited {
			t.Fatalf("%+v", l.last)
		}
	}
}

// TestYieldsQuickly: an owner that becomes busy has the link within half a
// second.
func TestYieldsQuickly(t *testing.T) {
	l := newLink(5 * unit.Mbps)
	l.run(2*time.Second, 0, much)
	l.run(500*time.Millisecond, much, much)
	if own, _ := l.run(500*time.Millisecond, much, much); own < 4.5 {
		t.Errorf("after half a second the owner gets %.2f of 5 Mbit/s: %+v", own, l.last)
	}
}

// TestRequestIsAHint: after a request most of the link is free when the response arrives. Without a
// response everything is shared again.
func TestRequestIsAHint(t *testing.T) {
	l := newLink(10 * unit.Mbps)
	l.run(2*time.Second, 0, much)
	l.asked += 300
	l.run(100*time.Millisecond, 0, much)
	if !l.last.Limited || l.last.Limit != unit.Mbps || l.last.Reason != reasonExpects {
		t.Errorf("after a request %+v", l.last)
	}
	if l.run(time.Second, 0, much); l.last.Limited {
		t.Errorf("after a request that nothing came of %+v", l.last)
	}
	l.asked += 300
	l.run(100*time.Millisecond, 0, much)
	l.run(300*time.Millisecond, much, much)
	l.asked += 3000 // acknowledgements
	if l.run(50*time.Millisecond, much, much); l.last.Reason != reasonYielding {
		t.Errorf("when the answer came %+v", l.last)
	}
}

// TestLinkBecomesSlower: the former capacity counts until sharing by it takes from the owner.
func TestLinkBecomesSlower(t *testing.T) {
	l := newLink(10 * unit.Mbps)
	l.run(3*time.Second, 0, much)
	l.capacity = 3 * unit.Mbps
	l.run(3*time.Second, much, much)
	if own, _ := l.run(10*time.Second, much, much); own < 2.7 {
		t.Errorf("the owner gets %.2f of 3 Mbit/s: %+v", own, l.last)
	}
}

// TestOwnerGrows: from a little to all there is.
func TestOwnerGrows(t *testing.T) {
	l := newLink(10 * unit.Mbps)
	l.run(3*time.Second, 0, much)
	l.run(3*time.Second, unit.Mbps, much)
	if l.last.Limited && l.last.Reason == reasonSharing {
		l.run(time.Second, much, much)
		if own, _ := l.run(2*time.Second, much, much); own < 9.3 {
			t.Errorf("the owner gets %.2f of 10 Mbit/s: %+v", own, l.last)
		}
	} else if l.last.Limited {
		t.Errorf("an owner of 1 Mbit/s: %+v", l.last)
	}
}

// TestOwnerWaitsForLostPacket: after a loss the owner's bytes in order stall and then jump, while
// its packets still fill the link. Nothing is shared meanwhile. Without a counter this cannot be
// seen.
func TestOwnerWaitsForLostPacket(t *testing.T) {
	for _, counted := range []bool{true, false} {
		var l LinkShare
		now := time.Unix(1000, 0)
		total, waiting := uint64(1000), uint64(0)
		var most unit.Rate
		for i := range 100 {
			now = now.Add(50 * time.Millisecond)
			total += 62_500 // 10 Mbit/s
			if waiting += 62_500; i%30 < 22 {
				waiting = 0 // in order
			}
			m := LinkBytes{Owner: total - waiting}
			if counted {
				m.Total = total
			}
			if g := l.Observe(now, m); i >= 20 {
				most = max(most, g.Limit)
				if !g.Limited {
					most = much
				}
			}
		}
		if counted != (most == minSharedRate) {
			t.Errorf("counted %v: up to %v is shared", counted, most)
		}
	}
}

// TestLinkShareSurvivesOddCounters: time and counters that stand still or go back.
func TestLinkShareSurvivesOddCounters(t *testing.T) {
	var l LinkShare
	now := time.Unix(1000, 0)
	for _, v := range []uint64{0, 0, 1 << 40, 5, 1 << 62, 0} {
		for _, d := range []time.Duration{0, time.Millisecond, 300 * time.Millisecond, time.Hour} {
			now = now.Add(d)
			if g := l.Observe(now, LinkBytes{v, v / 2, v / 3, v}); g.Limited && g.Limit < minSharedRate {
				t.Errorf("%+v", g)
			}
		}
	}
}

// TestRest: what others move is counted, later; what only looks so for a
// moment, because packets after a lost one wait, is not.
func TestRest(t *testing.T) {
	var r OtherTraffic
	now := time.Unix(1000, 0)
	total, known := uint64(1<<40), uint64(0)
	for i := range 200 {
		now = now.Add(50 * time.Millisecond)
		total += 10_000
		known += 10_000
		waiting := uint64(0)
		if i%20 < 5 { // 250 ms of each second
			waiting = uint64(i%20) * 10_000
		}
		if n := r.Observe(now, total, known-waiting); n > 10_000 {
			t.Fatalf("%d bytes of nobody after %d steps", n, i)
		}
	}
	before := r.Observe(now, total, known)
	for range 100 {
		now = now.Add(50 * time.Millisecond)
		total += 12_000
		known += 10_000
		r.Observe(now, total, known)
	}
	if n := r.Observe(now, total, known) - before; n < 180_000 || n > 200_000 {
		t.Errorf("%d bytes of others, they have moved 200000", n)
	}
}
