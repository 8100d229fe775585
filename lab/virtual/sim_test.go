// SPDX-License-Identifier: Apache-2.0

package virtual

import (
	"slices"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/pbe/cc"
)

// TestWire: packets leave in order, each a transmission time after the previous one, at the current
// rate. A full queue drops packets.
func TestWire(t *testing.T) {
	w := NewWire(func(now time.Duration) unit.Rate {
		if now >= 5*ms {
			return 6 * unit.Mbps
		}
		return 12 * unit.Mbps // 1 ms for a packet
	}, 7*cc.MSS)
	kept := 0
	for i := range 10 {
		if w.Offer(0, &Packet{Size: cc.MSS, seq: int64(i)}) {
			kept++
		}
	}
	var at []time.Duration
	for seq := int64(0); w.Next() != Never; {
		now := w.Next()
		for _, p := range w.Leave(now, nil) {
			if p.seq != seq {
				t.Errorf("packet %d, want %d", p.seq, seq)
			}
			seq++
			at = append(at, now)
		}
	}
	if want := []time.Duration{ms, 2 * ms, 3 * ms, 4 * ms, 5 * ms, 7 * ms, 9 * ms}; kept != 7 ||
		!slices.Equal(at, want) {
		t.Errorf("%d kept; left at %v, want %v", kept, at, want)
	}
}

// fixedWindow is a controller with a constant window.
type fixedWindow struct {
	packets unit.Bytes
	losses  []cc.Loss
	acks    []cc.Ack
	until   time.Duration
}

func (w *fixedWindow) OnSent(time.Duration, unit.Bytes, unit.Bytes) {}
func (w *fixedWindow) OnAck(a cc.Ack)                               { w.acks = append(w.acks, a) }
func (w *fixedWindow) OnLoss(l cc.Loss)                             { w.losses = append(w.losses, l) }
func (w *fixedWindow) Limits(now time.Duration) cc.Limits {
	if now < w.until {
		return cc.Limits{Until: w.until}
	}
	return cc.Limits{Window: w.packets * cc.MSS}
}

// TestRunByHand has cases with known results: rate, delay, rounds and delivery-rate samples of a
// window below and above the bandwidth-delay product.
func TestRunByHand(t *testing.T) {
	// 12 Mbit/s, 50 ms there and back, 1 ms a packet: 51 ms for a window of 1.
	flow := Flow{DelayToLink: 20 * ms, DelayFromLink: 5 * ms, AckDelay: 25 * ms}
	for packets, want := range map[unit.Bytes]struct {
		rate   unit.Rate
		oneWay time.Duration
	}{
		1:  {unit.RateOf(cc.MSS, 51*ms), 26 * ms},
		10: {unit.RateOf(10*cc.MSS, 51*ms), 26 * ms}, // bursts at first, then one for each acknowledgement
		51: {12 * unit.Mbps, 26 * ms},
		61: {12 * unit.Mbps, 36 * ms},
	} {
		w := &fixedWindow{packets: packets}
		flow.Controller = w
		r := Run(NewWire(SteadyRate(12*unit.Mbps), 100*cc.MSS), 10*time.Second, 1, flow)[0]
		got := float64(r.Rate(time.Second, 10*time.Second))
		if d := got / float64(want.rate); d < 0.99 || d > 1.01 {
			t.Errorf("window %d: %.3g, want %v", packets, got, want.rate)
		}
		// Of a burst of ten the last waits for nine.
		if d := r.Delay(time.Second, 10*time.Second, 0); d > want.oneWay ||
			r.Delay(time.Second, 10*time.Second, 1) < want.oneWay || r.Lost > 0 {
			t.Errorf("window %d: one-way delay %v, want %v; %v lost", packets, d, want.oneWay, r.Lost)
		}
		rounds := 0
		for _, a := range w.acks {
			if a.Round {
				rounds++
			}
		}
		last := w.acks[len(w.acks)-1]
		if d := float64(last.Rate) / float64(want.rate); d < 0.9 || d > 1.1 {
			t.Errorf("window %d: sample %v, want %v", packets, last.Rate, want.rate)
		}
		rtt := max(51*ms, time.Duration(packets)*ms)
		if want := int(10 * time.Second / rtt); rounds < want-2 || rounds > want+2 {
			t.Errorf("window %d: %d rounds, want %d", packets, rounds, want)
		}
	}
}

