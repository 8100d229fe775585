// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"time"

	"mpbond/lab/radio"
	"mpbond/lab/virtual"
)

// longLength is the length of p13.
const longLength = 5 * time.Minute

// rowP13Long returns row p13: delays that last.
func rowP13Long(radio.Set) Row {
	r := commonPBERow("p13", "Five minutes, beside up to 24 devices, with wrong estimates", "none: ours",
		fmt.Sprintf("The default cell, %v, beside devices that always have data. The rates that the device reports are "+
			"multiplied by a factor in some cells. A fair share is what the same cell carries for each if all "+
			"always have data. The paper has flows of 20 s: a queue that grows slowly does not show in them.", longLength))
	share, worst := modelMetric(shareFigure, "%", true), modelMetric("delay over propagation, p95 of the worst minute",
		"ms", false)
	shareName := "part of a fair share"
	share.Name, worst.alsoCompared = shareName, true
	r.Metrics = []Metric{share, worst, Rate, DelayP95, Lost}
	for _, x := range []struct {
		others int
		factor float64
	}{{0, 1}, {1, 1}, {24, 1}, {1, 0.95}, {1, 1.05}} {
		name := fmt.Sprintf("%d other devices", x.others)
		switch x.others {
		case 0:
			name = "alone"
		case 1:
			name = "one other device"
		}
		if x.factor != 1 {
			name += fmt.Sprintf(", rates times %g", x.factor)
		}
		c := pbeModelCell(name, &model{makeCase: func(seed uint64) virtual.Case {
			c := virtual.Crowd(seed, x.others)
			c.Length = longLength
			c.MisreportRates(x.factor)
			return c
		}, instrument: func(c *virtual.Case) func(virtual.Outcome) map[string]float64 {
			return func(o virtual.Outcome) map[string]float64 {
				f := o.Flows[0]
				return map[string]float64{worst.Name: worstMinute(f, c),
					shareFigure: 100 * float64(f.Rate(0, c.Length)) / float64(c.Share(0))}
			}
		}})
		if c.Schemes, c.Reps = []string{pbe, "bbr"}, 2; len(r.Cells) > 0 {
			c.Quick = 0
		}
		if x.others > 1 {
			c.RepsByScheme = map[string]int{"bbr": 1}
		}
		r.Cells = append(r.Cells, c)
		r.Points = append(r.Points,
			pbeMetricPoint(name, worst, Point{Low: 30, High: 30, PublishedText: "30 ms (required)", Aim: AimAtMost,
				IsLimit: true}),
			pbeMetricPoint(name, share, Point{Low: 95, High: 95, PublishedText: "95 % (required)", Aim: AimAtLeast,
				IsLimit: true}))
	}
	return r
}

// longPlaces is the number of places of p17: each repetition is another one.
const longPlaces = 8

// rowP17LongFlows returns row p17: flows of five minutes in cells as they are.
func rowP17LongFlows(radio.Set) Row {
	r := commonPBERow("p17", "Five minutes in cells as they are", "none: ours", fmt.Sprintf("Places of p14, another one "+
		"in each repetition, %v.", longLength))
	r.Study, r.isUnpublished = CellRows, true
	worst := modelMetric("delay over propagation, p95 of the worst minute", "ms", false)
	worst.alsoCompared = true
	r.Metrics = []Metric{Rate, worst, DelayP95, Lost, DrainTime}
	c := pbeModelCell("places", &model{makeCase: func(seed uint64) virtual.Case {
		c := virtual.Place(seed/1000, seed%1000%longPlaces, 1, virtual.AllParts)
		c.Length = longLength
		return c
	}, instrument: func(c *virtual.Case) func(virtual.Outcome) map[string]float64 {
		return func(o virtual.Outcome) map[string]float64 {
			return map[string]float64{worst.Name: worstMinute(o.Flows[0], c)}
		}
	}})
	c.Schemes, c.Reps, c.MaxReps = []string{pbe, "bbr", "cubic", "copa"}, longPlaces, longPlaces
	r.Cells = []Cell{c}
	p := r.factorPoint([]string{c.Name}, "bbr", Rate, 0.98, "0.98 (required)")
	p.Aim, p.IsLimit = AimAtLeast, true
	r.Points = []Point{p, r.fractionPoint([]string{c.Name}, "bbr", worst, 1, "shorter (required)")}
	return r
}

// worstMinute returns the p95 of the delay over propagation in the worst minute of the first flow, in ms.
func worstMinute(f virtual.Result, c *virtual.Case) (late float64) {
	propagation := c.Flows[0].DelayToLink + c.Flows[0].DelayFromLink
	for m := time.Duration(0); m < c.Length; m += time.Minute {
		late = max(late, floatMilliseconds(f.Delay(m, m+time.Minute, 0.95)-propagation))
	}
	return late
}
