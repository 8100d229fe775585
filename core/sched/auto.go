// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"time"

	"mpbond/base/unit"
)

// auto is PAMS that expects its estimates to be wrong. docs/explanation/scheduling.md gives the
// principle. It differs from PAMS in four ways:
//
//   - A subflow whose limit is unknown is expected to double its rate each round trip. So a short
//     transfer does not use a slow subflow that a fast one in slow start will outrun.
//   - A byte is never sent so far ahead that the send window would be full before it arrives (the
//     test of BLEST).
//   - A helper that was never measured holds little more than it has delivered, and together such
//     helpers hold a small part of the transfer: see mayProve and isTrusted.
//   - A helper holds a bounded time of bytes. PAMS fills its buffer seconds ahead of the pipe, and
//     when another subflow dies, the bytes that the app waits for queue behind all of these.
type auto struct {
	view   []Subflow
	window Window
}

const (
	// farQueueBudget is how long bytes may wait before the far hop. It is ten times the age of a
	// helper's reports, so the hop never runs dry. It hides a break of the helper's link for as
	// long. The death of a subflow costs no more than the budget and the time to detect it.
	farQueueBudget = 250 * time.Millisecond

	// finalQueueBudget replaces farQueueBudget once the source has no more data. The app then waits
	// for the end rather than for the next byte, and bytes at a helper arrive even if its link to
	// the server breaks.
	finalQueueBudget = 2 * farQueueBudget

	// initialWindow is TCP's initial window in segments (RFC 6928).
	initialWindow = 10
	// One byte in wasteDivisor may be wasted: on helpers that were never measured, and on copies for
	// small gaps.
	wasteDivisor = 100
)

func (*auto) Name() string { return "auto" }

// ObserveWindow implements WindowAware.
func (a *auto) ObserveWindow(w Window, _ time.Time) { a.window = w }

func (a *auto) Pick(subflows []Subflow, remaining unit.Bytes) Decision {
	most := farQueueBudget
	if a.window.NoMoreData {
		most = finalQueueBudget
	}
	for i := range subflows {
		if subflows[i].Doubtful {
			// Bytes that the app waits for may soon queue behind these. Half of the budget keeps
			// the far hop busy until the doubt is resolved.
			most /= 2
			break
		}
	}
	next := soonestOf(subflows)
	atRisk := remaining / wasteDivisor
	for i := range subflows {
		if p := &subflows[i]; p != next && p.Helped && !p.Measured {
			atRisk -= p.unprovenBytes()
		}
	}
	full := false
	a.view = a.view[:0]
	for i := range subflows {
		p := subflows[i]
		proves := p.Helped && !p.Measured
		wait := p.FarQueueTime > most || proves && !mayProve(&p, &subflows[i] == next, atRisk)
		if proves && wait && p.InFlight == 0 || !isTrusted(subflows, &p, remaining) {
			full = full || p.Idle
			continue // no acknowledgement will change that soon: others must not wait for it
		}
		if p.Idle && wait {
			p.Idle, full = false, true
		}
		a.view = append(a.view, p)
	}
	if a.window.Size > 0 {
		remaining = min(remaining, a.window.Room)
	}
	d := pickUnlessFaster(a.view, remaining, (*Subflow).soonestPAD, (*Subflow).forecastBytes)
	if d.Reason == NoIdleSubflow && full {
		d.Reason = BudgetSpent
	}
	return d
}

// unprovenBytes returns how many more bytes the subflow holds than it has delivered.
func (p *Subflow) unprovenBytes() unit.Bytes { return max(0, p.InFlight-p.Acked) }

// mayProve reports whether a helper that was never measured may carry one more segment: at most a
// TCP's initial window more than it has delivered, so that it grows as slow start does, and within
// atRisk. next reports that it delivers before all others, which is no risk.
func mayProve(p *Subflow, next bool, atRisk unit.Bytes) bool {
	more := p.InFlight + p.MSS - p.Acked
	return more <= initialWindow*p.MSS && (next || more <= 0 || p.MSS <= atRisk)
}

// isTrusted reports whether subflow p may carry bytes of a transfer that has remaining bytes left.
// A helper proves itself by acknowledgements. It may hold more than it has ever delivered only
// while the direct subflows have enough other bytes to carry until its failure would show. Its
// failure then costs little time.
func isTrusted(subflows []Subflow, p *Subflow, remaining unit.Bytes) bool {
	if !p.Helped || p.Acked >= p.InFlight+p.MSS {
		return true
	}
	alone, left := true, remaining+p.InFlight
	for i := range subflows {
		if q := &subflows[i]; !q.Helped && !q.Doubtful {
			alone = false
			left -= q.forecastBytes(max(0, p.TimeToAck-q.soonestPAD()))
		}
	}
	return alone || left > 0
}
