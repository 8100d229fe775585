//go:build linux

package main

import (
	"fmt"
	"slices"
	"strings"

	"mpbond/base/unit"
	"mpbond/lab"
)

// gridSchemes are the matrix's columns.
var gridSchemes = []struct{ scheme, title string }{
	{"mpbond", "mpbond"}, {"mpbond:pams", "PAMS"}, {"mpbond:minrtt:noreinject", "naive"}, {"kibbutz", "kernel MPTCP"}, {"single", "one link"},
	{"single:helper1", "the helper's link"},
}

// of returns the reports of a group.
func of(reports []benchReport, g lab.Group) (some []benchReport) {
	for _, r := range reports {
		if r.Group == g {
			some = append(some, r)
		}
	}
	return some
}

// scheme returns a scheme's summary, if any of its transfers counts.
func (r benchReport) scheme(name string) (lab.Summary, bool) {
	return r.find(func(s string) bool { return s == name })
}

// best is the fastest of the schemes, other than mpbond's own choice.
func (r benchReport) best(among func(scheme string) bool) (best lab.Summary, ok bool) {
	for _, s := range r.Summary {
		if s.Scheme != "mpbond" && among(s.Scheme) && s.N > 0 && (!ok || s.Seconds < best.Seconds) {
			best, ok = s, true
		}
	}
	return best, ok
}

func anyScheme(string) bool { return true }

// onePath tells whether a scheme is one path alone.
func onePath(scheme string) bool {
	base, _, _ := strings.Cut(scheme, ":")
	return base == "single"
}

// matrix has a row for each cell of the grid: medians in seconds.
func matrix(reports []benchReport) table {
	t := table{title: "Stable links: house, size, direction", head: []string{"cell", "bound"}}
	for _, c := range gridSchemes {
		t.head = append(t.head, c.title)
	}
	t.head = append(t.head, "mpbond of bound", "× the best other", "which", "sent twice", "counted", "discarded", "failed")
	for _, r := range of(reports, lab.Grid) {
		row := []string{r.cell.String(), ""}
		discarded, failed := 0, 0
		for _, s := range r.Summary {
			discarded += s.Discarded
			failed += s.Failed
		}
		for _, c := range gridSchemes {
			cell := ""
			if s, ok := r.scheme(c.scheme); ok {
				cell, row[1] = fmt.Sprintf("%.3f s", s.Seconds), fmt.Sprintf("%.3f s", s.Bound)
			}
			row = append(row, cell)
		}
		more := make([]string, 4)
		if ours, ok := r.scheme("mpbond"); ok {
			more[0], more[3] = fmt.Sprintf("%.1f %%", 100*ours.Bound/ours.Seconds), fmt.Sprintf("%.1f %%", 100*ours.Twice)
			if best, ok := r.best(anyScheme); ok {
				more[1], more[2] = fmt.Sprintf("%.3f", best.Seconds/ours.Seconds), columnTitle(best.Scheme)
			}
		}
		t.rows = append(t.rows, append(append(row, more...), r.countedText(), unlessNone(discarded), unlessNone(failed)))
	}
	return t
}

