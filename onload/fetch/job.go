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

// readSize is what is read at a time: a system call for each two or three TCP segments
// of a fast link would cost more than the rest.
const readSize = 64 << 10

// Why a job was ended.
var (
	errStalled    = fault.New(fault.Timeout, errors.New("no byte came for long"), "")
	errNoResponse = fault.New(fault.Timeout, errors.New("no answer came"), "")
	errShortRange = errors.New("the server sent a part of the part")
	errDigest     = fault.New(fault.Integrity, errors.New("what came does not have the digest that its sender gave (Content-Digest)"), "try again")
)

// job is one request on its way.
type job struct {
	*transfer.Job
	task    *task
	object  *object
	url     string
	wanted  byteRange
	ifRange string // If-Range, or ""

	// The loop's lock guards these.
	part        *part
	seenVersion version // what it has instead of the object, as far as it is known
}

// Carry implements transfer.Carrier.
func (j *job) Carry(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, j.url, nil)
	if err != nil {
		return err
	}
	j.wanted.setHeaders(req.Header, j.task.UserAgent, j.ifRange)
	r, err := j.Worker.Client.Do(req)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	a, refusal := parseResponse(r, j.wanted, time.Now())
	if refusal != nil {
		return refusal
	}
	to, err := j.acceptResponse(a, r.Request.URL.String())
	if err != nil {
		return err
	}
	return j.readBody(r.Body, a, to)
}

// CountMoved implements transfer.Carrier.
func (j *job) CountMoved(n unit.Bytes) { j.object.countReceived(j, n) }

// setHeaders sets what a request for it has; guard is for If-Range, or "".
func (w byteRange) setHeaders(h http.Header, agent, guard string) {
	h.Set("User-Agent", agent)
	h.Set("Accept-Encoding", "identity") // the file as it is
	h.Set("Want-Repr-Digest", "sha-256=1")
	if !w.ranged {
		return
	}
	last := ""
	if w.to != board.Unknown {
		last = strconv.FormatInt(int64(w.to)-1, 10)
	}
	h.Set("Range", fmt.Sprintf("bytes=%d-%s", w.from, last))
	if guard != "" {
		h.Set("If-Range", guard)
	}
}

// readBody writes what comes, up to the end of what the answer has, or to where the job
// ends now.
func (j *job) readBody(body io.Reader, a response, to *part) error {
	buf := make([]byte, readSize)
	digest := a.contentDigest.newHash()
	for at := a.from; ; {
		end := j.End()
		if a.to != board.Unknown && (end == board.Unknown || a.to < end) {
			end = a.to
		}
		if end != board.Unknown && at >= end {
			if at == a.to {
				_, _ = body.Read(buf[:1]) // the end, so that the connection can be used again
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
			return truncatedError(at, io.ErrUnexpectedEOF)
		case err != nil && !errors.Is(err, io.EOF):
			return truncatedError(at, err)
		}
	}
}

func truncatedError(at unit.Bytes, err error) error {
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	return fault.New(fault.Integrity, fmt.Errorf("the answer is cut short at byte %d: %w", at, err), "try again")
}
