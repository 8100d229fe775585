// SPDX-License-Identifier: Apache-2.0

package board

import (
	"math"
	"slices"
	"time"

	"mpbond/base/unit"
)

// Tuning.
const (
	// rateMemory is the time constant of the measured rate: long compared with bursts of TCP and
	// radios, short compared with an item.
	rateMemory = 2 * time.Second
	// maxFirstLatency bounds the latency that is assumed after the first response.
	maxFirstLatency = 100 * time.Millisecond
)

// OrderKind is the kind of an Order.
type OrderKind uint8

// Kinds of orders.
const (
	Start   OrderKind = iota // start the job
	Shorten                  // the job ends earlier now: see Job.Item.To
	Cancel                   // the job is not needed any more; the board has removed it
)

// Order is an instruction of the board. Orders are executed in the order in which NextOrder returns
// them.
type Order struct {
	Kind   OrderKind
	Job    Job
	Reason Reason
}

// Board holds the items to carry and the jobs under way. It is not safe for concurrent use. Times
// passed to it must not decrease.
type Board struct {
	scheduler   Scheduler
	paths       []path // concurrency entries per device
	concurrency int    // paths per device
	waiting     []Item // oldest first
	jobs        []*Job // in the order of their start
	orders      []Order
	view        View

	excluded             map[[2]int]bool // device and object
	itemCount, lastPiece int
	lastJobID            JobID
	wastedByCopies       unit.Bytes // since items were last added
	largest              unit.Bytes
	upload               bool
	sizeSum              unit.Bytes // of all known sizes
	sizeCount            int
	homePath             int          // or -1
	wanted               map[int]bool // objects that a reader waits for
	unsplittable         bool         // the last object of known size has no ranges
	lead                 lead
}

// path is one of a device's parallel connections.
type path struct {
	up            bool
	metered       bool
	retired       bool // never used again
	job           *Job
	rate          float64       // bytes per second; 0: unknown
	recentRate    float64       // the same over recentMemory
	rateWeight    float64       // weight of all samples in rate, up to 1
	latency       time.Duration // lower one of the last two response latencies
	lastLatency   time.Duration // of the last response
	silence       time.Duration // how long the last cancelled jobs waited without a byte
	measuredAt    time.Time     // when the rate was last measured
	rateConfirmed bool          // uploads: rate is that of confirmed bytes
}

// NewBoard returns a board with a number of devices, all of them down.
func NewBoard(s Scheduler, devices int) *Board {
	return &Board{scheduler: s, paths: make([]path, devices), concurrency: 1, excluded: map[[2]int]bool{},
		homePath: -1, wanted: map[int]bool{}}
}

// SetConcurrency lets each device carry up to n items at once, if the scheduler supports that. Call
// it before any other method.
func (b *Board) SetConcurrency(n int) {
	if _, ok := b.scheduler.(autoScheduler); ok {
		b.paths, b.concurrency = make([]path, len(b.paths)*n), n
	}
}

// AddDevice adds a device, which is down.
func (b *Board) AddDevice() { b.paths = append(b.paths, make([]path, b.concurrency)...) }

// pathsOfDevice returns the paths of a device.
func (b *Board) pathsOfDevice(device int) []path {
	return b.paths[device*b.concurrency : (device+1)*b.concurrency]
}

// AddItems adds items to carry and sets their Index.
func (b *Board) AddItems(items ...Item) {
	b.wastedByCopies = 0
	for _, i := range items {
		i.Index = b.itemCount
		b.itemCount++
		b.noteItemSize(i.Size())
		b.enqueueItem(i)
	}
}

// noteItemSize records the size of an item.
func (b *Board) noteItemSize(n unit.Bytes) {
	if n != Unknown {
		b.largest, b.sizeSum, b.sizeCount = max(b.largest, n), b.sizeSum+n, b.sizeCount+1
	}
}

// enqueueItem adds an item, or the rest of one, to the waiting items.
func (b *Board) enqueueItem(i Item) {
	b.lastPiece++
	i.piece = b.lastPiece
	at, _ := slices.BinarySearchFunc(b.waiting, i, compareOrder)
	b.waiting = slices.Insert(b.waiting, at, i)
}

// SetUp marks a device as usable.
func (b *Board) SetUp(device int) {
	for i := range b.pathsOfDevice(device) {
		b.pathsOfDevice(device)[i].up = !b.pathsOfDevice(device)[i].retired
	}
}

// SetSingle limits a device that is down to one item at a time from now on.
func (b *Board) SetSingle(device int) {
	for i := range b.pathsOfDevice(device)[1:] {
		b.pathsOfDevice(device)[1+i].retired = true
	}
}

