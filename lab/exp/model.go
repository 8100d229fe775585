// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"math"
	"slices"
	"strings"
	"time"

	"mpbond/lab"
	"mpbond/lab/virtual"
	"mpbond/pbe/cc"
)

// model is a cell that is computed: a case of lab/virtual with a controller for each flow. The same
// seed gives the same values.
type model struct {
	// makeCase makes the case of a repetition from its own seed.
	makeCase func(seed uint64) virtual.Case
	// controllers are the controllers of the flows, if they differ.
	controllers func(scheme string) []string
	// evaluateFrom is when the evaluation of flows begins. Series cover the whole time.
	evaluateFrom time.Duration
	// instrument prepares a case for metrics of its own, if set, and returns a function that reads
	// them.
	instrument func(c *virtual.Case) func(virtual.Outcome) map[string]float64
	keepSeries bool // keep distributions and series
}

// processorPerSecond estimates the processor time for a second of virtual time, for each flow and
// cell.
const processorPerSecond = 2 * time.Millisecond

// virtualExperiment returns the experiment of a cell with a model.
func (c Cell) virtualExperiment(reps int, seed uint64) lab.Experiment {
	p := lab.RunSpec{Schemes: c.Schemes, Reps: reps, RepsByScheme: c.RepsByScheme, Seed: seed}
	one := c.Model.makeCase(0)
	took := one.Length.Seconds() * float64(len(one.Flows)+len(one.Network.Cells))
	return lab.NewVirtualExperiment(c.Name, p, time.Duration(took*float64(processorPerSecond)),
		func(scheme string, rep int) lab.Result {
			return c.Model.runModelTransfer(1000*seed+uint64(rep), scheme)
		})
}

// computeTime estimates the processor time of a repetition of a computed cell.
const computeTime = time.Second

// computedExperiment returns the experiment of a cell that computes figures. A failure is that of the
// repetition.
func (c Cell) computedExperiment(reps int, o Options) lab.Experiment {
	p := lab.RunSpec{Schemes: c.Schemes, Reps: reps, Seed: o.Seed}
	return lab.NewVirtualExperiment(c.Name, p, computeTime, func(_ string, rep int) lab.Result {
		figures, err := c.Compute(o, rep)
		r := lab.Result{Seconds: computeTime.Seconds(), SHA: true, Virtual: &lab.VirtualResult{Figures: figures}}
		if err != nil {
			r.Error = err.Error()
		}
		return r
	})
}

// paperSuffix ends the name of PBE-CC whose devices estimate as the paper describes.
const paperSuffix = ":paper"

// runModelTransfer computes one transfer of a scheme.
func (m model) runModelTransfer(seed uint64, scheme string) lab.Result {
	c := m.makeCase(seed)
	scheme, c.Strict = strings.CutSuffix(scheme, paperSuffix)
	names := []string{scheme}
	if m.controllers != nil {
		names = m.controllers(scheme)
	}
	readMetrics := func(virtual.Outcome) map[string]float64 { return nil }
	if m.instrument != nil {
		readMetrics = m.instrument(&c)
	}
	carriers := make([]int, len(c.Network.Users))
	if len(c.Network.Cells) > 1 {
		c.OnSubframe(func(cell *virtual.Cell) {
			for u := range carriers {
				carriers[u] = max(carriers[u], cell.Truth(u).Carriers)
			}
		})
	}
	o := c.Run(names...)
	v := &lab.VirtualResult{Figures: readMetrics(o)}
	for i, f := range c.Flows {
		if f.Rate != nil {
			continue
		}
		v.Flows = append(v.Flows, m.flowResult(c, o, i))
		if at := c.UserOf(i); carriers[at] > 0 {
			v.Flows[len(v.Flows)-1].Carriers = carriers[at]
		}
	}
	return lab.Result{Bytes: v.Flows[0].Bytes, Seconds: (c.Length - m.evaluateFrom).Seconds(), SHA: true, Virtual: v}
}

// flowResult returns the result of flow i.
func (m model) flowResult(c virtual.Case, o virtual.Outcome, i int) lab.Flow {
	r, of := o.Flows[i], c.Flows[i]
	rate := r.Rate(m.evaluateFrom, c.Length)
	f := lab.Flow{Controller: o.Names[i], Rate: roundToMilli(float64(rate) / 1e6),
		Bytes:       rate.Bytes(c.Length - m.evaluateFrom),
		Propagation: floatMilliseconds(of.DelayToLink + of.DelayFromLink),
		Lost:        roundToMilli(100 * r.Loss(m.evaluateFrom, c.Length))}
	var delays []float64
	sum := 0.0
	step := virtual.SlotLength
	slots := make([]float64, int(c.Length/step))
	n := make([]float64, len(slots))
	for _, a := range r.Arrivals {
		if at := int(a.At / step); at < len(slots) {
			slots[at] += floatMilliseconds(a.Delay)
			n[at]++
		}
		if a.At >= m.evaluateFrom {
			delays = append(delays, floatMilliseconds(a.Delay))
			sum += floatMilliseconds(a.Delay)
		}
	}
	if len(delays) > 0 {
		slices.Sort(delays)
		at := func(q float64) float64 { return roundToMilli(delays[min(int(q*float64(len(delays))), len(delays)-1)]) }
		f.Mean, f.P50, f.P95 = roundToMilli(sum/float64(len(delays))), at(0.5), at(0.95)
		for q := 0; m.keepSeries && q <= 100; q++ {
			f.Quantiles = append(f.Quantiles, at(float64(q)/100))
		}
	}
	if p := o.PBE[i]; p != nil {
		_, spent := p.State()
		f.States = map[string]float64{}
		for s, t := range spent {
			f.States[cc.PBEState(s).String()] = t.Seconds()
		}
	}
	if m.keepSeries {
		f.Step = step.Seconds()
		for at := range slots {
			f.Rates = append(f.Rates, roundToMilli(float64(8*r.SlotBytes[at])/1e6/step.Seconds()))
			f.Delays = append(f.Delays, roundToMilli(slots[at]/max(1, n[at])))
		}
	}
	return f
}

