package exp

import (
	"fmt"
	"slices"
	"strings"

	"mpbond/base/unit"
	"mpbond/lab"
)

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

const noReinject = ":noreinject"

// claim is a point that holds if each of its cases does: with the aim More their values
// are at least the limit, with Less at most.
func claim(what string, aim Aim, limit float64, cases func(Data) []Case) Point {
	return Point{What: what, Unit: "%", Low: limit, High: limit, Told: "all (claimed)", Aim: aim, Cases: cases}
}

// found is what a case comes to; it is missing unless all it needs was measured.
type found struct {
	ok    bool
	value float64
	text  string
}

func findf(ok bool, value float64, format string, args ...any) found {
	return found{ok, value, fmt.Sprintf(format, args...)}
}

// inCells makes a case for each cell.
func inCells(cells []Cell, of func(d Data, c Cell) found) func(Data) []Case {
	return each(cells, func(Cell) []string { return []string{""} }, func(d Data, c Cell, _ string) found { return of(d, c) })
}

// each makes a case for each cell and each of its schemes that who names.
func each(cells []Cell, who func(Cell) []string, of func(d Data, c Cell, scheme string) found) func(Data) []Case {
	return func(d Data) (all []Case) {
		for _, c := range cells {
			for _, scheme := range who(c) {
				x := of(d, c, scheme)
				all = append(all, Case{c.Name, columnTitle(scheme), x.value, x.text, !x.ok})
			}
		}
		return all
	}
}

// ours are the product and PAMS, as far as a cell has them: claims tell them apart.
func ours(c Cell) (all []string) {
	for _, scheme := range []string{Product, pams} {
		if slices.Contains(c.Schemes, scheme) {
			all = append(all, scheme)
		}
	}
	return all
}

// big are the cells of bigSize and more.
func big(cells []Cell) []Cell {
	return slices.DeleteFunc(slices.Clone(cells), func(c Cell) bool { return c.Size < bigSize })
}

// fastest is the fastest of the schemes other than the product.
func (d Data) fastest(c Cell, among func(scheme string) bool) (best Summary, ok bool) {
	for _, scheme := range c.Schemes {
		if scheme == Product || !among(scheme) {
			continue
		}
		if s, counts := d.summary(c.Name, scheme); counts && (!ok || s.Seconds < best.Seconds) {
			best, ok = s, true
		}
	}
	return best, ok
}

func anyScheme(string) bool { return true }

// onePath tells whether a scheme is one path alone.
func onePath(scheme string) bool {
	base, _, _ := strings.Cut(scheme, ":")
	return base == oneLink
}

// gridClaims compare the product with the bound, and with the best of the others.
func gridClaims(grid []Cell) []Point {
	behind := func(among func(string) bool) func(Data) []Case {
		return inCells(grid, func(d Data, c Cell) found {
			s, ok := d.summary(c.Name, Product)
			best, there := d.fastest(c, among)
			slower := s.Seconds / best.Seconds
			return findf(ok && there, slower, "%.1f %% slower than %s", 100*(slower-1), columnTitle(best.Scheme))
		})
	}
	slower := fmt.Sprintf("stable links: never more than %.0f %% slower than the best ", 100*(mostBehind-1))
	return []Point{
		claim(fmt.Sprintf("stable links, from %v on: at least %.0f %% of the bound", bigSize, 100*leastOfBound), More, leastOfBound, inCells(big(grid), func(d Data, c Cell) found {
			s, ok := d.summary(c.Name, Product)
			return findf(ok, s.Bound/s.Seconds, "%.1f %%", 100*s.Bound/s.Seconds)
		})),
		claim(slower+"of the others", Less, mostBehind, behind(anyScheme)),
		claim(slower+"single path", Less, mostBehind, behind(onePath)),
	}
}

