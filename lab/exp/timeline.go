// SPDX-License-Identifier: Apache-2.0

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

// Samples are many values of one transfer over time. The report draws their distribution.
type Samples struct {
	Name, Unit string
	Of         func(lab.Result) []float64
}

// RateSamples returns the rates at which packets arrived at the primary, or left it in an upload,
// in steps of time. A row with these samples needs packets.
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

// distribution is the distribution of a value by scheme.
type distribution struct {
	title, unit string
	schemes     []string
	values      [][]float64 // sorted, by scheme
}

// minSpreadValues is the fewest values that make a distribution.
const minSpreadValues = 3

// distributions returns a row's distributions: of its first metric over transfers, and of its
// samples.
func (r Row) distributions(d Data) (all []distribution) {
	if r.Judged != "" && len(r.Spread) == 0 {
		return r.virtualSpreads(d)
	}
	cells := r.Spread
	if len(cells) == 0 {
		cells = []string{r.chooseShownCell(d)}
	}
	title := strings.Join(cells, "; ")
	if len(cells) > 2 {
		title = cells[0] + " … " + cells[len(cells)-1]
	}
	m := r.Metrics[0]
	over := distribution{title: m.Name + ", each transfer: " + title, unit: m.Unit}
	in := distribution{}
	if r.Samples != nil {
		in = distribution{title: r.Samples.Name + ": " + title, unit: r.Samples.Unit}
	}
	for _, scheme := range r.comparedSchemes(cells) {
		var values, samples []float64
		for _, c := range cells {
			values = append(values, d.Values(c, scheme, m)...)
			for _, x := range d.countedResults(c, scheme) {
				if r.Samples != nil {
					samples = append(samples, r.Samples.Of(x)...)
				}
			}
		}
		over.addSchemeValues(scheme, values)
		in.addSchemeValues(scheme, samples)
	}
	return nonEmptySpreads([]distribution{over, in})
}

// addSchemeValues adds the values of a scheme if there are enough.
func (s *distribution) addSchemeValues(scheme string, values []float64) {
	if len(values) >= minSpreadValues {
		slices.Sort(values)
		s.schemes, s.values = append(s.schemes, scheme), append(s.values, values)
	}
}

// comparedSchemes returns the schemes of some cells in their order, without the search for a fixed
// ratio.
func (r Row) comparedSchemes(cells []string) (all []string) {
	for _, c := range r.Cells {
		for _, s := range c.Schemes {
			if slices.Contains(cells, c.Name) && !isRatioScheme(s) && !slices.Contains(all, s) {
				all = append(all, s)
			}
		}
	}
	return all
}

// chooseShownCell returns the cell that the report shows in detail: the row's choice; or the first
// that was measured with packets of a helper; or the first that was measured.
func (r Row) chooseShownCell(d Data) string {
	measured := func(c Cell) bool { return slices.ContainsFunc(d[c.Name], IsCounted) }
	helped := func(c Cell) bool {
		return slices.ContainsFunc(d[c.Name], func(x lab.Result) bool {
			return IsCounted(x) && slices.ContainsFunc(x.Traffic, func(t lab.Traffic) bool {
				return t.Node != "primary"
			})
		})
	}
	for _, fits := range []func(Cell) bool{func(c Cell) bool {
		return c.Name == r.Shown && measured(c)
	}, helped, measured} {
		if i := slices.IndexFunc(r.Cells, fits); i >= 0 {
			return r.Cells[i].Name
		}
	}
	return ""
}

// timeline is the course of one transfer.
type timeline struct {
	scheme string
	took   float64 // seconds
	lines  []curve
}

// curve is a number of bytes over time.
type curve struct {
	name    string
	backlog bool // held by a helper; otherwise carried by a link so far
	at, mb  []float64
}

// medianTimelines returns the timeline of the median transfer of each scheme in a cell, as far as
// packets are known.
func (r Row) medianTimelines(d Data, cell string) (all []timeline) {
	for _, scheme := range r.comparedSchemes([]string{cell}) {
		some := slices.DeleteFunc(d.countedResults(cell, scheme), func(x lab.Result) bool {
			return len(x.Traffic) == 0
		})
		if len(some) == 0 {
			continue
		}
		slices.SortStableFunc(some, func(a, b lab.Result) int { return cmp.Compare(a.Seconds, b.Seconds) })
		all = append(all, newTimeline(some[(len(some)-1)/2]))
	}
	return all
}