// floatMilliseconds returns a duration in ms.
func floatMilliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// roundToMilli rounds to three decimals, so that records are short.
func roundToMilli(v float64) float64 { return math.Round(1000*v) / 1000 }

// Metrics of transfers in virtual time.
var (
	// DelayP95 and DelayMean are one-way delays of packets of the scheme's flow.
	DelayP95  = flowMetric("delay, p95", "ms", 0, false, func(f lab.Flow) float64 { return f.P95 })
	DelayMean = flowMetric("delay, mean", "ms", 0, false, func(f lab.Flow) float64 { return f.Mean })
	Lost      = flowMetric("lost", "%", 0, false, func(f lab.Flow) float64 { return f.Lost })
	// DrainTime is the time in the states drain and internet.
	DrainTime = Metric{Name: "time in drain and internet", Unit: "%", Of: func(r lab.Result) (float64, bool) {
		if r.Virtual == nil || r.Virtual.Flows[0].States == nil {
			return 0, false
		}
		s, all := r.Virtual.Flows[0].States, 0.0
		for _, v := range s {
			all += v
		}
		return 100 * (s[cc.Drain.String()] + s[cc.Internet.String()]) / all, all > 0
	}}
	// Carriers is the largest number of carriers that were active at once.
	Carriers = Metric{Name: "carriers", Unit: "at most", More: true, Of: func(r lab.Result) (float64, bool) {
		if r.Virtual == nil {
			return 0, false
		}
		return float64(max(1, r.Virtual.Flows[0].Carriers)), true
	}}
)

func init() { DelayP95.alsoCompared = true }

// flowMetric returns a metric of one flow.
func flowMetric(name, unit string, flow int, more bool, of func(lab.Flow) float64) Metric {
	return Metric{Name: name, Unit: unit, More: more, Of: func(r lab.Result) (float64, bool) {
		if r.Virtual == nil || len(r.Virtual.Flows) <= flow {
			return 0, false
		}
		return of(r.Virtual.Flows[flow]), true
	}}
}

// modelMetric returns a metric that only the cell's model has.
func modelMetric(name, unit string, more bool) Metric {
	return Metric{Name: name, Unit: unit, More: more, Of: func(r lab.Result) (v float64, ok bool) {
		if r.Virtual != nil {
			v, ok = r.Virtual.Figures[name]
		}
		return v, ok
	}}
}

// medianLines returns lines of the median place by scheme and metric, and the ratios of the
// evaluated scheme in the row's first metric and its delay, place by place.
func (r Row) medianLines(d Data) (all []Line) {
	if !r.Places {
		return nil
	}
	var cells []string
	for _, c := range r.Cells {
		if len(d[c.Name]) > 0 {
			cells = append(cells, c.Name)
		}
	}
	const cell = "median place"
	schemes := r.comparedSchemes(cells)
	for _, m := range r.Metrics {
		for _, s := range schemes {
			if l := (Line{Cell: cell, Scheme: s, Metric: m.Name, Unit: m.Unit,
				Stat: Summarize(d.medianPerRep(cells, s, m))}); l.N > 0 {
				all = append(all, l)
			}
		}
	}
	for _, m := range r.comparedMetrics() {
		for _, s := range schemes {
			ratios := d.medianRatios(cells, [2]string{r.evaluatedScheme(), s}, m)
			all = append(all, Line{Cell: cell, Scheme: s, Metric: m.Name + ": " + r.evaluatedScheme() +
				" by this scheme's", Unit: "times", Stat: Summarize(ratios)})
		}
	}
	return all
}

// medianPerRep returns a scheme's metric in the median cell of each repetition.
func (d Data) medianPerRep(cells []string, scheme string, m Metric) []float64 {
	var by byRep
	for _, c := range cells {
		for _, r := range d.countedResults(c, scheme) {
			if v, ok := m.Of(r); ok {
				by.addRepValue(r.Rep, v)
			}
		}
	}
	return by.mediansPerRep()
}

// medianRatios returns the median over cells of the ratio of two schemes, for each repetition.
func (d Data) medianRatios(cells []string, pair [2]string, m Metric) []float64 {
	var by byRep
	for _, c := range cells {
		d.forEachPair(c, pair, m, func(rep int, ours, base float64) {
			if base > 0 {
				by.addRepValue(rep, ours/base)
			}
		})
	}
	return by.mediansPerRep()
}

// byRep holds values by repetition.
type byRep [][]float64

func (b *byRep) addRepValue(rep int, v float64) {
	for len(*b) <= rep {
		*b = append(*b, nil)
	}
	(*b)[rep] = append((*b)[rep], v)
}

// mediansPerRep returns the median of each repetition.
func (b byRep) mediansPerRep() (all []float64) {
	for _, v := range b {
		if len(v) > 0 {
			slices.Sort(v)
			all = append(all, (v[(len(v)-1)/2]+v[len(v)/2])/2)
		}
	}
	return all
}

// ratiosToPercent converts ratios into changes.
func ratiosToPercent(ratios []float64) (all []float64) {
	for _, r := range ratios {
		all = append(all, 100*(r-1))
	}
	return all
}
