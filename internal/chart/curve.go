// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"fmt"
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"mpbond/base/text"
)

// Curve is one distribution. Fractions[i] is the fraction of all values that are at most Values[i],
// which ascend.
type Curve struct {
	Name              string
	Values, Fractions []float64
}

// Curves draws distributions.
type Curves struct {
	Title string
	Unit  string // of values
	// LogScale makes the axis of values logarithmic. Values that are not positive are left out.
	LogScale bool
	Curves   []Curve // the first eight are drawn
	Width    int     // points
}

// SVG returns the chart as a document with a text alternative.
func (c Curves) SVG() ([]byte, error) { return renderChartSVG(c.layoutCurveFrame(), c.drawCurveChart) }

// PNG returns the chart as an image with two pixels per point.
func (c Curves) PNG() ([]byte, error) { return renderChartPNG(c.layoutCurveFrame(), c.drawCurveChart) }

func (c Curves) layoutCurveFrame() frame {
	return frame{c.Title, c.Describe(), max(float64(c.Width), minWidth), height}
}

// Describe describes the median and the highest value of each curve.
func (c Curves) Describe() string {
	var all []string
	for _, l := range c.Curves {
		for i, p := range l.Fractions {
			if p >= 0.5 {
				all = append(all, fmt.Sprintf("%s: half of all up to %.3g, at most %.3g %s.", l.Name, l.Values[i],
					l.Values[len(l.Values)-1], c.Unit))
				break
			}
		}
	}
	if len(all) == 0 {
		return "Nothing to show yet."
	}
	return strings.Join(all, " ")
}

// stepPoints returns the corners of a curve, which begins with 0 at low.
func (c Curves) stepPoints(l Curve, low float64) plotter.XYs {
	points := plotter.XYs{{X: low, Y: 0}}
	for i, v := range l.Values {
		points = append(points, plotter.XY{X: max(v, low), Y: points[len(points)-1].Y},
			plotter.XY{X: max(v, low), Y: l.Fractions[i]})
	}
	return points
}

// drawCurveChart draws the curves with their axes on dc.
func (c Curves) drawCurveChart(dc draw.Canvas) error {
	theme := newChartTheme()
	dc.SetColor(theme.ground)
	dc.Fill(dc.Rectangle.Path())
	low, top := math.Inf(1), 0.0
	list := c.Curves[:min(len(c.Curves), maxLines)]
	for _, l := range list {
		for _, v := range l.Values {
			if v > 0 {
				low, top = min(low, v), max(top, v)
			}
		}
	}
	p := theme.newThemedPlot()
	p.Title.Text = text.Printable(c.Title)
	p.X.Label.Text, p.X.Label.TextStyle = text.Printable(c.Unit), theme.chartTextStyle(10.5)
	p.Y.Min, p.Y.Max = 0, 1
	p.Y.Tick.Marker = plot.ConstantTicks(valueTicks(1, 0.25))
	if c.LogScale && top > 0 {
		low, top = math.Pow(10, math.Floor(math.Log10(low))), math.Pow(10, math.Ceil(math.Log10(top*1.0001)))
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.ConstantTicks(decadeTicks(low, top))
	} else {
		step := chooseTickStep(top)
		low, top = 0, max(math.Ceil(top/step-1e-9), 1)*step
		p.X.Tick.Marker = plot.ConstantTicks(valueTicks(top, step))
	}
	p.X.Min, p.X.Max = low, top
	p.Add(theme.newGridLines())
	for i, l := range list {
		steps := c.stepPoints(l, low)
		line, err := plotter.NewLine(append(steps, plotter.XY{X: top, Y: steps[len(steps)-1].Y}))
		if err != nil {
			return err
		}
		line.LineStyle = theme.curveLineStyle(i)
		p.Add(line)
	}
	p.Draw(draw.Crop(dc, 14, -14-nameColumn, 4, -6))
	for i, l := range list { // at the right, from the top on
		theme.drawLegendEntry(dc, vg.Point{X: dc.Max.X - nameColumn, Y: dc.Max.Y - vg.Length(40+nameHeight*float64(i))},
			l.Name, i)
	}
	return nil
}

// decadeTicks returns ticks at the powers of ten from low to top.
func decadeTicks(low, top float64) (ticks []plot.Tick) {
	for v := low; v <= top*1.01; v *= 10 {
		ticks = append(ticks, plot.Tick{Value: v, Label: fmt.Sprintf("%.4g", v)})
	}
	return ticks
}
