// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"testing"
	"time"

	"mpbond/base/unit"
)

// TestLimitIsNoMeasurement checks that the estimate equals a configured pace, and returns to the
// previous value afterwards.
func TestLimitIsNoMeasurement(t *testing.T) {
	w := &linkSim{now: t0, h: Hop{SRTT: 20 * ms, MinRTT: 20 * ms, MSS: 1448}}
	p := Subflow{}
	step := func(offered unit.Rate) unit.Rate {
		for range 100 {
			w.runFor(10*ms, 10*unit.Mbps, offered)
			p.AddLocalSample(w.now, w.h)
		}
		return p.EstimateAt(w.now).Th
	}
	if th := step(20 * unit.Mbps); !withinPercent(th, 10*unit.Mbps, 5) {
		t.Errorf("at first %v", th)
	}
	w.queue, w.h.PacingLimit, w.h.Unsent = 0, 200*unit.Kbps, 16<<10
	if th := step(200 * unit.Kbps); th != 200*unit.Kbps {
		t.Errorf("under a limit of 200 kbit/s: %v", th)
	}
	w.h.PacingLimit = 0
	if th := p.EstimateAt(w.now.Add(time.Millisecond)).Th; th != 200*unit.Kbps {
		t.Errorf("the limit is that of the newest sample: %v", th)
	}
	w.h.Unsent = 0
	p.AddLocalSample(w.now.Add(time.Second), w.h)
	if th := p.EstimateAt(w.now.Add(time.Second)).Th; !withinPercent(th, 10*unit.Mbps, 5) {
		t.Errorf("when it has ended: %v", th)
	}
}

// TestAcksBehindData has a hop whose acknowledgements wait for 160 ms behind data of the other direction, with
// a train of packets in flight. That is no rate, whether the hop was measured before or not.
func TestAcksBehindData(t *testing.T) {
	for _, before := range []unit.Rate{0, 3 * unit.Mbps} {
		w := &linkSim{now: t0, h: Hop{SRTT: 25 * ms, MinRTT: 17 * ms, MSS: 1448}}
		w.runFor(time.Second, before, 2*before)
		h, least := &w.h, max(300*unit.Kbps, before*9/20) // the silence began within a span
		step := func(queue unit.Bytes, acked uint64) {
			w.now = w.now.Add(20 * ms)
			h.Queue, h.Acked = queue, h.Acked+acked
			w.m.Add(w.now, *h)
			if r, lowerBound := w.m.Rate(); !lowerBound && r < least {
				t.Errorf("%v before, then %v", before, r)
			}
		}
		step(8*1448, 0)
		step(8*1448, 150) // a small packet before the train
		for range 7 {
			step(8*1448, 0)
		}
		h.SRTT = 130 * ms
		step(3*1448, 5*1448)
		step(0, 3*1448)
	}
}

// TestFallToAlmostNothing has a hop that becomes so slow that it carries no two packets in the longest
// span of a measurement.
func TestFallToAlmostNothing(t *testing.T) {
	w := &linkSim{now: t0, h: Hop{SRTT: 20 * ms, MinRTT: 20 * ms, MSS: 1448}}
	w.runFor(time.Second, 5*unit.Mbps, 6*unit.Mbps)
	if r, _ := w.m.Rate(); !withinPercent(r, 5*unit.Mbps, 5) {
		t.Errorf("before the fall %v", r)
	}
	w.h.SRTT = time.Second // its queue
	w.runFor(2*time.Second, 50*unit.Kbps, 50*unit.Kbps)
	if r, lowerBound := w.m.Rate(); lowerBound || r > 100*unit.Kbps {
		t.Errorf("after it %v, lower bound %v", r, lowerBound)
	}
}

// TestFall checks when a hop counts as fallen: a queue, and less than half of the former rate; for three
// seconds, or until it is faster again.
func TestFall(t *testing.T) {
	for _, c := range []struct {
		name string
		then unit.Rate
		rtt  time.Duration
		want bool
	}{
		{"a tenth", unit.Mbps, 100 * ms, true},
		{"more than half", 6 * unit.Mbps, 100 * ms, false},
		{"without a queue", unit.Mbps, 20 * ms, false},
	} {
		w := &linkSim{now: t0, h: Hop{SRTT: 20 * ms, MinRTT: 20 * ms, MSS: 1448}}
		w.runFor(time.Second, 10*unit.Mbps, 15*unit.Mbps)
		if w.m.hasFallen(w.now) {
			t.Fatal("fallen at first")
		}
		w.h.SRTT = c.rtt
		w.runFor(300*ms, c.then, c.then)
		if got := w.m.hasFallen(w.now); got != c.want {
			t.Errorf("%s: fallen: %v", c.name, got)
		}
		p := Subflow{localMeter: w.m}
		p.AddLocalSample(w.now, w.h)
		if e := p.EstimateAt(w.now); e.FallenQueueTime > 0 != c.want || c.want && e.FallenQueueTime != e.QueueTime {
			t.Errorf("%s: it waits %v, of %v", c.name, e.FallenQueueTime, e.QueueTime)
		}
		if w.m.hasFallen(w.now.Add(fallMemory)) {
			t.Errorf("%s: fallen for ever", c.name)
		}
		w.runFor(300*ms, 9*unit.Mbps, 15*unit.Mbps)
		if w.m.hasFallen(w.now) {
			t.Errorf("%s: fallen, although it is fast again", c.name)
		}
	}
}
