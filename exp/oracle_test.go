package exp

import (
	"slices"
	"testing"

	"mpbond/lab"
	"mpbond/lab/radio"
	"mpbond/unit"
)

// TestOracles: the search stands about what was the best of all ratios in steps
// of 5 %, where that was measured.
func TestOracles(t *testing.T) {
	for _, c := range []struct {
		house string
		size  unit.Bytes
		best  float64
	}{
		{"8/10/5", 512 * unit.KB, .75}, {"8/10/5", 2 * unit.MB, .65}, {"1/18/5", 512 * unit.KB, .2}, {"1/18/5", 2 * unit.MB, .15},
		{"14/2/5", 512 * unit.KB, .95}, {"14/2/5", 2 * unit.MB, .9}, {"1/2/5", unit.MB, .35}, {"14/10/5", unit.MB, .85},
	} {
		all := oracles(c.house, c.size)
		low, high := all[0], all[len(all)-1]
		if len(all) < 2*oracleSteps || low >= oraclePrefix+share(c.best) || high <= oraclePrefix+share(c.best) {
			t.Errorf("%s, %v: %v, but the best is %g", c.house, c.size, all, c.best)
		}
	}
	if got := oracles("8", unit.MB); got != nil {
		t.Errorf("without helpers: %v", got)
	}
	if got := oracles("8/10/5,10/5", 1000*unit.MB); !slices.Contains(got, "kibbutz:ratio=0.445") {
		t.Errorf("two helpers that are alike: %v", got)
	}
	if got := oracles("8/10/4,10/8", 1000*unit.MB); !slices.Contains(got, "kibbutz:ratio=0.4/0.2") {
		t.Errorf("two that are not: %v", got)
	}
	if got := oraclesWide(); len(got) != 8 || got[0] != "kibbutz:ratio=0.2" || got[7] != "kibbutz:ratio=0.9" {
		t.Errorf("%v", got)
	}
}

// TestBesideOracle: the best ratio counts, and only where both were measured.
func TestBesideOracle(t *testing.T) {
	c := Cell{Name: "c", House: "8/10/5", Size: unit.MB, Schemes: []string{Product}, Reps: 4}.withOracles()
	c = c.fewer(2, c.ratios()...)
	d := Data{}
	for rep := range c.Reps {
		for i, s := range c.Schemes {
			if n, fewer := c.Fewer[s]; !fewer || rep < n {
				d["c"] = append(d["c"], lab.Result{Scheme: s, Rep: rep, Seconds: []float64{0.9, 3, 2, 1, 4, 5}[i]})
			}
		}
	}
	if o := alone(c).besideOracle(c.ratios(), Time).judge(d); o.N != 2 || o.Mean > -9.99 || o.Mean < -10.01 || o.Verdict != Reproduced || o.Published() != oursLess {
		t.Errorf("%+v", o)
	}
	r, err := m5(radio.Sets[0]).Experiments(Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range r {
		for _, s := range e.Plan.Schemes {
			if n := e.Plan.RepsOf(s); isOracle(s) != (n == oracleReps) {
				t.Errorf("%s: %d of %s", e.Name, n, s)
			}
		}
	}
}
