// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"bytes"
	"cmp"
	"image/color"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Sizes of plots in points.
const (
	plotHeight = 230
	plotMargin = 240 // axis and legend
	plotLegend = 175
	plotPerBar = 20
	maxWidth   = 1500
	groupFill  = 0.8 // share of a group's width that bars fill
)

// schemeColors distinguish schemes, also for most people with color vision deficiency (Okabe and
// Ito).
var schemeColors = []color.Color{
	color.RGBA{0, 114, 178, 255}, color.RGBA{86, 180, 233, 255}, color.RGBA{230, 159, 0, 255},
	color.RGBA{0, 158, 115, 255},
	color.RGBA{204, 121, 167, 255}, color.RGBA{213, 94, 0, 255}, color.RGBA{240, 228, 66, 255},
	color.RGBA{120, 120, 120, 255}, color.RGBA{0, 0, 0, 255},
}

// palette are the schemes of a row. Each has the same color in all its plots.
type palette []string

// indexOf returns the index of a scheme, 0 if it is unknown.
func (p palette) indexOf(scheme string) int { return max(0, slices.Index(p, scheme)) }

func (p palette) schemeColor(scheme string) color.Color { return lineColor(p.indexOf(scheme)) }

func lineColor(i int) color.Color { return schemeColors[i%len(schemeColors)] }

// drawBars draws one metric: a group of bars for each cell, a bar for each scheme, whiskers for the
// 95 % interval, and a line across the group at the fluid bound. It returns an SVG element, or nil
// if there is nothing to draw.
func drawBars(lines []Line, metric string, all palette) ([]byte, error) {
	lines = slices.DeleteFunc(slices.Clone(lines), func(l Line) bool { return l.Metric != metric || l.N == 0 })
	if len(lines) == 0 {
		return nil, nil
	}
	var cells, schemes []string
	for _, l := range lines {
		if !slices.Contains(cells, l.Cell) {
			cells = append(cells, l.Cell)
		}
		if !slices.Contains(schemes, l.Scheme) {
			schemes = append(schemes, l.Scheme)
		}
	}
	slices.SortStableFunc(schemes, func(a, b string) int { return cmp.Compare(all.indexOf(a), all.indexOf(b)) })
	p := newPlot(metric + ", " + lines[0].Unit)
	p.NominalX(cells...)
	if len(cells) > 3 {
		p.X.Tick.Label.Rotation, p.X.Tick.Label.XAlign, p.X.Tick.Label.YAlign = math.Pi/8, draw.XRight, draw.YCenter
	}
	for j, scheme := range schemes {
		if err := addBars(p, lines, barPosition{cells, j, len(schemes), all.schemeColor(scheme)}, scheme); err != nil {
			return nil, err
		}
	}
	for i, cell := range cells {
		k := slices.IndexFunc(lines, func(l Line) bool { return l.Cell == cell && l.Bound > 0 })
		if k < 0 {
			continue
		}
		b, err := plotter.NewLine(plotter.XYs{{X: float64(i) - groupFill/2, Y: lines[k].Bound},
			{X: float64(i) + groupFill/2, Y: lines[k].Bound}})
		if err != nil {
			return nil, err
		}
		b.Dashes = []vg.Length{vg.Points(4), vg.Points(2)}
		p.Add(b)
		if i == 0 {
			p.Legend.Add("fluid bound", b)
		}
	}
	return renderSVG(p, min(maxWidth, plotMargin+plotPerBar*len(cells)*(len(schemes)+1)))
}

// barPosition is the position of a scheme's bars.
type barPosition struct {
	cells      []string
	scheme, of int
	color      color.Color
}

func addBars(p *plot.Plot, lines []Line, at barPosition, scheme string) error {
	width := groupFill / float64(at.of)
	shown := false
	for _, l := range lines {
		if l.Scheme != scheme {
			continue
		}
		x := float64(slices.Index(at.cells, l.Cell)) - groupFill/2 + width*float64(at.scheme)
		bar, err := plotter.NewPolygon(plotter.XYs{{X: x, Y: 0}, {X: x + 0.9*width, Y: 0},
			{X: x + 0.9*width, Y: l.Mean}, {X: x, Y: l.Mean}})
		if err != nil {
			return err
		}
		bar.Color, bar.LineStyle.Width = at.color, 0
		p.Add(bar)
		if !shown {
			p.Legend.Add(scheme, bar)
			shown = true
		}
		if l.N < 2 {
			continue
		}
		low := l.Half
		if l.Mean >= 0 {
			low = min(low, l.Mean) // nothing is drawn below 0
		}
		whisker, err := plotter.NewYErrorBars(struct {
			plotter.XYs
			plotter.YErrors
		}{plotter.XYs{{X: x + 0.45*width, Y: l.Mean}}, plotter.YErrors{{Low: low, High: l.Half}}})
		if err != nil {
			return err
		}
		whisker.CapWidth = vg.Points(4)
		p.Add(whisker)
	}
	return nil
}

