// SPDX-License-Identifier: Apache-2.0

package upload

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	"mpbond/base/fault"
	"mpbond/onload/board"
	"mpbond/onload/transfer"
)

// putProtocol uploads files by PUT and confirms their size by HEAD. It creates collections before
// any file is sent (RFC 4918, 9.3): a server may read a whole file before it responds that the
// collection is missing.
type putProtocol struct {
	*requester
	mu          sync.Mutex
	collections map[string]*collection // by path
}

// collection is a collection that was requested, or is being requested.
// closed when the request has ended
type collection struct{ done chan struct{} } // closed when it was

// errCollectionPending reports that another device's request for a collection takes too long. The
// waiting device is not to blame.
var errCollectionPending = errors.New("another device has not created the collection yet")

func (*putProtocol) abortUpload(context.Context, *transfer.Worker, *file) {}
func (*putProtocol) remainingItems(f *file) []board.Item                  { return f.wholeFileItem() }

// prepareFile checks that the file does not exist, if existing files are kept, and creates its
// collections.
func (p *putProtocol) prepareFile(ctx context.Context, d *transfer.Worker, f *file) error {
	if err := p.checkAbsent(ctx, d, f, nil); err != nil {
		return err
	}
	u, err := url.Parse(f.url)
	if err != nil {
		return err
	}
	return p.makeCollection(ctx, d, u)
}

// checkAbsent returns an error if the file exists and existing files are kept. An existing file of
// the same size as one with a lost response is probably that file: it is found out when the
// server refuses to replace it.
func (a *requester) checkAbsent(
	ctx context.Context,
	d *transfer.Worker,
	f *file,
	sign func(*http.Request) error,
) error {
	if !a.target.KeepExisting {
		return nil
	}
	r, err := a.sendUploadRequest(ctx, d, request{method: http.MethodHead, url: f.url, sign: sign})
	switch {
	case err != nil:
		return err
	case r.StatusCode == http.StatusOK && !(f.maybeStored && r.ContentLength == int64(f.size)):
		return existsError(f.url)
	case r.StatusCode != http.StatusOK:
		if refusal := refusalOfUpload(r.Response, time.Now()); refusal.Verdict == transfer.Retry {
			return refusal
		}
	}
	return nil
}

// existsError returns the error for a file that exists already.
func existsError(where string) error {
	return newUploadRefusal(transfer.Final, fault.Exists, "to replace it, omit --keep", "%s already exists",
		redactURLPassword(where))
}

// sendJobItem implements protocol.
func (p *putProtocol) sendJobItem(ctx context.Context, j *job) error {
	q := request{method: http.MethodPut, url: j.snapshot.url,
		header: http.Header{"Content-Type": {mediaTypeByName(j.snapshot.Name)}},
		length: int64(j.snapshot.size), body: j.newBodyOpener(nil, nil), job: j, expectContinue: j.expectContinue}
	if p.target.KeepExisting {
		q.header.Set("If-None-Match", "*")
	}
	r, err := p.sendUploadRequest(ctx, j.Worker, q)
	if err != nil {
		return err
	}
	switch {
	case r.StatusCode == http.StatusPreconditionFailed && j.snapshot.maybeStored:
		return nil // confirmFile compares the size
	case !isAccepted(r.StatusCode):
		return refusalOfUpload(r.Response, time.Now())
	}
	return nil
}

// makeCollection creates the parent collection of a URL, once for all devices.
func (p *putProtocol) makeCollection(ctx context.Context, d *transfer.Worker, of *url.URL) error {
	u, ok := parentCollection(*of)
	if !ok {
		return nil
	}
	for {
		p.mu.Lock()
		c := p.collections[u.Path]
		mine := c == nil
		if mine {
			c = &collection{make(chan struct{})}
			p.collections[u.Path] = c
		}
		p.mu.Unlock()
		if mine {
			err := p.requestCollection(ctx, d, &u)
			p.mu.Lock()
			defer p.mu.Unlock()
			if err != nil { // the next device tries again
				delete(p.collections, u.Path)
			}
			close(c.done)
			return err
		}
		select {
		case <-ctx.Done():
			return errCollectionPending
		case <-c.done:
		}
		p.mu.Lock()
		made := p.collections[u.Path] == c
		p.mu.Unlock()
		if made {
			return nil
		}
	}
}

// parentCollection returns the URL of the parent collection. ok is false for the root.
func parentCollection(u url.URL) (_ url.URL, ok bool) {
	u.Path, u.RawPath = path.Dir(strings.TrimSuffix(u.Path, "/")), ""
	if u.Path == "/" || u.Path == "." {
		return u, false
	}
	u.Path += "/"
	return u, true
}

// requestCollection creates a collection, and its parents if the server responds that they are
// missing. Any other response is fine: 405 and 301 mean that it exists, and servers without
// collections may still accept the file. Errors are those of the network.
func (p *putProtocol) requestCollection(ctx context.Context, d *transfer.Worker, u *url.URL) error {
	q := request{method: "MKCOL", url: u.String()}
	r, err := p.sendUploadRequest(ctx, d, q)
	if err != nil {
		return err
	}
	if c := r.StatusCode; c != http.StatusConflict && c != http.StatusNotFound && c != http.StatusInternalServerError {
		return nil
	}
	if err := p.makeCollection(ctx, d, u); err != nil {
		return err
	}
	_, err = p.sendUploadRequest(ctx, d, q)
	return err
}

// confirmFile compares the size of the file at the server.
func (p *putProtocol) confirmFile(ctx context.Context, d *transfer.Worker, f *file) error {
	r, err := p.sendUploadRequest(ctx, d, request{method: http.MethodHead, url: f.url})
	if err != nil {
		return err
	}
	switch c := r.StatusCode; {
	case c == http.StatusOK && r.ContentLength == int64(f.size):
		f.proof = BySize
	case c == http.StatusOK && r.ContentLength >= 0 && p.target.KeepExisting && f.maybeStored:
		return existsError(f.url)
	case c == http.StatusOK && r.ContentLength >= 0:
		return newUploadRefusal(transfer.Restart, fault.Integrity, "check that no other client writes there",
			"the server has %d bytes of the file instead of %d", r.ContentLength, int64(f.size))
	case c == http.StatusNotFound || c == http.StatusGone:
		return newUploadRefusal(transfer.Restart, fault.Integrity, "check that the URL stores files",
			"the server accepted the file but does not have it")
	case c >= 500 && c != http.StatusNotImplemented || c == http.StatusTooManyRequests:
		return refusalOfUpload(r.Response, time.Now())
	default: // HEAD is not supported
		f.proof = ByResponse
	}
	return nil
}
