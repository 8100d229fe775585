// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat"

	"mpbond/lab"
)

// Random networks. Each is a cell, named so that `mpbond-lab run --network NAME` replays it.
const (
	networkSeeds = 1000 // networks of one seed of a run
	networkWorst = 3    // single paths that take more times as long as the best one are left out
	networkQuick = 1    // networks of a row in the short form, of the first and the last row
)

// networkProducts are the schedulers that are compared over random networks.
var networkProducts = []string{Product, pams, Product + ":ecf", Product + ":blest", Product + ":minrtt"}

// networkRows describe the rows of random networks.
var networkRows = []struct {
	id, kind, title string
	networks        int
	quick           bool
}{
	{"n1", lab.RandomDown, "Random networks with stable links, downloads", 80, true},
	{"n2", lab.RandomUp, "Random networks with stable links, uploads", 60, false},
	{"n3", lab.RandomChanging, "Random networks with links that change, downloads and uploads", 60, true},
}

// NetworkRows returns the rows of random networks. Their cells depend on the seed of a run: see
// Row.withCellsForSeed.
func NetworkRows() (all []Row) {
	for _, x := range networkRows {
		what := "Each transfer is of three equal objects, one after the other over one connection: the first is " +
			"cold, and the median of the others is warm."
		if x.kind == lab.RandomChanging {
			what = "Each transfer is of one object."
		}
		r := Row{ID: x.id, Title: x.title, Source: "none: ours", IsNetwork: true, Places: true,
			Setup: fmt.Sprintf("%d networks, drawn by seed (lab/random.go): one to six helpers, rates log-uniform "+
				"from 0.3 to 100 Mbit/s, pipes from Bluetooth to Ethernet, round trips from 4 to 700 ms, queues from "+
				"20 ms to 2 s, loss of up to 2 %% in half of them, jitter in a third. Objects of 64 KB to 20 MB, of "+
				"at most 4 s at the fluid bound (8 s where links change), and 8 s at the mean rates of CUBIC "+
				"over links that lose packets. %s Nothing in mpbond was tuned on them. The "+
				"single paths are those that can be the fastest. Limits are our requirements.", x.networks, what),
			Metrics: []Metric{Time, Cold, Warm, DuplicateShare, LongestGap}}
		r.cellsOf = func(seed uint64) []Cell { return networkCells(x.kind, seed, x.networks, x.quick) }
		r.tables = networkTables
		r.Points = networkPoints(x.kind)
		all = append(all, r)
	}
	return all
}

// networkCells returns the networks of a kind for the seed of a run.
func networkCells(kind string, seed uint64, n int, quick bool) (all []Cell) {
	for i := range n {
		number := seed*networkSeeds + uint64(i)
		p, err := lab.RandomSpec(kind, number)
		if err != nil {
			continue // no draw fits the emulator: there is one network less
		}
		singles, err := p.SinglePaths(networkWorst)
		if err != nil {
			continue
		}
		c := Cell{Name: fmt.Sprintf("%s/%d", kind, number), Size: p.Size, Upload: p.Upload, Objects: p.Objects, Reps: 1,
			Schemes: slices.Concat(networkProducts, []string{mptcp}, singles),
			Network: func(uint64) (*lab.Topology, error) {
				p, err := lab.RandomSpec(kind, number)
				return p.Topology, err
			}}
		if quick && i < networkQuick {
			c.Quick = 1
		}
		all = append(all, c)
	}
	return all
}

// withCellsForSeed returns the row with the cells and points that it has for the seed of a run.
func (r Row) withCellsForSeed(seed uint64) Row {
	if r.cellsOf != nil {
		r.Cells = r.cellsOf(seed)
	}
	if r.pointsOf != nil {
		r.Points, r.pointsOf = slices.Concat(r.Points, r.pointsOf(seed)), nil
	}
	return r
}

// networkCase is one network with its objects cold or warm, or one object where links change.
type networkCase struct {
	network, class string
	bound          float64            // s
	seconds        map[string]float64 // by scheme, medians
}

// networkCases returns the cases in the order of networks' names, cold before warm.
func networkCases(d Data) (all []networkCase) {
	for _, cell := range sortedCells(d) {
		by := map[string]*networkCase{}
		values := map[string]map[string][]float64{}
		add := func(class, scheme string, bound, v float64) {
			if by[class] == nil {
				by[class], values[class] = &networkCase{cell, class, bound, map[string]float64{}}, map[string][]float64{}
			}
			values[class][scheme] = append(values[class][scheme], v)
		}
		for _, r := range d[cell] {
			switch {
			case !IsCounted(r):
			case r.Objects != nil:
				add("cold", r.Scheme, r.Objects.ColdBound, r.Objects.Cold)
				add("warm", r.Scheme, r.Objects.WarmBound, r.Objects.Warm)
			default:
				add("changing", r.Scheme, r.Bound, r.Seconds)
			}
		}
		for _, class := range []string{"cold", "warm", "changing"} {
			if c := by[class]; c != nil {
				for scheme, v := range values[class] {
					c.seconds[scheme] = medianOfValues(v)
				}
				all = append(all, *c)
			}
		}
	}
	return all
}

