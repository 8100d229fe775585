// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"mpbond/base/unit"
	"mpbond/lab"
	"mpbond/lab/radio"
)

// The search surrounds the best of all ratios in steps of 5 %, where that was measured.
func TestRatioSearch(t *testing.T) {
	for _, c := range []struct {
		links string
		size  unit.Bytes
		best  float64
	}{
		{"8/10/5", 512 * unit.KB, .75}, {"8/10/5", 2 * unit.MB, .65}, {"1/18/5", 512 * unit.KB, .2},
		{"1/18/5", 2 * unit.MB, .15},
		{"14/2/5", 512 * unit.KB, .95}, {"14/2/5", 2 * unit.MB, .9}, {"1/2/5", unit.MB, .35}, {"14/10/5", unit.MB, .85},
	} {
		all := steadyRatioSchemes(c.links, c.size)
		low, high := all[0], all[len(all)-1]
		if len(all) < 2*ratioSearchSteps || low >= ratioPrefix+formatRatio(c.best) ||
			high <= ratioPrefix+formatRatio(c.best) {
			t.Errorf("%s, %v: %v, but the best is %g", c.links, c.size, all, c.best)
		}
	}
	if got := steadyRatioSchemes("8", unit.MB); got != nil {
		t.Errorf("without helpers: %v", got)
	}
	if got := steadyRatioSchemes("8/10/5,10/5", 1000*unit.MB); !slices.Contains(got, "mptcp:ratio=0.445") {
		t.Errorf("two helpers that are alike: %v", got)
	}
	if got := steadyRatioSchemes("8/10/4,10/8", 1000*unit.MB); !slices.Contains(got, "mptcp:ratio=0.4/0.2") {
		t.Errorf("two that are not: %v", got)
	}
	if got := wideRatioSchemes(); len(got) != 9 || got[0] != "mptcp:ratio=0.2" || got[8] != "mptcp:ratio=1" {
		t.Errorf("%v", got)
	}
}

// The traffic of two transfers gives the time of every ratio, and so what a search in large steps
// misses.
func TestEveryRatio(t *testing.T) {
	const size = 30_000
	// each link has a packet of 1000 bytes of payload every that many ms
	each := func(link string, ms int64, bytes float64) lab.Traffic {
		x := lab.Traffic{Node: "primary", Link: link}
		for n := 0.0; n < bytes; n += 1000 {
			x.Gaps, x.Sizes = append(x.Gaps, 0, ms*1000), append(x.Sizes, 52, -1052) // preceded by an ACK
		}
		return x
	}
	made := func(p, seconds float64) lab.Result {
		return lab.Result{Scheme: ratioPrefix + formatRatio(p), Bytes: size, Seconds: seconds,
			Traffic: []lab.Traffic{each("ps", 10, p*size), each("pipe1", 20, (1-p)*size),
				{Node: "helper1", Link: "pipe1", Gaps: []int64{0}, Sizes: []int32{-9000}}}}
	}
	r := Row{ID: "x", Metrics: []Metric{Time},
		Cells: []Cell{{Name: "c", Schemes: []string{Product, "mptcp:ratio=0.8", "mptcp:ratio=0.4", "mptcp:ratio=0.6"}}}}
	// 24 packets over the direct path, 18 over the other one: 0.24 and 0.36 s. All are recorded 20
	// ms late. The best is 0.67, with 21 and 10 packets: 0.21 s.
	d := Data{"c": {made(0.8, 0.22), made(0.4, 0.34), made(0.6, 0.22)}}
	want := 100 * (0.19/0.22 - 1)
	if got, ok := d.bestRatioChange(r.Cells[0]); !ok || math.Abs(got-want) > 1e-6 {
		t.Errorf("%v %v, not %v", got, ok, want)
	}
	e := Evaluate(r, Record{Results: d})
	var md, html bytes.Buffer
	if err := errors.Join(WriteMarkdown(&md, []Evaluation{e}), WriteHTML(&html, []Evaluation{e})); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{e.Search, md.String(), html.String()} {
		if !strings.Contains(text, "-13.6 %") {
			t.Errorf("missing in the text: %s", text)
		}
	}
	d["c"][0].Disturbed = true
	if _, ok := d.bestRatioChange(r.Cells[0]); ok {
		t.Error("of one that does not count")
	}
	// Two helpers have half of the rest each: 16 packets over the direct path and 7 over each
	// helper's are the best, 0.16 s; 0.4 took 0.18 s.
	for _, r := range []lab.Result{made(0.8, 0.22), made(0.4, 0.16), made(0.6, 0.16)} {
		p := directShare(r.Scheme)
		r.Traffic = []lab.Traffic{each("ps", 10, p*size), each("pipe1", 20, (1-p)*size/2),
			each("pipe2", 20, (1-p)*size/2)}
		d["two"] = append(d["two"], r)
	}
	two := r.Cells[0]
	two.Name = "two"
	if got, ok := d.bestRatioChange(two); !ok || math.Abs(got-100*(0.14/0.16-1)) > 1e-6 {
		t.Errorf("with two helpers %v %v", got, ok)
	}
	if (Row{Cells: []Cell{{Name: "c", Schemes: []string{Product}}}}).searchText(d) != "" {
		t.Error("a search where there is none")
	}
}

