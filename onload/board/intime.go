// SPDX-License-Identifier: Apache-2.0

package board

import (
	"cmp"
	"slices"
	"time"
)

// maxPlanned bounds the number of items of an assignment that is improved, and the number of
// improvements.
const maxPlanned = 64

// planInTime assigns all waiting items to paths so that the last one is ready early, and takes the
// largest item of this path. The items must not be copied or moved once they are started; so a path
// leaves an item to others, even idle ones, if they finish it earlier.
func planInTime(v *View, path int) Decision {
	p := newAssignment(v, path)
	for n := 0; n < maxPlanned && len(p.items) <= maxPlanned; n++ {
		c, ok := p.findImprovement()
		if !ok {
			break
		}
		p.applyReassignment(c)
	}
	if at := slices.Index(p.pathOf, path); at >= 0 {
		return Decision{Action: Take, WaitingIndex: p.items[at], Reason: InTime}
	}
	return Decision{Reason: NoGain}
}

// assignment says which path carries which item.
type assignment struct {
	*View
	estimates  []deliveryEstimate
	items      []int           // indexes in View.Waiting, largest first
	pathOf     []int           // the path of each of items
	readyTimes []time.Duration // when each path has finished its items
}

// newAssignment gives each item, the largest first, to the path that would finish it first.
func newAssignment(v *View, path int) *assignment {
	p := &assignment{View: v, items: make([]int, len(v.Waiting))}
	p.readyTimes, p.estimates = v.findReadyTimes(path)
	for i := range p.items {
		p.items[i] = i
	}
	slices.SortStableFunc(p.items, func(a, b int) int { return cmp.Compare(v.Waiting[b].Size(), v.Waiting[a].Size()) })
	for _, i := range p.items {
		first, at := v.findSoonestPath(p.readyTimes, p.estimates, v.Waiting[i], path)
		p.readyTimes[first] = at
		p.pathOf = append(p.pathOf, first)
	}
	return p
}

// assignedItemTime returns how long a path needs for an item of the assignment.
func (p *assignment) assignedItemTime(item, path int) time.Duration {
	return p.itemTransferTime(p.estimates, p.Waiting[p.items[item]], path)
}

// reassignment moves an item to another path. Item returned of that path, if not -1, moves back.
type reassignment struct{ item, to, returned int }

// findImprovement returns the reassignment that relieves the path that is ready last the most.
func (p *assignment) findImprovement() (best reassignment, ok bool) {
	last := -1
	for _, k := range p.pathOf {
		if last < 0 || p.readyTimes[k] > p.readyTimes[last] {
			last = k
		}
	}
	if last < 0 {
		return best, false
	}
	least := p.readyTimes[last]
	try := func(c reassignment) {
		a, b := p.readyTimes[last]-p.assignedItemTime(c.item, last), p.readyTimes[c.to]+p.assignedItemTime(c.item, c.to)
		if c.returned >= 0 {
			a, b = a+p.assignedItemTime(c.returned, last), b-p.assignedItemTime(c.returned, c.to)
		}
		if end := max(a, b); end < least {
			best, least, ok = c, end, true
		}
	}
	for i, by := range p.pathOf {
		if by != last {
			continue
		}
		for k := range p.readyTimes {
			if k != last {
				try(reassignment{i, k, -1})
			}
		}
		for back, to := range p.pathOf {
			if to != last {
				try(reassignment{i, to, back})
			}
		}
	}
	return best, ok
}

// applyReassignment changes the assignment.
func (p *assignment) applyReassignment(c reassignment) {
	from := p.pathOf[c.item]
	p.moveItemToPath(c.item, c.to)
	if c.returned >= 0 {
		p.moveItemToPath(c.returned, from)
	}
}

// moveItemToPath moves one item to another path.
func (p *assignment) moveItemToPath(item, to int) {
	p.readyTimes[p.pathOf[item]] -= p.assignedItemTime(item, p.pathOf[item])
	p.readyTimes[to] += p.assignedItemTime(item, to)
	p.pathOf[item] = to
}
