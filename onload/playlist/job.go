// SPDX-License-Identifier: Apache-2.0

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

// readSize is how much is read at a time.
const readSize = 32 << 10

// job is one request of a device. The loop's lock guards the fields that are not set at its start.
type job struct {
	*transfer.Job
	prefetcher *prefetcher
	segment    *segment
	header     http.Header
	from, to   unit.Bytes // requested range, relative to the segment
	ranged     bool
	ifRange    string // value of If-Range, or ""

	response       *response
	buf            []byte     // body, if the segment is not split
	newBytes       unit.Bytes // carried bytes that no other job has brought
	untouchedBytes unit.Bytes // received since the last Touch
}

// response is the header of a usable response.
type response struct {
	status         int
	header         http.Header
	size           unit.Bytes // of the segment, or board.Unknown
	total          unit.Bytes // of the file that contains it
	etag, modified string     // strong, or ""
	acceptsRanges  bool       // the server supports ranges
}

// segmentValidator returns the value for If-Range, or "".
func (a *response) segmentValidator() string {
	if a.etag != "" {
		return a.etag
	}
	return a.modified
}

// newExcludeRefusal returns a Refusal that excludes the device.
func newExcludeRefusal(format string, args ...any) *transfer.Refusal {
	return &transfer.Refusal{Verdict: transfer.Exclude, Err: fmt.Errorf(format, args...)}
}

// Run implements transfer.JobRunner.
func (j *job) Run(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, j.segment.url, nil)
	if err != nil {
		return newExcludeRefusal("%w", err)
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
	if err := j.acceptSegmentHeader(a); err != nil {
		return err
	}
	buf := make([]byte, readSize)
	for {
		n, err := a.Body.Read(buf)
		if over, refused := j.acceptBytes(buf[:n]); over || refused != nil {
			if refused == nil && err == nil {
				_, _ = a.Body.Read(buf[:1]) // reads the end, so that the connection can be reused
			}
			return refused
		}
		switch {
		case errors.Is(err, io.EOF):
			return j.checkItemComplete()
		case err != nil:
			return err
		}
	}
}

// checkItemComplete returns an error if the body ended before the item is complete.
func (j *job) checkItemComplete() error {
	j.prefetcher.loop.Lock()
	defer j.prefetcher.loop.Unlock()
	if size := j.Item.Size(); size != board.Unknown && j.Carried() < size {
		return io.ErrUnexpectedEOF
	}
	return nil
}

// parseSegmentHeader checks the status and header of a response.
func (j *job) parseSegmentHeader(r *http.Response) (*response, *transfer.Refusal) {
	a := &response{status: r.StatusCode, header: r.Header.Clone(), size: board.Unknown}
	switch {
	case r.StatusCode == http.StatusTooManyRequests || r.StatusCode == http.StatusServiceUnavailable:
		refusal := newExcludeRefusal("the web server answered %s", r.Status)
		refusal.RetryAfter = max(time.Second, transfer.ParseRetryAfter(r.Header, time.Now()))
		return nil, refusal
	case isRedirect(r.StatusCode):
		return nil, &transfer.Refusal{Verdict: transfer.Redirect,
			Err: fmt.Errorf("the web server answered %s", r.Status)}
	case j.ranged && r.StatusCode != http.StatusPartialContent, !j.ranged && r.StatusCode != http.StatusOK:
		return nil, newExcludeRefusal("the web server answered %s", r.Status)
	case r.Uncompressed, r.Header.Get("Content-Encoding") != "" &&
		!strings.EqualFold(r.Header.Get("Content-Encoding"), "identity"):
		return nil, newExcludeRefusal("the server sent an encoding that was not requested")
	}
	a.etag, a.modified, _ = fetch.Validators(r.Header)
	if !j.ranged {
		if r.ContentLength >= 0 {
			a.size = unit.Bytes(r.ContentLength)
		} else if r.ProtoMajor < 2 && len(r.TransferEncoding) == 0 {
			return nil, newExcludeRefusal("the response has no length and no detectable end")
		}
		a.total = a.size
		a.acceptsRanges = strings.EqualFold(r.Header.Get("Accept-Ranges"), "bytes")
		return a, nil
	}
	from, to := j.segment.from+j.from, j.segment.from+j.to
	_, end, total, err := fetch.ParsePartialResponse(r, from, to)
	if err != nil {
		return nil, newExcludeRefusal("%w", err)
	}
	if end != to {
		return nil, newExcludeRefusal("requested bytes %d to %d, the server sent %d to %d", from, to, from, end)
	}
	a.total, a.acceptsRanges, a.size = total, true, j.segment.size
	return a, nil
}

// isSameVersion reports whether two responses are of the same version of a file.
func (a *response) isSameVersion(b *response) bool {
	return a.total == b.total && a.etag == b.etag && (a.etag != "" || a.modified == b.modified)
}

// matchesFile reports whether a response is of the same version as the other ranges of its file.
// The local device decides: ranges of another version are discarded.
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
			switch other := o.playback == r && o.url == r.rangeFile && o.response != nil &&
				!o.response.isSameVersion(a); {
			case other && o.readers > 0:
				p.leaveToPlayer(o, errors.New("the local device sees another version"))
			case other:
				p.removeSegment(o)
			}
		}
	}
	return true
}

// acceptSegmentHeader processes the header of a response.
func (j *job) acceptSegmentHeader(r *http.Response) error {
	p, s := j.prefetcher, j.segment
	p.loop.Lock()
	defer p.loop.DispatchAndUnlock()
	a, refusal := j.parseSegmentHeader(r)
	j.SetAwaitingResponse(false)
	switch {
	case j.IsDropped():
		return transfer.ErrDropped
	case refusal != nil:
		return refusal
	case s.response != nil && !s.response.isSameVersion(a):
		return newExcludeRefusal("the response differs from that of another device")
	case j.ranged && !s.split && !j.matchesFile(a):
		return newExcludeRefusal("the response has another version than the rest of the file")
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
	if s.split = a.size >= minSplitSize && a.acceptsRanges && a.segmentValidator() != ""; s.split {
		if !p.reserveMemory(s, a.size) {
			s.split = false
			p.leaveToPlayer(s, errors.New("the memory limit is reached"))
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

// acceptBytes stores received bytes. It reports whether the item is complete.
func (j *job) acceptBytes(piece []byte) (complete bool, err error) {
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
	if size != board.Unknown && got+n > size { // the job was shortened
		piece = piece[:max(0, size-got)]
	}
	if len(piece) > 0 {
		if !j.storePiece(got, piece) {
			p.leaveToPlayer(s, errors.New("the memory limit is reached"))
			return true, transfer.ErrDropped
		}
		s.notifyReaders()
	}
	return size != board.Unknown && got+n >= size, nil
}

// storePiece stores bytes of the item at offset got. It reports false if the memory limit is
// reached.
func (j *job) storePiece(got unit.Bytes, piece []byte) bool {
	s, n := j.segment, unit.Bytes(len(piece))
	if j.untouchedBytes += n; j.untouchedBytes >= minProgress {
		j.untouchedBytes = 0
		j.Touch()
	}
	if at := j.from + got; s.split {
		for from, to := range s.received.Missing(at, at+n) { // a player may be reading the other bytes
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
