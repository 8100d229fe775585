// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"time"

	"mpbond/base/unit"
)

// auto is PAMS with a bound on out-of-order bytes. PAMS fills a helper's buffer as far as the link
// between helper and server allows, seconds ahead of the pipe. When another subflow then dies, the
// bytes that the app waits for queue behind all of these. auto gives a subflow no more bytes while
// those at its far hop last longer than farQueueBudget. That much keeps the hop as busy as more
// would.
//
// At the end of a transfer, and for a short one, auto does not rely on a helper that has delivered
// less than it would hold: see isTrusted.
type auto struct {
	view       []Subflow
	noMoreData bool
}

// farQueueBudget is how long bytes may wait before the far hop. It is ten times the age of a
// helper's reports, so the hop never runs dry. It hides a break of the helper's link for as long.
// The death of a subflow costs no more than the budget and the time to detect it.
const farQueueBudget = 250 * time.Millisecond

// finalQueueBudget replaces farQueueBudget once the source has no more data. The app then waits for
// the end rather than for the next byte, and bytes at a helper arrive even if its link to the
// server breaks.
const finalQueueBudget = 2 * farQueueBudget

func (*auto) Name() string { return "auto" }

// ObserveWindow implements WindowAware.
func (a *auto) ObserveWindow(w Window, _ time.Time) { a.noMoreData = w.NoMoreData }

func (a *auto) Pick(subflows []Subflow, remaining unit.Bytes) Decision {
	a.view = a.view[:0]
	for i := range subflows {
		if isTrusted(subflows, &subflows[i], remaining) {
			a.view = append(a.view, subflows[i])
		}
	}
	most := farQueueBudget
	if a.noMoreData {
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
	full := false
	for i := range a.view {
		if p := &a.view[i]; p.Idle && p.FarQueueTime > most {
			p.Idle, full = false, true
		}
	}
	d := pams{}.Pick(a.view, remaining)
	if d.Reason == NoIdleSubflow && full {
		d.Reason = BudgetSpent
	}
	return d
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
			left -= q.Th.Bytes(max(0, p.TimeToAck-q.PAD))
		}
	}
	return alone || left > 0
}
