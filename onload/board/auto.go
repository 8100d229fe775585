// SPDX-License-Identifier: Apache-2.0

package board

import (
	"time"

	"mpbond/base/unit"
)

// Tuning.
const (
	// minSplitSize is the smallest part that is worth a request of its own. A smaller rest is
	// copied where that is faster.
	minSplitSize = 32 * unit.KB
	// answerTimeout is how long an item may wait for a response before another path requests it
	// too, unless an estimate justifies that earlier.
	answerTimeout = time.Second
	// olderGainFactor is how many response latencies must be gained to help an older item before
	// the next one is started: each request costs about one.
	olderGainFactor = 20
	// estimateErrorFactor is the error of an estimate up to which a copy is still tried: rates are
	// those of the past, and the path would be idle otherwise.
	estimateErrorFactor = 2
)

// autoScheduler is the default scheduler of mpbond. It serves items in order and balances the end
// exactly. A path starts an item only if it would finish it before any other path, so that a slow
// path never delays what is needed earlier. Where ranges work, an idle path takes the end of the
// item that would finish last, so much that both parts end together: no byte is fetched twice and
// no path waits. It helps an older item in the same way if that would delay later ones. Without
// ranges it starts a copy if the copy is estimated to finish earlier, within the limit of
// canAffordCopy.
type autoScheduler struct{}

// Name implements Scheduler.
func (autoScheduler) Name() string                                { return "auto" }
func (autoScheduler) NoteDelivery(int, unit.Bytes, time.Duration) {}

// Pick implements Scheduler.
func (autoScheduler) Pick(v *View, path int) Decision {
	if v.Paths[path].IsExtra {
		return planOverlap(v, path)
	}
	if path == v.HomePath {
		if d, ok := v.takeFirstMissing(); ok {
			return d
		}
		if d, ok := v.takeOverLate(); ok {
			return d
		}
	}
	if len(v.Waiting) > 0 {
		if v.Waiting[0].NoCopies {
			return planInTime(v, path)
		}
		index := planInOrder(v, path)
		if index < 0 {
			return waitDecision(v, NoGain)
		}
		if d, ok := planHelpOlder(v, path, v.Waiting[index]); ok {
			return d
		}
		return Decision{Action: Take, WaitingIndex: index, Reason: NextItem}
	}
	best, most := waitDecision(v, NothingLeft), time.Duration(0)
	for _, j := range v.Running {
		best.Reason = max(best.Reason, NoGain)
		d, gain := planJobSplit(v, j, path)
		if gain <= 0 {
			d, gain = planJobCopy(v, j, path)
		}
		if gain > most {
			best, most = d, gain
		}
	}
	return best
}

// deliveryEstimate is the estimated behaviour of a path: a delay, then bytes at a constant rate.
type deliveryEstimate struct {
	delay time.Duration
	rate  float64 // bytes per second
}

// itemTransferTime returns the time until n bytes are there, or never if n or the rate is unknown.
func (p deliveryEstimate) transferTime(n unit.Bytes) time.Duration {
	if n < 0 {
		return never
	}
	if p.rate <= 0 {
		return never
	}
	return min(never, p.delay+time.Duration(min(float64(n)/p.rate, never.Seconds())*float64(time.Second)))
}

// never stands for times that cannot be estimated.
const never = 1000 * time.Hour

// estimateDelivery returns what a path would do if it started a request now.
func estimateDelivery(v *View, path int) deliveryEstimate {
	p := v.Paths[path]
	delay := p.Latency
	if v.HomePath >= 0 {
		delay = max(delay, p.Silence)
	}
	return deliveryEstimate{delay, estimateRate(v, p)}
}

// estimateRate returns the rate of a path in bytes per second. Without a measurement it returns the
// mean of the other paths, or a small default.
func estimateRate(v *View, p Path) float64 {
	if p.Rate > 0 {
		return float64(p.Rate) / 8
	}
	sum, n := 0.0, 0
	for _, other := range v.Paths {
		if other.Rate > 0 {
			sum, n = sum+float64(other.Rate)/8, n+1
		}
	}
	if n == 0 {
		return 64 << 10 // any value: all paths are equal
	}
	return sum / float64(n)
}

// estimateJob returns what a job will do. A job without a response that has waited longer than
// usual is assumed to wait the same time again.
func estimateJob(v *View, j Job) deliveryEstimate {
	p := v.Paths[j.Path]
	if !j.LastProgress.IsZero() {
		if p.Rate == 0 { // silent for a long time, or a single byte
			return deliveryEstimate{rate: float64(max(1, j.Transferred)) / max(v.Now.Sub(j.StartTime).Seconds(), 1e-3)}
		}
		return deliveryEstimate{rate: float64(p.Rate) / 8}
	}
	waited := v.Now.Sub(j.StartTime)
	delay := p.Latency - waited
	if delay < 0 {
		delay = waited
	}
	return deliveryEstimate{delay, estimateRate(v, p)}
}

// estimateTimeLeft returns the time until a job is complete.
func estimateTimeLeft(v *View, j Job) time.Duration {
	return estimateJob(v, j).transferTime(j.Remaining())
}

// planJobSplit lets path take the end of a job, so much that both finish together. It returns the
// decision and the time gained; 0 means no.
func planJobSplit(v *View, j Job, path int) (Decision, time.Duration) {
	if !j.Item.Splittable || j.Remaining() <= 0 || v.CopyCount(j) > 1 ||
		v.Paths[path].Device == v.Paths[j.Path].Device {
		return Decision{}, 0
	}
	own, current := estimateDelivery(v, path), estimateJob(v, j)
	all := current.transferTime(j.Remaining())
	if all <= own.delay {
		return Decision{}, 0
	}
	lead := min(never.Seconds(), (all - own.delay).Seconds())
	n := unit.Bytes(min(lead/(1/own.rate+1/current.rate), float64(j.Remaining()-minSplitSize)))
	gain := all - current.transferTime(j.Remaining()-n)
	if n < v.minSplitFor(path) || gain < max(own.delay/8, v.splitTimeCost(j)) {
		return Decision{}, 0
	}
	return Decision{Action: Split, Job: j.ID, Size: n, Reason: SplitsLast}, gain
}

// planItemMove lets path restart an item from its beginning that another path must give up. It does
// so only if that takes a fraction of the time by measured rates. The rate of the other path is
// measured on this item, since earlier ones may have been too small.
func planItemMove(v *View, j Job, path int) (Decision, time.Duration) {
	ran := v.Now.Sub(j.StartTime)
	if v.Paths[path].Rate == 0 || ran < answerTimeout || !v.canAffordCopy(path, j, j.Transferred) {
		return Decision{}, 0
	}
	current := min(estimateTimeLeft(v, j),
		deliveryEstimate{rate: float64(j.Transferred) / ran.Seconds()}.transferTime(j.Remaining()))
	gain := current - estimateErrorFactor*estimateDelivery(v, path).transferTime(j.Item.Size())
	if gain < answerTimeout {
		return Decision{}, 0
	}
	return Decision{Action: Move, Job: j.ID, Reason: EndsSooner}, gain
}
