// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestVerusCurve: the curve never falls, keeps a profile that never falls, and curveWindowFor
// inverts curveDelayFor.
func TestVerusCurve(t *testing.T) {
	const ms = time.Millisecond
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		v := NewVerus()
		v.minDelay = 20 * ms
		n := 2 + r.IntN(300)
		for w := 1; w <= n; w++ {
			if r.IntN(3) > 0 || w == n {
				v.recordDelay(w, 20*ms+time.Duration(w)*ms/4+time.Duration(r.IntN(int(8*ms))))
			}
		}
		v.fitDelayCurve(0)
		for w := 1; w < 2*n; w++ {
			a, b := v.curveDelayFor(float64(w-1)), v.curveDelayFor(float64(w))
			if b < a || w > n && b == a {
				t.Fatalf("seed %d: %v for %d packets after %v", seed, b, w, a)
			}
			if off := b - (20*ms + time.Duration(w)*ms/4); w < n && (off < -6*ms || off > 16*ms) {
				t.Fatalf("seed %d: %v for %d packets", seed, b, w)
			}
		}
		for d := 20 * ms; d < v.curveDelayFor(float64(2*n)); d += ms / 3 {
			w := v.curveWindowFor(d)
			if w > 1 && v.curveDelayFor(w) > d+time.Microsecond || v.curveDelayFor(w+1.01) <= d {
				t.Fatalf("seed %d: %v is %.1f packets, which is %v, and one more %v", seed, d, w, v.curveDelayFor(w),
					v.curveDelayFor(w+1))
			}
		}
	}
	v := NewVerus()
	v.minDelay = 10 * ms
	for w, d := range map[int]time.Duration{2: 10, 4: 20, 5: 40, 6: 30, 8: 50} {
		v.recordDelay(w, d*ms)
	}
	v.fitDelayCurve(0)
	for w, want := range []time.Duration{10, 10, 10, 15, 20, 35, 35, 42, 50} {
		if got := v.curveDelayFor(float64(w)).Round(ms); (got - want*ms).Abs() > ms {
			t.Errorf("%d packets: %v, want %v", w, got, want*ms)
		}
	}
}

// run passes acknowledgements to a Verus, one each millisecond, of packets sent a round trip
// before.
func (v *Verus) run(from, to, rtt time.Duration) {
	for now := from; now < to; now += time.Millisecond {
		v.OnSent(now, MSS, 20*MSS)
		if now >= rtt {
			v.OnAck(Ack{Now: now, Bytes: MSS, Packets: 1, RTT: rtt, Sent: now - rtt, InFlight: 20 * MSS})
		}
	}
}

// TestVerusTarget: constant delays raise the target by 2 ms each 5 ms. Growing delays lower it by 1
// ms, and delays over six times the minimum by 2 ms.
func TestVerusTarget(t *testing.T) {
	const ms = time.Millisecond
	v := NewVerus()
	v.run(0, 100*ms, 20*ms)
	v.OnLoss(Loss{Now: 100 * ms, Bytes: MSS, Sent: 99 * ms})
	if v.slowStart || !v.inRecovery {
		t.Fatal("a loss did not end slow start")
	}
	v.run(100*ms, 200*ms, 20*ms)
	if v.inRecovery {
		t.Fatal("still losing after five round trips")
	}
	was := v.targetDelay
	v.run(200*ms, 250*ms, 20*ms)
	if d := v.targetDelay - was; d != 20*ms {
		t.Errorf("in ten epochs of even delays by %v", d)
	}
	was = v.targetDelay
	for i := range time.Duration(10) {
		v.run(250*ms+5*i*ms, 255*ms+5*i*ms, 21*ms+i*ms)
	}
	if d := v.targetDelay - was; d < -12*ms || d > -6*ms {
		t.Errorf("in ten epochs of growing delays by %v", d)
	}
	was = v.targetDelay
	v.run(300*ms, 350*ms, 130*ms)
	if d := v.targetDelay - was; v.targetDelay != v.minDelay && (d < -20*ms || d > -14*ms) {
		t.Errorf("in ten epochs of long delays by %v to %v", d, v.targetDelay)
	}
}

// TestVerusLoss: a loss reduces the window at which it happened to 0.7, once a round trip. A
// timeout starts with the window of the minimum delay.
func TestVerusLoss(t *testing.T) {
	const ms = time.Millisecond
	v := NewVerus()
	v.run(0, 100*ms, 20*ms)
	w := v.windowWhenSent(95 * ms)
	if w < 60 || w > 90 {
		t.Fatalf("window in slow start: %.1f", w)
	}
	v.OnLoss(Loss{Now: 101 * ms, Bytes: MSS, Sent: 95 * ms, InFlight: 20 * MSS})
	cut := v.window
	if cut != verusLossFactor*w {
		t.Errorf("%.1f after a loss at %.1f", cut, w)
	}
	v.OnLoss(Loss{Now: 102 * ms, Bytes: MSS, Sent: 96 * ms, InFlight: 20 * MSS})
	if v.window != cut {
		t.Errorf("%.1f after a second loss of the same round trip", v.window)
	}
	v.OnLoss(Loss{Now: 200 * ms, PersistentCongestion: true})
	if l := v.Limits(200 * ms); l.Window > 3*MSS || l.Window < MSS {
		t.Errorf("after a timeout: %v", l.Window)
	}
}