// sortedCells returns the names of cells in order.
func sortedCells(d Data) (names []string) {
	for name := range d {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return strings.Compare(a, b)
	})
	return names
}

// bestSingle returns the time of the fastest single path.
func (c networkCase) bestSingle() (seconds float64, ok bool) {
	for scheme, v := range c.seconds {
		if isSingleLink(scheme) && (!ok || v < seconds) {
			seconds, ok = v, true
		}
	}
	return seconds, ok
}

// freeSeconds is by how much a transfer may always be later than another one.
const freeSeconds = 0.005

// timeRelativeTo returns the ratio of a scheme's time to another one, less freeSeconds.
func (c networkCase) timeRelativeTo(scheme string, other float64) (ratio float64, ok bool) {
	v, ok := c.seconds[scheme]
	return max(0, v-freeSeconds) / other, ok && other > 0
}

// networkRatio is a value of a case that has a verdict.
type networkRatio struct {
	networkCase
	value float64
}

// networkRatios returns a value of each case that has it. An empty class stands for all.
func networkRatios(d Data, class string, of func(networkCase) (float64, bool)) (all []networkRatio) {
	for _, c := range networkCases(d) {
		if v, ok := of(c); ok && (class == "" || c.class == class) {
			all = append(all, networkRatio{c, v})
		}
	}
	return all
}

// relativeToSingle returns a scheme's time relative to the best single path.
func relativeToSingle(scheme string) func(networkCase) (float64, bool) {
	return func(c networkCase) (float64, bool) {
		best, ok := c.bestSingle()
		v, ok2 := c.timeRelativeTo(scheme, best)
		return v, ok && ok2
	}
}

// relativeToScheme returns a scheme's time relative to another scheme.
func relativeToScheme(scheme, other string) func(networkCase) (float64, bool) {
	return func(c networkCase) (float64, bool) { return c.timeRelativeTo(scheme, c.seconds[other]) }
}

// shareAtMost returns 100 for each ratio up to a limit and 0 for each above: its mean is a share in
// percent.
func shareAtMost(all []networkRatio, limit float64) (shares []float64) {
	for _, r := range all {
		v := 0.0
		if r.value <= limit {
			v = 100
		}
		shares = append(shares, v)
	}
	return shares
}

// networkPoints returns our requirements for a kind of networks.
func networkPoints(kind string) []Point {
	share := func(what string, least float64, of func(Data) []float64) Point {
		return Point{What: what, Unit: "%", Low: least, High: least, Aim: AimAtLeast, IsLimit: true,
			PublishedText: fmt.Sprintf("%g %% (required)", least), Of: of}
	}
	all := []Point{
		share("at most 3 % (or 5 ms) slower than the best single path", 99, func(d Data) []float64 {
			return shareAtMost(networkRatios(d, "", relativeToSingle(Product)), 1.03)
		}),
		share("at most 10 % (or 5 ms) slower than the best single path", 100, func(d Data) []float64 {
			return shareAtMost(networkRatios(d, "", relativeToSingle(Product)), 1.10)
		}),
		share("not slower than "+mptcp+" (by over 5 ms)", 99, func(d Data) []float64 {
			return shareAtMost(networkRatios(d, "", relativeToScheme(Product, mptcp)), 1)
		}),
		share("at most 2 % of the bytes sent twice", 95, func(d Data) []float64 {
			return shareAtMost(metricOfNetworks(d, Product, DuplicateShare), 2)
		}),
	}
	if kind == lab.RandomChanging {
		all = append(all, share("longest gap at most 0.5 s", 95, func(d Data) []float64 {
			return shareAtMost(metricOfNetworks(d, Product, LongestGap), 0.5)
		}))
	}
	return all
}

// metricOfNetworks returns the median of a metric in each network.
func metricOfNetworks(d Data, scheme string, m Metric) (all []networkRatio) {
	for _, cell := range sortedCells(d) {
		if v := d.Values(cell, scheme, m); len(v) > 0 {
			all = append(all, networkRatio{networkCase{network: cell}, medianOfValues(v)})
		}
	}
	return all
}

// worstNetworks is how many of the worst networks are listed.
const worstNetworks = 5

// networkTables returns the distributions over networks, and the worst networks with the commands
// that replay them.
func networkTables(rec Record) []Table {
	d := rec.Results
	efficiency := Table{Title: "Share of the fluid bound's rate (bound / time)", Head: []string{"objects", "scheme",
		"networks", "median", "5 % point", "1 % point", "worst", "of"}}
	single := Table{Title: "Time relative to the best single path (less 5 ms)", Head: []string{"objects", "scheme",
		"networks", "median", "95 % point", "99 % point", "worst", "of", "at most 1.03", "at most 1.10"}}
	kernel := single
	kernel.Title = "Time relative to " + mptcp + " (less 5 ms)"
	for _, class := range []string{"cold", "warm", "changing"} {
		for _, scheme := range append(slices.Clone(networkProducts), mptcp) {
			efficiency.addLowest(class, scheme, networkRatios(d, class, func(c networkCase) (float64, bool) {
				v, ok := c.seconds[scheme]
				return c.bound / v, ok
			}))
			single.addHighest(class, scheme, networkRatios(d, class, relativeToSingle(scheme)))
			if scheme != mptcp {
				kernel.addHighest(class, scheme, networkRatios(d, class, relativeToScheme(scheme, mptcp)))
			}
		}
	}
	return []Table{efficiency, single, kernel, networkWaste(d), networkWorstTable(d)}
}

