// SPDX-License-Identifier: Apache-2.0

package board_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/onload/board"
	"mpbond/onload/simulate"
)

// varyingRates returns rates that vary by a share around a mean.
func varyingRates(r *rand.Rand, mbps, share float64) (list []simulate.Step) {
	for at := time.Duration(0); at < 10*time.Minute; at += milliseconds(r, 300, 5000) {
		list = append(list, simulate.Step{At: at, Rate: unit.Rate(mbps * uniform(r, 1-share, 1+share) * 1e6)})
	}
	return list
}

// randomPaths returns a home line of some rate and up to three metered phones.
func randomPaths(r *rand.Rand, home float64) (list []simulate.Path) {
	list = append(list, simulate.Path{RTT: milliseconds(r, 5, 60), Rates: varyingRates(r, home, 0.3)})
	for range 1 + r.IntN(3) {
		list = append(list, simulate.Path{RTT: milliseconds(r, 30, 150), Promotion: milliseconds(r, 0, 1000),
			Tail: 10 * time.Second, Metered: true, Rates: varyingRates(r, uniform(r, 0.3, 12), 0.5)})
	}
	return list
}

// wholeFiles has up to six files of a server without ranges, over a home line of 1 to 25 Mbit/s.
func wholeFiles(seed int) (c simulate.Case) {
	r := rand.New(rand.NewPCG(uint64(seed), 12))
	c.Paths = randomPaths(r, uniform(r, 1, 25))
	for i := range []int{1, 1, 2, 6}[r.IntN(4)] {
		c.Items = append(c.Items, board.Item{Object: i, To: unit.Bytes(uniform(r, 0.2e6, 12e6))})
	}
	c.SizesFromResponses = true
	return c
}

// unsizedFiles is wholeFiles with a server that does not send sizes.
func unsizedFiles(seed int) simulate.Case {
	c := wholeFiles(seed)
	c.SizesFromResponses, c.UnknownSizes = false, true
	return c
}

// rangedFiles has the parts of an object that is sent to S3, over a home line of 1 to 10 Mbit/s.
func rangedFiles(seed int) (c simulate.Case) {
	r := rand.New(rand.NewPCG(uint64(seed), 13))
	c.Paths, c.Upload = randomPaths(r, uniform(r, 1, 10)), true
	for i := range c.Paths {
		c.Paths[i].Buffer = unit.Bytes(uniform(r, 0, 500e3))
	}
	for i := range 3 + r.IntN(14) {
		c.Items = append(c.Items, board.Item{Object: i, To: 5 << 20})
	}
	return c
}

// TestCopiesCost checks that metered paths copy little where items cannot be split, and that no
// case takes longer than over the home line alone by more than 5 % and some round trips.
func TestCopiesCost(t *testing.T) {
	for _, x := range []struct {
		name string
		of   func(seed int) simulate.Case
		most float64 // mean waste of phones, as a share of the files
	}{{"whole files", wholeFiles, 0.06}, {"sizes unknown", unsizedFiles, 0.06},
		{"parts that are sent", rangedFiles, 0.04}} {
		var wasted, phones []float64 // shares of the files
		var took, alone time.Duration
		for seed := range 5 * *seeds {
			c := x.of(seed)
			res := runCase(t, c, "auto")
			home := c
			home.Paths = c.Paths[:1]
			one := runCase(t, home, "auto").Took
			sum, paid := unit.Bytes(0), unit.Bytes(0)
			for _, i := range c.Items {
				sum += i.Size()
			}
			for i := range c.Paths[1:] {
				paid += res.Carried[i+1] - res.Useful[i+1]
			}
			wasted = append(wasted, float64(res.Wasted)/float64(sum))
			phones = append(phones, float64(paid)/float64(sum))
			took, alone = took+res.Took, alone+one
			if most := one + one/20 + 10*c.Paths[0].RTT; res.Took > most {
				t.Errorf("%s, seed %d: %v, the home line alone %v", x.name, seed, res.Took, one)
			}
		}
		t.Logf("%s: %v, the home line alone %v; wasted, of the files: %s; by phones: %s", x.name,
			took.Round(time.Second), alone.Round(time.Second), spread(wasted), spread(phones))
		if got := mean(phones); got > x.most {
			t.Errorf("%s: phones waste %.1f %% of the files", x.name, 100*got)
		}
	}
}

func mean(list []float64) (sum float64) {
	for _, x := range list {
		sum += x / float64(len(list))
	}
	return sum
}

// spread formats a distribution.
func spread(shares []float64) string {
	s := slices.Sorted(slices.Values(shares))
	at := func(q float64) float64 { return 100 * s[int(q*float64(len(s)-1))] }
	return fmt.Sprintf("mean %.1f %%, median %.1f %%, 75th percentile %.1f %%, 95th %.1f %%, most %.0f %%", 100*mean(s),
		at(0.5), at(0.75), at(0.95), at(1))
}
