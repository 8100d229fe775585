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

// An oracle is kibbutz with a fixed ratio that was the best of all: the search of
// it is in the row, and the choice is made after the fact, which no scheduler can
// and which favours it.

// oraclePrefix begins the names of its schemes.
const oraclePrefix = mptcp + ":ratio="

// Tuning of the search.
const (
	oracleStep  = 0.03 // of the bytes, and of the time, but where losses at the end of slow start decide
	oracleSteps = 2    // to each side
	// oracleLag is by how much a helper's path starts later than the direct one: two
	// round trips of its own, and some of slow start. It fits what was the best in
	// those cells.
	oracleLag = 200 * time.Millisecond
	// oracleReps: a transfer of plain TCP connections over steady links takes the
	// same time to a millisecond.
	oracleReps = 5
)

// oracles are the schemes among which the best fixed ratio is searched, in a
// house of steady links. Over all ratios from 0 to 1 the time falls as far as
// one point and rises behind it (measured in eight cells of m5's and m6's kind),
// which is where all paths end together: about that point they stand, and each
// side has two. Helpers have parts as their rates are.
func oracles(house string, size unit.Bytes) []string {
	direct, helped := houseRates(house)
	sum := 0.0
	for _, r := range helped {
		sum += r
	}
	if sum == 0 {
		return nil
	}
	center := direct / (direct + sum) * (1 + sum*1e6*oracleLag.Seconds()/float64(8*size))
	var all []string
	for i := -oracleSteps; i <= oracleSteps; i++ {
		p := min(1, max(0, center+float64(i)*oracleStep))
		text := oraclePrefix + share(p)
		for _, r := range helped[:len(helped)-1] {
			if len(helped) > 1 && !slices.ContainsFunc(helped, func(x float64) bool { return x != r }) {
				break // alike: equal parts of the rest
			}
			text += "/" + share((1-p)*r/sum)
		}
		if !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return all
}

// oraclesWide are likewise those of one or several alike helpers over links that
// vary, where nothing tells what is best: up to the direct path alone.
func oraclesWide() (all []string) {
	for p := 0.2; p < 1.05; p += 0.1 {
		all = append(all, oraclePrefix+share(p))
	}
	return all
}

// share is one with three digits, without idle zeros.
func share(p float64) string { return strconv.FormatFloat(math.Round(p*1000)/1000, 'g', -1, 64) }

// houseRates are what the direct path and each helper's path carry, in Mbit/s, of
// a house with plain numbers.
func houseRates(house string) (direct float64, helped []float64) {
	for i, part := range strings.Split(house, ",") {
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

// bestRatio names the best of a cell's fixed ratios where schemes stand.
const bestRatio = mptcp + ", best fixed ratio"

// ratios are the schemes of the search in a cell.
func (c Cell) ratios() (all []string) {
	for _, s := range c.Schemes {
		if isOracle(s) {
			all = append(all, s)
		}
	}
	return all
}

// isOracle tells whether a scheme is part of the search.
func isOracle(scheme string) bool { return strings.HasPrefix(scheme, oraclePrefix) }

// withOracles adds the search to a cell of steady links.
func (c Cell) withOracles() Cell {
	ratios := oracles(c.House, c.Size)
	c.Schemes = slices.Concat(c.Schemes, ratios)
	return c.fewer(oracleReps, ratios...)
}

// oursLess stands where a paper tells no figure.
const oursLess = "no figure; less, we say"

// oracleSetup says what the search is.
var oracleSetup = fmt.Sprintf("The fixed ratio of %s is searched in steps of %g %% of the bytes about where all paths end together; the best mean of the cell stands, chosen after the fact, which favours it; where losses at the end of slow start decide, a step may be more than its part of the bytes. It is a TCP connection by each path, which no MPTCP with that ratio could beat.", mptcp, 100*oracleStep)
