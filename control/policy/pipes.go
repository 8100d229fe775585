package policy

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"mpbond/base/unit"
)

// Tuning of Pipes; ours, chosen in the lab on pipes of 0.3 to 8 Mbit/s.
const (
	// Pipes are compared by their rates over rateWindow, which is also the least
	// time between two moves: longer than TCP takes to fill a local link.
	rateWindow = time.Second
	// A pipe is full while more waits for it than it carries in a round trip and
	// a quarter and fullSlack, which covers late acknowledgements; and it counts
	// as full for some time when it was in half of the samples.
	fullSlack = 50 * time.Millisecond
	leastFull = 8 * unit.KB
	// Another pipe is tried beside those in use once they have been full for
	// backlogTime. Of a trial trialSettle does not count, while TCP starts, and
	// trialTime does. It is kept if the sum is pipeGain of what it was.
	backlogTime = 2 * time.Second
	trialSettle = time.Second
	trialTime   = 3 * time.Second
	pipeGain    = 1.1
	// The subflow moves to a pipe that lately carried betterPipe times as much,
	// or to one of which nothing is known once its own has for backlogTime carried
	// less than fallenPipe of what it had; and, while nothing waits, to one that is nearer
	// by a half and at least nearerBy.
	betterPipe = 1.25
	fallenPipe = 0.5
	nearerBy   = 10 * time.Millisecond
	// What a pipe carried is believed for knownTime.
	knownTime = time.Minute
	// A pipe that was no good is left alone for shutLeast, twice as long each
	// time that it is no good again, until it has been for proveTime.
	shutLeast = 10 * time.Second
	shutMost  = 10 * time.Minute
	proveTime = time.Minute
	// Several pipes become one when nothing was carried for idlePipes, or when
	// none was full for sparePipes and one could carry it all.
	idlePipes  = time.Minute
	sparePipes = 10 * time.Second
)

// PipeUse is what a pipe is there for.
type PipeUse uint8

// Uses of a pipe.
const (
	PipeWaits PipeUse = iota // in reserve
	PipeJoins                // a second subflow over it is being made
	PipeHelps                // it carries a second subflow
	PipeMain                 // it carries the subflow that always is
)

// Pipe is a pipe to one helper. Link names the local link that it goes over.
type Pipe struct {
	Link string
	Use  PipeUse
	// Of a pipe that carries a subflow: how many bytes have moved over that, both
	// ways, and how many were last seen to wait for the pipe or on its air, in
	// the direction where that is more.
	Moved   uint64
	Waiting unit.Bytes
	RTT     time.Duration // the least that was measured, 0 if none was
}

// PipeStep is what to do about pipes.
type PipeStep uint8

// Steps.
const (
	PipesStay PipeStep = iota
	PipesMove          // the main subflow to Link; a second one on that ends
	PipesTry           // a second subflow over Link
	PipesEnd           // the second subflow over Link
)

// PipePlan is a decision of Pipes.
type PipePlan struct {
	Do     PipeStep
	Link   string
	Reason string
}

// Pipes decides which of the pipes to one helper are used. The rates of those in
// use are known; what another one would carry is found out by using it, beside
// the others while they are full, or instead of one that has become bad. The zero
// Pipes is ready. Not safe for concurrent use.
type Pipes struct {
	links  map[string]*pipeLink
	used   []string // links in use, the main subflow's first
	since  time.Time
	points []pipePoint
	best   unit.Rate // the most that the main subflow's link has carried
	near   time.Time // since when another one is nearer
	moving time.Time // when something was last carried

	asked  PipePlan // the last step
	from   string   // where the main subflow came from by the last move, until that has proved good
	trial  string   // the link that is on trial
	rested bool     // once in it hardly anything was carried for a while
	before unit.Rate
}

// pipeLink is what is remembered of a link.
type pipeLink struct {
	rate unit.Rate // when it was last full
	at   time.Time
	shut time.Time // not to be used before
	wait time.Duration
}

