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

// secondTimeout bounds the wait for a second opinion.
const secondTimeout = 5 * time.Second

// forgeableHost is that of an object which anybody on the way can change, "" where nobody can.
func (o *object) forgeableHost() string {
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "http" || o.SHA256 != nil {
		return ""
	}
	return u.Host
}

// hasSingleSource tells whether only one device was told of an object, and not the own line.
func (o *object) hasSingleSource(own *transfer.Worker) bool {
	return len(o.seenBy) == 1 && !o.seenBy[own] && o.resumed == 0
}

// conflicts are the devices that are given other objects than this device's own line, by host.
type conflicts map[string]transfer.Excluded

// addConflict notes one.
func (l conflicts) addConflict(host string, w *transfer.Worker, err error) {
	if l[host] == nil {
		l[host] = transfer.Excluded{}
	}
	l[host][w] = err
}

// hasOnlyConflicting reports whether only such devices have seen an object.
func (l conflicts) hasOnlyConflicting(o *object) bool {
	for w := range o.seenBy {
		if l[o.forgeableHost()][w] == nil {
			return false
		}
	}
	return len(o.seenBy) > 0
}

// versionProber asks devices what they are told of a URL.
type versionProber struct{ userAgent string }

// sendRequest asks one.
func (q versionProber) sendRequest(ctx context.Context, w *transfer.Worker, method, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return nil, err
	}
	byteRange{}.setHeaders(req.Header, q.userAgent, "")
	return w.Client.Do(req)
}

// probeDevices returns the first of several devices that is told anything, and what: that there is
// such a version, or that there is no such object. Nil is that none is.
func (q versionProber) probeDevices(ctx context.Context, limit time.Duration, of []*transfer.Worker, url string) (by *transfer.Worker, is version, gone error) {
	for _, w := range of {
		ctx, cancel := context.WithTimeout(ctx, limit)
		is, gone, ok := q.probeDevice(ctx, w, url)
		if cancel(); ok {
			return w, is, gone
		}
	}
	return nil, is, nil
}

// probeDevice asks one, with GET where HEAD is not known. Ok is that its answer says anything.
func (q versionProber) probeDevice(ctx context.Context, w *transfer.Worker, url string) (is version, gone error, ok bool) {
	for _, method := range []string{http.MethodHead, http.MethodGet} {
		r, err := q.sendRequest(ctx, w, method, url)
		if err != nil {
			return is, nil, false
		}
		r.Body.Close()
		a, refusal := parseResponse(r, byteRange{}, time.Now())
		switch {
		case refusal == nil:
			return a.version, nil, true
		case method == http.MethodGet && (r.StatusCode == http.StatusNotFound || r.StatusCode == http.StatusGone):
			return is, refusal, true
		}
	}
	return is, nil, false
}

// askOtherDevices asks others what they are told of an object that is there.
func (e *task) askOtherDevices(o *object) {
	var others []*transfer.Worker
	for _, w := range e.loop.Workers() {
		if !o.seenBy[w] {
			others = append(others, w)
		}
	}
	right := o.complete
	e.loop.Go(func(ctx context.Context) {
		by, is, gone := versionProber{e.UserAgent}.probeDevices(ctx, min(secondTimeout, e.times.ResponseTimeout), others, o.URL)
		e.loop.Lock()
		defer e.loop.DispatchAndUnlock()
		// Else it was begun anew meanwhile, or the question was cut off: no answer then says nothing.
		if !e.loop.IsClosing() && o.phase == confirming && o.complete == right {
			e.compareVersions(o, by, is, gone)
		}
	})
}

// compareVersions takes in the second opinion of a device, if there is one.
func (e *task) compareVersions(o *object, by *transfer.Worker, told version, gone error) {
	is := o.version
	if st, err := o.complete.file.Stat(); err == nil {
		is.Size = unit.Bytes(st.Size())
	}
	if by != nil && !by.IsUp() { // it works
		e.loop.Resume(by)
	}
	switch {
	case by == nil:
		for w := range o.seenBy {
			o.unchecked = w.Name
		}
	case gone != nil:
		e.distrustSources(o, fmt.Errorf("over %s: %w", by.Name, gone))
		return
	case !is.matches(told):
		e.distrustSources(o, fmt.Errorf("over %s there is %v, instead of %v", by.Name, told, is))
		return
	}
	e.verifyObject(o)
}

// settleDisagreement tells whether it is decided already who is wrong, when a device is told of
// another object than those before it.
func (e *task) settleDisagreement(o *object, d *transfer.Worker, err error) bool {
	own := e.loop.LocalWorker()
	switch {
	case o.forgeableHost() == "" || len(o.seenBy) == 0 || o.seenBy[d]:
		return false
	case d == own && o.hasSingleSource(own):
		e.distrustSources(o, err)
	case o.seenBy[own]:
		e.distrustDevice(o.forgeableHost(), d, err)
	default:
		return false
	}
	return true
}

// distrustSources takes it that all that has come of an object is another one.
func (e *task) distrustSources(o *object, err error) {
	var sources []*transfer.Worker
	for d := range o.seenBy {
		sources = append(sources, d)
	}
	for _, d := range sources {
		e.distrustDevice(o.forgeableHost(), d, err)
	}
}

// distrustDevice keeps a device from a host, and has fetched again what nobody else has seen of
// it.
func (e *task) distrustDevice(host string, d *transfer.Worker, err error) {
	e.conflicts.addConflict(host, d, err)
	e.Log.Warn("a device is given other files than this device's own line, and is left out", "device", d.Name, "host", host, "err", err)
	for _, o := range e.objects {
		if o.forgeableHost() != host {
			continue
		}
		switch alone := e.conflicts.hasOnlyConflicting(o); {
		case o.phase == verifying:
		case o.phase == closed:
			e.refetchUnchecked(o)
		case alone:
			e.resetObject(o, o.wholeOnly)
		default:
			e.loop.Exclude(o.index, o.excluded, d, err)
		}
	}
}

// refetchUnchecked fetches again what nobody else could be asked about when it came.
func (e *task) refetchUnchecked(o *object) {
	if o.err != nil || o.unchecked == "" || !e.conflicts.hasOnlyConflicting(o) {
		return
	}
	_ = userfile.Remove(o.File)
	e.resetObject(o, false)
}

// resetObject forgets what there is of an object, and begins again with those who may.
func (e *task) resetObject(o *object, whole bool) {
	e.loop.WithdrawObject(o.index)
	if o.complete != nil && o.complete != o.part {
		o.complete.discard()
	}
	o.complete, o.phase, o.unchecked = nil, fetching, ""
	if err := o.resetData(whole); err != nil {
		e.failObject(o, err)
		return
	}
	for d, why := range e.conflicts[o.forgeableHost()] {
		e.loop.Exclude(o.index, o.excluded, d, why)
	}
	e.loop.Board.AddItems(o.missingItems()...)
}
