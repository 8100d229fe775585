// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"slices"
	"strings"

	"mpbond/base/unit"
	"mpbond/lab"
)

// Limits of the claims.
const (
	minShareOfBound    = .95  // at bigSize and more
	maxTimeRatio       = 1.03 // to the best other scheme's time
	maxDropRatio       = 1.10 // to publishedDropBound
	publishedDropBound = 4.26 // s; payload alone, without round trips
	maxFallRatio       = 1.08
	minNoReinjectRatio = 1.05
	maxDuplicateShare  = .01
	maxSilentGap       = .5 // s
	maxDualRatio       = 1.05
	medianNoise        = .02
	bigSize            = 2 * unit.MB
)

const noReinject = ":noreinject"

// newClaimPoint returns a point that holds if each of its cases does. With AimAtLeast their values
// must be at least the limit, with AimAtMost at most.
func newClaimPoint(what string, aim Aim, limit float64, cases func(Data) []Case) Point {
	return Point{What: what, Unit: "%", Low: limit, High: limit, PublishedText: "all (claimed)", Aim: aim, Cases: cases}
}

// caseValue is the value of a case. ok is false unless everything it needs was measured.
type caseValue struct {
	ok    bool
	value float64
	text  string
}

// newCaseValue returns a value with a formatted text.
func newCaseValue(ok bool, value float64, format string, args ...any) caseValue {
	return caseValue{ok, value, fmt.Sprintf(format, args...)}
}

// casesPerCell returns a function that makes a case for each cell.
func casesPerCell(cells []Cell, of func(d Data, c Cell) caseValue) func(Data) []Case {
	return casesPerScheme(cells, func(Cell) []string {
		return []string{""}
	}, func(d Data, c Cell, _ string) caseValue { return of(d, c) })
}

// casesPerScheme returns a function that makes a case for each cell and each of the schemes that
// who returns.
func casesPerScheme(
	cells []Cell,
	who func(Cell) []string,
	of func(d Data, c Cell, scheme string) caseValue,
) func(Data) []Case {
	return func(d Data) (all []Case) {
		for _, c := range cells {
			for _, scheme := range who(c) {
				x := of(d, c, scheme)
				all = append(all, Case{c.Name, scheme, x.value, x.text, !x.ok})
			}
		}
		return all
	}
}

// ourSchemes returns the product and PAMS if the cell has them. Claims are reported for each.
func ourSchemes(c Cell) (all []string) {
	for _, scheme := range []string{Product, pams} {
		if slices.Contains(c.Schemes, scheme) {
			all = append(all, scheme)
		}
	}
	return all
}

// cellsOfBigSize returns the cells of bigSize and more.
func cellsOfBigSize(cells []Cell) []Cell {
	return slices.DeleteFunc(slices.Clone(cells), func(c Cell) bool { return c.Size < bigSize })
}

// fastestBaseline returns the fastest scheme other than the product.
func (d Data) fastestBaseline(c Cell, among func(scheme string) bool) (best Summary, ok bool) {
	for _, scheme := range c.Schemes {
		if scheme == Product || !among(scheme) {
			continue
		}
		if s, counts := d.schemeSummary(c.Name, scheme); counts && (!ok || s.Seconds < best.Seconds) {
			best, ok = s, true
		}
	}
	return best, ok
}

// acceptAnyScheme accepts all schemes.
func acceptAnyScheme(string) bool { return true }

// isSingleLink reports whether a scheme uses one path alone.
func isSingleLink(scheme string) bool {
	base, _, _ := strings.Cut(scheme, ":")
	return base == singleScheme
}

// gridClaims compare the product with the bound and with the best other scheme.
func gridClaims(grid []Cell) []Point {
	behind := func(among func(string) bool) func(Data) []Case {
		return casesPerCell(grid, func(d Data, c Cell) caseValue {
			s, ok := d.schemeSummary(c.Name, Product)
			best, there := d.fastestBaseline(c, among)
			slower := s.Seconds / best.Seconds
			return newCaseValue(ok && there, slower, "%.1f %% slower than %s", 100*(slower-1), best.Scheme)
		})
	}
	slower := fmt.Sprintf("stable links: never more than %.0f %% slower than the best ", 100*(maxTimeRatio-1))
	return []Point{
		newClaimPoint(fmt.Sprintf("stable links, from %v on: at least %.0f %% of the bound", bigSize, 100*minShareOfBound),
			AimAtLeast, minShareOfBound, casesPerCell(cellsOfBigSize(grid), func(d Data, c Cell) caseValue {
				s, ok := d.schemeSummary(c.Name, Product)
				return newCaseValue(ok, s.Bound/s.Seconds, "%.1f %%", 100*s.Bound/s.Seconds)
			})),
		newClaimPoint(slower+"of the others", AimAtMost, maxTimeRatio, behind(acceptAnyScheme)),
		newClaimPoint(slower+"single path", AimAtMost, maxTimeRatio, behind(isSingleLink)),
	}
}

