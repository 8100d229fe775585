// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"time"

	"mpbond/base/unit"
)

// auto is PAMS that expects its estimates to be wrong. It differs from PAMS in six ways, by its
// own rule for reinjection in recall.go, and by copies of messages (MessageCopier). All of its
// rules are in docs/explanation/schedulers.md:
//
//   - A subflow in slow start is expected to send twice as much in each round trip. So a short
//     transfer does not use a slow subflow that a fast one in slow start will outrun.
//   - A byte is never sent so far ahead that the send window would be full before it arrives (the
//     test of BLEST).
//   - A helper proves itself by what it delivers: see isSubflowTrusted.
//   - A subflow that may stall soon delivers later by the expected length of the stall. So the app
//     does not wait for it if another one is nearly as fast, and it is used if none is.
//   - A local hop that has just become slow gets little more. TCP's window is still that of the faster
//     hop: seconds of bytes would queue there, and many of them be lost.
//   - A helper holds a bounded time of bytes, which grows with the transfer. PAMS fills its buffer
//     seconds ahead of the pipe. When another subflow dies, or a request follows, the bytes that the
//     app waits for queue behind all of these.
type auto struct {
	view   []Subflow
	window Window
}

const (
	// A subflow gets no byte that would wait before its far hop longer than a bound. minQueueBudget
	// is the bound at the beginning of a transfer, and the least one. It is several times the age
	// of the acknowledgements that estimate the queue, so that the hop does not run dry.
	minQueueBudget = 50 * time.Millisecond

	// Later the bound is one part in queueShare of the time that the transfer has lasted. In a
	// longer transfer it is more likely that the local hop becomes slow, and a queue hides it.
	queueShare = 3

	// maxQueueBudget is the greatest bound. The death of another subflow delays the bytes that the
	// app waits for by no more than the bound and the time to detect it.
	maxQueueBudget = 250 * time.Millisecond

	// maxFinalQueueBudget replaces maxQueueBudget once the source is not ahead of the subflows. The
	// app then waits for the end rather than for the next byte.
	maxFinalQueueBudget = 3 * maxQueueBudget

	// One byte in wasteDivisor may be recalled for small gaps. From late direct subflows shortTransfer
	// bytes may be recalled, and one more in lateDivisor.
	wasteDivisor = 100
	lateDivisor  = 10
)

func (*auto) Name() string { return "auto" }

// ObserveWindow implements WindowAware.
func (a *auto) ObserveWindow(w Window, _ time.Time) { a.window = w }

func (a *auto) Pick(subflows []Subflow, remaining unit.Bytes) Decision {
	budget := a.queueBudget(subflows)
	reason := NoIdleSubflow // if no idle subflow may carry more
	a.view = a.view[:0]
	for i := range subflows {
		p := subflows[i]
		p.Forecast += p.ExpectedStall
		trusted := isSubflowTrusted(subflows, &p, remaining)
		if full := p.FarQueueTime > budget || p.FallenQueueTime > maxQueueBudget; p.Idle && (full || !trusted) {
			p.Idle = false
			if full {
				reason = BudgetSpent
			} else if reason == NoIdleSubflow {
				reason = NotTrusted
			}
		}
		if trusted { // another one gets nothing more for now: others must not wait for it
			a.view = append(a.view, p)
		}
	}
	if a.window.Size > 0 {
		remaining = min(remaining, a.window.Room)
	}
	d := pickUnlessFaster(a.view, remaining, forecastOf, (*Subflow).deliverableWithin)
	if d.Reason == NoIdleSubflow {
		d.Reason = reason
	}
	return d
}

// queueBudget returns how long bytes may wait before a far hop now.
func (a *auto) queueBudget(subflows []Subflow) time.Duration {
	budget := maxQueueBudget
	if a.window.SourceIsLimit {
		budget = maxFinalQueueBudget
	}
	budget = min(budget, max(minQueueBudget, a.window.BusyFor/queueShare))
	for i := range subflows {
		if subflows[i].Doubtful {
			// Bytes that the app waits for may soon queue behind these. Half of the budget keeps
			// the far hop busy until the doubt is resolved.
			return max(minQueueBudget, budget/2)
		}
	}
	return budget
}

// isSubflowTrusted reports whether subflow p may carry bytes of a transfer that has remaining bytes
// left. A helper proves itself when the bytes of one packet are acknowledged. Before, it may hold
// bytes only while the direct subflows have enough others to carry until its failure would show. Its
// failure then costs little time. Direct subflows are always trusted. Without a working direct
// subflow, every helper is.
func isSubflowTrusted(subflows []Subflow, p *Subflow, remaining unit.Bytes) bool {
	if !p.Helped || p.Acked >= p.MSS {
		return true
	}
	noDirect, left := true, remaining+p.InFlight
	for i := range subflows {
		if q := &subflows[i]; !q.Helped && !q.Doubtful {
			noDirect = false
			left -= q.deliverableWithin(p.TimeToAck + q.Forecast) // what q can send by then
		}
	}
	return noDirect || left > 0
}
