// SPDX-License-Identifier: Apache-2.0

// Package simulate moves the items of a board over paths in virtual time. It replaces
// fetch in tests and experiments: thousands of cases with changing rates, sleeping radios
// and failing paths run in seconds.
//
// A path carries bytes as a fluid at its rate. A request costs a round trip, or two on a
// new connection, plus the promotion time of a sleeping radio. As in HTTP/1.1, ending a
// response early costs the connection.
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

// Step is a rate that applies from a time on.
type Step struct {
	At   time.Duration
	Rate unit.Rate
}

// Gap is an interval in which a path is down.
type Gap struct{ From, To time.Duration }

// Path is the connection of one device.
type Path struct {
	Rates     []Step // in order; the first begins at 0, the last one stays
	RTT       time.Duration
	Promotion time.Duration // time to wake the radio
	Tail      time.Duration // time that the radio stays awake unused; 0: forever
	Down      []Gap         // in order
	Buffer    unit.Bytes    // Case.Upload: bytes that it accepts ahead of its rate
	Metered   bool          // bytes cost money
}

// Case is a set of items and paths.
type Case struct {
	Paths []Path
	Items []board.Item // each from byte 0
	// Announced is when each item is added to the board; nil: at the start.
	Announced []time.Duration
	// UnknownSizes hides the sizes of items until they are complete.
	UnknownSizes bool
	// Upload means that items are sent: progress means accepted bytes, not arrived ones.
	Upload bool
	// SizesFromResponses hides sizes, and whether items can be split, until a response.
	SizesFromResponses bool
	// Player, if not nil, requests the items one after the other, and Paths[0] is the home line.
	// Announced is ignored then.
	Player *Player
	// TimeLimit is when the simulation fails; 0: after a day.
	TimeLimit time.Duration
}

// Result is the outcome of a simulation.
type Result struct {
	Took      time.Duration
	Completed []time.Duration // per item
	Ended     []time.Duration // per path: end of its last request
	Wasted    unit.Bytes
	Carried   []unit.Bytes    // per path, including wasted bytes
	Useful    []unit.Bytes    // per path, without wasted bytes
	Delivered []time.Duration // per item: when the player received it
	Stalled   time.Duration   // time that the player stalled after the first item
	Requests  int
	Reasons   map[board.Reason]int
}

// reportInterval is how often progress is reported, as in live transfers.
const reportInterval = 100 * time.Millisecond

// notReported is the progress of a job whose first byte has not come: the first report, of 0 bytes,
// ends the wait for a response.
const notReported = -1

// pathState is the state of a path.
type pathState struct {
	Path
	job       *board.Job
	firstByte time.Duration // of the current job
	started   bool          // the first byte was reported
	received  float64
	reported  unit.Bytes    // to the board, of the current job
	lastUsed  time.Duration // when it last was
	isAwake   bool
	needsConn bool // the next request needs a new connection
	down      bool
	carried   float64 // bytes of all jobs
	nextStep  int     // index in Rates
}

// simulation is the state of a run.
type simulation struct {
	board              *board.Board
	paths              []pathState
	items              []board.Item
	announced          []time.Duration
	unknownSizes       bool
	sizesFromResponses bool
	addedItems         int // on the board so far
	player             *playerState
	received           []span.Set[unit.Bytes] // per item
	now                time.Duration
	result             Result
}

var epoch = time.Unix(0, 0)

// Run moves the items of c as scheduler s decides. It fails if they are not complete within the
// time limit.
func Run(c Case, s board.Scheduler) (Result, error) {
	if c.TimeLimit == 0 {
		c.TimeLimit = 24 * time.Hour
	}
	r := &simulation{board: board.NewBoard(s, len(c.Paths)), paths: make([]pathState, len(c.Paths))}
	r.result = Result{Completed: make([]time.Duration, len(c.Items)), Carried: make([]unit.Bytes, len(c.Paths)),
		Useful: make([]unit.Bytes, len(c.Paths)), Ended: make([]time.Duration, len(c.Paths)),
		Reasons: map[board.Reason]int{}}
	if c.Upload {
		r.board.SetUpload()
	}
	for i, p := range c.Paths {
		r.paths[i] = pathState{Path: p, needsConn: true}
		r.board.SetMetered(i, p.Metered)
		r.board.SetUp(i)
	}
	r.items, r.announced, r.unknownSizes, r.sizesFromResponses, r.received = c.Items, c.Announced, c.UnknownSizes,
		c.SizesFromResponses, make([]span.Set[unit.Bytes], len(c.Items))
	if c.Player != nil {
		r.board.SetHome(0)
		r.player = &playerState{Player: *c.Player}
	}
	for {
		r.applyFaults()
		r.advancePlayer()
		r.addDueItems()
		r.simulateOrders()
		if r.board.IsDone() && r.addedItems == len(r.items) && !r.playerWaits() {
			break
		}
		if r.now >= c.TimeLimit {
			return r.result, fmt.Errorf("%s is not done after %v", s.Name(), r.now)
		}
		r.advanceTransfersTo(r.nextEventTime())
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
			return r.result, fmt.Errorf("%s is done, but of item %d it has only %v", s.Name(), i, r.received[i])
		}
	}
	return r.result, nil
}

