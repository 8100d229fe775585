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
	p.nearMeter.rate, p.nearMeter.limitSeen = 3*unit.Mbps, true
	if n := p.EstimateAt(t0); n.Th != 3*unit.Mbps || n.DoublingTime != 0 {
		t.Errorf("measured at its limit: %+v", n)
	}
}

// TestTrainOfAHelper checks that the rate of a train replaces the guesses for a helped subflow until
// the helper reports more.
func TestTrainOfAHelper(t *testing.T) {
	p := Subflow{Helped: true}
	p.AddLocalSample(t0, Hop{SRTT: 5 * ms, MinRTT: 5 * ms, MSS: 1448, Cwnd: 14_480})
	p.SetTrain(2*unit.Mbps, 75*ms)
	if n := p.EstimateAt(t0); n.Th > 2*unit.Mbps || n.Ceiling != 2*unit.Mbps || !n.ArrivalsMeasured ||
		!nearlyEqual(n.OWD, 37500*time.Microsecond) {
		t.Errorf("by the train: %+v", n)
	}
	p.SetTrain(3*unit.Mbps, 200*ms)
	if n := p.EstimateAt(t0); !nearlyEqual(n.OWD, 37500*time.Microsecond) {
		t.Errorf("a known round trip is replaced: %+v", n)
	}
}
