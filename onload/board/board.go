package board

import (
	"math"
	"slices"
	"time"

	"mpbond/base/unit"
)

// Tuning.
const (
	// memory is how far back the measured rate of a path looks: long beside the
	// bursts of TCP and of radios, short beside an item.
	memory = 2 * time.Second
	// mostLatency is what a path is thought to need for an answer after its first.
	mostLatency = 100 * time.Millisecond
)

// OrderKind is what a Board asks of who moves the bytes.
type OrderKind uint8

// Kinds of orders.
const (
	Start   OrderKind = iota // begin the job
	Shorten                  // the job ends earlier now: Job.Item.To
	Cancel                   // what the job brings is not needed any more; the board has forgotten it
)

// Order is one thing to be done, in the order in which Next gives them.
type Order struct {
	Kind   OrderKind
	Job    Job
	Reason Reason
}

// Board is what is to be fetched and what is under way. Its methods are called by one
// goroutine at a time. Time must not run backwards.
type Board struct {
	sched   Scheduler
	paths   []path // of each line so many as lanes
	lanes   int
	waiting []Item // older ones first
	jobs    []*Job // in the order in which they began
	orders  []Order
	view    View

	barred        map[[2]int]bool // line and object
	added, pieces int
	lastJob       JobID
	copied        unit.Bytes // what copies have wasted since items were added
	largest       unit.Bytes
	sends         bool
	told          unit.Bytes // sizes of all that were told
	tellers       int
	home          int          // path, or -1
	wanted        map[int]bool // objects that are waited for
	whole         bool         // the last object whose size was learned cannot be split
	lead          lead
}

type path struct {
	up      bool
	metered bool
	shut    bool // never used again
	job     *Job
	rate    float64       // bytes a second, 0: not known
	recent  float64       // the same over recentMemory
	weight  float64       // of all samples in it, up to 1
	latency time.Duration // that of the last two answers which was less
	answer  time.Duration // the last one's
	silence time.Duration // for how long the last jobs have brought no byte, if they were cancelled then
	seen    time.Time     // when the rate was last measured
	sure    bool          // sends: the rate is that of what was confirmed
}

// NewBoard makes a board for a number of paths, all of them down.
func NewBoard(s Scheduler, paths int) *Board {
	return &Board{sched: s, paths: make([]path, paths), lanes: 1, barred: map[[2]int]bool{}, home: -1, wanted: map[int]bool{}}
}

// SetLanes lets each path bring up to n items at once, if the scheduler can tell when that
// is of use. It is to be called before all others.
func (b *Board) SetLanes(n int) {
	if _, ok := b.sched.(auto); ok {
		b.paths, b.lanes = make([]path, len(b.paths)*n), n
	}
}

// Join adds a path, which is down.
func (b *Board) Join() { b.paths = append(b.paths, make([]path, b.lanes)...) }

// of returns the lanes of a path.
func (b *Board) of(path int) []path { return b.paths[path*b.lanes : (path+1)*b.lanes] }

// Add gives it items to fetch. Index is set.
func (b *Board) Add(items ...Item) {
	b.copied = 0
	for _, i := range items {
		i.Index = b.added
		b.added++
		b.sized(i.Size())
		b.wait(i)
	}
}

// sized takes in what the size of an item is.
func (b *Board) sized(n unit.Bytes) {
	if n != Unknown {
		b.largest, b.told, b.tellers = max(b.largest, n), b.told+n, b.tellers+1
	}
}

// wait puts an item, or the rest of one, among those that wait.
func (b *Board) wait(i Item) {
	b.pieces++
	i.id = b.pieces
	at, _ := slices.BinarySearchFunc(b.waiting, i, older)
	b.waiting = slices.Insert(b.waiting, at, i)
}

// Up tells that a path can be used.
func (b *Board) Up(path int) {
	for i := range b.of(path) {
		b.of(path)[i].up = !b.of(path)[i].shut
	}
}

// SetSingle has a path that is down bring one item at a time from now on.
func (b *Board) SetSingle(path int) {
	for i := range b.of(path)[1:] {
		b.of(path)[1+i].shut = true
	}
}