// virtualTime returns the current virtual time.
func (r *simulation) virtualTime() time.Time { return epoch.Add(r.now) }

// addDueItems adds the items to the board that are announced by now.
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

// actualJobSize returns how many bytes a job carries, even if the board does not know.
func (r *simulation) actualJobSize(j *board.Job) unit.Bytes {
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
			r.dropPathJob(l)
			r.board.SetDown(i, r.virtualTime())
		case !down && l.down:
			r.board.SetUp(i)
		}
		l.down = down
	}
}

// dropPathJob ends the job of a path early. Received bytes of a splittable item stay, if the board
// requests only the rest.
func (r *simulation) dropPathJob(l *pathState) {
	if l.job == nil {
		return
	}
	r.reportPathProgress(l)
	r.countJobBytes(l)
	l.job, l.needsConn, l.lastUsed = nil, true, r.now
}

// countJobBytes counts what a path has received of its job.
func (r *simulation) countJobBytes(l *pathState) {
	j := l.job
	if got := min(unit.Bytes(l.received), r.actualJobSize(j)); j.Item.Splittable || got == r.actualJobSize(j) {
		i := j.Item.Index
		r.result.Useful[j.Path] += r.received[i].Add(j.Item.From, j.Item.From+got)
		if r.result.Completed[i] == 0 && r.received[i].Contains(0, r.items[i].To) {
			r.result.Completed[i] = r.now
		}
	}
}

// reportPathProgress reports the progress of a path to the board, if any: as in live transfers, a
// path without further bytes is silent.
func (r *simulation) reportPathProgress(l *pathState) {
	if l.job == nil || !l.started {
		return
	}
	got := min(unit.Bytes(l.received)+l.Buffer, max(unit.Bytes(l.received), r.actualJobSize(l.job)-1))
	if got != l.reported {
		l.reported = got
		r.board.ReportProgress(l.job.ID, got, r.virtualTime())
	}
}

// simulateOrders executes the pending orders of the board.
func (r *simulation) simulateOrders() {
	for {
		o, ok := r.board.NextOrder(r.virtualTime())
		if !ok {
			return
		}
		l := &r.paths[o.Job.Path]
		r.result.Reasons[o.Reason]++
		switch o.Kind {
		case board.Start:
			r.startJobOnPath(l, o.Job)
		case board.Shorten:
			j := o.Job
			l.job, l.needsConn = &j, true // ending it early costs the connection
		case board.Cancel:
			r.countJobBytes(l)
			l.job, l.needsConn, l.lastUsed = nil, true, r.now
		}
	}
}

// startJobOnPath starts a job on a path.
func (r *simulation) startJobOnPath(l *pathState, j board.Job) {
	r.result.Requests++
	wait := l.RTT
	if l.needsConn {
		wait += l.RTT
	}
	if !l.isAwake || l.Tail > 0 && r.now-l.lastUsed > l.Tail {
		wait += l.Promotion
	}
	l.job, l.firstByte, l.started, l.isAwake, l.needsConn = &j, r.now+wait, false, true, false
	l.received, l.reported = 0, notReported
}

// rateAndNextChange returns the rate in bytes per second at a time, and when it changes. Times must
// not decrease between calls.
func (l *pathState) rateAndNextChange(now time.Duration) (float64, time.Duration) {
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

// nextEventTime returns the time of the next event.
func (r *simulation) nextEventTime() time.Duration {
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
		rate, until := l.rateAndNextChange(r.now)
		at = min(at, until)
		if rate > 0 {
			rest := (float64(r.actualJobSize(l.job)) - l.received) / rate
			at = min(at, r.now+max(time.Microsecond, time.Duration(math.Ceil(min(rest, 1e6)*1e9))))
		}
	}
	return at
}

// advanceTransfersTo advances the time and moves bytes.
func (r *simulation) advanceTransfersTo(to time.Duration) {
	for i := range r.paths {
		if l := &r.paths[i]; l.job != nil && r.now >= l.firstByte {
			rate, _ := l.rateAndNextChange(r.now)
			n := min(rate*(to-r.now).Seconds(), max(0, float64(r.actualJobSize(l.job))-l.received))
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
		size := r.actualJobSize(l.job)
		switch {
		case l.received >= float64(size)-1e-3:
			l.received = float64(size)
			if r.unknownSizes {
				r.reportPathProgress(l)
			}
			r.countJobBytes(l)
			id := l.job.ID
			l.job, l.lastUsed = nil, r.now
			if !r.board.Finish(id, r.virtualTime()) {
				panic("simulate: a cancelled job continues")
			}
			r.simulateOrders() // copies are cancelled before they continue
		case !l.started && r.sizesFromResponses && l.job.Item.To == board.Unknown:
			l.started = true
			item := r.items[l.job.Item.Index]
			l.job.Item.To, l.job.Item.Splittable = item.To, item.Splittable
			r.board.SetObjectSize(l.job.ID, item.To, item.Splittable)
			r.reportPathProgress(l)
			r.simulateOrders()
		case !l.started || r.now%reportInterval == 0:
			l.started = true
			r.reportPathProgress(l)
		}
	}
}