// leastReps is the least number of transfers of each scheme in each cell of a row. Some rows have
// fewer, as their Setup says.
var leastReps = map[string]int{"m5": 5, "m6": 5, "m7": 5, "m8": 5, "m13": 6, "m14": 2, "m15": 1}

// Small files have mptcp and COMBINE with all chunk sizes in each cell with a helper, and five
// transfers of each scheme. Videos have three.
func TestEnough(t *testing.T) {
	for _, r := range publishedRows() {
		experiments, err := r.Experiments(Options{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range experiments {
			small := slices.Contains([]string{"m5", "m6", "m7", "m8"}, r.ID)
			for _, s := range e.Spec.Schemes {
				if n := e.Spec.RepsOf(s); n < leastReps[r.ID] {
					t.Errorf("%s, %s: %d of %s", r.ID, e.Name, n, s)
				}
			}
			if small && len(e.Spec.Topology.Helpers()) > 0 && e.Spec.Objects == 0 {
				for _, s := range append([]string{mptcp}, combineSchemes...) {
					if !slices.Contains(e.Spec.Schemes, s) {
						t.Errorf("%s, %s: %s is not beside it", r.ID, e.Name, s)
					}
				}
			}
			if r.ID == "m10" && slices.Contains(e.Spec.Schemes, mptcp) && min(e.Spec.RepsOf(Product),
				e.Spec.RepsOf(mptcp)) < 3 {
				t.Errorf("%s, %s: too few", r.ID, e.Name)
			}
		}
	}
}

// The best ratio counts, and only where both were measured.
func TestCompareBestRatio(t *testing.T) {
	c := Cell{Name: "c", Links: "8/10/5", Size: unit.MB, Schemes: []string{Product}, Reps: 4}.withRatioSearch()
	c = c.limitSchemeReps(2, c.listRatioSchemes()...)
	d := Data{}
	for rep := range c.Reps {
		for i, s := range c.Schemes {
			if n, fewer := c.RepsByScheme[s]; !fewer || rep < n {
				d["c"] = append(d["c"], lab.Result{Scheme: s, Rep: rep, Seconds: []float64{0.9, 3, 2, 1, 4, 5}[i]})
			}
		}
	}
	if o := singleGroup(c).compareBestRatio(c.listRatioSchemes(), Time).evaluatePoint(d); o.N != 2 || o.Mean > -9.99 ||
		o.Mean < -10.01 || o.Verdict != Reproduced || o.Published() != noFigureText {
		t.Errorf("%+v", o)
	}
	r, err := rowM5SmallFiles(radio.Sets[0]).Experiments(Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range r {
		for _, s := range e.Spec.Schemes {
			if n := e.Spec.RepsOf(s); isRatioScheme(s) != (n == ratioReps) {
				t.Errorf("%s: %d of %s", e.Name, n, s)
			}
		}
	}
}