// pipePoint is a sample of the pipes in use, in their order.
type pipePoint struct {
	at    time.Time
	moved []uint64
	full  []bool
}

// mostLinks bounds what is remembered.
const mostLinks = 32

// Decide takes a snapshot of all pipes, of which one is the main subflow's. It
// is to be called about each 100 ms.
func (p *Pipes) Decide(now time.Time, list []Pipe) PipePlan {
	inUse := func(x Pipe) bool { return x.Use == PipeMain || x.Use == PipeHelps }
	main := slices.IndexFunc(list, func(x Pipe) bool { return x.Use == PipeMain })
	if main < 0 {
		return PipePlan{}
	}
	used := []Pipe{list[main]}
	var others []Pipe
	joins := false
	for _, x := range list {
		switch {
		case x.Use == PipeHelps && x.Link == used[0].Link:
			return p.step(PipesEnd, x.Link, "the other subflow has come to its link")
		case x.Use == PipeHelps:
			used = append(used, x)
		case x.Use == PipeJoins:
			joins = true
		}
	}
	for _, x := range list {
		taken := func(y Pipe) bool { return y.Link == x.Link && (inUse(y) || y.Use == PipeJoins) }
		if x.Use == PipeWaits && !slices.ContainsFunc(list, taken) && !now.Before(p.link(x.Link).shut) {
			others = append(others, x)
		}
	}
	// In the order in which they came to be used, the main subflow's first.
	slices.SortStableFunc(used[1:], func(x, y Pipe) int { return cmp.Compare(p.place(x.Link), p.place(y.Link)) })
	p.compare(now, list, used)
	p.note(now, used)
	plan, wait := PipePlan{}, false
	switch {
	case joins:
		wait = true
	case p.trial != "":
		plan, wait = p.judge(now), true
	case len(used) > 1:
		plan = p.together(now)
	default:
		plan, wait = p.alone(now, used[0], others)
	}
	if plan.Do == PipesStay && !wait {
		plan = p.another(now, others)
	}
	if plan.Do != PipesStay {
		p.asked = plan
	}
	return plan
}

// place is where a link is among those in use, which a new one comes after.
func (p *Pipes) place(link string) uint {
	return uint(slices.Index(p.used, link)) // -1 is the largest
}

func (p *Pipes) step(do PipeStep, link, reason string) PipePlan {
	p.asked = PipePlan{do, link, reason}
	return p.asked
}

func (p *Pipes) link(name string) *pipeLink {
	l := p.links[name]
	if l == nil {
		if p.links == nil || len(p.links) == mostLinks {
			p.links = map[string]*pipeLink{}
		}
		l = &pipeLink{}
		p.links[name] = l
	}
	return l
}

// shut leaves a link alone for a while.
func (p *Pipes) shut(now time.Time, name string) {
	l := p.link(name)
	l.wait = min(max(2*l.wait, shutLeast), shutMost)
	l.shut = now.Add(l.wait)
}

// known is what a link carried lately, 0 if that is not known.
func (p *Pipes) known(now time.Time, name string) unit.Rate {
	if l := p.link(name); now.Sub(l.at) <= knownTime {
		return l.rate
	}
	return 0
}

// compare sees what came of the last step, and whether the pipes in use have
// changed: then all measurement begins anew.
func (p *Pipes) compare(now time.Time, list, used []Pipe) {
	if p.asked.Do == PipesMove && used[0].Link != p.asked.Link {
		p.shut(now, p.asked.Link)
	}
	before := slices.Clone(p.used)
	if p.trial != "" && !slices.Contains(before, p.trial) {
		before = append(before, p.trial)
	}
	for _, name := range before {
		gone := !slices.ContainsFunc(list, func(x Pipe) bool { return x.Link == name && x.Use != PipeWaits })
		if gone && p.asked.Do == PipesStay || gone && name == p.trial && p.asked.Do != PipesEnd { // it broke
			p.shut(now, name)
		}
		if gone && name == p.trial {
			p.trial = ""
		}
	}
	p.asked = PipePlan{}
	names := make([]string, len(used))
	for i, x := range used {
		names[i] = x.Link
	}
	if slices.Equal(names, p.used) {
		return
	}
	if len(p.used) == 0 || p.used[0] != names[0] {
		p.best = 0
	}
	p.used, p.points, p.since, p.near = names, nil, now, time.Time{}
}

