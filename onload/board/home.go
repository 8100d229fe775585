// SPDX-License-Identifier: Apache-2.0

package board

import (
	"math"
	"time"

	"mpbond/base/unit"
)

// The home line is the path that users compare with: it is there without helpers, and its bytes
// cost nothing. Whatever the other paths do, the wanted items should arrive about as early as over
// the home line alone. So the home line takes over an older item if another path is late with it,
// and it drops a later item for one that a reader waits for.

// Tuning.
const (
	// recentMemory is the time constant of Path.RecentRate: a few round trips.
	recentMemory = 300 * time.Millisecond
	// minSilence is the shortest time without a byte that counts as silence: progress is reported
	// each tenth of a second.
	minSilence = 150 * time.Millisecond
	// partRTTs is how many round trips of the home line a part should take at least.
	partRTTs = 8
)

// SetHome names the device of the home line. There is none until then. Call it after
// SetConcurrency.
func (b *Board) SetHome(device int) { b.homePath = device * b.concurrency }

// isOnHomeLine reports whether a path belongs to the home line.
func (b *Board) isOnHomeLine(path int) bool {
	return b.homePath >= 0 && path/b.concurrency == b.homePath/b.concurrency
}

// SetWanted sets whether a reader waits for an object now.
func (b *Board) SetWanted(object int, wanted bool) {
	if wanted {
		b.wanted[object] = true
	} else {
		delete(b.wanted, object)
	}
}

// preemptHome makes the home line drop its job if the scheduler finds something more urgent.
func (b *Board) preemptHome(now time.Time) {
	p, ok := b.scheduler.(interface {
		Preempt(v *View) (Decision, bool)
	})
	if !ok || b.homePath < 0 || len(b.wanted) == 0 && !b.unsplittable || len(b.orders) > 0 || !b.paths[b.homePath].up ||
		b.paths[b.homePath].job == nil {
		return
	}
	b.updateView(b.homePath, now)
	if d, ok := p.Preempt(&b.view); ok {
		j := b.paths[b.homePath].job
		b.Fail(j.ID, now)
		b.deductFromLead(j)
		b.orders = append(b.orders, Order{Cancel, *j, d.Reason})
		b.applyDecision(d, b.homePath, now)
	}
}

// cancelCopy cancels one of two jobs of an item that turns out to be splittable. other has no bytes
// yet. The home line continues.
func (b *Board) cancelCopy(j, other *Job) {
	if b.isOnHomeLine(other.Path) {
		j, other = other, j
	}
	b.cancelRunningJob(other, NothingLeft)
	j.IsCopy = false
}

// noteSilence records how long a cancelled job has waited without a byte.
func (b *Board) noteSilence(j *Job) {
	if j.Transferred == 0 {
		p := &b.paths[j.Path]
		p.silence = max(p.silence, b.view.Now.Sub(j.StartTime))
	}
}

// isHelperPath reports whether there is a home line and path does not belong to it.
func (v *View) isHelperPath(path int) bool { return v.HomePath >= 0 && !v.isHomePath(path) }

// isHomePath reports whether a path belongs to the home line.
func (v *View) isHomePath(path int) bool {
	return v.HomePath >= 0 && v.Paths[path].Device == v.Paths[v.HomePath].Device
}

// latenessLimit returns the time without a response or further bytes after which a path counts as
// late: one and a half round trips.
func (v *View) latenessLimit(path int) time.Duration {
	rtt := v.Paths[path].Latency
	if rtt == 0 {
		rtt = v.Paths[v.HomePath].Latency
	}
	return max(rtt+rtt/2, minSilence)
}

// minSplitFor returns the least that a path may take from the end of a job. It is unlimited, so
// that nothing is split, for a helper path that was silent. Since the home line may have to carry
// the part instead, parts of helper paths are large: each costs the home line a round trip.
func (v *View) minSplitFor(path int) unit.Bytes {
	switch {
	case !v.isHelperPath(path):
		return minSplitSize
	case v.Paths[path].Silence > 0:
		return math.MaxInt64
	}
	home := v.Paths[v.HomePath]
	return max(minSplitSize, home.Rate.Bytes(partRTTs*home.Latency))
}

// splitTimeCost returns what a split costs the path that loses the end. The home line then needs a
// new connection, whose window must grow. Other paths lose nothing.
func (v *View) splitTimeCost(j Job) time.Duration {
	if !v.isHomePath(j.Path) {
		return 0
	}
	return 3 * v.Paths[v.HomePath].Latency
}

