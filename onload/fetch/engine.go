package fetch

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/base/userfile"
	"mpbond/onload/board"
)

// Limits of who cannot be reached: as often as this before anything came, all is given
// up, and a device that brings so much is in order again.
const (
	mostFails = 3
	goodBytes = 64 * unit.KB
	redirects = 10
	warmTime  = 5 * time.Second
	// mostLanes is how many small objects a device fetches at once.
	mostLanes = 4
)

// device is one, and how it does.
type device struct {
	Device
	path          int
	client        *http.Client
	bytes, wasted unit.Bytes
	fails         int
	unheard       int       // of these, the last ones without any answer
	until         time.Time // when it is tried again
	down          error     // nil: it is used
	why           error     // it failed the last time, if it did
	warming       bool
}

// eventKind is what goroutines tell the loop.
type eventKind uint8

const (
	answered eventKind = iota // a job has an answer, and waits to be told where to write
	ended                     // a job has ended
	warmed                    // a device has met the server
	checked                   // an object is checked, and has its name
	saved                     // an object's journal is written
	compared                  // another device has told what an object is
)

type event struct {
	kind   eventKind
	job    *job
	device *device
	object *object
	answer answer
	url    string
	second second
	err    error
}

// engine is a Get. All but the events is the loop's.
type engine struct {
	Config
	ctx     context.Context
	stop    context.CancelCauseFunc
	events  chan event
	running sync.WaitGroup

	board    *board.Board
	devices  []*device
	objects  []*object
	jobs     map[board.JobID]*job
	liars    map[string]map[*device]error // who is given other objects, of which host
	open     int                          // objects
	begun    time.Time                    // of it all
	lastByte time.Time
	any      bool // something came
	told     time.Time
}

func newEngine(ctx context.Context, cfg Config) *engine {
	ctx, stop := context.WithCancelCause(ctx)
	e := &engine{Config: cfg, ctx: ctx, stop: stop, events: make(chan event), board: board.NewBoard(cfg.Scheduler, len(cfg.Devices)),
		jobs: map[board.JobID]*job{}, liars: map[string]map[*device]error{}, begun: time.Now(), lastByte: time.Now()}
	e.board.SetLanes(mostLanes)
	for _, d := range cfg.Devices {
		e.know(d)
	}
	for i, o := range cfg.Objects {
		one := &object{Object: o, index: i}
		one.forget()
		e.objects = append(e.objects, one)
	}
	e.open = len(e.objects)
	return e
}

// know adds a device, which is down.
func (e *engine) know(d Device) *device {
	one := &device{Device: d, path: len(e.devices), client: &http.Client{Transport: e.Secrets.Transport(d.Transport, d.Helper), Jar: e.Secrets.Jar(), CheckRedirect: follow}}
	e.devices = append(e.devices, one)
	e.board.SetMetered(one.path, d.IsMetered())
	return one
}

// join takes in a device that was found; not ok is that no more will be.
func (e *engine) join(d Device, ok bool) {
	if ok {
		e.board.Join()
		e.ready(e.know(d))
		return
	}
	e.Joins = nil
	for _, o := range e.objects {
		e.judge(o)
	}
}

// follow tells which redirects are followed: not from what is encrypted to what is not.
func follow(r *http.Request, via []*http.Request) error {
	if len(via) >= redirects {
		return refuse(barred, "over %d redirects", redirects)
	}
	if via[len(via)-1].URL.Scheme == "https" && r.URL.Scheme != "https" {
		return refuse(barred, "the server leads from https to %s", r.URL.Scheme)
	}
	return nil
}

// tell gives an event to the loop, which takes all until no goroutine is left.
func (e *engine) tell(ev event) { e.events <- ev }

func (e *engine) run() (Result, error) {
	defer e.close()
	for _, o := range e.objects {
		if _, err := userfile.Stat(o.File + journalSuffix); err == nil {
			if err := o.open(); err != nil {
				return Result{}, explain(err)
			}
		}
		if items := o.items(); len(items) > 0 {
			e.board.Add(items...)
		} else {
			e.finished(o, o.part) // only its check is missing
		}
	}
	for _, d := range e.devices {
		e.ready(d)
	}
	tick := time.NewTicker(e.times.tick)
	defer tick.Stop()
	for e.open > 0 {
		e.carryOut()
		if e.open == 0 {
			break
		}
		select {
		case <-e.ctx.Done():
			return e.result(), context.Cause(e.ctx)
		case ev := <-e.events:
			e.handle(ev)
		case d, ok := <-e.Joins:
			e.join(d, ok)
		case <-tick.C:
			e.look(time.Now())
		}
	}
	e.report(time.Now())
	return e.result(), e.failure()
}

