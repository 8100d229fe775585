// SPDX-License-Identifier: Apache-2.0

package network

import (
	"cmp"
	"math"
	"slices"
	"time"

	"mpbond/base/unit"
)

// Outcome is what all schemes made of the network and workload of a seed.
type Outcome struct {
	Seed     uint64    `json:"seed"`
	Network  *Network  `json:"network"`
	Workload *Workload `json:"workload"`
	Bound    Bound     `json:"bound"`
	// BestBound is the bound that pays slow start, and the handshake of a first object, over the
	// best path alone.
	BestBound time.Duration `json:"best_bound"`
	// Pooled is when all paths together have carried the object if each carries as much as a bond
	// of that path alone: a bound for schedulers, given what TCP makes of the paths. 0: not known.
	Pooled time.Duration `json:"pooled"`
	// BestPathRerun is plain TCP over the best path, run again with other random losses and jitter.
	// Its difference to the first run is chance.
	BestPathRerun Result `json:"again"`
	best          int    // path of the best single run
	// Singles are plain TCP over each path, Schemes the bond with each scheduler.
	Singles []Result `json:"singles"`
	Schemes []Result `json:"schemes"`
}

// CompareSchemes runs a workload over its network: over each path alone, and bonded with each
// scheduler. A network with random loss or jitter is run draws times: the run of the median time
// counts, so that no scheme is judged by one lucky run.
func CompareSchemes(n *Network, w *Workload, schedulers []string, o Options) *Outcome {
	out := &Outcome{Seed: n.Seed, Network: n, Workload: w, Bound: Bounds(n, w)}
	o.Limit = 0
	best := never
	for i := range n.Paths {
		r := runMedianDraw(n, o, func(o Options) Result { return RunSingle(n, i, w, o) })
		out.Singles = append(out.Singles, r)
		if r.Err == "" && r.Time < best {
			best, out.best = r.Time, i
		}
		if limit := giveUpFactor * r.Ended; r.Err == "" && (o.Limit == 0 || limit < o.Limit) {
			o.Limit = limit
		}
	}
	if o.Limit > 0 {
		o.Limit = o.Limit/giveUpFactor*bondGiveUpFactor + time.Minute
	}
	if best != never {
		o.DrawSeed += draws
		out.BestPathRerun = runMedianDraw(n, o, func(o Options) Result { return RunSingle(n, out.best, w, o) })
		o.DrawSeed -= draws
	}
	out.BestBound = out.computeBestBound()
	for _, s := range schedulers {
		out.Schemes = append(out.Schemes, RunMedianBond(n, s, w, o))
	}
	if w.Kind == Objects && w.Objects == 1 && best != never {
		out.Pooled = runMedianDraw(n, o, func(o Options) Result { return runPooledPaths(n, w, best, o) }).Time
	}
	return out
}

// draws is how often a network is run whose packets are lost or delayed at random.
const draws = 5

// RunMedianBond is RunBond for the median of draws.
func RunMedianBond(n *Network, scheduler string, w *Workload, o Options) Result {
	return runMedianDraw(n, o, func(o Options) Result { return RunBond(n, scheduler, w, o) })
}

// runMedianDraw returns the run of the median time of several draws. Runs that failed count as
// longest.
func runMedianDraw(n *Network, o Options, run func(o Options) Result) Result {
	if !n.hasRandomness() {
		return run(o)
	}
	var all []Result
	for range draws {
		all = append(all, run(o))
		o.DrawSeed++
	}
	slices.SortStableFunc(all, func(a, b Result) int {
		if (a.Err == "") != (b.Err == "") {
			return cmp.Compare(len(a.Err), len(b.Err))
		}
		return cmp.Compare(a.Time, b.Time)
	})
	r := all[draws/2]
	r.fast, r.slow = all[1].Time, all[draws-2].Time
	return r
}

// isSurelyWorse reports whether a scheme is slower than the best single path in nearly all draws:
// all its runs but the fastest take over 3 % longer than all runs of that path but the slowest.
func (o *Outcome) isSurelyWorse(r *Result) bool {
	best := &o.Singles[o.best]
	fast, slow := r.Time, best.Time
	if best.slow > 0 && best.Err == "" {
		slow = max(best.slow, o.BestPathRerun.slow)
	}
	if r.fast > 0 {
		fast = r.fast
	}
	return isClearlySlower(fast, slow, 1.03)
}

