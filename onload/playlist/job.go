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

// readSize is what is read at a time.
const readSize = 32 << 10

// job is one request on its way. What is not set at its start is guarded by the loop's lock.
type job struct {
	*transfer.Job
	prefetcher *prefetcher
	segment    *segment
	header     http.Header
	from, to   unit.Bytes // that it asks for, of its segment
	ranged     bool
	ifRange    string // If-Range, or ""

	response       *response
	buf            []byte     // of a segment that is not split
	newBytes       unit.Bytes // of what it has carried, what nobody else has
	untouchedBytes unit.Bytes // that came since it was touched
}

// response is the head of one that can be used.
type response struct {
	status         int
	header         http.Header
	size           unit.Bytes // of the segment, or board.Unknown
	total          unit.Bytes // of what it is a part of
	etag, modified string     // strong, or ""
	acceptsRanges  bool       // the server has parts of it
}

func (a *response) validator() string {
	if a.etag != "" {
		return a.etag
	}
	return a.modified
}

func newRefusal(format string, args ...any) *transfer.Refusal {
	return &transfer.Refusal{Verdict: transfer.Exclude, Err: fmt.Errorf(format, args...)}
}

// Carry implements transfer.Carrier.
func (j *job) Carry(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, j.segment.url, nil)
	if err != nil {
		return newRefusal("%w", err)
	}
	r.Header = j.header
	if j.ranged {
		r.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", j.segment.from+j.from, j.segment.from+j.to-1))
		if j.ifRange != "" {
			r.Header.Set("If-Range", j.ifRange)
		}
	}
	a, err := j.Worker.Client.Do(r)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	if err := j.acceptResponse(a); err != nil {
		return err
	}
	buf := make([]byte, readSize)
	for {
		n, err := a.Body.Read(buf)
		if over, refused := j.acceptBytes(buf[:n]); over || refused != nil {
			if refused == nil && err == nil {
				_, _ = a.Body.Read(buf[:1]) // the end, so that the connection can be used again
			}
			return refused
		}
		switch {
		case errors.Is(err, io.EOF):
			return j.checkEnd()
		case err != nil:
			return err
		}
	}
}

// checkEnd judges the end of a body.
func (j *job) checkEnd() error {
	j.prefetcher.loop.Lock()
	defer j.prefetcher.loop.Unlock()
	if size := j.Item.Size(); size != board.Unknown && j.Carried() < size {
		return io.ErrUnexpectedEOF
	}
	return nil
}

// parseResponse judges the head of an answer.
func (j *job) parseResponse(r *http.Response) (*response, *transfer.Refusal) {
	a := &response{status: r.StatusCode, header: r.Header.Clone(), size: board.Unknown}
	switch {
	case r.StatusCode == http.StatusTooManyRequests || r.StatusCode == http.StatusServiceUnavailable:
		refusal := newRefusal("the web server answered %s", r.Status)
		refusal.RetryAfter = max(time.Second, transfer.ParseRetryAfter(r.Header, time.Now()))
		return nil, refusal
	case isRedirect(r.StatusCode):
		return nil, &transfer.Refusal{Verdict: transfer.Redirect, Err: fmt.Errorf("the web server answered %s", r.Status)}
	case j.ranged && r.StatusCode != http.StatusPartialContent, !j.ranged && r.StatusCode != http.StatusOK:
		return nil, newRefusal("the web server answered %s", r.Status)
	case r.Uncompressed, r.Header.Get("Content-Encoding") != "" && !strings.EqualFold(r.Header.Get("Content-Encoding"), "identity"):
		return nil, newRefusal("encoded, although not asked for")
	}
	a.etag, a.modified, _ = fetch.Validators(r.Header)
	if !j.ranged {
		if r.ContentLength >= 0 {
			a.size = unit.Bytes(r.ContentLength)
		} else if r.ProtoMajor < 2 && len(r.TransferEncoding) == 0 {
			return nil, newRefusal("neither length nor end are told")
		}
		a.total = a.size
		a.acceptsRanges = strings.EqualFold(r.Header.Get("Accept-Ranges"), "bytes")
		return a, nil
	}
	from, to := j.segment.from+j.from, j.segment.from+j.to
	_, end, total, err := fetch.ParsePartialResponse(r, from, to)
	if err != nil {
		return nil, newRefusal("%w", err)
	}
	if end != to {
		return nil, newRefusal("asked for bytes %d to %d, the server sends %d to %d", from, to, from, end)
	}
	a.total, a.acceptsRanges, a.size = total, true, j.segment.size
	return a, nil
}