// failure is what to say of objects that are not there.
func (e *engine) failure() error {
	var all []error
	for _, o := range e.objects {
		if o.err != nil && len(e.objects) > 1 {
			all = append(all, fmt.Errorf("%s: %w", o.File, o.err))
		} else if o.err != nil {
			return o.err
		}
	}
	return errors.Join(all...)
}

// close ends what still runs, and keeps what can be gone on with.
func (e *engine) close() {
	e.stop(errDropped)
	done := make(chan struct{})
	go func() { e.running.Wait(); close(done) }()
	for open := true; open; {
		select {
		case ev := <-e.events:
			switch ev.kind {
			case ended:
				e.count(ev.job)
				e.putAway(ev.job)
			case checked:
				e.handle(ev)
			}
		case <-done:
			open = false
		}
	}
	for _, o := range e.objects {
		if o.part == nil || o.closed {
			continue
		}
		if o.right != nil && o.right != o.part {
			o.right.discard()
		}
		e.leave(o)
	}
	for _, d := range e.devices {
		d.client.CloseIdleConnections()
	}
}

// worth tells whether what there is of an object can be gone on with.
func (e *engine) worth(o *object) bool {
	return o.known && !o.whole && len(o.have) > 0 && (o.is.validator() != "" || o.SHA256 != nil)
}

// leave closes the part file of an object, for the next try if that is worth it. What an
// older journal says is still true where no new one can be written.
func (e *engine) leave(o *object) {
	if o.part.old { // of another object, and still there
	} else if !e.worth(o) || (o.dirty || o.saving) && o.part.save(o.is, o.have) != nil && !o.part.kept() {
		o.part.discard()
	}
	o.part.f.Close()
}

// putAway removes the file of a job that fetched an object whole, and did not win.
func (e *engine) putAway(j *job) {
	if j.part != nil && j.part.temp && j.part != j.object.right {
		j.part.discard()
	}
}

// ready has a device begin. One that has nothing to do at first meets the server before,
// so that its connection, and its radio, is ready when the size is known.
func (e *engine) ready(d *device) {
	if d.path < len(e.objects) || e.objects[0].known {
		e.board.Up(d.path)
		return
	}
	d.warming = true
	e.running.Go(func() {
		ctx, cancel := context.WithTimeout(e.ctx, warmTime)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodHead, e.objects[0].URL, nil)
		if err == nil {
			(&job{agent: e.UserAgent}).header(req.Header)
			var r *http.Response
			if r, err = d.client.Do(req); err == nil {
				r.Body.Close()
			}
		}
		if ctx.Err() != nil || errors.As(err, new(*refusal)) {
			err = nil // there are servers that do not know HEAD, and what is refused is seen later
		}
		e.tell(event{kind: warmed, device: d, err: err})
	})
}

// carryOut does what the board orders.
func (e *engine) carryOut() {
	for {
		o, ok := e.board.Next(time.Now())
		if !ok {
			break
		}
		switch j := e.jobs[o.Job.ID]; {
		case o.Kind == board.Start:
			e.start(o.Job)
		case j == nil:
		case o.Kind == board.Shorten:
			j.end.Store(int64(o.Job.Item.To))
		default:
			e.drop(j)
		}
		e.Log.Debug("onload", "order", o.Kind, "device", e.devices[o.Job.Path].Name, "object", o.Job.Item.Object,
			"from", o.Job.Item.From, "to", o.Job.Item.To, "reason", o.Reason.String())
	}
	if e.board.Done() {
		for _, o := range e.objects { // nothing may be forgotten
			if o.closed || o.right != nil {
				continue
			}
			if items := o.items(); len(items) > 0 {
				e.board.Add(items...)
			} else {
				e.finished(o, o.part)
			}
		}
	}
}

func (e *engine) drop(j *job) {
	j.dropped = true
	delete(e.jobs, j.ID)
	j.cancel(errDropped)
}