// SetMetered sets whether bytes of a path cost money, or count against a bound.
func (b *Board) SetMetered(path int, yes bool) {
	for i := range b.of(path) {
		b.of(path)[i].metered = yes
	}
}

// Down tells that a path cannot be used. What it had under way waits again, for others.
func (b *Board) Down(path int, now time.Time) {
	for i := range b.of(path) {
		if j := b.of(path)[i].job; j != nil {
			b.Fail(j.ID, now)
		}
		b.of(path)[i].up = false
	}
}

// Bar tells that a path cannot fetch an object; what it had of it fails.
func (b *Board) Bar(path, object int, now time.Time) {
	b.barred[[2]int{path, object}] = true
	for _, p := range b.of(path) {
		if p.job != nil && p.job.Item.Object == object {
			b.Fail(p.job.ID, now)
		}
	}
}

// Drop forgets all of an object, so that it can be added again. What is under way of it
// is cancelled.
func (b *Board) Drop(object int) {
	b.waiting = slices.DeleteFunc(b.waiting, func(i Item) bool { return i.Object == object })
	for _, j := range slices.Clone(b.jobs) {
		if j.Item.Object == object {
			b.cancel(j, NothingLeft)
		}
	}
	delete(b.wanted, object)
	for key := range b.barred {
		if key[1] == object {
			delete(b.barred, key)
		}
	}
}

// Done tells whether nothing waits and nothing is under way.
func (b *Board) Done() bool { return len(b.waiting) == 0 && len(b.jobs) == 0 }

// Paths is what is known of the paths, valid until the next call.
func (b *Board) Paths(now time.Time) []Path {
	b.look(-1, now)
	list := b.view.Paths[:0]
	for i, p := range b.view.Paths {
		if i%b.lanes == 0 {
			list = append(list, p)
			continue
		}
		if all := &list[len(list)-1]; p.Busy {
			all.Busy, all.Rate = true, all.Rate+p.Rate
		}
	}
	return list
}

func (b *Board) find(id JobID) *Job {
	for _, j := range b.jobs {
		if j.ID == id {
			return j
		}
	}
	return nil
}

// Learn tells the size of the object whose whole a job fetches, and whether ranges of
// it can be had. Then copies that have brought nothing are cancelled: their paths take
// a part instead.
func (b *Board) Learn(id JobID, size unit.Bytes, split bool) {
	j := b.find(id)
	if j == nil {
		return
	}
	for _, other := range slices.Clone(b.jobs) {
		if other.Item.id == j.Item.id {
			other.Item.To, other.Item.Split = size, split
			if split && other != j && other.Got == 0 {
				b.endCopy(j, other)
			}
		}
	}
	b.whole = !split
	b.sized(size)
}

// Progress tells how much a job has brought altogether.
func (b *Board) Progress(id JobID, got unit.Bytes, now time.Time) {
	j := b.find(id)
	if j == nil {
		return
	}
	if size := j.Item.Size(); size != Unknown {
		got = min(got, size) // it may have gone on before it was shortened
	}
	b.largest = max(b.largest, got) // if nobody knows the size
	p := &b.paths[j.Path]
	if j.Last.IsZero() {
		p.answered(now.Sub(j.Began))
	} else if dt := now.Sub(p.seen); dt > 0 && !b.sends {
		p.measure(float64(got-j.Got)/dt.Seconds(), dt)
	}
	if j.Got, j.Last, p.seen = got, now, now; got > 0 {
		p.silence = 0
	}
}

// answered takes in how long an answer took. The first was the connection's too, and
// maybe that of a radio which woke, so it says little.
func (p *path) answered(took time.Duration) {
	p.latency = min(took, p.answer)
	if p.answer == 0 {
		p.latency = min(took/2, mostLatency)
	}
	p.answer = took
}

// measure takes in that the rate was so much for a time.
func (p *path) measure(rate float64, dt time.Duration) {
	if lately := math.Exp(-dt.Seconds() / recentMemory.Seconds()); p.weight == 0 {
		p.recent = rate
	} else {
		p.recent += (1 - lately) * (rate - p.recent)
	}
	keep := math.Exp(-dt.Seconds() / memory.Seconds())
	p.weight = keep*p.weight + 1 - keep // the first samples count by their length too
	p.rate += (1 - keep) / p.weight * (rate - p.rate)
}