func duplicateClaim(stable []Cell) Point {
	return newClaimPoint(fmt.Sprintf("stable links, from %v on: at most %.0f %% of the bytes arrive twice", bigSize,
		100*maxDuplicateShare), AimAtMost, maxDuplicateShare,
		casesPerScheme(cellsOfBigSize(stable), ourSchemes, func(d Data, c Cell, scheme string) caseValue {
			s, ok := d.schemeSummary(c.Name, scheme)
			return newCaseValue(ok, s.DuplicateShare, "%.1f %%", 100*s.DuplicateShare)
		}))
}

// isolationClaim compares cells that ran alone with those of the grid. Their medians may differ by
// medianNoise, or by the spread of either.
func isolationClaim(alone []Cell) Point {
	return newClaimPoint(fmt.Sprintf("this bench: running experiments at once moves no median by over %.0f %%, or half "+
		"its spread", 100*medianNoise), AimAtMost, 1,
		casesPerScheme(alone, func(c Cell) []string { return c.Schemes }, func(d Data, c Cell, scheme string) caseValue {
			s, ok1 := d.schemeSummary(c.Name, scheme)
			o, ok2 := d.schemeSummary(strings.TrimSuffix(c.Name, aloneSuffix), scheme)
			diff, most := o.Seconds-s.Seconds, max(medianNoise*s.Seconds, (s.Max-s.Min)/2, (o.Max-o.Min)/2)
			return newCaseValue(ok1 && ok2, max(diff, -diff)/most, "%.3f s, %.3f s in the grid", s.Seconds, o.Seconds)
		}))
}

// pipeDropClaims returns the claims about the published drop of a pipe.
func pipeDropClaims(drop ...Cell) []Point {
	return []Point{
		newClaimPoint(fmt.Sprintf("the published drop of a pipe: within %.0f %% of %.2f s", 100*(maxDropRatio-1),
			publishedDropBound), AimAtMost, maxDropRatio*publishedDropBound,
			casesPerScheme(drop, ourSchemes, func(d Data, c Cell, scheme string) caseValue {
				s, ok := d.schemeSummary(c.Name, scheme)
				return newCaseValue(ok, s.Seconds, "%.2f s", s.Seconds)
			})),
		newClaimPoint("the published drop of a pipe: without reinjection visibly worse", AimAtLeast, minNoReinjectRatio,
			casesPerScheme(drop, ourSchemes, func(d Data, c Cell, scheme string) caseValue {
				with, ok1 := d.schemeSummary(c.Name, scheme)
				s, ok2 := d.schemeSummary(c.Name, scheme+noReinject)
				return newCaseValue(ok1 && ok2, s.Seconds/with.Seconds, "%.2f s with, %.2f s without", with.Seconds,
					s.Seconds)
			})),
	}
}

func linkFallClaim(falls []Cell) Point {
	return newClaimPoint(fmt.Sprintf("a link becomes slower: within %.0f %% of the bound", 100*(maxFallRatio-1)),
		AimAtMost,
		maxFallRatio, casesPerCell(falls, func(d Data, c Cell) caseValue {
			s, ok := d.schemeSummary(c.Name, Product)
			return newCaseValue(ok, s.Seconds/s.Bound, "%.2f s, %+.1f %%", s.Seconds, 100*(s.Seconds/s.Bound-1))
		}))
}

func silentClaim(silent []Cell) Point {
	return newClaimPoint(fmt.Sprintf("a link goes silent: the longest gap, median, is at most %.1f s", maxSilentGap),
		AimAtMost, maxSilentGap, casesPerCell(silent, func(d Data, c Cell) caseValue {
			s, ok := d.schemeSummary(c.Name, Product)
			return newCaseValue(ok, s.MedianGap, "%.2f s", s.MedianGap)
		}))
}

func betterClaim(drives []Cell) Point {
	return newClaimPoint("recorded drives: faster than the better carrier alone (R_better > 1)", AimAtLeast, 1,
		casesPerCell(drives, func(d Data, c Cell) caseValue {
			x, ok := d.driveRates(c.Name)
			return newCaseValue(ok, x.better, "%.2f", x.better)
		}))
}

// dualUsersClaim compares each of two users who download at once with the same user alone.
func dualUsersClaim(cells []Cell) Point {
	return newClaimPoint(fmt.Sprintf("two users download at once: each ends at most %.0f %% later than alone",
		100*(maxDualRatio-1)), AimAtMost, maxDualRatio,
		casesPerScheme(cells, func(Cell) []string { return lab.DualUsers[:] }, func(d Data, c Cell, user string) caseValue {
			pair := dualSchemePair(user)
			both, ok1 := d.schemeSummary(c.Name, pair[0])
			alone, ok2 := d.schemeSummary(c.Name, pair[1])
			later := both.Seconds / alone.Seconds
			return newCaseValue(ok1 && ok2, later, "%.2f s, %+.1f %%", both.Seconds, 100*(later-1))
		}))
}
