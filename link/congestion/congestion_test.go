// SPDX-License-Identifier: Apache-2.0

package congestion

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

const (
	ms     = time.Millisecond
	minRTT = 50 * ms
)

// hop feeds a Selector with samples of ten packets, five in a round trip.
type hop struct {
	Selector
	s Sample
}

// send sends ten packets with a queue; lost of them are lost.
func (h *hop) send(queue time.Duration, lost uint64) {
	h.s.MinRTT, h.s.SRTT, h.s.InFlight = minRTT, minRTT+queue, 50
	h.s.At += h.s.SRTT / 5
	h.s.Sent += 10
	h.s.Lost += lost
	h.Add(h.s)
}

// sendMany sends packets without losses.
func (h *hop) sendMany(samples int, queue time.Duration) {
	for range samples {
		h.send(queue, 0)
	}
}

// lose has that many loss events, 20 samples apart.
func (h *hop) lose(events int, queue time.Duration, packets uint64) {
	for range events {
		h.sendMany(20, queue)
		h.send(queue, packets)
	}
}

func (h *hop) expect(t *testing.T, what string, a Algorithm, r Reason) {
	t.Helper()
	if c := h.Choice(); c.Algorithm != a || c.Reason != r {
		t.Errorf("%s: %v, %v; want %v, %v", what, c.Algorithm, c.Reason, a, r)
	}
}

func TestChoiceUnderCUBIC(t *testing.T) {
	for what, c := range map[string]struct {
		events int
		queue  time.Duration
		lost   uint64
		want   Algorithm
	}{
		"no loss":                   {0, 0, 0, CUBIC},
		"one loss":                  {1, 0, 1, CUBIC},
		"two losses":                {2, 0, 1, CUBIC},
		"three losses":              {3, 0, 1, BBR},
		"three losses of two":       {3, 0, 2, BBR},
		"losses at a long queue":    {100, 40 * ms, 1, CUBIC},
		"bursts at a short queue":   {100, 5 * ms, 10, CUBIC},
		"losses with a small queue": {3, 10 * ms, 1, BBR},
	} {
		var h hop
		h.lose(c.events, c.queue, c.lost)
		reason := FewLosses
		if c.want == BBR {
			reason = LossesWithoutQueue
		}
		h.expect(t, what, c.want, reason)
	}
}

// TestSlowStartEndsEarly checks that BBR is chosen if the window has grown since slow start ended and
// the round trip has not.
func TestSlowStartEndsEarly(t *testing.T) {
	for what, c := range map[string]struct {
		queueFrom, queueTo time.Duration
		windowTo           int
		samples            int // with each window
		lost               uint64
		want               Algorithm
	}{
		"jitter":                        {15 * ms, 15 * ms, 60, 8, 0, BBR},
		"an empty hop":                  {0, 0, 60, 8, 0, BBR},
		"round trips vary":              {15 * ms, 19 * ms, 65, 8, 0, BBR},
		"a full hop":                    {6 * ms, 20 * ms, 65, 8, 0, CUBIC},
		"a full hop that drains slowly": {6 * ms, 16 * ms, 65, 8, 0, CUBIC},
		"too little growth":             {15 * ms, 15 * ms, 58, 8, 0, CUBIC},
		"too soon":                      {15 * ms, 15 * ms, 60, 2, 0, CUBIC},
		"a loss in slow start":          {15 * ms, 15 * ms, 80, 8, 1, CUBIC},
		"the window is not known":       {15 * ms, 15 * ms, 0, 8, 0, CUBIC},
	} {
		const windowFrom = 48
		var h hop
		h.s.SlowStart, h.s.Window = true, 20
		h.send(c.queueFrom, c.lost)
		h.s.SlowStart = false
		for w := min(windowFrom, c.windowTo); w <= c.windowTo; w++ {
			h.s.Window = w
			grown := float64(w-windowFrom) / float64(c.windowTo-windowFrom)
			h.sendMany(c.samples, c.queueFrom+time.Duration(grown*float64(c.queueTo-c.queueFrom)))
		}
		reason := FewLosses
		if c.want == BBR {
			reason = NotFull
		}
		h.expect(t, what, c.want, reason)
	}
}

