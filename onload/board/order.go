// SPDX-License-Identifier: Apache-2.0

package board

import (
	"time"

	"mpbond/base/unit"
)

// planInOrder assigns the waiting items in their order, each to the path that would finish it
// first, and returns the index of the first one of this path. Later items are of no use before all
// older ones are there; so a slow path starts an item that it will finish about when it is wanted.
// It returns -1 if this path should wait.
func planInOrder(v *View, path int) (item int) {
	if v.Waiting[0].To == Unknown && v.MeanSize == 0 {
		return 0 // nothing is known of sizes yet
	}
	ready, estimates := v.findReadyTimes(path)
	for i, item := range v.Waiting {
		first, at := v.findSoonestPath(ready, estimates, item, path)
		if first == path {
			return i
		}
		ready[first] = at
	}
	if v.isHelperPath(path) && v.Unsplittable {
		return -1 // the home line finishes each earlier, and could not use partial items
	}
	return len(v.Waiting) - 1 // others can take it over
}

// findReadyTimes returns when each path is ready with its current job, and what it would do next,
// as seen by path: jobs of extra paths are not counted.
func (v *View) findReadyTimes(path int) (ready []time.Duration, estimates []deliveryEstimate) {
	ready, estimates = make([]time.Duration, len(v.Paths)), make([]deliveryEstimate, len(v.Paths))
	for i, p := range v.Paths {
		// jobs that path may carry are set below
		if estimates[i] = estimateDelivery(v, i); !p.Up || p.Busy || p.IsExtra && i != path {
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

// findSoonestPath returns the path that would finish an item first, after its earlier items, and
// when. Without estimates it returns the asking path.
func (v *View) findSoonestPath(
	ready []time.Duration,
	estimates []deliveryEstimate,
	i Item,
	path int,
) (first int, at time.Duration) {
	first, at = path, never
	for k := range estimates {
		if end := ready[k] + v.itemTransferTime(estimates, i, k); end < at {
			first, at = k, end
		}
	}
	return first, at
}

// itemTransferTime returns how long a path would need for an item, or never if it is excluded.
func (v *View) itemTransferTime(estimates []deliveryEstimate, i Item, path int) time.Duration {
	if v.excluded[[2]int{v.Paths[path].Device, i.Object}] {
		return never
	}
	return estimates[path].transferTime(v.sizeOrMean(i))
}

// sizeOrMean returns the size of an item, or the mean size if it is unknown.
func (v *View) sizeOrMean(i Item) unit.Bytes {
	if i.To == Unknown {
		return max(0, v.MeanSize-i.From)
	}
	return i.Size()
}

// timeLeftOrMean returns the time until a job is complete, assuming the mean size if the size is
// unknown.
func (v *View) timeLeftOrMean(j Job) time.Duration {
	if j.Item.To == Unknown {
		return estimateJob(v, j).transferTime(max(0, v.MeanSize-j.Transferred))
	}
	return estimateTimeLeft(v, j)
}

// planHelpOlder lets path take the end of an older item that would be ready after the next one, and
// so would delay all later ones.
func planHelpOlder(v *View, path int, next Item) (Decision, bool) {
	end := estimateDelivery(v, path).transferTime(v.sizeOrMean(next))
	for _, j := range v.Running {
		if compareOrder(j.Item, next) > 0 {
			break
		}
		if d, gain := planJobSplit(v, j, path); gain > olderGainFactor*v.Paths[path].Latency &&
			estimateTimeLeft(v, j) > end+end/2 {
			d.Reason = SplitsOlder
			return d, true
		}
	}
	return Decision{}, false
}
