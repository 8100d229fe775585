// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"math/rand/v2"
	"time"
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

// NextGrant returns when what is ready now leaves. Times must not fall.
func (u *Uplink) NextGrant(now time.Duration) time.Duration {
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
