// SPDX-License-Identifier: Apache-2.0

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
	// Pipes are compared by their rates over rateWindow. It is also the least time between two
	// moves, and longer than TCP needs to fill a local link.
	rateWindow = time.Second
	// A pipe is full in a sample if more bytes wait for it than it carries in 1.25 round trips and
	// fullSlack, which covers late acknowledgements. It was full for a time if it was in half of
	// the samples.
	fullSlack = 50 * time.Millisecond
	leastFull = 8 * unit.KB
	// Another pipe is tried beside those in use once they were full for backlogTime. The first
	// trialSettle of a trial, in which TCP starts, does not count; trialTime does. The pipe is kept
	// if the sum of rates is pipeGain times the former one.
	backlogTime = 2 * time.Second
	trialSettle = time.Second
	trialTime   = 3 * time.Second
	pipeGain    = 1.1
	// The subflow moves to a pipe that recently carried betterPipe times as much. It moves to a
	// pipe of unknown rate once its own carried, for backlogTime, less than fallenPipe of its best.
	// If nothing waits, it moves to a pipe if its round trip is shorter by a half and at least
	// minNearer.
	betterPipe = 1.25
	fallenPipe = 0.5
	minNearer  = 10 * time.Millisecond
	// The rate of a pipe is known for rateMaxAge.
	rateMaxAge = time.Minute
	// A pipe that failed or did not help is not used for minBackoff, doubled each further time,
	// until it has been in use for provenAfter.
	minBackoff  = 10 * time.Second
	maxBackoff  = 10 * time.Minute
	provenAfter = time.Minute
	// Several pipes become one when nothing was carried for unusedTimeout, or when none was full
	// for spareTimeout and one could carry everything.
	unusedTimeout = time.Minute
	spareTimeout  = 10 * time.Second
)

// PipeUse says what a pipe is used for.
type PipeUse uint8

// Uses of a pipe.
const (
	PipeReserve PipeUse = iota // in reserve
	PipeJoining                // a second subflow joins over it
	PipeSecond                 // it carries a second subflow
	PipeMain                   // it carries the main subflow
)

// Pipe is a pipe to one helper. Link is the name of its local link.
type Pipe struct {
	Link string
	Use  PipeUse
	// For a pipe that carries a subflow: Moved counts its bytes in both directions; Waiting is how
	// many were last seen waiting for the pipe or in flight on it, in the direction with more of
	// them.
	Moved   uint64
	Waiting unit.Bytes
	RTT     time.Duration // the least measured, 0 if none
}

// PipeStep is an action on pipes.
type PipeStep uint8

// Steps.
const (
	PipesStay PipeStep = iota
	PipesMove          // move the main subflow to Link; a second one there ends
	PipesTry           // open a second subflow over Link
	PipesEnd           // end the second subflow over Link
)

// PipeDecision is a decision of Pipes.
type PipeDecision struct {
	Do     PipeStep
	Link   string
	Reason string
}

// Pipes decides which of the pipes to one helper are used. It knows the rates of the pipes in use.
// To find the rate of another pipe it uses that pipe: beside the others while they are full, or
// instead of one that became slow. The zero Pipes is ready to use. Not safe for concurrent use.
type Pipes struct {
	links       map[string]*pipeLink
	used        []string // links in use, the main subflow's first
	since       time.Time
	points      []pipePoint
	best        unit.Rate // highest rate of the main subflow's link
	nearerSince time.Time // since when another pipe has been nearer
	lastMoved   time.Time // when bytes were last carried

	lastStep   PipeDecision // the last step
	movedFrom  string       // the link before the last move, until the new one has proved good
	trial      string       // the link on trial
	pausedOnce bool         // the trial has been restarted after a pause
	rateBefore unit.Rate
}

// pipeLink is the state of a link.
type pipeLink struct {
	rate         unit.Rate // when it was last full, at that time
	at           time.Time
	backoffUntil time.Time // not used before
	backoff      time.Duration
}

// pipePoint is a sample of the pipes in use, in their order.
type pipePoint struct {
	at    time.Time
	moved []uint64
	full  []bool
}

// maxLinks bounds the links that are remembered.
const maxLinks = 32

// Decide takes a snapshot of all pipes, one of them PipeMain, and returns the next step. Call it
// about every 100 ms.
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
			return p.recordPipeStep(PipesEnd, x.Link, "the main subflow moved to its link")
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
	// In the order of their first use, the main subflow's first.
	slices.SortStableFunc(used[1:], func(x, y Pipe) int {
		return cmp.Compare(p.linkUseOrder(x.Link),
			p.linkUseOrder(y.Link))
	})
	p.updateUsed(now, list, used)
	p.addPipeSample(now, used)
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

