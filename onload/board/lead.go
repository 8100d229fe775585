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
	bytes unit.Bytes     // of all that is older than what is missing
	early []completeItem // what came before its turn
}

// completeItem is an item that is there.
type completeItem struct {
	item   Item
	size   unit.Bytes
	byHome bool // brought by the home line
}

// noteComplete takes in that a job has brought its item.
func (l *lead) noteComplete(j *Job, home bool) {
	if !j.Item.Splittable {
		l.early = append(l.early, completeItem{j.Item, j.Transferred, home})
	}
}

// bytesAhead is the lead where next is what is missing first.
func (l *lead) bytesAhead(next Item) unit.Bytes {
	l.early = slices.DeleteFunc(l.early, func(w completeItem) bool {
		past := compareOrder(w.item, next) < 0
		if past && !w.byHome {
			l.bytes += w.size
		}
		return past
	})
	sum := l.bytes
	for _, w := range l.early {
		if w.byHome {
			sum -= w.size
		}
	}
	return sum
}

// deductFromLead takes in that what a job has brought is of no use, and its connection is gone.
func (b *Board) deductFromLead(j *Job) {
	if b.isHomePath(j.Path) && !j.Item.Splittable {
		p := b.paths[b.homePath]
		b.lead.bytes -= j.Transferred + unit.Bytes(2*p.rate*p.latency.Seconds())
	}
}

// oldestMissing is the item that is missing first.
func (b *Board) oldestMissing() (first Item) {
	var found bool
	for _, j := range b.jobs {
		if !found || compareOrder(j.Item, first) < 0 {
			first, found = j.Item, true
		}
	}
	if len(b.waiting) > 0 && (!found || compareOrder(b.waiting[0], first) < 0) {
		first = b.waiting[0]
	}
	return first
}

// takeFirstMissing is to have the home line bring the first item that is missing and that it does not
// bring, if it cannot be split and nothing pays for leaving it to others.
func (v *View) takeFirstMissing() (Decision, bool) {
	if !v.Unsplittable {
		return Decision{}, false
	}
	for _, j := range v.Running {
		if len(v.Waiting) > 0 && compareOrder(j.Item, v.Waiting[0]) > 0 {
			break
		}
		if !v.isHomePath(j.Path) && !v.isOnHomePath(j) && !j.Item.NoCopies && !v.leadPaysFor(v.estimateWorstCase(j).transferTime(max(0, v.sizeOrMean(j.Item)-j.Transferred)), 0) {
			return Decision{Action: Copy, Job: j.ID, Reason: HomeFirst}, true
		}
	}
	if len(v.Waiting) > 0 && !v.Waiting[0].NoCopies && !v.leadCovers(v.sizeOrMean(v.Waiting[0])) {
		return Decision{Action: Take, Reason: HomeFirst}, true
	}
	return Decision{}, false
}

// dropForOlder is to have the home line drop what it brings for an older item that cannot be split,
// if the lead does not pay any more for leaving that to others.
func (v *View) dropForOlder(mine Job) (Decision, bool) {
	if !v.Unsplittable || mine.Item.Splittable || mine.Item.NoCopies || v.leadCovers(v.sizeOrMean(mine.Item)) {
		return Decision{}, false
	}
	if len(v.Waiting) > 0 && compareOrder(v.Waiting[0], mine.Item) < 0 && !v.Waiting[0].NoCopies {
		return Decision{Action: Take, Reason: HomeFirst}, true
	}
	for _, j := range v.Running {
		if compareOrder(j.Item, mine.Item) >= 0 {
			break
		}
		if j.Item.NoCopies || v.leadPaysFor(v.estimateWorstCase(j).transferTime(max(0, v.sizeOrMean(j.Item)-j.Transferred)), mine.Transferred) {
			continue
		}
		return Decision{Action: Copy, Job: j.ID, Reason: HomeFirst}, true
	}
	return Decision{}, false
}

// leadPaysFor reports whether the lead, less what was spent of it, is worth the time that the home
// line does something else meanwhile, and notices that it was in vain.
func (v *View) leadPaysFor(d time.Duration, spent unit.Bytes) bool {
	return d != never && v.leadCovers(spent+v.Paths[v.HomePath].Rate.Bytes(d))
}

// leadCovers reports whether the lead is that much, and what it takes to begin anew.
func (v *View) leadCovers(n unit.Bytes) bool {
	p := v.Paths[v.HomePath]
	return v.Lead > 0 && n+p.Rate.Bytes(3*p.Latency) <= v.Lead
}
