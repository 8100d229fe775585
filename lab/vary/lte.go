package vary

import (
	"math/rand/v2"
	"time"

	"mpbond/base/unit"
)

// The chain of LTE's rates. States are shares of the mean, at about the 5, 25, 50,
// 75 and 95 % points of four downlinks that others recorded, in samples of 200 ms:
// mahimahi's TMobile-LTE-short and Verizon-LTE-short (Winstein et al., NSDI 2013)
// and ATT-LTE-driving-2016, and taxi1 of the New York set (Abbasloo et al.,
// SIGCOMM 2020). Those are at 0.01–0.16, 0.42–0.59, 0.78–1.20, 1.30–1.40 and
// 1.54–2.65 of their means, vary by 0.49–0.98 of them, and correlate with
// themselves by 0.47–0.72 after 1 s, 0.27–0.57 after 2 s and 0.08–0.32 after 5 s.
// This chain: 0.69; 0.58, 0.35, 0.08. That a state forgets the one before, and how
// samples of a state spread, are assumptions.
var lteStates = []struct{ share, weight float64 }{{0.15, 0.15}, {0.5, 0.25}, {0.9, 0.25}, {1.35, 0.2}, {2.2, 0.15}}

const (
	lteDwell  = 2 * time.Second // mean time to the next draw of a state, exponential
	lteSpread = 0.3             // samples of a state are uniform within ± this
)

// LTE is what a phone gets of a cell: a Markov chain's rates in samples of Step.
// Their mean over the length is the one given, exactly but for rounding.
func LTE(rng *rand.Rand, mean unit.Rate, length time.Duration) Profile {
	p := Profile{Step: Step, Rates: make([]unit.Rate, stepCount(length, Step))}
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

func drawLTEState(rng *rand.Rand) float64 {
	u := rng.Float64()
	for _, s := range lteStates {
		if u -= s.weight; u < 0 {
			return s.share
		}
	}
	return lteStates[len(lteStates)-1].share
}
