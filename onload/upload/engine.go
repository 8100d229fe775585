package upload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/onload/board"
)

// Limits.
const (
	mostFails = 3  // of each device before anything was heard: then all is given up
	ahead     = 64 // files whose first step is done before they are sent
	stepsEach = 2  // at once, of a device
	endTime   = 5 * time.Second
)

var (
	errDropped  = errors.New("not needed any more")
	errStalled  = fault.New(fault.Timeout, errors.New("the server does not take anything any more"), "the same command goes on")
	errNoAnswer = fault.New(fault.Timeout, errors.New("the server does not answer"), "the same command goes on")
)

// protocol is how files get to a server. All but items is called by goroutines, for a
// file by one at a time, but for send.
type protocol interface {
	// first is done before a file is sent.
	first(ctx context.Context, d *device, f *file) error
	// items are what is left to be sent of a file.
	items(f *file) []board.Item
	// send sends an item.
	send(ctx context.Context, j *job) error
	// last has the server confirm a file of which all was sent, and sets its proof.
	last(ctx context.Context, d *device, f *file) error
	// abandon removes from the server what there is of a file.
	abandon(ctx context.Context, d *device, f *file)
}

// device is one, and how it does.
type device struct {
	Device
	path          int
	client        *http.Client
	bytes, wasted unit.Bytes
	fails         int
	unheard       int       // of these, the last ones without any answer
	until         time.Time // when it is tried again
	why           error     // it failed the last time, if it did
	down          error     // nil: it is used
	steps         int       // under way
	answered      bool      // once
}

// job is one item on its way.
type job struct {
	board.Job
	file    *file // the loop's
	of      *file // what it was when the job began
	device  *device
	cancel  context.CancelCauseFunc
	sent    meter
	counted unit.Bytes
	dropped bool
	expect  bool
	part    part // S3: what the server called it
	proof   Proof
}

// event is what goroutines tell the loop: that a job ended, or a step of a file.
type event struct {
	job    *job
	device *device
	file   *file
	err    error
}

// engine is a Send. All but the events is the loop's.
type engine struct {
	Config
	ctx     context.Context
	stop    context.CancelCauseFunc
	events  chan event
	running sync.WaitGroup

	how          protocol
	host, scheme string
	user         *url.Userinfo

	board   *board.Board
	devices []*device
	files   []*file
	order   []*file // the same, the largest first
	jobs    map[board.JobID]*job
	begun   time.Time
	moved   time.Time   // when the last byte left, or something was confirmed
	heard   atomic.Bool // a server answered
	taken   bool        // it took a file
	told    time.Time
}

func newEngine(ctx context.Context, cfg Config) (*engine, error) {
	u, err := url.Parse(cfg.Target.URL)
	if err != nil {
		return nil, err
	}
	if cfg.Devices = slices.DeleteFunc(slices.Clone(cfg.Devices), cfg.hides); len(cfg.Devices) == 0 {
		return nil, fault.New(fault.Permission, fmt.Errorf("it is not encrypted: helpers would see what the requests carry (%s)", cfg.Target.Exposed()), "take the https:// address, if there is one")
	}
	e := &engine{Config: cfg, events: make(chan event), board: board.NewBoard(cfg.Scheduler, len(cfg.Devices)),
		jobs: map[board.JobID]*job{}, begun: time.Now(), moved: time.Now(), host: u.Host, scheme: u.Scheme, user: u.User}
	switch cfg.Target.Method {
	case Post:
		e.how = &posting{e}
	case Put:
		e.how = &putting{engine: e, collections: map[string]*collection{}}
	case S3:
		e.how = newS3(e)
	default:
		return nil, fault.New(fault.Usage, fmt.Errorf("no method is called %q", cfg.Target.Method), "")
	}
	for _, d := range cfg.Devices {
		e.know(d)
	}
	for _, f := range cfg.Files {
		if err := e.add(f); err != nil {
			return nil, err
		}
	}
	e.board.Sends()
	e.ctx, e.stop = context.WithCancelCause(ctx)
	return e, nil
}

// add takes in a file. An error is that it cannot be read.
func (e *engine) add(f File) error {
	one, err := newFile(f, e.Target, len(e.files))
	if err != nil {
		return err
	}
	e.files = append(e.files, one)
	at, _ := slices.BinarySearchFunc(e.order, one.size, func(o *file, size unit.Bytes) int { return cmp.Or(cmp.Compare(size, o.size), -1) })
	e.order = slices.Insert(e.order, at, one)
	e.recall(one)
	return nil
}

