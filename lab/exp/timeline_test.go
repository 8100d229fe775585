// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/lab"
	"mpbond/lab/radio"
)

// newTransfer returns a transfer of 1 s. The helper gets 1 MB at 0.2 s and forwards it at 0.6 s,
// slightly more because of headers. 0.5 MB arrive over the direct path at 0.4 s. Uploads go the
// other way.
func newTransfer(direction string) lab.Result {
	mb := int32(unit.MB)
	come := int32(-1)
	if direction == "put" {
		come = 1
	}
	hs, pipe := lab.Traffic{Node: "helper1", Link: "hs1", Gaps: []int64{200_000}, Sizes: []int32{-mb}},
		lab.Traffic{Node: "helper1", Link: "pipe1", Gaps: []int64{600_000}, Sizes: []int32{mb + 5000}}
	if direction == "put" {
		hs.Link, pipe.Link = "pipe1", "hs1"
	}
	return lab.Result{Scheme: Product, Direction: direction, Seconds: 1, Traffic: []lab.Traffic{
		{Node: "primary", Link: "ps", Gaps: []int64{400_000, 1}, Sizes: []int32{come * mb / 2, -come * 52}},
		{Node: "primary", Link: "pipe1", Gaps: []int64{600_000}, Sizes: []int32{come * mb}}, hs, pipe}}
}

func TestTimeline(t *testing.T) {
	for _, direction := range []string{"get", "put"} {
		got := newTimeline(newTransfer(direction))
		var names []string
		for _, l := range got.lines {
			names = append(names, l.name)
		}
		if !slices.Equal(names, []string{"pipe1", "ps", "held by helper1"}) {
			t.Fatalf("%s: %q", direction, names)
		}
		at := func(line int, seconds float64) float64 {
			i := slices.IndexFunc(got.lines[line].at, func(at float64) bool { return at >= seconds })
			return got.lines[line].mb[i]
		}
		for _, c := range []struct {
			line       int
			seconds, v float64
		}{{1, 0.39, 0}, {1, 0.42, 0.5}, {0, 0.5, 0}, {0, 0.7, 1}, {2, 0.1, 0}, {2, 0.3, 1}, {2, 0.59, 1}, {2, 0.7, 0}} {
			if v := at(c.line, c.seconds); math.Abs(v-c.v) > 0.001 {
				t.Errorf("%s: %s at %.2f s: %f MB, not %f", direction, names[c.line], c.seconds, v, c.v)
			}
		}
		rates := RateSamples(100 * time.Millisecond).Of(newTransfer(direction))
		if len(rates) != 10 || rates[3] != 0 || math.Abs(rates[4]-0.5*8*1.048576*10) > 0.01 {
			t.Errorf("%s: rates %v", direction, rates)
		}
	}
	if got := newTimeline(lab.Result{Traffic: []lab.Traffic{{Node: "primary", Link: "ps", Gaps: []int64{1},
		Sizes: []int32{-1}}}}); len(got.lines) != 1 {
		t.Errorf("a transfer of no time: %+v", got)
	}
}

// The cell that a row shows in detail is drawn. A single transfer has no distribution.
func TestCloser(t *testing.T) {
	r := Row{ID: "x", Metrics: []Metric{Time, Energy(radio.Sets[0], "", true)},
		Samples: RateSamples(100 * time.Millisecond),
		Cells:   []Cell{{Name: "one", Schemes: []string{Product}}, {Name: "two", Schemes: []string{Product, "single"}}}}
	d := Data{}
	for rep := range 3 {
		x := newTransfer("get")
		x.Rep, x.Seconds = rep, 1+float64(rep)/10
		d["two"] = append(d["two"], x)
		x.Traffic = nil
		d["one"] = append(d["one"], x)
	}
	if c := r.chooseShownCell(d); c != "two" {
		t.Errorf("shown: %q", c)
	}
	e := Evaluate(r, Record{Results: d})
	if len(e.figures.timelines) != 1 || e.figures.timelines[0].took != 1.1 || len(e.figures.spreads) != 2 ||
		len(e.figures.spreads[1].values[0]) != 10+11+12 {
		t.Errorf("%+v %+v", e.figures.timelines, e.figures.spreads)
	}
	r.Spread = []string{"one", "two"}
	if s := r.distributions(d); len(s[0].values[0]) != 6 {
		t.Errorf("two cells: %+v", s[0])
	}
	sum := radio.Energy{}
	for _, l := range e.Energies {
		if l.N != 3 || l.Cell != "two" {
			t.Errorf("%+v", l)
		}
		sum = sum.Add(l.Energy)
	}
	if want := Summarize(d.Values("two", Product, r.Metrics[1])).Mean; len(e.Energies) != 4 ||
		math.Abs(float64(sum.Full())-want) > 1e-9 {
		t.Errorf("energies %+v: %f J, not %f", e.Energies, sum.Full(), want)
	}
	var page bytes.Buffer
	if err := WriteHTML(&page, []Evaluation{e}); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(page.String(), "<svg"); n != 2+1 { // distributions, a timeline
		t.Errorf("%d plots", n)
	}
	if n := strings.Count(page.String(), "<figure class=\"bars"); n != 2 {
		t.Errorf("bars of %d metrics", n)
	}
	d["two"] = d["two"][:2]
	r.Spread, r.Shown = nil, "one"
	if s := r.distributions(Data{"one": d["one"][:2]}); len(s) != 0 || r.chooseShownCell(d) != "one" {
		t.Errorf("%+v", s)
	}
}
