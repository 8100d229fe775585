// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"mpbond/lab"
)

// The same seed gives the same values, another one others. They add up, and PBE-CC meets the
// requirements in the default cell.
func TestModel(t *testing.T) {
	rows, err := SelectRows(publishedRows(), "p0")
	if err != nil {
		t.Fatal(err)
	}
	row := rows[0]
	m := *row.Cells[0].Model
	m.keepSeries = true
	a, b := m.runModelTransfer(1, pbe), m.runModelTransfer(2, pbe)
	if !reflect.DeepEqual(a, m.runModelTransfer(1, pbe)) || reflect.DeepEqual(a, b) {
		t.Error("runs differ with one seed, or are the same with two")
	}
	a.Scheme, b.Scheme, b.Rep = pbe, pbe, 1
	d := Data{row.Cells[0].Name: {a, b}}
	for _, p := range row.Points {
		if o := p.evaluatePoint(d); o.Verdict != Reproduced || o.N != 2 {
			t.Errorf("%s: %v", o.What, o.toPointLine())
		}
	}
	f, sum := a.Virtual.Flows[0], 0.0
	for _, v := range f.Rates {
		sum += v * f.Step
	}
	if rate := float64(8*a.Bytes) / 1e6 / a.Seconds; math.Abs(sum/a.Seconds/rate-1) > 0.001 ||
		math.Abs(f.Rate/rate-1) > 0.001 {
		t.Errorf("%.2f and %.2f Mbit/s in %d bytes", sum/a.Seconds, f.Rate, a.Bytes)
	}
	if len(f.Quantiles) != 101 || f.Quantiles[95] != f.P95 || f.Quantiles[50] != f.P50 || f.P50 > f.P95 ||
		f.Mean < f.Propagation {
		t.Errorf("%+v", f)
	}
}

// Of three places with ratios of a half, one and four, the result is one in each repetition.
// Nothing is compared if one of both is missing.
func TestMedianPlace(t *testing.T) {
	d := Data{}
	for i, cell := range []string{"a", "b", "c"} {
		for rep := range 2 {
			rate := []float64{5, 10, 40}[i] * float64(1+rep)
			for scheme, v := range map[string]float64{pbe: rate, "bbr": 10} {
				if rep == 1 && i == 2 && scheme == "bbr" {
					continue
				}
				d[cell] = append(d[cell], lab.Result{Scheme: scheme, Rep: rep, Seconds: 8, Bytes: 1,
					Virtual: &lab.VirtualResult{Flows: []lab.Flow{{Rate: v, P95: v}}}})
			}
		}
	}
	m := flowMetric("rate", "Mbit/s", 0, true, func(f lab.Flow) float64 { return f.Rate })
	r := Row{ID: "x", Judged: pbe, Places: true, Metrics: []Metric{m, DelayP95}, Cells: []Cell{
		{Name: "a", Schemes: []string{pbe, "bbr"}}, {Name: "b", Schemes: []string{pbe, "bbr"}},
		{Name: "c", Schemes: []string{pbe, "bbr"}}, {Name: "d", Schemes: []string{pbe, "bbr"}}}}
	r.Groups = [][]string{listCellNames(r.Cells)}
	if got := d.medianRatios(listCellNames(r.Cells), [2]string{pbe, "bbr"}, m); !reflect.DeepEqual(got,
		[]float64{1, 1.5}) {
		t.Errorf("ratios %v", got)
	}
	if got := d.medianPerRep(listCellNames(r.Cells), pbe, m); !reflect.DeepEqual(got, []float64{10, 20}) {
		t.Errorf("medians %v", got)
	}
	e := Evaluate(r, Record{Row: "x", Results: d})
	for _, l := range e.TableLines() {
		if l.Cell != "median place" {
			t.Errorf("%s has a line of its own", l.Cell)
		}
	}
	if len(e.Lines) < 12 {
		t.Errorf("%d lines of places", len(e.Lines))
	}
	// More delay in each repetition, but not surely: 1 and 1.5 times.
	if len(e.Worse) > 0 {
		t.Error(e.Worse)
	}
	for _, x := range d["b"] {
		x.Virtual.Flows[0].P95 = map[string]float64{pbe: 3, "bbr": 1}[x.Scheme] + float64(x.Rep)/100
	}
	for _, x := range d["a"] {
		x.Virtual.Flows[0].P95 = map[string]float64{pbe: 3, "bbr": 1}[x.Scheme]
	}
	if got := r.WorseThan(d); len(got) != 1 || !strings.HasPrefix(got[0].String(),
		"a to d: delay, p95 is worse with pbe than with bbr") {
		t.Error(got)
	}
}

// Without an effect a ratio is 1.
func TestRatios(t *testing.T) {
	of := func(v ...float64) func(Data) []float64 { return func(Data) []float64 { return v } }
	for _, c := range []struct {
		aim       Aim
		published float64
		ours      []float64
		want      Verdict
	}{
		{AimFactor, 1.06, []float64{1.058, 1.06, 1.062}, Reproduced},
		{AimFactor, 1.06, []float64{1.08, 1.081, 1.079}, Exceeded},
		{AimFactor, 2.3, []float64{1.07, 1.075, 1.08}, DirectionOnly},
		{AimFactor, 1.06, []float64{0.97, 0.971, 0.972}, Opposite},
		{AimFactor, 1.06, []float64{0.9, 1.2}, NotReproduced}, {AimFactor, 0.92, []float64{0.95, 0.96}, Reproduced},
		{AimFraction, 0.5, []float64{0.3, 0.31, 0.305}, Exceeded},
		{AimFraction, 0.5, []float64{0.5, 0.51, 0.52}, Reproduced},
		{AimFraction, 0.2, []float64{0.3, 0.31, 0.305}, DirectionOnly},
		{AimFraction, 0.2, []float64{1.3, 1.31, 1.32}, Opposite},
		{AimFraction, 0.2, []float64{1.3}, NotReproduced},
	} {
		if o := (Point{Low: c.published, High: c.published, Aim: c.aim,
			Of: of(c.ours...)}).evaluatePoint(nil); o.Verdict != c.want {
			t.Errorf("%v of %g: %s, want %s", c.ours, c.published, o.Verdict, c.want)
		}
	}
}
