package fetch

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"mpbond/base/unit"
	"mpbond/base/userfile"
)

// Over plain HTTP a helper's network can put a page of its own in the place of an object.
// So what one helper alone was given counts when this device's own line is told of the same
// object, or else another helper; and who was given another one gets nothing of that host
// any more.

// secondTime bounds the wait for a second opinion.
const secondTime = 5 * time.Second

// second is what another device was told of an object, device nil: none was told anything.
type second struct {
	object *object
	device *device
	is     version
	err    error // that there is no such object
}

// host is that of an object which anybody on the way can change, "" where nobody can.
func (o *object) host() string {
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "http" || o.SHA256 != nil {
		return ""
	}
	return u.Host
}

// alone tells whether only one device was told of an object, and not the own line.
func (o *object) alone(own *device) bool {
	return len(o.seen) == 1 && !o.seen[own] && o.resumed == 0
}

// own is this device's own line.
func (e *engine) own() *device { return e.devices[0] }

// ask asks others what they are told of an object that is there.
func (e *engine) ask(o *object) {
	var others []*device
	for _, d := range e.devices {
		if !o.seen[d] {
			others = append(others, d)
		}
	}
	e.running.Go(func() {
		for _, d := range others {
			ctx, cancel := context.WithTimeout(e.ctx, min(secondTime, e.times.answer))
			is, err, ok := e.inquire(ctx, d, o.URL)
			cancel()
			if ok {
				e.tell(event{kind: compared, second: second{o, d, is, err}})
				return
			}
		}
		e.tell(event{kind: compared, second: second{object: o}})
	})
}

// inquire asks one of them, with GET where HEAD is not known, and tells whether that says
// anything.
func (e *engine) inquire(ctx context.Context, d *device, url string) (is version, gone error, ok bool) {
	for _, method := range []string{http.MethodHead, http.MethodGet} {
		req, err := http.NewRequestWithContext(ctx, method, url, nil)
		if err != nil {
			return is, nil, false
		}
		(&job{agent: e.UserAgent}).header(req.Header)
		r, err := d.client.Do(req)
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

// compared takes in a second opinion.
func (e *engine) compared(s second) {
	o := s.object
	is := o.is
	if st, err := o.right.f.Stat(); err == nil {
		is.Size = unit.Bytes(st.Size())
	}
	if s.device != nil && s.device.down != nil { // it works
		e.rest(s.device, 0, nil)
	}
	switch {
	case s.device == nil:
		for d := range o.seen {
			o.unchecked = d.Name
		}
	case s.err != nil:
		e.expose(o, fmt.Errorf("over %s: %w", s.device.Name, s.err))
		return
	case !is.agrees(s.is):
		e.expose(o, fmt.Errorf("over %s there is %v, instead of %v", s.device.Name, s.is, is))
		return
	}
	e.verify(o)
}

// dispute tells whether it is decided already who is wrong, when a device is told of
// another object than those before it.
func (e *engine) dispute(o *object, d *device, err error) bool {
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
	var liars []*device
	for d := range o.seen {
		liars = append(liars, d)
	}
	for _, d := range liars {
		e.distrust(o.host(), d, err)
	}
}

// distrust keeps a device from a host, and has fetched again what nobody else has seen of
// it.
func (e *engine) distrust(host string, d *device, err error) {
	if e.liars[host] == nil {
		e.liars[host] = map[*device]error{}
	}
	e.liars[host][d] = err
	e.Log.Warn("a device is given other files than this device's own line, and is left out", "device", d.Name, "host", host, "err", err)
	for _, o := range e.objects {
		if o.host() != host {
			continue
		}
		switch alone := e.lied(o); {
		case o.verifying:
		case o.closed:
			e.reopen(o)
		case alone:
			e.anew(o, o.whole)
		default:
			o.bars[d] = err
			e.board.Bar(d.path, o.index, time.Now())
			e.judge(o)
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
	o.closed = false
	e.open++
	e.anew(o, false)
}

// anew forgets what there is of an object, and begins again with those who may.
func (e *engine) anew(o *object, whole bool) {
	e.board.Drop(o.index)
	e.carryOutDrops(o)
	if o.right != nil && o.right != o.part {
		o.right.discard()
	}
	o.right, o.checking, o.unchecked = nil, false, ""
	if err := o.anew(whole); err != nil {
		e.fail(o, err)
		return
	}
	for d, why := range e.liars[o.host()] {
		o.bars[d] = why
		e.board.Bar(d.path, o.index, time.Now())
	}
	e.board.Add(o.items()...)
	e.judge(o)
}
