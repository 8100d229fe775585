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

// model is a cell of a row that is computed: a case of lab/virtual, with a
// controller for each flow. The same seed makes the same figures.
type model struct {
	// of makes the case of a repetition, by a seed that no other one has.
	of func(seed uint64) virtual.Case
	// with are the controllers of the flows, if not all have the scheme's.
	with func(scheme string) []string
	// Flows are judged from here on; series are of the whole time.
	from time.Duration
	// tell, if set, prepares a case for figures of its own, and returns who tells
	// them.
	tell func(c *virtual.Case) func(virtual.Outcome) map[string]float64
	keep bool // distributions and series
}

// processorPerSecond is what a second of virtual time takes, about, for each flow
// and cell.
const processorPerSecond = 2 * time.Millisecond

// computed is the experiment of a cell that has a model.
func (c Cell) computed(reps int, seed uint64) lab.Experiment {
	p := lab.Plan{Schemes: c.Schemes, Reps: reps, Fewer: c.Fewer, Seed: seed}
	one := c.Model.of(0)
	took := one.Length.Seconds() * float64(len(one.Flows)+len(one.Network.Cells))
	return lab.NewComputed(c.Name, p, time.Duration(took*float64(processorPerSecond)), func(scheme string, rep int) lab.Result {
		return c.Model.run(1000*seed+uint64(rep), scheme)
	})
}

// asPaper ends the name of PBE-CC whose devices estimate as the paper has it.
const asPaper = ":paper"

// run is one transfer of a scheme.
func (m model) run(seed uint64, scheme string) lab.Result {
	c := m.of(seed)
	scheme, c.Strict = strings.CutSuffix(scheme, asPaper)
	names := []string{scheme}
	if m.with != nil {
		names = m.with(scheme)
	}
	tell := func(virtual.Outcome) map[string]float64 { return nil }
	if m.tell != nil {
		tell = m.tell(&c)
	}
	carriers := make([]int, len(c.Network.Users))
	if len(c.Network.Cells) > 1 {
		c.Watch(func(cell *virtual.Cell) {
			for u := range carriers {
				carriers[u] = max(carriers[u], cell.Truth(u).Carriers)
			}
		})
	}
	o := c.Run(names...)
	v := &lab.Virtual{Figures: tell(o)}
	for i, f := range c.Flows {
		if f.Rate != nil {
			continue
		}
		v.Flows = append(v.Flows, m.flow(c, o, i))
		if at := c.To(i); carriers[at] > 0 {
			v.Flows[len(v.Flows)-1].Carriers = carriers[at]
		}
	}
	return lab.Result{Bytes: v.Flows[0].Bytes, Seconds: (c.Length - m.from).Seconds(), SHA: true, Virtual: v}
}