// addLowest adds a line of values of which less is worse.
func (t *Table) addLowest(class, scheme string, all []networkRatio) {
	if len(all) == 0 {
		return
	}
	v := sortedValues(all)
	worst := slices.MinFunc(all, func(a, b networkRatio) int { return cmp.Compare(a.value, b.value) })
	percent := func(x float64) string { return fmt.Sprintf("%.1f %%", 100*x) }
	t.Add(class, scheme, fmt.Sprint(len(all)), percent(medianOfValues(v)), percent(quantileOf(v, 0.05)),
		percent(quantileOf(v, 0.01)), percent(worst.value), worst.network)
}

// addHighest adds a line of ratios of which more is worse.
func (t *Table) addHighest(class, scheme string, all []networkRatio) {
	if len(all) == 0 {
		return
	}
	v := sortedValues(all)
	worst := slices.MaxFunc(all, func(a, b networkRatio) int { return cmp.Compare(a.value, b.value) })
	ratio := func(x float64) string { return fmt.Sprintf("%.3f", x) }
	share := func(limit float64) string { return fmt.Sprintf("%.1f %%", meanOfValues(shareAtMost(all, limit))) }
	t.Add(class, scheme, fmt.Sprint(len(all)), ratio(medianOfValues(v)), ratio(quantileOf(v, 0.95)), ratio(quantileOf(v,
		0.99)), ratio(worst.value), worst.network, share(1.03), share(1.10))
}

// networkWaste has bytes that were sent twice, gaps, and failed transfers, which no distribution
// has.
func networkWaste(d Data) Table {
	t := Table{Title: "Bytes sent twice, and longest gaps at the client", Head: []string{"scheme", "networks",
		"twice, mean", "95 % point", "worst", "of", "gap, median", "gap, 95 % point", "gap, worst", "gap of", "failed"}}
	worstOf := func(all []networkRatio) networkRatio {
		return slices.MaxFunc(all, func(a, b networkRatio) int { return cmp.Compare(a.value, b.value) })
	}
	for _, scheme := range append(slices.Clone(networkProducts), mptcp) {
		gaps := metricOfNetworks(d, scheme, LongestGap)
		if len(gaps) == 0 {
			continue
		}
		row := []string{scheme, fmt.Sprint(len(gaps)), "", "", "", ""}
		if twice := metricOfNetworks(d, scheme, DuplicateShare); len(twice) > 0 {
			v, worst := sortedValues(twice), worstOf(twice)
			row = []string{scheme, fmt.Sprint(len(twice)), fmt.Sprintf("%.1f %%", meanOfValues(v)), fmt.Sprintf("%.1f %%",
				quantileOf(v, 0.95)), fmt.Sprintf("%.1f %%", worst.value), worst.network}
		}
		v, worst := sortedValues(gaps), worstOf(gaps)
		t.Add(append(row, formatSeconds(medianOfValues(v)), formatSeconds(quantileOf(v, 0.95)), formatSeconds(worst.value),
			worst.network, failedNetworks(d, scheme))...)
	}
	return t
}

// failedNetworks names the networks in which a transfer of a scheme failed and none counts.
func failedNetworks(d Data, scheme string) string {
	var names []string
	for _, cell := range sortedCells(d) {
		if s := summarizeScheme(scheme, d[cell]); s.Failed > 0 && s.N == 0 {
			names = append(names, cell)
		}
	}
	return strings.Join(names, ", ")
}

// networkWorstTable has the networks in which the product is worst relative to single paths.
func networkWorstTable(d Data) Table {
	t := Table{Title: "Where mpbond is worst relative to the best single path", Head: []string{"network", "objects",
		"bound", Product, "best single path", mptcp, "ratio", "replay"}}
	all := networkRatios(d, "", relativeToSingle(Product))
	slices.SortStableFunc(all, func(a, b networkRatio) int { return cmp.Compare(b.value, a.value) })
	for _, r := range all[:min(worstNetworks, len(all))] {
		best, _ := r.bestSingle()
		kernel := ""
		if v, ok := r.seconds[mptcp]; ok {
			kernel = formatSeconds(v)
		}
		t.Add(r.network, r.class, formatSeconds(r.bound), formatSeconds(r.seconds[Product]), formatSeconds(best), kernel,
			fmt.Sprintf("%.3f", r.value), "`mpbond-lab run --network "+r.network+" --reps 5`")
	}
	return t
}

func sortedValues(all []networkRatio) (v []float64) {
	for _, r := range all {
		v = append(v, r.value)
	}
	slices.Sort(v)
	return v
}

// quantileOf returns a quantile of sorted values, which must not be empty.
func quantileOf(sorted []float64, q float64) float64 {
	return stat.Quantile(q, stat.Empirical, sorted, nil)
}