// TestSlowStartAgain checks that a new slow start, as after a pause, begins the comparison anew, and
// that a failed trial is not repeated without losses.
func TestSlowStartAgain(t *testing.T) {
	var h hop
	h.s.Window = 40
	h.send(15*ms, 0)
	h.s.Window, h.s.SlowStart = 80, true
	h.send(15*ms, 0)
	h.s.SlowStart = false
	h.s.At += time.Minute
	h.send(15*ms, 0)
	h.expect(t, "the window of a new slow start", CUBIC, FewLosses)
	h.s.Window = 100
	h.failed = 1
	h.s.At += time.Minute
	h.send(15*ms, 0)
	h.expect(t, "after a failed trial", CUBIC, FewLosses)
}

// TestShallowQueue checks that losses of single packets count as congestion where they come when
// the queue is longer than usual, however short it is.
func TestShallowQueue(t *testing.T) {
	var h hop
	for range 100 {
		for i := range 40 {
			h.send(time.Duration(i)*ms/10, 0)
		}
		h.send(4*ms, 1)
	}
	h.expect(t, "sawtooth", CUBIC, FewLosses)
}

// TestLowQueue checks that one loss at a queue that is shorter than usual suffices.
func TestLowQueue(t *testing.T) {
	var h hop
	h.sendMany(20, 15*ms)
	h.send(0, 1)
	h.expect(t, "one loss", BBR, LossesWithoutQueue)
}

// TestTrialEnds checks each way back to CUBIC, and that a failed trial needs more evidence for the
// next one.
func TestTrialEnds(t *testing.T) {
	trial := func() *hop {
		h := &hop{}
		h.lose(3, 0, 1)
		h.sendMany(60, 0) // settles
		h.expect(t, "settled", BBR, LossesWithoutQueue)
		return h
	}
	h := trial()
	h.lose(100, 0, 1)
	h.expect(t, "the same losses", BBR, LossesWithoutQueue)

	h = trial()
	for i := 0; i < 20 && h.Choice().Algorithm == BBR; i++ {
		h.send(0, 2)
	}
	h.expect(t, "more losses", CUBIC, LossesGrew)
	h.lose(4, 0, 1)
	h.expect(t, "evidence for a first trial", CUBIC, LossesGrew)
	h.lose(2, 0, 1)
	h.expect(t, "evidence for a second trial", BBR, LossesWithoutQueue)

	h = trial()
	h.lose(10, 40*ms, 1)
	h.expect(t, "a long queue", CUBIC, LossesWithQueue)

	h = trial()
	h.sendMany(2000, 0)
	h.expect(t, "no losses", CUBIC, LossesEnded)
	h.lose(3, 0, 1)
	h.expect(t, "losses again", BBR, LossesWithoutQueue)

	h = trial()
	for i := 0; i < 60 && h.Choice().Algorithm == BBR; i++ {
		h.lose(1, 0, 1)
		h.sendMany(10, 0)
		h.send(0, 1)
	}
	h.expect(t, "a larger share, perhaps", CUBIC, Compared)
}

// TestSettling checks that the losses of BBR's search for the rate do not count.
func TestSettling(t *testing.T) {
	var h hop
	h.lose(3, 0, 1)
	for range 5 * (settlingRounds - 2) {
		h.send(20*ms, 5)
	}
	h.expect(t, "search", BBR, LossesWithoutQueue)
	var long hop
	long.lose(3, 0, 1)
	for long.settled < settlingRounds {
		long.send(100*ms, 1)
	}
	long.expect(t, "search with a long queue", BBR, LossesWithoutQueue)
}

