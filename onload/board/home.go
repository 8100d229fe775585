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
	// leastSilence is the shortest time without a byte that says something: progress is
	// reported each tenth of a second.
	leastSilence = 150 * time.Millisecond
	// partRTTs is how many round trips' time the home line needs at least for a part.
	partRTTs = 8
)

// SetHome names the path of the home line. There is none until then. It is to be called after
// SetLanes.
func (b *Board) SetHome(path int) { b.home = path * b.lanes }

// atHome reports whether a lane is the home line's.
func (b *Board) atHome(lane int) bool { return b.home >= 0 && lane/b.lanes == b.home/b.lanes }

// SetWanted notes whether somebody waits for an object now.
func (b *Board) SetWanted(object int, wanted bool) {
	if wanted {
		b.wanted[object] = true
	} else {
		delete(b.wanted, object)
	}
}

// preempt has the home line drop what it does, if the scheduler finds something more urgent.
func (b *Board) preempt(now time.Time) {
	p, ok := b.sched.(interface {
		Preempt(v *View) (Decision, bool)
	})
	if !ok || b.home < 0 || len(b.wanted) == 0 && !b.whole || len(b.orders) > 0 || !b.paths[b.home].up || b.paths[b.home].job == nil {
		return
	}
	b.look(b.home, now)
	if d, ok := p.Preempt(&b.view); ok {
		j := b.paths[b.home].job
		b.Fail(j.ID, now)
		b.lose(j)
		b.orders = append(b.orders, Order{Cancel, *j, d.Reason})
		b.apply(d, b.home, now)
	}
}

// endCopy ends one of two jobs that bring the same item, which turns out to have parts; other
// has brought nothing. The home line goes on.
func (b *Board) endCopy(j, other *Job) {
	if b.atHome(other.Path) {
		j, other = other, j
	}
	b.cancel(other, NothingLeft)
	j.Copy = false
}

// noteSilence takes in that a job is cancelled before it has brought a byte.
func (b *Board) noteSilence(j *Job) {
	if j.Got == 0 {
		p := &b.paths[j.Path]
		p.silence = max(p.silence, b.view.Now.Sub(j.Began))
	}
}

// helps reports whether a path is another one than the home line.
func (v *View) helps(path int) bool { return v.Home >= 0 && !v.isHome(path) }

// isHome reports whether a path is a connection of the home line.
func (v *View) isHome(path int) bool {
	return v.Home >= 0 && v.Paths[path].Line == v.Paths[v.Home].Line
}

// late is the time after which an answer, or the next bytes, of a path are late: a round trip
// and a half.
func (v *View) late(path int) time.Duration {
	rtt := v.Paths[path].Latency
	if rtt == 0 {
		rtt = v.Paths[v.Home].Latency
	}
	return max(rtt+rtt/2, leastSilence)
}

// leastShareOf is the least that a path may take of the end of a job; far more than any has
// if it may not. A path that was silent does not leave that to others. And what the home line
// may have to bring in its place comes in few parts, since each costs a round trip.
func (v *View) leastShareOf(path int) unit.Bytes {
	switch {
	case !v.helps(path):
		return leastShare
	case v.Paths[path].Silence > 0:
		return math.MaxInt64
	}
	home := v.Paths[v.Home]
	return max(leastShare, home.Rate.Bytes(partRTTs*home.Latency))
}

// shareCost is what it costs the path of a job that another one takes the end: the home line
// needs a new connection, whose window must grow.
func (v *View) shareCost(j Job) time.Duration {
	if !v.isHome(j.Path) {
		return 0
	}
	return 3 * v.Paths[v.Home].Latency
}

// surely returns the least rate of a job, from the recent rate of its path.
func (v *View) surely(j Job) pace {
	p := v.Paths[j.Path]
	silent := v.Now.Sub(j.Last)
	switch waited := v.Now.Sub(j.Began); {
	case j.Last.IsZero() && waited > v.late(j.Path):
		return pace{}
	case j.Last.IsZero():
		return pace{max(0, p.Latency-waited), rateOf(v, p)}
	case silent > v.late(j.Path):
		return pace{}
	case p.Rate == 0:
		return ongoing(v, j)
	}
	rate := float64(p.Rate) * math.Exp(silent.Seconds()/memory.Seconds()) // that with the last bytes
	return pace{rate: min(rate, float64(p.Recent)) / 8}
}