// SetMetered sets whether bytes of a device cost money or count against a limit.
func (b *Board) SetMetered(device int, yes bool) {
	for i := range b.pathsOfDevice(device) {
		b.pathsOfDevice(device)[i].metered = yes
	}
}

// SetDown marks a device as unusable. Its unfinished items wait for other devices.
func (b *Board) SetDown(device int, now time.Time) {
	for i := range b.pathsOfDevice(device) {
		if j := b.pathsOfDevice(device)[i].job; j != nil {
			b.Fail(j.ID, now)
		}
		b.pathsOfDevice(device)[i].up = false
	}
}

// Exclude keeps a device from an object. Its jobs of the object fail.
func (b *Board) Exclude(device, object int, now time.Time) {
	b.excluded[[2]int{device, object}] = true
	for _, p := range b.pathsOfDevice(device) {
		if p.job != nil && p.job.Item.Object == object {
			b.Fail(p.job.ID, now)
		}
	}
}

// RemoveObject removes all items of an object, so that it can be added again. It cancels its jobs.
func (b *Board) RemoveObject(object int) {
	b.waiting = slices.DeleteFunc(b.waiting, func(i Item) bool { return i.Object == object })
	for _, j := range slices.Clone(b.jobs) {
		if j.Item.Object == object {
			b.cancelRunningJob(j, NothingLeft)
		}
	}
	delete(b.wanted, object)
	for key := range b.excluded {
		if key[1] == object {
			delete(b.excluded, key)
		}
	}
}

// IsDone reports whether no item waits and no job is under way.
func (b *Board) IsDone() bool { return len(b.waiting) == 0 && len(b.jobs) == 0 }

// DeviceStates returns the state of the devices, one entry each: Busy and Rate are those of all its
// connections, the rest is that of the first one. It is valid until the next call of the board.
func (b *Board) DeviceStates(now time.Time) []Path {
	b.updateView(-1, now)
	list := b.view.Paths[:0]
	for i, p := range b.view.Paths {
		if i%b.concurrency == 0 {
			list = append(list, p)
			continue
		}
		if all := &list[len(list)-1]; p.Busy {
			all.Busy, all.Rate = true, all.Rate+p.Rate
		}
	}
	return list
}

// findJobByID returns the job with the ID, or nil.
func (b *Board) findJobByID(id JobID) *Job {
	for _, j := range b.jobs {
		if j.ID == id {
			return j
		}
	}
	return nil
}

// SetObjectSize sets the size of the object that a job fetches whole, and whether ranges of it can
// be requested. If so, copies without any bytes are cancelled: their paths take a range instead.
func (b *Board) SetObjectSize(id JobID, size unit.Bytes, split bool) {
	j := b.findJobByID(id)
	if j == nil {
		return
	}
	for _, other := range slices.Clone(b.jobs) {
		if other.Item.piece == j.Item.piece {
			other.Item.To, other.Item.Splittable = size, split
			if split && other != j && other.Transferred == 0 {
				b.cancelCopy(j, other)
			}
		}
	}
	b.unsplittable = !split
	b.noteItemSize(size)
}

// ReportProgress records how many bytes a job has carried in total.
func (b *Board) ReportProgress(id JobID, got unit.Bytes, now time.Time) {
	j := b.findJobByID(id)
	if j == nil {
		return
	}
	if size := j.Item.Size(); size != Unknown {
		got = min(got, size) // it may have continued before it was shortened
	}
	b.largest = max(b.largest, got) // for unknown sizes
	p := &b.paths[j.Path]
	if j.LastProgress.IsZero() {
		p.noteLatency(now.Sub(j.StartTime))
	} else if dt := now.Sub(p.measuredAt); dt > 0 && !b.upload {
		p.noteRateSample(float64(got-j.Transferred)/dt.Seconds(), dt)
	}
	if j.Transferred, j.LastProgress, p.measuredAt = got, now, now; got > 0 {
		p.silence = 0
	}
}

// noteLatency records the latency of a response. The first one includes the connection setup and
// maybe the wake-up of a radio, so at most half of it counts, up to maxFirstLatency.
func (p *path) noteLatency(took time.Duration) {
	p.latency = min(took, p.lastLatency)
	if p.lastLatency == 0 {
		p.latency = min(took/2, maxFirstLatency)
	}
	p.lastLatency = took
}

// noteRateSample records that the rate was as given for the time dt.
func (p *path) noteRateSample(rate float64, dt time.Duration) {
	if recentKeep := math.Exp(-dt.Seconds() / recentMemory.Seconds()); p.rateWeight == 0 {
		p.recentRate = rate
	} else {
		p.recentRate += (1 - recentKeep) * (rate - p.recentRate)
	}
	keep := math.Exp(-dt.Seconds() / rateMemory.Seconds())
	p.rateWeight = keep*p.rateWeight + 1 - keep // also weighs the first samples by their length
	p.rate += (1 - keep) / p.rateWeight * (rate - p.rate)
}