// now is the rate in bytes a second, less for a job that has brought nothing lately.
func (p *path) now(now time.Time) float64 {
	if p.job == nil || p.job.Last.IsZero() {
		return p.rate
	}
	return p.rate * math.Exp(-now.Sub(p.seen).Seconds()/memory.Seconds())
}

// Finish tells that a job has brought its item up to what Item.To is now. It reports
// whether the item was still wanted: copies of it are cancelled.
func (b *Board) Finish(id JobID, now time.Time) bool {
	j := b.find(id)
	if j == nil {
		return false
	}
	if size := j.Item.Size(); size != Unknown && j.Got < size {
		b.Progress(id, size, now)
	}
	if j.Item.To == Unknown {
		b.sized(j.Got)
	}
	took := now.Sub(j.Began)
	if p := &b.paths[j.Path]; b.sends {
		b.confirmed(p, j, took)
	} else if p.rate == 0 && took > 0 { // all of it came at once
		p.measure(float64(j.Got)/took.Seconds(), took)
	}
	b.sched.Delivered(j.Path, j.Got, took)
	b.forget(j)
	if b.home >= 0 {
		b.lead.add(j, b.atHome(j.Path))
	}
	for _, other := range slices.Clone(b.jobs) {
		if other.Item.id != j.Item.id {
			continue
		}
		// Both have brought what both began with.
		b.copied += max(0, other.Item.From+other.Got-max(j.Item.From, other.Item.From))
		b.cancel(other, NothingLeft)
	}
	return true
}

func (b *Board) cancel(j *Job, r Reason) {
	b.noteSilence(j)
	b.forget(j)
	b.lose(j)
	b.orders = append(b.orders, Order{Cancel, *j, r})
}

// forget frees the path of a job.
func (b *Board) forget(j *Job) {
	b.jobs = slices.DeleteFunc(b.jobs, func(o *Job) bool { return o == j })
	b.paths[j.Path].job = nil
}

// Fail tells that a job has ended before its item was whole. What it brought of one
// that can be split counts; the rest waits for another path, unless one has a copy.
func (b *Board) Fail(id JobID, now time.Time) {
	j := b.find(id)
	if j == nil {
		return
	}
	b.forget(j)
	if b.handOver(j) {
		return
	}
	i := j.Item
	if i.Split {
		i.From += j.Got
	}
	if i.Size() != 0 || !i.Split {
		b.wait(i)
	} else {
		b.sched.Delivered(j.Path, j.Got, now.Sub(j.Began))
	}
}

// handOver leaves the item of a job that is over to a copy, if there is one.
func (b *Board) handOver(j *Job) bool {
	for _, other := range b.jobs {
		if other.Item.id == j.Item.id {
			other.Copy = other.Copy && j.Copy
			return true
		}
	}
	return false
}

// endLoser cancels one of two jobs that bring the same item, if it will not be the first.
func (b *Board) endLoser(now time.Time) {
	s, ok := b.sched.(pruner)
	if !ok || !slices.ContainsFunc(b.jobs, func(j *Job) bool { return j.Copy }) {
		return
	}
	b.look(-1, now)
	if id, ok := s.FindLoser(&b.view); ok {
		j := b.find(id)
		b.copied += j.Got
		b.cancel(j, CannotWin)
		b.handOver(j)
	}
}

