// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"syscall"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/base/userfile"
	"mpbond/onload/board"
	"mpbond/onload/transfer"
)

const (
	maxRedirects = 10
	// maxConcurrency is how many small objects a device fetches at once.
	maxConcurrency = 4
)

// task is the work of one Get. It implements transfer.Task; the lock of the loop guards its fields.
type task struct {
	Config
	loop      *transfer.Loop
	objects   []*object
	conflicts conflicts
	startTime time.Time
}

// newFetchTask returns the task and its loop for cfg.
func newFetchTask(cfg Config) (*task, error) {
	t := &task{Config: cfg, conflicts: conflicts{}, startTime: time.Now()}
	var err error
	t.loop, err = transfer.New(transfer.Config{
		Devices: cfg.Devices, NewDevices: cfg.NewDevices, Scheduler: cfg.Scheduler,
		Concurrency: maxConcurrency, Log: cfg.Log,
		Times: cfg.times.Times, ErrStalled: errStalled, ErrNoResponse: errNoResponse, WarmUp: t.warmUpConnection,
		NewClient: func(d Device) *http.Client {
			return &http.Client{Transport: cfg.Secrets.Transport(d.Transport, d.Helper), Jar: cfg.Secrets.Jar(),
				CheckRedirect: checkRedirect}
		}})
	for i, o := range cfg.Objects {
		one := &object{Object: o, index: i}
		one.clearDevices()
		t.objects = append(t.objects, one)
	}
	return t, err
}

// checkRedirect refuses too many redirects and those from https to http.
func checkRedirect(r *http.Request, via []*http.Request) error {
	if len(via) >= maxRedirects {
		return newFetchRefusal(transfer.Exclude, "more than %d redirects", maxRedirects)
	}
	if via[len(via)-1].URL.Scheme == "https" && r.URL.Scheme != "https" {
		return newFetchRefusal(transfer.Exclude, "the server redirects from https to %s", r.URL.Scheme)
	}
	return nil
}

// runFetchTask resumes part files of earlier runs, runs the loop and returns the result.
func (t *task) runFetchTask(ctx context.Context) (Result, error) {
	defer t.loop.CloseIdleConnections()
	defer closeParts(t.objects)
	for _, o := range t.objects {
		if _, err := userfile.Stat(o.File + journalSuffix); err == nil {
			if err := o.openPartFile(); err != nil {
				return Result{}, classifyFetchError(err)
			}
		}
	}
	if err := t.loop.Run(ctx, t); err != nil {
		return t.buildFetchResult(), err
	}
	t.ReportProgress(time.Now())
	return t.buildFetchResult(), joinObjectErrors(t.objects)
}

// joinObjectErrors returns the errors of failed objects.
func joinObjectErrors(objects []*object) error {
	var all []error
	for _, o := range objects {
		if o.err != nil && len(objects) > 1 {
			all = append(all, fmt.Errorf("%s: %w", o.File, o.err))
		} else if o.err != nil {
			return o.err
		}
	}
	return errors.Join(all...)
}

// closeParts closes the files of incomplete objects and keeps what a later run can resume.
func closeParts(objects []*object) {
	for _, o := range objects {
		if o.part == nil || o.phase == closed {
			continue
		}
		if o.complete != nil && o.complete != o.part {
			o.complete.discardPartFile()
		}
		o.closePartFile()
	}
}

// warmUpConnection contacts the server over a device that has nothing to do at first. So its
// connection and its radio are ready when the size is known.
func (t *task) warmUpConnection(w *transfer.Worker) func(context.Context) error {
	if w.BoardIndex() < len(t.objects) || t.objects[0].versionKnown {
		return nil
	}
	return func(ctx context.Context) error {
		r, err := versionProber{t.UserAgent}.sendProbeRequest(ctx, w, http.MethodHead, t.objects[0].URL)
		if err == nil {
			r.Body.Close()
		}
		if errors.As(err, new(*transfer.Refusal)) {
			return nil // handled when an item is requested
		}
		return err
	}
}

// Schedule implements transfer.Task.
func (t *task) Schedule() (more bool) {
	idle := t.loop.Board.IsDone()
	for _, o := range t.objects {
		t.failIfExcluded(o)
		// at the start; later it repairs a lost item
		if o.complete == nil && o.phase != closed && idle {
			if items := o.missingItems(); len(items) > 0 {
				t.loop.Board.AddItems(items...)
			} else {
				t.markComplete(o, o.part) // complete, but not verified
			}
		}
		if o.complete != nil && o.runningJobs == 0 && o.phase == fetching {
			t.startCheck(o)
		}
		more = more || o.phase != closed
	}
	return more
}