// more takes in what is to be sent besides.
func (e *engine) more() {
	if e.More == nil {
		return
	}
	for _, f := range e.More() {
		if err := e.add(f); err != nil {
			e.files = append(e.files, &file{File: f, index: len(e.files), state: failed, err: explain(err)})
		}
	}
}

// hides reports whether a device is a helper that requests are kept from, since they carry
// secrets unencrypted.
func (c Config) hides(d Device) bool { return d.Helper && c.Target.Exposed() != "" }

// know adds a device, which has its path on the board.
func (e *engine) know(d Device) {
	client := &http.Client{Transport: d.Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	e.devices = append(e.devices, &device{Device: d, path: len(e.devices), client: client})
	e.board.SetMetered(len(e.devices)-1, d.IsMetered())
	e.board.Up(len(e.devices) - 1)
}

// join takes in a device that was found; not ok is that no more will be.
func (e *engine) join(d Device, ok bool) {
	if ok && e.hides(d) {
		return
	}
	if ok {
		e.board.Join()
		e.know(d)
		return
	}
	e.Joins = nil
	for _, f := range e.files {
		e.judge(f)
	}
}

// tell gives an event to the loop, which takes all until no goroutine is left.
func (e *engine) tell(ev event) { e.events <- ev }

func (e *engine) run() (Result, error) {
	err := e.loop()
	e.close()
	e.report(time.Now())
	e.forget()
	return e.result(), err
}

// loop runs until all files are done or failed.
func (e *engine) loop() error {
	tick := time.NewTicker(e.times.tick)
	defer tick.Stop()
	for {
		e.more()
		e.steps()
		e.carryOut()
		if e.open() == 0 {
			break
		}
		select {
		case <-e.ctx.Done():
			return context.Cause(e.ctx)
		case ev := <-e.events:
			e.handle(ev)
		case d, ok := <-e.Joins:
			e.join(d, ok)
		case <-tick.C:
			e.look(time.Now())
		}
	}
	return e.failure()
}

// open counts the files that are neither done nor failed.
func (e *engine) open() (n int) {
	for _, f := range e.files {
		if f.state != done && f.state != failed {
			n++
		}
	}
	return n
}

// failure is what to say of files that are not there.
func (e *engine) failure() error {
	var all []error
	for _, f := range e.files {
		if f.state == failed {
			all = append(all, fmt.Errorf("%s: %w", f.Path, f.err))
		}
	}
	if len(all) == 1 {
		return all[0]
	}
	return errors.Join(all...)
}

// close ends what still runs. What cannot be gone on with is removed from the server.
func (e *engine) close() {
	e.stop(errDropped)
	ended := make(chan struct{})
	go func() { e.running.Wait(); close(ended) }()
	for open := true; open; {
		select {
		case ev := <-e.events:
			switch {
			case ev.err == nil: // confirmed after all
				e.handle(ev)
			case ev.job != nil:
				e.count(ev.job)
			}
		case <-ended:
			open = false
		}
	}
	if e.Journal == nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(e.ctx), endTime)
		defer cancel()
		for _, f := range e.files {
			if f.state != done && f.state != failed {
				e.how.abandon(ctx, e.devices[0], f)
			}
		}
	}
	for _, d := range e.devices {
		d.client.CloseIdleConnections()
	}
}

// steps begins those that are due.
func (e *engine) steps() {
	under := 0
	for _, f := range e.files {
		if f.state == sending || f.step {
			under++
		}
	}
	now := time.Now()
	for _, f := range e.order {
		if f.step || now.Before(f.until) || f.state != finishing && (f.state != fresh || under >= ahead) {
			continue
		}
		d, more := e.idle(f, now)
		if d == nil {
			continue
		}
		under++
		f.step = true
		d.steps++
		how, limit := e.how.first, e.times.answer
		if more && f.asked < 10 { // another one may be heard sooner
			limit = min(limit, e.times.ask<<f.asked)
		}
		f.asked++
		if f.state == finishing {
			how = e.how.last
		}
		if f.joins() {
			limit = e.times.join
		}
		e.running.Go(func() {
			ctx, cancel := context.WithTimeoutCause(e.ctx, limit, errNoAnswer)
			defer cancel()
			e.tell(event{file: f, device: d, err: how(ctx, d, f)})
		})
	}
}

