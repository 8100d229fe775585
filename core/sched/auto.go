package sched

import (
	"time"

	"mpbond/base/unit"
)

// auto is PAMS with an out-of-order budget. PAMS fills a helper's buffer as far
// as its link to the server allows, seconds ahead of the pipe; when another
// subflow then dies, what the app waits for queues behind all that. auto gives
// a subflow nothing more while the bytes at its far hop last longer than the
// budget: they keep that hop busy as well as more would.
//
// A helper that has not yet delivered as much as it is to hold is not relied on at the end of a
// transfer, nor for a short one: see trusted.
type auto struct {
	view       []Subflow
	noMoreData bool
}

// farQueueBudget is how long bytes may wait before the far hop. That hop never runs
// dry with it (reports are a tenth as old), a helper's link that breaks is
// hidden for as long, and a subflow's death costs no more than that and its
// detection.
const farQueueBudget = 250 * time.Millisecond

// finalQueueBudget takes its place once all that remains is at hand: then the app
// waits for the end rather than for the next byte, and what lies at a helper
// arrives whatever becomes of the helper's link.
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
			// What the app waits for may soon have to queue behind those bytes. Half
			// of them keep the far hop busy until it is known.
			most /= 2
			break
		}
	}
	full := false
	for i := range a.view {
		if p := &a.view[i]; p.Idle && p.FarWait > most {
			p.Idle, full = false, true
		}
	}
	d := pams{}.Pick(a.view, remaining)
	if d.Reason == NoIdleSubflow && full {
		d.Reason = BudgetSpent
	}
	return d
}

// isTrusted reports whether a subflow may be given bytes of a transfer, of which remaining
// are left. A helper proves itself by acknowledgements. It may hold more than has ever
// arrived by it only while the others would not carry all of that before its failure
// showed: until then they have enough to do, so that its failure costs little time.
func isTrusted(subflows []Subflow, p *Subflow, remaining unit.Bytes) bool {
	if !p.Helped || p.Acked >= p.InFlight+p.MSS {
		return true
	}
	alone, left := true, remaining+p.InFlight
	for i := range subflows {
		if q := &subflows[i]; !q.Helped && !q.Doubtful {
			alone = false
			left -= q.Th.Bytes(max(0, p.Confirm-q.PAD))
		}
	}
	return alone || left > 0
}
