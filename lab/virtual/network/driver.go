// SPDX-License-Identifier: Apache-2.0

package network

import (
	"slices"
	"time"
)

// exchanger carries exchanges of an app over connections that stay open.
type exchanger interface {
	// exchange sends up bytes on connection i, gets down bytes, and calls done. It opens the
	// connection if there is none. progress is called when bytes in the direction of the data
	// arrive.
	exchangePayload(i int, up, down uint64, progress func(), done func())
}

// driver runs a workload over an exchanger.
type driver struct {
	sim       *sim
	workload  *Workload
	exchanger exchanger
	object    int // objects begun
	left      int // exchanges of the object under way; of a page, objects not complete
	began     time.Duration
	last      time.Duration // when bytes arrived last; 0: none yet
	limit     time.Duration // of the run; 0: runLimit
	result    Result
	done      bool

	progressed func()              // optional: bytes have arrived
	finished   func(time.Duration) // optional: an object took so long
	answers    []time.Duration     // of the small requests beside bulk
}

// beginObject starts the next object, or all connections of a page.
func (d *driver) beginObject() {
	w := d.workload
	d.began, d.last = d.sim.now, 0
	if w.Begin > 0 && d.object == w.Objects-1 {
		d.began = startAt + w.Begin
	}
	switch w.Kind {
	case Page:
		d.left = len(w.Sizes)
		for i := range min(pageConnections, len(w.Sizes)) {
			d.fetchNextObject(i)
		}
		return
	case Beside:
		d.sim.scheduleTask(d.sim.now+besideEvery, d.requestBeside, nil)
	case Video:
	default:
		d.result.Gap = 0 // of the measured object
	}
	d.object++
	d.left = w.Streams
	d.result.Total += w.Size
	for i := range w.Streams {
		d.transferPayload(i, w.streamSize(i), d.finishObjectStream)
	}
}

// transferPayload moves n bytes of data over connection i.
func (d *driver) transferPayload(i int, n uint64, done func()) {
	up, down := uint64(requestSize), n
	if d.workload.Direction == Upload {
		up, down = up+down, replySize
	}
	d.exchanger.exchangePayload(i, up, down, d.recordProgress, done)
}

// recordProgress records that bytes have arrived.
func (d *driver) recordProgress() {
	if d.last > 0 {
		d.result.Gap = max(d.result.Gap, d.sim.now-d.last)
	}
	d.last = d.sim.now
	if d.progressed != nil {
		d.progressed()
	}
}

// finishObjectStream records the end of a stream of an object.
func (d *driver) finishObjectStream() {
	if d.left--; d.left > 0 {
		return
	}
	w := d.workload
	if d.finished != nil {
		d.finished(d.sim.now - d.began)
	}
	switch took := d.sim.now - d.began; w.Kind {
	case Beside:
		slices.Sort(d.answers)
		d.result.Time, d.done = took, true
		if n := len(d.answers); n > 0 {
			d.result.Time = d.answers[(n*95+99)/100-1]
		}
		return
	case Video:
		d.result.Time += took
	default:
		d.result.Time = took
	}
	if d.object == w.Objects {
		d.done = true
		return
	}
	next := d.sim.now + w.Pause
	if w.Kind == Video {
		next = max(d.sim.now, startAt+time.Duration(d.object)*segmentLength)
	} else if d.object == w.Objects-1 {
		next = max(next, startAt+w.Begin)
	}
	d.sim.scheduleTask(next, func(*packet) { d.beginObject() }, nil)
}

// fetchNextObject fetches the next object of a page over connection i.
func (d *driver) fetchNextObject(i int) {
	w := d.workload
	if d.object == len(w.Sizes) {
		return
	}
	n := w.Sizes[d.object]
	d.object++
	d.result.Total += n
	d.transferPayload(i, uint64(n), func() {
		if d.left--; d.left == 0 {
			d.result.Time, d.done = d.sim.now-d.began, true
			return
		}
		d.fetchNextObject(i)
	})
}

// requestBeside sends a small request beside bulk, and the next one besideEvery after its answer.
func (d *driver) requestBeside(*packet) {
	if d.done {
		return
	}
	requestedAt := d.sim.now
	d.exchanger.exchangePayload(d.workload.Streams, requestSize, besideAnswer, func() {}, func() {
		d.answers = append(d.answers, d.sim.now-requestedAt)
		d.sim.scheduleTask(d.sim.now+besideEvery, d.requestBeside, nil)
	})
}

// maxEventsAtOnce bounds the events at one moment. A run with more hangs: its time does not pass.
const maxEventsAtOnce = 200_000

// runWorkload handles events until the workload is done.
func (d *driver) runWorkload(failed func() error) Result {
	d.sim.scheduleTask(startAt, func(*packet) { d.beginObject() }, nil)
	limit := runLimit
	if d.limit > 0 {
		limit = startAt + d.limit
	}
	moment, atOnce := d.sim.now, 0
	for !d.done {
		if atOnce++; d.sim.now > moment {
			moment, atOnce = d.sim.now, 0
		}
		if atOnce > maxEventsAtOnce {
			d.result.Err = "time does not pass after " + (moment - startAt).String()
			break
		}
		if err := failed(); err != nil {
			d.result.Err = err.Error()
			break
		}
		if !d.sim.handleNext(limit) {
			d.result.Err = "not done after " + (limit - startAt).Round(time.Millisecond).String()
			break
		}
	}
	d.result.Ended = d.sim.now - startAt
	d.result.Events = d.sim.count
	return d.result
}