// estimateWorstCase returns the lowest plausible rate of a job, based on the recent rate of its
// path.
func (v *View) estimateWorstCase(j Job) deliveryEstimate {
	p := v.Paths[j.Path]
	silent := v.Now.Sub(j.LastProgress)
	switch waited := v.Now.Sub(j.StartTime); {
	case j.LastProgress.IsZero() && waited > v.latenessLimit(j.Path):
		return deliveryEstimate{}
	case j.LastProgress.IsZero():
		return deliveryEstimate{max(0, p.Latency-waited), estimateRate(v, p)}
	case silent > v.latenessLimit(j.Path):
		return deliveryEstimate{}
	case p.Rate == 0:
		return estimateJob(v, j)
	}
	// the rate at the last bytes
	rate := float64(p.Rate) * math.Exp(silent.Seconds()/rateMemory.Seconds())
	return deliveryEstimate{rate: min(rate, float64(p.RecentRate)) / 8}
}

// takeOverLate returns a decision for the oldest item that another path is late with, if it is
// older than all waiting items.
func (v *View) takeOverLate() (Decision, bool) {
	for _, j := range v.Running {
		if len(v.Waiting) > 0 && compareOrder(j.Item, v.Waiting[0]) > 0 {
			break
		}
		if d, ok := v.planTakeOver(j, v.Paths[v.HomePath].Latency); ok {
			return d, true
		}
	}
	return Decision{}, false
}

// planTakeOver lets the home line carry the rest of a late job, or so much of it that both end
// together. The gain must exceed one and a half round trips. delay is the response latency of the
// home line.
func (v *View) planTakeOver(j Job, delay time.Duration) (Decision, bool) {
	if v.isHomePath(j.Path) || j.Item.NoCopies || v.homeLineCarries(j) {
		return Decision{}, false
	}
	home, current := estimateDelivery(v, v.HomePath), v.estimateWorstCase(j)
	home.delay = delay
	rtt := v.Paths[v.HomePath].Latency
	if !j.Item.Splittable || j.Item.To == Unknown {
		timeLeft := current.transferTime(max(0, v.sizeOrMean(j.Item)-j.Transferred))
		switch homeTime := home.transferTime(v.sizeOrMean(j.Item)); {
		case timeLeft == never:
			return Decision{Action: Copy, Job: j.ID, Reason: HomeSooner}, true
		case v.sizeOrMean(j.Item) == 0 || timeLeft <= homeTime+rtt+rtt/2:
			return Decision{}, false
		case timeLeft > estimateErrorFactor*homeTime:
			return Decision{Action: Move, Job: j.ID, Reason: HomeSooner}, true
		}
		return Decision{Action: Copy, Job: j.ID, Reason: HomeSooner}, true
	}
	remaining := j.Remaining()
	all := current.transferTime(remaining)
	d := Decision{Action: Split, Job: j.ID, Size: remaining, Reason: HomeSooner}
	if v.CopyCount(j) > 1 {
		d.Action = Copy
		return d, all > home.transferTime(remaining)+rtt+rtt/2
	}
	if all == never {
		return d, remaining > 0
	}
	lead := (all - home.delay).Seconds()
	if lead <= 0 {
		return Decision{}, false
	}
	if n := unit.Bytes(lead / (1/home.rate + 1/current.rate)); remaining-n >= minSplitSize {
		d.Size = n
	}
	return d, all-max(current.transferTime(remaining-d.Size), home.transferTime(d.Size)) > rtt+rtt/2
}

// homeLineCarries reports whether the home line carries the item of a job too.
func (v *View) homeLineCarries(j Job) bool {
	for _, other := range v.Running {
		if v.isHomePath(other.Path) && other.Item.piece == j.Item.piece {
			return true
		}
	}
	return false
}

// Preempt decides whether the busy home line drops its job for an item that a reader waits for.
func (autoScheduler) Preempt(v *View) (Decision, bool) {
	var homeJob Job
	for _, j := range v.Running {
		if j.Path == v.HomePath {
			homeJob = j
		}
	}
	rtt := v.Paths[v.HomePath].Latency
	rest := v.timeLeftOrMean(homeJob)
	if d, ok := v.dropForOlder(homeJob); ok {
		return d, rest > 2*rtt
	}
	if v.wanted[homeJob.Item.Object] || homeJob.Item.NoCopies || rest <= 2*rtt {
		return Decision{}, false
	}
	if done := estimateJob(v, homeJob); !homeJob.Item.Splittable && done.transferTime(homeJob.Transferred) >= rest {
		return Decision{}, false // its bytes would be lost
	}
	for i, item := range v.Waiting {
		if v.wanted[item.Object] && compareOrder(item, homeJob.Item) < 0 {
			return Decision{Action: Take, WaitingIndex: i, Reason: HomeWanted}, true
		}
	}
	for _, j := range v.Running {
		if v.wanted[j.Item.Object] && compareOrder(j.Item, homeJob.Item) < 0 {
			if d, ok := v.planTakeOver(j, 2*rtt); ok { // needs a new connection
				d.Reason = HomeWanted
				return d, true
			}
		}
	}
	return Decision{}, false
}
