package bond

import (
	"time"

	"mpbond/sched"
)

// recallLate takes back, for schedulers that want it (sched.Rebalancer), bytes
// in flight that others wait for: those which their subflow, slower than it was,
// is now expected to deliver later by the scheduler's margin than was planned
// when they were given to it, and than the quickest other subflow could. So a
// pipe that becomes ten times slower does not hold up for seconds what has come
// over the others. What was planned late, because quicker subflows carry what
// comes before it, is left alone.
func (b *Bond) recallLate(now time.Time) {
	r, ok := b.cfg.Scheduler.(sched.Rebalancer)
	if !ok || b.cfg.Eta < 0 || len(b.paths) < 2 {
		return
	}
	for _, p := range b.paths {
		all := p.flight.all()
		if p.flight.fresh == 0 || p.silent() {
			continue // what was in flight on a silent one is recalled already
		}
		n := p.est.At(now)
		q := b.quickest(p, now)
		if q == nil || q.silent() {
			continue
		}
		fast := q.view(q.est.At(now), now)
		margin := r.Margin(&fast)
		if oldest := firstDue(all); now.Sub(oldest) < margin/2 {
			continue // an estimate alone may be wrong: the oldest must be overdue
		}
		ahead := float64(p.est.Outstanding())
		for i := range all {
			f := &all[i]
			if !f.recallable() || f.due.IsZero() || n.Th > f.pace*slowed/100 {
				continue
			}
			// The bytes in flight before it take their share of the delay.
			share := 1 - float64(p.sent-f.end)/ahead
			at := now.Add(time.Duration(float64(n.PAD) * share))
			if at.Sub(f.due) > margin && at.Sub(now.Add(fast.PAD)) > margin {
				p.flight.recall(f)
				b.stats.Late += b.giveBack(f, p, now, "late")
			}
		}
	}
}

// slowed is the percentage of the rate expected that a subflow must have fallen
// to: what is late for another reason was planned badly, and copies of it would
// not be worth their bytes on stable links.
const slowed = 70

// firstDue is when the oldest of the frames that are due at some time was.
func firstDue(all []sentFrame) time.Time {
	for i := range all {
		if !all[i].due.IsZero() {
			return all[i].due
		}
	}
	return time.Time{}
}
