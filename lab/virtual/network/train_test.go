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

var (
	trains     = flag.Int("trains", 4, "number of random trains")
	trainsFrom = flag.Uint64("trains-from", 1, "seed of the first one; 0: a new one")
)

// firstTrain returns the seed of the first train.
func firstTrain() uint64 {
	if *trainsFrom == 0 {
		return rand.Uint64N(1 << 40)
	}
	return *trainsFrom
}

// TestTrains carries downloads and uploads on random trains over a bond whose modems are right, wrong or
// absent. Apps check each byte, and none waits much longer than the longest handoff.
func TestTrains(t *testing.T) {
	const length, objects = time.Minute, 20
	first := firstTrain()
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
			// A failed handoff takes 6 s at most, and both carriers may fail one after the other.
			if worst := slices.Max(times); worst > 8*time.Second {
				t.Errorf("seed %d, signals %q: an object took %v", seed, how, worst)
			}
		}
	}
}

// TestForecastsHelp: on the same trains, small downloads take less time with forecasts than without, above
// all the slowest. Row h9 of the lab has other sizes.
func TestForecastsHelp(t *testing.T) {
	var times [2][]time.Duration
	for seed := uint64(1); seed <= 60; seed++ { // single waits of seconds change the mean of fewer
		train := NewTrain(seed, vary.HighSpeedTrain, 2*time.Minute)
		w := &Workload{Size: 16 * unit.KB, Streams: 1, Objects: 40, Pause: 2300 * time.Millisecond}
		for i, hints := range [][]Hint{nil, train.Forecasts()} {
			if r := RunBond(train.Network, "auto", w, Options{Control: "cubic", Hints: hints,
				Finished: func(took time.Duration) { times[i] = append(times[i], took) }}); r.Err != "" {
				t.Fatalf("seed %d: %s", seed, r.Err)
			}
		}
	}
	var sum, p95 [2]time.Duration
	for i, v := range times {
		slices.Sort(v)
		for _, x := range v {
			sum[i] += x
		}
		p95[i] = v[len(v)*95/100]
	}
	mean, tail := float64(sum[1])/float64(sum[0]), float64(p95[1])/float64(p95[0])
	t.Logf("with forecasts the mean time is %.3f times as long, the 95 %% point %.3f times", mean, tail)
	if mean > 0.97 || tail > 0.9 {
		t.Error("the most is 0.97 and 0.9")
	}
}

// TestHandoffForecasts: on journeys that the models were not fitted to, forecasts before a handoff are above
// others as often as signals allow, and come true as often as they say.
func TestHandoffForecasts(t *testing.T) {
	first := 1000 + firstTrain()
	for _, c := range []struct {
		name      string
		travel    vary.Travel
		how       string
		low, high float64
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
		if auc < c.low || auc > c.high || c.how != "shuffled" && (share < 0.2 || share > 0.4) {
			t.Errorf("not within %g to %g, or 20 to 40 %%", c.low, c.high)
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

// TestDownloadOverStalls: a download notices stalls of its links, and when they end.
func TestDownloadOverStalls(t *testing.T) {
	n, noticed, notBack, alarms := 0, 0, 0, 0
	first := firstTrain()
	for seed := first; seed < first+6; seed++ {
		train := NewTrain(seed, vary.HighSpeedTrain, 2*time.Minute)
		rep, failed := train.DownloadOverStalls("auto", nil)
		if failed != "" || rep.Took < time.Minute {
			t.Fatalf("seed %d: %+v; %s", seed, rep, failed)
		}
		alarms += rep.FalseAlarms
		for _, s := range rep.Stalls {
			n++
			// No byte can be there and back before a round trip of the link is over.
			if least := 2 * trainDelays[s.Path]; s.End-s.From < LeastStall || s.Back < least {
				t.Errorf("seed %d: %+v: it is too short, or back before %v", seed, s, least)
			}
			if s.Noticed >= 0 {
				noticed++
			}
			if s.NotBack {
				notBack++
			}
			if s.Gap <= 0 || s.Gap > 3*time.Second {
				t.Errorf("seed %d: %+v: the gap at the app", seed, s)
			}
		}
	}
	t.Logf("seeds from %d: %d stalls, of these %d noticed, %d without an end; %d false alarms", first, n, noticed,
		notBack, alarms)
	if n < 10 || 3*noticed < n || 10*notBack > 2*n || alarms > 20*n {
		t.Error("that is not plausible")
	}
}

// TestWatchedPath: a subflow is busy while bytes are in flight, and back when bytes sent since then arrived.
func TestWatchedPath(t *testing.T) {
	w := &watchedPath{given: []sentUntil{{10, 100}, {20, 200}, {50, 300}, {60, 400}},
		acked: []sentUntil{{15, 100}, {40, 200}, {55, 200}, {70, 300}}}
	for at, want := range map[time.Duration]bool{0: false, 10: true, 15: false, 30: true, 40: false, 55: true} {
		if w.isBusyAt(at) != want {
			t.Errorf("at %d: busy %v", at, !want)
		}
	}
	for _, c := range []struct {
		at, limit, want time.Duration
		ok              bool
	}{{0, 100, 15, true}, {45, 100, 25, true}, {45, 70, 0, false}, {55, 100, 0, false}, {65, 100, 0, false}} {
		if got, ok := w.backAfter(c.at, c.limit); got != c.want || ok != c.ok {
			t.Errorf("%d to %d: %d, %v", c.at, c.limit, got, ok)
		}
	}
}

// TestStallsOf: a stall is where a link has no rate, or loses all packets.
func TestStallsOf(t *testing.T) {
	at := func(d time.Duration) time.Duration { return startAt + d }
	l := Link{Rates: []RateStep{{0, 5}, {at(time.Second), 0}, {at(2 * time.Second), 5}, {at(9 * time.Second), 0}},
		Outages: []Outage{{at(2 * time.Second), at(3 * time.Second)}, {at(5 * time.Second), at(6 * time.Second)}}}
	want := []Outage{{time.Second, 3 * time.Second}, {5 * time.Second, 6 * time.Second}}
	if got := stallsOf(l); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestLongestGap: a gap counts if it overlaps the time.
func TestLongestGap(t *testing.T) {
	times := []time.Duration{0, 10, 30, 31, 90}
	for _, c := range []struct{ from, to, want time.Duration }{{12, 20, 20}, {10, 31, 20}, {31, 40, 59}, {0, 5, 10},
		{90, 100, 0}, {95, 100, 0}} {
		if got := longestGap(times, c.from, c.to); got != c.want {
			t.Errorf("%d to %d: %d, want %d", c.from, c.to, got, c.want)
		}
	}
}
