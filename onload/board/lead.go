// SPDX-License-Identifier: Apache-2.0

package board

import (
	"slices"
	"time"

	"mpbond/base/unit"
)

// Without ranges, a path that fails in the middle of an item leaves nothing, and the home line must
// fetch the whole item. That cannot be predicted. So the home line fetches items in the order in
// which they are wanted, including those that other paths have under way, as it would alone. It
// skips items that other paths have completed, and so gains a lead over where it would be alone. It
// lets another path continue with an older item only while that lead covers the possible loss.

// lead is how many bytes the home line is ahead of where it would be alone.
type lead struct {
	bytes unit.Bytes     // of all items older than the first missing one
	early []completeItem // completed before their turn
}

// completeItem is an item that has been completed.
type completeItem struct {
	item   Item
	size   unit.Bytes
	byHome bool // by the home line
}

// noteComplete records that a job has completed its item.
func (l *lead) noteComplete(j *Job, home bool) {
	if !j.Item.Splittable {
		l.early = append(l.early, completeItem{j.Item, j.Transferred, home})
	}
}

// bytesAhead returns the lead if next is the first missing item.
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

// deductFromLead records that the bytes of a job are lost, and its connection with them.
func (b *Board) deductFromLead(j *Job) {
	if b.isOnHomeLine(j.Path) && !j.Item.Splittable {
		p := b.paths[b.homePath]
		b.lead.bytes -= j.Transferred + unit.Bytes(2*p.rate*p.latency.Seconds())
	}
}

// oldestMissing returns the first item that is not complete.
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

// takeFirstMissing lets the home line fetch the first missing item that it does not fetch yet, if
// that cannot be split and the lead does not cover leaving it to others.
func (v *View) takeFirstMissing() (Decision, bool) {
	if !v.Unsplittable {
		return Decision{}, false
	}
	for _, j := range v.Running {
		if len(v.Waiting) > 0 && compareOrder(j.Item, v.Waiting[0]) > 0 {
			break
		}
		if !v.isHomePath(j.Path) && !v.homeLineCarries(j) && !j.Item.NoCopies &&
			!v.leadPaysFor(v.estimateWorstCase(j).transferTime(max(0, v.sizeOrMean(j.Item)-j.Transferred)), 0) {
			return Decision{Action: Copy, Job: j.ID, Reason: HomeFirst}, true
		}
	}
	if len(v.Waiting) > 0 && !v.Waiting[0].NoCopies && !v.leadCovers(v.sizeOrMean(v.Waiting[0])) {
		return Decision{Action: Take, Reason: HomeFirst}, true
	}
	return Decision{}, false
}

// dropForOlder lets the home line drop its job for an older unsplittable item, if the lead does not
// cover any more leaving that item to others.
func (v *View) dropForOlder(homeJob Job) (Decision, bool) {
	if !v.Unsplittable || homeJob.Item.Splittable || homeJob.Item.NoCopies || v.leadCovers(v.sizeOrMean(homeJob.Item)) {
		return Decision{}, false
	}
	if len(v.Waiting) > 0 && compareOrder(v.Waiting[0], homeJob.Item) < 0 && !v.Waiting[0].NoCopies {
		return Decision{Action: Take, Reason: HomeFirst}, true
	}
	for _, j := range v.Running {
		if compareOrder(j.Item, homeJob.Item) >= 0 {
			break
		}
		if j.Item.NoCopies ||
			v.leadPaysFor(v.estimateWorstCase(j).transferTime(max(0, v.sizeOrMean(j.Item)-j.Transferred)),
				homeJob.Transferred) {
			continue
		}
		return Decision{Action: Copy, Job: j.ID, Reason: HomeFirst}, true
	}
	return Decision{}, false
}

// leadPaysFor reports whether the lead, minus spent bytes, covers the time d in which the home line
// does something else and then finds that this was in vain.
func (v *View) leadPaysFor(d time.Duration, spent unit.Bytes) bool {
	return d != never && v.leadCovers(spent+v.Paths[v.HomePath].Rate.Bytes(d))
}

// leadCovers reports whether the lead covers n bytes and a restart.
func (v *View) leadCovers(n unit.Bytes) bool {
	p := v.Paths[v.HomePath]
	return v.Lead > 0 && n+p.Rate.Bytes(3*p.Latency) <= v.Lead
}
