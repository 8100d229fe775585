// Package simulate moves items over paths in virtual time. It stands below package
// onload, in the place of fetch, for tests and experiments: thousands of cases with
// rates that change, radios that sleep and paths that fail run in seconds.
//
// A path carries bytes as a fluid at its rate. A request costs a round trip, one on a
// new connection two (as HTTP/1.1, where to end a response early costs the connection),
// and a radio that slept its promotion.
package simulate

import (
	"fmt"
	"math"
	"slices"
	"time"

	"mpbond/base/span"
	"mpbond/base/unit"
	"mpbond/onload/board"
)

// Step is a rate from a time on.
type Step struct {
	At   time.Duration
	Rate unit.Rate
}

// Gap is a time in which a path is down.
type Gap struct{ From, To time.Duration }

// Path is one device's way.
type Path struct {
	Rates     []Step // in order; the first begins at 0, and the last goes on
	RTT       time.Duration
	Promotion time.Duration // what the radio takes to wake
	Tail      time.Duration // how long it stays awake without use; 0: for ever, once woken
	Down      []Gap         // in order
	Buffer    unit.Bytes    // Case.Sends: what it takes before its rate is seen
	Metered   bool          // its bytes cost money
}

// Case is what is to be fetched over what.
type Case struct {
	Paths []Path
	Items []board.Item // each from byte 0
	// Comes is when each item is told of; nil: at the start.
	Comes []time.Duration
	// Blind tells that nobody knows the sizes of items before their end.
	Blind bool
	// Sends tells that items are sent: progress is what paths took, and not what arrived.
	Sends bool
	// Asked is that nobody knows sizes, and whether items can be split, before an answer.
	Asked bool
	// Player, if not nil, asks for the items one after the other, and Paths[0] is the home
	// line. Comes is not used then.
	Player *Player
	// Most is when to give up; 0: after a day.
	Most time.Duration
}

// Result tells what happened.
type Result struct {
	Took      time.Duration
	Completed []time.Duration // of each of Case.Items
	Ended     []time.Duration // of each path: when its last request did
	Wasted    unit.Bytes
	Carried   []unit.Bytes    // by each path, with what was wasted
	Useful    []unit.Bytes    // of these
	Given     []time.Duration // when the player had each item
	Stalled   time.Duration   // for how long the player stood still after the first item
	Requests  int
	Reasons   map[board.Reason]int
}

// tick is how often progress is told, as live.
const tick = 100 * time.Millisecond

type lane struct {
	Path
	job    *board.Job
	begins time.Duration // of its bytes
	told   bool          // that they have begun
	got    float64
	used   time.Duration // when it last was
	woken  bool
	fresh  bool // needs a new connection
	down   bool
	sum    float64
	step   int // of its rates, the next one
}

type run struct {
	board  *board.Board
	lanes  []lane
	items  []board.Item
	comes  []time.Duration
	blind  bool
	asked  bool
	added  int // of the items
	viewer *viewer
	have   []span.Set[unit.Bytes] // of each item
	now    time.Duration
	res    Result
}

var epoch = time.Unix(0, 0)

// Run moves the items as a scheduler decides.
func Run(c Case, s board.Scheduler) (Result, error) {
	if c.Most == 0 {
		c.Most = 24 * time.Hour
	}
	r := &run{board: board.NewBoard(s, len(c.Paths)), lanes: make([]lane, len(c.Paths))}
	r.res = Result{Completed: make([]time.Duration, len(c.Items)), Carried: make([]unit.Bytes, len(c.Paths)), Useful: make([]unit.Bytes, len(c.Paths)), Ended: make([]time.Duration, len(c.Paths)), Reasons: map[board.Reason]int{}}
	if c.Sends {
		r.board.Sends()
	}
	for i, p := range c.Paths {
		r.lanes[i] = lane{Path: p, fresh: true}
		r.board.SetMetered(i, p.Metered)
		r.board.Up(i)
	}
	r.items, r.comes, r.blind, r.asked, r.have = c.Items, c.Comes, c.Blind, c.Asked, make([]span.Set[unit.Bytes], len(c.Items))
	if c.Player != nil {
		r.board.SetHome(0)
		r.viewer = &viewer{Player: *c.Player}
	}
	for {
		r.faults()
		r.watch()
		r.add()
		r.orders()
		if r.board.Done() && r.added == len(r.items) && !r.watches() {
			break
		}
		if r.now >= c.Most {
			return r.res, fmt.Errorf("%s is not ready after %v", s.Name(), r.now)
		}
		r.advance(r.next())
	}
	r.res.Took = r.now
	if r.viewer != nil {
		r.res.Took = slices.Max(r.res.Completed)
	}
	for i := range r.lanes {
		r.res.Carried[i] = unit.Bytes(math.Round(r.lanes[i].sum))
		r.res.Wasted += r.res.Carried[i]
		r.res.Ended[i] = r.lanes[i].used
	}
	for i, item := range r.items {
		r.res.Wasted -= item.Size()
		if r.res.Completed[i] == 0 {
			return r.res, fmt.Errorf("%s says it is ready, and of item %d it has %v", s.Name(), i, r.have[i])
		}
	}
	return r.res, nil
}

func (r *run) at() time.Time { return epoch.Add(r.now) }

// add tells of the items that there are by now.
func (r *run) add() {
	var news []board.Item
	for ; r.added < len(r.items) && r.isTold(r.added); r.added++ {
		item := r.items[r.added]
		if r.blind || r.asked {
			item.To = board.Unknown
			item.Split = item.Split && r.blind
		}
		news = append(news, item)
	}
	if len(news) > 0 {
		r.board.Add(news...)
	}
}

