package playlist

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"mpbond/base/unit"
	"mpbond/onload/board"
	"mpbond/onload/fetch"
	"mpbond/onload/transfer"
)

// pieceSize is what is read at a time.
const pieceSize = 32 << 10

// job is one request on its way. What is not set at its start is guarded by the loop's lock.
type job struct {
	*transfer.Job
	shelf    *shelf
	seg      *segment
	header   http.Header
	from, to unit.Bytes // that it asks for, of its segment
	ranged   bool
	guard    string // If-Range, or ""

	answer *answer
	buf    []byte     // of a segment that is not split
	fresh  unit.Bytes // of what it has carried, what nobody else has
	some   unit.Bytes // that came since it was touched
}

// answer is the head of one that can be used.
type answer struct {
	status         int
	header         http.Header
	size           unit.Bytes // of the segment, or board.Unknown
	total          unit.Bytes // of what it is a part of
	etag, modified string     // strong, or ""
	ranges         bool       // the server has parts of it
}

func (a *answer) validator() string {
	if a.etag != "" {
		return a.etag
	}
	return a.modified
}

func refuse(format string, args ...any) *transfer.Refusal {
	return &transfer.Refusal{Verdict: transfer.Exclude, Err: fmt.Errorf(format, args...)}
}

// Carry implements transfer.Carrier.
func (j *job) Carry(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, j.seg.url, nil)
	if err != nil {
		return refuse("%w", err)
	}
	r.Header = j.header
	if j.ranged {
		r.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", j.seg.from+j.from, j.seg.from+j.to-1))
		if j.guard != "" {
			r.Header.Set("If-Range", j.guard)
		}
	}
	a, err := j.Worker.Client.Do(r)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	if err := j.answered(a); err != nil {
		return err
	}
	buf := make([]byte, pieceSize)
	for {
		n, err := a.Body.Read(buf)
		if over, no := j.brought(buf[:n]); over || no != nil {
			if no == nil && err == nil {
				_, _ = a.Body.Read(buf[:1]) // the end, so that the connection can be used again
			}
			return no
		}
		switch {
		case errors.Is(err, io.EOF):
			return j.atEnd()
		case err != nil:
			return err
		}
	}
}

// atEnd judges the end of a body.
func (j *job) atEnd() error {
	j.shelf.loop.Lock()
	defer j.shelf.loop.Unlock()
	if size := j.Item.Size(); size != board.Unknown && j.Carried() < size {
		return io.ErrUnexpectedEOF
	}
	return nil
}

// read judges the head of an answer.
func (j *job) read(r *http.Response) (*answer, *transfer.Refusal) {
	a := &answer{status: r.StatusCode, header: r.Header.Clone(), size: board.Unknown}
	switch {
	case r.StatusCode == http.StatusTooManyRequests || r.StatusCode == http.StatusServiceUnavailable:
		no := refuse("the web server answered %s", r.Status)
		no.After = max(time.Second, transfer.RetryAfter(r.Header, time.Now()))
		return nil, no
	case redirected(r.StatusCode):
		return nil, &transfer.Refusal{Verdict: transfer.Redirect, Err: fmt.Errorf("the web server answered %s", r.Status)}
	case j.ranged && r.StatusCode != http.StatusPartialContent, !j.ranged && r.StatusCode != http.StatusOK:
		return nil, refuse("the web server answered %s", r.Status)
	case r.Uncompressed, r.Header.Get("Content-Encoding") != "" && !strings.EqualFold(r.Header.Get("Content-Encoding"), "identity"):
		return nil, refuse("encoded, although not asked for")
	}
	a.etag, a.modified, _ = fetch.Validators(r.Header)
	if !j.ranged {
		if r.ContentLength >= 0 {
			a.size = unit.Bytes(r.ContentLength)
		} else if r.ProtoMajor < 2 && len(r.TransferEncoding) == 0 {
			return nil, refuse("neither length nor end are told")
		}
		a.total = a.size
		a.ranges = strings.EqualFold(r.Header.Get("Accept-Ranges"), "bytes")
		return a, nil
	}
	from, to := j.seg.from+j.from, j.seg.from+j.to
	_, end, total, err := fetch.Part(r, from, to)
	if err != nil {
		return nil, refuse("%w", err)
	}
	if end != to {
		return nil, refuse("asked for bytes %d to %d, the server sends %d to %d", from, to, from, end)
	}
	a.total, a.ranges, a.size = total, true, j.seg.size
	return a, nil
}

