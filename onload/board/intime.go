package board

import (
	"cmp"
	"slices"
	"time"
)

// mostPlanned is of how many items a plan is improved, and how often.
const mostPlanned = 64

// inTime plans all that waits so that it is ready soon, and takes the largest item that
// falls to this path: what it could give to nobody else once it has begun it leaves to
// others otherwise, those that are idle too.
func inTime(v *View, path int) Decision {
	p := newPlan(v, path)
	for n := 0; n < mostPlanned && len(p.items) <= mostPlanned; n++ {
		c, ok := p.better()
		if !ok {
			break
		}
		p.apply(c)
	}
	if at := slices.Index(p.by, path); at >= 0 {
		return Decision{Action: Take, Item: p.items[at], Reason: InTime}
	}
	return Decision{Reason: NoGain}
}

// plan is which path brings which item.
type plan struct {
	*View
	does  []pace
	items []int           // of View.Waiting, the largest first
	by    []int           // path of each of these
	ready []time.Duration // when each path has what it was given
}

// newPlan gives each item, the largest first, to the path that would have it soonest.
func newPlan(v *View, path int) *plan {
	p := &plan{View: v, items: make([]int, len(v.Waiting))}
	p.ready, p.does = v.busy(path)
	for i := range p.items {
		p.items[i] = i
	}
	slices.SortStableFunc(p.items, func(a, b int) int { return cmp.Compare(v.Waiting[b].Size(), v.Waiting[a].Size()) })
	for _, i := range p.items {
		first, at := v.soonest(p.ready, p.does, v.Waiting[i], path)
		p.ready[first] = at
		p.by = append(p.by, first)
	}
	return p
}

// take is for how long a path would bring an item of the plan.
func (p *plan) take(item, path int) time.Duration {
	return p.takes(p.does, p.Waiting[p.items[item]], path)
}

// change is that an item goes to a path, and another one of that path, if not -1, comes
// back for it.
type change struct{ item, to, back int }

// better is the change that most helps the path that is ready last.
func (p *plan) better() (best change, ok bool) {
	last := -1
	for _, k := range p.by {
		if last < 0 || p.ready[k] > p.ready[last] {
			last = k
		}
	}
	if last < 0 {
		return best, false
	}
	least := p.ready[last]
	try := func(c change) {
		a, b := p.ready[last]-p.take(c.item, last), p.ready[c.to]+p.take(c.item, c.to)
		if c.back >= 0 {
			a, b = a+p.take(c.back, last), b-p.take(c.back, c.to)
		}
		if end := max(a, b); end < least {
			best, least, ok = c, end, true
		}
	}
	for i, by := range p.by {
		if by != last {
			continue
		}
		for k := range p.ready {
			if k != last {
				try(change{i, k, -1})
			}
		}
		for back, to := range p.by {
			if to != last {
				try(change{i, to, back})
			}
		}
	}
	return best, ok
}

func (p *plan) apply(c change) {
	from := p.by[c.item]
	p.move(c.item, c.to)
	if c.back >= 0 {
		p.move(c.back, from)
	}
}

func (p *plan) move(item, to int) {
	p.ready[p.by[item]] -= p.take(item, p.by[item])
	p.ready[to] += p.take(item, to)
	p.by[item] = to
}