// decayedRate returns the rate in bytes per second. It decays while a job brings no byte.
func (p *path) decayedRate(now time.Time) float64 {
	if p.job == nil || p.job.LastProgress.IsZero() {
		return p.rate
	}
	return p.rate * math.Exp(-now.Sub(p.measuredAt).Seconds()/rateMemory.Seconds())
}

// Finish records that a job has carried its item up to Item.To. It cancels copies of the item and
// reports whether the item was still wanted.
func (b *Board) Finish(id JobID, now time.Time) bool {
	j := b.findJobByID(id)
	if j == nil {
		return false
	}
	if size := j.Item.Size(); size != Unknown && j.Transferred < size {
		b.ReportProgress(id, size, now)
	}
	if j.Item.To == Unknown {
		b.noteItemSize(j.Transferred)
	}
	took := now.Sub(j.StartTime)
	if p := &b.paths[j.Path]; b.upload {
		b.noteConfirmed(p, j, took)
	} else if p.rate == 0 && took > 0 { // all bytes came at once
		p.noteRateSample(float64(j.Transferred)/took.Seconds(), took)
	}
	b.scheduler.NoteDelivery(j.Path, j.Transferred, took)
	b.removeBoardJob(j)
	if b.homePath >= 0 {
		b.lead.noteComplete(j, b.isOnHomeLine(j.Path))
	}
	for _, other := range slices.Clone(b.jobs) {
		if other.Item.piece != j.Item.piece {
			continue
		}
		// Both jobs have carried the part that they have in common.
		b.wastedByCopies += max(0, other.Item.From+other.Transferred-max(j.Item.From, other.Item.From))
		b.cancelRunningJob(other, NothingLeft)
	}
	return true
}

// cancelRunningJob removes a job and orders its end.
func (b *Board) cancelRunningJob(j *Job, r Reason) {
	b.noteSilence(j)
	b.removeBoardJob(j)
	b.deductFromLead(j)
	b.orders = append(b.orders, Order{Cancel, *j, r})
}

// removeBoardJob removes a job and frees its path.
func (b *Board) removeBoardJob(j *Job) {
	b.jobs = slices.DeleteFunc(b.jobs, func(o *Job) bool { return o == j })
	b.paths[j.Path].job = nil
}

// Fail records that a job has ended before its item was complete. Of a splittable item the received
// bytes count and the rest waits for another path; other items wait as a whole. If a copy is under
// way, the copy continues instead.
func (b *Board) Fail(id JobID, now time.Time) {
	j := b.findJobByID(id)
	if j == nil {
		return
	}
	b.removeBoardJob(j)
	if b.handOverToCopy(j) {
		return
	}
	i := j.Item
	if i.Splittable {
		i.From += j.Transferred
	}
	if i.Size() != 0 || !i.Splittable {
		b.enqueueItem(i)
	} else {
		b.scheduler.NoteDelivery(j.Path, j.Transferred, now.Sub(j.StartTime))
	}
}

// handOverToCopy leaves the item of an ended job to a copy. It reports whether there is one.
func (b *Board) handOverToCopy(j *Job) bool {
	for _, other := range b.jobs {
		if other.Item.piece == j.Item.piece {
			other.IsCopy = other.IsCopy && j.IsCopy
			return true
		}
	}
	return false
}

// cancelLoser cancels one of two jobs of the same item if the other one will finish much earlier.
func (b *Board) cancelLoser(now time.Time) {
	s, ok := b.scheduler.(pruner)
	if !ok || !slices.ContainsFunc(b.jobs, func(j *Job) bool { return j.IsCopy }) {
		return
	}
	b.updateView(-1, now)
	if id, ok := s.FindLoser(&b.view); ok {
		j := b.findJobByID(id)
		b.wastedByCopies += j.Transferred
		b.cancelRunningJob(j, CannotWin)
		b.handOverToCopy(j)
	}
}

