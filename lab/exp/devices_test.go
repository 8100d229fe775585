// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"slices"
	"strings"
	"testing"
	"time"

	"mpbond/lab"
	"mpbond/lab/radio"
)

// m5e shows whether the primary surely takes less, and the parts of each radio belong to its
// device.
func TestDevices(t *testing.T) {
	r := rowM5eEnergy(radio.Sets[0])
	seconds := map[string]float64{m5eCellName(1): 1.6, m5eCellName(2): 0.8, m5eCellName(3): 1.2} // one burst each
	d := newData(r, 4, func(cell, _ string) float64 { return seconds[cell] })
	outcomes, v := r.EvaluatePoints(d)
	// by two sets; no helper takes 1.9 J
	want := []Verdict{Reproduced, Reproduced, Opposite, Opposite, NotReproduced, NotReproduced}
	var got []Verdict
	for _, o := range outcomes {
		got = append(got, o.Verdict)
	}
	if !slices.Equal(got, want) || v != NotReproduced || outcomes[0].Published() != "less" {
		t.Errorf("%v %s", got, v)
	}
	if len(rowM5eEnergy(radio.Sets[2]).Points) != 4 {
		t.Errorf("%s stands beside itself", radio.Sets[2].Name)
	}
	if o := (Point{Aim: AimAnyReduction, Of: func(Data) []float64 {
		return []float64{-9, 6, 2}
	}}).evaluatePoint(nil); o.Verdict != NotReproduced {
		t.Errorf("in the noise: %s", o.Verdict)
	}
	x := d[m5eCellName(2)][0]
	whole, _ := Energy(radio.Sets[0], "primary", true).Of(x)
	lte, ok := radioEnergy(radio.Sets[0], radioID{"primary", radio.LTE}, true).Of(x)
	if !ok || lte != whole {
		t.Errorf("LTE %f J of %f", lte, whole)
	}
	if _, ok := radioEnergy(radio.Sets[0], radioID{"helper2", radio.LTE}, true).Of(x); ok {
		t.Error("a radio that is not there has an energy")
	}
}

// Other users come and go one at a time, between none and all, about half of them on average,
// differently in each pattern.
func TestOthers(t *testing.T) {
	seen := map[string]bool{}
	mean := 0.0
	const patterns = 50
	for i := range uint64(patterns) {
		top, err := m15CellNetwork(1, i)
		if err != nil {
			t.Fatal(err)
		}
		c := top.Cell["carrier"]
		if text := strings.Join(c.Schedule, "\n"); seen[text] || len(c.Schedule) < 10 {
			t.Errorf("pattern %d is there twice, or short:\n%s", i, text)
		} else {
			seen[text] = true
		}
		p, err := c.Program(lab.Downlink)
		if err != nil {
			t.Fatal(err)
		}
		at, n := time.Duration(0), p.Base.Others
		for _, ch := range p.Tracks[0].Changes {
			mean += float64(n) * (ch.At - at).Seconds() / m15Length.Seconds() / patterns
			if by := *ch.Others - n; by != 1 && by != -1 || *ch.Others < 0 || *ch.Others > m15Others {
				t.Fatalf("pattern %d: from %d to %d others", i, n, *ch.Others)
			}
			at, n = ch.At, *ch.Others
		}
	}
	if mean < 0.45*m15Others || mean > 0.55*m15Others {
		t.Errorf("%.2f of %d others are busy", mean, m15Others)
	}
}