// heldByPrefix begins the names of curves of a helper's backlog.
const heldByPrefix = "held by "

// pointsPerLine is the resolution of curves.
const pointsPerLine = 300

// newTimeline returns the bytes that arrived over each link of the primary, or left it in an
// upload, as IP bytes, and the backlog of each helper.
func newTimeline(r lab.Result) timeline {
	up := r.Direction == "put"
	t := timeline{scheme: r.Scheme, took: r.Seconds}
	step := time.Duration(r.Seconds * float64(time.Second) / pointsPerLine)
	in, out := map[string][]float64{}, map[string][]float64{} // by helper
	for _, x := range r.Traffic {
		pipe := strings.HasPrefix(x.Link, "pipe")
		if x.Node == "primary" {
			t.lines = append(t.lines, newByteCurve(x.Link, cumulativeBytes(x, up, step), step))
			continue
		}
		// Data arrives over one link of a helper and leaves over the other one.
		if sent := pipe != up; sent {
			out[x.Node] = sumCumulativeBytes(out[x.Node], cumulativeBytes(x, true, step))
		} else {
			in[x.Node] = sumCumulativeBytes(in[x.Node], cumulativeBytes(x, false, step))
		}
	}
	for node, came := range in {
		left := out[node]
		if left == nil {
			continue
		}
		// No more data can leave than arrived: the surplus is headers.
		part := 1.0
		if last := len(came) - 1; left[last] > came[last] {
			part = came[last] / left[last]
		}
		held := make([]float64, len(came))
		for i := range held {
			held[i] = max(0, came[i]-part*left[i])
		}
		l := newByteCurve(heldByPrefix+node, held, step)
		l.backlog = true
		t.lines = append(t.lines, l)
	}
	slices.SortFunc(t.lines, func(a, b curve) int {
		return cmp.Or(cmp.Compare(curveDrawOrder(a), curveDrawOrder(b)), cmp.Compare(a.name, b.name))
	})
	return t
}

// curveDrawOrder sorts backlogs after carried bytes.
func curveDrawOrder(c curve) int {
	if c.backlog {
		return 1
	}
	return 0
}

// cumulativeBytes returns how many bytes a node had sent, or received, by the end of each step.
func cumulativeBytes(t lab.Traffic, sent bool, step time.Duration) []float64 {
	sum := make([]float64, pointsPerLine+1)
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

// sumCumulativeBytes adds a to b.
func sumCumulativeBytes(a, b []float64) []float64 {
	for i := range a {
		b[i] += a[i]
	}
	return b
}

func newByteCurve(name string, bytes []float64, step time.Duration) curve {
	l := curve{name: name}
	for i, b := range bytes {
		l.at, l.mb = append(l.at, float64(i)*step.Seconds()), append(l.mb, b/float64(unit.MB))
	}
	return l
}

// EnergyLine is the energy of one radio of a device with a scheme: means of its transfers.
type EnergyLine struct {
	Cell   string     `json:"cell"`
	Scheme string     `json:"scheme"`
	Device string     `json:"device"`
	Radio  radio.Kind `json:"radio"`
	N      int        `json:"n"`
	radio.Energy
}

// energyLines returns the energies in a cell by scheme, device and radio, if any metric of the row
// is an energy.
func (r Row) energyLines(d Data, cell string) (all []EnergyLine) {
	i := slices.IndexFunc(r.Metrics, func(m Metric) bool { return m.energySet != nil })
	if i < 0 {
		return nil
	}
	for _, scheme := range r.comparedSchemes([]string{cell}) {
		first := len(all)
		for _, x := range d.countedResults(cell, scheme) {
			items, err := r.Metrics[i].energySet.Account(radioTraces(x))
			if err != nil {
				continue // every set has LTE and WiFi
			}
			for _, item := range items {
				at := slices.IndexFunc(all[first:], func(l EnergyLine) bool {
					return l.Device == item.Device && l.Radio == item.Radio
				})
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
