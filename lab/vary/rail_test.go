// SPDX-License-Identifier: Apache-2.0

package vary

import (
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	"mpbond/base/unit"
)

// ridesOf draws rides with two carriers.
func ridesOf(travel Travel, n int, length time.Duration) (rides [][Carriers]Ride, records [][Carriers]Record) {
	for seed := range uint64(n) {
		pair := travel.Rides(seed, "x", length)
		var record [Carriers]Record
		for c := range pair {
			record[c] = pair[c].Record()
		}
		rides, records = append(rides, pair), append(records, record)
	}
	return rides, records
}

// driveFacts are those of 6,486 handoffs in 737 drives of a car with two carriers: the data set of
// lab/drives/README.md. A carrier has a handoff in 20.5 to 23.6 s.
var driveFacts = Facts{Interval: 22 * time.Second, MedianInterval: 5500 * time.Millisecond,
	MedianLength: 58 * time.Millisecond, Longest: time.Second, Over200ms: 0.056, Over500ms: 0.015,
	Coincide: [3]float64{0.057, 0.118, 0.278}, Around: [8]float64{0.82, 0.74, 0.64, 0.52, 0.42, 0.68, 0.81, 0.90},
	StallInterval: 120 * time.Second, StallsNear: 0.36}

// TestCarAgreesWithDrives holds rides at the speed of a car up to recorded drives.
func TestCarAgreesWithDrives(t *testing.T) {
	_, records := ridesOf(Car, 200, 10*time.Minute)
	got, want := FactsOf(records), driveFacts
	check := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got/want-1) > 0.2 {
			t.Errorf("%s: %.3f instead of %.3f", what, got, want)
		}
	}
	t.Logf("%+v", got)
	check("interval", got.Interval.Seconds(), want.Interval.Seconds())
	check("median interval", got.MedianInterval.Seconds(), want.MedianInterval.Seconds())
	check("median length", got.MedianLength.Seconds(), want.MedianLength.Seconds())
	check("longest", got.Longest.Seconds(), want.Longest.Seconds())
	check("over 0.2 s", got.Over200ms, want.Over200ms)
	check("over 0.5 s", got.Over500ms, want.Over500ms)
	for k, limit := range CoincidenceTimes {
		check(fmt.Sprint("within ", limit), got.Coincide[k], want.Coincide[k])
	}
	for k, step := range AroundSteps {
		check(fmt.Sprint("rate at ", time.Duration(step)*FactStep), got.Around[k], want.Around[k])
	}
	check("stalls", got.StallInterval.Seconds(), want.StallInterval.Seconds())
	check("stalls near a handoff", got.StallsNear, want.StallsNear)
}

// TestTrain: handoffs are as often and fail as often as documented, rates have their means, and
// nothing moves for a device that is parked.
func TestTrain(t *testing.T) {
	rides, records := ridesOf(HighSpeedTrain, 100, 10*time.Minute)
	f := FactsOf(records)
	if math.Abs(f.Interval.Seconds()-11) > 1.1 {
		t.Errorf("a handoff each %v", f.Interval)
	}
	failed, all := 0, 0
	for _, pair := range rides {
		for c, r := range pair {
			for _, h := range r.Handoffs {
				all++
				if h.Failed {
					failed++
				}
			}
			if len(r.Down.Gaps)+len(r.Down.Holds) != len(r.Handoffs) || !reflect.DeepEqual(r.Down.Gaps, r.Up.Gaps) {
				t.Fatal("the directions have different handoffs")
			}
			if got := r.Down.Mean(MaxLength); math.Abs(float64(got)/float64(HighSpeedTrain.Down[c])-1) > 1e-3 {
				t.Errorf("carrier %d has a mean of %v", c, got)
			}
			if n := len(r.Signals); n != 600 {
				t.Errorf("%d signals in 600 s", n)
			}
		}
	}
	if share := float64(failed) / float64(all); math.Abs(share-0.12) > 0.015 {
		t.Errorf("%.3f of the handoffs fail", share)
	}
	parked := Parked.Rides(1, "x", 10*time.Minute)[0]
	if len(parked.Handoffs) != 0 {
		t.Errorf("%d handoffs of a parked device", len(parked.Handoffs))
	}
}

// TestSignals: before a handoff the neighbour becomes stronger than the serving mast, and afterwards
// the cell is another one.
func TestSignals(t *testing.T) {
	r := HighSpeedTrain.Rides(3, "x", 30*time.Minute)[0]
	before, others := 0.0, 0.0
	for k, h := range r.Handoffs {
		i, next := int(h.From/time.Second), int(h.End()/time.Second)+1
		before += r.Signals[i].Neighbour - r.Signals[i].Serving
		alone := (k == 0 || r.Handoffs[k-1].End() < time.Duration(i)*time.Second) &&
			(k+1 == len(r.Handoffs) || r.Handoffs[k+1].From > time.Duration(next)*time.Second)
		if alone && next < len(r.Signals) && r.Signals[next].Cell == r.Signals[i].Cell {
			t.Errorf("the cell stays %d in the handoff at %v", r.Signals[i].Cell, h.From)
		}
	}
	for _, s := range r.Signals {
		others += s.Neighbour - s.Serving
	}
	before, others = before/float64(len(r.Handoffs)), others/float64(len(r.Signals))
	if before < others+3 {
		t.Errorf("the neighbour is %.1f dB stronger before handoffs, %.1f dB on average", before, others)
	}
}

// TestRideIsRepeatable: one seed gives one ride.
func TestRideIsRepeatable(t *testing.T) {
	a, b := HighSpeedTrain.Rides(5, "x", time.Minute), HighSpeedTrain.Rides(5, "x", time.Minute)
	if !reflect.DeepEqual(a, b) {
		t.Error("one seed, two rides")
	}
	if c := HighSpeedTrain.Rides(6, "x", time.Minute); reflect.DeepEqual(a[0].Down, c[0].Down) {
		t.Error("two seeds, one ride")
	}
	if reflect.DeepEqual(a[0].Handoffs, a[1].Handoffs) {
		t.Error("both carriers have the same handoffs")
	}
	if empty := HighSpeedTrain.Rides(5, "x", 0)[0]; len(empty.Down.Rates)+len(empty.Signals) != 0 {
		t.Errorf("a ride of no length: %+v", empty)
	}
}

// TestScheduleOfHolds: the rate is 0 in a hold, whatever it becomes meanwhile, and delays are longer
// after it.
func TestScheduleOfHolds(t *testing.T) {
	ms := time.Millisecond
	p := Profile{Step: Step, Rates: []unit.Rate{1e6, 2e6, 3e6, 3e6}, Holds: []Gap{{50 * ms, 170 * ms}}}
	want := []string{"at 0s: rate 1000000", "at 50ms: rate 0", "at 220ms: rate 3000000", "at 220ms: delay 45ms",
		"at 1.22s: delay 25ms"}
	if got := p.Schedule(25 * ms); !reflect.DeepEqual(got, want) {
		t.Errorf("%q", got)
	}
	if got := p.Outages(); got != nil {
		t.Errorf("outages %q", got)
	}
}
