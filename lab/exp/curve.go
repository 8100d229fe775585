package exp

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"mpbond/base/unit"
	"mpbond/lab"
	"mpbond/lab/radio"
)

// Samples are many figures of one transfer, in time: the report draws how they
// are distributed.
type Samples struct {
	Name, Unit string
	Of         func(lab.Result) []float64
}

// RateSamples are the rates at which packets arrived at the primary, or left it
// with an upload, in steps of time. A row that has them needs packets.
func RateSamples(step time.Duration) *Samples {
	return &Samples{Name: "rate in each " + step.String(), Unit: "Mbit/s", Of: func(r lab.Result) []float64 {
		if len(r.Traffic) == 0 {
			return nil
		}
		bits := make([]float64, time.Duration(math.Round(r.Seconds*float64(time.Second)))/step)
		for _, t := range r.Traffic {
			if t.Node != "primary" {
				continue
			}
			t.Each(func(at time.Duration, n unit.Bytes, sent bool) {
				if i := int(at / step); sent == (r.Direction == "put") && i < len(bits) {
					bits[i] += float64(8*n) / 1e6
				}
			})
		}
		for i := range bits {
			bits[i] /= step.Seconds()
		}
		return bits
	}}
}

// spread is the distribution of a figure, by scheme.
type spread struct {
	title, unit string
	schemes     []string
	values      [][]float64 // sorted, of each scheme
}

// A distribution of fewer values shows nothing.
const leastSpread = 3

// spreads are a row's distributions: of its first metric over transfers, and of
// its samples.
func (r Row) spreads(d Data) (all []spread) {
	if r.Ours != "" && len(r.Spread) == 0 {
		return r.modelled(d)
	}
	cells := r.Spread
	if len(cells) == 0 {
		cells = []string{r.shown(d)}
	}
	title := strings.Join(cells, "; ")
	if len(cells) > 2 {
		title = cells[0] + " … " + cells[len(cells)-1]
	}
	m := r.Metrics[0]
	over := spread{title: m.Name + ", each transfer: " + title, unit: m.Unit}
	in := spread{}
	if r.Samples != nil {
		in = spread{title: r.Samples.Name + ": " + title, unit: r.Samples.Unit}
	}
	for _, scheme := range r.schemes(cells) {
		var values, samples []float64
		for _, c := range cells {
			values = append(values, d.Values(c, scheme, m)...)
			for _, x := range d.counted(c, scheme) {
				if r.Samples != nil {
					samples = append(samples, r.Samples.Of(x)...)
				}
			}
		}
		over.add(scheme, values)
		in.add(scheme, samples)
	}
	return drawable([]spread{over, in})
}

func (s *spread) add(scheme string, values []float64) {
	if len(values) >= leastSpread {
		slices.Sort(values)
		s.schemes, s.values = append(s.schemes, scheme), append(s.values, values)
	}
}

// schemes are those of some cells, in their order, without the search for a fixed
// ratio.
func (r Row) schemes(cells []string) (all []string) {
	for _, c := range r.Cells {
		for _, s := range c.Schemes {
			if slices.Contains(cells, c.Name) && !isOracle(s) && !slices.Contains(all, s) {
				all = append(all, s)
			}
		}
	}
	return all
}

// shown is the cell that the report looks at more closely: the row's choice, or
// the first one that was measured with packets of a helper, or at all.
func (r Row) shown(d Data) string {
	measured := func(c Cell) bool { return slices.ContainsFunc(d[c.Name], Counts) }
	helped := func(c Cell) bool {
		return slices.ContainsFunc(d[c.Name], func(x lab.Result) bool {
			return Counts(x) && slices.ContainsFunc(x.Traffic, func(t lab.Traffic) bool { return t.Node != "primary" })
		})
	}
	for _, fits := range []func(Cell) bool{func(c Cell) bool { return c.Name == r.Shown && measured(c) }, helped, measured} {
		if i := slices.IndexFunc(r.Cells, fits); i >= 0 {
			return r.Cells[i].Name
		}
	}
	return ""
}

// timeline is what happened in one transfer.
type timeline struct {
	scheme string
	took   float64 // seconds
	lines  []curve
}

// curve is a number of bytes over time.
type curve struct {
	name    string
	backlog bool // of a helper; else what has come by a link so far
	at, mb  []float64
}

// timelines are those of a cell, of the median transfer of each scheme, as far as
// its packets are known.
func (r Row) timelines(d Data, cell string) (all []timeline) {
	for _, scheme := range r.schemes([]string{cell}) {
		some := slices.DeleteFunc(d.counted(cell, scheme), func(x lab.Result) bool { return len(x.Traffic) == 0 })
		if len(some) == 0 {
			continue
		}
		slices.SortStableFunc(some, func(a, b lab.Result) int { return cmp.Compare(a.Seconds, b.Seconds) })
		all = append(all, timelineOf(some[(len(some)-1)/2]))
	}
	return all
}

