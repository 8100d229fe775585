// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"testing"
	"time"

	"mpbond/base/unit"
)

// TestTrainOfADirectSubflow checks that a train bounds the rate that TCP's window suggests, until
// the hop was at its limit.
func TestTrainOfADirectSubflow(t *testing.T) {
	var p Subflow
	hop := Hop{SRTT: 100 * ms, MinRTT: 100 * ms, MSS: 1448, Cwnd: 14_480, SlowStart: true}
	p.AddLocalSample(t0, hop)
	window := unit.RateOf(14_480, 100*ms)
	if n := p.EstimateAt(t0); n.Th != window || n.DoublingTime != 100*ms || n.Ceiling != 0 {
		t.Errorf("nothing is known: %+v", n)
	}
	p.SetTrain(8*unit.Mbps, 0)
	if n := p.EstimateAt(t0); n.Th != window || n.DoublingTime != 100*ms || n.Ceiling != 8*unit.Mbps {
		t.Errorf("8 Mbit/s by a train: %+v", n)
	}
	p.SetTrain(800*unit.Kbps, 0)
	if n := p.EstimateAt(t0); n.Th != 800*unit.Kbps || n.DoublingTime != 0 {
		t.Errorf("0.8 Mbit/s by a train: %+v", n)
	}
	p.localMeter.rate, p.localMeter.limitSeen = 3*unit.Mbps, true
	if n := p.EstimateAt(t0); n.Th != 3*unit.Mbps || n.DoublingTime != 0 {
		t.Errorf("measured at its limit: %+v", n)
	}
}

// TestTrainOfAHelper checks that the rate of a train replaces the guesses for a helped subflow
// until the helper reports more.
func TestTrainOfAHelper(t *testing.T) {
	p := Subflow{Helped: true}
	p.AddLocalSample(t0, Hop{SRTT: 5 * ms, MinRTT: 5 * ms, MSS: 1448, Cwnd: 14_480})
	p.SetTrain(2*unit.Mbps, 75*ms)
	if n := p.EstimateAt(t0); n.Th > 2*unit.Mbps || n.Ceiling != 2*unit.Mbps ||
		!nearlyEqual(n.OWD, 37500*time.Microsecond) {
		t.Errorf("by the train: %+v", n)
	}
	p.SetTrain(3*unit.Mbps, 200*ms)
	if n := p.EstimateAt(t0); !nearlyEqual(n.OWD, 37500*time.Microsecond) {
		t.Errorf("a known round trip is replaced: %+v", n)
	}
}

// TestTrainUnderAPace checks that neither a train nor what was carried before exceeds the pace that
// is set for the local hop, and that a train does not replace the limit of that hop.
func TestTrainUnderAPace(t *testing.T) {
	hop := Hop{SRTT: 20 * ms, MinRTT: 20 * ms, MSS: 1448, Cwnd: 14_480, SlowStart: true, PacingLimit: unit.Mbps}
	for _, helped := range []bool{false, true} {
		p := Subflow{Helped: helped}
		p.AddLocalSample(t0, hop)
		p.SetTrain(5*unit.Mbps, 50*ms)
		p.localMeter.rate = 10 * unit.Mbps // before the pace was set
		if n := p.EstimateAt(t0); n.Th > unit.Mbps || n.Ceiling > unit.Mbps {
			t.Errorf("helped %v: %+v", helped, n)
		}
	}
	p := Subflow{Helped: true}
	p.AddLocalSample(t0, Hop{SRTT: 20 * ms, MinRTT: 20 * ms, MSS: 1448})
	p.localMeter.rate, p.localMeter.limitSeen = 2*unit.Mbps, true
	p.SetTrain(5*unit.Mbps, 50*ms)
	if n := p.EstimateAt(t0); n.Ceiling != 2*unit.Mbps {
		t.Errorf("the local hop carries 2 Mbit/s: %+v", n)
	}
}

// TestMeasurementsAreBounded checks that round trips of an hour, which a peer can feign, cost
// little memory.
func TestMeasurementsAreBounded(t *testing.T) {
	a, m := arrivals{minRTT: time.Hour}, Meter{}
	for i := range 5000 {
		now := t0.Add(time.Duration(i) * pointInterval)
		a.addArrivalSample(now, uint64(i), 0)
		m.Add(now, Hop{SRTT: time.Hour, MinRTT: time.Hour, Acked: uint64(i)})
	}
	most := int((2*maxRTT+ackSlack)/pointInterval) + 2
	if len(a.points) > most || len(m.points) > most {
		t.Errorf("%d and %d samples, want at most %d", len(a.points), len(m.points), most)
	}
}

// TestTrainBoundsVaryingRoundTrips checks that a hop in slow start counts as growing although its
// round trip is longer than the least one, if a train shows up to which rate.
func TestTrainBoundsVaryingRoundTrips(t *testing.T) {
	var p Subflow
	p.AddLocalSample(t0, Hop{SRTT: 45 * ms, MinRTT: 5 * ms, MSS: 1448, Cwnd: 14_480, SlowStart: true})
	if n := p.EstimateAt(t0); n.DoublingTime != 0 {
		t.Errorf("without a train: %+v", n)
	}
	p.SetTrain(20*unit.Mbps, 0)
	if n := p.EstimateAt(t0); n.DoublingTime != 45*ms || n.Ceiling != 20*unit.Mbps {
		t.Errorf("with a train: %+v", n)
	}
}

// TestSpansOfLongRoundTrips checks that bursts and acknowledgements that come once in a long round
// trip are measured over whole round trips.
func TestSpansOfLongRoundTrips(t *testing.T) {
	const rtt = 600 * ms
	m := Meter{}
	for i := range 100 {
		now := t0.Add(time.Duration(i) * 20 * ms)
		burst := uint64(now.Sub(t0)/rtt) * 60_000 // 800 kbit/s
		m.Add(now, Hop{SRTT: rtt, MinRTT: rtt, MSS: 1448, Acked: burst})
		if r, _ := m.Rate(); r > 810*unit.Kbps {
			t.Fatalf("after %v: %v", now.Sub(t0), r)
		}
	}
	a := arrivals{minRTT: rtt}
	for i := range 5 {
		a.addArrivalSample(t0.Add(time.Duration(i)*rtt), uint64(i)*60_000, 300_000)
		if i < 3 && a.rateKnown {
			t.Errorf("arrivals are measured over %v", time.Duration(i)*rtt)
		}
	}
	if !a.rateKnown || !withinPercent(a.rate, 800*unit.Kbps, 5) {
		t.Errorf("arrivals: %v, known %v", a.rate, a.rateKnown)
	}
}