// note takes a sample.
func (p *Pipes) note(now time.Time, used []Pipe) {
	x := pipePoint{at: now, moved: make([]uint64, len(used)), full: make([]bool, len(used))}
	for i, u := range used {
		x.moved[i] = u.Moved
		r, _ := p.rate(now, rateWindow, i)
		x.full[i] = u.Waiting > max(r.Bytes(u.RTT*5/4+fullSlack), leastFull)
		if n := len(p.points); n == 0 || p.points[n-1].moved[i] != u.Moved {
			p.moving = now
		}
	}
	p.points = append(p.points, x)
	old := slices.IndexFunc(p.points, func(x pipePoint) bool { return now.Sub(x.at) <= sparePipes })
	p.points = slices.Delete(p.points, 0, old)
	for i, name := range p.used {
		r, ok := p.rate(now, rateWindow, i)
		if ok && p.full(now, rateWindow, i) {
			l := p.link(name)
			l.rate, l.at = r, now
		}
		if i == 0 {
			p.best = max(p.best, r)
		}
	}
	if now.Sub(p.since) >= proveTime && p.trial == "" {
		p.from = ""
		for _, name := range p.used {
			p.link(name).wait = 0
		}
	}
}

// rate is that of the pipe in place i, or of all if i < 0, over the last d. It is
// not known before they have been in use for that long.
func (p *Pipes) rate(now time.Time, d time.Duration, i int) (unit.Rate, bool) {
	n := len(p.points)
	if n == 0 || now.Sub(p.since) < d {
		return 0, false
	}
	last := p.points[n-1]
	at := slices.IndexFunc(p.points, func(x pipePoint) bool { return now.Sub(x.at) <= d })
	if at < 0 || last.at.Sub(p.points[at].at) < d/2 { // nobody looked
		return 0, false
	}
	first := p.points[at]
	sum := uint64(0)
	for j := range last.moved {
		if i < 0 || i == j {
			sum += last.moved[j] - min(first.moved[j], last.moved[j])
		}
	}
	return unit.RateOf(unit.Bytes(sum), last.at.Sub(first.at)), true
}

// full reports whether the pipe in place i, or any if i < 0, was full in half of
// the samples of the last d.
func (p *Pipes) full(now time.Time, d time.Duration, i int) bool {
	n, full := 0, 0
	for _, x := range p.points {
		if now.Sub(x.at) > d {
			continue
		}
		n++
		if i < 0 && slices.Contains(x.full, true) || i >= 0 && x.full[i] {
			full++
		}
	}
	return full > 0 && full*2 >= n && now.Sub(p.since) >= d
}

// judge ends a trial or waits.
func (p *Pipes) judge(now time.Time) PipePlan {
	link := p.trial
	if now.Sub(p.since) < trialSettle {
		return PipePlan{}
	}
	if r, ok := p.rate(now, rateWindow, -1); ok && r < p.before/10 {
		if !p.rested { // a transfer may go on after a second: then the trial does, anew
			p.rested, p.since, p.points = true, now, nil
			return PipePlan{}
		}
		p.trial = ""
		return PipePlan{PipesEnd, link, "there is no more to carry"}
	}
	if now.Sub(p.since) < trialSettle+trialTime {
		return PipePlan{}
	}
	p.trial = ""
	sum, _ := p.rate(now, trialTime, -1)
	if float64(sum) >= pipeGain*float64(p.before) {
		return PipePlan{} // kept
	}
	p.shut(now, link)
	return PipePlan{PipesEnd, link, fmt.Sprintf("with it %v are carried, %v without", sum, p.before)}
}

