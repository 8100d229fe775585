package upload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/onload/board"
	"mpbond/onload/transfer"
)

// Limits.
const (
	ahead     = 64 // files whose first step is done before they are sent
	stepsEach = 2  // at once, of a device
	endTime   = 5 * time.Second
)

var (
	errStalled  = fault.New(fault.Timeout, errors.New("the server does not take anything any more"), "the same command goes on")
	errNoAnswer = fault.New(fault.Timeout, errors.New("the server does not answer"), "the same command goes on")
)

// protocol is how files get to a server. All but items is called by goroutines, for a
// file by one at a time, but for send.
type protocol interface {
	// first is done before a file is sent.
	first(ctx context.Context, d *transfer.Worker, f *file) error
	// items are what is left to be sent of a file.
	items(f *file) []board.Item
	// send sends an item.
	send(ctx context.Context, j *job) error
	// last has the server confirm a file of which all was sent, and sets its proof.
	last(ctx context.Context, d *transfer.Worker, f *file) error
	// abandon removes from the server what there is of a file.
	abandon(ctx context.Context, d *transfer.Worker, f *file)
}

// engine is a Send: the task of a loop, whose lock guards its state.
type engine struct {
	Config
	loop  *transfer.Loop
	how   protocol
	notes *notes

	files []*file
	order []*file                  // the same, the largest first
	under map[*transfer.Worker]int // steps that a device has under way
	begun time.Time
	taken bool // the server took a file
}

func newEngine(cfg Config) (*engine, error) {
	e := &engine{Config: cfg, notes: &notes{cfg.Target.ID(), cfg.Known, cfg.Journal, cfg.Log}, under: map[*transfer.Worker]int{}, begun: time.Now()}
	asker, err := newAsker(cfg.Target, cfg.UserAgent)
	if err != nil {
		return nil, err
	}
	switch cfg.Target.Method {
	case Post:
		e.how = &posting{asker}
	case Put:
		e.how = &putting{asker: asker, collections: map[string]*collection{}}
	case S3:
		e.how = newS3(asker, cfg)
	default:
		return nil, fault.New(fault.Usage, fmt.Errorf("no method is called %q", cfg.Target.Method), "")
	}
	e.loop, err = transfer.New(transfer.Config{
		Devices: cfg.Devices, Joins: cfg.Joins, Scheduler: cfg.Scheduler, Sends: true, Log: cfg.Log, Client: cfg.client,
		Times: cfg.times.Times, Stalled: errStalled, NoAnswer: errNoAnswer})
	if err != nil {
		return nil, err
	}
	asker.answered = func(w *transfer.Worker) {
		e.loop.Lock()
		defer e.loop.Unlock()
		w.NoteAnswer()
	}
	if len(e.loop.Workers()) == 0 {
		return nil, fault.New(fault.Permission, fmt.Errorf("it is not encrypted: helpers would see what the requests carry (%s)", cfg.Target.Exposed()), "take the https:// address, if there is one")
	}
	for _, f := range cfg.Files {
		if err := e.add(f); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// client makes the client of a device; nil is a helper that requests are kept from, since
// they carry secrets unencrypted.
func (c Config) client(d Device) *http.Client {
	if d.Helper && c.Target.Exposed() != "" {
		return nil
	}
	return &http.Client{Transport: d.Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
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
	e.notes.recall(one)
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

func (e *engine) run(ctx context.Context) (Result, error) {
	defer e.loop.CloseIdle()
	err := e.loop.Run(ctx, e)
	if err == nil {
		err = e.failure()
	}
	if e.Journal == nil { // nobody can go on with what is not finished
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
		defer cancel()
		for _, f := range e.files {
			if f.isOpen() {
				e.how.abandon(ctx, e.loop.Own(), f)
			}
		}
	}
	e.Report(time.Now())
	e.notes.clear(e.files)
	return e.result(), err
}

// failure returns the errors of files that are not there.
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

// Next implements transfer.Task.
func (e *engine) Next() (more bool) {
	e.more()
	for _, f := range e.files {
		if f.isOpen() && !e.loop.Joining() && len(f.bars) == len(e.loop.Workers()) { // no device may send it
			e.fail(f, f.bars.Reasons(e.loop.Workers()), true)
		}
		more = more || f.isOpen()
	}
	e.steps()
	return more
}

// steps begins those that are due.
func (e *engine) steps() {
	under, now := 0, time.Now()
	e.loop.LongStep = 0
	for _, f := range e.files {
		if f.state == sending || f.step {
			under++
		}
		if f.step && f.joins() {
			e.loop.LongStep = e.times.join
		}
	}
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
		e.under[d]++
		how, limit := e.how.first, e.times.Answer
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
		e.loop.Go(func(ctx context.Context) {
			ctx, cancel := context.WithTimeoutCause(ctx, limit, errNoAnswer)
			defer cancel()
			err := how(ctx, d, f)
			e.loop.Lock()
			defer e.loop.Settle()
			e.stepped(f, d, err)
		})
	}
}

// idle is a device for a step: rather one that was answered before, and not the one that
// failed last. More tells that there are others.
func (e *engine) idle(f *file, now time.Time) (best *transfer.Worker, more bool) {
	doubts := func(d *transfer.Worker) (n int) {
		if n = e.under[d]; d == f.last {
			n += 2 * stepsEach
		}
		if !d.HasAnswered() {
			n += stepsEach
		}
		return n
	}
	usable := 0
	for _, d := range e.loop.Workers() {
		if !d.MayRetry(now) || f.bars[d] != nil {
			continue
		}
		usable++
		if e.under[d] < stepsEach && (best == nil || doubts(d) < doubts(best)) {
			best = d
		}
	}
	return best, usable > 1
}

// Start implements transfer.Task.
func (e *engine) Start(of *transfer.Job) transfer.Carrier {
	f := e.files[of.Item.Object]
	j := &job{Job: of, engine: e, file: f, expect: !e.taken || f.tries > 0}
	if f.lost && e.Target.Method == Post {
		f.twice = true
	}
	then := *f
	j.of = &then
	if e.Target.Method == Post || e.Target.Keep && f.parts.id == "" {
		x := e.notes.entry(f)
		x.Begun, x.Key = true, f.key
		e.notes.put(x)
	}
	return j
}

// GiveUp implements transfer.Task. What is begun stays for another run.
func (e *engine) GiveUp() {
	for _, f := range e.files {
		err := f.bars.Reasons(e.loop.Workers())
		if err == nil {
			err = fault.New(fault.Timeout, errors.New("nothing leaves any more"), "the same command goes on")
		}
		e.fail(f, err, false)
	}
}

// Report implements transfer.Task.
func (e *engine) Report(now time.Time) {
	p := Progress{Devices: e.loop.Shares(now)}
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
	for j := range e.loop.Jobs() {
		if !j.Copy {
			p.Bytes += j.Counted()
		}
	}
	e.Log.Debug("progress", "bytes", int64(p.Bytes), "size", int64(p.Size), "done", p.Done)
	if e.Progress != nil {
		e.Progress(p)
	}
}

func (e *engine) result() Result {
	r := Result{Devices: e.loop.Shares(time.Now()), Took: time.Since(e.begun)}
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