func twiceClaim(stable []Cell) Point {
	return claim(fmt.Sprintf("stable links, from %v on: at most %.0f %% of the bytes arrive twice", bigSize, 100*mostTwice), Less, mostTwice,
		each(big(stable), ours, func(d Data, c Cell, scheme string) found {
			s, ok := d.summary(c.Name, scheme)
			return findf(ok, s.Twice, "%.1f %%", 100*s.Twice)
		}))
}

// aloneClaim compares cells with nothing beside them with those of the grid: by how much
// medians may differ, besides noise, the spread of either tells.
func aloneClaim(alone []Cell) Point {
	return claim(fmt.Sprintf("this bench: what runs beside an experiment moves no median by over %.0f %%, or half its spread", 100*noise), Less, 1,
		each(alone, func(c Cell) []string { return c.Schemes }, func(d Data, c Cell, scheme string) found {
			s, ok1 := d.summary(c.Name, scheme)
			o, ok2 := d.summary(strings.TrimSuffix(c.Name, beside), scheme)
			diff, most := o.Seconds-s.Seconds, max(noise*s.Seconds, (s.Max-s.Min)/2, (o.Max-o.Min)/2)
			return findf(ok1 && ok2, max(diff, -diff)/most, "%.3f s, %.3f s in the grid", s.Seconds, o.Seconds)
		}))
}

// dropClaims are of the published drop of a pipe.
func dropClaims(drop ...Cell) []Point {
	return []Point{
		claim(fmt.Sprintf("the published drop of a pipe: within %.0f %% of %.2f s", 100*(dropWithin-1), dropBound), Less, dropWithin*dropBound,
			each(drop, ours, func(d Data, c Cell, scheme string) found {
				s, ok := d.summary(c.Name, scheme)
				return findf(ok, s.Seconds, "%.2f s", s.Seconds)
			})),
		claim("the published drop of a pipe: without reinjection visibly worse", More, visiblyWorse,
			each(drop, ours, func(d Data, c Cell, scheme string) found {
				with, ok1 := d.summary(c.Name, scheme)
				s, ok2 := d.summary(c.Name, scheme+noReinject)
				return findf(ok1 && ok2, s.Seconds/with.Seconds, "%.2f s with, %.2f s without", with.Seconds, s.Seconds)
			})),
	}
}

func fallClaim(falls []Cell) Point {
	return claim(fmt.Sprintf("a link becomes slower: within %.0f %% of the bound", 100*(fallOfBound-1)), Less, fallOfBound, inCells(falls, func(d Data, c Cell) found {
		s, ok := d.summary(c.Name, Product)
		return findf(ok, s.Seconds/s.Bound, "%.2f s, %+.1f %%", s.Seconds, 100*(s.Seconds/s.Bound-1))
	}))
}

func silentClaim(silent []Cell) Point {
	return claim(fmt.Sprintf("a link falls silent: the longest gap, median, is at most %.1f s", longestSilent), Less, longestSilent, inCells(silent, func(d Data, c Cell) found {
		s, ok := d.summary(c.Name, Product)
		return findf(ok, s.MedianGap, "%.2f s", s.MedianGap)
	}))
}

func betterClaim(drives []Cell) Point {
	return claim("recorded drives: faster than the better carrier alone (R_better > 1)", More, 1, inCells(drives, func(d Data, c Cell) found {
		x, ok := d.ride(c.Name)
		return findf(ok, x.better, "%.2f", x.better)
	}))
}

// dualClaim compares each of two users who download at once with itself alone.
func dualClaim(cells []Cell) Point {
	return claim(fmt.Sprintf("two users download at once: each ends at most %.0f %% later than alone", 100*(mostLater-1)), Less, mostLater,
		each(cells, func(Cell) []string { return lab.DualUsers[:] }, func(d Data, c Cell, user string) found {
			pair := dualPair(user)
			both, ok1 := d.summary(c.Name, pair[0])
			alone, ok2 := d.summary(c.Name, pair[1])
			later := both.Seconds / alone.Seconds
			return findf(ok1 && ok2, later, "%.2f s, %+.1f %%", both.Seconds, 100*(later-1))
		}))
}
