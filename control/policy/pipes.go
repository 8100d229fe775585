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
	// by a half and at least minNearer.
	betterPipe = 1.25
	fallenPipe = 0.5
	minNearer  = 10 * time.Millisecond
	// What a pipe carried is believed for rateMaxAge.
	rateMaxAge = time.Minute
	// A pipe that was no good is left alone for minBackoff, twice as long each
	// time that it is no good again, until it has been for provenAfter.
	minBackoff  = 10 * time.Second
	maxBackoff  = 10 * time.Minute
	provenAfter = time.Minute
	// Several pipes become one when nothing was carried for idlePipes, or when
	// none was full for sparePipes and one could carry it all.
	idlePipes  = time.Minute
	sparePipes = 10 * time.Second
)

// PipeUse is what a pipe is there for.
type PipeUse uint8

// Uses of a pipe.
const (
	PipeReserve PipeUse = iota // in reserve
	PipeJoining                // a second subflow over it is being made
	PipeSecond                 // it carries a second subflow
	PipeMain                   // it carries the subflow that always is
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

// PipeDecision is a decision of Pipes.
type PipeDecision struct {
	Do     PipeStep
	Link   string
	Reason string
}

// Pipes decides which of the pipes to one helper are used. The rates of those in
// use are known; what another one would carry is found out by using it, beside
// the others while they are full, or instead of one that has become bad. The zero
// Pipes is ready. Not safe for concurrent use.
type Pipes struct {
	links       map[string]*pipeLink
	used        []string // links in use, the main subflow's first
	since       time.Time
	points      []pipePoint
	best        unit.Rate // the most that the main subflow's link has carried
	nearerSince time.Time // since when another one is nearer
	lastMoved   time.Time // when something was last carried

	lastStep   PipeDecision // the last step
	movedFrom  string       // where the main subflow came from by the last move, until that has proved good
	trial      string       // the link that is on trial
	pausedOnce bool         // once in it hardly anything was carried for a while
	rateBefore unit.Rate
}

// pipeLink is what is remembered of a link.
type pipeLink struct {
	rate         unit.Rate // when it was last full
	at           time.Time
	backoffUntil time.Time // not to be used before
	backoff      time.Duration
}

// pipePoint is a sample of the pipes in use, in their order.
type pipePoint struct {
	at    time.Time
	moved []uint64
	full  []bool
}

// maxLinks bounds what is remembered.
const maxLinks = 32

// Decide takes a snapshot of all pipes, of which one is the main subflow's. It
// is to be called about each 100 ms.
func (p *Pipes) Decide(now time.Time, list []Pipe) PipeDecision {
	inUse := func(x Pipe) bool { return x.Use == PipeMain || x.Use == PipeSecond }
	main := slices.IndexFunc(list, func(x Pipe) bool { return x.Use == PipeMain })
	if main < 0 {
		return PipeDecision{}
	}
	used := []Pipe{list[main]}
	var others []Pipe
	joins := false
	for _, x := range list {
		switch {
		case x.Use == PipeSecond && x.Link == used[0].Link:
			return p.planStep(PipesEnd, x.Link, "the other subflow has come to its link")
		case x.Use == PipeSecond:
			used = append(used, x)
		case x.Use == PipeJoining:
			joins = true
		}
	}
	for _, x := range list {
		taken := func(y Pipe) bool { return y.Link == x.Link && (inUse(y) || y.Use == PipeJoining) }
		if x.Use == PipeReserve && !slices.ContainsFunc(list, taken) && !now.Before(p.linkRecord(x.Link).backoffUntil) {
			others = append(others, x)
		}
	}
	// In the order in which they came to be used, the main subflow's first.
	slices.SortStableFunc(used[1:], func(x, y Pipe) int { return cmp.Compare(p.useOrder(x.Link), p.useOrder(y.Link)) })
	p.updateUsed(now, list, used)
	p.addSample(now, used)
	plan, wait := PipeDecision{}, false
	switch {
	case joins:
		wait = true
	case p.trial != "":
		plan, wait = p.evaluateTrial(now), true
	case len(used) > 1:
		plan = p.reviewSeveral(now)
	default:
		plan, wait = p.reviewSingle(now, used[0], others)
	}
	if plan.Do == PipesStay && !wait {
		plan = p.beginTrial(now, others)
	}
	if plan.Do != PipesStay {
		p.lastStep = plan
	}
	return plan
}

// useOrder is where a link is among those in use, which a new one comes after.
func (p *Pipes) useOrder(link string) uint {
	return uint(slices.Index(p.used, link)) // -1 is the largest
}

func (p *Pipes) planStep(do PipeStep, link, reason string) PipeDecision {
	p.lastStep = PipeDecision{do, link, reason}
	return p.lastStep
}

func (p *Pipes) linkRecord(name string) *pipeLink {
	l := p.links[name]
	if l == nil {
		if p.links == nil || len(p.links) == maxLinks {
			p.links = map[string]*pipeLink{}
		}
		l = &pipeLink{}
		p.links[name] = l
	}
	return l
}

// backOff leaves a link alone for a while.
func (p *Pipes) backOff(now time.Time, name string) {
	l := p.linkRecord(name)
	l.backoff = min(max(2*l.backoff, minBackoff), maxBackoff)
	l.backoffUntil = now.Add(l.backoff)
}

// knownRate is what a link carried lately, 0 if that is not known.
func (p *Pipes) knownRate(now time.Time, name string) unit.Rate {
	if l := p.linkRecord(name); now.Sub(l.at) <= rateMaxAge {
		return l.rate
	}
	return 0
}

// updateUsed sees what came of the last step, and whether the pipes in use have
// changed: then all measurement begins anew.
func (p *Pipes) updateUsed(now time.Time, list, used []Pipe) {
	if p.lastStep.Do == PipesMove && used[0].Link != p.lastStep.Link {
		p.backOff(now, p.lastStep.Link)
	}
	before := slices.Clone(p.used)
	if p.trial != "" && !slices.Contains(before, p.trial) {
		before = append(before, p.trial)
	}
	for _, name := range before {
		gone := !slices.ContainsFunc(list, func(x Pipe) bool { return x.Link == name && x.Use != PipeReserve })
		if gone && p.lastStep.Do == PipesStay || gone && name == p.trial && p.lastStep.Do != PipesEnd { // it broke
			p.backOff(now, name)
		}
		if gone && name == p.trial {
			p.trial = ""
		}
	}
	p.lastStep = PipeDecision{}
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
	p.used, p.points, p.since, p.nearerSince = names, nil, now, time.Time{}
}

// addSample takes a sample.
func (p *Pipes) addSample(now time.Time, used []Pipe) {
	x := pipePoint{at: now, moved: make([]uint64, len(used)), full: make([]bool, len(used))}
	for i, u := range used {
		x.moved[i] = u.Moved
		r, _ := p.meanRate(now, rateWindow, i)
		x.full[i] = u.Waiting > max(r.Bytes(u.RTT*5/4+fullSlack), leastFull)
		if n := len(p.points); n == 0 || p.points[n-1].moved[i] != u.Moved {
			p.lastMoved = now
		}
	}
	p.points = append(p.points, x)
	old := slices.IndexFunc(p.points, func(x pipePoint) bool { return now.Sub(x.at) <= sparePipes })
	p.points = slices.Delete(p.points, 0, old)
	for i, name := range p.used {
		r, ok := p.meanRate(now, rateWindow, i)
		if ok && p.wasFull(now, rateWindow, i) {
			l := p.linkRecord(name)
			l.rate, l.at = r, now
		}
		if i == 0 {
			p.best = max(p.best, r)
		}
	}
	if now.Sub(p.since) >= provenAfter && p.trial == "" {
		p.movedFrom = ""
		for _, name := range p.used {
			p.linkRecord(name).backoff = 0
		}
	}
}

// meanRate is that of the pipe in place i, or of all if i < 0, over the last d. It is
// not known before they have been in use for that long.
func (p *Pipes) meanRate(now time.Time, d time.Duration, i int) (unit.Rate, bool) {
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

// wasFull reports whether the pipe in place i, or any if i < 0, was full in half of
// the samples of the last d.
func (p *Pipes) wasFull(now time.Time, d time.Duration, i int) bool {
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

// evaluateTrial ends a trial or waits.
func (p *Pipes) evaluateTrial(now time.Time) PipeDecision {
	link := p.trial
	if now.Sub(p.since) < trialSettle {
		return PipeDecision{}
	}
	if r, ok := p.meanRate(now, rateWindow, -1); ok && r < p.rateBefore/10 {
		if !p.pausedOnce { // a transfer may go on after a second: then the trial does, anew
			p.pausedOnce, p.since, p.points = true, now, nil
			return PipeDecision{}
		}
		p.trial = ""
		return PipeDecision{PipesEnd, link, "there is no more to carry"}
	}
	if now.Sub(p.since) < trialSettle+trialTime {
		return PipeDecision{}
	}
	p.trial = ""
	sum, _ := p.meanRate(now, trialTime, -1)
	if float64(sum) >= pipeGain*float64(p.rateBefore) {
		return PipeDecision{} // kept
	}
	p.backOff(now, link)
	return PipeDecision{PipesEnd, link, fmt.Sprintf("with it %v are carried, %v without", sum, p.rateBefore)}
}

// reviewSeveral looks whether several pipes are still of use.
func (p *Pipes) reviewSeveral(now time.Time) PipeDecision {
	last := p.used[len(p.used)-1]
	if now.Sub(p.lastMoved) >= idlePipes {
		return PipeDecision{PipesEnd, last, "nothing is carried"}
	}
	sum, ok := p.meanRate(now, trialTime, -1)
	if ok && p.wasFull(now, trialTime, -1) {
		most, at := unit.Rate(0), 0
		for i := len(p.used) - 1; i >= 0; i-- {
			r, _ := p.meanRate(now, trialTime, i)
			if i > 0 && r > most {
				most, at = r, i
			}
			if float64(sum) >= pipeGain*float64(sum-r) {
				continue
			}
			if i == 0 {
				p.movedFrom = p.used[0]
				return PipeDecision{PipesMove, p.used[at], fmt.Sprintf("the other link carries %v, this one %v", most, r)}
			}
			p.backOff(now, p.used[i])
			return PipeDecision{PipesEnd, p.used[i], fmt.Sprintf("it carries %v of %v", r, sum)}
		}
	}
	if sum, ok := p.meanRate(now, sparePipes, -1); ok && sum > 0 && !slices.ContainsFunc(p.points, func(x pipePoint) bool { return slices.Contains(x.full, true) }) &&
		float64(p.linkRecord(p.used[0]).rate) > pipeGain*float64(sum) {
		return PipeDecision{PipesEnd, last, "one could carry it all"}
	}
	return PipeDecision{}
}

// reviewSingle looks whether another pipe is better than the only one in use, or may
// turn out to be in a moment.
func (p *Pipes) reviewSingle(now time.Time, main Pipe, others []Pipe) (plan PipeDecision, wait bool) {
	r, ok := p.meanRate(now, rateWindow, 0)
	if !ok {
		return plan, false
	}
	move := func(to, format string, args ...any) (PipeDecision, bool) {
		if to == p.movedFrom {
			p.backOff(now, main.Link)
		}
		if p.knownRate(now, main.Link) < r { // at least so much
			l := p.linkRecord(main.Link)
			l.rate, l.at = r, now
		}
		p.movedFrom = main.Link
		return PipeDecision{PipesMove, to, fmt.Sprintf(format, args...)}, false
	}
	fallen := func(r unit.Rate) bool { return float64(r) < fallenPipe*float64(p.best) }
	if p.wasFull(now, rateWindow, 0) {
		p.nearerSince = time.Time{}
		long, lasts := p.meanRate(now, backlogTime, 0)
		for _, x := range others {
			switch known := p.knownRate(now, x.Link); {
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
		known := p.linkRecord(x.Link).rate // however old: it is not all about delay
		return x.RTT > 0 && main.RTT >= 2*x.RTT && main.RTT-x.RTT >= minNearer && (known == 0 || known >= max(r, p.best))
	})
	if nearer < 0 || r == 0 {
		p.nearerSince = time.Time{}
		return plan, false
	}
	if p.nearerSince.IsZero() {
		p.nearerSince = now
	}
	if now.Sub(p.nearerSince) < rateWindow {
		return plan, false
	}
	x := others[nearer]
	return move(x.Link, "its round trip takes %v, that of the link in use %v", x.RTT, main.RTT)
}

// beginTrial begins a trial.
func (p *Pipes) beginTrial(now time.Time, others []Pipe) PipeDecision {
	r, ok := p.meanRate(now, backlogTime, -1)
	if !ok || r == 0 || !p.wasFull(now, backlogTime, -1) {
		return PipeDecision{}
	}
	for _, x := range others {
		if known := p.knownRate(now, x.Link); known > 0 && float64(known) < (pipeGain-1)*float64(r) {
			continue
		}
		p.trial, p.rateBefore, p.pausedOnce = x.Link, r, false
		return PipeDecision{PipesTry, x.Link, fmt.Sprintf("more waits than the %v that are carried", r)}
	}
	return PipeDecision{}
}
