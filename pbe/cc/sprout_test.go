// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// poisson draws a Poisson count.
func poisson(r *rand.Rand, mean float64) (k int) {
	for p := r.Float64(); p > math.Exp(-mean); k++ {
		p *= r.Float64()
	}
	return k
}

// TestSproutTables simulates the model ten thousand times from some rates and compares the
// distribution of deliveries.
func TestSproutTables(t *testing.T) {
	s := NewSprout()
	r := rand.New(rand.NewPCG(1, 2))
	for _, from := range []int{0, 5, 64, 200, 255} {
		const runs = 10000
		var counts [1000]int
		for range runs {
			at, sum := from, 0
			for range sproutHorizon {
				x, p := r.Float64(), 0.0
				to := -1
				s.forEachStep(at, func(j int, q float64) {
					if p += q; to < 0 && p >= x {
						to = j
					}
				})
				if to >= 0 {
					at = to
				}
				sum += poisson(r, sproutBinRate(at))
			}
			counts[sum]++
		}
		below := 0.0
		for k := range sproutMaxCount {
			below += float64(counts[k]) / runs
			if d := math.Abs(below - s.deliveryCDF[from][k]); d > 0.02 {
				t.Errorf("from bin %d: %d at most with %.3f, want %.3f", from, k, s.deliveryCDF[from][k], below)
				break
			}
		}
	}
}

// TestSproutForecast: the rate of a link that is always full is found in half a second. For a link
// that is not full, the forecast is no less than the rate.
func TestSproutForecast(t *testing.T) {
	play := func(perTick int, queued bool, from, to time.Duration, s *Sprout) float64 {
		for now := from; now < to; now += sproutTick / 20 {
			s.OnSent(now, MSS, 20*MSS)
			if int(now/(sproutTick/20))%20 < perTick {
				rtt := 50 * time.Millisecond
				if queued && now > 0 {
					rtt *= 2
				}
				s.OnAck(Ack{Now: now, Bytes: MSS, RTT: rtt})
			}
		}
		return float64(s.Limits(to).Window / MSS)
	}
	s := NewSprout()
	if w := play(10, true, 0, 500*time.Millisecond, s); w < 25 || w > 45 {
		t.Errorf("10 packets a tick: %v surely within 5", w)
	}
	if w := play(3, true, 500*time.Millisecond, time.Second, s); w < 2 || w > 13 {
		t.Errorf("3 packets a tick: %v surely within 5", w)
	}
	if w := play(3, false, time.Second, 5*time.Second, s); w < 20 {
		t.Errorf("3 packets a tick, and no queue: %v surely within 5", w)
	}
}
