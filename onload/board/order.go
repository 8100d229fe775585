package board

import (
	"time"

	"mpbond/base/unit"
)

// planInOrder plans what waits, in the order in which it is wanted, each item on the path that
// would have it soonest, and tells the first that falls to this one. What is there of a
// later item is of no use before all older ones are: so a slow path begins what it will
// have about when it is wanted. It is -1 if this path should wait.
func planInOrder(v *View, path int) (item int) {
	if v.Waiting[0].To == Unknown && v.MeanSize == 0 {
		return 0 // no item is like another one yet
	}
	ready, estimates := v.findReadyTimes(path)
	for i, item := range v.Waiting {
		first, at := v.findSoonest(ready, estimates, item, path)
		if first == path {
			return i
		}
		ready[first] = at
	}
	if v.isHelperPath(path) && v.Unsplittable {
		return -1 // the home line has each sooner, and could use nothing of this path's
	}
	return len(v.Waiting) - 1 // others can have it back
}

// findReadyTimes returns when each path is ready with what it was given, and what it would do next,
// as path sees it: what others begin in addition is not counted.
func (v *View) findReadyTimes(path int) (ready []time.Duration, estimates []deliveryEstimate) {
	ready, estimates = make([]time.Duration, len(v.Paths)), make([]deliveryEstimate, len(v.Paths))
	for i, p := range v.Paths {
		if estimates[i] = estimateDelivery(v, i); !p.Up || p.Busy || p.IsExtra && i != path { // with what is not shown to this path, if not below
			ready[i] = never
		}
	}
	for _, j := range v.Running {
		if j.Path == path || !v.Paths[j.Path].IsExtra {
			ready[j.Path] = v.timeLeftOrMean(j)
		}
	}
	return ready, estimates
}

// findSoonest is the path that would have an item first, after what each has, and when: the
// path that asks, if nobody can tell.
func (v *View) findSoonest(ready []time.Duration, estimates []deliveryEstimate, i Item, path int) (first int, at time.Duration) {
	first, at = path, never
	for k := range estimates {
		if end := ready[k] + v.transferTime(estimates, i, k); end < at {
			first, at = k, end
		}
	}
	return first, at
}

// transferTime is for how long a path would bring an item: for ever, if it may not have it.
func (v *View) transferTime(estimates []deliveryEstimate, i Item, path int) time.Duration {
	if v.excluded[[2]int{v.Paths[path].Device, i.Object}] {
		return never
	}
	return estimates[path].transferTime(v.sizeOrMean(i))
}

// sizeOrMean is that of an item, or what is usual.
func (v *View) sizeOrMean(i Item) unit.Bytes {
	if i.To == Unknown {
		return max(0, v.MeanSize-i.From)
	}
	return i.Size()
}

// timeLeftOrMean is when a job will be ready, if its item has the usual size where nobody told it.
func (v *View) timeLeftOrMean(j Job) time.Duration {
	if j.Item.To == Unknown {
		return estimateJob(v, j).transferTime(max(0, v.MeanSize-j.Transferred))
	}
	return estimateTimeLeft(v, j)
}

// planHelpOlder is to take the end of an older item that would be ready late beside the next
// one, and so keep all after it from being used.
func planHelpOlder(v *View, path int, next Item) (Decision, bool) {
	end := estimateDelivery(v, path).transferTime(v.sizeOrMean(next))
	for _, j := range v.Running {
		if compareOrder(j.Item, next) > 0 {
			break
		}
		if d, gain := planSplit(v, j, path); gain > olderGainFactor*v.Paths[path].Latency && estimateTimeLeft(v, j) > end+end/2 {
			d.Reason = SplitsOlder
			return d, true
		}
	}
	return Decision{}, false
}
