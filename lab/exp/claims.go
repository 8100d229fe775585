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

// caseOf is one of a claim; it is missing unless all it needs was measured.
func caseOf(cell, who string, measured bool, value float64, text string) Case {
	return Case{cell, who, value, text, !measured}
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
	bound := func(d Data) (all []Case) {
		for _, c := range grid {
			if c.Size >= bigSize {
				ours, ok := d.summary(c.Name, Product)
				all = append(all, caseOf(c.Name, "", ok, ours.Bound/ours.Seconds, fmt.Sprintf("%.1f %%", 100*ours.Bound/ours.Seconds)))
			}
		}
		return all
	}
	behind := func(among func(string) bool) func(Data) []Case {
		return func(d Data) (all []Case) {
			for _, c := range grid {
				ours, ok := d.summary(c.Name, Product)
				best, found := d.fastest(c, among)
				all = append(all, caseOf(c.Name, "", ok && found, ours.Seconds/best.Seconds, fmt.Sprintf("%.1f %% slower than %s", 100*(ours.Seconds/best.Seconds-1), columnTitle(best.Scheme))))
			}
			return all
		}
	}
	slower := fmt.Sprintf("stable links: never more than %.0f %% slower than the best ", 100*(mostBehind-1))
	return []Point{
		claim(fmt.Sprintf("stable links, from %v on: at least %.0f %% of the bound", bigSize, 100*leastOfBound), More, leastOfBound, bound),
		claim(slower+"of the others", Less, mostBehind, behind(anyScheme)),
		claim(slower+"single path", Less, mostBehind, behind(onePath)),
	}
}

// ours are the product and PAMS, of which claims are that tell them apart.
var ours = []string{Product, pams}

func twiceClaim(stable []Cell) Point {
	return claim(fmt.Sprintf("stable links, from %v on: at most %.0f %% of the bytes arrive twice", bigSize, 100*mostTwice), Less, mostTwice, func(d Data) (all []Case) {
		for _, c := range stable {
			for _, scheme := range ours {
				if c.Size < bigSize || !slices.Contains(c.Schemes, scheme) {
					continue
				}
				s, ok := d.summary(c.Name, scheme)
				all = append(all, caseOf(c.Name, columnTitle(scheme), ok, s.Twice, fmt.Sprintf("%.1f %%", 100*s.Twice)))
			}
		}
		return all
	})
}

// aloneClaim compares cells with nothing beside them with those of the grid: by how much
// medians may differ, besides noise, the spread of either tells.
func aloneClaim(alone []Cell) Point {
	return claim(fmt.Sprintf("this bench: what runs beside an experiment moves no median by over %.0f %%, or half its spread", 100*noise), Less, 1, func(d Data) (all []Case) {
		for _, c := range alone {
			name := strings.TrimSuffix(c.Name, beside)
			for _, scheme := range c.Schemes {
				s, ok1 := d.summary(c.Name, scheme)
				o, ok2 := d.summary(name, scheme)
				diff, most := o.Seconds-s.Seconds, max(noise*s.Seconds, (s.Max-s.Min)/2, (o.Max-o.Min)/2)
				all = append(all, caseOf(c.Name, columnTitle(scheme), ok1 && ok2, max(diff, -diff)/most, fmt.Sprintf("%.3f s, %.3f s in the grid", s.Seconds, o.Seconds)))
			}
		}
		return all
	})
}

// dropClaims are of the published drop of a pipe.
func dropClaims(cell string) []Point {
	within := func(d Data) (all []Case) {
		for _, scheme := range ours {
			s, ok := d.summary(cell, scheme)
			all = append(all, caseOf(cell, columnTitle(scheme), ok, s.Seconds, fmt.Sprintf("%.2f s", s.Seconds)))
		}
		return all
	}
	without := func(d Data) (all []Case) {
		for _, scheme := range ours {
			with, ok1 := d.summary(cell, scheme)
			s, ok2 := d.summary(cell, scheme+noReinject)
			all = append(all, caseOf(cell, columnTitle(scheme), ok1 && ok2, s.Seconds/with.Seconds, fmt.Sprintf("%.2f s with, %.2f s without", with.Seconds, s.Seconds)))
		}
		return all
	}
	return []Point{
		claim(fmt.Sprintf("the published drop of a pipe: within %.0f %% of %.2f s", 100*(dropWithin-1), dropBound), Less, dropWithin*dropBound, within),
		claim("the published drop of a pipe: without reinjection visibly worse", More, visiblyWorse, without),
	}
}

// ofProduct makes a case for each cell of what the product came to in it.
func ofProduct(cells []Cell, value func(Summary) float64, text func(Summary) string) func(Data) []Case {
	return func(d Data) (all []Case) {
		for _, c := range cells {
			s, ok := d.summary(c.Name, Product)
			all = append(all, caseOf(c.Name, "", ok, value(s), text(s)))
		}
		return all
	}
}

func fallClaim(falls []Cell) Point {
	over := func(s Summary) float64 { return s.Seconds / s.Bound }
	return claim(fmt.Sprintf("a link becomes slower: within %.0f %% of the bound", 100*(fallOfBound-1)), Less, fallOfBound,
		ofProduct(falls, over, func(s Summary) string { return fmt.Sprintf("%.2f s, %+.1f %%", s.Seconds, 100*(over(s)-1)) }))
}

func silentClaim(silent []Cell) Point {
	gap := func(s Summary) float64 { return s.MedianGap }
	return claim(fmt.Sprintf("a link falls silent: the longest gap, median, is at most %.1f s", longestSilent), Less, longestSilent,
		ofProduct(silent, gap, func(s Summary) string { return fmt.Sprintf("%.2f s", gap(s)) }))
}

func betterClaim(drives []Cell) Point {
	return claim("recorded drives: faster than the better carrier alone (R_better > 1)", More, 1, func(d Data) (all []Case) {
		for _, c := range drives {
			x, ok := d.ride(c.Name)
			all = append(all, caseOf(c.Name, "", ok, x.better, fmt.Sprintf("%.2f", x.better)))
		}
		return all
	})
}

// dualClaim compares each of two users who download at once with itself alone.
func dualClaim(cells []Cell) Point {
	return claim(fmt.Sprintf("two users download at once: each ends at most %.0f %% later than alone", 100*(mostLater-1)), Less, mostLater, func(d Data) (all []Case) {
		for _, c := range cells {
			for i, user := range lab.DualUsers {
				pair := dualPair(user)
				both, ok1 := d.summary(c.Name, pair[0])
				alone, ok2 := d.summary(c.Name, pair[1])
				later := both.Seconds / alone.Seconds
				all = append(all, caseOf(c.Name, [...]string{"first user", "second user"}[i], ok1 && ok2, later, fmt.Sprintf("%.2f s, %+.1f %%", both.Seconds, 100*(later-1))))
			}
		}
		return all
	})
}
