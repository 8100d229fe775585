// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"math"
	"time"

	"mpbond/base/unit"
)

// What a subflow delivers whose TCP is in slow start. Its window is Th times DoublingTime. As much
// leaves at once, at the rate of the slowest link, and twice as much in each round trip that
// follows, until that rate, Ceiling, is reached. A subflow with late bytes is not expected to grow.
// The bytes of a window arrive one after the other; a forecast takes them to arrive in the middle
// of that time. The first window is the one in flight, so its middle arrives after HalfArrives.

// isDoubling reports whether the subflow is in slow start and not late.
func (p *Subflow) isDoubling() bool { return p.DoublingTime > 0 && p.Th > 0 && !p.IsAckLate }

// slowStartWindow returns how many bytes the subflow sends in a round trip of slow start.
func (p *Subflow) slowStartWindow() unit.Bytes { return p.Th.Bytes(p.DoublingTime) }

// maxDoublings keeps numbers finite: 40 doublings of a rate of one bit are a terabit per second.
const maxDoublings = 40

// maxDeliverable is a petabyte, so that sums over all subflows do not overflow.
const maxDeliverable = 1 << 50

// deliverableWithin returns how many bytes beyond those in flight the subflow can deliver within t.
// In slow start, 1 + 2 + … + 2^r windows have arrived r round trips after HalfArrives.
func (p *Subflow) deliverableWithin(t time.Duration) unit.Bytes {
	if !p.isDoubling() {
		return p.Th.Bytes(max(0, t-p.Forecast))
	}
	rounds := float64(t-p.HalfArrives) / float64(p.DoublingTime)
	if rounds <= 0 {
		return p.Th.Bytes(max(0, t-p.Forecast))
	}
	whole := math.Floor(min(rounds, maxDoublings))
	windows := math.Exp2(whole+1) - 1 + min(rounds-whole, 1)*math.Exp2(whole+1)
	n := unit.Bytes(min(windows*float64(p.slowStartWindow()), maxDeliverable)) - p.InFlight
	n = max(n, p.Th.Bytes(max(0, t-p.Forecast))) // several windows may be in flight
	if p.Ceiling > p.Th {
		n = min(n, p.Ceiling.Bytes(max(0, t-p.Forecast)))
	}
	return max(0, n)
}
