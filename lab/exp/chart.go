// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"

	"gonum.org/v1/plot/plotter"

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