// unlessNone is a count, or nothing.
func unlessNone(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

func columnTitle(scheme string) string {
	for _, c := range gridSchemes {
		if c.scheme == scheme {
			return c.title
		}
	}
	return schemeTitle(scheme)
}

// ride is what one drive came to.
type ride struct {
	a, b, kernel, ours unit.Rate
	better, total      float64 // R_better: to the better carrier alone; R_total: to the sum
	bound              float64 // part of it
}

func (r benchReport) ride() (x ride, ok bool) {
	ours, ok1 := r.scheme("mpbond")
	a, ok2 := r.scheme("single")
	b, ok3 := r.scheme("single:helper1")
	if !ok1 || !ok2 || !ok3 || a.Rate+b.Rate <= 0 {
		return x, false
	}
	kernel, _ := r.scheme("kibbutz")
	x = ride{a: a.Rate, b: b.Rate, kernel: kernel.Rate, ours: ours.Rate, bound: ours.Bound / ours.Seconds}
	x.better, x.total = float64(ours.Rate)/float64(max(a.Rate, b.Rate)), float64(ours.Rate)/float64(a.Rate+b.Rate)
	return x, true
}

// rides has a row for each recorded drive, and their means.
func rides(reports []benchReport) table {
	t := table{title: "Recorded drives, two carriers: mean rates",
		head: []string{"drive", "carrier a alone", "carrier b alone", "kernel MPTCP", "mpbond", "R_better", "R_total", "of bound", "counted", "failed"}}
	row := func(name string, x ride, kernel, counted, failed string) {
		t.rows = append(t.rows, []string{name, x.a.String(), x.b.String(), kernel, x.ours.String(),
			fmt.Sprintf("%.2f", x.better), fmt.Sprintf("%.2f", x.total), fmt.Sprintf("%.0f %%", 100*x.bound), counted, failed})
	}
	var sum ride
	n, kernels := 0, 0
	for _, r := range of(reports, lab.Ride) {
		failed := r.failures()
		x, ok := r.ride()
		if !ok {
			t.rows = append(t.rows, []string{r.Name, "", "", "", "", "", "", "", r.countedText(), failed})
			continue
		}
		kernel := ""
		if x.kernel > 0 {
			kernel = x.kernel.String()
			kernels++
		}
		row(r.Name, x, kernel, r.countedText(), failed)
		n++
		sum = ride{sum.a + x.a, sum.b + x.b, sum.kernel + x.kernel, sum.ours + x.ours, sum.better + x.better, sum.total + x.total, sum.bound + x.bound}
	}
	if n > 1 {
		kernel := ""
		if kernels > 0 {
			kernel = (sum.kernel / unit.Rate(kernels)).String()
		}
		m, f := unit.Rate(n), float64(n)
		row("mean", ride{a: sum.a / m, b: sum.b / m, ours: sum.ours / m, better: sum.better / f, total: sum.total / f, bound: sum.bound / f}, kernel, "", "")
	}
	return t
}

// failures names the schemes of which transfers failed, and how often.
func (r benchReport) failures() string {
	var all []string
	for _, s := range r.Summary {
		if s.Failed > 0 {
			all = append(all, fmt.Sprintf("%s %d: %s", schemeTitle(s.Scheme), s.Failed, s.Error))
		}
	}
	return strings.Join(all, "; ")
}

// claim is what is said of some cases, and where it does not hold.
type claim struct {
	text   string
	asked  int      // cases that were measured
	absent []string // cases that were not
	misses []string
}

func (c *claim) check(ok bool, format string, args ...any) {
	c.asked++
	if !ok {
		c.misses = append(c.misses, fmt.Sprintf(format, args...))
	}
}

// lacks takes in a case that was not measured.
func (c *claim) lacks(format string, args ...any) {
	c.absent = append(c.absent, fmt.Sprintf(format, args...))
}

// verdict says of each claim where it holds, where it does not and what was not
// measured.
func verdict(reports []benchReport) table {
	t := table{title: "Claims", head: []string{"claim", "holds", "not in", "measured", "not measured"}}
	for _, c := range claims(reports) {
		all := c.asked + len(c.absent)
		if all == 0 {
			continue
		}
		holds := "yes"
		switch {
		case c.asked == 0:
			holds = "not measured"
		case len(c.misses) > 0:
			holds = fmt.Sprintf("no: %d of %d", c.asked-len(c.misses), c.asked)
		}
		t.rows = append(t.rows, []string{c.text, holds, strings.Join(c.misses, "; "), fmt.Sprintf("%d/%d", c.asked, all), strings.Join(c.absent, "; ")})
	}
	return t
}

// What is claimed.
const (
	leastOfBound  = .95  // at bigSize and more
	mostBehind    = 1.03 // of the best other's time
	dropWithin    = 1.10 // of dropBound
	dropBound     = 4.26 // s: the published bound, of payload alone and without round trips
	fallOfBound   = 1.08
	visiblyWorse  = 1.05
	mostTwice     = .01
	longestSilent = .5 // s
	mostLater     = 1.05
	noise         = .02
	bigSize       = 2 * unit.MB
)

func claims(reports []benchReport) []claim {
	all := gridClaims(of(reports, lab.Grid))
	all = append(all, twiceClaim(slices.Concat(of(reports, lab.Grid), of(reports, lab.Stable))))
	all = append(all, dropClaims(of(reports, lab.Drop), of(reports, lab.Fall))...)
	silent := claim{text: fmt.Sprintf("a link falls silent: the longest gap, median, is at most %.1f s", longestSilent)}
	for _, r := range of(reports, lab.Silent) {
		if ours, ok := r.scheme("mpbond"); ok {
			silent.check(ours.MedianGap <= longestSilent, "%s: %.2f s", r.Name, ours.MedianGap)
		} else {
			silent.lacks("%s", r.Name)
		}
	}
	better := claim{text: "recorded drives: faster than the better carrier alone (R_better > 1), in most"}
	for _, r := range of(reports, lab.Ride) {
		if x, ok := r.ride(); ok {
			better.check(x.better > 1, "%s: %.2f", r.Name, x.better)
		} else {
			better.lacks("%s", r.Name)
		}
	}
	return append(all, silent, better, dualClaim(of(reports, lab.Dual)), aloneClaim(of(reports, lab.Alone), of(reports, lab.Grid)))
}

// dualClaim compares each of two users who download at once with itself alone.
func dualClaim(dual []benchReport) claim {
	c := claim{text: fmt.Sprintf("two users lend each other their links and download at once: each ends at most %.0f %% later than alone", 100*(mostLater-1))}
	for _, r := range dual {
		for i, user := range lab.DualUsers {
			who := [...]string{"first user", "second user"}[i]
			alone, ok1 := r.scheme(lab.DualScheme(lab.DualAlone, user))
			both, ok2 := r.scheme(lab.DualScheme(lab.DualBoth, user))
			if !ok1 || !ok2 {
				c.lacks("%s: %s", r.Name, who)
				continue
			}
			c.check(both.Seconds <= mostLater*alone.Seconds, "%s: %s %.2f s, %+.1f %%", r.Name, who, both.Seconds, 100*(both.Seconds/alone.Seconds-1))
		}
	}
	return c
}

func gridClaims(grid []benchReport) []claim {
	bound := claim{text: fmt.Sprintf("stable links, from %v on: at least %.0f %% of the bound", bigSize, 100*leastOfBound)}
	others := claim{text: fmt.Sprintf("stable links: never more than %.0f %% slower than the best of the others", 100*(mostBehind-1))}
	path := claim{text: fmt.Sprintf("stable links: never more than %.0f %% slower than the best single path", 100*(mostBehind-1))}
	for _, r := range grid {
		ours, ok := r.scheme("mpbond")
		if r.cell.Size >= bigSize {
			if ok {
				bound.check(ours.Bound >= leastOfBound*ours.Seconds, "%v: %.1f %%", r.cell, 100*ours.Bound/ours.Seconds)
			} else {
				bound.lacks("%v", r.cell)
			}
		}
		against := func(c *claim, among func(string) bool) {
			if best, found := r.best(among); ok && found {
				c.check(ours.Seconds <= mostBehind*best.Seconds, "%v: %.1f %% slower than %s", r.cell, 100*(ours.Seconds/best.Seconds-1), columnTitle(best.Scheme))
			} else {
				c.lacks("%v", r.cell)
			}
		}
		against(&others, anyScheme)
		against(&path, onePath)
	}
	return []claim{bound, others, path}
}

func twiceClaim(stable []benchReport) claim {
	c := claim{text: fmt.Sprintf("stable links, from %v on: at most %.0f %% of the bytes arrive twice", bigSize, 100*mostTwice)}
	for _, r := range stable {
		for _, name := range []string{"mpbond", "mpbond:pams"} {
			if r.plan.Size < bigSize || !slices.Contains(r.plan.Schemes, name) {
				continue
			}
			if s, ok := r.scheme(name); ok {
				c.check(s.Twice <= mostTwice, "%s: %s %.1f %%", r.Name, columnTitle(name), 100*s.Twice)
			} else {
				c.lacks("%s: %s", r.Name, columnTitle(name))
			}
		}
	}
	return c
}

func dropClaims(drop, fall []benchReport) []claim {
	all := []claim{
		{text: fmt.Sprintf("the published drop of a pipe: within %.0f %% of %.2f s", 100*(dropWithin-1), dropBound)},
		{text: fmt.Sprintf("a link becomes slower: within %.0f %% of the bound", 100*(fallOfBound-1))},
	}
	for _, r := range drop {
		for _, name := range []string{"mpbond", "mpbond:pams"} {
			if s, ok := r.scheme(name); ok {
				all[0].check(s.Seconds <= dropWithin*dropBound, "%s %.2f s", columnTitle(name), s.Seconds)
			} else if slices.Contains(r.plan.Schemes, name) {
				all[0].lacks("%s", columnTitle(name))
			}
		}
	}
	for _, r := range fall {
		if s, ok := r.scheme("mpbond"); ok {
			all[1].check(s.Seconds <= fallOfBound*s.Bound, "%s: %.2f s, +%.1f %%", r.Name, s.Seconds, 100*(s.Seconds/s.Bound-1))
		} else {
			all[1].lacks("%s", r.Name)
		}
	}
	worse := claim{text: "the published drop of a pipe: without reinjection visibly worse"}
	for _, r := range drop {
		for _, name := range []string{"mpbond", "mpbond:pams"} {
			with, ok1 := r.scheme(name)
			without, ok2 := r.scheme(name + ":noreinject")
			if ok1 && ok2 {
				worse.check(without.Seconds > visiblyWorse*with.Seconds, "%s: %.2f s with, %.2f s without", columnTitle(name), with.Seconds, without.Seconds)
			} else if slices.Contains(r.plan.Schemes, name) && slices.Contains(r.plan.Schemes, name+":noreinject") {
				worse.lacks("%s", columnTitle(name))
			}
		}
	}
	return append(all, worse)
}

// aloneClaim compares cells with nothing beside them with those of the grid: by
// how much medians may differ, besides noise, the spread of either tells.
func aloneClaim(alone, grid []benchReport) claim {
	c := claim{text: fmt.Sprintf("this bench: what runs beside an experiment moves no median by over %.0f %%, or half its spread", 100*noise)}
	for _, r := range alone {
		i := slices.IndexFunc(grid, func(g benchReport) bool { return g.cell == r.cell })
		if i < 0 {
			continue
		}
		for _, s := range r.Summary {
			o, ok := grid[i].scheme(s.Scheme)
			if s.N == 0 || !ok {
				c.lacks("%v: %s", r.cell, columnTitle(s.Scheme))
				continue
			}
			diff := o.Seconds - s.Seconds
			most := max(noise*s.Seconds, (s.Max-s.Min)/2, (o.Max-o.Min)/2)
			c.check(max(diff, -diff) <= most, "%v: %s %.3f s alone, %.3f s in the grid", r.cell, columnTitle(s.Scheme), s.Seconds, o.Seconds)
		}
	}
	return c
}
