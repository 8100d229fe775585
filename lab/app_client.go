// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"strconv"
	"sync"
	"time"

	"mpbond/base/unit"
	"mpbond/lab/app"
)

// AppClient is a client that plays the script of an app over real connections. Downloads come from
// nginx, uploads go to the sink, and requests with bytes in both directions go to the exchange
// server.
type AppClient struct {
	Script app.Script `json:"script"`
	Web    string     `json:"web"`     // address of the web node
	Blob   string     `json:"blob"`    // file whose beginning each download and upload consists of
	CAFile string     `json:"ca_file"` // certificate of the hosts, for a script with TLS
	Page   string     `json:"page"`    // directory of the page at each host, for a script with a Browser
	// At most one of these is set.
	SOCKS string `json:"-"` // address of a proxy
	MPTCP bool   `json:"-"` // ask the kernel for MPTCP
}

// Run plays the script and prints an app.Log to out. A client with a browser waits for a line from in
// before, and for its end after that.
func (c *AppClient) Run(ctx context.Context, in io.Reader, out io.Writer) error {
	if err := c.Script.Check(); err != nil {
		return err
	}
	if c.Script.Browser != "" {
		return c.loadInBrowser(ctx, in, out)
	}
	blob, err := mapFile(c.Blob)
	if err != nil {
		return fmt.Errorf("app: %w", err)
	}
	run := &appRun{client: c, blob: blob, begin: time.Now(), outcomes: make([]app.Outcome, len(c.Script.Requests))}
	for range c.Script.HostCount() {
		client, err := c.newHTTPClient()
		if err != nil {
			return err
		}
		defer client.CloseIdleConnections()
		run.hosts = append(run.hosts, client)
	}
	if c.Script.SendLimit > 0 {
		run.sendClock = &sendClock{rate: c.Script.SendLimit}
	}
	if c.Script.Length > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.Script.Length, errScriptOver)
		defer cancel()
	}
	if err := run.playStages(ctx); err != nil {
		return fmt.Errorf("app %s: %w", c.Script.App, err)
	}
	run.mu.Lock()
	defer run.mu.Unlock()
	return json.NewEncoder(out).Encode(app.Log{Requests: run.outcomes, Seconds: run.elapsed().Seconds()})
}

// errScriptOver ends the requests of a script with a length.
var errScriptOver = errors.New("the script is over")

// newHTTPClient returns a client with the connections that the script allows. It speaks HTTP/1.1.
func (c *AppClient) newHTTPClient() (*http.Client, error) {
	dialer := &net.Dialer{}
	dialer.SetMultipathTCP(c.MPTCP)
	t := &http.Transport{DialContext: dialer.DialContext, DisableCompression: true,
		MaxConnsPerHost: c.Script.Connections, MaxIdleConnsPerHost: c.Script.Connections,
		DisableKeepAlives: c.Script.IsCold,
		Proxy:             httpProxyFunc("socks5h", c.SOCKS), Protocols: &http.Protocols{}}
	t.Protocols.SetHTTP1(true)
	if c.Script.TLS {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("app: %w", err)
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("app: %s has no certificate", c.CAFile)
		}
		t.TLSClientConfig = &tls.Config{RootCAs: roots}
	}
	return &http.Client{Transport: t}, nil
}

// appRun is one run of a script.
type appRun struct {
	client    *AppClient
	hosts     []*http.Client // by host
	blob      []byte
	begin     time.Time
	sendClock *sendClock // nil: no limit

	mu       sync.Mutex    // connections outlive their requests
	outcomes []app.Outcome // guarded by mu
}

// updateOutcome changes the outcome of request i.
func (r *appRun) updateOutcome(i int, f func(*app.Outcome)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.outcomes[i])
}

func (r *appRun) elapsed() time.Duration { return time.Since(r.begin) }

// playStages makes the requests of each stage when those of the one before are complete. Those to one
// host are made in the order of the script, each as soon as a connection is free.
func (r *appRun) playStages(ctx context.Context) error {
	script := r.client.Script
	failures := make([]error, len(script.Requests))
	for stage := range script.StageCount() {
		began := r.elapsed()
		waiting := make([][]int, len(r.hosts))
		for _, i := range script.StageOf(stage) {
			host := script.Requests[i].Host
			waiting[host] = append(waiting[host], i)
		}
		var wg sync.WaitGroup
		for _, list := range waiting {
			next := make(chan int, len(list))
			for _, i := range list {
				next <- i
			}
			close(next)
			for range min(script.Connections, len(list)) {
				wg.Go(func() {
					for i := range next {
						if failures[i] = r.makeRequest(ctx, i, began); failures[i] != nil {
							return
						}
					}
				})
			}
		}
		wg.Wait()
		if context.Cause(ctx) == errScriptOver {
			return nil
		}
		if err := errors.Join(failures...); err != nil {
			return err
		}
	}
	return nil
}

