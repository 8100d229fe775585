package bond

import (
	"time"

	"mpbond/sched"
	"mpbond/unit"
)

// Decision is a scheduling decision as kept for people: what was chosen, why,
// and what the scheduler saw.
type Decision struct {
	At time.Time
	sched.Decision
	Remaining unit.Bytes
	Paths     []sched.Path
}

// ring keeps the newest decisions. Runs of the same choice for the same reason
// count as one, so that it shows more than the last 50 ms.
type ring struct {
	list [64]Decision
	n    int // decisions ever kept
}

func (r *ring) add(at time.Time, d sched.Decision, paths []sched.Path, remaining unit.Bytes) {
	if r.n > 0 {
		if last := &r.list[(r.n-1)%len(r.list)]; last.Wait == d.Wait && last.Path == d.Path && last.Reason == d.Reason {
			return
		}
	}
	e := &r.list[r.n%len(r.list)]
	e.At, e.Decision, e.Remaining = at, d, remaining
	e.Paths = append(e.Paths[:0], paths...)
	r.n++
}

// Decisions returns the newest decisions, oldest first.
func (b *Bond) Decisions() []Decision {
	r := &b.decisions
	var list []Decision
	for i := max(0, r.n-len(r.list)); i < r.n; i++ {
		d := r.list[i%len(r.list)]
		d.Paths = append([]sched.Path(nil), d.Paths...)
		list = append(list, d)
	}
	return list
}
