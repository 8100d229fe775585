// SPDX-License-Identifier: Apache-2.0

package filestore

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"mpbond/base/fault"
	"mpbond/base/userfile"
	"mpbond/control/fleet"
)

const (
	// maxChangesFile bounds the file of changes, to some thousand lines. When it is reached, the file is emptied.
	maxChangesFile = 256 << 10
	// scanInterval is how often all files of a bucket are read: somebody may have changed them by hand.
	scanInterval = time.Minute
)

// nextRevision returns a new revision for a record of a bucket, whose lock must be held. It is written before the
// record: so no revision is given twice.
func nextRevision(dir, key string) (uint64, error) {
	last, err := readRevision(dir)
	if err != nil {
		return 0, err
	}
	next := last + 1
	if err := replaceFile(filepath.Join(dir, revisionFile), strconv.AppendUint(nil, next, 10)); err != nil {
		return 0, err
	}
	noteChange(dir, next, key)
	return next, nil
}

// readRevision reads a bucket's newest revision, 0 if there is none.
func readRevision(dir string) (uint64, error) {
	path := filepath.Join(dir, revisionFile)
	data, err := userfile.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fault.New(fault.Permission, err, "run mpbond as the user who made it")
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
	return n, fault.New(fault.Integrity, err,
		"write a number into "+path+" above the revisions of all records beside it")
}

// noteChange adds a line to the file of changes. It neither waits for the disk nor fails: changedKeys notices missing
// lines.
func noteChange(dir string, revision uint64, key string) {
	path := filepath.Join(dir, changesFile)
	flags := os.O_CREATE | os.O_APPEND | os.O_WRONLY | userfile.NoFollow
	if st, err := userfile.Lstat(path); err == nil && st.Size() > maxChangesFile {
		flags |= os.O_TRUNC // Windows allows no truncation later
	}
	if f, err := userfile.OpenFile(path, flags, 0o600); err == nil {
		fmt.Fprintf(f, "%d %s\n", revision, key)
		f.Close()
	}
}

// changedKeys returns the keys of the records that have changed between two revisions of a bucket, whose lock must be
// held. It returns false if the file of changes does not have each of these revisions.
func changedKeys(dir string, after, until uint64) (keys []string, ok bool) {
	if until <= after {
		return nil, until == after
	}
	data, err := userfile.ReadFile(filepath.Join(dir, changesFile))
	if err != nil {
		return nil, false
	}
	for revision := until; revision > after; revision-- {
		text, hasEnd := bytes.CutSuffix(data, []byte("\n"))
		begin := bytes.LastIndexByte(text, '\n') + 1
		number, key, _ := strings.Cut(string(text[begin:]), " ")
		if !hasEnd || number != strconv.FormatUint(revision, 10) || fleet.CheckKey(key) != nil {
			return nil, false
		}
		keys, data = append(keys, key), data[:begin]
	}
	return keys, true
}

// follower finds which records of a bucket have changed.
type follower struct {
	dir      string
	revision uint64    // changes up to it were returned
	scanned  time.Time // when all files were last returned; zero: never
}

// changed returns the keys of the records that have changed since the last call. At the first call, after
// scanInterval, and where changes are missing, it returns all files too, which are not nil then. The bucket's lock
// must be held, so that no writer is between a revision and its record.
func (f *follower) changed() (keys []string, files []fs.DirEntry, err error) {
	revision, err := readRevision(f.dir)
	if err != nil {
		return nil, nil, err
	}
	keys, ok := changedKeys(f.dir, f.revision, revision)
	if !ok || f.isScanDue() {
		if files, err = readRecordFiles(f.dir); err != nil {
			return nil, nil, err
		}
		f.scanned = time.Now()
	}
	f.revision = revision
	return keys, files, nil
}

// isScanDue reports whether the next call of changed returns all files.
func (f *follower) isScanDue() bool { return time.Since(f.scanned) >= scanInterval }

// readRecordFiles returns the files of a bucket that are records. The list is not nil.
func readRecordFiles(dir string) ([]fs.DirEntry, error) {
	files, err := userfile.ReadDir(dir)
	if err != nil {
		return nil, fault.New(fault.Permission, err, "run mpbond as the user who made it")
	}
	return slices.DeleteFunc(files, func(f fs.DirEntry) bool { return fleet.CheckKey(f.Name()) != nil }), nil
}

// index has the records of a bucket by what is before the last dot of their keys. It reads a record when that is first
// listed, and again when it has changed. Records that have ended stay until the next scan. Safe for concurrent use.
type index struct {
	store *Store

	mu       sync.Mutex
	follower follower
	records  map[string]map[string]*stored // by prefix and key; nil: not read since the last change
}

// listRecords returns the records under a prefix.
func (x *index) listRecords(prefixes []string) (list []fleet.Record, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.forgetChanged(); err != nil {
		return nil, err
	}
	for _, prefix := range prefixes {
		under := x.records[prefix]
		for key, r := range under {
			if r == nil {
				read, err := x.store.read(filepath.Join(x.follower.dir, key))
				if errors.Is(err, fleet.ErrNoRecord) {
					delete(under, key)
					continue
				}
				if err != nil {
					return nil, err
				}
				r = &read
				under[key] = r
			}
			if !r.hasEnded(x.store.now()) {
				list = append(list, fleet.Record{Key: key, Value: slices.Clone(r.Value), Revision: r.Revision})
			}
		}
	}
	return list, nil
}

// forgetChanged forgets the records that have changed. mu must be held.
func (x *index) forgetChanged() error {
	unlock, err := userfile.LockDir(x.follower.dir)
	if err != nil {
		return err
	}
	defer unlock()
	keys, files, err := x.follower.changed()
	if err != nil {
		return err
	}
	if files != nil {
		x.records = map[string]map[string]*stored{}
	}
	for _, f := range files {
		keys = append(keys, f.Name())
	}
	for _, key := range keys {
		i := strings.LastIndexByte(key, '.')
		if i < 0 {
			continue
		}
		if x.records[key[:i]] == nil {
			x.records[key[:i]] = map[string]*stored{}
		}
		x.records[key[:i]][key] = nil
	}
	return nil
}
