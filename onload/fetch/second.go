// SPDX-License-Identifier: Apache-2.0

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

// Over plain HTTP a helper's network can replace an object by a page of its own. So an object that
// a single helper has seen counts only when the local device, or else another helper, sees the same
// version. A device that sees another version is excluded from that host.

// secondTimeout bounds the wait for the version that a second device sees.
const secondTimeout = 5 * time.Second

// forgeableHost returns the host of an object that any network on the path can change, or "" if
// none can.
func (o *object) forgeableHost() string {
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "http" || o.SHA256 != nil {
		return ""
	}
	return u.Host
}

// hasSingleSource reports whether a single device, other than the local one, has seen the object.
func (o *object) hasSingleSource(local *transfer.Worker) bool {
	return len(o.seenBy) == 1 && !o.seenBy[local] && o.resumed == 0
}

// conflicts maps hosts to the devices that see other versions than the local device.
type conflicts map[string]transfer.Excluded

// addConflict records a conflicting device.
func (l conflicts) addConflict(host string, w *transfer.Worker, err error) {
	if l[host] == nil {
		l[host] = transfer.Excluded{}
	}
	l[host][w] = err
}

// hasOnlyConflicting reports whether only conflicting devices have seen an object.
func (l conflicts) hasOnlyConflicting(o *object) bool {
	for w := range o.seenBy {
		if l[o.forgeableHost()][w] == nil {
			return false
		}
	}
	return len(o.seenBy) > 0
}

// versionProber asks devices for the version of a URL that they see.
type versionProber struct{ userAgent string }

// sendProbeRequest sends a request without a range over a device.
func (q versionProber) sendProbeRequest(
	ctx context.Context,
	w *transfer.Worker,
	method, url string,
) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return nil, err
	}
	byteRange{}.setRangeHeaders(req.Header, q.userAgent, "")
	return w.Client.Do(req)
}

// probeDevices asks devices one after the other and returns the first one with a definite response:
// a version, or the error that the object does not exist. It returns a nil device if there is none.
func (q versionProber) probeDevices(
	ctx context.Context,
	limit time.Duration,
	devices []*transfer.Worker,
	url string,
) (device *transfer.Worker, seen version, notFound error) {
	for _, w := range devices {
		ctx, cancel := context.WithTimeout(ctx, limit)
		seen, notFound, ok := q.probeDevice(ctx, w, url)
		if cancel(); ok {
			return w, seen, notFound
		}
	}
	return nil, seen, nil
}

// probeDevice asks one device, by GET if HEAD fails. ok reports whether the response is definite.
func (q versionProber) probeDevice(
	ctx context.Context,
	w *transfer.Worker,
	url string,
) (seen version, notFound error, ok bool) {
	for _, method := range []string{http.MethodHead, http.MethodGet} {
		r, err := q.sendProbeRequest(ctx, w, method, url)
		if err != nil {
			return seen, nil, false
		}
		r.Body.Close()
		a, refusal := parseFetchResponse(r, byteRange{}, time.Now())
		switch {
		case refusal == nil:
			return a.version, nil, true
		case method == http.MethodGet && (r.StatusCode == http.StatusNotFound || r.StatusCode == http.StatusGone):
			return seen, refusal, true
		}
	}
	return seen, nil, false
}

// requestOtherVersions requests the version of a complete object over the devices that have not
// seen it, and compares it.
func (t *task) requestOtherVersions(o *object) {
	var others []*transfer.Worker
	for _, w := range t.loop.Workers() {
		if !o.seenBy[w] {
			others = append(others, w)
		}
	}
	complete := o.complete
	t.loop.Go(func(ctx context.Context) {
		device, seen, notFound := versionProber{t.UserAgent}.probeDevices(ctx,
			min(secondTimeout, t.times.ResponseTimeout), others, o.URL)
		t.loop.Lock()
		defer t.loop.DispatchAndUnlock()
		// Otherwise the object was restarted meanwhile, or the request was cancelled.
		if !t.loop.IsClosing() && o.phase == confirming && o.complete == complete {
			t.compareVersions(o, device, seen, notFound)
		}
	})
}

// compareVersions compares an object with the version that another device sees, if there is one.
func (t *task) compareVersions(o *object, device *transfer.Worker, seen version, notFound error) {
	ours := o.version
	if st, err := o.complete.file.Stat(); err == nil {
		ours.Size = unit.Bytes(st.Size())
	}
	if device != nil && !device.IsUp() { // it responded
		t.loop.Resume(device)
	}
	switch {
	case device == nil:
		for w := range o.seenBy {
			o.unchecked = w.Name
		}
	case notFound != nil:
		t.distrustSources(o, fmt.Errorf("over %s: %w", device.Name, notFound))
		return
	case !ours.matchesVersion(seen):
		t.distrustSources(o, fmt.Errorf("%s sees version %v instead of %v", device.Name, seen, ours))
		return
	}
	t.verifyObject(o)
}

// settleDisagreement handles a device that sees another version than the devices before it. The
// local device is right: it reports whether that has decided which side is wrong.
func (t *task) settleDisagreement(o *object, d *transfer.Worker, err error) bool {
	local := t.loop.LocalWorker()
	switch {
	case o.forgeableHost() == "" || len(o.seenBy) == 0 || o.seenBy[d]:
		return false
	case d == local && o.hasSingleSource(local):
		t.distrustSources(o, err)
	case o.seenBy[local]:
		t.distrustDevice(o.forgeableHost(), d, err)
	default:
		return false
	}
	return true
}

// distrustSources distrusts all devices that have seen an object.
func (t *task) distrustSources(o *object, err error) {
	var sources []*transfer.Worker
	for d := range o.seenBy {
		sources = append(sources, d)
	}
	for _, d := range sources {
		t.distrustDevice(o.forgeableHost(), d, err)
	}
}

// distrustDevice excludes a device from a host and fetches again the objects of that host that no
// other device has seen.
func (t *task) distrustDevice(host string, d *transfer.Worker, err error) {
	t.conflicts.addConflict(host, d, err)
	t.Log.Warn("device sees other content than the local device, excluded", "device", d.Name, "host", host, "err", err)
	for _, o := range t.objects {
		if o.forgeableHost() != host {
			continue
		}
		switch alone := t.conflicts.hasOnlyConflicting(o); {
		case o.phase == verifying:
		case o.phase == closed:
			t.refetchUnchecked(o)
		case alone:
			t.resetObject(o, o.wholeOnly)
		default:
			t.loop.Exclude(o.index, o.excluded, d, err)
		}
	}
}

// refetchUnchecked fetches an object again that could not be confirmed when it arrived, if only
// conflicting devices have seen it.
func (t *task) refetchUnchecked(o *object) {
	if o.err != nil || o.unchecked == "" || !t.conflicts.hasOnlyConflicting(o) {
		return
	}
	_ = userfile.Remove(o.File)
	t.resetObject(o, false)
}

// resetObject discards what is known of an object and starts it again, over the devices that are
// not excluded.
func (t *task) resetObject(o *object, whole bool) {
	t.loop.WithdrawObject(o.index)
	if o.complete != nil && o.complete != o.part {
		o.complete.discardPartFile()
	}
	o.complete, o.phase, o.unchecked = nil, fetching, ""
	if err := o.discardAllReceived(whole); err != nil {
		t.failObject(o, err)
		return
	}
	for d, why := range t.conflicts[o.forgeableHost()] {
		t.loop.Exclude(o.index, o.excluded, d, why)
	}
	t.loop.Board.AddItems(o.missingItems()...)
}
