package upload

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"mpbond/base/unit"
	"mpbond/base/userfile"
	"mpbond/onload/transfer"
)

// errChanged is why a file begins anew.
var errChanged = errors.New("the file changes while it is sent")

// pieceSize is the most that is read at once.
const pieceSize = 64 << 10

// source is a file that is open for one request.
type source struct {
	f       *os.File
	size    unit.Bytes
	changed time.Time
}

func (f *file) open() (*source, error) {
	o, err := userfile.Open(f.Path)
	if err != nil {
		return nil, transfer.Local(err)
	}
	s := &source{o, f.size, f.changed}
	if err := s.check(); err != nil {
		o.Close()
		return nil, transfer.Local(err)
	}
	return s, nil
}

// check tells whether the file is what it was. Who writes to it without changing its
// size nor its time is not noticed.
func (s *source) check() error {
	st, err := s.f.Stat()
	switch {
	case err != nil:
		return err
	case unit.Bytes(st.Size()) != s.size || !st.ModTime().Equal(s.changed):
		return errChanged
	}
	return nil
}

// body is what a request brings: what comes before bytes of a file, these, and what
// comes after. All but the last piece may be of a file that has changed since; the last
// is given only if it has not, so that no server has all of a mixture.
type body struct {
	*source
	before, after []byte
	at, to        int64 // of the file
	sent          *job
}

// broken is why the file could not be read, or nil.
func (j *job) broken() error {
	err, _ := j.readErr.Load().(error)
	return err
}

func (b *body) Read(p []byte) (n int, err error) {
	defer func() {
		if err != nil && !errors.Is(err, io.EOF) {
			b.sent.readErr.Store(transfer.Local(err))
		}
	}()
	b.sent.Touch()
	if len(p) == 0 {
		return 0, nil
	}
	switch left := b.to - b.at; {
	case len(b.before) > 0:
		n = copy(p, b.before)
		b.before = b.before[n:]
	case left > 0:
		p = p[:min(int64(len(p)), left, pieceSize)]
		if n, err = b.f.ReadAt(p, b.at); n < len(p) {
			if errors.Is(err, io.EOF) {
				err = errChanged
			}
			return 0, fmt.Errorf("%s: %w", b.f.Name(), err)
		}
		if b.at += int64(n); b.at == b.to {
			if err := b.check(); err != nil {
				return 0, err
			}
		}
		b.sent.SetCarried(b.sent.Carried() + unit.Bytes(n))
	default:
		n = copy(p, b.after)
		b.after = b.after[n:]
	}
	if b.at == b.to && len(b.before) == 0 && len(b.after) == 0 {
		b.sent.Await(true)
		return n, io.EOF
	}
	return n, nil
}

func (b *body) Close() error { return b.f.Close() }

// body is what a job sends: its bytes, between others.
func (j *job) body(before, after []byte) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) {
		s, err := j.of.open()
		if err != nil {
			return nil, err
		}
		return &body{s, before, after, int64(j.Item.From), int64(j.Item.To), j}, nil
	}
}
