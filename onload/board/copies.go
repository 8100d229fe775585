package board

import (
	"time"

	"mpbond/base/unit"
)

// Tuning of copies.
const (
	// meteredMargin is how many times as long a copy over a metered path may take, by prediction,
	// and still be the first.
	meteredMargin = 1.5
	// hopelessFactor is how many times as long as another one a path may need for the same item
	// before its job is ended; a metered path ends at margin.
	hopelessFactor = 4
	// defaultMeteredRate is assumed of a metered path that nothing is known of, in bytes a second: 4
	// Mbit/s, that of a phone with a poor signal.
	defaultMeteredRate = 512 << 10
)

// canAffordCopy reports whether a copy over a path may waste so much: in all, an item for each
// path but one, since something was added the last time. A free path may always bring what
// only metered ones are bringing.
func (v *View) canAffordCopy(path int, j Job, cost unit.Bytes) bool {
	if v.WastedByCopies+cost <= unit.Bytes(v.countDevices()-1)*v.LargestSize {
		return true
	}
	for _, other := range v.Running {
		if other.Item.piece == j.Item.piece && !v.Paths[other.Path].Metered {
			return false
		}
	}
	return !v.Paths[path].Metered
}

// planCopy is to fetch a job's rest as well, and how much sooner that would be.
func planCopy(v *View, j Job, path int) (Decision, time.Duration) {
	d := Decision{Action: Copy, Job: j.ID, Reason: EndsSooner}
	switch {
	case v.Paths[path].Device == v.Paths[j.Path].Device:
		return Decision{}, 0
	case j.Item.NoCopies:
		return planMove(v, j, path)
	case v.Paths[path].Metered:
		return planMeteredCopy(v, j, path)
	case j.Item.To == Unknown:
		return planUnsizedCopy(v, j, path)
	}
	cost := copyCost(v, j)
	if cost > 2*minSplitSize && j.Item.Splittable || !v.canAffordCopy(path, j, cost) {
		return Decision{}, 0 // to share would be better, if that were of any use
	}
	return d, estimateErrorFactor*v.estimateItemEnd(j.Item.piece) - estimateDelivery(v, path).transferTime(cost)
}

// planMeteredCopy is duplicate for a path whose bytes cost money: only what is predicted
// to be the first by a margin.
func planMeteredCopy(v *View, j Job, path int) (Decision, time.Duration) {
	cost := copyCost(v, j)
	if cost > 2*minSplitSize && j.Item.Splittable || !v.canAffordCopy(path, j, cost) {
		return Decision{}, 0
	}
	if !j.LastProgress.IsZero() && !v.isMeasured(j) {
		return Decision{}, 0
	}
	mine := estimateDelivery(v, path)
	if v.Paths[path].Rate == 0 { // that others are slow may be why a copy is wanted
		mine.rate = max(mine.rate, defaultMeteredRate)
	}
	gain := v.estimateItemEnd(j.Item.piece) - time.Duration(meteredMargin*float64(mine.transferTime(cost)))
	if j.LastProgress.IsZero() {
		gain = min(gain, v.Now.Sub(j.StartTime)-max(answerTimeout, 4*mine.delay))
		return Decision{Action: Copy, Job: j.ID, Reason: NoAnswer}, gain
	}
	return Decision{Action: Copy, Job: j.ID, Reason: EndsSooner}, gain
}

// copyCost is how much a copy of a job would bring.
func copyCost(v *View, j Job) unit.Bytes {
	if j.Item.Splittable {
		return j.Remaining()
	}
	return v.estimateJobSize(j)
}

// estimateJobSize is the size of a job's item. Where nobody knows it, as much is taken to come as
// has come, or what is usual.
func (v *View) estimateJobSize(j Job) unit.Bytes {
	if j.Item.To != Unknown {
		return j.Item.Size()
	}
	size := v.MeanSize
	for _, other := range v.Running {
		if other.Item.piece == j.Item.piece {
			size = max(size, 2*other.Transferred)
		}
	}
	return size
}

// estimateJobEnd predicts when a job has its item.
func (v *View) estimateJobEnd(j Job) time.Duration {
	return estimateJob(v, j).transferTime(max(0, v.estimateJobSize(j)-j.Transferred))
}

// estimateItemEnd predicts when the first of those that bring an item has it.
func (v *View) estimateItemEnd(item int) time.Duration {
	first := never
	for _, j := range v.Running {
		if j.Item.piece == item {
			first = min(first, v.estimateJobEnd(j))
		}
	}
	return first
}

// planUnsizedCopy decides whether path starts a second download of an item of unknown size. It
// does unless the path that has the item is far faster: whatever the size, the first whole
// copy wins. Until an answer has come, the server may still turn out to support ranges.
func planUnsizedCopy(v *View, j Job, path int) (Decision, time.Duration) {
	mine, took, wait := estimateDelivery(v, path), v.Now.Sub(j.StartTime), answerTimeout
	if its := v.Paths[j.Path]; its.Metered && its.Rate == 0 && v.Paths[path].Rate > 0 {
		wait = 0 // nothing says that it will come soon, and this path is free
	}
	if j.LastProgress.IsZero() && took <= max(wait, 4*mine.delay) || !v.canAffordCopy(path, j, max(j.Transferred, v.LargestSize)) {
		return Decision{}, 0
	}
	for _, other := range v.Running {
		if other.Item.piece == j.Item.piece && !other.LastProgress.IsZero() && estimateJob(v, other).rate > estimateErrorFactor*mine.rate {
			return Decision{}, 0
		}
	}
	if j.LastProgress.IsZero() {
		return Decision{Action: Copy, Job: j.ID, Reason: NoAnswer}, took
	}
	return Decision{Action: Copy, Job: j.ID, Reason: NoSize}, took
}

// FindLoser implements pruner. Only jobs are compared whose rates are known for a while.
func (autoScheduler) FindLoser(v *View) (JobID, bool) {
	for _, j := range v.Running {
		if v.CopyCount(j) < 2 || !v.isMeasured(j) || v.isHomePath(j.Path) && v.Unsplittable {
			continue
		}
		most := float64(hopelessFactor)
		if v.Paths[j.Path].Metered {
			most = meteredMargin
		}
		mine, wait := v.estimateJobEnd(j), v.Paths[j.Path].Latency
		for _, other := range v.Running {
			if other.ID != j.ID && other.Item.piece == j.Item.piece && v.isMeasured(other) && float64(mine) > most*float64(max(v.estimateJobEnd(other), wait)) {
				return j.ID, true
			}
		}
	}
	return 0, false
}

// isMeasured reports whether a job has run for long enough to predict its end.
func (v *View) isMeasured(j Job) bool {
	p := v.Paths[j.Path]
	return !j.LastProgress.IsZero() && p.Rate > 0 && v.Now.Sub(j.StartTime) > p.Latency+answerTimeout
}
