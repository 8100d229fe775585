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
	redirects = 10
	// mostLanes is how many small objects a device fetches at once.
	mostLanes = 4
)

// engine is a Get: the task of a loop, whose lock guards its state.
type engine struct {
	Config
	loop    *transfer.Loop
	objects []*object
	liars   liars
	begun   time.Time
}

func newEngine(cfg Config) (*engine, error) {
	e := &engine{Config: cfg, liars: liars{}, begun: time.Now()}
	var err error
	e.loop, err = transfer.New(transfer.Config{
		Devices: cfg.Devices, Joins: cfg.Joins, Scheduler: cfg.Scheduler, Lanes: mostLanes, Log: cfg.Log,
		Times: cfg.times.Times, Stalled: errStalled, NoAnswer: errNoAnswer, Warm: e.warm,
		Client: func(d Device) *http.Client {
			return &http.Client{Transport: cfg.Secrets.Transport(d.Transport, d.Helper), Jar: cfg.Secrets.Jar(), CheckRedirect: follow}
		}})
	for i, o := range cfg.Objects {
		one := &object{Object: o, index: i}
		one.forget()
		e.objects = append(e.objects, one)
	}
	return e, err
}

// follow tells which redirects are followed: not from what is encrypted to what is not.
func follow(r *http.Request, via []*http.Request) error {
	if len(via) >= redirects {
		return refuse(transfer.Exclude, "over %d redirects", redirects)
	}
	if via[len(via)-1].URL.Scheme == "https" && r.URL.Scheme != "https" {
		return refuse(transfer.Exclude, "the server leads from https to %s", r.URL.Scheme)
	}
	return nil
}

func (e *engine) run(ctx context.Context) (Result, error) {
	defer e.loop.CloseIdle()
	defer closeParts(e.objects)
	for _, o := range e.objects {
		if _, err := userfile.Stat(o.File + journalSuffix); err == nil {
			if err := o.open(); err != nil {
				return Result{}, explain(err)
			}
		}
	}
	if err := e.loop.Run(ctx, e); err != nil {
		return e.result(), err
	}
	e.Report(time.Now())
	return e.result(), failure(e.objects)
}

// failure returns the errors of objects that are not there.
func failure(objects []*object) error {
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

// closeParts closes the files of what is not whole, and keeps what the next try can use.
func closeParts(objects []*object) {
	for _, o := range objects {
		if o.part == nil || o.phase == closed {
			continue
		}
		if o.right != nil && o.right != o.part {
			o.right.discard()
		}
		o.leave()
	}
}

// warm has a device that has nothing to do at first meet the server, so that its connection,
// and its radio, is ready when the size is known.
func (e *engine) warm(w *transfer.Worker) func(context.Context) error {
	if w.Path() < len(e.objects) || e.objects[0].known {
		return nil
	}
	return func(ctx context.Context) error {
		r, err := inquirer{e.UserAgent}.head(ctx, w, http.MethodHead, e.objects[0].URL)
		if err == nil {
			r.Body.Close()
		}
		if errors.As(err, new(*transfer.Refusal)) {
			return nil // it is seen later
		}
		return err
	}
}

// Next implements transfer.Task.
func (e *engine) Next() (more bool) {
	idle := e.loop.Board.Done()
	for _, o := range e.objects {
		e.judge(o)
		if o.right == nil && o.phase != closed && idle { // at first, and nothing may be forgotten
			if items := o.items(); len(items) > 0 {
				e.loop.Board.Add(items...)
			} else {
				e.collected(o, o.part) // only its check is missing
			}
		}
		if o.right != nil && o.jobs == 0 && o.phase == fetching {
			e.check(o)
		}
		more = more || o.phase != closed
	}
	return more
}

// Start implements transfer.Task.
func (e *engine) Start(of *transfer.Job) transfer.Carrier {
	o := e.objects[of.Item.Object]
	if o.part == nil {
		if err := o.open(); err != nil {
			e.fail(o, err)
			return nil
		}
	}
	j := &job{Job: of, engine: e, object: o, url: o.URL, guard: o.is.validator(), want: wanted{!o.whole, of.Item.From, of.Item.To}}
	if to := o.final[of.Worker]; to != "" {
		j.url = to
	}
	o.jobs++
	return j
}

// GiveUp implements transfer.Task. What is being checked goes on.
func (e *engine) GiveUp() {
	for _, o := range e.objects {
		err := o.bars.Reasons(e.loop.Workers())
		if err == nil {
			err = fault.New(fault.Timeout, errors.New("nothing comes any more"), "what is there is kept: the same command goes on")
		}
		if o.right == nil {
			e.fail(o, err)
		}
	}
}

// save has the journal of an object written, if that is due.
func (e *engine) save(o *object, now time.Time) {
	p := o.part
	if o.phase == closed || o.right != nil || p == nil || p.saving || !p.dirty || now.Sub(p.saved) < e.times.save || !o.isResumable() {
		return
	}
	p.saving, p.dirty, p.saved = true, false, now
	is, have := o.is, slices.Clone(o.have)
	e.loop.Go(func(context.Context) {
		err := p.save(is, have)
		e.loop.Lock()
		defer e.loop.Settle()
		if p.saving = false; err != nil {
			e.Log.Warn("the journal of a download could not be written", "file", o.File, "err", err)
		}
	})
}

// Report implements transfer.Task.
func (e *engine) Report(now time.Time) {
	p := Progress{Devices: e.loop.Shares(now)}
	for _, o := range e.objects {
		e.save(o, now)
		p.Bytes += max(o.have.Size(), o.most)
		if !o.known || o.is.Size == board.Unknown || p.Size == board.Unknown {
			p.Size = board.Unknown
		} else {
			p.Size += o.is.Size
		}
		if o.phase == closed && o.err == nil {
			p.Done++
		}
	}
	e.Log.Debug("progress", "bytes", int64(p.Bytes), "size", int64(p.Size), "done", p.Done)
	if e.Progress != nil {
		e.Progress(p)
	}
}

func (e *engine) result() Result {
	r := Result{Devices: e.loop.Shares(time.Now()), Took: time.Since(e.begun)}
	for _, o := range e.objects {
		if o.err != nil {
			r.Failed = append(r.Failed, Failed{o.URL, o.File, o.err.Error(), fault.KindOf(o.err)})
		}
		if o.phase != closed || o.err != nil {
			continue
		}
		n := o.is.Size
		if st, err := userfile.Stat(o.File); err == nil {
			n = unit.Bytes(st.Size())
		}
		r.Objects = append(r.Objects, Got{o.URL, o.File, n, o.resumed, hex.EncodeToString(o.sum), o.unchecked})
	}
	return r
}

const makeRoom = "make room: what is there is kept, and the same command goes on"

// explain gives errors of networks and disks a kind.
func explain(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case fault.KindOf(err) != fault.Other, errors.Is(err, context.Canceled):
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fault.New(fault.Limit, err, makeRoom)
	case errors.Is(err, fs.ErrPermission) && errors.As(err, &path):
		return fault.New(fault.Permission, err, "name a file that may be written with --output")
	case errors.As(err, &path), errors.As(err, &link):
		return fault.New(fault.Usage, err, "name another file, where one can be, with --output")
	}
	return transfer.Explain(err, "what is there is kept: the same command goes on", "is this device online, and the address right?")
}
