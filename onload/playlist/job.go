package playlist

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"mpbond/base/unit"
	"mpbond/onload/board"
	"mpbond/onload/fetch"
)

// pieceSize is what is read at a time.
const pieceSize = 32 << 10

// job is one request on its way. What is not set at its start is guarded by Proxy.mu.
type job struct {
	board.Job
	seg      *segment
	line     *line
	cancel   context.CancelCauseFunc
	header   http.Header
	from, to unit.Bytes // that it asks for, of its segment
	ranged   bool
	guard    string // If-Range, or ""

	answer     *answer
	buf        []byte // of a segment that is not split
	got, fresh unit.Bytes
	stirred    time.Time  // when it last did something
	some       unit.Bytes // that came since
	dropped    bool
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

// refusal is an answer that is not used: the device does not get that segment.
type refusal struct {
	why   error
	pause time.Duration // the server asks to be left alone for
	moved bool          // it is a redirect
}

func (r *refusal) Error() string { return r.why.Error() }
func (r *refusal) Unwrap() error { return r.why }

func refuse(format string, args ...any) *refusal { return &refusal{why: fmt.Errorf(format, args...)} }

// fetch makes the request of a job.
func (p *Proxy) fetch(ctx context.Context, j *job) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, j.seg.url, nil)
	if err != nil {
		return &refusal{why: err}
	}
	r.Header = j.header
	if j.ranged {
		r.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", j.seg.from+j.from, j.seg.from+j.to-1))
		if j.guard != "" {
			r.Header.Set("If-Range", j.guard)
		}
	}
	a, err := j.line.client.Do(r)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	if err := p.answered(j, a); err != nil {
		return err
	}
	buf := make([]byte, pieceSize)
	for {
		n, err := a.Body.Read(buf)
		if over, no := p.brought(j, buf[:n]); over || no != nil {
			if no == nil && err == nil {
				_, _ = a.Body.Read(buf[:1]) // the end, so that the connection can be used again
			}
			return no
		}
		switch {
		case errors.Is(err, io.EOF):
			return p.atEnd(j)
		case err != nil:
			return err
		}
	}
}

// atEnd judges the end of a body.
func (p *Proxy) atEnd(j *job) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if size := j.Item.Size(); size != board.Unknown && j.got < size {
		return io.ErrUnexpectedEOF
	}
	return nil
}

// read judges the head of an answer.
func (j *job) read(r *http.Response) (*answer, *refusal) {
	a := &answer{status: r.StatusCode, header: r.Header.Clone(), size: board.Unknown}
	switch {
	case r.StatusCode == http.StatusTooManyRequests || r.StatusCode == http.StatusServiceUnavailable:
		after, _ := strconv.ParseUint(r.Header.Get("Retry-After"), 10, 16)
		return nil, &refusal{why: fmt.Errorf("the web server answered %s", r.Status), pause: max(time.Second, time.Duration(after)*time.Second)}
	case redirected(r.StatusCode):
		return nil, &refusal{why: fmt.Errorf("the web server answered %s", r.Status), moved: true}
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
		return nil, &refusal{why: err}
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
func (p *Proxy) ofOne(j *job, a *answer) bool {
	r := j.seg.reel
	if r.file != j.seg.url || r.version == nil {
		r.file, r.version = j.seg.url, a
	}
	if !r.version.same(a) {
		if j.line.path != 0 {
			return false
		}
		r.version = a
		for _, o := range p.shelf {
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
func (p *Proxy) answered(j *job, r *http.Response) error {
	p.mu.Lock()
	defer p.settle()
	a, no := j.read(r)
	s := j.seg
	j.stirred = time.Now()
	switch {
	case j.dropped:
		return errDropped
	case no != nil:
		return no
	case s.answer != nil && !s.answer.same(a):
		return refuse("it is not what another device gets")
	case j.ranged && !s.split && !p.ofOne(j, a):
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
			return errDropped
		}
		s.buf = make([]byte, a.size)
	}
	if a.size != board.Unknown {
		p.board.Learn(j.ID, a.size, s.split)
		j.Item.To, j.Item.Split = a.size, s.split
	}
	s.signal()
	return nil
}

// brought takes in what came, and tells whether it is all.
func (p *Proxy) brought(j *job, piece []byte) (over bool, err error) {
	now := time.Now()
	p.mu.Lock()
	defer p.settle()
	s := j.seg
	n := unit.Bytes(len(piece))
	j.line.bytes += n
	if j.dropped {
		j.got += n
		return true, errDropped
	}
	if size := j.Item.Size(); size != board.Unknown && j.got+n > size { // it has become less
		j.line.wasted += j.got + n - size
		piece = piece[:max(0, size-j.got)]
		n = unit.Bytes(len(piece))
	}
	if n > 0 {
		if j.some += n; j.some >= leastPace {
			j.some, j.stirred, j.line.fails = 0, now, 0
		}
		at := j.from + j.got
		j.got += n
		if s.split {
			for from, to := range s.have.Missing(at, at+n) { // nobody may write what somebody reads
				j.fresh += unit.Bytes(copy(s.buf[from:to], piece[from-at:]))
			}
			s.have.Add(at, at+n)
		} else {
			if !p.reserve(s, n) {
				p.leave(s, errors.New("there is no room for it"))
				return true, errDropped
			}
			j.buf = append(j.buf, piece...)
			if s.lead == nil {
				s.lead = j
			}
		}
		p.board.Progress(j.ID, j.got, now)
		s.signal()
	}
	size := j.Item.Size()
	return size != board.Unknown && j.got >= size, nil
}