// heldBy begins the names of lines of what helpers hold.
const heldBy = "held by "

// samplesOfLine is how finely lines are drawn.
const samplesOfLine = 300

// timelineOf draws what came by each link of the primary, or left by it with an
// upload, in IP bytes; and what each helper held.
func timelineOf(r lab.Result) timeline {
	up := r.Direction == "put"
	t := timeline{scheme: r.Scheme, took: r.Seconds}
	step := time.Duration(r.Seconds * float64(time.Second) / samplesOfLine)
	in, out := map[string][]float64{}, map[string][]float64{} // of helpers
	for _, x := range r.Traffic {
		pipe := strings.HasPrefix(x.Link, "pipe")
		if x.Node == "primary" {
			t.lines = append(t.lines, newCurve(x.Link, cumulative(x, up, step), step))
			continue
		}
		// Data comes by one link of a helper and leaves by the other one.
		if sent := pipe != up; sent {
			out[x.Node] = plus(out[x.Node], cumulative(x, true, step))
		} else {
			in[x.Node] = plus(in[x.Node], cumulative(x, false, step))
		}
	}
	for node, came := range in {
		left := out[node]
		if left == nil {
			continue
		}
		// More cannot leave than came: what is more are headers.
		part := 1.0
		if last := len(came) - 1; left[last] > came[last] {
			part = came[last] / left[last]
		}
		held := make([]float64, len(came))
		for i := range held {
			held[i] = max(0, came[i]-part*left[i])
		}
		l := newCurve(heldBy+node, held, step)
		l.backlog = true
		t.lines = append(t.lines, l)
	}
	slices.SortFunc(t.lines, func(a, b curve) int { return cmp.Or(cmp.Compare(order(a), order(b)), cmp.Compare(a.name, b.name)) })
	return t
}

// order puts what helpers hold after what links have carried.
func order(c curve) int {
	if c.backlog {
		return 1
	}
	return 0
}

// cumulative is how many bytes a node had sent, or received, by the end of each
// step.
func cumulative(t lab.Traffic, sent bool, step time.Duration) []float64 {
	sum := make([]float64, samplesOfLine+1)
	t.Each(func(at time.Duration, n unit.Bytes, s bool) {
		if i := int(at/max(1, step)) + 1; s == sent && i < len(sum) {
			sum[i] += float64(n)
		}
	})
	for i := 1; i < len(sum); i++ {
		sum[i] += sum[i-1]
	}
	return sum
}

func plus(a, b []float64) []float64 {
	for i := range a {
		b[i] += a[i]
	}
	return b
}

func newCurve(name string, bytes []float64, step time.Duration) curve {
	l := curve{name: name}
	for i, b := range bytes {
		l.at, l.mb = append(l.at, float64(i)*step.Seconds()), append(l.mb, b/float64(unit.MB))
	}
	return l
}

// EnergyLine is what one radio of a device took with a scheme: means of its
// transfers.
type EnergyLine struct {
	Cell   string     `json:"cell"`
	Scheme string     `json:"scheme"`
	Device string     `json:"device"`
	Radio  radio.Kind `json:"radio"`
	N      int        `json:"n"`
	radio.Energy
}

// energies are those of a cell by scheme, device and radio, if any metric of the
// row is an energy.
func (r Row) energies(d Data, cell string) (all []EnergyLine) {
	i := slices.IndexFunc(r.Metrics, func(m Metric) bool { return m.set != nil })
	if i < 0 {
		return nil
	}
	for _, scheme := range r.schemes([]string{cell}) {
		first := len(all)
		for _, x := range d.counted(cell, scheme) {
			items, err := r.Metrics[i].set.Account(traces(x))
			if err != nil {
				continue // every set has LTE and WiFi
			}
			for _, item := range items {
				at := slices.IndexFunc(all[first:], func(l EnergyLine) bool { return l.Device == item.Device && l.Radio == item.Radio })
				if at < 0 {
					at = len(all) - first
					all = append(all, EnergyLine{Cell: cell, Scheme: scheme, Device: item.Device, Radio: item.Radio})
				}
				l := &all[first+at]
				l.N++
				l.Energy = l.Add(item.Energy)
			}
		}
	}
	for i := range all {
		l := &all[i]
		for _, v := range []*unit.Joules{&l.Promotion, &l.Base, &l.Data, &l.Tail, &l.Idle} {
			*v /= unit.Joules(l.N)
		}
	}
	return all
}
