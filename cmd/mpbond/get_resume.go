package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"time"

	"mpbond/api"
	"mpbond/api/client"
	"mpbond/base/backoff"
	"mpbond/base/fault"
	"mpbond/base/text"
	"mpbond/base/unit"
	"mpbond/internal/cli"
	"mpbond/onload/board"
	"mpbond/onload/fetch"
)

// Limits of a download that was interrupted.
const (
	mostAnew       = 3           // times that it begins anew
	resumePatience = time.Minute // without a byte
	firstPause     = 200 * time.Millisecond
	mostPause      = 5 * time.Second
)

// download is a file on its way through the primary. What a restart of the primary or the
// server interrupts goes on where it was, if the web server names the version of the file.
type download struct {
	*get
	client    *client.Client
	answer    *http.Response // of the last request
	validator string         // for If-Range; "": the file begins anew
	etag      string
	modified  string
	size      int64 // -1: not known
	n         int64 // bytes written
	anew      int
	target    *cli.Target
	digest    hash.Hash
	progress  *progress
	notes     io.Writer
	out       io.Writer // all of these
}

// open makes the first request.
func (g *get) open(ctx context.Context, c *client.Client, s api.Status) (*download, error) {
	d := &download{get: g, client: c, digest: sha256.New()}
	var err error
	if d.answer, err = g.request(ctx, s, 0, ""); err != nil {
		return nil, err
	}
	if d.answer.StatusCode != http.StatusOK {
		d.answer.Body.Close()
		return nil, fmt.Errorf("the web server answered %s", text.Printable(d.answer.Status))
	}
	d.take()
	return d, nil
}

func (d *download) close() { d.answer.Body.Close() }

// take takes in what a 200 says of the file.
func (d *download) take() {
	d.size = d.answer.ContentLength
	d.etag, d.modified, _ = fetch.Validators(d.answer.Header)
	if d.validator = d.etag; d.validator == "" {
		d.validator = d.modified
	}
}

// request sends a request for the file from a byte on through the primary's proxy, and
// returns the answer, its body still to be read.
func (g *get) request(ctx context.Context, s api.Status, from int64, validator string) (*http.Response, error) {
	way := &http.Transport{
		DisableCompression:    true, // the file as it is
		DisableKeepAlives:     true, // one request
		ResponseHeaderTimeout: headerTimeout,
		TLSHandshakeTimeout:   headerTimeout,
	}
	if s.HTTP != "" {
		way.DialContext = proxied{reachable(s.HTTP)}.DialContext
	} else {
		way.Proxy = http.ProxyURL(&url.URL{Scheme: "socks5h", Host: reachable(s.SOCKS)}) // h: names are resolved at the server
	}
	web := &http.Client{Jar: g.secrets.Jar(), Transport: g.secrets.Transport(way, false)}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.url.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "mpbond/"+cli.Version)
	if from > 0 && validator != "" {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
		req.Header.Set("If-Range", validator)
	}
	return web.Do(req)
}

// run brings the file to its end.
func (d *download) run(ctx context.Context) error {
	d.out = io.MultiWriter(d.target, d.digest, d.progress)
	var pause backoff.Backoff
	for last := time.Now(); ; {
		before := d.n
		err := d.copyBody()
		d.answer.Body.Close()
		if err == nil || !d.canGoOn(err) || d.n == before && time.Since(last) > resumePatience {
			return err
		}
		if d.n != before {
			last = time.Now()
			pause.Reset()
			fmt.Fprintf(d.notes, "interrupted after %s, goes on: %s\n", unit.Bytes(d.n).Decimal(), text.Printable(err.Error()))
		}
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(pause.Double(firstPause, mostPause)):
			}
			again := d.reopen(ctx)
			if again == nil {
				break
			}
			if errors.As(again, new(finalError)) || time.Since(last) > resumePatience {
				return fmt.Errorf("interrupted (%v), and the rest cannot be had: %w", err, again)
			}
		}
	}
}

// finalError is one that will not be another one later.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

// writeError is of the output.
type writeError struct{ error }

func (e writeError) Unwrap() error { return e.error }

// copyBody writes what comes.
func (d *download) copyBody() error {
	buf := make([]byte, 64<<10)
	for {
		n, err := d.answer.Body.Read(buf)
		if n > 0 {
			if _, err := d.out.Write(buf[:n]); err != nil {
				return writeError{err}
			}
			d.n += int64(n)
		}
		switch {
		case errors.Is(err, io.EOF) && d.size >= 0 && d.n < d.size:
			return io.ErrUnexpectedEOF
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// canGoOn reports whether it makes sense to ask for the rest.
func (d *download) canGoOn(err error) bool {
	if errors.As(err, new(writeError)) || errors.Is(err, context.Canceled) {
		return false
	}
	return d.validator != "" || d.target.File != nil && d.anew < mostAnew
}

// reopen asks for the rest, or for all where that cannot be had.
func (d *download) reopen(ctx context.Context) error {
	s, err := primaryStatus(ctx, d.client)
	if err != nil {
		return err
	}
	a, err := d.request(ctx, s, d.n, d.validator)
	if err != nil {
		return err
	}
	d.answer = a
	switch c := a.StatusCode; {
	case c == http.StatusPartialContent && d.n > 0 && d.validator != "":
		etag, modified, _ := fetch.Validators(a.Header)
		_, end, of, err := fetch.Part(a, unit.Bytes(d.n), board.Unknown)
		if err == nil && (end != of || d.size >= 0 && int64(of) != d.size || d.etag != "" && etag != d.etag || d.etag == "" && modified != d.modified) {
			err = errors.New("the web server sends a part of another version")
		}
		if err != nil {
			a.Body.Close()
			return finalError{fault.New(fault.Integrity, err, "try again")}
		}
		d.size = int64(of)
		return nil
	case c == http.StatusOK:
		return d.beginAnew()
	case c >= 500 || c == http.StatusTooManyRequests:
		a.Body.Close()
		return fmt.Errorf("the web server answered %s", text.Printable(a.Status))
	}
	a.Body.Close()
	return finalError{fmt.Errorf("the web server answered %s", text.Printable(a.Status))}
}

// beginAnew forgets what was written: the answer has all of the file.
func (d *download) beginAnew() error {
	f := d.target.File
	d.anew++
	switch {
	case d.n == 0:
	case f == nil || d.anew > mostAnew:
		d.answer.Body.Close()
		return finalError{fault.New(fault.Integrity, errors.New("the web server does not send the rest of the same file"), "try again")}
	default:
		why := "its server has another version of it now, or no ranges"
		if d.validator == "" {
			why = "its server does not name the version of it"
		}
		fmt.Fprintf(d.notes, "starting over, %s discarded: %s\n", unit.Bytes(d.n).Decimal(), why)
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return finalError{err}
		}
		if err := f.Truncate(0); err != nil {
			return finalError{err}
		}
		d.n = 0
		d.digest.Reset()
		d.progress.reset()
	}
	d.take()
	return nil
}