// TestRunLoses: each lost packet is reported once, by later packets or by timeout. Sent packets are
// delivered, lost or in flight.
func TestRunLoses(t *testing.T) {
	w := &fixedWindow{packets: 20}
	r := Run(NewWire(SteadyRate(12*unit.Mbps), 100*cc.MSS), 10*time.Second, 3,
		Flow{Controller: w, DelayToLink: 25 * ms, AckDelay: 25 * ms, Loss: 0.1})[0]
	var reported unit.Bytes
	for _, l := range w.losses {
		reported += l.Bytes
	}
	part := float64(r.Lost) / float64(r.Sent)
	if reported != r.Lost || part < 0.08 || part > 0.12 || r.Sent-r.Lost-r.Delivered > 25*cc.MSS {
		t.Errorf("reported %v; %+v", reported, r.Lost)
	}
	// All are lost: a timeout after a second, then after the least time.
	w = &fixedWindow{packets: 2}
	r = Run(NewWire(SteadyRate(12*unit.Mbps), 0), 5*time.Second, 3, Flow{Controller: w})[0]
	if len(w.losses) != 5 && len(w.losses) != 4 || !w.losses[0].PersistentCongestion || w.losses[0].Now != time.Second ||
		r.Delivered != 0 {
		t.Errorf("%d losses: %+v", len(w.losses), w.losses)
	}
}

// TestRunAsksAgain: Limits is called again at Limits.Until.
func TestRunAsksAgain(t *testing.T) {
	w := &fixedWindow{packets: 1, until: 3 * time.Second}
	r := Run(NewWire(SteadyRate(12*unit.Mbps), 100*cc.MSS), 4*time.Second, 3, Flow{Controller: w})[0]
	if len(r.Arrivals) == 0 || r.Arrivals[0].At != 3*time.Second+ms {
		t.Errorf("%d arrivals", len(r.Arrivals))
	}
}

// TestRunIsRepeatable: the same seed gives the same run, another seed a different one.
func TestRunIsRepeatable(t *testing.T) {
	run := func(seed uint64) []Arrival {
		return Run(NewWire(SteadyRate(5*unit.Mbps), 30*cc.MSS), 3*time.Second, seed,
			Flow{Controller: cc.NewBBR(1), DelayToLink: 20 * ms, AckDelay: 20 * ms, Loss: 0.02})[0].Arrivals
	}
	if a := run(1); !slices.Equal(a, run(1)) || slices.Equal(a, run(2)) {
		t.Error("runs differ with one seed, or are the same with two")
	}
}

// TestCaseIsRepeatable: the same holds for cases with cells.
func TestCaseIsRepeatable(t *testing.T) {
	run := func(seed uint64) []Arrival {
		c := Location(3, seed)
		c.Length = time.Second
		return c.Run("pbe").Flows[0].Arrivals
	}
	if a := run(1); len(a) < 100 || !slices.Equal(a, run(1)) || slices.Equal(a, run(2)) {
		t.Error("runs differ with one seed, or are the same with two")
	}
}

// TestJitter: delays are as long as configured in as many cases, and packets keep their order.
func TestJitter(t *testing.T) {
	j := NewJitter(3*ms, 0.94, 1)
	var within, all, seq int
	for now := time.Duration(0); now < 20*time.Second; now += 10 * ms {
		for range 2 {
			j.Offer(now, &Packet{Sent: now, seq: int64(all)})
			all++
		}
		for j.Next() < now+10*ms {
			at := j.Next()
			for _, p := range j.Leave(at, nil) {
				if p.seq != int64(seq) {
					t.Fatalf("packet %d, want %d", p.seq, seq)
				}
				if seq++; p.seq%2 == 0 && at-p.Sent <= 3*ms { // the second may wait for the first
					within++
				}
			}
		}
	}
	if part := 2 * float64(within) / float64(seq); part < 0.92 || part > 0.96 || seq < all-10 {
		t.Errorf("%.3f within 3 ms, want 0.94; %d of %d came", part, seq, all)
	}
}
