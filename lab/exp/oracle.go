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

// An oracle is mptcp with a fixed ratio that was the best of all: the search of
// it is in the row, and the choice is made after the fact, which no scheduler can
// and which favours it.

// ratioPrefix begins the names of its schemes.
const ratioPrefix = mptcp + ":ratio="

// Tuning of the search.
const (
	ratioSearchStep  = 0.03 // of the bytes, and of the time, but where losses at the end of slow start decide
	ratioSearchSteps = 2    // to each side
	// helperLag is by how much a helper's path starts later than the direct one: two
	// round trips of its own, and some of slow start. It fits what was the best in
	// those cells.
	helperLag = 200 * time.Millisecond
	// ratioReps: a transfer of plain TCP connections over steady links takes the
	// same time to a millisecond.
	ratioReps = 5
)

// ratioSchemes are the schemes among which the best fixed ratio is searched, in a
// house of steady links. Over all ratios from 0 to 1 the time falls as far as
// one point and rises behind it (measured in eight cells of m5's and m6's kind),
// which is where all paths end together: about that point they stand, and each
// side has two. Helpers have parts as their rates are.
func ratioSchemes(links string, size unit.Bytes) []string {
	direct, helped := pathRates(links)
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
				break // alike: equal parts of the rest
			}
			text += "/" + formatRatio((1-p)*r/sum)
		}
		if !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return all
}

// wideRatioSchemes are likewise those of one or several alike helpers over links that
// vary, where nothing tells what is best: up to the direct path alone.
func wideRatioSchemes() (all []string) {
	for p := 0.2; p < 1.05; p += 0.1 {
		all = append(all, ratioPrefix+formatRatio(p))
	}
	return all
}

// formatRatio is one with three digits, without idle zeros.
func formatRatio(p float64) string { return strconv.FormatFloat(math.Round(p*1000)/1000, 'g', -1, 64) }

// pathRates are what the direct path and each helper's path carry, in Mbit/s, of
// a house with plain numbers.
func pathRates(links string) (direct float64, helped []float64) {
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

// bestRatioLabel names the best of a cell's fixed ratios where schemes stand.
const bestRatioLabel = mptcp + ", best fixed ratio"

// ratioSchemes are the schemes of the search in a cell.
func (c Cell) ratioSchemes() (all []string) {
	for _, s := range c.Schemes {
		if isRatioScheme(s) {
			all = append(all, s)
		}
	}
	return all
}

// isRatioScheme tells whether a scheme is part of the search.
func isRatioScheme(scheme string) bool { return strings.HasPrefix(scheme, ratioPrefix) }

// withRatioSearch adds the search to a cell of steady links.
func (c Cell) withRatioSearch() Cell {
	ratios := ratioSchemes(c.Links, c.Size)
	c.Schemes = slices.Concat(c.Schemes, ratios)
	return c.limitReps(ratioReps, ratios...)
}

// noFigureText stands where a paper tells no figure.
const noFigureText = "no figure; less, we say"

// ratioSetup says what the search is.
var ratioSetup = fmt.Sprintf("The fixed ratio of %s is searched in steps of %g %% of the bytes about where all paths end together; the best mean of the cell stands, chosen after the fact, which favours it; where losses at the end of slow start decide, a step may be more than its part of the bytes. It is a TCP connection by each path, which no MPTCP with that ratio could beat.", mptcp, 100*ratioSearchStep)