// takeLate finds the oldest item that another path has under way, and is late with, before
// any that waits.
func (v *View) takeLate() (Decision, bool) {
	for _, j := range v.Running {
		if len(v.Waiting) > 0 && older(j.Item, v.Waiting[0]) > 0 {
			break
		}
		if d, ok := v.takeOver(j, v.Paths[v.Home].Latency); ok {
			return d, true
		}
	}
	return Decision{}, false
}

// takeOver is to have the home line bring what is left of a job, or as much of it that both
// end together, if that path is late by over a round trip and a half. Delay is what the home
// line needs for an answer.
func (v *View) takeOver(j Job, delay time.Duration) (Decision, bool) {
	if v.isHome(j.Path) || j.Item.Once || v.onHome(j) {
		return Decision{}, false
	}
	home, its := reckon(v, v.Home), v.surely(j)
	home.delay = delay
	rtt := v.Paths[v.Home].Latency
	if !j.Item.Split || j.Item.To == Unknown {
		ends := its.ends(max(0, v.size(j.Item)-j.Got))
		switch mine := home.ends(v.size(j.Item)); {
		case ends == far:
			return Decision{Action: Copy, Job: j.ID, Reason: HomeSooner}, true
		case v.size(j.Item) == 0 || ends <= mine+rtt+rtt/2:
			return Decision{}, false
		case ends > doubt*mine:
			return Decision{Action: Move, Job: j.ID, Reason: HomeSooner}, true
		}
		return Decision{Action: Copy, Job: j.ID, Reason: HomeSooner}, true
	}
	left := j.Left()
	all := its.ends(left)
	d := Decision{Action: Share, Job: j.ID, Size: left, Reason: HomeSooner}
	if v.Copies(j) > 1 {
		d.Action = Copy
		return d, all > home.ends(left)+rtt+rtt/2
	}
	if all == far {
		return d, left > 0
	}
	lead := (all - home.delay).Seconds()
	if lead <= 0 {
		return Decision{}, false
	}
	if n := unit.Bytes(lead / (1/home.rate + 1/its.rate)); left-n >= leastShare {
		d.Size = n
	}
	return d, all-max(its.ends(left-d.Size), home.ends(d.Size)) > rtt+rtt/2
}

// onHome reports whether the home line brings the item of a job too.
func (v *View) onHome(j Job) bool {
	for _, other := range v.Running {
		if v.isHome(other.Path) && other.Item.id == j.Item.id {
			return true
		}
	}
	return false
}

// Preempt decides whether the home line, which is busy, drops what it does for an item that
// somebody waits for.
func (auto) Preempt(v *View) (Decision, bool) {
	var mine Job
	for _, j := range v.Running {
		if j.Path == v.Home {
			mine = j
		}
	}
	rtt := v.Paths[v.Home].Latency
	rest := v.left(mine)
	if d, ok := v.leadEnds(mine); ok {
		return d, rest > 2*rtt
	}
	if v.wanted[mine.Item.Object] || mine.Item.Once || rest <= 2*rtt {
		return Decision{}, false
	}
	if done := ongoing(v, mine); !mine.Item.Split && done.ends(mine.Got) >= rest {
		return Decision{}, false // what it has would be lost
	}
	for i, item := range v.Waiting {
		if v.wanted[item.Object] && older(item, mine.Item) < 0 {
			return Decision{Action: Take, Item: i, Reason: HomeWanted}, true
		}
	}
	for _, j := range v.Running {
		if v.wanted[j.Item.Object] && older(j.Item, mine.Item) < 0 {
			if d, ok := v.takeOver(j, 2*rtt); ok { // on a new connection
				d.Reason = HomeWanted
				return d, true
			}
		}
	}
	return Decision{}, false
}
