// SPDX-License-Identifier: Apache-2.0

package vary

import (
	"math/rand/v2"
	"time"

	"mpbond/base/unit"
)

// The Markov chain of LTE rates. States are shares of the mean, at about the 5, 25, 50, 75 and 95 %
// points of four recorded downlinks in samples of 200 ms: mahimahi's TMobile-LTE-short and
// Verizon-LTE-short (Winstein et al., NSDI 2013) and ATT-LTE-driving-2016, and taxi1 of the New
// York set (Abbasloo et al., SIGCOMM 2020). Their points are 0.01–0.16, 0.42–0.59, 0.78–1.20,
// 1.30–1.40 and 1.54–2.65 of their means. Their coefficients of variation are 0.49–0.98, their
// autocorrelations 0.47–0.72 after 1 s, 0.27–0.57 after 2 s and 0.08–0.32 after 5 s. This chain has
// 0.69; 0.58, 0.35, 0.08. We assume that states are independent of the previous one, and how
// samples of a state spread.
var lteStates = []struct{ share, weight float64 }{{0.15, 0.15}, {0.5, 0.25}, {0.9, 0.25}, {1.35, 0.2}, {2.2, 0.15}}

const (
	lteDwell  = 2 * time.Second // mean time to the next draw of a state, exponential
	lteSpread = 0.3             // samples of a state are uniform within ± this
)

// LTE returns the rates of a phone in a cell: a Markov chain in samples of Step. Except for
// rounding, their mean over length is the given one.
func LTE(rng *rand.Rand, mean unit.Rate, length time.Duration) Profile {
	p := Profile{Step: Step, Rates: make([]unit.Rate, countTimeSteps(length, Step))}
	raw := make([]float64, len(p.Rates))
	state, left, sum := drawLTEState(rng), drawExponential(rng, lteDwell), 0.0
	for i := range raw {
		for ; left < 0; left += drawExponential(rng, lteDwell) {
			state = drawLTEState(rng)
		}
		left -= Step
		raw[i] = state * (1 + lteSpread*(2*rng.Float64()-1))
		sum += raw[i]
	}
	for i, v := range raw {
		p.Rates[i] = unit.Rate(v / sum * float64(len(raw)) * float64(mean))
	}
	return p
}

// drawLTEState draws a state and returns its share of the mean.
func drawLTEState(rng *rand.Rand) float64 {
	u := rng.Float64()
	for _, s := range lteStates {
		if u -= s.weight; u < 0 {
			return s.share
		}
	}
	return lteStates[len(lteStates)-1].share
}
