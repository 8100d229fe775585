package board

import (
	"slices"
	"time"

	"mpbond/base/unit"
)

// Where there are no ranges, a path that fails in the middle of an item leaves nothing, and
// the home line must bring all of it. Nobody knows beforehand whether one will. So the home
// line brings the items in the order in which they are wanted, those that others have under
// way too, as it would alone: what others have brought whole it leaves out, and so it is
// ahead of where it would be alone. It lets another path go on with an older item only
// while that lead pays for what would be lost.

// lead is how far the home line is ahead of where it would be alone, in bytes.
type lead struct {
	sum  unit.Bytes // of all that is older than what is missing
	done []whole    // what came before its turn
}

// whole is an item that is there.
type whole struct {
	item Item
	size unit.Bytes
	home bool // brought by the home line
}

// add takes in that a job has brought its item.
func (l *lead) add(j *Job, home bool) {
	if !j.Item.Split {
		l.done = append(l.done, whole{j.Item, j.Got, home})
	}
}

// at is the lead where next is what is missing first.
func (l *lead) at(next Item) unit.Bytes {
	l.done = slices.DeleteFunc(l.done, func(w whole) bool {
		past := older(w.item, next) < 0
		if past && !w.home {
			l.sum += w.size
		}
		return past
	})
	sum := l.sum
	for _, w := range l.done {
		if w.home {
			sum -= w.size
		}
	}
	return sum
}

// lose takes in that what a job has brought is of no use, and its connection is gone.
func (b *Board) lose(j *Job) {
	if b.atHome(j.Path) && !j.Item.Split {
		p := b.paths[b.home]
		b.lead.sum -= j.Got + unit.Bytes(2*p.rate*p.latency.Seconds())
	}
}

// oldest is the item that is missing first.
func (b *Board) oldest() (first Item) {
	var found bool
	for _, j := range b.jobs {
		if !found || older(j.Item, first) < 0 {
			first, found = j.Item, true
		}
	}
	if len(b.waiting) > 0 && (!found || older(b.waiting[0], first) < 0) {
		first = b.waiting[0]
	}
	return first
}

// takeFirst is to have the home line bring the first item that is missing and that it does not
// bring, if it cannot be split and nothing pays for leaving it to others.
func (v *View) takeFirst() (Decision, bool) {
	if !v.Whole {
		return Decision{}, false
	}
	for _, j := range v.Running {
		if len(v.Waiting) > 0 && older(j.Item, v.Waiting[0]) > 0 {
			break
		}
		if !v.isHome(j.Path) && !v.onHome(j) && !j.Item.Once && !v.pays(v.surely(j).ends(max(0, v.size(j.Item)-j.Got)), 0) {
			return Decision{Action: Copy, Job: j.ID, Reason: HomeFirst}, true
		}
	}
	if len(v.Waiting) > 0 && !v.Waiting[0].Once && !v.covers(v.size(v.Waiting[0])) {
		return Decision{Action: Take, Reason: HomeFirst}, true
	}
	return Decision{}, false
}

// leadEnds is to have the home line drop what it brings for an older item that cannot be split,
// if the lead does not pay any more for leaving that to others.
func (v *View) leadEnds(mine Job) (Decision, bool) {
	if !v.Whole || mine.Item.Split || mine.Item.Once || v.covers(v.size(mine.Item)) {
		return Decision{}, false
	}
	if len(v.Waiting) > 0 && older(v.Waiting[0], mine.Item) < 0 && !v.Waiting[0].Once {
		return Decision{Action: Take, Reason: HomeFirst}, true
	}
	for _, j := range v.Running {
		if older(j.Item, mine.Item) >= 0 {
			break
		}
		if j.Item.Once || v.pays(v.surely(j).ends(max(0, v.size(j.Item)-j.Got)), mine.Got) {
			continue
		}
		return Decision{Action: Copy, Job: j.ID, Reason: HomeFirst}, true
	}
	return Decision{}, false
}

// pays reports whether the lead, less what was spent of it, is worth the time that the home
// line does something else meanwhile, and notices that it was in vain.
func (v *View) pays(d time.Duration, spent unit.Bytes) bool {
	return d != far && v.covers(spent+v.Paths[v.Home].Rate.Bytes(d))
}

// covers reports whether the lead is that much, and what it takes to begin anew.
func (v *View) covers(n unit.Bytes) bool {
	p := v.Paths[v.Home]
	return v.Lead > 0 && n+p.Rate.Bytes(3*p.Latency) <= v.Lead
}