// isClearlySlower reports whether a transfer takes over factor times as long as another one, and
// over 5 ms longer.
func isClearlySlower(took, other time.Duration, factor float64) bool {
	return float64(took) > factor*float64(other) && took-other > 5*time.Millisecond
}

// runPooledPaths returns when the paths have carried the object together if each carries what it
// can, as a bond of that path alone would.
func runPooledPaths(n *Network, w *Workload, limit time.Duration, o Options) Result {
	least := n.shortestPathRTT()
	curves := make([][]arrivedBytes, len(n.Paths))
	for i := range n.Paths {
		alone := &Network{Seed: n.Seed + uint64(i), Paths: n.Paths[i : i+1], Changing: n.Changing}
		shift := (alone.shortestPathRTT() - least) / 2
		o.Limit = limit + shift
		o.arrived = func(at time.Duration, total uint64) {
			curves[i] = append(curves[i], arrivedBytes{at - startAt - shift, total})
		}
		RunBond(alone, "minrtt", w, o)
	}
	var at [16]int
	sum := uint64(0)
	r := Result{Scheme: "pooled", Time: limit}
	for sum < uint64(w.Size) {
		next, first := never, -1
		for i, c := range curves {
			if at[i] < len(c) && c[at[i]].at < next {
				next, first = c[at[i]].at, i
			}
		}
		if first < 0 {
			return r
		}
		before := uint64(0)
		if at[first] > 0 {
			before = curves[first][at[first]-1].total
		}
		sum += curves[first][at[first]].total - before
		at[first]++
		r.Time = next
	}
	if w.Direction == Upload {
		r.Time += least / 2
	}
	r.Time = min(r.Time, limit)
	return r
}

// arrivedBytes says how many bytes have arrived by a time.
type arrivedBytes struct {
	at    time.Duration
	total uint64
}

// giveUpFactor is how many times as long as another path one may take before it is given up.
const giveUpFactor = 3

// bondGiveUpFactor is the same for a bond, relative to the best path; it also gets a minute more.
const bondGiveUpFactor = 10

// BestSingle returns the least time over one path, never if none has finished.
func (o *Outcome) BestSingle() time.Duration {
	best := never
	for _, r := range o.Singles {
		if r.Err == "" {
			best = min(best, r.Time)
		}
	}
	return best
}

// computeBestBound returns BestBound.
func (o *Outcome) computeBestBound() time.Duration {
	for i, r := range o.Singles {
		if r.Err != "" || r.Time != o.BestSingle() {
			continue
		}
		alone := &Network{Paths: o.Network.Paths[i : i+1], Changing: o.Network.Changing}
		b := Bounds(alone, o.Workload).SlowStart
		if b > 0 && o.Workload.Kind == Objects && !o.Workload.IsWarm() {
			b += alone.shortestPathRTT()
		}
		return b
	}
	return 0
}

// Classes of outcomes. One outcome may belong to several.
var classes = []struct {
	name    string
	applies func(o *Outcome) bool
}{
	{"all", func(*Outcome) bool { return true }},
	{"stable, 2 MB and more", func(o *Outcome) bool { return o.isStableObjectRun() && o.Workload.Size >= 2*unit.MB }},
	{"stable, 2 MB and more, without loss", func(o *Outcome) bool {
		return o.isStableObjectRun() && o.Workload.Size >= 2*unit.MB && !o.Network.hasRandomLoss()
	}},
	{"stable, 64 KB to 2 MB", func(o *Outcome) bool {
		return o.isStableObjectRun() && o.Workload.Size < 2*unit.MB && o.Workload.Size >= 64*unit.KB
	}},
	{"stable, below 64 KB", func(o *Outcome) bool { return o.isStableObjectRun() && o.Workload.Size < 64*unit.KB }},
	{"changing", func(o *Outcome) bool { return o.Network.Changing }},
	{"without loss", func(o *Outcome) bool { return !o.Network.hasRandomLoss() }},
	{"with loss", func(o *Outcome) bool { return o.Network.hasRandomLoss() }},
	{"cold", func(o *Outcome) bool { return !o.Workload.IsWarm() }},
	{"warm", func(o *Outcome) bool { return o.Workload.IsWarm() }},
	{"download", func(o *Outcome) bool { return o.Workload.Direction == Download }},
	{"upload", func(o *Outcome) bool { return o.Workload.Direction == Upload }},
	{"page of 200 objects", func(o *Outcome) bool { return o.Workload.Kind == Page }},
	{"video", func(o *Outcome) bool { return o.Workload.Kind == Video }},
	{"beside bulk", func(o *Outcome) bool { return o.Workload.Kind == Beside }},
	{"several streams", func(o *Outcome) bool { return o.Workload.Streams > 1 }},
	{"over helpers", func(o *Outcome) bool { return len(o.Network.Paths[len(o.Network.Paths)-1].Hops) > 1 }},
	{"own links", func(o *Outcome) bool { return len(o.Network.Paths[len(o.Network.Paths)-1].Hops) == 1 }},
}

