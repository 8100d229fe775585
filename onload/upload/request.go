package upload

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"time"

	"mpbond/base/fault"
	"mpbond/base/text"
	"mpbond/onload/transfer"
)

// Limits of requests.
const (
	redirects = 10
	// expectFrom is the size from which on a server is asked first whether it takes a
	// file, as long as it has not taken one.
	expectFrom = 64 << 10
	// drain is how long the end of an answer is waited for that nobody reads, so that
	// the connection can be used again.
	drain = 2 * time.Second
)

// request is what is asked for. Redirects may have it sent several times.
type request struct {
	method, url string
	header      http.Header
	length      int64
	body        func() (io.ReadCloser, error) // nil: none
	sent        *job                          // whose item it is, or nil
	expect      bool
	read        bool // the answer's body is wanted
	// sign, if not nil, adds what proves who asks. It is called for each place anew.
	sign func(*http.Request) error
}

// answer is what came back.
type answer struct {
	*http.Response
	url  string
	text []byte
}

// asker makes the requests of an upload, with what each has.
type asker struct {
	target       Target
	agent        string
	host, scheme string // of the target, whose headers and name go nowhere else
	user         *url.Userinfo
	answered     func(*transfer.Worker) // is called of each answer
}

func newAsker(t Target, agent string) (*asker, error) {
	u, err := url.Parse(t.URL)
	if err != nil {
		return nil, err
	}
	return &asker{target: t, agent: agent, host: u.Host, scheme: u.Scheme, user: u.User}, nil
}

// ask sends a request over a device, also to where the server wants it instead: with
// all that it has by 307 and 308, which alone say so. Credentials do not go along to
// another host. Errors are of the network, or refusals.
func (a *asker) ask(ctx context.Context, d *transfer.Worker, q request) (*answer, error) {
	to := q.url
	for range redirects {
		r, err := a.one(ctx, d, q, to)
		if err != nil {
			return nil, err
		}
		bare := q.method == http.MethodHead && (r.StatusCode == http.StatusMovedPermanently || r.StatusCode == http.StatusFound)
		where := r.Header.Get("Location")
		if where == "" || !bare && r.StatusCode != http.StatusTemporaryRedirect && r.StatusCode != http.StatusPermanentRedirect {
			return r, nil
		}
		next, err := r.Request.URL.Parse(where)
		switch {
		case err != nil || next.Host == "" || next.Scheme != "http" && next.Scheme != "https":
			return nil, refuse(transfer.Final, fault.Protocol, "", "the server leads to %q", text.Printable(where))
		case r.Request.URL.Scheme == "https" && next.Scheme != "https":
			return nil, refuse(transfer.Final, fault.Protocol, "", "the server leads from https to %s", next.Scheme)
		}
		next.User = nil
		to = next.String()
	}
	return nil, refuse(transfer.Final, fault.Protocol, "", "over %d redirects", redirects)
}

// one sends a request to one place.
func (a *asker) one(ctx context.Context, d *transfer.Worker, q request, to string) (*answer, error) {
	var body io.ReadCloser
	if q.body != nil {
		var err error
		if body, err = q.body(); err != nil {
			return nil, err
		}
		if q.length == 0 {
			body.Close()
			body = http.NoBody
		}
	}
	if q.sent != nil {
		q.sent.SetCarried(0)
		q.sent.Await(q.length == 0)
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { q.sent.Touch() }})
	}
	r, err := http.NewRequestWithContext(ctx, q.method, to, nil)
	if err != nil {
		return nil, err
	}
	r.Body, r.ContentLength = body, q.length
	if err := a.header(r, q); err != nil {
		if body != nil {
			body.Close()
		}
		return nil, &transfer.Refusal{Verdict: transfer.Final, Err: err}
	}
	resp, err := d.Client.Do(r)
	if q.sent != nil && q.sent.broken() != nil {
		if err == nil {
			resp.Body.Close()
		}
		return nil, q.sent.broken()
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		var u *url.Error // says the URL again, with what is secret in it
		if errors.As(err, &u) {
			err = u.Err
		}
		return nil, err
	}
	defer resp.Body.Close()
	a.answered(d)
	got := &answer{Response: resp, url: to}
	if q.read {
		if got.text, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer)); err != nil {
			return nil, err
		}
	} else {
		late := time.AfterFunc(drain, func() { resp.Body.Close() })
		_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // its status is what counts
		late.Stop()
	}
	if taken(resp.StatusCode) && q.sent != nil && !q.sent.Awaits() {
		return nil, refuse(transfer.Retry, fault.Protocol, "", "the web server answered %s before it had the file", text.Printable(resp.Status))
	}
	return got, nil
}

// header sets what each request has.
func (a *asker) header(r *http.Request, q request) error {
	if r.URL.Host == a.host && r.URL.Scheme == a.scheme {
		for name, values := range a.target.Header {
			if http.CanonicalHeaderKey(name) == "Host" {
				r.Host = values[0]
				continue
			}
			r.Header[name] = values
		}
		if u := a.user; u != nil {
			password, _ := u.Password()
			r.SetBasicAuth(u.Username(), password)
		}
	}
	for name, values := range q.header {
		r.Header[name] = values
	}
	if q.sign != nil {
		if err := q.sign(r); err != nil {
			return err
		}
	}
	r.Header.Set("User-Agent", a.agent)
	r.Header.Set("Accept-Encoding", "identity") // sizes are of what was sent
	if q.expect && q.length >= expectFrom {
		r.Header.Set("Expect", "100-continue")
	}
	return nil
}

// redacted is a URL without its password.
func redacted(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return ""
	}
	return u.Redacted()
}
