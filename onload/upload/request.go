// SPDX-License-Identifier: Apache-2.0

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
	maxRedirects = 10
	// minExpectSize is the size from which a request sends Expect: 100-continue, until the server
	// has accepted one.
	minExpectSize = 64 << 10
	// drainTimeout bounds the wait for the end of an unused response body, which lets the
	// connection be reused.
	drainTimeout = 2 * time.Second
)

// request describes a request, which redirects may repeat.
type request struct {
	method, url    string
	header         http.Header
	length         int64
	body           func() (io.ReadCloser, error) // nil: none
	job            *job                          // sends its item, or nil
	expectContinue bool
	readBody       bool // the response body is needed
	// sign, if not nil, adds a signature. It is called for each target of redirects.
	sign func(*http.Request) error
}

// response is the response to a request.
type response struct {
	*http.Response
	url  string
	body []byte
}

// requester sends the requests of an upload, with the headers and credentials of its target.
type requester struct {
	target       Target
	userAgent    string
	host, scheme string // origin of the target: the only one that gets its headers and credentials
	user         *url.Userinfo
	onResponse   func(*transfer.Worker) // called for each response
}

// newRequester returns a requester for a target.
func newRequester(t Target, agent string) (*requester, error) {
	u, err := url.Parse(t.URL)
	if err != nil {
		return nil, err
	}
	return &requester{target: t, userAgent: agent, host: u.Host, scheme: u.Scheme, user: u.User}, nil
}

// sendUploadRequest sends a request over a device and follows redirects: the whole request by 307
// and 308, and HEAD also by 301 and 302. Credentials do not go to other hosts. Errors are those of
// the network, or refusals.
func (a *requester) sendUploadRequest(ctx context.Context, d *transfer.Worker, q request) (*response, error) {
	to := q.url
	for range maxRedirects {
		r, err := a.sendSingleRequest(ctx, d, q, to)
		if err != nil {
			return nil, err
		}
		isHeadRedirect := q.method == http.MethodHead && (r.StatusCode == http.StatusMovedPermanently ||
			r.StatusCode == http.StatusFound)
		location := r.Header.Get("Location")
		if location == "" || !isHeadRedirect && r.StatusCode != http.StatusTemporaryRedirect &&
			r.StatusCode != http.StatusPermanentRedirect {
			return r, nil
		}
		next, err := r.Request.URL.Parse(location)
		switch {
		case err != nil || next.Host == "" || next.Scheme != "http" && next.Scheme != "https":
			return nil, newUploadRefusal(transfer.Final, fault.Protocol, "",
				"the server redirects to %q, which is not an HTTP URL", text.Printable(location))
		case r.Request.URL.Scheme == "https" && next.Scheme != "https":
			return nil, newUploadRefusal(transfer.Final, fault.Protocol, "",
				"the server redirects from https to %s", next.Scheme)
		}
		next.User = nil
		to = next.String()
	}
	return nil, newUploadRefusal(transfer.Final, fault.Protocol, "", "more than %d redirects", maxRedirects)
}

// sendSingleRequest sends a request to one URL.
func (a *requester) sendSingleRequest(ctx context.Context, d *transfer.Worker, q request, to string) (*response,
	error) {
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
	if q.job != nil {
		q.job.SetCarried(0)
		q.job.SetAwaitingResponse(q.length == 0)
		ctx = httptrace.WithClientTrace(ctx,
			&httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { q.job.Touch() }})
	}
	r, err := http.NewRequestWithContext(ctx, q.method, to, nil)
	if err != nil {
		return nil, err
	}
	r.Body, r.ContentLength = body, q.length
	if err := a.setRequestHeaders(r, q); err != nil {
		if body != nil {
			body.Close()
		}
		return nil, &transfer.Refusal{Verdict: transfer.Final, Err: err}
	}
	resp, err := d.Client.Do(r)
	if q.job != nil && q.job.fileReadError() != nil {
		if err == nil {
			resp.Body.Close()
		}
		return nil, q.job.fileReadError()
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		var u *url.Error // it would repeat the URL, which may have secrets
		if errors.As(err, &u) {
			err = u.Err
		}
		return nil, err
	}
	defer resp.Body.Close()
	a.onResponse(d)
	got := &response{Response: resp, url: to}
	if q.readBody {
		if got.body, err = io.ReadAll(io.LimitReader(resp.Body, maxResponseBody)); err != nil {
			return nil, err
		}
	} else {
		drainTimer := time.AfterFunc(drainTimeout, func() { resp.Body.Close() })
		_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // only the status matters
		drainTimer.Stop()
	}
	if isAccepted(resp.StatusCode) && q.job != nil && !q.job.AwaitsResponse() {
		return nil, newUploadRefusal(transfer.Retry, fault.Protocol, "",
			"the web server answered %s before it had received the file", text.Printable(resp.Status))
	}
	return got, nil
}

// setRequestHeaders sets the header fields of a request.
func (a *requester) setRequestHeaders(r *http.Request, q request) error {
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
	r.Header.Set("User-Agent", a.userAgent)
	r.Header.Set("Accept-Encoding", "identity") // sizes must not be those of a coding
	if q.expectContinue && q.length >= minExpectSize {
		r.Header.Set("Expect", "100-continue")
	}
	return nil
}

// redactURLPassword returns a URL without its password.
func redactURLPassword(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return ""
	}
	return u.Redacted()
}
