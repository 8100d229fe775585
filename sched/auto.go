package sched

import (
	"time"

	"mpbond/unit"
)

// auto is PAMS with an out-of-order budget. PAMS fills a helper's buffer as far
// as its link to the server allows, seconds ahead of the pipe; when another
// subflow then dies, what the app waits for queues behind all that. auto gives
// a subflow nothing more while the bytes at its far hop last longer than the
// budget: they keep that hop busy as well as more would.
type auto struct {
	view   []Path
	atHand bool
}

// budget is how long bytes may wait before the far hop. That hop never runs
// dry with it (reports are a tenth as old), a helper's link that breaks is
// hidden for as long, and a subflow's death costs no more than that and its
// detection.
const budget = 250 * time.Millisecond

// lastBudget takes its place once all that remains is at hand: then the app
// waits for the end rather than for the next byte, and what lies at a helper
// arrives whatever becomes of the helper's link.
const lastBudget = 2 * budget

func (*auto) Name() string { return "auto" }

// SendWindow implements WindowAware.
func (a *auto) SendWindow(w Window, _ time.Time) { a.atHand = w.AtHand }

func (a *auto) Pick(paths []Path, remaining unit.Bytes) Decision {
	a.view = append(a.view[:0], paths...)
	most := budget
	if a.atHand {
		most = lastBudget
	}
	for i := range paths {
		if paths[i].Doubtful {
			// What the app waits for may soon have to queue behind those bytes. Half
			// of them keep the far hop busy until it is known.
			most /= 2
			break
		}
	}
	full := false
	for i := range a.view {
		if p := &a.view[i]; p.Idle && p.Wait > most {
			p.Idle, full = false, true
		}
	}
	d := pams{}.Pick(a.view, remaining)
	if d.Reason == NoIdlePath && full {
		d.Reason = BudgetSpent
	}
	return d
}
