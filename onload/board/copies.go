// SPDX-License-Identifier: Apache-2.0

package board

import (
	"time"

	"mpbond/base/unit"
)

// Tuning of copies.
const (
	// meteredMargin is the factor by which a copy over a metered path must be predicted to be
	// faster.
	meteredMargin = 1.5
	// hopelessFactor is how many times as long as another path a path may need for the same item
	// before its job is cancelled. For a metered path meteredMargin applies.
	hopelessFactor = 4
	// defaultMeteredRate is assumed of an unmeasured metered path, in bytes per second: 4 Mbit/s,
	// that of a phone with a poor signal.
	defaultMeteredRate = 512 << 10
)

// canAffordCopy reports whether a copy over path may waste cost bytes. With n devices, copies may
// waste n-1 times the size of the largest item, counted since items were last added. Beyond that
// only an unmetered path may copy an item, and only one that no unmetered path carries.
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

// planJobCopy lets path carry the rest of a job too. It returns the decision and the time gained; 0
// means no.
func planJobCopy(v *View, j Job, path int) (Decision, time.Duration) {
	d := Decision{Action: Copy, Job: j.ID, Reason: EndsSooner}
	switch {
	case v.Paths[path].Device == v.Paths[j.Path].Device:
		return Decision{}, 0
	case j.Item.NoCopies:
		return planItemMove(v, j, path)
	case v.Paths[path].Metered:
		return planMeteredCopy(v, j, path)
	case j.Item.To == Unknown:
		return planUnsizedCopy(v, j, path)
	}
	cost := copyCostBytes(v, j)
	if cost > 2*minSplitSize && j.Item.Splittable || !v.canAffordCopy(path, j, cost) {
		return Decision{}, 0 // a split would be better, if anything helped
	}
	return d, estimateErrorFactor*v.estimatePieceEnd(j.Item.piece) - estimateDelivery(v, path).transferTime(cost)
}

// planMeteredCopy is planJobCopy for a metered path: the copy must be predicted to be first by a
// margin.
func planMeteredCopy(v *View, j Job, path int) (Decision, time.Duration) {
	cost := copyCostBytes(v, j)
	if cost > 2*minSplitSize && j.Item.Splittable || !v.canAffordCopy(path, j, cost) {
		return Decision{}, 0
	}
	if !j.LastProgress.IsZero() && !v.isMeasured(j) {
		return Decision{}, 0
	}
	own := estimateDelivery(v, path)
	if v.Paths[path].Rate == 0 { // slow other paths may be why a copy is wanted
		own.rate = max(own.rate, defaultMeteredRate)
	}
	gain := v.estimatePieceEnd(j.Item.piece) - time.Duration(meteredMargin*float64(own.transferTime(cost)))
	if j.LastProgress.IsZero() {
		gain = min(gain, v.Now.Sub(j.StartTime)-max(answerTimeout, 4*own.delay))
		return Decision{Action: Copy, Job: j.ID, Reason: NoAnswer}, gain
	}
	return Decision{Action: Copy, Job: j.ID, Reason: EndsSooner}, gain
}

// copyCostBytes returns how many bytes a copy of a job would carry.
func copyCostBytes(v *View, j Job) unit.Bytes {
	if j.Item.Splittable {
		return j.Remaining()
	}
	return v.estimateJobSize(j)
}

// estimateJobSize returns the size of a job's item. Of an unknown size it assumes twice what has
// come, and at least the mean.
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

// estimateJobEnd returns the time until a job is complete.
func (v *View) estimateJobEnd(j Job) time.Duration {
	return estimateJob(v, j).transferTime(max(0, v.estimateJobSize(j)-j.Transferred))
}

// estimatePieceEnd returns the time until the first job of a piece is complete.
func (v *View) estimatePieceEnd(piece int) time.Duration {
	first := never
	for _, j := range v.Running {
		if j.Item.piece == piece {
			first = min(first, v.estimateJobEnd(j))
		}
	}
	return first
}

// planUnsizedCopy decides whether path starts a second download of an item of unknown size. It does
// unless the current path is far faster: whatever the size, the first complete copy wins. Until a
// response has come, the server may still turn out to support ranges.
func planUnsizedCopy(v *View, j Job, path int) (Decision, time.Duration) {
	own, waited, minWait := estimateDelivery(v, path), v.Now.Sub(j.StartTime), answerTimeout
	if holder := v.Paths[j.Path]; holder.Metered && holder.Rate == 0 && v.Paths[path].Rate > 0 {
		minWait = 0 // nothing is known of the metered path, and this one is unmetered
	}
	if j.LastProgress.IsZero() && waited <= max(minWait, 4*own.delay) ||
		!v.canAffordCopy(path, j, max(j.Transferred, v.LargestSize)) {
		return Decision{}, 0
	}
	for _, other := range v.Running {
		if other.Item.piece == j.Item.piece && !other.LastProgress.IsZero() &&
			estimateJob(v, other).rate > estimateErrorFactor*own.rate {
			return Decision{}, 0
		}
	}
	if j.LastProgress.IsZero() {
		return Decision{Action: Copy, Job: j.ID, Reason: NoAnswer}, waited
	}
	return Decision{Action: Copy, Job: j.ID, Reason: NoSize}, waited
}

// FindLoser implements pruner. It compares only jobs with rates measured for a while.
func (autoScheduler) FindLoser(v *View) (JobID, bool) {
	for _, j := range v.Running {
		if v.CopyCount(j) < 2 || !v.isMeasured(j) || v.isHomePath(j.Path) && v.Unsplittable {
			continue
		}
		most := float64(hopelessFactor)
		if v.Paths[j.Path].Metered {
			most = meteredMargin
		}
		jobEnd, wait := v.estimateJobEnd(j), v.Paths[j.Path].Latency
		for _, other := range v.Running {
			if other.ID != j.ID && other.Item.piece == j.Item.piece && v.isMeasured(other) &&
				float64(jobEnd) > most*float64(max(v.estimateJobEnd(other), wait)) {
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