// same tells whether two answers are of one state of an object.
func (a *answer) same(b *answer) bool {
	return a.total == b.total && a.etag == b.etag && (a.etag != "" || a.modified == b.modified)
}

// ofOne tells whether an answer is of the version of which the other ranges of that file
// are. The own line's word decides: what others have brought of another one is forgotten.
func (j *job) ofOne(a *answer) bool {
	p, r := j.shelf, j.seg.reel
	if r.file != j.seg.url || r.version == nil {
		r.file, r.version = j.seg.url, a
	}
	if !r.version.same(a) {
		if !j.Worker.IsOwn() {
			return false
		}
		r.version = a
		for _, o := range p.segments {
			switch other := o.reel == r && o.url == r.file && o.answer != nil && !o.answer.same(a); {
			case other && o.readers > 0:
				p.leave(o, errors.New("this device's own line sees another version"))
			case other:
				p.forget(o)
			}
		}
	}
	return true
}

// answered takes in the head of an answer.
func (j *job) answered(r *http.Response) error {
	p, s := j.shelf, j.seg
	p.loop.Lock()
	defer p.loop.Settle()
	a, no := j.read(r)
	j.Await(false)
	switch {
	case j.IsDropped():
		return transfer.ErrDropped
	case no != nil:
		return no
	case s.answer != nil && !s.answer.same(a):
		return refuse("it is not what another device gets")
	case j.ranged && !s.split && !j.ofOne(a):
		return refuse("it is of another version than the rest of the file")
	}
	j.answer = a
	if s.answer != nil {
		if j.Item.To == board.Unknown {
			j.Item.To = a.size
		}
		return nil
	}
	s.answer = a
	s.size = a.size
	if s.split = a.size >= leastPart && a.ranges && a.validator() != ""; s.split {
		if !p.reserve(s, a.size) {
			s.split = false
			p.leave(s, errors.New("there is no room for it"))
			return transfer.ErrDropped
		}
		s.buf = make([]byte, a.size)
	}
	if a.size != board.Unknown {
		p.loop.Board.Learn(j.ID, a.size, s.split)
		j.Item.To, j.Item.Split = a.size, s.split
	}
	s.signal()
	return nil
}

// brought takes in what came, and tells whether it is all.
func (j *job) brought(piece []byte) (over bool, err error) {
	p, s := j.shelf, j.seg
	p.loop.Lock()
	defer p.loop.Settle()
	got, n := j.Carried(), unit.Bytes(len(piece))
	j.SetCarried(got + n)
	defer p.loop.Count(j.Job)
	if j.IsDropped() {
		return true, transfer.ErrDropped
	}
	size := j.Item.Size()
	if size != board.Unknown && got+n > size { // it has become less
		piece = piece[:max(0, size-got)]
	}
	if len(piece) > 0 {
		if !j.keep(got, piece) {
			p.leave(s, errors.New("there is no room for it"))
			return true, transfer.ErrDropped
		}
		s.signal()
	}
	return size != board.Unknown && got+n >= size, nil
}

// keep takes in bytes of its item from got on, and reports whether there is room for them.
func (j *job) keep(got unit.Bytes, piece []byte) bool {
	s, n := j.seg, unit.Bytes(len(piece))
	if j.some += n; j.some >= leastPace {
		j.some = 0
		j.Touch()
	}
	if at := j.from + got; s.split {
		for from, to := range s.have.Missing(at, at+n) { // nobody may write what somebody reads
			j.fresh += unit.Bytes(copy(s.buf[from:to], piece[from-at:]))
		}
		s.have.Add(at, at+n)
		return true
	}
	if !j.shelf.reserve(s, n) {
		return false
	}
	j.buf = append(j.buf, piece...)
	if s.lead == nil {
		s.lead = j
	}
	return true
}