// flow is what became of flow i.
func (m model) flow(c virtual.Case, o virtual.Outcome, i int) lab.Flow {
	r, of := o.Flows[i], c.Flows[i]
	rate := r.Rate(m.from, c.Length)
	f := lab.Flow{Controller: o.Names[i], Rate: rounded(float64(rate) / 1e6), Bytes: rate.Bytes(c.Length - m.from),
		Prop: inMS(of.Before + of.After), Lost: rounded(100 * r.Loss(m.from, c.Length))}
	var delays []float64
	sum := 0.0
	step := virtual.SlotLength
	slots := make([]float64, int(c.Length/step))
	n := make([]float64, len(slots))
	for _, a := range r.Arrivals {
		if at := int(a.At / step); at < len(slots) {
			slots[at] += inMS(a.Delay)
			n[at]++
		}
		if a.At >= m.from {
			delays = append(delays, inMS(a.Delay))
			sum += inMS(a.Delay)
		}
	}
	if len(delays) > 0 {
		slices.Sort(delays)
		at := func(q float64) float64 { return rounded(delays[min(int(q*float64(len(delays))), len(delays)-1)]) }
		f.Mean, f.P50, f.P95 = rounded(sum/float64(len(delays))), at(0.5), at(0.95)
		for q := 0; m.keep && q <= 100; q++ {
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
	if m.keep {
		f.Step = step.Seconds()
		for at := range slots {
			f.Rates = append(f.Rates, rounded(float64(8*r.Each[at])/1e6/step.Seconds()))
			f.Delays = append(f.Delays, rounded(slots[at]/max(1, n[at])))
		}
	}
	return f
}

func inMS(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// rounded has three decimals, so that records are short.
func rounded(v float64) float64 { return math.Round(1000*v) / 1000 }

// Metrics of transfers in virtual time.
var (
	// LateP95 and LateMean are delays of the packets of the scheme's flow, one way.
	LateP95  = flowMetric("delay, p95", "ms", 0, false, func(f lab.Flow) float64 { return f.P95 })
	LateMean = flowMetric("delay, mean", "ms", 0, false, func(f lab.Flow) float64 { return f.Mean })
	Lost     = flowMetric("lost", "%", 0, false, func(f lab.Flow) float64 { return f.Lost })
	// Elsewhere is the time in the states drain and internet.
	Elsewhere = Metric{Name: "time in drain and internet", Unit: "%", Of: func(r lab.Result) (float64, bool) {
		if r.Virtual == nil || r.Virtual.Flows[0].States == nil {
			return 0, false
		}
		s, all := r.Virtual.Flows[0].States, 0.0
		for _, v := range s {
			all += v
		}
		return 100 * (s[cc.Drain.String()] + s[cc.Internet.String()]) / all, all > 0
	}}
	// Carriers is how many were active at once, at most.
	Carriers = Metric{Name: "carriers", Unit: "at most", More: true, Of: func(r lab.Result) (float64, bool) {
		if r.Virtual == nil {
			return 0, false
		}
		return float64(max(1, r.Virtual.Flows[0].Carriers)), true
	}}
)

func init() { LateP95.beside = true }

// flowMetric is a figure of one flow.
func flowMetric(name, unit string, flow int, more bool, of func(lab.Flow) float64) Metric {
	return Metric{Name: name, Unit: unit, More: more, Of: func(r lab.Result) (float64, bool) {
		if r.Virtual == nil || len(r.Virtual.Flows) <= flow {
			return 0, false
		}
		return of(r.Virtual.Flows[flow]), true
	}}
}

// figure is one of those that only the cell's model tells.
func figure(name, unit string, more bool) Metric {
	return Metric{Name: name, Unit: unit, More: more, Of: func(r lab.Result) (v float64, told bool) {
		if r.Virtual != nil {
			v, told = r.Virtual.Figures[name]
		}
		return v, told
	}}
}

// medians are lines of the median place, by scheme and metric, and how ours
// compares in the row's first metric and its delay, place by place.
func (r Row) medians(d Data) (all []Line) {
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
	schemes := r.schemes(cells)
	for _, m := range r.Metrics {
		for _, s := range schemes {
			if l := (Line{Cell: cell, Scheme: s, Metric: m.Name, Unit: m.Unit, Stat: Summarize(d.median(cells, s, m))}); l.N > 0 {
				all = append(all, l)
			}
		}
	}
	for _, m := range r.compared() {
		for _, s := range schemes {
			ratios := d.medianRatio(cells, [2]string{r.ours(), s}, m)
			all = append(all, Line{Cell: cell, Scheme: s, Metric: m.Name + ": " + r.ours() + " by this scheme's", Unit: "times", Stat: Summarize(ratios)})
		}
	}
	return all
}

// median is a metric of a scheme in the median one of some cells, of each
// repetition.
func (d Data) median(cells []string, scheme string, m Metric) []float64 {
	var by byRep
	for _, c := range cells {
		for _, r := range d.counted(c, scheme) {
			if v, ok := m.Of(r); ok {
				by.add(r.Rep, v)
			}
		}
	}
	return by.medians()
}

// medianRatio is likewise how many times as much one scheme has as another one.
func (d Data) medianRatio(cells []string, pair [2]string, m Metric) []float64 {
	var by byRep
	for _, c := range cells {
		d.each(c, pair, m, func(rep int, ours, base float64) {
			if base > 0 {
				by.add(rep, ours/base)
			}
		})
	}
	return by.medians()
}

// byRep are values by repetition.
type byRep [][]float64

func (b *byRep) add(rep int, v float64) {
	for len(*b) <= rep {
		*b = append(*b, nil)
	}
	(*b)[rep] = append((*b)[rep], v)
}

func (b byRep) medians() (all []float64) {
	for _, v := range b {
		if len(v) > 0 {
			slices.Sort(v)
			all = append(all, (v[(len(v)-1)/2]+v[len(v)/2])/2)
		}
	}
	return all
}

// percent says ratios as changes.
func percent(ratios []float64) (all []float64) {
	for _, r := range ratios {
		all = append(all, 100*(r-1))
	}
	return all
}
