// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"time"

	"mpbond/base/unit"
)

// blest is the blocking estimation scheduler (Ferlin, Alay, Mehani, Boreli: "BLEST: Blocking
// Estimation-based MPTCP Scheduler for Heterogeneous Networks", IFIP Networking 2016, section III).
// It skips a slower subflow if the fastest one would fill the rest of the send window |M| and then
// stall while the slow segment is on its way. With rtts = RTT_S/RTT_F it waits if
//
//	X·λ > |M| − (inflight_S + 1 segment)
//	X   = MSS_F · (CWND_F + (rtts − 1)/2) · rtts
//
// λ corrects the estimate. After each round trip of the slow subflow it rises by 4 % if the window
// blocked, and falls by 1 % if not. It starts at 1.2 and stays between 1 and 1.3 (the authors'
// implementation for Linux).
//
// The inputs are pipe-aware: PAD serves as the RTT and Th·PAD as the window.
type blest struct {
	window  Window
	now     time.Time
	lambda  float64
	updated time.Time
	blocked uint64 // at the last update of λ
}

const (
	blestLambda, blestMin, blestMax = 1.2, 1.0, 1.3
	blestRise, blestFall            = 0.04, 0.01
)

func (*blest) Name() string { return "blest" }

// ObserveWindow implements WindowAware.
func (b *blest) ObserveWindow(w Window, now time.Time) { b.window, b.now = w, now }

func (b *blest) Pick(subflows []Subflow, _ unit.Bytes) Decision {
	s := leastIdleSubflow(subflows, padOf)
	if s == nil {
		return Decision{Wait: true, Reason: NoIdleSubflow}
	}
	f := fastestSubflow(subflows)
	if f.PAD >= s.PAD {
		return Decision{Subflow: s.ID, Reason: Fastest}
	}
	b.adaptLambda(s.PAD)
	rtts := float64(s.PAD) / float64(max(f.PAD, time.Microsecond))
	x := (float64(f.Th.Bytes(f.PAD)) + float64(f.MSS)*(rtts-1)/2) * rtts
	if x*b.lambda > float64(b.window.Size-s.InFlight-s.MSS) {
		return Decision{Wait: true, Reason: WouldBlock}
	}
	return Decision{Subflow: s.ID, Reason: FastestIdle}
}

// adaptLambda corrects λ once per round trip of the slow subflow.
func (b *blest) adaptLambda(rtt time.Duration) {
	if b.lambda == 0 {
		b.lambda, b.updated, b.blocked = blestLambda, b.now, b.window.Blocked
	}
	if b.now.Sub(b.updated) < rtt {
		return
	}
	if b.window.Blocked != b.blocked {
		b.lambda += blestRise
	} else {
		b.lambda -= blestFall
	}
	b.lambda = min(max(b.lambda, blestMin), blestMax)
	b.updated, b.blocked = b.now, b.window.Blocked
}
