package chart

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"image/color"
	"image/png"
	"io"
	"math"
	"strings"
	"testing"
)

// example is a chart of n lines, the second of which begins late.
func example(n, width int) Chart {
	c := Chart{Title: "Down by device", Unit: "bit/s", Span: 60, Width: width}
	for ago := 60; ago >= 0; ago-- {
		c.Ago = append(c.Ago, float64(ago))
	}
	for i := range n {
		l := Line{Name: fmt.Sprintf("device %d", i)}
		for k := range c.Ago {
			v := float64(i+1) * 1e6
			if i == 1 && k < 30 {
				v = math.NaN()
			}
			l.Values = append(l.Values, v)
		}
		c.Lines = append(c.Lines, l)
	}
	return c
}

// words are the texts of an SVG, which must be well-formed.
func words(t *testing.T, doc []byte) string {
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

func TestSVG(t *testing.T) {
	for _, width := range []int{-5, 300, 760, 99999} {
		c := example(3, width)
		c.Lines[0].Name = `<script>alert("1")</script> & a name without end`
		doc, err := c.SVG()
		if err != nil {
			t.Fatal(err)
		}
		text := words(t, doc)
		for _, want := range []string{"Down by device, Mbit/s", "device 1", "device 2", "−45 s", "now", "\n3\n", "device 2: 3 Mbit/s now, at most 3 Mbit/s."} {
			if !strings.Contains(text, want) {
				t.Errorf("%d wide: no %q in\n%s", width, want, text)
			}
		}
		if strings.Contains(string(doc), "<script") || !strings.Contains(text, "<script>alert(") {
			t.Errorf("%d wide: a name is not plain text:\n%s", width, text)
		}
		if !bytes.Contains(doc, []byte(`role="img"`)) {
			t.Error("nothing says that it is a picture")
		}
	}
}

// TestScales: the unit follows the values, and the axis ends at or over the top.
func TestScales(t *testing.T) {
	for _, c := range []struct {
		unit string
		top  float64
		want []string
	}{
		{"bit/s", 0, []string{"kbit/s", "\n1\n"}},
		{"bit/s", 12, []string{"kbit/s"}},
		{"bit/s", 73e3, []string{"kbit/s", "\n80\n"}},
		{"bit/s", 4.2e9, []string{"Gbit/s", "\n5\n"}},
		{"ms", 41, []string{"ms", "\n50\n"}},
		{"ms", 2600, []string{", s", "\n3\n"}},
	} {
		doc, err := Chart{Title: "x", Unit: c.unit, Span: 3600, Ago: []float64{10, 0}, Lines: []Line{{"a", []float64{0, c.top}}}, Width: 600}.SVG()
		if err != nil {
			t.Fatal(err)
		}
		text := words(t, doc)
		for _, want := range append(c.want, "−30 min") {
			if !strings.Contains(text, want) {
				t.Errorf("%v %s: no %q in\n%s", c.top, c.unit, want, text)
			}
		}
	}
}

func TestNothingToDraw(t *testing.T) {
	for _, c := range []Chart{{Title: "x", Unit: "ms", Span: 60, Width: 400}, {Title: "x", Unit: "bit/s", Span: 60, Width: 600, Ago: []float64{0}, Lines: []Line{{"a", []float64{math.NaN()}}, {"b", []float64{1}}}}} {
		doc, err := c.SVG()
		if err != nil {
			t.Fatal(err)
		}
		if text := words(t, doc); !strings.Contains(text, "Nothing to show yet.") && !strings.Contains(text, "not there now") {
			t.Errorf("%s", text)
		}
	}
}

func TestManyLines(t *testing.T) {
	doc, err := example(11, 760).SVG()
	if err != nil {
		t.Fatal(err)
	}
	_, pictured, _ := strings.Cut(words(t, doc), "device 10: ") // after the description
	_, pictured, _ = strings.Cut(pictured, "\n")
	if !strings.Contains(pictured, "and 3 more with less") || strings.Contains(pictured, "device 0") || !strings.Contains(pictured, "device 10") {
		t.Errorf("%s", pictured)
	}
}

func TestBars(t *testing.T) {
	b := Bars{Title: "Used by day <over wlan0>", Width: 400}
	if doc, err := b.SVG(); err != nil || !strings.Contains(words(t, doc), "Nothing to show yet.") {
		t.Error(err)
	}
	for day := 1; day <= 31; day++ {
		b.Names, b.Values = append(b.Names, fmt.Sprintf("2026-10-%02d", day)), append(b.Values, float64(day%30)*1.5e8)
	}
	doc, err := b.SVG()
	if err != nil {
		t.Fatal(err)
	}
	text := words(t, doc)
	for _, want := range []string{"Used by day <over wlan0>, GB", "2026-10-31: 150 MB. Most in 2026-10-29: 4.35 GB.", "\n4\n5", "\n2026-10-31"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	b.Unit, b.Title = "J", "Energy"
	if doc, err = b.SVG(); err != nil || !strings.Contains(words(t, doc), "2026-10-31: 1.5e+05 kJ. ") || !strings.Contains(words(t, doc), "Energy, kJ") {
		t.Errorf("%v: %s", err, words(t, doc))
	}
	if n := strings.Count(text, "\n2026-10-"); n < 3 || n > 5 { // besides the words
		t.Errorf("%d of 31 days are named at the axis:\n%s", n, text)
	}
	if _, err := b.PNG(); err != nil {
		t.Error(err)
	}
}

func TestPNG(t *testing.T) {
	doc, err := example(2, 500).PNG()
	if err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(doc))
	if err != nil || img.Bounds().Dx() != 1000 || img.Bounds().Dy() != 2*height {
		t.Error(err, img.Bounds())
	}
}

// TestColours: lines and text stand out from the ground (WCAG 2.1, 1.4.3 and
// 1.4.11), and no two lines are drawn alike where colours are not seen.
func TestColours(t *testing.T) {
	for _, dark := range []bool{false, true} {
		l := lookOf(dark)
		if c := contrast(l.text, l.ground); c < 4.5 {
			t.Errorf("text: %.1f", c)
		}
		for i, line := range l.lines {
			if c := contrast(line, l.ground); c < 3 {
				t.Errorf("dark %v: line %d has a contrast of %.1f", dark, i, c)
			}
			for k := range i {
				if fmt.Sprint(dashes[i]) == fmt.Sprint(dashes[k]) {
					t.Errorf("lines %d and %d have the same dashes", i, k)
				}
			}
		}
	}
}

// contrast is that of WCAG 2.1.
func contrast(a, b color.Color) float64 {
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