// makeRequest makes request i of a stage that began at a time.
func (r *appRun) makeRequest(ctx context.Context, i int, began time.Duration) error {
	want := r.client.Script.Requests[i]
	select {
	case <-time.After(max(began+want.Pause, want.At) - r.elapsed()):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	r.updateOutcome(i, func(o *app.Outcome) { o.Start = r.elapsed().Seconds() })
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotFirstResponseByte: func() {
		r.updateOutcome(i, func(o *app.Outcome) { o.FirstByte = r.elapsed().Seconds() })
	}})
	req, err := r.newRequest(ctx, i)
	if err != nil {
		return err
	}
	answer, err := r.hosts[want.Host].Do(req)
	if err == nil {
		defer answer.Body.Close()
		err = r.readAnswer(answer, i)
	}
	if err != nil {
		return fmt.Errorf("request %d: %w", i, err)
	}
	r.updateOutcome(i, func(o *app.Outcome) { o.End = r.elapsed().Seconds() })
	return nil
}

// newRequest returns the HTTP request for request i. What was sent of its body counts in its
// outcome.
func (r *appRun) newRequest(ctx context.Context, i int) (*http.Request, error) {
	want, method, body := r.client.Script.Requests[i], http.MethodGet, io.Reader(nil)
	if want.Up > 0 {
		method = http.MethodPost
		body = &sentBody{of: bytes.NewReader(r.blob[:want.Up]), clock: r.sendClock, sent: func(n int) {
			r.updateOutcome(i, func(o *app.Outcome) { o.Up += unit.Bytes(n) })
		}}
	}
	req, err := http.NewRequestWithContext(ctx, method, r.client.urlOf(want), body)
	if err != nil {
		return nil, err
	}
	req.ContentLength = int64(want.Up)
	if want.Up == 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=0-%d", want.Down-1))
	}
	return req, nil
}

// urlOf returns where a request goes. Each host of a script has a port of its own.
func (c *AppClient) urlOf(want app.Request) string {
	host := func(port int) string { return net.JoinHostPort(c.Web, strconv.Itoa(port)) }
	switch {
	case want.Up > 0 && want.Down > 0:
		return fmt.Sprintf("http://%s/?down=%d", host(exchangePort), want.Down)
	case want.Up > 0:
		return fmt.Sprintf("http://%s/", host(sinkPort))
	case c.Script.TLS:
		return fmt.Sprintf("https://%s/%s", host(appHostPort+want.Host), appBlobName)
	}
	return fmt.Sprintf("http://%s/%s", host(appHostPort+want.Host), appBlobName)
}

// readAnswer reads an answer and checks its content.
func (r *appRun) readAnswer(answer *http.Response, i int) error {
	want := r.client.Script.Requests[i]
	if code := answer.StatusCode; code != http.StatusOK && code != http.StatusPartialContent {
		return fmt.Errorf("the web server answered %s", answer.Status)
	}
	if want.Down == 0 { // the sink reports what it got
		var got Received
		if err := json.NewDecoder(answer.Body).Decode(&got); err != nil {
			return err
		}
		if got.Bytes != int64(want.Up) {
			return fmt.Errorf("%d of %d bytes arrived", got.Bytes, want.Up)
		}
		return nil
	}
	buf, at := make([]byte, 1<<15), 0
	for {
		n, err := answer.Body.Read(buf)
		if at+n > int(want.Down) || !bytes.Equal(buf[:n], r.blob[at:at+n]) {
			return fmt.Errorf("wrong content within %d bytes from byte %d", n, at)
		}
		at += n
		r.updateOutcome(i, func(o *app.Outcome) { o.Down = unit.Bytes(at) })
		switch {
		case err == io.EOF && at == int(want.Down):
			return nil
		case err == io.EOF:
			return fmt.Errorf("%d of %d bytes arrived", at, want.Down)
		case err != nil:
			return err
		}
	}
}

// sentBody is the body of a request, sent within a limit.
type sentBody struct {
	of    *bytes.Reader
	clock *sendClock
	sent  func(n int) // is called for bytes that leave
}

// sendPiece is the most that is sent at once within a limit: 4 ms at 30 Mbit/s.
const sendPiece = 16 << 10

func (b *sentBody) Read(p []byte) (int, error) {
	if b.clock != nil {
		p = p[:min(len(p), sendPiece)]
	}
	n, err := b.of.Read(p)
	b.sent(n)
	if b.clock != nil {
		b.clock.waitFor(unit.Bytes(n))
	}
	return n, err
}

// sendClock limits the rate of all bodies of a script. Safe for concurrent use.
type sendClock struct {
	rate unit.Rate
	mu   sync.Mutex
	next time.Time // when the next byte may be sent; guarded by mu
}

// waitFor waits until n bytes may be sent. Time that passed without bytes is lost.
func (c *sendClock) waitFor(n unit.Bytes) {
	c.mu.Lock()
	now := time.Now()
	if c.next.Before(now) {
		c.next = now
	}
	at := c.next
	c.next = c.next.Add(c.rate.Time(n))
	c.mu.Unlock()
	time.Sleep(at.Sub(now))
}