// isStableObjectRun reports whether the outcome is of objects over a stable network.
func (o *Outcome) isStableObjectRun() bool { return !o.Network.Changing && o.Workload.Kind == Objects }

// ClassNames returns the names of the classes of outcomes.
func ClassNames() (names []string) {
	for _, c := range classes {
		names = append(names, c.name)
	}
	return names
}

func (n *Network) hasRandomLoss() (found bool) {
	n.forEachHop(func(h *Hop) { found = found || h.Up.Loss > 0 || h.Down.Loss > 0 })
	return found
}

// hasRandomness reports whether packets are lost or delayed at random.
func (n *Network) hasRandomness() (found bool) {
	n.forEachHop(func(h *Hop) { found = found || h.Up.Jitter > 0 || h.Down.Jitter > 0 })
	return found || n.hasRandomLoss()
}

// Summary has the distributions of a scheme in a class.
type Summary struct {
	Class  string `json:"class"`
	Scheme string `json:"scheme"`
	Count  int    `json:"count"`
	Failed int    `json:"failed"`
	// Fluid and SlowStart are bound / time, with the fluid bound and with the one that pays slow
	// start.
	Fluid     Quantiles `json:"fluid"`
	SlowStart Quantiles `json:"slow_start"`
	// Single is SlowStart of plain TCP over the best path alone, with the bound of that path: what
	// TCP leaves unused without any scheduler.
	Single Quantiles `json:"single"`
	// Worse is the share of outcomes that take over 1.03 times as long as the best single path,
	// and 5 ms more. MuchWorse is the same for 1.10. Worst is the largest ratio.
	Worse     float64 `json:"worse"`
	MuchWorse float64 `json:"much_worse"`
	Worst     float64 `json:"worst"`
	// SurelyWorse is the share of outcomes that are slower in nearly all draws (isSurelyWorse).
	SurelyWorse float64 `json:"surely_worse"`
	// WorseByChance is the share of outcomes in which BestPathRerun is as much slower than the
	// first run of the same path as Worse requires: so much of Worse is chance.
	WorseByChance float64 `json:"luck"`
	// Pooled is Outcome.Pooled / time.
	Pooled Quantiles `json:"pooled"`
	// Mean and 95th percentile of the share of bytes that were given to a second subflow.
	CopiedMean float64 `json:"copied_mean"`
	Copied95   float64 `json:"copied_95"`
	// Gap95 is the 95th percentile of the longest gap at the app, in seconds.
	Gap95 float64 `json:"gap_95"`
	// WorstSeeds are those of the least SlowStart, WorstRatioSeeds those that take longest
	// relative to the best single path. The worst comes first.
	WorstSeeds      []uint64 `json:"worst_seeds"`
	WorstRatioSeeds []uint64 `json:"worst_ratio_seeds"`
}

// Quantiles are the median, 5th and 1st percentile.
type Quantiles struct {
	Median float64 `json:"median"`
	P5     float64 `json:"p5"`
	P1     float64 `json:"p1"`
}

// shownSeeds is how many of the worst seeds a Summary has.
const shownSeeds = 5

