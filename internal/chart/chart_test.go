// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"image/color"
	"io"
	"math"
	"strings"
	"testing"
)

// descriptionOf are the texts of an SVG, which must be well-formed.
func descriptionOf(t *testing.T, doc []byte) string {
	t.Helper()
	var all []string
	d := xml.NewDecoder(bytes.NewReader(doc))
	for {
		token, err := d.Token()
		if err == io.EOF {
			return strings.Join(all, "\n")
		}
		if err != nil {
			t.Fatalf("%v in %s", err, doc)
		}
		if c, ok := token.(xml.CharData); ok {
			if word := strings.TrimSpace(string(c)); word != "" {
				all = append(all, word)
			}
		}
	}
}

func TestBars(t *testing.T) {
	b := Bars{Title: "Users <by day>", Unit: "RNTIs", Width: 400}
	if doc, err := b.SVG(); err != nil || !strings.Contains(descriptionOf(t, doc), "Nothing to show yet.") {
		t.Error(err)
	}
	for day := 1; day <= 31; day++ {
		b.Names, b.Values = append(b.Names, fmt.Sprintf("2026-10-%02d", day)), append(b.Values, float64(day%30)*1.5)
	}
	doc, err := b.SVG()
	if err != nil {
		t.Fatal(err)
	}
	text := descriptionOf(t, doc)
	for _, want := range []string{"Users <by day>, RNTIs", "2026-10-31: 1.5 RNTIs. Most in 2026-10-29: 43.5 RNTIs.",
		"\n40\n50", "\n2026-10-31"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if n := strings.Count(text, "\n2026-10-"); n < 3 || n > 5 { // besides the words
		t.Errorf("%d of 31 days are named at the axis:\n%s", n, text)
	}
	if _, err := b.PNG(); err != nil {
		t.Error(err)
	}
}

// TestColours: lines and text stand out from the ground (WCAG 2.1, 1.4.3 and
// 1.4.11), and no two lines are drawn alike where colours are not seen.
func TestColours(t *testing.T) {
	l := newChartTheme()
	if c := contrastRatio(l.text, l.ground); c < 4.5 {
		t.Errorf("text: %.1f", c)
	}
	for i, line := range l.lines {
		if c := contrastRatio(line, l.ground); c < 3 {
			t.Errorf("line %d has a contrast of %.1f", i, c)
		}
		for k := range i {
			if fmt.Sprint(dashes[i]) == fmt.Sprint(dashes[k]) {
				t.Errorf("lines %d and %d have the same dashes", i, k)
			}
		}
	}
}

// contrastRatio is that of WCAG 2.1.
func contrastRatio(a, b color.Color) float64 {
	light := func(c color.Color) float64 {
		r, g, b, _ := c.RGBA()
		linear := func(v uint32) float64 {
			if f := float64(v) / 0xffff; f > 0.04045 {
				return math.Pow((f+0.055)/1.055, 2.4)
			} else {
				return f / 12.92
			}
		}
		return 0.2126*linear(r) + 0.7152*linear(g) + 0.0722*linear(b)
	}
	x, y := light(a), light(b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}
