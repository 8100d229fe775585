// Package store keeps what must survive a restart. It stands beside the data
// path, below the packages that know what they keep, of which it knows nothing.
//
// A Journal is a file of lines of JSON, of which a later one replaces an earlier
// one about the same thing. So a line is written in one call each time that
// something changes, and is there even if the process is killed at that moment;
// nothing waits for the disk. Now and then the file is replaced by the lines
// that still hold, whole or not at all.
package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/base/userfile"
)

// Tuning.
const (
	// maxFile bounds what is read: many times what is ever written.
	maxFile = 64 * unit.MB
	// minRewriteSize is the size from which on the file is replaced by the lines that
	// hold, when it is twice as long as these were: so each byte that is appended
	// costs two that are rewritten at most.
	minRewriteSize = unit.MB
	// syncInterval bounds what a power cut can take: the disk is asked to keep what
	// was written.
	syncInterval = 30 * time.Second
	// lockRetryInterval is how often one that waits for another process to end looks.
	lockRetryInterval = 20 * time.Millisecond
)

// Journal is such a file. Its methods are called by one goroutine at a time.
type Journal struct {
	path          string
	file          *os.File
	size          int64
	rewrittenSize int64 // size after the last Rewrite
	hasTornLine   bool  // the last line has no end

	synced  time.Time
	syncing atomic.Bool
	syncs   sync.WaitGroup
}

// Open opens the journal at path, or makes one, which no other process may have
// open for longer than wait. Each line that it has is given to take, oldest first; a line that is no
// JSON, or that take refuses, is damage: the file is copied to path + ".bad", and
// what take took is what is left of it. The damage is told, and is no error.
// Errors are faults; after one nothing was taken.
//
// No link in its place is followed.
func Open(path string, wait time.Duration, take func(line []byte) error) (j *Journal, damage error, err error) {
	if err := userfile.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, nil, fault.New(fault.Permission, err, "is this a directory that mpbond may write to?")
	}
	f, err := openLocked(path, wait)
	if err != nil {
		return nil, nil, err
	}
	j = &Journal{path: path, file: f}
	data, err := io.ReadAll(io.LimitReader(f, int64(maxFile)+1))
	if err != nil {
		f.Close()
		return nil, nil, fault.New(fault.Other, fmt.Errorf("%s: %w", path, err), "")
	}
	j.size = int64(len(data))
	bad := 0
	if len(data) > int(maxFile) {
		bad, data = 1, nil
	}
	lines := bytes.SplitAfter(data, []byte("\n"))
	for _, line := range lines {
		text, whole := bytes.CutSuffix(line, []byte("\n"))
		if len(bytes.TrimSpace(text)) == 0 {
			j.hasTornLine = !whole && len(text) > 0
			continue
		}
		switch err := take(text); {
		case err != nil && whole:
			bad++
		case err != nil: // it was being written
			j.truncateTo(j.size - int64(len(line)))
		default:
			j.hasTornLine = !whole
		}
	}
	if bad > 0 {
		aside := path + ".bad"
		damage = fmt.Errorf("%s: %d lines are damaged; the file is kept as %s", path, bad, aside)
		if err := copyFile(f, aside); err != nil {
			damage = fmt.Errorf("%s: %d lines are damaged, and the file cannot be kept aside: %w", path, bad, err)
		}
	}
	return j, damage, nil
}

// openLocked opens the file at path when no other process has it.
func openLocked(path string, wait time.Duration) (*os.File, error) {
	for begin := time.Now(); ; time.Sleep(lockRetryInterval) {
		f, err := openOrCreate(path)
		if err != nil && !errors.Is(err, fs.ErrExist) { // else it was made just now
			return nil, err
		}
		if err == nil {
			err = tryLock(f)
		}
		if err == nil {
			own, _ := f.Stat()
			if there, e := userfile.Lstat(path); e == nil && os.SameFile(own, there) {
				return f, nil
			}
			err = errors.New("it was replaced") // before it was locked
		}
		f.Close()
		if time.Since(begin) >= wait {
			return nil, fault.New(fault.AlreadyRunning, fmt.Errorf("%s: %w", path, err), "another mpbond keeps this file: give this one another MPBOND_HOME")
		}
	}
}

