// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// forecastAfter returns the forecast after reports of one each second, and the time of the last.
func forecastAfter(reports ...CellSignal) (f HandoffForecast, at time.Time) {
	at = time.Unix(1e9, 0)
	for i, s := range reports {
		if i > 0 {
			at = at.Add(time.Second)
		}
		s.At = at
		f.AddSignal(s)
	}
	return f, at
}

// TestForecastBySignal: the weaker the serving cell, above all relative to a neighbour, the likelier is a
// handoff; without a power that a modem can measure nothing is forecast.
func TestForecastBySignal(t *testing.T) {
	last := 0.0
	for _, neighbour := range []float64{0, -120, -110, -100, -95, -90} {
		f, at := forecastAfter(CellSignal{RSRP: -100, Neighbour: neighbour, Cell: "a", SpeedKmh: 300})
		p := f.ProbabilityAt(at)
		if neighbour != 0 && p <= last || p <= 0 || p >= 1 {
			t.Errorf("neighbour at %v dBm: %v, before %v", neighbour, p, last)
		}
		if neighbour != 0 {
			last = p
		}
	}
	weak, at := forecastAfter(CellSignal{RSRP: -120})
	strong, _ := forecastAfter(CellSignal{RSRP: -80})
	if weak.ProbabilityAt(at) < 5*strong.ProbabilityAt(at) {
		t.Errorf("at -120 dBm %v, at -80 dBm %v", weak.ProbabilityAt(at), strong.ProbabilityAt(at))
	}
	for _, rsrp := range []float64{0, -32768, 40, math.NaN(), math.Inf(-1), math.Inf(1)} {
		if f, at := forecastAfter(CellSignal{RSRP: rsrp, Neighbour: -100, Cell: "a"}); f.ProbabilityAt(at) != 0 ||
			f.ExplainAt(at) != "" {
			t.Errorf("at %v dBm: %v, %q", rsrp, f.ProbabilityAt(at), f.ExplainAt(at))
		}
	}
	still, at := forecastAfter(CellSignal{RSRP: -100})
	fast, _ := forecastAfter(CellSignal{RSRP: -100, SpeedKmh: 300})
	if fast.ProbabilityAt(at) < 2*still.ProbabilityAt(at) {
		t.Errorf("at 300 km/h %v, at rest %v", fast.ProbabilityAt(at), still.ProbabilityAt(at))
	}
	long, at := forecastAfter(slices.Repeat([]CellSignal{{RSRP: -100, Cell: "a"}}, 2)...)
	for range 30 { // without outcomes
		at = at.Add(time.Second)
		long.AddSignal(CellSignal{At: at, RSRP: -100})
	}
	soon := long
	soon.AddSignal(CellSignal{At: at.Add(time.Second), RSRP: -100, Cell: "b"})
	if p := soon.ProbabilityAt(at); p > 0.8*long.ProbabilityAt(at) {
		t.Errorf("just after a handoff %v, half a minute after the last %v", p, long.ProbabilityAt(at))
	}
	for _, speed := range []float64{-1, math.NaN(), math.Inf(1), 1e9} {
		f, at := forecastAfter(CellSignal{RSRP: -100, SpeedKmh: speed})
		if f.ProbabilityAt(at) != still.ProbabilityAt(at) {
			t.Errorf("a speed of %v counts", speed)
		}
	}
}

// TestForecastAges: a forecast counts until the next report is overdue, and reports that are not newer
// than the last one change nothing.
func TestForecastAges(t *testing.T) {
	f, at := forecastAfter(CellSignal{RSRP: -100, Neighbour: -97, Cell: "a"})
	p := f.ProbabilityAt(at)
	if p < 0.1 || f.ProbabilityAt(at.Add(SignalLifetime)) != p || f.ProbabilityAt(at.Add(SignalLifetime+1)) != 0 {
		t.Errorf("%v, then %v", p, f.ProbabilityAt(at.Add(SignalLifetime+1)))
	}
	for _, age := range []time.Duration{0, -time.Second, -time.Hour} {
		if f.AddSignal(CellSignal{At: at.Add(age), RSRP: -60, Cell: "b"}) || f.ProbabilityAt(at) != p {
			t.Errorf("a report of %v later counts", age)
		}
	}
	if f.AddSignal(CellSignal{At: at.Add(time.Hour), RSRP: -100, Cell: "b"}) {
		t.Error("another cell after an hour without reports is a handoff")
	}
}

