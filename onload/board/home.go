package board

import (
	"math"
	"time"

	"mpbond/base/unit"
)

// A home line is the path that users compare with: it is there without helpers, and what it
// carries costs nothing. Whatever other paths do, the items that are wanted come about as
// soon as over the home line alone. So the home line does not pass by an older item that
// another path has under way, if that path is late with it; and it drops what is wanted later
// for an item that somebody waits for.

// Tuning.
const (
	// recentMemory is how far back Path.Recent looks: a few round trips.
	recentMemory = 300 * time.Millisecond
	// minSilence is the shortest time without a byte that says something: progress is
	// reported each tenth of a second.
	minSilence = 150 * time.Millisecond
	// partRTTs is how many round trips' time the home line needs at least for a part.
	partRTTs = 8
)

// SetHome names the path of the home line. There is none until then. It is to be called after
// SetConcurrency.
func (b *Board) SetHome(path int) { b.homePath = path * b.concurrency }

// isHomePath reports whether a lane is the home line's.
func (b *Board) isHomePath(lane int) bool {
	return b.homePath >= 0 && lane/b.concurrency == b.homePath/b.concurrency
}

// SetWanted notes whether somebody waits for an object now.
func (b *Board) SetWanted(object int, wanted bool) {
	if wanted {
		b.wanted[object] = true
	} else {
		delete(b.wanted, object)
	}
}

// preemptHome has the home line drop what it does, if the scheduler finds something more urgent.
func (b *Board) preemptHome(now time.Time) {
	p, ok := b.scheduler.(interface {
		Preempt(v *View) (Decision, bool)
	})
	if !ok || b.homePath < 0 || len(b.wanted) == 0 && !b.unsplittable || len(b.orders) > 0 || !b.paths[b.homePath].up || b.paths[b.homePath].job == nil {
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

// cancelCopy ends one of two jobs that bring the same item, which turns out to have parts; other
// has brought nothing. The home line goes on.
func (b *Board) cancelCopy(j, other *Job) {
	if b.isHomePath(other.Path) {
		j, other = other, j
	}
	b.cancelJob(other, NothingLeft)
	j.IsCopy = false
}

// noteSilence takes in that a job is cancelled before it has brought a byte.
func (b *Board) noteSilence(j *Job) {
	if j.Transferred == 0 {
		p := &b.paths[j.Path]
		p.silence = max(p.silence, b.view.Now.Sub(j.StartTime))
	}
}

// isHelperPath reports whether a path is another one than the home line.
func (v *View) isHelperPath(path int) bool { return v.HomePath >= 0 && !v.isHomePath(path) }

// isHomePath reports whether a path is a connection of the home line.
func (v *View) isHomePath(path int) bool {
	return v.HomePath >= 0 && v.Paths[path].Device == v.Paths[v.HomePath].Device
}

// latenessLimit is the time after which an answer, or the next bytes, of a path are late: a round trip
// and a half.
func (v *View) latenessLimit(path int) time.Duration {
	rtt := v.Paths[path].Latency
	if rtt == 0 {
		rtt = v.Paths[v.HomePath].Latency
	}
	return max(rtt+rtt/2, minSilence)
}

// minSplitFor is the least that a path may take of the end of a job; far more than any has
// if it may not. A path that was silent does not leave that to others. And what the home line
// may have to bring in its place comes in few parts, since each costs a round trip.
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

// splitCost is what it costs the path of a job that another one takes the end: the home line
// needs a new connection, whose window must grow.
func (v *View) splitCost(j Job) time.Duration {
	if !v.isHomePath(j.Path) {
		return 0
	}
	return 3 * v.Paths[v.HomePath].Latency
}

// estimateWorstCase returns the least rate of a job, from the recent rate of its path.
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
	rate := float64(p.Rate) * math.Exp(silent.Seconds()/rateMemory.Seconds()) // that with the last bytes
	return deliveryEstimate{rate: min(rate, float64(p.RecentRate)) / 8}
}

// takeOverLate finds the oldest item that another path has under way, and is late with, before
// any that waits.
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

// planTakeOver is to have the home line bring what is left of a job, or as much of it that both
// end together, if that path is late by over a round trip and a half. Delay is what the home
// line needs for an answer.
func (v *View) planTakeOver(j Job, delay time.Duration) (Decision, bool) {
	if v.isHomePath(j.Path) || j.Item.NoCopies || v.isOnHomePath(j) {
		return Decision{}, false
	}
	home, its := estimateDelivery(v, v.HomePath), v.estimateWorstCase(j)
	home.delay = delay
	rtt := v.Paths[v.HomePath].Latency
	if !j.Item.Splittable || j.Item.To == Unknown {
		ends := its.transferTime(max(0, v.sizeOrMean(j.Item)-j.Transferred))
		switch mine := home.transferTime(v.sizeOrMean(j.Item)); {
		case ends == never:
			return Decision{Action: Copy, Job: j.ID, Reason: HomeSooner}, true
		case v.sizeOrMean(j.Item) == 0 || ends <= mine+rtt+rtt/2:
			return Decision{}, false
		case ends > estimateErrorFactor*mine:
			return Decision{Action: Move, Job: j.ID, Reason: HomeSooner}, true
		}
		return Decision{Action: Copy, Job: j.ID, Reason: HomeSooner}, true
	}
	left := j.Remaining()
	all := its.transferTime(left)
	d := Decision{Action: Split, Job: j.ID, Size: left, Reason: HomeSooner}
	if v.CopyCount(j) > 1 {
		d.Action = Copy
		return d, all > home.transferTime(left)+rtt+rtt/2
	}
	if all == never {
		return d, left > 0
	}
	lead := (all - home.delay).Seconds()
	if lead <= 0 {
		return Decision{}, false
	}
	if n := unit.Bytes(lead / (1/home.rate + 1/its.rate)); left-n >= minSplitSize {
		d.Size = n
	}
	return d, all-max(its.transferTime(left-d.Size), home.transferTime(d.Size)) > rtt+rtt/2
}

// isOnHomePath reports whether the home line brings the item of a job too.
func (v *View) isOnHomePath(j Job) bool {
	for _, other := range v.Running {
		if v.isHomePath(other.Path) && other.Item.piece == j.Item.piece {
			return true
		}
	}
	return false
}

// Preempt decides whether the home line, which is busy, drops what it does for an item that
// somebody waits for.
func (autoScheduler) Preempt(v *View) (Decision, bool) {
	var mine Job
	for _, j := range v.Running {
		if j.Path == v.HomePath {
			mine = j
		}
	}
	rtt := v.Paths[v.HomePath].Latency
	rest := v.timeLeftOrMean(mine)
	if d, ok := v.dropForOlder(mine); ok {
		return d, rest > 2*rtt
	}
	if v.wanted[mine.Item.Object] || mine.Item.NoCopies || rest <= 2*rtt {
		return Decision{}, false
	}
	if done := estimateJob(v, mine); !mine.Item.Splittable && done.transferTime(mine.Transferred) >= rest {
		return Decision{}, false // what it has would be lost
	}
	for i, item := range v.Waiting {
		if v.wanted[item.Object] && compareOrder(item, mine.Item) < 0 {
			return Decision{Action: Take, Item: i, Reason: HomeWanted}, true
		}
	}
	for _, j := range v.Running {
		if v.wanted[j.Item.Object] && compareOrder(j.Item, mine.Item) < 0 {
			if d, ok := v.planTakeOver(j, 2*rtt); ok { // on a new connection
				d.Reason = HomeWanted
				return d, true
			}
		}
	}
	return Decision{}, false
}