// openOrCreate opens the file at path, a plain one.
func openOrCreate(path string) (*os.File, error) {
	const flags = os.O_RDWR | os.O_APPEND | userfile.NoFollow | userfile.NoWait
	f, err := userfile.OpenFile(path, flags, 0)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = userfile.OpenFile(path, flags|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	if err != nil {
		return nil, fault.New(fault.Permission, err, "is this a plain file, in a directory that mpbond may write to?")
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s is no plain file", path)
	}
	if err != nil {
		f.Close()
		return nil, fault.New(fault.Permission, err, "move it away: else nothing is kept")
	}
	return f, nil
}

// Append writes lines at the end. After an error what was told may not be in
// the file: tell it again.
func (j *Journal) Append(lines ...any) error {
	var b bytes.Buffer
	if j.hasTornLine {
		b.WriteByte('\n')
	}
	if err := encodeLines(&b, lines); err != nil {
		return err
	}
	n, err := j.file.Write(b.Bytes())
	if err != nil {
		if n > 0 {
			j.truncateTo(j.size)
		}
		return explainWriteError(err)
	}
	j.size, j.hasTornLine = j.size+int64(n), false
	if now := time.Now(); now.Sub(j.synced) >= syncInterval && j.syncing.CompareAndSwap(false, true) {
		j.synced = now
		f := j.file
		j.syncs.Go(func() { // a slow disk must not hold up the next line
			_ = f.Sync() // it is asked again
			j.syncing.Store(false)
		})
	}
	return nil
}

// truncateTo takes a line in part off the end.
func (j *Journal) truncateTo(size int64) {
	if j.file.Truncate(size) == nil {
		j.size = size
	} else {
		j.hasTornLine = true
	}
}

// NeedsRewrite reports whether the file should be replaced, with Rewrite.
func (j *Journal) NeedsRewrite() bool {
	limit := max(int64(minRewriteSize), 2*j.rewrittenSize)
	return j.size > min(limit, int64(maxFile-minRewriteSize)) // it must be read again
}

// Rewrite makes lines all that the file has. Whenever the process ends, or the
// power, the file is the old one or the new one.
func (j *Journal) Rewrite(lines ...any) error {
	var b bytes.Buffer
	if err := encodeLines(&b, lines); err != nil {
		return err
	}
	f, err := userfile.CreateNew(j.path + ".new")
	if err != nil {
		return explainWriteError(err)
	}
	_, err = f.Write(b.Bytes())
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = tryLock(f)
	}
	if err == nil {
		err = userfile.Rename(f.Name(), j.path)
	}
	if err != nil {
		f.Close()
		_ = userfile.Remove(f.Name())
		return explainWriteError(err)
	}
	if dir, err := userfile.Open(filepath.Dir(j.path)); err == nil { // so that the new name survives too
		_ = dir.Sync()
		dir.Close()
	}
	j.syncs.Wait()
	j.file.Close()
	j.file, j.size, j.rewrittenSize, j.hasTornLine = f, int64(b.Len()), int64(b.Len()), false
	return nil
}

// Close ends it; what was appended is in the file. Another process can have that
// before the disk has all.
func (j *Journal) Close() error {
	releaseLock(j.file)
	j.syncs.Wait()
	return errors.Join(j.file.Sync(), j.file.Close())
}

func encodeLines(b *bytes.Buffer, lines []any) error {
	for _, l := range lines {
		text, err := json.Marshal(l)
		if err != nil {
			return err
		}
		b.Write(text)
		b.WriteByte('\n')
	}
	return nil
}

func copyFile(f *os.File, path string) error {
	out, err := userfile.CreateNew(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, io.NewSectionReader(f, 0, math.MaxInt64)) // not by name: it may be another's by now
	return errors.Join(err, out.Sync(), out.Close())
}

// explainWriteError says what can be done about a disk that takes nothing.
func explainWriteError(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fault.New(fault.Limit, err, "the disk is full: make room; what was counted is kept in memory until then")
	}
	return err
}
