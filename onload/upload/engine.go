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
	maxPrepared    = 64 // files whose first step is done before they are sent
	maxSteps       = 2  // at once, of a device
	abandonTimeout = 5 * time.Second
)

var (
	errStalled    = fault.New(fault.Timeout, errors.New("the server does not take anything any more"), "the same command goes on")
	errNoResponse = fault.New(fault.Timeout, errors.New("the server does not answer"), "the same command goes on")
)

// protocol is how files get to a server. All but items is called by goroutines, for a
// file by one at a time, but for send.
type protocol interface {
	// prepareFile is done before a file is sent.
	prepareFile(ctx context.Context, d *transfer.Worker, f *file) error
	// remainingItems are what is left to be sent of a file.
	remainingItems(f *file) []board.Item
	// sendItem sends an item.
	sendItem(ctx context.Context, j *job) error
	// confirmFile has the server confirm a file of which all was sent, and sets its proof.
	confirmFile(ctx context.Context, d *transfer.Worker, f *file) error
	// abandonFile removes from the server what there is of a file.
	abandonFile(ctx context.Context, d *transfer.Worker, f *file)
}

// task is a Send: the task of a loop, whose lock guards its state.
type task struct {
	Config
	loop      *transfer.Loop
	protocol  protocol
	journaled *fileJournal

	files        []*file
	bySize       []*file                  // the same, the largest first
	runningSteps map[*transfer.Worker]int // steps that a device has under way
	startTime    time.Time
	accepted     bool // the server took a file
}

