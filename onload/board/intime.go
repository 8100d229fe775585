package board

import (
	"cmp"
	"slices"
	"time"
)

// maxPlanned is of how many items a plan is improved, and how often.
const maxPlanned = 64

// planInTime plans all that waits so that it is ready soon, and takes the largest item that
// falls to this path: what it could give to nobody else once it has begun it leaves to
// others otherwise, those that are idle too.
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
		return Decision{Action: Take, Item: p.items[at], Reason: InTime}
	}
	return Decision{Reason: NoGain}
}

// assignment is which path brings which item.
type assignment struct {
	*View
	estimates  []deliveryEstimate
	items      []int           // of View.Waiting, the largest first
	pathOf     []int           // path of each of these
	readyTimes []time.Duration // when each path has what it was given
}

// newAssignment gives each item, the largest first, to the path that would have it soonest.
func newAssignment(v *View, path int) *assignment {
	p := &assignment{View: v, items: make([]int, len(v.Waiting))}
	p.readyTimes, p.estimates = v.findReadyTimes(path)
	for i := range p.items {
		p.items[i] = i
	}
	slices.SortStableFunc(p.items, func(a, b int) int { return cmp.Compare(v.Waiting[b].Size(), v.Waiting[a].Size()) })
	for _, i := range p.items {
		first, at := v.findSoonest(p.readyTimes, p.estimates, v.Waiting[i], path)
		p.readyTimes[first] = at
		p.pathOf = append(p.pathOf, first)
	}
	return p
}

// itemTime is for how long a path would bring an item of the plan.
func (p *assignment) itemTime(item, path int) time.Duration {
	return p.transferTime(p.estimates, p.Waiting[p.items[item]], path)
}

// reassignment is that an item goes to a path, and another one of that path, if not -1, comes
// back for it.
type reassignment struct{ item, to, returned int }

// findImprovement is the change that most helps the path that is ready last.
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
		a, b := p.readyTimes[last]-p.itemTime(c.item, last), p.readyTimes[c.to]+p.itemTime(c.item, c.to)
		if c.returned >= 0 {
			a, b = a+p.itemTime(c.returned, last), b-p.itemTime(c.returned, c.to)
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

func (p *assignment) applyReassignment(c reassignment) {
	from := p.pathOf[c.item]
	p.moveItem(c.item, c.to)
	if c.returned >= 0 {
		p.moveItem(c.returned, from)
	}
}

func (p *assignment) moveItem(item, to int) {
	p.readyTimes[p.pathOf[item]] -= p.itemTime(item, p.pathOf[item])
	p.readyTimes[to] += p.itemTime(item, to)
	p.pathOf[item] = to
}
