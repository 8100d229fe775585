// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"bytes"
	"errors"
	"fmt"
	"image/color"
	"regexp"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Sizes of plots in points. The page shrinks a plot to the width of the window.
const (
	plotWidth  = 360
	plotHeight = 210
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

// schemeIndex returns the index of a scheme, 0 if it is unknown.
func (p palette) schemeIndex(scheme string) int { return max(0, slices.Index(p, scheme)) }

func (p palette) schemeColor(scheme string) color.Color { return plotLineColor(p.schemeIndex(scheme)) }

func plotLineColor(i int) color.Color { return schemeColors[i%len(schemeColors)] }

// linePlot is a plot of lines. Its title and the names of lines are text of the page, which is
// never cut.
type linePlot struct {
	*plot.Plot
	title string
	names []lineName
}

// lineName is an entry of a plot's legend.
type lineName struct {
	name   string
	color  color.Color
	dashed bool
}

// drawDistribution draws the cumulative distribution of each scheme's values.
func drawDistribution(s distribution, all palette) (linePlot, error) {
	p := newEmptyPlot(s.title, s.unit, "share")
	p.Y.Max = 1
	for i, scheme := range s.schemes {
		values := thinValues(s.values[i])
		steps := plotter.XYs{{X: values[0], Y: 0}}
		for j, v := range values {
			steps = append(steps, plotter.XY{X: v, Y: float64(j) / float64(len(values))},
				plotter.XY{X: v, Y: float64(j+1) / float64(len(values))})
		}
		if err := p.addPlotLine(scheme, steps, all.schemeColor(scheme)); err != nil {
			return p, err
		}
	}
	return p, nil
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

// drawTimeline draws a timeline: bytes over each link, and dashed the backlog of helpers. Timelines
// of several schemes have the same axes.
func (t timeline) drawTimeline(seconds, mb float64) (linePlot, error) {
	p := newEmptyPlot(t.scheme, "s", "MB")
	p.X.Min, p.X.Max, p.Y.Max = 0, seconds, mb
	for i, l := range t.lines {
		points := plotter.XYs{}
		for j, at := range l.at {
			points = append(points, plotter.XY{X: at, Y: l.mb[j]})
		}
		if err := p.addPlotLine(l.name, points, plotLineColor(i)); err != nil {
			return p, err
		}
	}
	return p, nil
}

// addPlotLine adds a line, dashed for a helper's backlog.
func (p *linePlot) addPlotLine(name string, points plotter.XYs, c color.Color) error {
	l, err := plotter.NewLine(points)
	if err != nil {
		return err
	}
	l.Color, l.Width = c, vg.Points(1.5)
	dashed := strings.HasPrefix(name, heldByPrefix)
	if dashed {
		l.Dashes = []vg.Length{vg.Points(4), vg.Points(2)}
	}
	p.Add(l)
	p.names = append(p.names, lineName{name, c, dashed})
	return nil
}

// newEmptyPlot returns an empty plot with the names of its axes; y begins at 0.
func newEmptyPlot(title, x, y string) linePlot {
	p := linePlot{plot.New(), title, nil}
	sans := font.Font{Typeface: "Liberation", Variant: "Sans"}
	for _, f := range []*font.Font{&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font,
		&p.X.Tick.Label.Font, &p.Y.Tick.Label.Font} {
		size := f.Size
		*f = font.From(sans, size)
	}
	p.X.Label.Text, p.Y.Label.Text = x, y
	p.Y.Min = 0
	return p
}

// svgSize matches the size of an SVG element, which the page sets instead.
var svgSize = regexp.MustCompile(`^<svg width="[^"]*" height="[^"]*"`)

// writeFigure writes the plot as a figure of the page: title, legend, and an SVG element that fits
// the window.
func (p linePlot) writeFigure(b *strings.Builder) error {
	c := vgsvg.New(vg.Points(plotWidth), vg.Points(plotHeight))
	right := vg.Points(8) // half of the last tick's label
	p.Draw(draw.Crop(draw.New(c), 0, -right, 0, 0))
	var svg bytes.Buffer
	if _, err := c.WriteTo(&svg); err != nil {
		return err
	}
	text := svg.Bytes()
	text = text[max(0, bytes.Index(text, []byte("<svg"))):]
	if !svgSize.Match(text) {
		return errors.New("the plotting library writes another kind of SVG")
	}
	fmt.Fprintf(b, "<figure><figcaption>%s</figcaption>\n<p class=\"legend\">", escapeText("%s", p.title))
	for _, n := range p.names {
		style := "solid"
		if n.dashed {
			style = "dashed"
		}
		fmt.Fprintf(b, "<span><i style=\"border-top:3px %s %s\"></i>%s</span> ", style, formatCSSColor(n.color),
			escapeText("%s", n.name))
	}
	b.WriteString("</p>\n")
	b.Write(svgSize.ReplaceAll(text, []byte(`<svg role="img"`)))
	b.WriteString("</figure>\n")
	return nil
}

// formatCSSColor returns a color for style sheets.
func formatCSSColor(c color.Color) string {
	r, g, b, _ := c.RGBA()
	return fmt.Sprintf("#%02x%02x%02x", r>>8, g>>8, b>>8)
}
