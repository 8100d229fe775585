// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"bytes"
	"image/png"
	"strings"
	"testing"
)

func TestCurves(t *testing.T) {
	for name, c := range map[string]struct {
		curves Curves
		want   []string
	}{
		"nothing": {Curves{Title: "Users"}, []string{"Nothing to show yet.", "Users"}},
		"steps": {Curves{Title: "Users", Unit: "users", Width: 700,
			Curves: []Curve{{"cell 0, a", []float64{0, 3, 17}, []float64{0.2, 0.5, 1}}, {"none", nil, nil}}},
			[]string{"cell 0, a: half of all up to 3, at most 17 users.", "\n0.75", "\n5\n", "\n20", "\ncell 0, a",
				"\nusers"}},
		"ratios": {Curves{Title: "Rates", Unit: "Mbit/s", LogScale: true, Width: 700,
			Curves: []Curve{{"b", []float64{0, 0.03, 20}, []float64{0.2, 0.4, 1}}}},
			[]string{"b: half of all up to 20, at most 20 Mbit/s.", "\n0.01\n", "\n100"}},
		"ratios of nothing": {Curves{LogScale: true, Curves: []Curve{{"b", []float64{0}, []float64{1}}}},
			[]string{"at most 0"}},
	} {
		doc, err := c.curves.SVG()
		if err != nil {
			t.Fatal(name, err)
		}
		text := descriptionOf(t, doc)
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in\n%s", name, want, text)
			}
		}
		data, err := c.curves.PNG()
		if err != nil {
			t.Fatal(name, err)
		}
		if img, err := png.Decode(bytes.NewReader(data)); err != nil || img.Bounds().Dx() < 2*minWidth {
			t.Error(name, err)
		}
	}
}