// NextOrder returns the next order, if there is one. Call it after each change of the board and
// periodically.
func (b *Board) NextOrder(now time.Time) (Order, bool) {
	b.preemptHome(now)
	if len(b.orders) == 0 {
		b.cancelLoser(now)
	}
	for p := 0; len(b.orders) == 0 && p < len(b.paths); p++ {
		if b.paths[p].up && b.paths[p].job == nil {
			b.updateView(p, now)
			b.applyDecision(b.scheduler.Pick(&b.view, p), p, now)
		}
	}
	// An item that a scheduler keeps for an excluded path goes to another path.
	for p := 0; len(b.orders) == 0 && len(b.jobs) == 0 && len(b.excluded) > 0 && p < len(b.paths); p++ {
		if b.updateView(p, now); b.paths[p].up && len(b.view.Waiting) > 0 {
			b.applyDecision(Decision{Action: Take, Reason: NextItem}, p, now)
		}
	}
	if len(b.orders) == 0 {
		if b.homePath >= 0 && b.paths[b.homePath].job == nil {
			b.lead = lead{} // alone it would be idle as well
		}
		return Order{}, false
	}
	o := b.orders[0]
	b.orders = b.orders[1:]
	o.Job.Path /= b.concurrency
	return o, true
}

// updateView updates the view with what a path may carry; -1 stands for all paths.
func (b *Board) updateView(path int, now time.Time) {
	v := &b.view
	v.Now, v.LargestSize, v.WastedByCopies = now, b.largest, b.wastedByCopies
	v.MeanSize, v.excluded = b.sizeSum/unit.Bytes(max(1, b.sizeCount)), b.excluded
	v.HomePath, v.Unsplittable, v.wanted = b.homePath, b.unsplittable, b.wanted
	v.Lead = b.lead.bytesAhead(b.oldestMissing())
	v.Waiting, v.Running = v.Waiting[:0], v.Running[:0]
	device := path / b.concurrency
	if path < 0 {
		device = -1
	}
	for _, i := range b.waiting {
		if !b.excluded[[2]int{device, i.Object}] {
			v.Waiting = append(v.Waiting, i)
		}
	}
	for _, j := range b.jobs {
		if !b.excluded[[2]int{device, j.Item.Object}] {
			v.Running = append(v.Running, *j)
		}
		if size := j.Item.Size(); j.IsCopy && size == Unknown {
			v.WastedByCopies += b.largest
		} else if j.IsCopy {
			v.WastedByCopies += size
		}
	}
	slices.SortStableFunc(v.Running, func(a, b Job) int { return compareOrder(a.Item, b.Item) })
	v.Paths = v.Paths[:0]
	for i := range b.paths {
		p := &b.paths[i]
		rate := p.decayedRate(now)
		if b.upload {
			rate = p.uploadRate(now)
		}
		one := Path{p.up, p.job != nil, unit.Rate(rate * 8), unit.Rate(p.recentRate * 8), p.latency, p.silence,
			p.metered, i / b.concurrency, i%b.concurrency > 0}
		if first := i - i%b.concurrency; p.rate == 0 && one.IsExtra && !one.Busy {
			one.Rate, one.Latency = v.Paths[first].Rate, v.Paths[first].Latency
		}
		v.Paths = append(v.Paths, one)
	}
	if b.upload {
		v.limitToArrived()
	}
}

// applyDecision turns a decision into orders.
func (b *Board) applyDecision(d Decision, path int, now time.Time) {
	j := &Job{Path: path, StartTime: now}
	switch d.Action {
	case Wait:
		return
	case Take:
		j.Item = b.view.Waiting[d.WaitingIndex]
		b.waiting = slices.DeleteFunc(b.waiting, func(i Item) bool { return i.piece == j.Item.piece })
		if size := j.Item.Size(); d.Size > 0 && j.Item.Splittable && size > d.Size {
			rest := j.Item
			rest.From += d.Size
			j.Item.To = rest.From
			b.enqueueItem(rest)
		}
	case Split:
		shared := b.findJobByID(d.Job)
		d.Size = min(d.Size, shared.Remaining())
		j.Item = shared.Item
		j.Item.From = shared.Item.To - d.Size
		b.lastPiece++
		j.Item.piece = b.lastPiece
		shared.Item.To = j.Item.From
		if shared.Remaining() == 0 {
			b.cancelRunningJob(shared, d.Reason)
		} else {
			b.orders = append(b.orders, Order{Shorten, *shared, d.Reason})
		}
	case Copy:
		shared := b.findJobByID(d.Job)
		if shared.Item.NoCopies {
			return
		}
		j.Item, j.IsCopy = shared.Item, true
		if shared.Item.Splittable {
			j.Item.From += shared.Transferred
		}
	case Move:
		shared := b.findJobByID(d.Job)
		j.Item = shared.Item
		b.wastedByCopies += shared.Transferred
		b.cancelRunningJob(shared, d.Reason)
	}
	b.lastJobID++
	j.ID = b.lastJobID
	b.jobs = append(b.jobs, j)
	b.paths[path].job = j
	b.orders = append(b.orders, Order{Start, *j, d.Reason})
}
