package board

import (
	"time"

	"mpbond/base/unit"
)

// Tuning.
const (
	// leastShare is the least that is worth a request of its own. Less is fetched
	// twice, where that comes sooner.
	leastShare = 32 * unit.KB
	// patience is how long an item may go without an answer before another path asks
	// for it too, while nothing is known that would tell sooner.
	patience = time.Second
	// worthOld is how many answers' time an older item must come sooner to be helped
	// before the next one is begun: each request costs about one.
	worthOld = 20
	// doubt is how far a reckoning may be wrong for a copy to be tried all the same:
	// rates are those of the past, and the path would be idle.
	doubt = 2
)

// auto is ours: in order, and exact at the end. Each path begins what it would have sooner
// than any other, so that slow ones hold up nothing that is wanted before. Where ranges can
// be had, an idle path takes the end of what would be ready last, so much that both end
// together: nothing is fetched twice, and no path waits for another. The same makes an old
// item come sooner that would hold up those after it. Where they cannot, a copy is fetched
// if it is reckoned to come sooner, within what copies may waste.
type auto struct{}

func (auto) Name() string                             { return "auto" }
func (auto) Delivered(int, unit.Bytes, time.Duration) {}

func (auto) Pick(v *View, path int) Decision {
	if v.Paths[path].Extra {
		return overlap(v, path)
	}
	if path == v.Home {
		if d, ok := v.takeFirst(); ok {
			return d
		}
		if d, ok := v.takeLate(); ok {
			return d
		}
	}
	if len(v.Waiting) > 0 {
		if v.Waiting[0].Once {
			return inTime(v, path)
		}
		mine := inOrder(v, path)
		if mine < 0 {
			return waits(v, NoGain)
		}
		if d, ok := helpOlder(v, path, v.Waiting[mine]); ok {
			return d
		}
		return Decision{Action: Take, Item: mine, Reason: NextItem}
	}
	best, most := waits(v, NothingLeft), time.Duration(0)
	for _, j := range v.Running {
		best.Reason = max(best.Reason, NoGain)
		d, gain := share(v, j, path)
		if gain <= 0 {
			d, gain = duplicate(v, j, path)
		}
		if gain > most {
			best, most = d, gain
		}
	}
	return best
}

// pace is what a path is reckoned to do: nothing for a while, then bytes at a rate.
type pace struct {
	delay time.Duration
	rate  float64 // bytes a second
}

func (p pace) ends(n unit.Bytes) time.Duration {
	if n < 0 {
		return far
	}
	if p.rate <= 0 {
		return far
	}
	return min(far, p.delay+time.Duration(min(float64(n)/p.rate, far.Seconds())*float64(time.Second)))
}

// far stands for times that nobody can reckon.
const far = 1000 * time.Hour

// reckon says what a path would do if it began now. A rate that is not known is taken
// as the mean of the others, or as a little.
func reckon(v *View, path int) pace {
	p := v.Paths[path]
	delay := p.Latency
	if v.Home >= 0 {
		delay = max(delay, p.Silence)
	}
	return pace{delay, rateOf(v, p)}
}

func rateOf(v *View, p Path) float64 {
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

// ongoing says what a job will do. One that has no answer yet is taken to wait as long
// again as it has, if that is longer than usual.
func ongoing(v *View, j Job) pace {
	p := v.Paths[j.Path]
	if !j.Last.IsZero() {
		if p.Rate == 0 { // silent for long, or one byte
			return pace{rate: float64(max(1, j.Got)) / max(v.Now.Sub(j.Began).Seconds(), 1e-3)}
		}
		return pace{rate: float64(p.Rate) / 8}
	}
	waited := v.Now.Sub(j.Began)
	delay := p.Latency - waited
	if delay < 0 {
		delay = waited
	}
	return pace{delay, rateOf(v, p)}
}

// left is when a job will be ready.
func left(v *View, j Job) time.Duration { return ongoing(v, j).ends(j.Left()) }

// share is to take so much of a job's end that both are ready together, and how much
// sooner that is.
func share(v *View, j Job, path int) (Decision, time.Duration) {
	if !j.Item.Split || j.Left() <= 0 || v.Copies(j) > 1 || v.Paths[path].Line == v.Paths[j.Path].Line {
		return Decision{}, 0
	}
	mine, its := reckon(v, path), ongoing(v, j)
	all := its.ends(j.Left())
	if all <= mine.delay {
		return Decision{}, 0
	}
	lead := min(far.Seconds(), (all - mine.delay).Seconds())
	n := unit.Bytes(min(lead/(1/mine.rate+1/its.rate), float64(j.Left()-leastShare)))
	gain := all - its.ends(j.Left()-n)
	if n < v.leastShareOf(path) || gain < max(mine.delay/8, v.shareCost(j)) {
		return Decision{}, 0
	}
	return Decision{Action: Share, Job: j.ID, Size: n, Reason: LastEnd}, gain
}

// move is to begin anew what another path has under way and must give up: only what
// is reckoned to be ready in a fraction of the time, by rates that were measured. That
// of the other path is this item's own: those before may have been too small to tell.
func move(v *View, j Job, path int) (Decision, time.Duration) {
	ran := v.Now.Sub(j.Began)
	if v.Paths[path].Rate == 0 || ran < patience || !v.affords(path, j, j.Got) {
		return Decision{}, 0
	}
	its := min(left(v, j), pace{rate: float64(j.Got) / ran.Seconds()}.ends(j.Left()))
	gain := its - doubt*reckon(v, path).ends(j.Item.Size())
	if gain < patience {
		return Decision{}, 0
	}
	return Decision{Action: Move, Job: j.ID, Reason: EndsSooner}, gain
}
