package board

import (
	"time"

	"mpbond/base/unit"
)

// Tuning.
const (
	// minSplitSize is the least that is worth a request of its own. Less is fetched
	// twice, where that comes sooner.
	minSplitSize = 32 * unit.KB
	// answerTimeout is how long an item may go without an answer before another path asks
	// for it too, while nothing is known that would tell sooner.
	answerTimeout = time.Second
	// olderGainFactor is how many answers' time an older item must come sooner to be helped
	// before the next one is begun: each request costs about one.
	olderGainFactor = 20
	// estimateErrorFactor is how far a reckoning may be wrong for a copy to be tried all the same:
	// rates are those of the past, and the path would be idle.
	estimateErrorFactor = 2
)

// autoScheduler is ours: in order, and exact at the end. Each path begins what it would have sooner
// than any other, so that slow ones hold up nothing that is wanted before. Where ranges can
// be had, an idle path takes the end of what would be ready last, so much that both end
// together: nothing is fetched twice, and no path waits for another. The same makes an old
// item come sooner that would hold up those after it. Where they cannot, a copy is fetched
// if it is reckoned to come sooner, within what copies may waste.
type autoScheduler struct{}

func (autoScheduler) Name() string                                { return "auto" }
func (autoScheduler) NoteDelivery(int, unit.Bytes, time.Duration) {}

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
		mine := planInOrder(v, path)
		if mine < 0 {
			return waitDecision(v, NoGain)
		}
		if d, ok := planHelpOlder(v, path, v.Waiting[mine]); ok {
			return d
		}
		return Decision{Action: Take, Item: mine, Reason: NextItem}
	}
	best, most := waitDecision(v, NothingLeft), time.Duration(0)
	for _, j := range v.Running {
		best.Reason = max(best.Reason, NoGain)
		d, gain := planSplit(v, j, path)
		if gain <= 0 {
			d, gain = planCopy(v, j, path)
		}
		if gain > most {
			best, most = d, gain
		}
	}
	return best
}

// deliveryEstimate is what a path is reckoned to do: nothing for a while, then bytes at a rate.
type deliveryEstimate struct {
	delay time.Duration
	rate  float64 // bytes a second
}

func (p deliveryEstimate) transferTime(n unit.Bytes) time.Duration {
	if n < 0 {
		return never
	}
	if p.rate <= 0 {
		return never
	}
	return min(never, p.delay+time.Duration(min(float64(n)/p.rate, never.Seconds())*float64(time.Second)))
}

// never stands for times that nobody can reckon.
const never = 1000 * time.Hour

// estimateDelivery says what a path would do if it began now. A rate that is not known is taken
// as the mean of the others, or as a little.
func estimateDelivery(v *View, path int) deliveryEstimate {
	p := v.Paths[path]
	delay := p.Latency
	if v.HomePath >= 0 {
		delay = max(delay, p.Silence)
	}
	return deliveryEstimate{delay, estimateRate(v, p)}
}

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
		return 64 << 10 // any: they are all the same
	}
	return sum / float64(n)
}

// estimateJob says what a job will do. One that has no answer yet is taken to wait as long
// again as it has, if that is longer than usual.
func estimateJob(v *View, j Job) deliveryEstimate {
	p := v.Paths[j.Path]
	if !j.LastProgress.IsZero() {
		if p.Rate == 0 { // silent for long, or one byte
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

// estimateTimeLeft is when a job will be ready.
func estimateTimeLeft(v *View, j Job) time.Duration {
	return estimateJob(v, j).transferTime(j.Remaining())
}

// planSplit is to take so much of a job's end that both are ready together, and how much
// sooner that is.
func planSplit(v *View, j Job, path int) (Decision, time.Duration) {
	if !j.Item.Splittable || j.Remaining() <= 0 || v.CopyCount(j) > 1 || v.Paths[path].Device == v.Paths[j.Path].Device {
		return Decision{}, 0
	}
	mine, its := estimateDelivery(v, path), estimateJob(v, j)
	all := its.transferTime(j.Remaining())
	if all <= mine.delay {
		return Decision{}, 0
	}
	lead := min(never.Seconds(), (all - mine.delay).Seconds())
	n := unit.Bytes(min(lead/(1/mine.rate+1/its.rate), float64(j.Remaining()-minSplitSize)))
	gain := all - its.transferTime(j.Remaining()-n)
	if n < v.minSplitFor(path) || gain < max(mine.delay/8, v.splitCost(j)) {
		return Decision{}, 0
	}
	return Decision{Action: Split, Job: j.ID, Size: n, Reason: SplitsLast}, gain
}

// planMove is to begin anew what another path has under way and must give up: only what
// is reckoned to be ready in a fraction of the time, by rates that were measured. That
// of the other path is this item's own: those before may have been too small to tell.
func planMove(v *View, j Job, path int) (Decision, time.Duration) {
	ran := v.Now.Sub(j.StartTime)
	if v.Paths[path].Rate == 0 || ran < answerTimeout || !v.canAffordCopy(path, j, j.Transferred) {
		return Decision{}, 0
	}
	its := min(estimateTimeLeft(v, j), deliveryEstimate{rate: float64(j.Transferred) / ran.Seconds()}.transferTime(j.Remaining()))
	gain := its - estimateErrorFactor*estimateDelivery(v, path).transferTime(j.Item.Size())
	if gain < answerTimeout {
		return Decision{}, 0
	}
	return Decision{Action: Move, Job: j.ID, Reason: EndsSooner}, gain
}
