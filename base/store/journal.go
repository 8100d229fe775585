// SPDX-License-Identifier: Apache-2.0

// Package store keeps state across restarts. It knows nothing of the content.
//
// A Journal is a file of JSON lines; a later line replaces an earlier one about the same thing.
// Each change appends a line with one write, which survives if the process is killed right after
// it, without waiting for the disk. Occasionally the file is atomically replaced by the lines that
// are still valid.
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
	// maxFile bounds the size that is read: many times the size that is ever written.
	maxFile = 64 * unit.MB
	// minRewriteSize is the size from which on the file is rewritten when it has doubled: so each
	// appended byte costs at most two rewritten ones.
	minRewriteSize = unit.MB
	// syncInterval bounds the data that a power cut can destroy: the interval between syncs.
	syncInterval = 30 * time.Second
	// lockRetryInterval is the polling interval while another process holds the file.
	lockRetryInterval = 20 * time.Millisecond
)

// Journal is such a file. Its methods are not safe for concurrent use.
type Journal struct {
	path          string
	file          *os.File
	size          int64
	rewrittenSize int64 // size after the last Rewrite
	hasTornLine   bool  // the last line is incomplete

	synced  time.Time
	syncing atomic.Bool
	syncs   sync.WaitGroup
}

// Open opens or creates the journal at path. It waits up to wait for another process to release it.
// It passes each line to take, oldest first. A line that is not JSON, or that take rejects, is
// damage: the file is then copied to path + ".bad", and the lines that take accepted remain. damage
// reports this and is not an error. Errors are faults; after one no line was taken.
//
// Open does not follow a link at path.
func Open(path string, wait time.Duration, take func(line []byte) error) (j *Journal, damage error, err error) {
	if err := userfile.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, nil, fault.New(fault.Permission, err, "make this a directory that mpbond may write to")
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
		text, complete := bytes.CutSuffix(line, []byte("\n"))
		if len(bytes.TrimSpace(text)) == 0 {
			j.hasTornLine = !complete && len(text) > 0
			continue
		}
		switch err := take(text); {
		case err != nil && complete:
			bad++
		case err != nil: // an interrupted write
			j.truncateTo(j.size - int64(len(line)))
		default:
			j.hasTornLine = !complete
		}
	}
	if bad > 0 {
		aside := path + ".bad"
		damage = fmt.Errorf("%s: %d lines are damaged; a copy of the file is %s", path, bad, aside)
		if err := copyJournalFile(f, aside); err != nil {
			damage = fmt.Errorf("%s: %d lines are damaged, and the file cannot be copied: %w", path, bad, err)
		}
	}
	return j, damage, nil
}

// openLocked opens the file at path once no other process holds it.
func openLocked(path string, wait time.Duration) (*os.File, error) {
	for begin := time.Now(); ; time.Sleep(lockRetryInterval) {
		f, err := openOrCreate(path)
		if err != nil && !errors.Is(err, fs.ErrExist) { // otherwise it was created just now
			return nil, err
		}
		if err == nil {
			err = tryFileLock(f)
		}
		if err == nil {
			own, _ := f.Stat()
			if there, e := userfile.Lstat(path); e == nil && os.SameFile(own, there) {
				return f, nil
			}
			err = errors.New("the file was replaced") // before it was locked
		}
		f.Close()
		if time.Since(begin) >= wait {
			return nil, fault.New(fault.AlreadyRunning, fmt.Errorf("%s: %w", path, err),
				"another mpbond uses this file: set another MPBOND_HOME for this one")
		}
	}
}

// openOrCreate opens or creates the regular file at path.
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
		return nil, fault.New(fault.Permission, err, "make this a regular file in a directory that mpbond may write to")
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil {
		f.Close()
		return nil, fault.New(fault.Permission, err, "move it away; otherwise nothing is saved")
	}
	return f, nil
}

// Append writes lines at the end. After an error they may be missing in the file: append them
// again.
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
		j.syncs.Go(func() { // a slow disk must not delay the next line
			_ = f.Sync() // retried later
			j.syncing.Store(false)
		})
	}
	return nil
}

// truncateTo removes a partial line from the end.
func (j *Journal) truncateTo(size int64) {
	if j.file.Truncate(size) == nil {
		j.size = size
	} else {
		j.hasTornLine = true
	}
}

// NeedsRewrite reports whether to call Rewrite.
func (j *Journal) NeedsRewrite() bool {
	limit := max(int64(minRewriteSize), 2*j.rewrittenSize)
	return j.size > min(limit, int64(maxFile-minRewriteSize)) // Open must be able to read it
}

// Rewrite atomically replaces the content of the file by lines.
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
		err = tryFileLock(f)
	}
	if err == nil {
		err = userfile.Rename(f.Name(), j.path)
	}
	if err != nil {
		f.Close()
		_ = userfile.Remove(f.Name())
		return explainWriteError(err)
	}
	if dir, err := userfile.Open(filepath.Dir(j.path)); err == nil { // so that the new name survives a power cut
		_ = dir.Sync()
		dir.Close()
	}
	j.syncs.Wait()
	j.file.Close()
	j.file, j.size, j.rewrittenSize, j.hasTornLine = f, int64(b.Len()), int64(b.Len()), false
	return nil
}

// Close syncs and closes the file. Another process may open it before the sync ends.
func (j *Journal) Close() error {
	releaseFileLock(j.file)
	j.syncs.Wait()
	return errors.Join(j.file.Sync(), j.file.Close())
}

// encodeLines appends each value to b as a line of JSON.
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

func copyJournalFile(f *os.File, path string) error {
	out, err := userfile.CreateNew(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, io.NewSectionReader(f, 0, math.MaxInt64)) // not by name, which may be another file's by now
	return errors.Join(err, out.Sync(), out.Close())
}

// explainWriteError adds a hint to the errors of a full disk.
func explainWriteError(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fault.New(fault.Limit, err, "the disk is full: free space; until then changes are kept in memory")
	}
	return err
}
