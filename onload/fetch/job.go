package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/onload/board"
)

// pieceSize is what is read at a time: a system call for each two or three TCP segments
// of a fast link would cost more than the rest.
const pieceSize = 64 << 10

// Why a job was ended by us.
var (
	errStalled  = fault.New(fault.Timeout, errors.New("no byte came for long"), "")
	errNoAnswer = fault.New(fault.Timeout, errors.New("no answer came"), "")
	errDropped  = errors.New("not needed any more")
	errShort    = errors.New("the server sent a part of the part")
	errDigest   = fault.New(fault.Integrity, errors.New("what came does not have the digest that its sender gave (Content-Digest)"), "try again")
)

// diskError is one of our own side, that no other device can do better.
type diskError struct{ error }

func (d diskError) Unwrap() error { return d.error }

// job is one request on its way. What it writes is told by at; the engine ends it
// earlier by end, or by cancel.
type job struct {
	board.Job
	object *object
	device *device
	url    string
	want   wanted
	guard  string // If-Range, or ""
	agent  string
	cancel context.CancelCauseFunc
	goOn   chan *part // where to write; nil: not at all

	at, end  atomic.Int64 // the next byte; the end, or board.Unknown
	stirred  atomic.Int64 // when it last did something, Unix time in ns
	answered atomic.Bool

	// The engine's.
	part    *part
	counted unit.Bytes
	dropped bool
}

// run makes the request, and tells of it.
func (j *job) run(ctx context.Context, tell func(event)) {
	err := j.fetch(ctx, tell)
	if cause := context.Cause(ctx); cause != nil && err != nil && !errors.As(err, new(diskError)) {
		err = cause
	}
	j.cancel(nil)
	tell(event{kind: ended, job: j, err: err})
}

func (j *job) stir() { j.stirred.Store(time.Now().UnixNano()) }

func (j *job) fetch(ctx context.Context, tell func(event)) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, j.url, nil)
	if err != nil {
		return err
	}
	j.header(req.Header)
	r, err := j.device.client.Do(req)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	a, no := read(r, j.want, time.Now())
	if no != nil {
		return no
	}
	j.answered.Store(true)
	j.stir()
	tell(event{kind: answered, job: j, answer: a, url: r.Request.URL.String()})
	select {
	case to := <-j.goOn:
		if to == nil {
			return errDropped
		}
		return j.body(r.Body, a, to)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (j *job) header(h http.Header) {
	h.Set("User-Agent", j.agent)
	h.Set("Accept-Encoding", "identity") // the file as it is
	h.Set("Want-Repr-Digest", "sha-256=1")
	if !j.want.ranged {
		return
	}
	last := ""
	if j.want.to != board.Unknown {
		last = strconv.FormatInt(int64(j.want.to)-1, 10)
	}
	h.Set("Range", fmt.Sprintf("bytes=%d-%s", j.want.from, last))
	if j.guard != "" {
		h.Set("If-Range", j.guard)
	}
}

// body writes what comes, up to the end of what the answer has, or to where the job
// ends now.
func (j *job) body(body io.Reader, a answer, to *part) error {
	buf := make([]byte, pieceSize)
	digest := a.content.start()
	for at := a.from; ; {
		end := unit.Bytes(j.end.Load())
		if a.to != board.Unknown && (end == board.Unknown || a.to < end) {
			end = a.to
		}
		if end != board.Unknown && at >= end {
			if at == a.to {
				_, _ = body.Read(buf[:1]) // the end, so that the connection can be used again
				if digest != nil && string(digest.Sum(nil)) != a.content.sum {
					return errDigest
				}
				if want := unit.Bytes(j.end.Load()); want != board.Unknown && at < want {
					return errShort
				}
			}
			return nil
		}
		piece := buf
		if end != board.Unknown && end-at < pieceSize {
			piece = buf[:end-at]
		}
		n, err := body.Read(piece)
		if n > 0 {
			if _, err := to.f.WriteAt(piece[:n], int64(at)); err != nil {
				return diskError{err}
			}
			if digest != nil {
				digest.Write(piece[:n])
			}
			at += unit.Bytes(n)
			j.at.Store(int64(at))
			j.stir()
		}
		switch {
		case errors.Is(err, io.EOF) && end == board.Unknown:
			if digest != nil && string(digest.Sum(nil)) != a.content.sum {
				return errDigest
			}
			return nil
		case errors.Is(err, io.EOF) && at < end:
			return cutShort(at, io.ErrUnexpectedEOF)
		case err != nil && !errors.Is(err, io.EOF):
			return cutShort(at, err)
		}
	}
}

func cutShort(at unit.Bytes, err error) error {
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	return fault.New(fault.Integrity, fmt.Errorf("the answer is cut short at byte %d: %w", at, err), "try again")
}
