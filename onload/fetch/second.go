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

// liars are the devices that are given other objects than this device's own line, by host.
type liars map[string]transfer.Excluded

// add notes one.
func (l liars) add(host string, w *transfer.Worker, err error) {
	if l[host] == nil {
		l[host] = transfer.Excluded{}
	}
	l[host][w] = err
}

// lied reports whether only such devices have seen an object.
func (l liars) lied(o *object) bool {
	for w := range o.seen {
		if l[o.host()][w] == nil {
			return false
		}
	}
	return len(o.seen) > 0
}

// inquirer asks devices what they are told of a URL.
type inquirer struct{ agent string }

// head asks one.
func (q inquirer) head(ctx context.Context, w *transfer.Worker, method, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return nil, err
	}
	wanted{}.setHeader(req.Header, q.agent, "")
	return w.Client.Do(req)
}

// first returns the first of several devices that is told anything, and what: that there is
// such a version, or that there is no such object. Nil is that none is.
func (q inquirer) first(ctx context.Context, limit time.Duration, of []*transfer.Worker, url string) (by *transfer.Worker, is version, gone error) {
	for _, w := range of {
		ctx, cancel := context.WithTimeout(ctx, limit)
		is, gone, ok := q.one(ctx, w, url)
		if cancel(); ok {
			return w, is, gone
		}
	}
	return nil, is, nil
}

// one asks one, with GET where HEAD is not known. Ok is that its answer says anything.
func (q inquirer) one(ctx context.Context, w *transfer.Worker, url string) (is version, gone error, ok bool) {
	for _, method := range []string{http.MethodHead, http.MethodGet} {
		r, err := q.head(ctx, w, method, url)
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
		by, is, gone := inquirer{e.UserAgent}.first(ctx, min(secondTime, e.times.Answer), others, o.URL)
		e.loop.Lock()
		defer e.loop.Settle()
		// Else it was begun anew meanwhile, or the question was cut off: no answer then says nothing.
		if !e.loop.Closing() && o.phase == asking && o.right == right {
			e.compare(o, by, is, gone)
		}
	})
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
	own := e.loop.Own()
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
	e.liars.add(host, d, err)
	e.Log.Warn("a device is given other files than this device's own line, and is left out", "device", d.Name, "host", host, "err", err)
	for _, o := range e.objects {
		if o.host() != host {
			continue
		}
		switch alone := e.liars.lied(o); {
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

// reopen fetches again what nobody else could be asked about when it came.
func (e *engine) reopen(o *object) {
	if o.err != nil || o.unchecked == "" || !e.liars.lied(o) {
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