// linkUseOrder returns the index of a link in used, or the largest uint if it is absent: a new link
// comes last.
func (p *Pipes) linkUseOrder(link string) uint {
	return uint(slices.Index(p.used, link)) // -1 becomes the largest uint
}

// recordPipeStep remembers a step and returns it.
func (p *Pipes) recordPipeStep(do PipeStep, link, reason string) PipeDecision {
	p.lastStep = PipeDecision{do, link, reason}
	return p.lastStep
}

// linkRecord returns the state of a link and creates it if needed.
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

// backOffFromLink excludes a link for a while.
func (p *Pipes) backOffFromLink(now time.Time, name string) {
	l := p.linkRecord(name)
	l.backoff = min(max(2*l.backoff, minBackoff), maxBackoff)
	l.backoffUntil = now.Add(l.backoff)
}

// recentLinkRate returns the recent rate of a link, 0 if unknown.
func (p *Pipes) recentLinkRate(now time.Time, name string) unit.Rate {
	if l := p.linkRecord(name); now.Sub(l.at) <= rateMaxAge {
		return l.rate
	}
	return 0
}

// updateUsed evaluates the result of the last step. If the set of used pipes has changed, it
// restarts all measurements.
func (p *Pipes) updateUsed(now time.Time, list, used []Pipe) {
	if p.lastStep.Do == PipesMove && used[0].Link != p.lastStep.Link {
		p.backOffFromLink(now, p.lastStep.Link)
	}
	before := slices.Clone(p.used)
	if p.trial != "" && !slices.Contains(before, p.trial) {
		before = append(before, p.trial)
	}
	for _, name := range before {
		gone := !slices.ContainsFunc(list, func(x Pipe) bool { return x.Link == name && x.Use != PipeReserve })
		if gone && p.lastStep.Do == PipesStay || gone && name == p.trial && p.lastStep.Do != PipesEnd { // it broke
			p.backOffFromLink(now, name)
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

// addPipeSample adds a sample.
func (p *Pipes) addPipeSample(now time.Time, used []Pipe) {
	x := pipePoint{at: now, moved: make([]uint64, len(used)), full: make([]bool, len(used))}
	for i, u := range used {
		x.moved[i] = u.Moved
		r, _ := p.meanPipeRate(now, rateWindow, i)
		x.full[i] = u.Waiting > max(r.Bytes(u.RTT*5/4+fullSlack), leastFull)
		if n := len(p.points); n == 0 || p.points[n-1].moved[i] != u.Moved {
			p.lastMoved = now
		}
	}
	p.points = append(p.points, x)
	old := slices.IndexFunc(p.points, func(x pipePoint) bool { return now.Sub(x.at) <= spareTimeout })
	p.points = slices.Delete(p.points, 0, old)
	for i, name := range p.used {
		r, ok := p.meanPipeRate(now, rateWindow, i)
		if ok && p.wasPipeFull(now, rateWindow, i) {
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

// meanPipeRate returns the rate of pipe i, or of all if i < 0, over the last d. It returns false
// until the same pipes have been in use for d, or if samples are missing.
func (p *Pipes) meanPipeRate(now time.Time, d time.Duration, i int) (unit.Rate, bool) {
	n := len(p.points)
	if n == 0 || now.Sub(p.since) < d {
		return 0, false
	}
	last := p.points[n-1]
	at := slices.IndexFunc(p.points, func(x pipePoint) bool { return now.Sub(x.at) <= d })
	if at < 0 || last.at.Sub(p.points[at].at) < d/2 { // samples are missing
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

// wasPipeFull reports whether pipe i was full in at least half of the samples of the last d. If i <
// 0, any full pipe makes a sample count. It returns false until the same pipes have been in use for
// d.
func (p *Pipes) wasPipeFull(now time.Time, d time.Duration, i int) bool {
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

// evaluateTrial evaluates the trial of a further pipe. Once it is over, it ends the use of a pipe
// that did not raise the rate enough.
func (p *Pipes) evaluateTrial(now time.Time) PipeDecision {
	link := p.trial
	if now.Sub(p.since) < trialSettle {
		return PipeDecision{}
	}
	if r, ok := p.meanPipeRate(now, rateWindow, -1); ok && r < p.rateBefore/10 {
		if !p.pausedOnce { // the transfer may only pause: restart the trial
			p.pausedOnce, p.since, p.points = true, now, nil
			return PipeDecision{}
		}
		p.trial = ""
		return PipeDecision{PipesEnd, link, "no more data to carry"}
	}
	if now.Sub(p.since) < trialSettle+trialTime {
		return PipeDecision{}
	}
	p.trial = ""
	sum, _ := p.meanPipeRate(now, trialTime, -1)
	if float64(sum) >= pipeGain*float64(p.rateBefore) {
		return PipeDecision{} // keep it
	}
	p.backOffFromLink(now, link)
	return PipeDecision{PipesEnd, link, fmt.Sprintf("it raises the rate to %v only, from %v", sum, p.rateBefore)}
}

// reviewSeveral checks whether several pipes are still useful.
func (p *Pipes) reviewSeveral(now time.Time) PipeDecision {
	last := p.used[len(p.used)-1]
	if now.Sub(p.lastMoved) >= unusedTimeout {
		return PipeDecision{PipesEnd, last, "no data to carry"}
	}
	sum, ok := p.meanPipeRate(now, trialTime, -1)
	if ok && p.wasPipeFull(now, trialTime, -1) {
		most, at := unit.Rate(0), 0
		for i := len(p.used) - 1; i >= 0; i-- {
			r, _ := p.meanPipeRate(now, trialTime, i)
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
			p.backOffFromLink(now, p.used[i])
			return PipeDecision{PipesEnd, p.used[i], fmt.Sprintf("it carries %v of %v", r, sum)}
		}
	}
	if sum, ok := p.meanPipeRate(now, spareTimeout, -1); ok && sum > 0 &&
		!slices.ContainsFunc(p.points, func(x pipePoint) bool { return slices.Contains(x.full, true) }) &&
		float64(p.linkRecord(p.used[0]).rate) > pipeGain*float64(sum) {
		return PipeDecision{PipesEnd, last, "one link could carry everything"}
	}
	return PipeDecision{}
}

// reviewSingle checks whether another pipe is better than the only one in use, or may soon prove
// so.
func (p *Pipes) reviewSingle(now time.Time, main Pipe, others []Pipe) (plan PipeDecision, wait bool) {
	r, ok := p.meanPipeRate(now, rateWindow, 0)
	if !ok {
		return plan, false
	}
	move := func(to, format string, args ...any) (PipeDecision, bool) {
		if to == p.movedFrom {
			p.backOffFromLink(now, main.Link)
		}
		if p.recentLinkRate(now, main.Link) < r { // at least that much
			l := p.linkRecord(main.Link)
			l.rate, l.at = r, now
		}
		p.movedFrom = main.Link
		return PipeDecision{PipesMove, to, fmt.Sprintf(format, args...)}, false
	}
	fallen := func(r unit.Rate) bool { return float64(r) < fallenPipe*float64(p.best) }
	if p.wasPipeFull(now, rateWindow, 0) {
		p.nearerSince = time.Time{}
		long, lasts := p.meanPipeRate(now, backlogTime, 0)
		for _, x := range others {
			switch known := p.recentLinkRate(now, x.Link); {
			case float64(known) > betterPipe*float64(r):
				return move(x.Link, "it carried %v, the link in use carries %v", known, r)
			case known == 0 && lasts && fallen(long):
				return move(x.Link, "the link in use slowed down from %v to %v", p.best, r)
			case known == 0 && fallen(r):
				wait = true
			}
		}
		return plan, wait
	}
	nearer := slices.IndexFunc(others, func(x Pipe) bool {
		known := p.linkRecord(x.Link).rate // of any age: delay is not all that counts
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

// beginTrial starts a trial if the pipes in use are full.
func (p *Pipes) beginTrial(now time.Time, others []Pipe) PipeDecision {
	r, ok := p.meanPipeRate(now, backlogTime, -1)
	if !ok || r == 0 || !p.wasPipeFull(now, backlogTime, -1) {
		return PipeDecision{}
	}
	for _, x := range others {
		if known := p.recentLinkRate(now, x.Link); known > 0 && float64(known) < (pipeGain-1)*float64(r) {
			continue
		}
		p.trial, p.rateBefore, p.pausedOnce = x.Link, r, false
		return PipeDecision{PipesTry, x.Link, fmt.Sprintf("more data waits than the %v carried", r)}
	}
	return PipeDecision{}
}
