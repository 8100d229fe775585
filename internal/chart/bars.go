// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"fmt"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"mpbond/base/text"
)

const (
	barFraction = 0.7  // part of its column that a bar fills
	maxBarWidth = 64.0 // points
)

// Bars draws one bar for each of some periods or kinds.
type Bars struct {
	Title  string
	Names  []string  // of the bars, from left to right
	Values []float64 // one for each name
	Unit   string    // of the values
	Width  int       // points
}

// SVG returns the chart as a document with a text alternative.
func (b Bars) SVG() ([]byte, error) { return renderChartSVG(b.layoutBarFrame(), b.drawBarChart) }

// PNG returns the chart as an image with two pixels per point.
func (b Bars) PNG() ([]byte, error) { return renderChartPNG(b.layoutBarFrame(), b.drawBarChart) }

func (b Bars) layoutBarFrame() frame {
	return frame{b.Title, b.Describe(), float64(b.Width), height}
}

// Describe describes the last and the highest bar in a sentence.
func (b Bars) Describe() string {
	last := len(b.Values) - 1
	if last < 0 {
		return "Nothing to show yet."
	}
	top := 0
	for i, v := range b.Values {
		if v > b.Values[top] {
			top = i
		}
	}
	describeBar := func(i int) string {
		return fmt.Sprintf("%s: %.3g %s", b.Names[i], b.Values[i], b.Unit)
	}
	return fmt.Sprintf("%s. Most in %s.", describeBar(last), describeBar(top))
}

// drawBarChart draws the bars with a scale from 0 and, as room permits, their names.
func (b Bars) drawBarChart(dc draw.Canvas) error {
	theme := newChartTheme()
	dc.SetColor(theme.ground)
	dc.Fill(dc.Rectangle.Path())
	top := 0.0
	for _, v := range b.Values {
		top = max(top, v)
	}
	p := theme.newThemedPlot()
	p.Title.Text = text.Printable(b.Title) + ", " + b.Unit
	step := chooseTickStep(top)
	p.Y.Min, p.Y.Max = 0, max(math.Ceil(top/step-1e-9), 1)*step
	p.Y.Tick.Marker = plot.ConstantTicks(valueTicks(p.Y.Max, step))
	n := len(b.Values)
	p.X.Min, p.X.Max = -0.5, max(float64(n), 1)-0.5
	p.Add(theme.newGridLines())
	if n > 0 {
		area := float64(dc.Max.X-dc.Min.X) - 70
		bars, err := plotter.NewBarChart(plotter.Values(b.Values),
			vg.Length(max(min(area/float64(n)*barFraction, maxBarWidth), 1)))
		if err != nil {
			return err
		}
		bars.Color, bars.LineStyle.Width = theme.lines[0], 0
		p.Add(bars)
	}
	p.X.Tick.Marker = plot.ConstantTicks(b.barNameTicks(int(dc.Max.X-dc.Min.X) / 95))
	p.Draw(draw.Crop(dc, 14, -22, 4, -6))
	return nil
}

// barNameTicks returns ticks that name as many bars as room allows, the last one among them.
func (b Bars) barNameTicks(room int) (ticks []plot.Tick) {
	n := len(b.Names)
	every := max((n+room-1)/max(room, 1), 1)
	for i := n - 1; i >= 0; i -= every {
		ticks = append(ticks, plot.Tick{Value: float64(i), Label: text.Printable(b.Names[i])})
	}
	return ticks
}