// size is how much a job is to bring, whoever knows.
func (r *run) size(j *board.Job) unit.Bytes {
	if j.Item.To == board.Unknown {
		return r.items[j.Item.Index].To
	}
	return j.Item.Size()
}

// faults takes paths down and up.
func (r *run) faults() {
	for i := range r.lanes {
		l := &r.lanes[i]
		down := false
		for _, g := range l.Down {
			down = down || r.now >= g.From && r.now < g.To
		}
		switch {
		case down && !l.down:
			r.drop(l)
			r.board.Down(i, r.at())
		case !down && l.down:
			r.board.Up(i)
		}
		l.down = down
	}
}

// drop ends a lane's job before its end. What it brought of one that can be split
// stays, if the board asks for the rest only.
func (r *run) drop(l *lane) {
	if l.job == nil {
		return
	}
	r.report(l)
	r.keep(l)
	l.job, l.fresh, l.used = nil, true, r.now
}

// keep counts what a lane has brought of its job.
func (r *run) keep(l *lane) {
	j := l.job
	if got := min(unit.Bytes(l.got), r.size(j)); j.Item.Split || got == r.size(j) {
		i := j.Item.Index
		r.res.Useful[j.Path] += r.have[i].Add(j.Item.From, j.Item.From+got)
		if r.res.Completed[i] == 0 && r.have[i].Contains(0, r.items[i].To) {
			r.res.Completed[i] = r.now
		}
	}
}

// report tells the board how far a lane is.
func (r *run) report(l *lane) {
	if l.job != nil && l.told {
		r.board.Progress(l.job.ID, min(unit.Bytes(l.got)+l.Buffer, max(unit.Bytes(l.got), r.size(l.job)-1)), r.at())
	}
}

func (r *run) orders() {
	for {
		o, ok := r.board.Next(r.at())
		if !ok {
			return
		}
		l := &r.lanes[o.Job.Path]
		r.res.Reasons[o.Reason]++
		switch o.Kind {
		case board.Start:
			r.start(l, o.Job)
		case board.Shorten:
			j := o.Job
			l.job, l.fresh = &j, true // to end it early costs the connection
		case board.Cancel:
			r.keep(l)
			l.job, l.fresh, l.used = nil, true, r.now
		}
	}
}

func (r *run) start(l *lane, j board.Job) {
	r.res.Requests++
	wait := l.RTT
	if l.fresh {
		wait += l.RTT
	}
	if !l.woken || l.Tail > 0 && r.now-l.used > l.Tail {
		wait += l.Promotion
	}
	l.job, l.begins, l.told, l.got, l.woken, l.fresh = &j, r.now+wait, false, 0, true, false
}

// rate is a lane's rate now, in bytes a second, and when it changes. Time goes on
// from call to call.
func (l *lane) rate(now time.Duration) (float64, time.Duration) {
	for l.step < len(l.Rates) && l.Rates[l.step].At <= now {
		l.step++
	}
	rate, until := 0.0, time.Duration(math.MaxInt64)
	if l.step > 0 {
		rate = float64(l.Rates[l.step-1].Rate) / 8
	}
	if l.step < len(l.Rates) {
		until = l.Rates[l.step].At
	}
	return rate, until
}

// next is when something happens.
func (r *run) next() time.Duration {
	at := r.now - r.now%tick + tick
	if r.comes != nil && r.added < len(r.items) {
		at = min(at, r.comes[r.added])
	}
	if r.viewer != nil && r.viewer.asks > r.now {
		at = min(at, r.viewer.asks)
	}
	for i := range r.lanes {
		l := &r.lanes[i]
		for _, g := range l.Down {
			if g.From > r.now {
				at = min(at, g.From)
			}
			if g.To > r.now {
				at = min(at, g.To)
			}
		}
		if l.job == nil {
			continue
		}
		if l.begins > r.now {
			at = min(at, l.begins)
			continue
		}
		rate, until := l.rate(r.now)
		at = min(at, until)
		if rate > 0 {
			rest := (float64(r.size(l.job)) - l.got) / rate
			at = min(at, r.now+max(time.Microsecond, time.Duration(math.Ceil(min(rest, 1e6)*1e9))))
		}
	}
	return at
}

// advance moves time on, and bytes with it.
func (r *run) advance(to time.Duration) {
	for i := range r.lanes {
		if l := &r.lanes[i]; l.job != nil && r.now >= l.begins {
			rate, _ := l.rate(r.now)
			n := min(rate*(to-r.now).Seconds(), max(0, float64(r.size(l.job))-l.got))
			l.got += n
			l.sum += n
		}
	}
	r.now = to
	for i := range r.lanes {
		l := &r.lanes[i]
		if l.job == nil || r.now < l.begins {
			continue
		}
		size := r.size(l.job)
		switch {
		case l.got >= float64(size)-1e-3:
			l.got = float64(size)
			if r.blind {
				r.report(l)
			}
			r.keep(l)
			id := l.job.ID
			l.job, l.used = nil, r.now
			if !r.board.Finish(id, r.at()) {
				panic("simulate: a job that was cancelled goes on")
			}
			r.orders() // what others bring of it is cancelled before they go on
		case !l.told && r.asked && l.job.Item.To == board.Unknown:
			l.told = true
			item := r.items[l.job.Item.Index]
			l.job.Item.To, l.job.Item.Split = item.To, item.Split
			r.board.Learn(l.job.ID, item.To, item.Split)
			r.report(l)
			r.orders()
		case !l.told || r.now%tick == 0:
			l.told = true
			r.report(l)
		}
	}
}
