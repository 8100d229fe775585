// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"math"
	"time"

	"mpbond/base/unit"
)

// Forecasts of a subflow whose TCP is in slow start. Its window is Th times DoublingTime. As much
// leaves at once, at the rate of the slowest link, and twice as much in each round trip that
// follows, until that rate, Ceiling, is reached. A subflow with late bytes gets no such credit.

// isDoubling reports whether the subflow is in slow start.
func (p *Subflow) isDoubling() bool { return p.DoublingTime > 0 && p.Th > 0 && !p.IsAckLate }

// window returns how many bytes the subflow sends in a round trip of slow start.
func (p *Subflow) window() unit.Bytes { return p.Th.Bytes(p.DoublingTime) }

// maxDoublings keeps numbers finite: 40 doublings of a rate of one bit are a terabit per second.
const maxDoublings = 40

// maxForecast is a petabyte, so that sums over all subflows do not overflow.
const maxForecast = 1 << 50

// soonestPAD returns when a byte given to the subflow now arrives at the earliest. It is at most
// PAD. In slow start it can be less, because the rate still grows.
func (p *Subflow) soonestPAD() time.Duration {
	window := p.window()
	if !p.isDoubling() || p.InFlight <= window || window <= 0 {
		return p.PAD
	}
	windows := float64(p.InFlight) / float64(window)
	whole := min(math.Floor(math.Log2(windows+1)), maxDoublings) // round trips that are full
	rounds := whole - 1 + (windows-(math.Exp2(whole)-1))/math.Exp2(whole)
	wait := time.Duration(rounds * float64(p.DoublingTime))
	if p.Ceiling > p.Th {
		wait = max(wait, p.Ceiling.Time(p.InFlight-window))
	}
	return min(p.PAD, p.MinRTT/2+wait)
}

// latestPAD returns when a byte given to the subflow now arrives if the queue takes a quarter
// longer than estimated, since rates vary. A byte given to a slow subflow too early is waited for,
// or sent twice. One given too late costs less.
func (p *Subflow) latestPAD() time.Duration { return p.PAD + (p.PAD-p.MinRTT/2)/4 }

// carriedBy returns how many bytes beyond those in flight the subflow can deliver within t.
func (p *Subflow) carriedBy(t time.Duration) unit.Bytes {
	if !p.isDoubling() {
		return p.Th.Bytes(max(0, t-p.PAD))
	}
	rounds := float64(t-p.MinRTT/2) / float64(p.DoublingTime)
	if rounds <= 0 {
		return 0
	}
	whole := math.Floor(min(rounds, maxDoublings))
	windows := math.Exp2(whole+1) - 1 + min(rounds-whole, 1)*math.Exp2(whole+1)
	n := unit.Bytes(min(windows*float64(p.window()), maxForecast)) - p.InFlight
	if p.Ceiling > p.Th {
		n = min(n, p.Ceiling.Bytes(max(0, t-p.soonestPAD())))
	}
	return max(0, n)
}

// packetTime returns how long the slowest hop takes for one packet; 0 if its rate is unknown.
func (p *Subflow) packetTime() time.Duration {
	rate := p.Th
	if p.isDoubling() && p.InFlight+p.MSS <= p.window() {
		rate = p.Ceiling
	}
	if rate == 0 {
		return 0
	}
	return rate.Time(p.MSS)
}

// soonestOf returns the subflow of least soonestPAD, idle or not; nil if there is none.
func soonestOf(subflows []Subflow) *Subflow {
	var best *Subflow
	for i := range subflows {
		if p := &subflows[i]; best == nil || p.soonestPAD() < best.soonestPAD() {
			best = p
		}
	}
	return best
}
