// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"mpbond/lab"
)

// chart is a plot of values over time.
type chart struct {
	title, unit string
	names       []string
	step        float64 // seconds
	values      [][]float64
}

// makeCharts returns plots of rates and delays over time of the first repetition. A cell with one
// flow has a line for each scheme. Other cells have a line for each flow and a chart for each
// scheme.
func (r Row) makeCharts(d Data) (all []chart) {
	for _, cell := range r.Series {
		var rates, delays chart
		for _, scheme := range r.comparedSchemes([]string{cell}) {
			for _, x := range d.countedResults(cell, scheme)[:min(1, len(d.countedResults(cell, scheme)))] {
				flows := x.Virtual.Flows
				for i, f := range flows {
					name := scheme
					if len(flows) > 1 {
						name = fmt.Sprintf("%d: %s", i+1, f.Controller)
					}
					rates.addFlowSeries(name, f, f.Rates)
					delays.addFlowSeries(name, f, f.Delays)
				}
				if len(flows) > 1 {
					all = append(all, rates.withTitleAndUnit(cell+"; "+scheme, "Mbit/s"), delays.withTitleAndUnit(cell+"; "+scheme,
						"ms"))
					rates, delays = chart{}, chart{}
				}
			}
		}
		if len(rates.names) > 0 {
			all = append(all, rates.withTitleAndUnit(cell, "Mbit/s"), delays.withTitleAndUnit(cell, "ms"))
		}
	}
	return all
}

// addFlowSeries adds a line.
func (c *chart) addFlowSeries(name string, f lab.Flow, values []float64) {
	c.names, c.values, c.step = append(c.names, name), append(c.values, values), f.Step
}

// withTitleAndUnit returns the chart with a title and a unit.
func (c chart) withTitleAndUnit(title, unit string) chart {
	c.title, c.unit = title+": "+map[string]string{"ms": "mean delay", "Mbit/s": "rate"}[unit], unit
	return c
}

// drawChartLines draws the chart. Lines named after schemes have the schemes' colors.
func (c chart) drawChartLines(all palette) (linePlot, error) {
	p := newEmptyPlot(c.title, "s", c.unit)
	for i, name := range c.names {
		points := make(plotter.XYs, 0, len(c.values[i]))
		for at, v := range c.values[i] {
			points = append(points, plotter.XY{X: (float64(at) + 0.5) * c.step, Y: v})
		}
		if len(points) == 0 {
			continue
		}
		color := plotLineColor(i)
		if len(all) > 0 && all[all.schemeIndex(name)] == name {
			color = all.schemeColor(name)
		}
		if err := p.addPlotLine(name, points, color); err != nil {
			return p, err
		}
	}
	return p, nil
}

// scatter is a plot with a point for each scheme.
type scatter struct {
	title string
	axes  [2]string
	names []string
	at    [][2]float64
	// most are the ends of the axes, the same for all plots of a row.
	most [2]float64
}

// makeScatters returns a plot for each cell: the means of the row's two metrics of each scheme.
func (r Row) makeScatters(d Data) (all []scatter) {
	if r.Scatter == nil {
		return nil
	}
	x, y := r.Scatter[0], r.Scatter[1]
	for _, c := range r.Cells {
		s := scatter{title: c.Name, axes: [2]string{x.Name + ", " + x.Unit, y.Name + ", " + y.Unit}}
		for _, scheme := range c.Schemes {
			a, b := d.Values(c.Name, scheme, x), d.Values(c.Name, scheme, y)
			if len(a) > 0 && len(b) > 0 {
				s.names, s.at = append(s.names, scheme), append(s.at, [2]float64{meanOfValues(a), meanOfValues(b)})
			}
		}
		if len(s.names) > 0 {
			all = append(all, s)
		}
	}
	var most [2]float64
	for _, s := range all {
		for _, at := range s.at {
			most = [2]float64{max(most[0], at[0]), max(most[1], at[1])}
		}
	}
	for i := range all {
		all[i].most = most
	}
	return all
}

// leastScatter is the least value of the logarithmic axis. Less is drawn there.
const leastScatter = 1

// drawPoints draws the plot. The horizontal axis is logarithmic: delays of schemes differ by a factor of a hundred.
// Names are beside the points.
func (s scatter) drawPoints(all palette) (linePlot, error) {
	p := newEmptyPlot(s.title, s.axes[0], s.axes[1])
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	labels := plotter.XYLabels{}
	for i, name := range s.names {
		at := plotter.XY{X: max(s.at[i][0], leastScatter), Y: s.at[i][1]}
		points, err := plotter.NewScatter(plotter.XYs{at})
		if err != nil {
			return p, err
		}
		points.Color, points.Radius, points.Shape = all.schemeColor(name), vg.Points(3), draw.CircleGlyph{}
		p.Add(points)
		labels.XYs, labels.Labels = append(labels.XYs, at), append(labels.Labels, name)
	}
	p.X.Min, p.X.Max, p.Y.Max = leastScatter, 5*max(s.most[0], leastScatter), 1.05*s.most[1] // with room for names
	names, err := plotter.NewLabels(labels)
	if err != nil {
		return p, err
	}
	names.Offset = vg.Point{X: vg.Points(5), Y: vg.Points(-3)}
	for i := range names.TextStyle {
		names.TextStyle[i].Font = font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, 8)
	}
	p.Add(names)
	return p, nil
}

// virtualSpreads returns the distributions of a row in virtual time: over its places, or within the
// transfers of the cells in CDFs.
func (r Row) virtualSpreads(d Data) (all []distribution) {
	if r.Places {
		for _, m := range r.comparedMetrics() {
			s := distribution{title: m.Name + ": all transfers at all places", unit: m.Unit}
			for _, scheme := range r.comparedSchemes(listCellNames(r.Cells)) {
				var values []float64
				for _, c := range r.Cells {
					values = append(values, d.Values(c.Name, scheme, m)...)
				}
				s.addSchemeValues(scheme, values)
			}
			all = append(all, s)
		}
	}
	for _, cell := range r.CDFs {
		rates, delays := distribution{title: cell + ": rate in each slot", unit: "Mbit/s"},
			distribution{title: cell + ": delay of packets, one way", unit: "ms"}
		for _, scheme := range r.comparedSchemes([]string{cell}) {
			var rate, delay []float64
			for _, x := range d.countedResults(cell, scheme) {
				rate, delay = append(rate, x.Virtual.Flows[0].Rates...), append(delay, x.Virtual.Flows[0].Quantiles...)
			}
			rates.addSchemeValues(scheme, rate)
			delays.addSchemeValues(scheme, delay)
		}
		all = append(all, rates, delays)
	}
	return nonEmptySpreads(all)
}

// nonEmptySpreads returns the distributions that have values.
func nonEmptySpreads(all []distribution) (some []distribution) {
	for _, s := range all {
		if len(s.schemes) > 0 {
			some = append(some, s)
		}
	}
	return some
}
