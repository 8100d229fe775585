// SPDX-License-Identifier: Apache-2.0

package virtual

import (
	"math"
	"math/rand/v2"
	"time"

	"mpbond/base/unit"
)

// Times of the uplink: a device may ask each srPeriod, and is granted the first block grantMin to grantMax
// later (36.213 section 10.1.5; a grant 4 subframes after the request at the earliest). While it has more to
// send, it gets a block each srPeriod.
const (
	srPeriod           = 5 * time.Millisecond
	grantMin, grantMax = 4 * time.Millisecond, 8 * time.Millisecond
)

// Uplink decides when a device may send: what waits leaves together, in one transport block. Its flows share it.
type Uplink struct {
	rnd  *rand.Rand
	next time.Duration // the newest grant; 0: none
}

// NewUplink returns an uplink.
func NewUplink(seed uint64) *Uplink { return &Uplink{rnd: rand.New(rand.NewPCG(seed, 13))} }

// nextGrant returns when what is ready now leaves. Times must not fall.
func (u *Uplink) nextGrant(now time.Duration) time.Duration {
	switch {
	case now <= u.next:
	case u.next > 0 && now <= u.next+srPeriod:
		u.next += srPeriod
	default:
		asks := (now + srPeriod - 1) / srPeriod * srPeriod
		u.next = asks + grantMin + time.Duration(u.rnd.Int64N(int64(grantMax-grantMin)))
	}
	return u.next
}

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
