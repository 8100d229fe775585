// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"time"

	"mpbond/link/estimate"
)

// ownQueue limits the queue that bulk data fills before a sending hop, if no other device fills it. CUBIC fills any
// queue until packets are lost. When the hop becomes slow, what waits there comes seconds late. What another
// subflow has lost waits behind such a queue too. A queue of one round trip keeps the hop as busy
// (docs/adr/0035-a-short-queue-in-mobile-networks.md). The zero value limits nothing.
type ownQueue struct {
	isLimited   bool
	longSince   time.Time // since then the queue has been longer than twice the limit; zero: it is not
	sharedUntil time.Time // until then other programs of the device fill the queue too
}

const (
	// leastOwnQueue is the least limit: within that time a mobile link may become twice as fast.
	leastOwnQueue = 150 * time.Millisecond
	// A queue that is still long after drainRounds round trips, and after drainTime, is not one of bulk data alone.
	// Then there is no limit for sharedTime: beside CUBIC a short queue gets no share.
	drainRounds, drainTime = 4, time.Second
	sharedTime             = 10 * time.Second
)

// limitAt returns how long bytes may wait before the hop; 0: there is no limit now. Only a queue that round trips
// show is limited: while a window grows, its rate is not known yet, and few bytes look like a long queue.
func (q *ownQueue) limitAt(h estimate.Hop, now time.Time) time.Duration {
	if !q.isLimited || h.Blind || now.Before(q.sharedUntil) {
		return 0
	}
	limit, queue := max(leastOwnQueue, h.MinRTT), h.SRTT-h.MinRTT
	switch {
	case queue < 2*limit:
		q.longSince = time.Time{}
	case q.longSince.IsZero():
		q.longSince = now
	case now.Sub(q.longSince) > max(drainTime, drainRounds*h.SRTT):
		q.longSince, q.sharedUntil = time.Time{}, now.Add(sharedTime)
		return 0
	}
	if queue < limit {
		return 0
	}
	return limit
}
