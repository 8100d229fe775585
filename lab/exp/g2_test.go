// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"math"
	"slices"
	"strings"
	"testing"

	"mpbond/base/unit"
	"mpbond/lab"
	"mpbond/lab/radio"
)

// A share of the items counts from the first one on, without a gap.
func TestPrebuffer(t *testing.T) {
	r := lab.Result{Items: []float64{2, 9, 3, 4, 10}, Seconds: 10}
	for share, want := range map[float64]float64{0.2: 2, 0.4: 9, 0.6: 9, 0.8: 9, 1: 10} {
		if got, ok := prebufferMetric(share).Of(r); !ok || got != want {
			t.Errorf("%v: %v, %v", share, got, ok)
		}
	}
	if _, ok := prebufferMetric(0.2).Of(lab.Result{Seconds: 3}); ok {
		t.Error("of no items")
	}
}

// TestG2Figures checks the points with generated networks and with recordings.
func TestG2Figures(t *testing.T) {
	of := func(scheme string, rep int, seconds float64) lab.Result {
		return lab.Result{Scheme: scheme, Rep: rep, Seconds: seconds, Bytes: 2 * unit.MB, Items: []float64{seconds / 4,
			seconds}}
	}
	d := Data{
		"a": {of(onloadScheme, 0, 5), of("single", 0, 10), of(onloadScheme, 1, 5), of("single", 1, 20),
			of(phonesAlone[0], 0, 16), of(phonesAlone[1], 0, 8)},
		"b, recorded": {of(onloadScheme, 0, 2), of("single", 0, 10)},
	}
	pair, times := [2]string{onloadScheme, "single"}, []Metric{Time}
	almost := func(a, b float64) int {
		if math.Abs(a-b) < 1e-9 {
			return 0
		}
		return 1
	}
	if got := changesToSpeedups(d.metricChanges([]string{"a", "b"}, pair, times)); slices.CompareFunc(got,
		[]float64{2, 4, 5},
		almost) != 0 {
		t.Error("pooled:", got)
	}
	if got := d.maxSpeedups([]string{"a", "b"}, pair, append(times, prebufferMetric(0.5))); !slices.Equal(got,
		[]float64{5, 4}) {
		t.Error("at most:", got)
	}
	if got := d.sumOfSchemes("a", phonesAlone, Rate); len(got) != 1 ||
		math.Abs(got[0]-2*8*1.024*1.024*(1./16+1./8)) > 0.2 {
		t.Error("both phones:", got)
	}
	if got, _ := helperRate.Of(lab.Result{Seconds: 4, Devices: map[string]unit.Bytes{"primary": 9 * unit.MB,
		"helper1": unit.MB, "helper2": unit.MB}}); math.Abs(got-2*2.05*lab.PayloadShare) > 0.1 {
		t.Error("by phones:", got)
	}
}

// Phones sleep only where they are idle. Buffers are small only where the cell says so.
func TestG2Networks(t *testing.T) {
	asleep, small := 0, 0
	for _, r := range []Row{rowG2HomeVideos(radio.Sets[0]), rowG5KernelMPTCP(radio.Sets[0])} {
		for _, c := range r.Cells {
			if c.Network == nil {
				continue
			}
			top, err := c.Network(1)
			if err != nil {
				t.Fatal(c.Name, err)
			}
			if top.Link["hs1"].Promotion != "" && top.Link["hs2"].Tail != "" {
				asleep++
			}
			if top.Node["primary"].Sysctl != nil {
				small++
			}
			if top.Link["ps"].Promotion != "" || top.Link["ps"].Up.Rate == "" || len(top.Helpers()) != 2 {
				t.Errorf("%s: %+v", c.Name, top.Link["ps"])
			}
		}
	}
	if asleep != len(g2Homes)+1 || small != 1 {
		t.Errorf("%d cells with phones that sleep, %d with small buffers", asleep, small)
	}
}

// With recordings, g2 and g5 run their cells with recorded phones.
func TestG2Recorded(t *testing.T) {
	dir := recordings3G(t)
	for want, r := range map[int]Row{2 * len(g2Homes): rowG2HomeVideos(radio.Sets[0]),
		3: rowG5KernelMPTCP(radio.Sets[0])} {
		all, err := r.Experiments(Options{Traces: dir})
		if err != nil || len(all) != want {
			t.Errorf("%s: %d cells of %d, %v", r.ID, len(all), want, err)
		}
		for _, e := range all {
			if !strings.HasSuffix(e.Name, sourceSuffixes[1]) || e.Spec.Topology.Link["hs1"].Schedule == nil {
				t.Error(r.ID, e.Name)
			}
		}
		if _, err := r.Experiments(Options{Traces: t.TempDir()}); err == nil {
			t.Error(r.ID, "recordings that are not there")
		}
	}
}
