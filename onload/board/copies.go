package board

import (
	"time"

	"mpbond/base/unit"
)

// Tuning of copies.
const (
	// margin is how many times as long a copy over a metered path may take, by prediction,
	// and still be the first.
	margin = 1.5
	// hopeless is how many times as long as another one a path may need for the same item
	// before its job is ended; a metered path ends at margin.
	hopeless = 4
	// usualRate is assumed of a metered path that nothing is known of, in bytes a second: 4
	// Mbit/s, that of a phone with a poor signal.
	usualRate = 512 << 10
)

// affords reports whether a copy over a path may waste so much: in all, an item for each
// path but one, since something was added the last time. A free path may always bring what
// only metered ones are bringing.
func (v *View) affords(path int, j Job, cost unit.Bytes) bool {
	if v.Copied+cost <= unit.Bytes(v.lines()-1)*v.Largest {
		return true
	}
	for _, other := range v.Running {
		if other.Item.id == j.Item.id && !v.Paths[other.Path].Metered {
			return false
		}
	}
	return !v.Paths[path].Metered
}

// duplicate is to fetch a job's rest as well, and how much sooner that would be.
func duplicate(v *View, j Job, path int) (Decision, time.Duration) {
	d := Decision{Action: Copy, Job: j.ID, Reason: EndsSooner}
	switch {
	case v.Paths[path].Line == v.Paths[j.Path].Line:
		return Decision{}, 0
	case j.Item.Once:
		return move(v, j, path)
	case v.Paths[path].Metered:
		return duplicateMetered(v, j, path)
	case j.Item.To == Unknown:
		return compete(v, j, path)
	}
	cost := copyCost(v, j)
	if cost > 2*leastShare && j.Item.Split || !v.affords(path, j, cost) {
		return Decision{}, 0 // to share would be better, if that were of any use
	}
	return d, doubt*v.firstOf(j.Item.id) - reckon(v, path).ends(cost)
}

// duplicateMetered is duplicate for a path whose bytes cost money: only what is predicted
// to be the first by a margin.
func duplicateMetered(v *View, j Job, path int) (Decision, time.Duration) {
	cost := copyCost(v, j)
	if cost > 2*leastShare && j.Item.Split || !v.affords(path, j, cost) {
		return Decision{}, 0
	}
	if !j.Last.IsZero() && !v.measured(j) {
		return Decision{}, 0
	}
	mine := reckon(v, path)
	if v.Paths[path].Rate == 0 { // that others are slow may be why a copy is wanted
		mine.rate = max(mine.rate, usualRate)
	}
	gain := v.firstOf(j.Item.id) - time.Duration(margin*float64(mine.ends(cost)))
	if j.Last.IsZero() {
		gain = min(gain, v.Now.Sub(j.Began)-max(patience, 4*mine.delay))
		return Decision{Action: Copy, Job: j.ID, Reason: NoAnswer}, gain
	}
	return Decision{Action: Copy, Job: j.ID, Reason: EndsSooner}, gain
}

// copyCost is how much a copy of a job would bring.
func copyCost(v *View, j Job) unit.Bytes {
	if j.Item.Split {
		return j.Left()
	}
	return v.about(j)
}

// about is the size of a job's item. Where nobody knows it, as much is taken to come as
// has come, or what is usual.
func (v *View) about(j Job) unit.Bytes {
	if j.Item.To != Unknown {
		return j.Item.Size()
	}
	size := v.Usual
	for _, other := range v.Running {
		if other.Item.id == j.Item.id {
			size = max(size, 2*other.Got)
		}
	}
	return size
}

// ends predicts when a job has its item.
func (v *View) ends(j Job) time.Duration { return ongoing(v, j).ends(max(0, v.about(j)-j.Got)) }

// firstOf predicts when the first of those that bring an item has it.
func (v *View) firstOf(item int) time.Duration {
	first := far
	for _, j := range v.Running {
		if j.Item.id == item {
			first = min(first, v.ends(j))
		}
	}
	return first
}

// compete decides whether path starts a second download of an item of unknown size. It
// does unless the path that has the item is far faster: whatever the size, the first whole
// copy wins. Until an answer has come, the server may still turn out to support ranges.
func compete(v *View, j Job, path int) (Decision, time.Duration) {
	mine, took, wait := reckon(v, path), v.Now.Sub(j.Began), patience
	if its := v.Paths[j.Path]; its.Metered && its.Rate == 0 && v.Paths[path].Rate > 0 {
		wait = 0 // nothing says that it will come soon, and this path is free
	}
	if j.Last.IsZero() && took <= max(wait, 4*mine.delay) || !v.affords(path, j, max(j.Got, v.Largest)) {
		return Decision{}, 0
	}
	for _, other := range v.Running {
		if other.Item.id == j.Item.id && !other.Last.IsZero() && ongoing(v, other).rate > doubt*mine.rate {
			return Decision{}, 0
		}
	}
	if j.Last.IsZero() {
		return Decision{Action: Copy, Job: j.ID, Reason: NoAnswer}, took
	}
	return Decision{Action: Copy, Job: j.ID, Reason: NoSize}, took
}

// FindLoser implements pruner. Only jobs are compared whose rates are known for a while.
func (auto) FindLoser(v *View) (JobID, bool) {
	for _, j := range v.Running {
		if v.Copies(j) < 2 || !v.measured(j) || v.isHome(j.Path) && v.Whole {
			continue
		}
		most := float64(hopeless)
		if v.Paths[j.Path].Metered {
			most = margin
		}
		mine, wait := v.ends(j), v.Paths[j.Path].Latency
		for _, other := range v.Running {
			if other.ID != j.ID && other.Item.id == j.Item.id && v.measured(other) && float64(mine) > most*float64(max(v.ends(other), wait)) {
				return j.ID, true
			}
		}
	}
	return 0, false
}

// measured reports whether a job has run for long enough to predict its end.
func (v *View) measured(j Job) bool {
	p := v.Paths[j.Path]
	return !j.Last.IsZero() && p.Rate > 0 && v.Now.Sub(j.Began) > p.Latency+patience
}
