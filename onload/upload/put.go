package upload

import (
	"context"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	"mpbond/fault"
	"mpbond/onload"
)

// maxDepth bounds how many collections are made for one file.
const maxDepth = 32

// putting sends files by PUT, and asks by HEAD whether all has arrived. Where a
// collection is missing, it is made (RFC 4918).
type putting struct {
	*engine
	mu          sync.Mutex
	collections map[string]bool // that were asked for: whether they were made
}

func (*putting) abandon(context.Context, *device, *file) {}
func (*putting) items(f *file) []onload.Item             { return f.whole() }

// first looks whether there is a file already, if that is to be kept, and makes the
// collections of a name that has some.
func (p *putting) first(ctx context.Context, d *device, f *file) error {
	if err := p.keep(ctx, d, f, nil); err != nil || !strings.Contains(f.Name, "/") {
		return err
	}
	u, err := url.Parse(f.url)
	if err != nil {
		return err
	}
	_, err = p.collect(ctx, d, u, 0)
	return err
}

// keep refuses to replace what is there already, if that is wanted. What is as long as a
// file that was sent without an answer is most likely that: whether it is, is seen when
// the server refuses to take it again.
func (e *engine) keep(ctx context.Context, d *device, f *file, sign func(*http.Request) error) error {
	if !e.Target.Keep {
		return nil
	}
	r, err := e.ask(ctx, d, request{method: http.MethodHead, url: f.url, sign: sign})
	switch {
	case err != nil:
		return err
	case r.StatusCode == http.StatusOK && !(f.lost && r.ContentLength == int64(f.size)):
		return exists(f.url)
	case r.StatusCode != http.StatusOK:
		if no := judge(r.Response, time.Now()); no.verdict == again {
			return no
		}
	}
	return nil
}

func exists(where string) error {
	return refuse(final, fault.Exists, "to replace it, leave --keep away", "%s is there already", redacted(where))
}

func (p *putting) send(ctx context.Context, j *job) error {
	q := request{method: http.MethodPut, url: j.of.url, header: http.Header{"Content-Type": {typeOf(j.of.Name)}},
		length: int64(j.of.size), body: j.body(nil, nil), sent: &j.sent, expect: j.expect}
	if p.Target.Keep {
		q.header.Set("If-None-Match", "*")
	}
	r, err := p.ask(ctx, j.device, q)
	if err != nil {
		return err
	}
	switch r.StatusCode {
	case http.StatusNotFound, http.StatusConflict, http.StatusInternalServerError: // nginx says 500
		u, bad := url.Parse(j.of.url)
		if bad != nil {
			return bad
		}
		if made, bad := p.collect(ctx, j.device, u, 0); bad != nil || !made {
			break
		}
		if r, err = p.ask(ctx, j.device, q); err != nil {
			return err
		}
	}
	switch {
	case r.StatusCode == http.StatusPreconditionFailed && j.of.lost:
		return nil // its size tells whether it is this one
	case !taken(r.StatusCode):
		return judge(r.Response, time.Now())
	}
	return nil
}

// collect makes the collection that something is in, and those above if the server says
// that they are missing. It reports whether that was made, now or before.
func (p *putting) collect(ctx context.Context, d *device, of *url.URL, depth int) (made bool, err error) {
	u := *of
	u.Path, u.RawPath = path.Dir(strings.TrimSuffix(u.Path, "/")), ""
	if u.Path == "/" || u.Path == "." || depth >= maxDepth {
		return false, nil
	}
	u.Path += "/"
	p.mu.Lock()
	made, asked := p.collections[u.Path]
	p.mu.Unlock()
	if asked {
		return made, nil
	}
	status, err := p.make(ctx, d, u.String())
	if err == nil && (status == http.StatusConflict || status == http.StatusNotFound || status == http.StatusInternalServerError) {
		if made, err = p.collect(ctx, d, &u, depth+1); made {
			status, err = p.make(ctx, d, u.String())
		}
	}
	if err != nil {
		return false, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.collections[u.Path] = p.collections[u.Path] || status == http.StatusCreated // others may have asked at the same time
	return p.collections[u.Path], nil
}

// make makes a collection; what else the server says is told by what follows.
func (p *putting) make(ctx context.Context, d *device, where string) (status int, err error) {
	r, err := p.ask(ctx, d, request{method: "MKCOL", url: where})
	if err != nil {
		return 0, err
	}
	return r.StatusCode, nil
}

// last asks how long the file is there.
func (p *putting) last(ctx context.Context, d *device, f *file) error {
	r, err := p.ask(ctx, d, request{method: http.MethodHead, url: f.url})
	if err != nil {
		return err
	}
	switch c := r.StatusCode; {
	case c == http.StatusOK && r.ContentLength == int64(f.size):
		f.proof = BySize
	case c == http.StatusOK && r.ContentLength >= 0 && p.Target.Keep && f.lost:
		return exists(f.url)
	case c == http.StatusOK && r.ContentLength >= 0:
		return refuse(anew, fault.Integrity, "does somebody else write there?", "the server has %d bytes of it instead of %d", r.ContentLength, int64(f.size))
	case c == http.StatusNotFound || c == http.StatusGone:
		return refuse(anew, fault.Integrity, "is this the URL of a place for files?", "the server took the file, and does not have it")
	case c >= 500 && c != http.StatusNotImplemented || c == http.StatusTooManyRequests:
		return judge(r.Response, time.Now())
	default: // it cannot be asked
		f.proof = ByAnswer
	}
	return nil
}