// drawDistribution draws the cumulative distribution of each scheme's values.
func drawDistribution(s distribution, all palette) ([]byte, error) {
	p := newPlot("share")
	p.Title.Text = s.title
	p.X.Label.Text = s.unit
	p.Y.Max = 1
	for i, scheme := range s.schemes {
		values := thinValues(s.values[i])
		steps := plotter.XYs{{X: values[0], Y: 0}}
		for j, v := range values {
			steps = append(steps, plotter.XY{X: v, Y: float64(j) / float64(len(values))},
				plotter.XY{X: v, Y: float64(j+1) / float64(len(values))})
		}
		if err := addLine(p, scheme, steps, all.schemeColor(scheme)); err != nil {
			return nil, err
		}
	}
	return renderSVG(p, plotMargin+300)
}

// maxSteps is how many values of a distribution are drawn.
const maxSteps = 200

// thinValues returns quantiles of sorted values if there are too many.
func thinValues(values []float64) []float64 {
	if len(values) <= maxSteps {
		return values
	}
	some := make([]float64, maxSteps)
	for i := range some {
		some[i] = values[i*(len(values)-1)/(maxSteps-1)]
	}
	return some
}

// drawSVG draws a timeline: bytes over each link, and dashed the backlog of helpers. Timelines of
// several schemes have the same axes.
func (t timeline) drawSVG(seconds, mb float64) ([]byte, error) {
	p := newPlot("MB")
	p.Title.Text = t.scheme
	p.X.Label.Text = "s"
	p.X.Min, p.X.Max, p.Y.Max = 0, seconds, mb
	for i, l := range t.lines {
		points := plotter.XYs{}
		for j, at := range l.at {
			points = append(points, plotter.XY{X: at, Y: l.mb[j]})
		}
		if err := addLine(p, l.name, points, lineColor(i)); err != nil {
			return nil, err
		}
	}
	return renderSVG(p, plotMargin+190)
}

// addLine adds a line, dashed for a helper's backlog.
func addLine(p *plot.Plot, name string, points plotter.XYs, c color.Color) error {
	l, err := plotter.NewLine(points)
	if err != nil {
		return err
	}
	l.Color, l.Width = c, vg.Points(1.5)
	if strings.HasPrefix(name, heldByPrefix) {
		l.Dashes = []vg.Length{vg.Points(4), vg.Points(2)}
	}
	p.Add(l)
	p.Legend.Add(name, l)
	return nil
}

// newPlot returns an empty plot with our fonts; y begins at 0.
func newPlot(y string) *plot.Plot {
	p := plot.New()
	sans := font.Font{Typeface: "Liberation", Variant: "Sans"}
	for _, f := range []*font.Font{&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font,
		&p.X.Tick.Label.Font, &p.Y.Tick.Label.Font, &p.Legend.TextStyle.Font} {
		size := f.Size
		*f = font.From(sans, size)
	}
	p.Y.Label.Text = y
	p.Y.Min = 0
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, vg.Points(3)
	return p
}

// renderSVG draws a plot as one SVG element for HTML.
func renderSVG(p *plot.Plot, width int) ([]byte, error) {
	c := vgsvg.New(vg.Points(float64(width)), vg.Points(plotHeight))
	dc := draw.New(c)
	// The legend is on the right.
	legend := p.Legend
	p.Legend = plot.NewLegend()
	p.Draw(draw.Crop(dc, 0, -vg.Points(plotLegend), 0, 0))
	legend.Draw(draw.Crop(dc, vg.Points(float64(width)-plotLegend+8), 0, 0, 0))
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return nil, err
	}
	text := b.Bytes()
	return text[max(0, bytes.Index(text, []byte("<svg"))):], nil
}