// Summarize returns the summaries of all classes that occur, for each scheme.
func Summarize(all []*Outcome) (list []Summary) {
	if len(all) == 0 {
		return nil
	}
	for _, c := range classes {
		for i, r := range all[0].Schemes {
			s := Summary{Class: c.name, Scheme: r.Scheme}
			s.computeForScheme(all, i, c.applies)
			if s.Count > 0 {
				list = append(list, s)
			}
		}
	}
	return list
}

// ratedSeed is a seed with a figure of its outcome.
type ratedSeed struct {
	seed  uint64
	value float64
}

// computeForScheme computes a summary of scheme i.
func (s *Summary) computeForScheme(all []*Outcome, i int, applies func(*Outcome) bool) {
	var fluid, slow, pooled, single, copied, gaps []float64
	var efficiencies, ratios []ratedSeed
	for _, o := range all {
		if !applies(o) {
			continue
		}
		s.Count++
		r := &o.Schemes[i]
		if r.Err != "" {
			s.Failed++
			s.WorstSeeds = append(s.WorstSeeds, o.Seed)
			continue
		}
		best := o.BestSingle()
		ratio := float64(r.Time) / float64(best)
		if best != never {
			ratios = append(ratios, ratedSeed{o.Seed, ratio})
			s.Worse += oneIfCounted(isClearlySlower(r.Time, best, 1.03))
			s.MuchWorse += oneIfCounted(isClearlySlower(r.Time, best, 1.10))
			s.SurelyWorse += oneIfCounted(o.isSurelyWorse(r))
			s.WorseByChance += oneIfCounted(isClearlySlower(o.BestPathRerun.Time, best, 1.03))
			s.Worst = max(s.Worst, ratio)
			if o.BestBound > 0 {
				single = append(single, float64(o.BestBound)/float64(best))
			}
		}
		if o.Pooled > 0 {
			pooled = append(pooled, float64(o.Pooled)/float64(r.Time))
		}
		if o.Bound.SlowStart > 0 {
			fluid = append(fluid, float64(o.Bound.Fluid)/float64(r.Time))
			e := float64(o.Bound.SlowStart) / float64(r.Time)
			slow = append(slow, e)
			efficiencies = append(efficiencies, ratedSeed{o.Seed, e})
		}
		copied = append(copied, float64(r.Copied)/float64(r.Total))
		gaps = append(gaps, r.Gap.Seconds())
	}
	for _, sum := range []*float64{&s.Worse, &s.MuchWorse, &s.SurelyWorse, &s.WorseByChance} {
		*sum /= float64(max(s.Count, 1))
	}
	s.Pooled = quantilesOf(pooled)
	s.Fluid, s.SlowStart, s.Single = quantilesOf(fluid), quantilesOf(slow), quantilesOf(single)
	s.CopiedMean, s.Copied95, s.Gap95 = arithmeticMean(copied), quantileByRank(copied, 0.95), quantileByRank(gaps, 0.95)
	slices.SortFunc(efficiencies, func(a, b ratedSeed) int { return cmp.Compare(a.value, b.value) })
	slices.SortFunc(ratios, func(a, b ratedSeed) int { return cmp.Compare(b.value, a.value) })
	for _, e := range efficiencies[:min(len(efficiencies), shownSeeds)] {
		s.WorstSeeds = append(s.WorstSeeds, e.seed)
	}
	for _, e := range ratios[:min(len(ratios), shownSeeds)] {
		s.WorstRatioSeeds = append(s.WorstRatioSeeds, e.seed)
	}
}

// oneIfCounted returns 1 for each outcome to count.
func oneIfCounted(counts bool) float64 {
	if counts {
		return 1
	}
	return 0
}

func quantilesOf(v []float64) Quantiles {
	return Quantiles{quantileByRank(v, 0.5), quantileByRank(v, 0.05), quantileByRank(v, 0.01)}
}

// quantileByRank returns a quantile by the nearest rank, 0 of nothing. It sorts v.
func quantileByRank(v []float64, q float64) float64 {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return v[max(0, int(math.Ceil(q*float64(len(v))))-1)]
}

func arithmeticMean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(max(len(v), 1))
}