// TestMemory checks that the next connection of a hop begins with what the last one has learned.
func TestMemory(t *testing.T) {
	var h hop
	h.lose(3, 0, 1)
	next := hop{Selector: *Resume(h.Memory())}
	next.expect(t, "resumed", BBR, LossesWithoutQueue)
	if next.Choice().Changes != 0 {
		t.Error("changes of another connection count")
	}
	next.sendMany(60, 0)
	for i := 0; i < 20 && next.Choice().Algorithm == BBR; i++ {
		next.send(0, 2)
	}
	next.expect(t, "more losses", CUBIC, LossesGrew)
	third := hop{Selector: *Resume(next.Memory())}
	third.lose(5, 0, 1)
	third.expect(t, "after a failed trial", CUBIC, LossesGrew)
	var fresh hop
	fresh.Selector = *Resume(Memory{})
	fresh.expect(t, "nothing learned", CUBIC, FewLosses)
}

// TestAnySamples gives random samples, also impossible ones: nothing panics, the choice changes only
// when Add says so, and a sample without news changes nothing.
func TestAnySamples(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		var s Selector
		var n Sample
		for range 2000 {
			n.At += time.Duration(r.Int64N(int64(20 * ms)))
			n.Sent += r.Uint64N(20)
			n.Lost += r.Uint64N(3)
			if r.IntN(20) == 0 {
				n.Lost -= min(n.Lost, 2)
			}
			n.MinRTT = time.Duration(r.Int64N(int64(60 * ms)))
			n.SRTT = time.Duration(r.Int64N(int64(120 * ms)))
			n.InFlight = r.IntN(100)
			before := s.Choice()
			changed := s.Add(n)
			after := s.Choice()
			if changed != (before.Algorithm != after.Algorithm) || changed != (after.Changes == before.Changes+1) {
				t.Fatalf("seed %d: %+v, %+v, changed %v", seed, before, after, changed)
			}
			if again := s; again.Add(n) {
				t.Fatalf("seed %d: the same sample changes the choice", seed)
			}
			if after.Reason.String() == "" || after.Algorithm.String() == "" {
				t.Fatal("no name")
			}
		}
	}
}

// BenchmarkAdd measures the work per write, after many losses under both algorithms.
func BenchmarkAdd(b *testing.B) {
	var h hop
	h.lose(10000, 40*ms, 1)
	h.lose(10000, 0, 1)
	h.sendMany(100, 0)
	for b.Loop() {
		h.send(0, 1)
	}
}

func TestBounds(t *testing.T) {
	for _, c := range []struct {
		k, n int
		p    float64
		want float64
	}{{0, 10, 0.3, 1}, {10, 10, 0.5, math.Pow(0.5, 10)}, {1, 2, 0.5, 0.75}, {3, 10, 0.1, 0.0702}, {5, 5, 1, 1}} {
		if got := binomialTail(c.k, c.n, c.p); math.Abs(got-c.want) > 1e-4 {
			t.Errorf("%d of %d at %v: %v, want %v", c.k, c.n, c.p, got, c.want)
		}
	}
	if chanceOfGrowth(0, 0, 5, 10) != 1 || chanceOfGrowth(1, 100, 0, 100) != 1 {
		t.Error("nothing known, and yet growth")
	}
	if p := chanceOfGrowth(2, 1000, 40, 1000); p > 1e-6 {
		t.Errorf("twenty times the losses: %v", p)
	}
	if p := chanceOfGrowth(20, 1000, 20, 1000); p < 0.3 {
		t.Errorf("the same losses: %v", p)
	}
	last := 1.0
	for sent := uint64(0); sent < 10000; sent += 100 {
		if u := upperShare(0, sent); u > last || u <= 0 {
			t.Fatalf("no loss of %d: at most %v, before %v", sent, u, last)
		} else {
			last = u
		}
	}
	if u := upperShare(20, 1000); u < 0.02 || u > 0.03 {
		t.Errorf("20 of 1000: at most %v", u)
	}
}