// Next gives the next order, if there is one. It is called again after whatever was
// told to the board, and now and then.
func (b *Board) Next(now time.Time) (Order, bool) {
	b.preempt(now)
	if len(b.orders) == 0 {
		b.endLoser(now)
	}
	for p := 0; len(b.orders) == 0 && p < len(b.paths); p++ {
		if b.paths[p].up && b.paths[p].job == nil {
			b.look(p, now)
			b.apply(b.sched.Pick(&b.view, p), p, now)
		}
	}
	// Where a path cannot have what a scheduler keeps for it, another one takes that.
	for p := 0; len(b.orders) == 0 && len(b.jobs) == 0 && len(b.barred) > 0 && p < len(b.paths); p++ {
		if b.look(p, now); b.paths[p].up && len(b.view.Waiting) > 0 {
			b.apply(Decision{Action: Take, Reason: NextItem}, p, now)
		}
	}
	if len(b.orders) == 0 {
		if b.home >= 0 && b.paths[b.home].job == nil {
			b.lead = lead{} // alone it would have nothing to do either
		}
		return Order{}, false
	}
	o := b.orders[0]
	b.orders = b.orders[1:]
	o.Job.Path /= b.lanes
	return o, true
}

// look brings the view up to date, with what a path can have.
func (b *Board) look(path int, now time.Time) {
	v := &b.view
	v.Now, v.Largest, v.Copied = now, b.largest, b.copied
	v.Usual, v.barred = b.told/unit.Bytes(max(1, b.tellers)), b.barred
	v.Home, v.Whole, v.wanted = b.home, b.whole, b.wanted
	v.Lead = b.lead.at(b.oldest())
	v.Waiting, v.Running = v.Waiting[:0], v.Running[:0]
	line := path / b.lanes
	if path < 0 {
		line = -1
	}
	for _, i := range b.waiting {
		if !b.barred[[2]int{line, i.Object}] {
			v.Waiting = append(v.Waiting, i)
		}
	}
	for _, j := range b.jobs {
		if !b.barred[[2]int{line, j.Item.Object}] {
			v.Running = append(v.Running, *j)
		}
		if size := j.Item.Size(); j.Copy && size == Unknown {
			v.Copied += b.largest
		} else if j.Copy {
			v.Copied += size
		}
	}
	slices.SortStableFunc(v.Running, func(a, b Job) int { return older(a.Item, b.Item) })
	v.Paths = v.Paths[:0]
	for i := range b.paths {
		p := &b.paths[i]
		rate := p.now(now)
		if b.sends {
			rate = p.sending(now)
		}
		one := Path{p.up, p.job != nil, unit.Rate(rate * 8), unit.Rate(p.recent * 8), p.latency, p.silence, p.metered, i / b.lanes, i%b.lanes > 0}
		if first := i - i%b.lanes; p.rate == 0 && one.Extra && !one.Busy {
			one.Rate, one.Latency = v.Paths[first].Rate, v.Paths[first].Latency
		}
		v.Paths = append(v.Paths, one)
	}
	if b.sends {
		v.arrived()
	}
}

// apply makes orders of a decision.
func (b *Board) apply(d Decision, path int, now time.Time) {
	j := &Job{Path: path, Began: now}
	switch d.Action {
	case Wait:
		return
	case Take:
		j.Item = b.view.Waiting[d.Item]
		b.waiting = slices.DeleteFunc(b.waiting, func(i Item) bool { return i.id == j.Item.id })
		if size := j.Item.Size(); d.Size > 0 && j.Item.Split && size > d.Size {
			rest := j.Item
			rest.From += d.Size
			j.Item.To = rest.From
			b.wait(rest)
		}
	case Share:
		of := b.find(d.Job)
		d.Size = min(d.Size, of.Left())
		j.Item = of.Item
		j.Item.From = of.Item.To - d.Size
		b.pieces++
		j.Item.id = b.pieces
		of.Item.To = j.Item.From
		if of.Left() == 0 {
			b.cancel(of, d.Reason)
		} else {
			b.orders = append(b.orders, Order{Shorten, *of, d.Reason})
		}
	case Copy:
		of := b.find(d.Job)
		if of.Item.Once {
			return
		}
		j.Item, j.Copy = of.Item, true
		if of.Item.Split {
			j.Item.From += of.Got
		}
	case Move:
		of := b.find(d.Job)
		j.Item = of.Item
		b.copied += of.Got
		b.cancel(of, d.Reason)
	}
	b.lastJob++
	j.ID = b.lastJob
	b.jobs = append(b.jobs, j)
	b.paths[path].job = j
	b.orders = append(b.orders, Order{Start, *j, d.Reason})
}
