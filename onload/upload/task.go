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
// For one file only sendJobItem runs concurrently.
type protocol interface {
	// prepareFile runs before a file is sent.
	prepareFile(ctx context.Context, d *transfer.Worker, f *file) error
	// remainingItems returns the items of a file that are still to be sent.
	remainingItems(f *file) []board.Item
	// sendJobItem sends the item of a job.
	sendJobItem(ctx context.Context, j *job) error
	// confirmFile asks the server to confirm a file after all its items were sent, and sets its
	// proof.
	confirmFile(ctx context.Context, d *transfer.Worker, f *file) error
	// abortUpload removes an incomplete file from the server.
	abortUpload(ctx context.Context, d *transfer.Worker, f *file)
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

// newUploadTask returns the task and its loop for cfg.
func newUploadTask(cfg Config) (*task, error) {
	t := &task{Config: cfg, journaled: &fileJournal{cfg.Target.ID(), cfg.Known, cfg.Journal, cfg.Log},
		runningSteps: map[*transfer.Worker]int{}, startTime: time.Now()}
	req, err := newRequester(cfg.Target, cfg.UserAgent)
	if err != nil {
		return nil, err
	}
	switch cfg.Target.Method {
	case Post:
		t.protocol = &postProtocol{req}
	case Put:
		t.protocol = &putProtocol{requester: req, collections: map[string]*collection{}}
	case S3:
		t.protocol = newS3Protocol(req, cfg)
	default:
		return nil, fault.New(fault.Usage, fmt.Errorf("unknown upload method %q", cfg.Target.Method),
			"choose one of "+strings.Join(Methods, ", "))
	}
	t.loop, err = transfer.New(transfer.Config{
		Devices: cfg.Devices, NewDevices: cfg.NewDevices, Scheduler: cfg.Scheduler, Upload: true,
		Log: cfg.Log, NewClient: cfg.newDeviceClient,
		Times: cfg.times.Times, ErrStalled: errStalled, ErrNoResponse: errNoResponse})
	if err != nil {
		return nil, err
	}
	req.onResponse = func(w *transfer.Worker) {
		t.loop.Lock()
		defer t.loop.Unlock()
		w.NoteResponse()
	}
	if len(t.loop.Workers()) == 0 {
		return nil, fault.New(fault.Permission, fmt.Errorf("the requests are not encrypted: helpers would see their %s",
			cfg.Target.Exposed()), "use an https:// URL if the server has one")
	}
	for _, f := range cfg.Files {
		if err := t.addUploadFile(f); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// newDeviceClient returns the HTTP client of a device. It returns nil for a helper if the requests
// would show secrets unencrypted.
func (c Config) newDeviceClient(d Device) *http.Client {
	if d.Helper && c.Target.Exposed() != "" {
		return nil
	}
	return &http.Client{Transport: d.Transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// addUploadFile adds a file. It returns an error if the file cannot be read.
func (t *task) addUploadFile(f File) error {
	one, err := newUploadFile(f, t.Target, len(t.files))
	if err != nil {
		return err
	}
	t.files = append(t.files, one)
	at, _ := slices.BinarySearchFunc(t.bySize, one.size,
		func(o *file, size unit.Bytes) int { return cmp.Or(cmp.Compare(size, o.size), -1) })
	t.bySize = slices.Insert(t.bySize, at, one)
	t.journaled.restoreFile(one)
	return nil
}

// addMoreFiles adds the files of Config.MoreFiles.
func (t *task) addMoreFiles() {
	if t.MoreFiles == nil {
		return
	}
	for _, f := range t.MoreFiles() {
		if err := t.addUploadFile(f); err != nil {
			t.files = append(t.files, &file{File: f, index: len(t.files), state: failed, err: classifyUploadError(err)})
		}
	}
}

// runUploadTask runs the loop and returns the result.
func (t *task) runUploadTask(ctx context.Context) (Result, error) {
	defer t.loop.CloseIdleConnections()
	err := t.loop.Run(ctx, t)
	if err == nil {
		err = t.joinFileErrors()
	}
	if t.Journal == nil { // without a journal incomplete uploads cannot be resumed
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonTimeout)
		defer cancel()
		for _, f := range t.files {
			if f.isUnfinished() {
				t.protocol.abortUpload(ctx, t.loop.LocalWorker(), f)
			}
		}
	}
	t.ReportProgress(time.Now())
	t.journaled.clearConfirmed(t.files)
	return t.buildUploadResult(), err
}

// joinFileErrors returns the errors of failed files.
func (t *task) joinFileErrors() error {
	var all []error
	for _, f := range t.files {
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
func (t *task) Schedule() (more bool) {
	t.addMoreFiles()
	for _, f := range t.files {
		// all devices are excluded
		if f.isUnfinished() && !t.loop.ExpectsDevices() && len(f.excluded) == len(t.loop.Workers()) {
			t.failFileUpload(f, f.excluded.Reasons(t.loop.Workers()), true)
		}
		more = more || f.isUnfinished()
	}
	t.startSteps()
	return more
}

// startSteps starts the due steps of files: preparation and confirmation.
func (t *task) startSteps() {
	under, now := 0, time.Now()
	t.loop.IdleTimeoutExtension = 0
	for _, f := range t.files {
		if f.state == sending || f.stepRunning {
			under++
		}
		if f.stepRunning && f.isCompleting() {
			t.loop.IdleTimeoutExtension = t.times.completeTimeout
		}
	}
	for _, f := range t.bySize {
		if f.stepRunning || now.Before(f.retryTime) || f.state != confirming &&
			(f.state != unprepared || under >= maxPrepared) {
			continue
		}
		d, more := t.pickDevice(f, now)
		if d == nil {
			continue
		}
		under++
		f.stepRunning = true
		t.runningSteps[d]++
		runStep, limit := t.protocol.prepareFile, t.times.ResponseTimeout
		if more && f.stepAttempts < 10 { // another device may get a response sooner
			limit = min(limit, t.times.stepTimeout<<f.stepAttempts)
		}
		f.stepAttempts++
		if f.state == confirming {
			runStep = t.protocol.confirmFile
		}
		if f.isCompleting() {
			limit = t.times.completeTimeout
		}
		t.loop.Go(func(ctx context.Context) {
			ctx, cancel := context.WithTimeoutCause(ctx, limit, errNoResponse)
			defer cancel()
			err := runStep(ctx, d, f)
			t.loop.Lock()
			defer t.loop.DispatchAndUnlock()
			t.finishStep(f, d, err)
		})
	}
}

// pickDevice returns a device for a step of a file. It prefers devices that have had a response,
// and avoids the one that failed last. more reports whether other devices are usable.
func (t *task) pickDevice(f *file, now time.Time) (best *transfer.Worker, more bool) {
	doubts := func(d *transfer.Worker) (n int) {
		if n = t.runningSteps[d]; d == f.lastFailed {
			n += 2 * maxSteps
		}
		if !d.HasResponded() {
			n += maxSteps
		}
		return n
	}
	usable := 0
	for _, d := range t.loop.Workers() {
		if !d.MayRetry(now) || f.excluded[d] != nil {
			continue
		}
		usable++
		if t.runningSteps[d] < maxSteps && (best == nil || doubts(d) < doubts(best)) {
			best = d
		}
	}
	return best, usable > 1
}

// StartJob implements transfer.Task.
func (t *task) StartJob(of *transfer.Job) transfer.JobRunner {
	f := t.files[of.Item.Object]
	j := &job{Job: of, task: t, file: f, expectContinue: !t.accepted || f.tries > 0}
	if f.maybeStored && t.Target.Method == Post {
		f.maybeDuplicate = true
	}
	snapshot := *f
	j.snapshot = &snapshot
	if t.Target.Method == Post || t.Target.KeepExisting && f.multipart.uploadID == "" {
		x := t.journaled.newJournalEntry(f)
		x.Begun, x.Key = true, f.idempotencyKey
		t.journaled.saveJournalEntry(x)
	}
	return j
}

// GiveUp implements transfer.Task. Incomplete uploads stay for another run.
func (t *task) GiveUp() {
	for _, f := range t.files {
		err := f.excluded.Reasons(t.loop.Workers())
		if err == nil {
			err = fault.New(fault.Timeout, errors.New("no data can be sent any more"),
				"run the same command again to resume")
		}
		t.failFileUpload(f, err, false)
	}
}

// ReportProgress implements transfer.Task.
func (t *task) ReportProgress(now time.Time) {
	p := Progress{Devices: t.loop.Usage(now)}
	for _, f := range t.files {
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
	for j := range t.loop.Jobs() {
		if !j.IsCopy {
			p.Bytes += j.Counted()
		}
	}
	t.Log.Debug("progress", "bytes", int64(p.Bytes), "size", int64(p.Size), "done", p.Done)
	if t.OnProgress != nil {
		t.OnProgress(p)
	}
}

// buildUploadResult returns what has been sent and what failed.
func (t *task) buildUploadResult() Result {
	r := Result{Devices: t.loop.Usage(time.Now()), Duration: time.Since(t.startTime)}
	for _, f := range t.files {
		switch f.state {
		case done:
			r.Files = append(r.Files, f.buildSentEntry())
		case failed:
			r.Failed = append(r.Failed, Failed{f.Path, f.err.Error(), f.maybeStored, f.err})
		}
	}
	return r
}