// isSameVersion tells whether two answers are of one state of an object.
func (a *response) isSameVersion(b *response) bool {
	return a.total == b.total && a.etag == b.etag && (a.etag != "" || a.modified == b.modified)
}

// matchesFile tells whether an answer is of the version of which the other ranges of that file
// are. The own line's word decides: what others have brought of another one is forgotten.
func (j *job) matchesFile(a *response) bool {
	p, r := j.prefetcher, j.segment.playback
	if r.rangeFile != j.segment.url || r.fileVersion == nil {
		r.rangeFile, r.fileVersion = j.segment.url, a
	}
	if !r.fileVersion.isSameVersion(a) {
		if !j.Worker.IsLocal() {
			return false
		}
		r.fileVersion = a
		for _, o := range p.segments {
			switch other := o.playback == r && o.url == r.rangeFile && o.response != nil && !o.response.isSameVersion(a); {
			case other && o.readers > 0:
				p.leaveToPlayer(o, errors.New("this device's own line sees another version"))
			case other:
				p.removeSegment(o)
			}
		}
	}
	return true
}

// acceptResponse takes in the head of an answer.
func (j *job) acceptResponse(r *http.Response) error {
	p, s := j.prefetcher, j.segment
	p.loop.Lock()
	defer p.loop.DispatchAndUnlock()
	a, refusal := j.parseResponse(r)
	j.SetAwaitingResponse(false)
	switch {
	case j.IsDropped():
		return transfer.ErrDropped
	case refusal != nil:
		return refusal
	case s.response != nil && !s.response.isSameVersion(a):
		return newRefusal("it is not what another device gets")
	case j.ranged && !s.split && !j.matchesFile(a):
		return newRefusal("it is of another version than the rest of the file")
	}
	j.response = a
	if s.response != nil {
		if j.Item.To == board.Unknown {
			j.Item.To = a.size
		}
		return nil
	}
	s.response = a
	s.size = a.size
	if s.split = a.size >= minSplitSize && a.acceptsRanges && a.validator() != ""; s.split {
		if !p.reserveMemory(s, a.size) {
			s.split = false
			p.leaveToPlayer(s, errors.New("there is no room for it"))
			return transfer.ErrDropped
		}
		s.buf = make([]byte, a.size)
	}
	if a.size != board.Unknown {
		p.loop.Board.SetObjectSize(j.ID, a.size, s.split)
		j.Item.To, j.Item.Splittable = a.size, s.split
	}
	s.notifyReaders()
	return nil
}

// acceptBytes takes in what came, and tells whether it is all.
func (j *job) acceptBytes(piece []byte) (over bool, err error) {
	p, s := j.prefetcher, j.segment
	p.loop.Lock()
	defer p.loop.DispatchAndUnlock()
	got, n := j.Carried(), unit.Bytes(len(piece))
	j.SetCarried(got + n)
	defer p.loop.CountProgress(j.Job)
	if j.IsDropped() {
		return true, transfer.ErrDropped
	}
	size := j.Item.Size()
	if size != board.Unknown && got+n > size { // it has become less
		piece = piece[:max(0, size-got)]
	}
	if len(piece) > 0 {
		if !j.storePiece(got, piece) {
			p.leaveToPlayer(s, errors.New("there is no room for it"))
			return true, transfer.ErrDropped
		}
		s.notifyReaders()
	}
	return size != board.Unknown && got+n >= size, nil
}

// storePiece takes in bytes of its item from got on, and reports whether there is room for them.
func (j *job) storePiece(got unit.Bytes, piece []byte) bool {
	s, n := j.segment, unit.Bytes(len(piece))
	if j.untouchedBytes += n; j.untouchedBytes >= minProgress {
		j.untouchedBytes = 0
		j.Touch()
	}
	if at := j.from + got; s.split {
		for from, to := range s.received.Missing(at, at+n) { // nobody may write what somebody reads
			j.newBytes += unit.Bytes(copy(s.buf[from:to], piece[from-at:]))
		}
		s.received.Add(at, at+n)
		return true
	}
	if !j.prefetcher.reserveMemory(s, n) {
		return false
	}
	j.buf = append(j.buf, piece...)
	if s.leadJob == nil {
		s.leadJob = j
	}
	return true
}
