package exp

import (
	"fmt"

	"gonum.org/v1/plot/plotter"

	"mpbond/lab"
)

// chart is figures in time.
type chart struct {
	title, unit string
	names       []string
	step        float64 // seconds
	values      [][]float64
}

// charts draw rates and delays in time, of the first repetition: in a cell of one
// flow a line for each scheme, in others a line for each flow, and a chart for each
// scheme.
func (r Row) charts(d Data) (all []chart) {
	for _, cell := range r.Series {
		var rates, delays chart
		for _, scheme := range r.schemes([]string{cell}) {
			for _, x := range d.counted(cell, scheme)[:min(1, len(d.counted(cell, scheme)))] {
				flows := x.Virtual.Flows
				for i, f := range flows {
					name := scheme
					if len(flows) > 1 {
						name = fmt.Sprintf("%d: %s", i+1, f.Controller)
					}
					rates.add(name, f, f.Rates)
					delays.add(name, f, f.Delays)
				}
				if len(flows) > 1 {
					all = append(all, rates.named(cell+"; "+scheme, "Mbit/s"), delays.named(cell+"; "+scheme, "ms"))
					rates, delays = chart{}, chart{}
				}
			}
		}
		if len(rates.names) > 0 {
			all = append(all, rates.named(cell, "Mbit/s"), delays.named(cell, "ms"))
		}
	}
	return all
}

func (c *chart) add(name string, f lab.Flow, values []float64) {
	c.names, c.values, c.step = append(c.names, name), append(c.values, values), f.Step
}

func (c chart) named(title, unit string) chart {
	c.title, c.unit = title+": "+map[string]string{"ms": "mean delay", "Mbit/s": "rate"}[unit], unit
	return c
}

// draw draws it; lines have the colors of schemes where they are named so.
func (c chart) draw(all palette) ([]byte, error) {
	p := newPlot(c.unit)
	p.Title.Text, p.X.Label.Text = c.title, "s"
	for i, name := range c.names {
		points := make(plotter.XYs, 0, len(c.values[i]))
		for at, v := range c.values[i] {
			points = append(points, plotter.XY{X: (float64(at) + 0.5) * c.step, Y: v})
		}
		if len(points) == 0 {
			continue
		}
		color := lineColor(i)
		if len(all) > 0 && all[all.of(name)] == name {
			color = all.color(name)
		}
		if err := addLine(p, name, points, color); err != nil {
			return nil, err
		}
	}
	return svg(p, plotMargin+400)
}

// modelled are the distributions of a row in virtual time: over its places, or
// within the transfers of the cells that are chosen for it.
func (r Row) modelled(d Data) (all []spread) {
	if r.Places {
		for _, m := range r.compared() {
			s := spread{title: m.Name + ": all transfers at all places", unit: m.Unit}
			for _, scheme := range r.schemes(names(r.Cells)) {
				var values []float64
				for _, c := range r.Cells {
					values = append(values, d.Values(c.Name, scheme, m)...)
				}
				s.add(scheme, values)
			}
			all = append(all, s)
		}
	}
	for _, cell := range r.CDFs {
		rates, delays := spread{title: cell + ": rate in each slot", unit: "Mbit/s"}, spread{title: cell + ": delay of packets, one way", unit: "ms"}
		for _, scheme := range r.schemes([]string{cell}) {
			var rate, delay []float64
			for _, x := range d.counted(cell, scheme) {
				rate, delay = append(rate, x.Virtual.Flows[0].Rates...), append(delay, x.Virtual.Flows[0].Quantiles...)
			}
			rates.add(scheme, rate)
			delays.add(scheme, delay)
		}
		all = append(all, rates, delays)
	}
	return drawable(all)
}

// drawable are distributions of something.
func drawable(all []spread) (some []spread) {
	for _, s := range all {
		if len(s.schemes) > 0 {
			some = append(some, s)
		}
	}
	return some
}
