// SPDX-License-Identifier: Apache-2.0

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

// Limits of an interrupted download.
const (
	maxRestarts   = 3           // from the first byte
	resumeTimeout = time.Minute // without a byte
	minRetryDelay = 200 * time.Millisecond
	maxRetryDelay = 5 * time.Second
)

// download is a file on its way through the primary. After a restart of the primary or the server
// it resumes if the web server identifies the version of the file; else it starts over.
type download struct {
	*getTask
	client    *client.Client
	response  *http.Response // of the last request
	validator string         // for If-Range; "": the download starts over
	etag      string
	modified  string
	size      int64 // -1 if unknown
	written   int64 // bytes written
	restarts  int
	target    *cli.Target
	digest    hash.Hash
	progress  *progress
	notes     io.Writer
	out       io.Writer // writes to target, digest and progress
}

// openDownload sends the first request.
func (g *getTask) openDownload(ctx context.Context, c *client.Client, s api.Status) (*download, error) {
	d := &download{getTask: g, client: c, digest: sha256.New()}
	var err error
	if d.response, err = g.sendFileRequest(ctx, s, 0, ""); err != nil {
		return nil, err
	}
	if d.response.StatusCode != http.StatusOK {
		d.response.Body.Close()
		return nil, fmt.Errorf("the web server answered %s", text.Printable(d.response.Status))
	}
	d.applyHeaders()
	return d, nil
}

func (d *download) closeResponseBody() { d.response.Body.Close() }

// applyHeaders takes size and version of the file from the header of a 200 response.
func (d *download) applyHeaders() {
	d.size = d.response.ContentLength
	d.etag, d.modified, _ = fetch.Validators(d.response.Header)
	if d.validator = d.etag; d.validator == "" {
		d.validator = d.modified
	}
}

// sendFileRequest requests the file from a byte offset on, through the primary's proxy. The caller
// must read and close the body.
func (g *getTask) sendFileRequest(ctx context.Context, s api.Status, from int64, validator string) (*http.Response,
	error) {
	transport := &http.Transport{
		DisableCompression:    true, // keep the bytes of the file
		DisableKeepAlives:     true, // send one request only
		ResponseHeaderTimeout: headerTimeout,
		TLSHandshakeTimeout:   headerTimeout,
	}
	if s.HTTP != "" {
		transport.DialContext = proxyDialer{proxyDialAddress(s.HTTP)}.DialContext
	} else {
		// h: the server resolves names
		transport.Proxy = http.ProxyURL(&url.URL{Scheme: "socks5h", Host: proxyDialAddress(s.SOCKS)})
	}
	web := &http.Client{Jar: g.secrets.Jar(), Transport: g.secrets.Transport(transport, false)}
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

// copyWithResume copies the file to its end and resumes after interruptions.
func (d *download) copyWithResume(ctx context.Context) error {
	d.out = io.MultiWriter(d.target, d.digest, d.progress)
	var pause backoff.Backoff
	for last := time.Now(); ; {
		before := d.written
		err := d.copyResponseBody()
		d.response.Body.Close()
		if err == nil || !d.canResumeAfter(err) || d.written == before && time.Since(last) > resumeTimeout {
			return err
		}
		if d.written != before {
			last = time.Now()
			pause.Reset()
			fmt.Fprintf(d.notes, "interrupted after %s, resuming: %s\n",
				unit.Bytes(d.written).Decimal(), text.Printable(err.Error()))
		}
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(pause.Double(minRetryDelay, maxRetryDelay)):
			}
			retryErr := d.resumeOrRestart(ctx)
			if retryErr == nil {
				break
			}
			if errors.As(retryErr, new(permanentError)) || time.Since(last) > resumeTimeout {
				return fmt.Errorf("interrupted (%v), and resuming failed: %w", err, retryErr)
			}
		}
	}
}

// permanentError is an error for which retrying is useless.
type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// writeError is an error of the output.
type writeError struct{ error }

func (e writeError) Unwrap() error { return e.error }

// copyResponseBody writes the body of the response to out.
func (d *download) copyResponseBody() error {
	buf := make([]byte, 64<<10)
	for {
		n, err := d.response.Body.Read(buf)
		if n > 0 {
			if _, err := d.out.Write(buf[:n]); err != nil {
				return writeError{err}
			}
			d.written += int64(n)
		}
		switch {
		case errors.Is(err, io.EOF) && d.size >= 0 && d.written < d.size:
			return io.ErrUnexpectedEOF
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// canResumeAfter reports whether to request the rest, or the whole file again, after err.
func (d *download) canResumeAfter(err error) bool {
	if errors.As(err, new(writeError)) || errors.Is(err, context.Canceled) {
		return false
	}
	return d.validator != "" || d.target.File != nil && d.restarts < maxRestarts
}

// resumeOrRestart requests the rest of the file, or all of it if the web server has no ranges.
func (d *download) resumeOrRestart(ctx context.Context) error {
	s, err := queryPrimary(ctx, d.client)
	if err != nil {
		return err
	}
	a, err := d.sendFileRequest(ctx, s, d.written, d.validator)
	if err != nil {
		return err
	}
	d.response = a
	switch c := a.StatusCode; {
	case c == http.StatusPartialContent && d.written > 0 && d.validator != "":
		etag, modified, _ := fetch.Validators(a.Header)
		_, end, of, err := fetch.ParsePartialResponse(a, unit.Bytes(d.written), board.Unknown)
		changed := end != of || d.size >= 0 && int64(of) != d.size ||
			d.etag != "" && etag != d.etag || d.etag == "" && modified != d.modified
		if err == nil && changed {
			err = errors.New("the web server sent a part of another version of the file")
		}
		if err != nil {
			a.Body.Close()
			return permanentError{fault.New(fault.Integrity, err, "try again")}
		}
		d.size = int64(of)
		return nil
	case c == http.StatusOK:
		return d.restartDownload()
	case c >= 500 || c == http.StatusTooManyRequests:
		a.Body.Close()
		return fmt.Errorf("the web server answered %s", text.Printable(a.Status))
	}
	a.Body.Close()
	return permanentError{fmt.Errorf("the web server answered %s", text.Printable(a.Status))}
}

// restartDownload discards what was written, since the response has the whole file.
func (d *download) restartDownload() error {
	f := d.target.File
	d.restarts++
	switch {
	case d.written == 0:
	case f == nil || d.restarts > maxRestarts:
		d.response.Body.Close()
		return permanentError{fault.New(fault.Integrity,
			errors.New("the web server does not send the rest of this file"), "try again")}
	default:
		why := "the web server has another version now, or no ranges"
		if d.validator == "" {
			why = "the web server does not identify the version"
		}
		fmt.Fprintf(d.notes, "starting over, %s discarded: %s\n", unit.Bytes(d.written).Decimal(), why)
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return permanentError{err}
		}
		if err := f.Truncate(0); err != nil {
			return permanentError{err}
		}
		d.written = 0
		d.digest.Reset()
		d.progress.resetTotalBar()
	}
	d.applyHeaders()
	return nil
}
