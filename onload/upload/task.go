// SPDX-License-Identifier: Apache-2.0

package upload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/onload/board"
	"mpbond/onload/transfer"
)

// Limits.
const (
	maxPrepared    = 64              // files that are prepared or being sent
	maxSteps       = 2               // steps under way per device
	abandonTimeout = 5 * time.Second // bounds the removal of an incomplete upload from the server
)

var (
	errStalled = fault.New(fault.Timeout, errors.New("the server accepts no more data"),
		"run the same command again to resume")
	errNoResponse = fault.New(fault.Timeout, errors.New("the server does not respond"),
		"run the same command again to resume")
)

// protocol is a way to upload files. All methods but remainingItems run in goroutines of their own.
// For one file only sendItem runs concurrently.
type protocol interface {
	// prepareFile runs before a file is sent.
	prepareFile(ctx context.Context, d *transfer.Worker, f *file) error
	// remainingItems returns the items of a file that are still to be sent.
	remainingItems(f *file) []board.Item
	// sendItem sends the item of a job.
	sendItem(ctx context.Context, j *job) error
	// confirmFile asks the server to confirm a file after all its items were sent, and sets its
	// proof.
	confirmFile(ctx context.Context, d *transfer.Worker, f *file) error
	// abandonFile removes an incomplete file from the server.
	abandonFile(ctx context.Context, d *transfer.Worker, f *file)
}

// task is the work of one Send. It implements transfer.Task; the lock of the loop guards its
// fields.
type task struct {
	Config
	loop      *transfer.Loop
	protocol  protocol
	journaled *fileJournal

	files        []*file
	bySize       []*file                  // files, the largest first
	runningSteps map[*transfer.Worker]int // steps under way per device
	startTime    time.Time
	accepted     bool // the server has accepted an item
}

// newTask returns the task and its loop for cfg.
func newTask(cfg Config) (*task, error) {
	e := &task{Config: cfg, journaled: &fileJournal{cfg.Target.ID(), cfg.Known, cfg.Journal, cfg.Log},
		runningSteps: map[*transfer.Worker]int{}, startTime: time.Now()}
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
		return nil, fault.New(fault.Usage, fmt.Errorf("unknown upload method %q", cfg.Target.Method),
			"choose one of "+strings.Join(Methods, ", "))
	}
	e.loop, err = transfer.New(transfer.Config{
		Devices: cfg.Devices, NewDevices: cfg.NewDevices, Scheduler: cfg.Scheduler, Upload: true,
		Log: cfg.Log, NewClient: cfg.newClient,
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
		return nil, fault.New(fault.Permission, fmt.Errorf("the requests are not encrypted: helpers would see their %s",
			cfg.Target.Exposed()), "use an https:// URL if the server has one")
	}
	for _, f := range cfg.Files {
		if err := e.addFile(f); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// newClient returns the HTTP client of a device. It returns nil for a helper if the requests would
// show secrets unencrypted.
func (c Config) newClient(d Device) *http.Client {
	if d.Helper && c.Target.Exposed() != "" {
		return nil
	}
	return &http.Client{Transport: d.Transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// addFile adds a file. It returns an error if the file cannot be read.
func (e *task) addFile(f File) error {
	one, err := newFile(f, e.Target, len(e.files))
	if err != nil {
		return err
	}
	e.files = append(e.files, one)
	at, _ := slices.BinarySearchFunc(e.bySize, one.size,
		func(o *file, size unit.Bytes) int { return cmp.Or(cmp.Compare(size, o.size), -1) })
	e.bySize = slices.Insert(e.bySize, at, one)
	e.journaled.restoreFile(one)
	return nil
}

// addMoreFiles adds the files of Config.MoreFiles.
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

// run runs the loop and returns the result.
func (e *task) run(ctx context.Context) (Result, error) {
	defer e.loop.CloseIdleConnections()
	err := e.loop.Run(ctx, e)
	if err == nil {
		err = e.joinErrors()
	}
	if e.Journal == nil { // without a journal incomplete uploads cannot be resumed
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

// joinErrors returns the errors of failed files.
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
		// all devices are excluded
		if f.isOpen() && !e.loop.ExpectsDevices() && len(f.excluded) == len(e.loop.Workers()) {
			e.failFile(f, f.excluded.Reasons(e.loop.Workers()), true)
		}
		more = more || f.isOpen()
	}
	e.startSteps()
	return more
}

// startSteps starts the due steps of files: preparation and confirmation.
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
		if f.stepRunning || now.Before(f.retryTime) || f.state != confirming &&
			(f.state != unprepared || under >= maxPrepared) {
			continue
		}
		d, more := e.pickDevice(f, now)
		if d == nil {
			continue
		}
		under++
		f.stepRunning = true
		e.runningSteps[d]++
		runStep, limit := e.protocol.prepareFile, e.times.ResponseTimeout
		if more && f.stepAttempts < 10 { // another device may get a response sooner
			limit = min(limit, e.times.stepTimeout<<f.stepAttempts)
		}
		f.stepAttempts++
		if f.state == confirming {
			runStep = e.protocol.confirmFile
		}
		if f.isCompleting() {
			limit = e.times.completeTimeout
		}
		e.loop.Go(func(ctx context.Context) {
			ctx, cancel := context.WithTimeoutCause(ctx, limit, errNoResponse)
			defer cancel()
			err := runStep(ctx, d, f)
			e.loop.Lock()
			defer e.loop.DispatchAndUnlock()
			e.finishStep(f, d, err)
		})
	}
}

// pickDevice returns a device for a step of a file. It prefers devices that have had a response,
// and avoids the one that failed last. more reports whether other devices are usable.
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
	snapshot := *f
	j.snapshot = &snapshot
	if e.Target.Method == Post || e.Target.KeepExisting && f.multipart.uploadID == "" {
		x := e.journaled.newEntry(f)
		x.Begun, x.Key = true, f.idempotencyKey
		e.journaled.saveEntry(x)
	}
	return j
}

// GiveUp implements transfer.Task. Incomplete uploads stay for another run.
func (e *task) GiveUp() {
	for _, f := range e.files {
		err := f.excluded.Reasons(e.loop.Workers())
		if err == nil {
			err = fault.New(fault.Timeout, errors.New("no data can be sent any more"),
				"run the same command again to resume")
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

// buildResult returns what has been sent and what failed.
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
