// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"math"

	"mpbond/pbe/cell"
)

// Choices of the model for users that adapt, sleep or move, and for carriers by use.
const (
	// cqiDelay is the age of a CQI in subframes: it is reported after 4, and used 4 later (36.213 section 7.2).
	cqiDelay = 8
	// The outer loop lowers its offset by offsetStep dB after an error, and raises it so that one block in ten
	// has errors. It is bounded.
	offsetStep           = 0.5
	targetErrors         = 0.1
	minOffset, maxOffset = -8.0, 4.0
	// errorSlope is how steep block errors fall over the SINR: by a factor of e for each 1/errorSlope dB, as
	// turbo codes do (figures of 36.942, annex A).
	errorSlope = 3.0

	// Discontinuous reception, in subframes (36.331 section 6.3.2, DRX-Config).
	sleepAfter, sleepOn, sleepCycle = 100, 10, 40

	// CarriersByUse averages use exponentially, with half of the half second that a mean of equal weights covers.
	// fullUse is the use from which on carriers count as full.
	useSubframes = 250
	fullUse      = 0.97

	// guaranteedFirst exceeds any priority without a guarantee.
	guaranteedFirst = 1e9
)

// adaptation is the link adaptation of one user.
type adaptation struct {
	sinr   [cqiDelay + 1]float64 // by subframe
	now    float64               // SINR of this subframe
	offset float64               // dB, added to the reported SINR
}

// chooseCQI sets the CQI by which blocks are made in a subframe.
func (u *user) chooseCQI(number int64) {
	sinr := u.SINR(number)
	if !u.Adapts {
		u.cqi = CQI(sinr)
		return
	}
	l := &u.link
	l.now = sinr
	l.sinr[number%int64(len(l.sinr))] = sinr
	old := sinr // at first
	if number >= cqiDelay {
		old = l.sinr[(number+1)%int64(len(l.sinr))]
	}
	u.cqi = max(CQI(old+l.offset), 1)
}

// combineTransmission adds the energy of a transmission of b in this subframe, and returns the probability that it
// is still wrong.
func (l *adaptation) combineTransmission(b *transportBlock) float64 {
	b.energy += math.Pow(10, l.now/10)
	margin := 10*math.Log10(b.energy) - cqiThresholds[b.cqi]
	return 1 / (1 + (1-targetErrors)/targetErrors*math.Exp(errorSlope*margin))
}

// correctOffset follows the errors of first transmissions.
func (l *adaptation) correctOffset(wrong bool) {
	if wrong {
		l.offset = max(l.offset-offsetStep, minOffset)
	} else {
		l.offset = min(l.offset+offsetStep*targetErrors/(1-targetErrors), maxOffset)
	}
}

// isReachable reports whether the user may get a new block: it is awake, and not on its way to another cell.
func (u *user) isReachable(number int64) bool {
	return number >= u.awayUntil &&
		!(u.Sleeps && number-u.lastGrant > sleepAfter && number%sleepCycle >= sleepOn)
}

// Handover moves user u to another cell, which is as the old one: for a number of subframes it gets nothing, and then
// has another RNTI and one carrier. What is on the air counts as delivered. If what waits is not forwarded to the new
// cell, it is lost.
func (n *Network) Handover(u int, subframes int64, rnti cell.RNTI, forwards bool) {
	x := &n.users[u]
	x.RNTI, x.awayUntil = rnti, n.number+subframes
	x.fullSubframes, x.spareSubframes, x.busySubframes = 0, 0, 0
	for i, c := range x.Cells {
		x.active[i] = i == 0
		l := &n.cells[c].links[u]
		for h := range l.processes {
			for k := range l.processes[h].blocks {
				if b := &l.processes[h].blocks[k]; b.pending {
					x.endBlock(b, false)
				}
			}
		}
		l.busyProcesses = 0
	}
	if forwards {
		return
	}
	for k := x.firstUnsent; k < x.queue.next; k++ {
		it := x.queue.itemByNumber(k)
		it.bitsLeft, it.lost = 0, true
	}
	x.firstUnsent, x.unsentBits = x.queue.next, 0
}