// idle is a device for a step: rather one that was answered before, and not the one that
// failed last. More tells that there are others.
func (e *engine) idle(f *file, now time.Time) (best *device, more bool) {
	doubts := func(d *device) (n int) {
		if n = d.steps; d == f.last {
			n += 2 * stepsEach
		}
		if !d.answered {
			n += stepsEach
		}
		return n
	}
	usable := 0
	for _, d := range e.devices {
		if d.down != nil || now.Before(d.until) || f.bars[d] != nil {
			continue
		}
		usable++
		if d.steps < stepsEach && (best == nil || doubts(d) < doubts(best)) {
			best = d
		}
	}
	return best, usable > 1
}

// carryOut does what the board orders.
func (e *engine) carryOut() {
	for {
		o, ok := e.board.Next(time.Now())
		if !ok {
			return
		}
		if j := e.jobs[o.Job.ID]; o.Kind == board.Start {
			e.start(o.Job)
		} else if j != nil {
			e.drop(j)
		}
		e.Log.Debug("onload", "order", o.Kind, "device", e.devices[o.Job.Path].Name, "file", o.Job.Item.Object,
			"from", o.Job.Item.From, "to", o.Job.Item.To, "reason", o.Reason.String())
	}
}

// drop ends a job that the board has forgotten.
func (e *engine) drop(j *job) {
	e.count(j)
	j.dropped = true
	j.device.wasted += j.counted
	delete(e.jobs, j.ID)
	j.cancel(errDropped)
	if j.sent.all.Load() && (e.Target.Method == Post || e.Target.Keep) { // and another one sends it
		j.file.lost, j.file.twice = true, e.Target.Method == Post
	}
}

func (e *engine) start(of board.Job) {
	f, d := e.files[of.Item.Object], e.devices[of.Path]
	j := &job{Job: of, file: f, device: d, expect: !e.taken || f.tries > 0}
	if f.lost && e.Target.Method == Post {
		f.twice = true
	}
	then := *f
	j.of = &then
	if e.Target.Method == Post || e.Target.Keep && f.parts.id == "" {
		x := e.entry(f)
		x.Begun, x.Key = true, f.key
		e.note(x)
	}
	ctx, cancel := context.WithCancelCause(e.ctx)
	j.cancel = cancel
	j.sent.stir()
	e.jobs[j.ID] = j
	f.jobs++
	e.board.Progress(of.ID, 0, time.Now()) // no answer is waited for: it is sent at once
	e.running.Go(func() {
		defer cancel(nil)
		err := e.how.send(ctx, j)
		e.tell(event{job: j, device: d, file: f, err: err})
	})
}

func (e *engine) shares(now time.Time) (list []Share) {
	paths := e.board.Paths(now)
	for i, d := range e.devices {
		s := Share{Device: d.Name, Bytes: d.bytes, Wasted: d.wasted, Down: d.down}
		if paths[i].Busy {
			s.Rate = paths[i].Rate
		}
		list = append(list, s)
	}
	return list
}

func (e *engine) report(now time.Time) {
	if e.told = now; e.Progress == nil {
		return
	}
	p := Progress{Devices: e.shares(now)}
	for _, f := range e.files {
		p.Size += f.size
		switch f.state {
		case done:
			p.Done++
			p.Bytes += f.size
		case finishing:
			p.Bytes += f.size
		case sending:
			p.Bytes += f.size - f.unsent()
		}
	}
	for _, j := range e.jobs {
		if !j.Copy {
			p.Bytes += j.counted
		}
	}
	e.Log.Debug("progress", "bytes", int64(p.Bytes), "size", int64(p.Size), "done", p.Done)
	e.Progress(p)
}

func (e *engine) result() Result {
	r := Result{Devices: e.shares(time.Now()), Took: time.Since(e.begun)}
	for _, f := range e.files {
		switch f.state {
		case done:
			r.Files = append(r.Files, f.sent())
		case failed:
			r.Failed = append(r.Failed, Failed{f.Path, f.err.Error(), f.lost, f.err})
		}
	}
	return r
}
