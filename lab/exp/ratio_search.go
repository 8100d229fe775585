// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"mpbond/base/unit"
)

// The search for the best fixed ratio of mptcp. The row contains the search. The choice is made
// after the fact, which no scheduler can do and which favours the ratio.

// ratioPrefix begins the names of its schemes.
const ratioPrefix = mptcp + ":ratio="

// Parameters of the search.
const (
	ratioSearchStep  = 0.03 // of the bytes, and of the time unless losses at the end of slow start decide
	ratioSearchSteps = 2    // to each side
	// helperLag is how much later a helper's path starts than the direct one: two of its round
	// trips and some of slow start. It fits the best ratios of measured cells.
	helperLag = 200 * time.Millisecond
	// ratioReps is small: transfers of plain TCP connections over steady links differ by a
	// millisecond at most.
	ratioReps = 5
)

// steadyRatioSchemes returns the schemes among which the best fixed ratio is searched, for steady
// links. Over all ratios from 0 to 1 the time falls to one minimum and then rises (measured in
// eight cells of the kind of m5 and m6). The minimum is where all paths end together; the schemes
// are around it, two on each side. Helpers have parts in proportion to their rates.
func steadyRatioSchemes(links string, size unit.Bytes) []string {
	direct, helped := parsePathRates(links)
	sum := 0.0
	for _, r := range helped {
		sum += r
	}
	if sum == 0 {
		return nil
	}
	center := direct / (direct + sum) * (1 + sum*1e6*helperLag.Seconds()/float64(8*size))
	var all []string
	for i := -ratioSearchSteps; i <= ratioSearchSteps; i++ {
		p := min(1, max(0, center+float64(i)*ratioSearchStep))
		text := ratioPrefix + formatRatio(p)
		for _, r := range helped[:len(helped)-1] {
			if len(helped) > 1 && !slices.ContainsFunc(helped, func(x float64) bool { return x != r }) {
				break // equal rates: equal parts of the rest
			}
			text += "/" + formatRatio((1-p)*r/sum)
		}
		if !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return all
}

// wideRatioSchemes returns the schemes for one or several equal helpers over links that vary, where
// the best ratio is unknown: up to the direct path alone.
func wideRatioSchemes() (all []string) {
	for p := 0.2; p < 1.05; p += 0.1 {
		all = append(all, ratioPrefix+formatRatio(p))
	}
	return all
}

// formatRatio formats a ratio with at most three decimals.
func formatRatio(p float64) string { return strconv.FormatFloat(math.Round(p*1000)/1000, 'g', -1, 64) }

// parsePathRates returns what the direct path and each helper's path carry, in Mbit/s, of a spec
// with plain numbers.
func parsePathRates(links string) (direct float64, helped []float64) {
	for i, part := range strings.Split(links, ",") {
		rates := strings.Split(part, "/")
		if i == 0 {
			direct, _ = strconv.ParseFloat(rates[0], 64)
			rates = rates[1:]
		}
		if len(rates) == 2 {
			hs, _ := strconv.ParseFloat(rates[0], 64)
			pipe, _ := strconv.ParseFloat(rates[1], 64)
			helped = append(helped, min(hs, pipe))
		}
	}
	return direct, helped
}

// bestRatioLabel names the best of a cell's fixed ratios where scheme names are shown.
const bestRatioLabel = mptcp + ", best fixed ratio"

// listRatioSchemes returns the schemes of the search in a cell.
func (c Cell) listRatioSchemes() (all []string) {
	for _, s := range c.Schemes {
		if isRatioScheme(s) {
			all = append(all, s)
		}
	}
	return all
}

// isRatioScheme reports whether a scheme is part of the search.
func isRatioScheme(scheme string) bool { return strings.HasPrefix(scheme, ratioPrefix) }

// withRatioSearch adds the search to a cell of steady links.
func (c Cell) withRatioSearch() Cell {
	ratios := steadyRatioSchemes(c.Links, c.Size)
	c.Schemes = slices.Concat(c.Schemes, ratios)
	return c.limitSchemeReps(ratioReps, ratios...)
}

// noFigureText is the published text where a paper gives no value.
const noFigureText = "no value; we expect less"

// ratioSetup describes the search.
var ratioSetup = fmt.Sprintf("The fixed ratio of %s is searched in steps of %g %% of the bytes around the point "+
	"where all paths end together. The best mean of the cell is shown, chosen after the fact, which favours it. "+
	"Where losses at the end of slow start decide, a step may change the time by more. It is one TCP connection "+
	"for each path, which no MPTCP with that ratio could beat.", mptcp, 100*ratioSearchStep)
