// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"math"
	"time"

	"mpbond/base/unit"
)

// doublings returns in how many round trips the rate of a subflow may still double: without bound
// if no limit is known.
func (p *Subflow) doublings() float64 {
	switch {
	case p.DoublingTime <= 0 || p.Th <= 0:
		return 0
	case p.Ceiling <= p.Th:
		return maxDoublings
	}
	return min(math.Floor(math.Log2(float64(p.Ceiling)/float64(p.Th))), maxDoublings)
}

// maxDoublings keeps numbers finite: 40 doublings of a rate of one bit are a terabit per second.
const maxDoublings = 40

// forecastBytes returns how many bytes the subflow can deliver within a time if it sends twice as
// much in each round trip, as in TCP's slow start, up to its limit.
func (p *Subflow) forecastBytes(within time.Duration) unit.Bytes {
	most := p.doublings()
	if most == 0 {
		return p.Th.Bytes(within)
	}
	rounds := float64(within) / float64(p.DoublingTime)
	whole := math.Floor(min(rounds, most))
	windows := math.Exp2(whole) - 1 // sent in whole round trips
	windows += (rounds - whole) * math.Exp2(min(whole, most))
	return unit.Bytes(min(windows*float64(p.Th.Bytes(p.DoublingTime)), 1<<60))
}

// soonestPAD returns PAD if the rate doubles as in forecastBytes. It is the inverse of that
// function. A subflow with late bytes gets no such credit.
func (p *Subflow) soonestPAD() time.Duration {
	owd := p.MinRTT / 2
	queue := p.PAD - owd
	most := p.doublings()
	if most == 0 || queue <= 0 || p.IsAckLate {
		return p.PAD
	}
	windows := float64(queue) / float64(p.DoublingTime)
	whole := math.Floor(min(math.Log2(1+windows), most))
	rounds := whole + (windows-(math.Exp2(whole)-1))/math.Exp2(whole)
	return owd + time.Duration(rounds*float64(p.DoublingTime))
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
