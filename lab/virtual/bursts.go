// SPDX-License-Identifier: Apache-2.0

package virtual

import (
	"math"
	"math/rand/v2"
	"time"

	"mpbond/base/unit"
)

// paretoShape is the shape of the lengths of bursts: with less than 2 their variance is infinite, as that of
// web traffic (Crovella, Bestavros, 1997).
const paretoShape = 1.5

// Bursts returns a rate that alternates between 0 and r, with lengths from Pareto distributions of the given means.
func Bursts(seed uint64, r unit.Rate, on, off time.Duration) func(time.Duration) unit.Rate {
	rnd := rand.New(rand.NewPCG(seed, 14))
	drawLength := func(mean time.Duration) time.Duration {
		least := float64(mean) * (paretoShape - 1) / paretoShape
		return time.Duration(min(least/math.Pow(1-rnd.Float64(), 1/paretoShape), 1e11))
	}
	ends := []time.Duration{drawLength(off)} // off, on, off, …
	return func(now time.Duration) unit.Rate {
		for ends[len(ends)-1] <= now {
			mean := on
			if len(ends)%2 == 0 {
				mean = off
			}
			ends = append(ends, ends[len(ends)-1]+drawLength(mean))
		}
		k := len(ends) - 1
		for k > 0 && ends[k-1] > now {
			k--
		}
		if k%2 == 1 {
			return r
		}
		return 0
	}
}
