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
	// Announced is when each item is told of; nil: at the start.
	Announced []time.Duration
	// UnknownSizes tells that nobody knows the sizes of items before their end.
	UnknownSizes bool
	// Upload tells that items are sent: progress is what paths took, and not what arrived.
	Upload bool
	// SizesFromResponses is that nobody knows sizes, and whether items can be split, before an answer.
	SizesFromResponses bool
	// Player, if not nil, asks for the items one after the other, and Paths[0] is the home
	// line. Comes is not used then.
	Player *Player
	// TimeLimit is when to give up; 0: after a day.
	TimeLimit time.Duration
}

// Result tells what happened.
type Result struct {
	Took      time.Duration
	Completed []time.Duration // of each of Case.Items
	Ended     []time.Duration // of each path: when its last request did
	Wasted    unit.Bytes
	Carried   []unit.Bytes    // by each path, with what was wasted
	Useful    []unit.Bytes    // of these
	Delivered []time.Duration // when the player had each item
	Stalled   time.Duration   // for how long the player stood still after the first item
	Requests  int
	Reasons   map[board.Reason]int
}

// reportInterval is how often progress is told, as live.
const reportInterval = 100 * time.Millisecond

type pathState struct {
	Path
	job       *board.Job
	firstByte time.Duration // of its bytes
	started   bool          // that they have begun
	received  float64
	lastUsed  time.Duration // when it last was
	isAwake   bool
	needsConn bool // needs a new connection
	down      bool
	carried   float64
	nextStep  int // of its rates, the next one
}

type simulation struct {
	board              *board.Board
	paths              []pathState
	items              []board.Item
	announced          []time.Duration
	unknownSizes       bool
	sizesFromResponses bool
	addedItems         int // of the items
	player             *playerState
	received           []span.Set[unit.Bytes] // of each item
	now                time.Duration
	result             Result
}

var epoch = time.Unix(0, 0)

// Run moves the items as a scheduler decides.
func Run(c Case, s board.Scheduler) (Result, error) {
	if c.TimeLimit == 0 {
		c.TimeLimit = 24 * time.Hour
	}
	r := &simulation{board: board.NewBoard(s, len(c.Paths)), paths: make([]pathState, len(c.Paths))}
	r.result = Result{Completed: make([]time.Duration, len(c.Items)), Carried: make([]unit.Bytes, len(c.Paths)), Useful: make([]unit.Bytes, len(c.Paths)), Ended: make([]time.Duration, len(c.Paths)), Reasons: map[board.Reason]int{}}
	if c.Upload {
		r.board.SetUpload()
	}
	for i, p := range c.Paths {
		r.paths[i] = pathState{Path: p, needsConn: true}
		r.board.SetMetered(i, p.Metered)
		r.board.SetUp(i)
	}
	r.items, r.announced, r.unknownSizes, r.sizesFromResponses, r.received = c.Items, c.Announced, c.UnknownSizes, c.SizesFromResponses, make([]span.Set[unit.Bytes], len(c.Items))
	if c.Player != nil {
		r.board.SetHome(0)
		r.player = &playerState{Player: *c.Player}
	}
	for {
		r.applyFaults()
		r.advancePlayer()
		r.addDueItems()
		r.executeOrders()
		if r.board.IsDone() && r.addedItems == len(r.items) && !r.playerWaits() {
			break
		}
		if r.now >= c.TimeLimit {
			return r.result, fmt.Errorf("%s is not ready after %v", s.Name(), r.now)
		}
		r.advanceTo(r.nextEvent())
	}
	r.result.Took = r.now
	if r.player != nil {
		r.result.Took = slices.Max(r.result.Completed)
	}
	for i := range r.paths {
		r.result.Carried[i] = unit.Bytes(math.Round(r.paths[i].carried))
		r.result.Wasted += r.result.Carried[i]
		r.result.Ended[i] = r.paths[i].lastUsed
	}
	for i, item := range r.items {
		r.result.Wasted -= item.Size()
		if r.result.Completed[i] == 0 {
			return r.result, fmt.Errorf("%s says it is ready, and of item %d it has %v", s.Name(), i, r.received[i])
		}
	}
	return r.result, nil
}

func (r *simulation) clockTime() time.Time { return epoch.Add(r.now) }

// addDueItems tells of the items that there are by now.
func (r *simulation) addDueItems() {
	var news []board.Item
	for ; r.addedItems < len(r.items) && r.isAnnounced(r.addedItems); r.addedItems++ {
		item := r.items[r.addedItems]
		if r.unknownSizes || r.sizesFromResponses {
			item.To = board.Unknown
			item.Splittable = item.Splittable && r.unknownSizes
		}
		news = append(news, item)
	}
	if len(news) > 0 {
		r.board.AddItems(news...)
	}
}

// jobSize is how much a job is to bring, whoever knows.
func (r *simulation) jobSize(j *board.Job) unit.Bytes {
	if j.Item.To == board.Unknown {
		return r.items[j.Item.Index].To
	}
	return j.Item.Size()
}

// applyFaults takes paths down and up.
func (r *simulation) applyFaults() {
	for i := range r.paths {
		l := &r.paths[i]
		down := false
		for _, g := range l.Down {
			down = down || r.now >= g.From && r.now < g.To
		}
		switch {
		case down && !l.down:
			r.dropJob(l)
			r.board.SetDown(i, r.clockTime())
		case !down && l.down:
			r.board.SetUp(i)
		}
		l.down = down
	}
}