// TestForecastSeesHandoffs: another cell is a handoff; an unknown one is none.
func TestForecastSeesHandoffs(t *testing.T) {
	var f HandoffForecast
	at := time.Unix(1e9, 0)
	for i, c := range []struct {
		cell string
		want bool
	}{{"", false}, {"a", false}, {"a", false}, {"b", true}, {"", false}, {"b", false}, {"", false}, {"c", true}} {
		at = at.Add(time.Second)
		if got := f.AddSignal(CellSignal{At: at, RSRP: -100, Cell: c.cell}); got != c.want {
			t.Errorf("report %d, cell %q: %v", i, c.cell, got)
		}
	}
	if text := f.ExplainAt(at.Add(2 * time.Second)); text != "-100 dBm, 2 s since the last handoff" {
		t.Errorf("%q", text)
	}
	f.AddSignal(CellSignal{At: at.Add(time.Second), RSRP: -112, Neighbour: -108})
	if text := f.ExplainAt(at.Add(time.Second)); !strings.Contains(text, "-112 dBm, neighbour 4 dB better, 1 s") {
		t.Errorf("%q", text)
	}
	f.AddSignal(CellSignal{At: at.Add(2 * time.Second), RSRP: -100, Neighbour: -108})
	if text := f.ExplainAt(at.Add(2 * time.Second)); !strings.Contains(text, "neighbour 8 dB worse") {
		t.Errorf("%q", text)
	}
}

// TestForecastCorrectsItself: a modem that is always wrong about its signal is soon believed less, in
// either direction, and without bound in time or memory.
func TestForecastCorrectsItself(t *testing.T) {
	run := func(margin float64, every int) float64 {
		var f HandoffForecast
		at := time.Unix(1e9, 0)
		sum, n := 0.0, 0
		for i := range 3600 {
			at = at.Add(time.Second)
			f.AddSignal(CellSignal{At: at, RSRP: -100, Neighbour: -100 - margin, Cell: strconv.Itoa(i / every)})
			if i > 600 {
				sum, n = sum+f.ProbabilityAt(at), n+1
			}
			if len(f.open) > 3 || math.Abs(f.correction) > maxCalibration {
				t.Fatalf("%d forecasts are open, the correction is %v", len(f.open), f.correction)
			}
		}
		return sum / float64(n)
	}
	if p := run(-20, 3600); p > 0.7 { // the bound of the correction
		t.Errorf("alarms that never come true: %v", p)
	}
	if p := run(-8, 20); p < 0.05 || p > 0.2 { // two of twenty forecasts come true
		t.Errorf("a tenth of the alarms comes true: %v", p)
	}
	if p := run(10, 10); p < 0.1 || p > 0.3 {
		t.Errorf("a fifth comes true of what is never foreseen: %v", p)
	}
	if p := run(10, 1); p < 0.4 { // a modem that names another cell each time
		t.Errorf("a handoff each second: %v", p)
	}
}

// TestUnknownOutcomes: where reports name no cell, or come too rarely, it is unknown whether forecasts came
// true: they stay as they are.
func TestUnknownOutcomes(t *testing.T) {
	for _, c := range []struct {
		cell  string
		every time.Duration
	}{{"", time.Second}, {"a", 3 * time.Second}} {
		var f HandoffForecast
		at := time.Unix(1e9, 0)
		for range 600 {
			at = at.Add(c.every)
			f.AddSignal(CellSignal{At: at, RSRP: -100, Neighbour: -90, Cell: c.cell})
		}
		if p := f.ProbabilityAt(at); f.correction != 0 || p < 0.5 || len(f.open) > 3 {
			t.Errorf("cell %q each %v: corrected by %v to %v, %d open", c.cell, c.every, f.correction, p, len(f.open))
		}
	}
}

// TestSomeOutcomes: where only some reports name the cell, or some come late, forecasts stay as right as
// they are: what is forgotten is not of one kind.
func TestSomeOutcomes(t *testing.T) {
	always := func(int) bool { return true }
	eachSecond := func(int) time.Duration { return time.Second }
	for name, c := range map[string]struct {
		named func(i int) bool
		every func(i int) time.Duration
	}{
		"each second report":  {func(i int) bool { return i%2 == 0 }, eachSecond},
		"two of three":        {func(i int) bool { return i%3 > 0 }, eachSecond},
		"each third is late":  {always, func(i int) time.Duration { return time.Second * time.Duration(1+2*(i%3/2)) }},
		"each report, always": {always, eachSecond},
	} {
		random := rand.New(rand.NewPCG(1, 2))
		var f HandoffForecast
		at, cell := time.Unix(1e9, 0), 0
		for i := range 20_000 {
			d := c.every(i)
			at = at.Add(d)
			if random.Float64() < d.Seconds()/11 {
				cell++
			}
			s := CellSignal{At: at, RSRP: -100, Neighbour: -100}
			if c.named(i) {
				s.Cell = strconv.Itoa(cell)
			}
			f.AddSignal(s)
		}
		if p := f.ProbabilityAt(at); p < 0.08 || p > 0.4 { // two seconds of eleven
			t.Errorf("%s: %v", name, p)
		}
	}
}