// StartJob implements transfer.Task.
func (t *task) StartJob(of *transfer.Job) transfer.JobRunner {
	o := t.objects[of.Item.Object]
	if o.part == nil {
		if err := o.openPartFile(); err != nil {
			t.failObject(o, err)
			return nil
		}
	}
	j := &job{Job: of, task: t, object: o, url: o.URL, ifRange: o.version.ifRangeValidator(),
		wanted: byteRange{!o.wholeOnly, of.Item.From, of.Item.To}}
	if to := o.finalURL[of.Worker]; to != "" {
		j.url = to
	}
	o.runningJobs++
	return j
}

// GiveUp implements transfer.Task. Objects that are being verified continue.
func (t *task) GiveUp() {
	for _, o := range t.objects {
		err := o.excluded.Reasons(t.loop.Workers())
		if err == nil {
			err = fault.New(fault.Timeout, errors.New("no data arrives any more"),
				"run the same command again to resume")
		}
		if o.complete == nil {
			t.failObject(o, err)
		}
	}
}

// saveJournal writes the journal of an object in the background if that is due.
func (t *task) saveJournal(o *object, now time.Time) {
	p := o.part
	if o.phase == closed || o.complete != nil || p == nil || p.saving || !p.dirty ||
		now.Sub(p.savedAt) < t.times.saveInterval || !o.hasResumableData() {
		return
	}
	p.saving, p.dirty, p.savedAt = true, false, now
	is, have := o.version, slices.Clone(o.received)
	t.loop.Go(func(context.Context) {
		err := p.writeJournal(is, have)
		t.loop.Lock()
		defer t.loop.DispatchAndUnlock()
		if p.saving = false; err != nil {
			t.Log.Warn("download journal not written", "file", o.File, "err", err)
		}
	})
}

// ReportProgress implements transfer.Task. It also starts to write the journals that are due.
func (t *task) ReportProgress(now time.Time) {
	p := Progress{Devices: t.loop.Usage(now)}
	for _, o := range t.objects {
		t.saveJournal(o, now)
		p.Bytes += max(o.received.Size(), o.mostReceived)
		if !o.versionKnown || o.version.Size == board.Unknown || p.Size == board.Unknown {
			p.Size = board.Unknown
		} else {
			p.Size += o.version.Size
		}
		if o.phase == closed && o.err == nil {
			p.Done++
		}
	}
	t.Log.Debug("progress", "bytes", int64(p.Bytes), "size", int64(p.Size), "done", p.Done)
	if t.OnProgress != nil {
		t.OnProgress(p)
	}
}

// buildFetchResult returns what has been fetched and what failed.
func (t *task) buildFetchResult() Result {
	r := Result{Devices: t.loop.Usage(time.Now()), Duration: time.Since(t.startTime)}
	for _, o := range t.objects {
		if o.err != nil {
			r.Failed = append(r.Failed, Failed{o.URL, o.File, o.err.Error(), fault.KindOf(o.err)})
		}
		if o.phase != closed || o.err != nil {
			continue
		}
		n := o.version.Size
		if st, err := userfile.Stat(o.File); err == nil {
			n = unit.Bytes(st.Size())
		}
		r.Objects = append(r.Objects,
			Fetched{o.URL, o.File, n, o.resumed, hex.EncodeToString(o.sha256sum), o.unchecked})
	}
	return r
}

// hintFreeSpace says how to continue after the disk was full.
const hintFreeSpace = "free disk space, then run the same command again to resume"

// classifyFetchError wraps network and disk errors in faults with hints.
func classifyFetchError(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case fault.KindOf(err) != fault.Other, errors.Is(err, context.Canceled):
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fault.New(fault.Limit, err, hintFreeSpace)
	case errors.Is(err, fs.ErrPermission) && errors.As(err, &path):
		return fault.New(fault.Permission, err, "choose a writable file with --output")
	case errors.As(err, &path), errors.As(err, &link):
		return fault.New(fault.Usage, err, "choose another file with --output")
	}
	return transfer.ClassifyNetworkError(err, "run the same command again to resume",
		"check the address and that this device is online")
}