// together looks whether several pipes are still of use.
func (p *Pipes) together(now time.Time) PipePlan {
	last := p.used[len(p.used)-1]
	if now.Sub(p.moving) >= idlePipes {
		return PipePlan{PipesEnd, last, "nothing is carried"}
	}
	sum, ok := p.rate(now, trialTime, -1)
	if ok && p.full(now, trialTime, -1) {
		most, at := unit.Rate(0), 0
		for i := len(p.used) - 1; i >= 0; i-- {
			r, _ := p.rate(now, trialTime, i)
			if i > 0 && r > most {
				most, at = r, i
			}
			if float64(sum) >= pipeGain*float64(sum-r) {
				continue
			}
			if i == 0 {
				p.from = p.used[0]
				return PipePlan{PipesMove, p.used[at], fmt.Sprintf("the other link carries %v, this one %v", most, r)}
			}
			p.shut(now, p.used[i])
			return PipePlan{PipesEnd, p.used[i], fmt.Sprintf("it carries %v of %v", r, sum)}
		}
	}
	if sum, ok := p.rate(now, sparePipes, -1); ok && sum > 0 && !slices.ContainsFunc(p.points, func(x pipePoint) bool { return slices.Contains(x.full, true) }) &&
		float64(p.link(p.used[0]).rate) > pipeGain*float64(sum) {
		return PipePlan{PipesEnd, last, "one could carry it all"}
	}
	return PipePlan{}
}

// alone looks whether another pipe is better than the only one in use, or may
// turn out to be in a moment.
func (p *Pipes) alone(now time.Time, main Pipe, others []Pipe) (plan PipePlan, wait bool) {
	r, ok := p.rate(now, rateWindow, 0)
	if !ok {
		return plan, false
	}
	move := func(to, format string, args ...any) (PipePlan, bool) {
		if to == p.from {
			p.shut(now, main.Link)
		}
		if p.known(now, main.Link) < r { // at least so much
			l := p.link(main.Link)
			l.rate, l.at = r, now
		}
		p.from = main.Link
		return PipePlan{PipesMove, to, fmt.Sprintf(format, args...)}, false
	}
	fallen := func(r unit.Rate) bool { return float64(r) < fallenPipe*float64(p.best) }
	if p.full(now, rateWindow, 0) {
		p.near = time.Time{}
		long, lasts := p.rate(now, backlogTime, 0)
		for _, x := range others {
			switch known := p.known(now, x.Link); {
			case float64(known) > betterPipe*float64(r):
				return move(x.Link, "it carried %v, the link in use carries %v", known, r)
			case known == 0 && lasts && fallen(long):
				return move(x.Link, "the link in use has fallen from %v to %v", p.best, r)
			case known == 0 && fallen(r):
				wait = true
			}
		}
		return plan, wait
	}
	nearer := slices.IndexFunc(others, func(x Pipe) bool {
		known := p.link(x.Link).rate // however old: it is not all about delay
		return x.RTT > 0 && main.RTT >= 2*x.RTT && main.RTT-x.RTT >= nearerBy && (known == 0 || known >= max(r, p.best))
	})
	if nearer < 0 || r == 0 {
		p.near = time.Time{}
		return plan, false
	}
	if p.near.IsZero() {
		p.near = now
	}
	if now.Sub(p.near) < rateWindow {
		return plan, false
	}
	x := others[nearer]
	return move(x.Link, "its round trip takes %v, that of the link in use %v", x.RTT, main.RTT)
}

// another begins a trial.
func (p *Pipes) another(now time.Time, others []Pipe) PipePlan {
	r, ok := p.rate(now, backlogTime, -1)
	if !ok || r == 0 || !p.full(now, backlogTime, -1) {
		return PipePlan{}
	}
	for _, x := range others {
		if known := p.known(now, x.Link); known > 0 && float64(known) < (pipeGain-1)*float64(r) {
			continue
		}
		p.trial, p.before, p.rested = x.Link, r, false
		return PipePlan{PipesTry, x.Link, fmt.Sprintf("more waits than the %v that are carried", r)}
	}
	return PipePlan{}
}
