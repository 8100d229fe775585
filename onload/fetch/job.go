// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/onload/board"
	"mpbond/onload/transfer"
)

// readSize is how much is read at a time. With smaller reads, one system call for two or three TCP
// segments would dominate the cost on a fast link.
const readSize = 64 << 10

// Reasons for the end of a job.
var (
	errStalled    = fault.New(fault.Timeout, errors.New("no data received for too long"), "")
	errNoResponse = fault.New(fault.Timeout, errors.New("no response received"), "")
	errShortRange = errors.New("the server sent only a part of the requested range")
	errDigest     = fault.New(fault.Integrity,
		errors.New("the received bytes do not match the digest of the response (Content-Digest)"), "try again")
)

// job is one request of a device.
type job struct {
	*transfer.Job
	task    *task
	object  *object
	url     string
	wanted  byteRange
	ifRange string // value of If-Range, or ""

	// The loop's lock guards these.
	part        *part
	seenVersion version // other version that the device has seen, as far as known
}

// Run implements transfer.JobRunner.
func (j *job) Run(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, j.url, nil)
	if err != nil {
		return err
	}
	j.wanted.setRangeHeaders(req.Header, j.task.UserAgent, j.ifRange)
	r, err := j.Worker.Client.Do(req)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	a, refusal := parseFetchResponse(r, j.wanted, time.Now())
	if refusal != nil {
		return refusal
	}
	to, err := j.acceptJobResponse(a, r.Request.URL.String())
	if err != nil {
		return err
	}
	return j.writeBodyToPart(r.Body, a, to)
}

// CountMoved records n more received bytes.
func (j *job) CountMoved(n unit.Bytes) { j.object.countReceived(j, n) }

// setRangeHeaders sets the fields of a request for the range. ifRange is the value of If-Range, or
// "".
func (w byteRange) setRangeHeaders(h http.Header, agent, ifRange string) {
	h.Set("User-Agent", agent)
	h.Set("Accept-Encoding", "identity") // no content coding
	h.Set("Want-Repr-Digest", "sha-256=1")
	if !w.ranged {
		return
	}
	last := ""
	if w.to != board.Unknown {
		last = strconv.FormatInt(int64(w.to)-1, 10)
	}
	h.Set("Range", fmt.Sprintf("bytes=%d-%s", w.from, last))
	if ifRange != "" {
		h.Set("If-Range", ifRange)
	}
}

// writeBodyToPart writes the body to the part file, up to the end of the response or to the current
// end of the job.
func (j *job) writeBodyToPart(body io.Reader, a response, to *part) error {
	buf := make([]byte, readSize)
	digest := a.contentDigest.newDigestHash()
	for at := a.from; ; {
		end := j.End()
		if a.to != board.Unknown && (end == board.Unknown || a.to < end) {
			end = a.to
		}
		if end != board.Unknown && at >= end {
			if at == a.to {
				_, _ = body.Read(buf[:1]) // reads the end, so that the connection can be reused
				if digest != nil && string(digest.Sum(nil)) != a.contentDigest.sum {
					return errDigest
				}
				if want := j.End(); want != board.Unknown && at < want {
					return errShortRange
				}
			}
			return nil
		}
		piece := buf
		if end != board.Unknown && end-at < readSize {
			piece = buf[:end-at]
		}
		n, err := body.Read(piece)
		if n > 0 {
			if _, err := to.file.WriteAt(piece[:n], int64(at)); err != nil {
				return transfer.NewLocalError(err)
			}
			if digest != nil {
				digest.Write(piece[:n])
			}
			at += unit.Bytes(n)
			j.SetCarried(at - j.Item.From)
			j.Touch()
		}
		switch {
		case errors.Is(err, io.EOF) && end == board.Unknown:
			if digest != nil && string(digest.Sum(nil)) != a.contentDigest.sum {
				return errDigest
			}
			return nil
		case errors.Is(err, io.EOF) && at < end:
			return wrapTruncatedBody(at, io.ErrUnexpectedEOF)
		case err != nil && !errors.Is(err, io.EOF):
			return wrapTruncatedBody(at, err)
		}
	}
}

// wrapTruncatedBody wraps an unexpected end of a body in a fault.
func wrapTruncatedBody(at unit.Bytes, err error) error {
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	return fault.New(fault.Integrity, fmt.Errorf("the response is truncated at byte %d: %w", at, err), "try again")
}