// dropJob ends a lane's job before its end. What it brought of one that can be split
// stays, if the board asks for the rest only.
func (r *simulation) dropJob(l *pathState) {
	if l.job == nil {
		return
	}
	r.reportProgress(l)
	r.countJob(l)
	l.job, l.needsConn, l.lastUsed = nil, true, r.now
}

// countJob counts what a lane has brought of its job.
func (r *simulation) countJob(l *pathState) {
	j := l.job
	if got := min(unit.Bytes(l.received), r.jobSize(j)); j.Item.Splittable || got == r.jobSize(j) {
		i := j.Item.Index
		r.result.Useful[j.Path] += r.received[i].Add(j.Item.From, j.Item.From+got)
		if r.result.Completed[i] == 0 && r.received[i].Contains(0, r.items[i].To) {
			r.result.Completed[i] = r.now
		}
	}
}

// reportProgress tells the board how far a lane is.
func (r *simulation) reportProgress(l *pathState) {
	if l.job != nil && l.started {
		r.board.ReportProgress(l.job.ID, min(unit.Bytes(l.received)+l.Buffer, max(unit.Bytes(l.received), r.jobSize(l.job)-1)), r.clockTime())
	}
}

func (r *simulation) executeOrders() {
	for {
		o, ok := r.board.NextOrder(r.clockTime())
		if !ok {
			return
		}
		l := &r.paths[o.Job.Path]
		r.result.Reasons[o.Reason]++
		switch o.Kind {
		case board.Start:
			r.startJob(l, o.Job)
		case board.Shorten:
			j := o.Job
			l.job, l.needsConn = &j, true // to end it early costs the connection
		case board.Cancel:
			r.countJob(l)
			l.job, l.needsConn, l.lastUsed = nil, true, r.now
		}
	}
}

func (r *simulation) startJob(l *pathState, j board.Job) {
	r.result.Requests++
	wait := l.RTT
	if l.needsConn {
		wait += l.RTT
	}
	if !l.isAwake || l.Tail > 0 && r.now-l.lastUsed > l.Tail {
		wait += l.Promotion
	}
	l.job, l.firstByte, l.started, l.received, l.isAwake, l.needsConn = &j, r.now+wait, false, 0, true, false
}

// rateAt is a lane's rate now, in bytes a second, and when it changes. Time goes on
// from call to call.
func (l *pathState) rateAt(now time.Duration) (float64, time.Duration) {
	for l.nextStep < len(l.Rates) && l.Rates[l.nextStep].At <= now {
		l.nextStep++
	}
	rate, until := 0.0, time.Duration(math.MaxInt64)
	if l.nextStep > 0 {
		rate = float64(l.Rates[l.nextStep-1].Rate) / 8
	}
	if l.nextStep < len(l.Rates) {
		until = l.Rates[l.nextStep].At
	}
	return rate, until
}

// nextEvent is when something happens.
func (r *simulation) nextEvent() time.Duration {
	at := r.now - r.now%reportInterval + reportInterval
	if r.announced != nil && r.addedItems < len(r.items) {
		at = min(at, r.announced[r.addedItems])
	}
	if r.player != nil && r.player.nextRequest > r.now {
		at = min(at, r.player.nextRequest)
	}
	for i := range r.paths {
		l := &r.paths[i]
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
		if l.firstByte > r.now {
			at = min(at, l.firstByte)
			continue
		}
		rate, until := l.rateAt(r.now)
		at = min(at, until)
		if rate > 0 {
			rest := (float64(r.jobSize(l.job)) - l.received) / rate
			at = min(at, r.now+max(time.Microsecond, time.Duration(math.Ceil(min(rest, 1e6)*1e9))))
		}
	}
	return at
}

// advanceTo moves time on, and bytes with it.
func (r *simulation) advanceTo(to time.Duration) {
	for i := range r.paths {
		if l := &r.paths[i]; l.job != nil && r.now >= l.firstByte {
			rate, _ := l.rateAt(r.now)
			n := min(rate*(to-r.now).Seconds(), max(0, float64(r.jobSize(l.job))-l.received))
			l.received += n
			l.carried += n
		}
	}
	r.now = to
	for i := range r.paths {
		l := &r.paths[i]
		if l.job == nil || r.now < l.firstByte {
			continue
		}
		size := r.jobSize(l.job)
		switch {
		case l.received >= float64(size)-1e-3:
			l.received = float64(size)
			if r.unknownSizes {
				r.reportProgress(l)
			}
			r.countJob(l)
			id := l.job.ID
			l.job, l.lastUsed = nil, r.now
			if !r.board.Finish(id, r.clockTime()) {
				panic("simulate: a job that was cancelled goes on")
			}
			r.executeOrders() // what others bring of it is cancelled before they go on
		case !l.started && r.sizesFromResponses && l.job.Item.To == board.Unknown:
			l.started = true
			item := r.items[l.job.Item.Index]
			l.job.Item.To, l.job.Item.Splittable = item.To, item.Splittable
			r.board.SetObjectSize(l.job.ID, item.To, item.Splittable)
			r.reportProgress(l)
			r.executeOrders()
		case !l.started || r.now%reportInterval == 0:
			l.started = true
			r.reportProgress(l)
		}
	}
}