func (e *engine) start(of board.Job) {
	o, d := e.objects[of.Item.Object], e.devices[of.Path]
	if o.part == nil {
		if err := o.open(); err != nil {
			e.fail(o, err)
			return
		}
	}
	j := &job{Job: of, object: o, device: d, agent: e.UserAgent, goOn: make(chan *part, 1), url: o.URL, guard: o.is.validator(),
		want: wanted{!o.whole, of.Item.From, of.Item.To}}
	if to := o.final[d]; to != "" {
		j.url = to
	}
	ctx, cancel := context.WithCancelCause(e.ctx)
	j.cancel = cancel
	j.at.Store(int64(of.Item.From))
	j.end.Store(int64(of.Item.To))
	j.stir()
	e.jobs[j.ID] = j
	o.jobs++
	e.running.Go(func() { j.run(ctx, e.tell) })
}

// look does what time asks for.
func (e *engine) look(now time.Time) {
	for _, j := range e.jobs {
		e.count(j)
		quiet := now.Sub(time.Unix(0, j.stirred.Load()))
		switch {
		case j.answered.Load() && quiet > e.times.stall:
			j.cancel(errStalled)
		case !j.answered.Load() && quiet > e.times.answer:
			j.cancel(errNoAnswer)
		}
	}
	failing, back := 0, now.Add(24*time.Hour)
	for _, d := range e.devices {
		e.board.SetMetered(d.path, d.IsMetered())
		if d.down != nil && now.After(d.until) {
			d.down = nil
			e.board.Up(d.path)
		}
		if d.down == nil {
			back = now
		} else {
			back = now.Add(min(back.Sub(now), d.until.Sub(now)))
		}
		if d.unheard >= mostFails {
			failing++
		}
	}
	if limit := e.lastByte.Add(e.times.patience); now.After(limit) || e.Joins == nil && (back.After(limit) || !e.any && failing == len(e.devices)) {
		e.giveUp(back.Sub(now))
		return
	}
	e.save(now)
	if now.Sub(e.told) >= 2*e.times.tick {
		e.report(now)
	}
}

// giveUp ends all that is open, unless it is being checked.
func (e *engine) giveUp(wait time.Duration) {
	for _, o := range e.objects {
		err := e.none(o)
		if err == nil {
			err = fault.New(fault.Timeout, errors.New("nothing comes any more"), "what is there is kept: the same command goes on")
		}
		if no := (*refusal)(nil); errors.As(err, &no) && no.after > 0 {
			err = fmt.Errorf("%w, and asks to be left alone for %v", err, wait.Round(time.Second))
		}
		if o.right == nil {
			e.fail(o, err)
		}
	}
}

// save writes journals that are due.
func (e *engine) save(now time.Time) {
	for _, o := range e.objects {
		if o.closed || o.right != nil || o.saving || !o.dirty || now.Sub(o.saved) < e.times.save || !e.worth(o) {
			continue
		}
		o.saving, o.dirty, o.saved = true, false, now
		p, is, have := o.part, o.is, append(board.Spans{}, o.have...)
		e.running.Go(func() { e.tell(event{kind: saved, object: o, err: p.save(is, have)}) })
	}
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
	for _, o := range e.objects {
		p.Bytes += max(o.have.Size(), o.most)
		if !o.known || o.is.Size == board.Unknown || p.Size == board.Unknown {
			p.Size = board.Unknown
		} else {
			p.Size += o.is.Size
		}
		if o.closed && o.err == nil {
			p.Done++
		}
	}
	e.Log.Debug("progress", "bytes", int64(p.Bytes), "size", int64(p.Size), "done", p.Done)
	e.Progress(p)
}

func (e *engine) result() Result {
	r := Result{Devices: e.shares(time.Now()), Took: time.Since(e.begun)}
	for _, o := range e.objects {
		if o.err != nil {
			r.Failed = append(r.Failed, Failed{o.URL, o.File, o.err.Error(), fault.KindOf(o.err)})
		}
		if !o.closed || o.err != nil {
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
	var op net.Error
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
	case errors.As(err, &op) && op.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return fault.New(fault.Timeout, err, "what is there is kept: the same command goes on")
	case errors.As(err, &op), errors.Is(err, io.EOF):
		return fault.New(fault.Unreachable, err, "is this device online, and the address right?")
	}
	return err
}
