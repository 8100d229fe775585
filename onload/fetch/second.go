package fetch

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"mpbond/base/unit"
	"mpbond/base/userfile"
	"mpbond/onload/transfer"
)

// Over plain HTTP a helper's network can put a page of its own in the place of an object.
// So what one helper alone was given counts when this device's own line is told of the same
// object, or else another helper; and who was given another one gets nothing of that host
// any more.

// secondTime bounds the wait for a second opinion.
const secondTime = 5 * time.Second

// host is that of an object which anybody on the way can change, "" where nobody can.
func (o *object) host() string {
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "http" || o.SHA256 != nil {
		return ""
	}
	return u.Host
}

// alone tells whether only one device was told of an object, and not the own line.
func (o *object) alone(own *transfer.Worker) bool {
	return len(o.seen) == 1 && !o.seen[own] && o.resumed == 0
}

// own is this device's own line.
func (e *engine) own() *transfer.Worker { return e.loop.Workers()[0] }

// ask asks others what they are told of an object that is there.
func (e *engine) ask(o *object) {
	var others []*transfer.Worker
	for _, w := range e.loop.Workers() {
		if !o.seen[w] {
			others = append(others, w)
		}
	}
	right := o.right
	e.loop.Go(func(ctx context.Context) {
		var by *transfer.Worker // nil: none is told anything
		var is version
		var gone error
		for _, w := range others {
			ctx, cancel := context.WithTimeout(ctx, min(secondTime, e.times.answer))
			var ok bool
			is, gone, ok = e.second(ctx, w, o.URL)
			if cancel(); ok {
				by = w
				break
			}
		}
		e.loop.Lock()
		defer e.loop.Settle()
		if o.phase == asking && o.right == right { // else it was begun anew meanwhile
			e.compare(o, by, is, gone)
		}
	})
}

// second asks a device for a second opinion, with GET where HEAD is not known, and reports
// whether the answer says anything: what there is, or that there is no such object.
func (e *engine) second(ctx context.Context, w *transfer.Worker, url string) (is version, gone error, ok bool) {
	for _, method := range []string{http.MethodHead, http.MethodGet} {
		r, err := e.inquire(ctx, w, method, url)
		if err != nil {
			return is, nil, false
		}
		r.Body.Close()
		a, no := read(r, wanted{}, time.Now())
		switch {
		case no == nil:
			return a.version, nil, true
		case method == http.MethodGet && (r.StatusCode == http.StatusNotFound || r.StatusCode == http.StatusGone):
			return is, no, true
		}
	}
	return is, nil, false
}

// compare takes in the second opinion of a device, if there is one.
func (e *engine) compare(o *object, by *transfer.Worker, told version, gone error) {
	is := o.is
	if st, err := o.right.f.Stat(); err == nil {
		is.Size = unit.Bytes(st.Size())
	}
	if by != nil && !by.IsUp() { // it works
		e.loop.Resume(by)
	}
	switch {
	case by == nil:
		for w := range o.seen {
			o.unchecked = w.Name
		}
	case gone != nil:
		e.expose(o, fmt.Errorf("over %s: %w", by.Name, gone))
		return
	case !is.agrees(told):
		e.expose(o, fmt.Errorf("over %s there is %v, instead of %v", by.Name, told, is))
		return
	}
	e.verify(o)
}

// dispute tells whether it is decided already who is wrong, when a device is told of
// another object than those before it.
func (e *engine) dispute(o *object, d *transfer.Worker, err error) bool {
	own := e.own()
	switch {
	case o.host() == "" || len(o.seen) == 0 || o.seen[d]:
		return false
	case d == own && o.alone(own):
		e.expose(o, err)
	case o.seen[own]:
		e.distrust(o.host(), d, err)
	default:
		return false
	}
	return true
}

// expose takes it that all that has come of an object is another one.
func (e *engine) expose(o *object, err error) {
	var liars []*transfer.Worker
	for d := range o.seen {
		liars = append(liars, d)
	}
	for _, d := range liars {
		e.distrust(o.host(), d, err)
	}
}

// distrust keeps a device from a host, and has fetched again what nobody else has seen of
// it.
func (e *engine) distrust(host string, d *transfer.Worker, err error) {
	if e.liars[host] == nil {
		e.liars[host] = transfer.Excluded{}
	}
	e.liars[host][d] = err
	e.Log.Warn("a device is given other files than this device's own line, and is left out", "device", d.Name, "host", host, "err", err)
	for _, o := range e.objects {
		if o.host() != host {
			continue
		}
		switch alone := e.lied(o); {
		case o.phase == verifying:
		case o.phase == closed:
			e.reopen(o)
		case alone:
			e.anew(o, o.whole)
		default:
			e.loop.Exclude(o.index, o.bars, d, err)
		}
	}
}

// lied tells whether only devices that are left out have seen an object.
func (e *engine) lied(o *object) bool {
	for d := range o.seen {
		if e.liars[o.host()][d] == nil {
			return false
		}
	}
	return len(o.seen) > 0
}

// reopen fetches again what nobody else could be asked about when it came.
func (e *engine) reopen(o *object) {
	if o.err != nil || o.unchecked == "" || !e.lied(o) {
		return
	}
	_ = userfile.Remove(o.File)
	e.anew(o, false)
}

// anew forgets what there is of an object, and begins again with those who may.
func (e *engine) anew(o *object, whole bool) {
	e.loop.Withdraw(o.index)
	if o.right != nil && o.right != o.part {
		o.right.discard()
	}
	o.right, o.phase, o.unchecked = nil, fetching, ""
	if err := o.anew(whole); err != nil {
		e.fail(o, err)
		return
	}
	for d, why := range e.liars[o.host()] {
		e.loop.Exclude(o.index, o.bars, d, why)
	}
	e.loop.Board.Add(o.items()...)
}
