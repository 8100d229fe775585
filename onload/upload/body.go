// SPDX-License-Identifier: Apache-2.0

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

// errChanged restarts the upload of a file.
var errChanged = errors.New("the file changed while it was sent")

// readSize is the most that is read at once.
const readSize = 64 << 10

// source is a file that is open for one request.
type source struct {
	file    *os.File
	size    unit.Bytes
	modTime time.Time
}

// openSourceFile opens the file and checks that it has not changed.
func (f *file) openSourceFile() (*source, error) {
	o, err := userfile.Open(f.Path)
	if err != nil {
		return nil, transfer.NewLocalError(err)
	}
	s := &source{o, f.size, f.modTime}
	if err := s.checkUnchanged(); err != nil {
		o.Close()
		return nil, transfer.NewLocalError(err)
	}
	return s, nil
}

// checkUnchanged returns errChanged if the size or the modification time of the file has changed.
// Other changes are not noticed.
func (s *source) checkUnchanged() error {
	st, err := s.file.Stat()
	switch {
	case err != nil:
		return err
	case unit.Bytes(st.Size()) != s.size || !st.ModTime().Equal(s.modTime):
		return errChanged
	}
	return nil
}

// body is a request body: a prefix, bytes of a file, and a suffix. Its last piece is returned only
// if the file has not changed, so that no server gets a complete mixture of two versions.
type body struct {
	*source
	prefix, suffix []byte
	offset, end    int64 // in the file
	job            *job
}

// fileReadError returns why the file could not be read, or nil.
func (j *job) fileReadError() error {
	err, _ := j.readErr.Load().(error)
	return err
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (n int, err error) {
	defer func() {
		if err != nil && !errors.Is(err, io.EOF) {
			b.job.readErr.Store(transfer.NewLocalError(err))
		}
	}()
	b.job.Touch()
	if len(p) == 0 {
		return 0, nil
	}
	switch left := b.end - b.offset; {
	case len(b.prefix) > 0:
		n = copy(p, b.prefix)
		b.prefix = b.prefix[n:]
	case left > 0:
		p = p[:min(int64(len(p)), left, readSize)]
		if n, err = b.file.ReadAt(p, b.offset); n < len(p) {
			if errors.Is(err, io.EOF) {
				err = errChanged
			}
			return 0, fmt.Errorf("%s: %w", b.file.Name(), err)
		}
		if b.offset += int64(n); b.offset == b.end {
			if err := b.checkUnchanged(); err != nil {
				return 0, err
			}
		}
		b.job.SetCarried(b.job.Carried() + unit.Bytes(n))
	default:
		n = copy(p, b.suffix)
		b.suffix = b.suffix[n:]
	}
	if b.offset == b.end && len(b.prefix) == 0 && len(b.suffix) == 0 {
		b.job.SetAwaitingResponse(true)
		return n, io.EOF
	}
	return n, nil
}

// Close implements io.Closer.
func (b *body) Close() error { return b.file.Close() }

// newBodyOpener returns a function that opens the body of a job, with a prefix and a suffix around
// its bytes.
func (j *job) newBodyOpener(before, after []byte) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) {
		s, err := j.snapshot.openSourceFile()
		if err != nil {
			return nil, err
		}
		return &body{s, before, after, int64(j.Item.From), int64(j.Item.To), j}, nil
	}
}
