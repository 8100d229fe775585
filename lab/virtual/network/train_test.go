// SPDX-License-Identifier: Apache-2.0

package network

import (
	"flag"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/lab/vary"
)

var trains = flag.Int("trains", 4, "number of random trains; their seeds are new in each run")

// TestTrains carries downloads and uploads on random trains over a bond whose modems are right, wrong or
// absent. Apps check each byte, and none waits much longer than the longest handoff.
func TestTrains(t *testing.T) {
	const length, objects = time.Minute, 20
	first := rand.Uint64N(1 << 40)
	for seed := first; seed < first+uint64(*trains); seed++ {
		w := &Workload{Direction: Direction(seed % 2), Size: 16 * unit.KB << (2 * (seed % 3)), Streams: 1, Objects: objects,
			Pause: 2300 * time.Millisecond}
		for _, how := range append([]string{"none"}, Distortions...) {
			train := NewTrain(seed, vary.HighSpeedTrain, length)
			train.Distort(how)
			var times []time.Duration
			o := Options{Control: "cubic", Finished: func(took time.Duration) { times = append(times, took) }}
			if how != "none" {
				o.Hints = train.Forecasts()
			}
			r := RunBond(train.Network, "auto", w, o)
			if r.Err != "" || len(times) != objects {
				t.Fatalf("seed %d, signals %q: %d objects; %s", seed, how, len(times), r.Err)
			}
			// Both carriers rarely fail at once; a failed handoff takes 6 s at most.
			if worst := slices.Max(times); worst > 8*time.Second {
				t.Errorf("seed %d, signals %q: an object took %v", seed, how, worst)
			}
		}
	}
}

// TestHandoffForecasts: on journeys that the models were not fitted to, forecasts tell handoffs from
// their absence, as far as signals do, and come true as often as they say.
func TestHandoffForecasts(t *testing.T) {
	first := 1000 + rand.Uint64N(1<<40)
	for _, c := range []struct {
		name     string
		travel   vary.Travel
		how      string
		low, hig float64
	}{
		{"train", vary.HighSpeedTrain, "", 0.85, 0.93}, {"car", vary.Car, "", 0.85, 0.96},
		{"train", vary.HighSpeedTrain, "no neighbour", 0.75, 0.87}, {"car", vary.Car, "no neighbour", 0.72, 0.88},
		{"train", vary.HighSpeedTrain, "shuffled", 0.45, 0.65},
	} {
		var all []ForecastOutcome
		for seed := first; seed < first+12; seed++ {
			train := NewTrain(seed, c.travel, 5*time.Minute)
			train.Distort(c.how)
			all = append(all, train.Outcomes()...)
		}
		auc, share := AreaUnderCurve(all), ShareWithHandoff(all, 0.2, 0.4)
		t.Logf("%s, %q, seeds from %d: AUC %.3f, of forecasts of 0.2 to 0.4 %.0f %% come true", c.name, c.how, first, auc,
			100*share)
		if auc < c.low || auc > c.hig || c.how != "shuffled" && (share < 0.2 || share > 0.4) {
			t.Errorf("not within %g to %g, or 20 to 40 %%", c.low, c.hig)
		}
	}
}

// TestLinkOutages: packets that leave in an outage are lost, others are not.
func TestLinkOutages(t *testing.T) {
	l := Link{Outages: []Outage{{10 * ms, 20 * ms}, {30 * ms, 31 * ms}}}
	for at, want := range map[time.Duration]bool{0: false, 10 * ms: true, 19 * ms: true, 20 * ms: false, 30 * ms: true,
		31 * ms: false, time.Hour: false} {
		if l.isOutAt(at) != want {
			t.Errorf("at %v: %v", at, !want)
		}
	}
}
