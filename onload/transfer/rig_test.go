// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"mpbond/base/span"
	"mpbond/base/unit"
	"mpbond/onload/board"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	errLine     = errors.New("no line")
	errStalled  = errors.New("stalled")
	errNoAnswer = errors.New("no answer")
	errTest     = errors.New("the test ends it")
)

// testTimes are the time limits of the tests, in virtual time.
var testTimes = Times{StallTimeout: 5 * time.Second, ResponseTimeout: 10 * time.Second,
	FirstBackoff: 500 * time.Millisecond, IdleTimeout: time.Minute, TickInterval: 100 * time.Millisecond}

// fakeLine is how a device carries: a response after latency, then bytes at a rate. Its fields may
// change while the loop's lock is held.
type fakeLine struct {
	latency time.Duration
	rate    unit.Bytes // bytes per second; 0: no bytes
	err     error      // instead of an answer
	breaks  unit.Bytes // bytes of an item after which errLine occurs; 0: never
	jobs    int
}

// fakeTask is a task of objects with one item each.
type fakeTask struct {
	*Loop
	t       *testing.T
	lines   []*fakeLine
	size    unit.Bytes
	split   bool
	added   bool
	have    []span.Set[unit.Bytes]
	whole   []time.Duration // when each was
	failed  []error
	bars    []Excluded
	begun   time.Time
	started int
	ended   map[board.JobID]error // of all jobs
	dropped int
	reports int
}

// itemSpec describes the objects of a test: number, size and range support.
type itemSpec struct {
	objects int
	size    unit.Bytes
	split   bool
}

// runTask runs f in virtual time with a task of items. change, if set, changes the configuration.
func runTask(t *testing.T, of itemSpec, lines []*fakeLine, change func(*Config), f func(r *fakeTask)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &fakeTask{t: t, lines: lines, size: of.size, split: of.split,
			ended: map[board.JobID]error{}, begun: time.Now(),
			have: make([]span.Set[unit.Bytes], of.objects), whole: make([]time.Duration, of.objects),
			failed: make([]error, of.objects)}
		for range of.objects {
			r.bars = append(r.bars, Excluded{})
		}
		cfg := Config{Times: testTimes, ErrStalled: errStalled, ErrNoResponse: errNoAnswer,
			NewClient: func(Device) *http.Client { return &http.Client{} }}
		for i := range lines {
			cfg.Devices = append(cfg.Devices, testDevice(i))
		}
		if testing.Verbose() {
			cfg.Log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
		}
		if change != nil {
			change(&cfg)
		}
		var err error
		if r.Loop, err = New(cfg); err != nil {
			t.Fatal(err)
		}
		f(r)
		if r.started != len(r.ended) {
			t.Errorf("%d jobs were started, and %d have ended", r.started, len(r.ended))
		}
		for _, s := range r.Usage(time.Now()) {
			if s.Wasted > s.Bytes {
				t.Errorf("%s: %v wasted of %v", s.Device, s.Wasted, s.Bytes)
			}
		}
	})
}

func testDevice(i int) Device { return Device{Name: string(rune('a' + i))} }

// Schedule implements Task.
func (r *fakeTask) Schedule() (more bool) {
	for i := range r.whole {
		if !r.added {
			r.Board.AddItems(board.Item{Object: i, To: r.size, Splittable: r.split})
		}
		if r.isOpen(i) && !r.ExpectsDevices() && len(r.bars[i]) == len(r.Workers()) {
			r.failObject(i, r.bars[i].Reasons(r.Workers()))
		}
		more = more || r.isOpen(i)
	}
	r.added = true
	return more
}

func (r *fakeTask) isOpen(object int) bool { return r.whole[object] == 0 && r.failed[object] == nil }

func (r *fakeTask) failObject(object int, err error) {
	r.WithdrawObject(object)
	r.failed[object] = err
}

// StartJob implements Task.
func (r *fakeTask) StartJob(j *Job) JobRunner {
	r.started++
	l := r.lines[j.Worker.BoardIndex()]
	l.jobs++
	return &fakeRunner{Job: j, r: r, line: l}
}

// ReportProgress implements Task.
func (r *fakeTask) ReportProgress(time.Time) { r.reports++ }

// GiveUp implements Task.
func (r *fakeTask) GiveUp() {
	for i := range r.whole {
		if r.isOpen(i) {
			r.failObject(i, r.bars[i].Reasons(r.Workers()))
		}
	}
}

// runAfter runs f after a time, with the lock held.
func (r *fakeTask) runAfter(after time.Duration, f func()) {
	r.Go(func(ctx context.Context) {
		select {
		case <-ctx.Done():
		case <-time.After(after):
			r.Lock()
			defer r.DispatchAndUnlock()
			f()
		}
	})
}

type fakeRunner struct {
	*Job
	r    *fakeTask
	line *fakeLine
}

// Run implements JobRunner.
func (c *fakeRunner) Run(ctx context.Context) error {
	const step = 20 * time.Millisecond
	c.r.Lock()
	wait := c.line.latency
	c.r.Unlock()
	for begun := time.Now(); ; wait = step {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
		c.r.Lock()
		l := *c.line
		c.r.Unlock()
		if l.err != nil {
			return l.err
		}
		if c.AwaitsResponse() && !c.r.Upload {
			c.SetAwaitingResponse(false)
			continue
		}
		n := c.Carried() + unit.Bytes(float64(l.rate)*step.Seconds())
		size := c.End() - c.Item.From
		if l.breaks > 0 && n >= l.breaks && n < size {
			return errLine
		}
		if l.rate > 0 {
			c.SetCarried(max(c.Carried(), min(n, size))) // the item may have been shortened
			c.Touch()
		}
		if n >= size {
			return nil
		}
		if time.Since(begun) > time.Hour {
			return errors.New("for ever")
		}
	}
}

// OnDrop counts drops.
func (c *fakeRunner) OnDrop() { c.r.dropped++ }

// OnEnd implements JobRunner.
func (c *fakeRunner) OnEnd(err error) {
	r, i := c.r, c.Item.Object
	if _, twice := r.ended[c.ID]; twice {
		r.t.Error("a job has ended twice")
	}
	r.ended[c.ID] = err
	before := r.have[i].Size()
	if err == nil || r.split {
		r.have[i].Add(c.Item.From, c.Item.From+c.Counted())
	}
	c.Worker.Wasted += c.Counted() - (r.have[i].Size() - before)
	if r.have[i].Size() == r.size && r.isOpen(i) {
		r.whole[i] = time.Since(r.begun)
		r.WithdrawObject(i)
	}
	switch no := (*Refusal)(nil); {
	case errors.Is(err, ErrDropped), err == nil:
	case errors.As(err, &no) && no.Verdict == Exclude:
		r.Exclude(i, r.bars[i], c.Worker, err)
	case errors.As(err, &no):
		r.Suspend(c.Worker, no.RetryAfter, no)
	default:
		r.Suspend(c.Worker, 0, err)
	}
}