func newTask(cfg Config) (*task, error) {
	e := &task{Config: cfg, journaled: &fileJournal{cfg.Target.ID(), cfg.Known, cfg.Journal, cfg.Log}, runningSteps: map[*transfer.Worker]int{}, startTime: time.Now()}
	req, err := newRequester(cfg.Target, cfg.UserAgent)
	if err != nil {
		return nil, err
	}
	switch cfg.Target.Method {
	case Post:
		e.protocol = &postProtocol{req}
	case Put:
		e.protocol = &putProtocol{requester: req, collections: map[string]*collection{}}
	case S3:
		e.protocol = newS3(req, cfg)
	default:
		return nil, fault.New(fault.Usage, fmt.Errorf("no method is called %q", cfg.Target.Method), "")
	}
	e.loop, err = transfer.New(transfer.Config{
		Devices: cfg.Devices, NewDevices: cfg.NewDevices, Scheduler: cfg.Scheduler, Upload: true, Log: cfg.Log, NewClient: cfg.newClient,
		Times: cfg.times.Times, ErrStalled: errStalled, ErrNoResponse: errNoResponse})
	if err != nil {
		return nil, err
	}
	req.onResponse = func(w *transfer.Worker) {
		e.loop.Lock()
		defer e.loop.Unlock()
		w.NoteResponse()
	}
	if len(e.loop.Workers()) == 0 {
		return nil, fault.New(fault.Permission, fmt.Errorf("it is not encrypted: helpers would see what the requests carry (%s)", cfg.Target.Exposed()), "take the https:// address, if there is one")
	}
	for _, f := range cfg.Files {
		if err := e.addFile(f); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// newClient makes the client of a device; nil is a helper that requests are kept from, since
// they carry secrets unencrypted.
func (c Config) newClient(d Device) *http.Client {
	if d.Helper && c.Target.Exposed() != "" {
		return nil
	}
	return &http.Client{Transport: d.Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// addFile takes in a file. An error is that it cannot be read.
func (e *task) addFile(f File) error {
	one, err := newFile(f, e.Target, len(e.files))
	if err != nil {
		return err
	}
	e.files = append(e.files, one)
	at, _ := slices.BinarySearchFunc(e.bySize, one.size, func(o *file, size unit.Bytes) int { return cmp.Or(cmp.Compare(size, o.size), -1) })
	e.bySize = slices.Insert(e.bySize, at, one)
	e.journaled.restoreFile(one)
	return nil
}

// addMoreFiles takes in what is to be sent besides.
func (e *task) addMoreFiles() {
	if e.MoreFiles == nil {
		return
	}
	for _, f := range e.MoreFiles() {
		if err := e.addFile(f); err != nil {
			e.files = append(e.files, &file{File: f, index: len(e.files), state: failed, err: classifyError(err)})
		}
	}
}

func (e *task) run(ctx context.Context) (Result, error) {
	defer e.loop.CloseIdleConnections()
	err := e.loop.Run(ctx, e)
	if err == nil {
		err = e.joinErrors()
	}
	if e.Journal == nil { // nobody can go on with what is not finished
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonTimeout)
		defer cancel()
		for _, f := range e.files {
			if f.isOpen() {
				e.protocol.abandonFile(ctx, e.loop.LocalWorker(), f)
			}
		}
	}
	e.ReportProgress(time.Now())
	e.journaled.clearConfirmed(e.files)
	return e.buildResult(), err
}

// joinErrors returns the errors of files that are not there.
func (e *task) joinErrors() error {
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

// Schedule implements transfer.Task.
func (e *task) Schedule() (more bool) {
	e.addMoreFiles()
	for _, f := range e.files {
		if f.isOpen() && !e.loop.ExpectsDevices() && len(f.excluded) == len(e.loop.Workers()) { // no device may send it
			e.failFile(f, f.excluded.Reasons(e.loop.Workers()), true)
		}
		more = more || f.isOpen()
	}
	e.startSteps()
	return more
}

// startSteps begins those that are due.
func (e *task) startSteps() {
	under, now := 0, time.Now()
	e.loop.PatienceExtension = 0
	for _, f := range e.files {
		if f.state == sending || f.stepRunning {
			under++
		}
		if f.stepRunning && f.isCompleting() {
			e.loop.PatienceExtension = e.times.completeTimeout
		}
	}
	for _, f := range e.bySize {
		if f.stepRunning || now.Before(f.retryTime) || f.state != confirming && (f.state != unprepared || under >= maxPrepared) {
			continue
		}
		d, more := e.pickDevice(f, now)
		if d == nil {
			continue
		}
		under++
		f.stepRunning = true
		e.runningSteps[d]++
		how, limit := e.protocol.prepareFile, e.times.ResponseTimeout
		if more && f.stepAttempts < 10 { // another one may be heard sooner
			limit = min(limit, e.times.stepTimeout<<f.stepAttempts)
		}
		f.stepAttempts++
		if f.state == confirming {
			how = e.protocol.confirmFile
		}
		if f.isCompleting() {
			limit = e.times.completeTimeout
		}
		e.loop.Go(func(ctx context.Context) {
			ctx, cancel := context.WithTimeoutCause(ctx, limit, errNoResponse)
			defer cancel()
			err := how(ctx, d, f)
			e.loop.Lock()
			defer e.loop.DispatchAndUnlock()
			e.finishStep(f, d, err)
		})
	}
}

// pickDevice is a device for a step: rather one that was answered before, and not the one that
// failed last. More tells that there are others.
func (e *task) pickDevice(f *file, now time.Time) (best *transfer.Worker, more bool) {
	doubts := func(d *transfer.Worker) (n int) {
		if n = e.runningSteps[d]; d == f.lastFailed {
			n += 2 * maxSteps
		}
		if !d.HasResponded() {
			n += maxSteps
		}
		return n
	}
	usable := 0
	for _, d := range e.loop.Workers() {
		if !d.MayRetry(now) || f.excluded[d] != nil {
			continue
		}
		usable++
		if e.runningSteps[d] < maxSteps && (best == nil || doubts(d) < doubts(best)) {
			best = d
		}
	}
	return best, usable > 1
}

// StartJob implements transfer.Task.
func (e *task) StartJob(of *transfer.Job) transfer.Carrier {
	f := e.files[of.Item.Object]
	j := &job{Job: of, task: e, file: f, expectContinue: !e.accepted || f.tries > 0}
	if f.maybeStored && e.Target.Method == Post {
		f.maybeDuplicate = true
	}
	then := *f
	j.snapshot = &then
	if e.Target.Method == Post || e.Target.KeepExisting && f.multipart.uploadID == "" {
		x := e.journaled.newEntry(f)
		x.Begun, x.Key = true, f.idempotencyKey
		e.journaled.saveEntry(x)
	}
	return j
}

// GiveUp implements transfer.Task. What is begun stays for another run.
func (e *task) GiveUp() {
	for _, f := range e.files {
		err := f.excluded.Reasons(e.loop.Workers())
		if err == nil {
			err = fault.New(fault.Timeout, errors.New("nothing leaves any more"), "the same command goes on")
		}
		e.failFile(f, err, false)
	}
}

// ReportProgress implements transfer.Task.
func (e *task) ReportProgress(now time.Time) {
	p := Progress{Devices: e.loop.Usage(now)}
	for _, f := range e.files {
		p.Size += f.size
		switch f.state {
		case done:
			p.Done++
			p.Bytes += f.size
		case confirming:
			p.Bytes += f.size
		case sending:
			p.Bytes += f.size - f.unconfirmedBytes()
		}
	}
	for j := range e.loop.Jobs() {
		if !j.IsCopy {
			p.Bytes += j.Counted()
		}
	}
	e.Log.Debug("progress", "bytes", int64(p.Bytes), "size", int64(p.Size), "done", p.Done)
	if e.OnProgress != nil {
		e.OnProgress(p)
	}
}

func (e *task) buildResult() Result {
	r := Result{Devices: e.loop.Usage(time.Now()), Duration: time.Since(e.startTime)}
	for _, f := range e.files {
		switch f.state {
		case done:
			r.Files = append(r.Files, f.sentInfo())
		case failed:
			r.Failed = append(r.Failed, Failed{f.Path, f.err.Error(), f.maybeStored, f.err})
		}
	}
	return r
}
