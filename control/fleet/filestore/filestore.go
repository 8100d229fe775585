// SPDX-License-Identifier: Apache-2.0

// Package filestore keeps the records of a fleet in a directory, for servers on one machine. Each record is a
// file, so that it can be read and repaired by hand.
//
//	DIR/BUCKET/KEY          a record as JSON
//	DIR/BUCKET/.revision    the newest revision in that bucket
//	DIR/BUCKET/.changes     the records of the latest revisions, one on each line: REVISION KEY
//	DIR/BUCKET/.swept       when records whose life is over were last removed
//	DIR/events.jsonl        events, one on each line
package filestore

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"mpbond/base/fault"
	"mpbond/base/userfile"
	"mpbond/control/fleet"
)

const (
	// pollInterval is how often a watch, or who follows events, looks for changes.
	pollInterval = 100 * time.Millisecond
	// maxFile bounds a record's file: a value in base64 and the fields around it.
	maxFile = 2*fleet.MaxValue + 1024
	// maxEventsFile bounds the file of events: the older half is dropped when it is reached.
	maxEventsFile = 32 << 20

	// sweepInterval is how often records whose life is over are removed from a bucket that nobody watches.
	sweepInterval = time.Hour

	revisionFile = ".revision"
	changesFile  = ".changes"
	sweptFile    = ".swept" // has the time of the last sweep
	eventsFile   = "events.jsonl"
)

// Store is a fleet.Store in a directory. Several processes may use the same directory.
type Store struct {
	dir     string
	now     func() time.Time
	log     *slog.Logger
	indexes map[fleet.Bucket]*index
}

// stored is the content of a record's file.
type stored struct {
	Revision uint64    `json:"revision"`
	Ends     time.Time `json:"ends,omitzero"`
	Value    []byte    `json:"value"`
}

// hasEnded reports whether the life of a record is over.
func (r stored) hasEnded(now time.Time) bool { return !r.Ends.IsZero() && !now.Before(r.Ends) }

// Open opens or creates a store in a directory.
func Open(dir string, log *slog.Logger) (*Store, error) {
	s := &Store{dir, time.Now, log, map[fleet.Bucket]*index{}}
	for _, b := range fleet.Buckets() {
		if err := userfile.MkdirAll(s.bucketDir(b), 0o700); err != nil {
			return nil, fault.New(fault.Permission, err, "make this a directory that mpbond may write to")
		}
		s.indexes[b] = &index{store: s, follower: follower{dir: s.bucketDir(b)}}
	}
	return s, nil
}

// Describe implements fleet.Store.
func (s *Store) Describe() string { return "the directory " + s.dir }

// CheckRoom implements fleet.Store. The servers of one machine share its disk, and trust each other.
func (s *Store) CheckRoom(context.Context) error { return nil }

// MakeRoom implements fleet.Store. There are no bounds.
func (s *Store) MakeRoom(context.Context) {}

// Close implements fleet.Store.
func (s *Store) Close() {}

// bucketDir returns the directory of a bucket.
func (s *Store) bucketDir(b fleet.Bucket) string { return filepath.Join(s.dir, string(b)) }

// path returns the file of a record, or an error if the key is invalid.
func (s *Store) path(b fleet.Bucket, key string) (string, error) {
	if err := fleet.CheckKey(key); err != nil {
		return "", err
	}
	return filepath.Join(s.bucketDir(b), key), nil
}

// Get implements fleet.Store.
func (s *Store) Get(_ context.Context, b fleet.Bucket, key string) (fleet.Record, error) {
	path, err := s.path(b, key)
	if err != nil {
		return fleet.Record{}, err
	}
	f, err := s.read(path)
	if err != nil {
		return fleet.Record{}, err
	}
	return fleet.Record{Key: key, Value: f.Value, Revision: f.Revision}, nil
}

// ListUnder implements fleet.Store.
func (s *Store) ListUnder(_ context.Context, b fleet.Bucket, prefixes []string) ([]fleet.Record, error) {
	for _, prefix := range prefixes {
		if err := fleet.CheckKey(prefix); err != nil {
			return nil, err
		}
	}
	return s.indexes[b].listRecords(prefixes)
}

// read reads a record's file. A record whose life is over is no record.
func (s *Store) read(path string) (f stored, err error) {
	data, err := userfile.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return f, fleet.ErrNoRecord
	case err != nil:
		return f, fault.New(fault.Permission, err, "run mpbond as the user who made it")
	case len(data) > maxFile:
		err = errors.New("the file is too long")
	default:
		err = json.Unmarshal(data, &f)
	}
	if err != nil {
		return stored{}, fault.New(fault.Integrity, fmt.Errorf("%s: %w", path, err), "correct or remove the file")
	}
	if f.hasEnded(s.now()) {
		return stored{}, fleet.ErrNoRecord
	}
	return f, nil
}

// change calls edit with the present record of a key, whose revision is 0 if there is none, and writes what it
// returns; nil removes the record.
func (s *Store) change(b fleet.Bucket, key string, edit func(stored) (*stored, error)) (revision uint64, err error) {
	path, err := s.path(b, key)
	if err != nil {
		return 0, err
	}
	dir := filepath.Dir(path)
	unlock, err := userfile.LockDir(dir)
	if err != nil {
		return 0, err
	}
	defer unlock()
	before, err := s.read(path)
	if err != nil && !errors.Is(err, fleet.ErrNoRecord) && !fault.Is(err, fault.Integrity) {
		return 0, err
	}
	after, err := edit(before)
	if err != nil {
		return 0, err
	}
	if revision, err = nextRevision(dir, key); err != nil {
		return 0, err
	}
	if after == nil {
		if err := userfile.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, fault.New(fault.Permission, err, "")
		}
		return revision, nil
	}
	if len(after.Value) > fleet.MaxValue {
		return 0, fault.New(fault.Limit, fmt.Errorf("record %q of %d bytes", key, len(after.Value)), "")
	}
	after.Revision = revision
	data, err := json.Marshal(after)
	if err == nil {
		err = replaceFile(path, data)
	}
	return revision, err
}

// replaceFile writes a file atomically. The lock of its directory must be held.
func replaceFile(path string, data []byte) error {
	f, err := userfile.CreateNew(filepath.Join(filepath.Dir(path), ".new"))
	if err == nil {
		err = userfile.Replace(f, path, data)
	}
	return fault.New(fault.Limit, err, "free disk space, or correct the permissions")
}

// ends returns when a record that is written now ends.
func (s *Store) ends(b fleet.Bucket, life time.Duration) time.Time {
	if life == 0 {
		life = fleet.RecordLife(b)
	}
	if life == 0 {
		return time.Time{}
	}
	return s.now().Add(life)
}

// Create implements fleet.Store.
func (s *Store) Create(_ context.Context, b fleet.Bucket, key string, value []byte, life time.Duration) (uint64,
	error) {
	if life > 0 || fleet.RecordLife(b) > 0 {
		s.sweep(b)
	}
	return s.change(b, key, func(now stored) (*stored, error) {
		if now.Revision != 0 {
			return nil, fleet.ErrConflict
		}
		return &stored{Value: value, Ends: s.ends(b, life)}, nil
	})
}

// sweep removes the records of a bucket whose life is over, unless that was done within sweepInterval. A watch does it
// at once, but nobody watches codes and counts.
func (s *Store) sweep(b fleet.Bucket) {
	dir := s.bucketDir(b)
	if !s.beginSweep(filepath.Join(dir, sweptFile)) {
		return
	}
	files, err := userfile.ReadDir(dir)
	if err != nil {
		return // the next write says why
	}
	for _, f := range files {
		if fleet.CheckKey(f.Name()) != nil {
			continue
		}
		if _, err := s.read(filepath.Join(dir, f.Name())); errors.Is(err, fleet.ErrNoRecord) {
			s.removeEnded(b, f.Name())
		}
	}
}

// beginSweep reports whether a sweep is due, and marks it as done.
func (s *Store) beginSweep(mark string) bool {
	unlock, err := userfile.LockDir(filepath.Dir(mark))
	if err != nil {
		return false
	}
	defer unlock()
	data, err := userfile.ReadFile(mark)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	var last time.Time
	_ = last.UnmarshalText(data)
	if age := s.now().Sub(last); age >= 0 && age < sweepInterval {
		return false
	}
	text, err := s.now().UTC().MarshalText()
	return err == nil && replaceFile(mark, text) == nil
}

// Update implements fleet.Store.
func (s *Store) Update(_ context.Context, b fleet.Bucket, r fleet.Record) (uint64, error) {
	return s.change(b, r.Key, func(now stored) (*stored, error) {
		if now.Revision != r.Revision || r.Revision == 0 {
			return nil, fleet.ErrConflict
		}
		return &stored{Value: r.Value, Ends: s.ends(b, r.Life)}, nil
	})
}

// Put implements fleet.Store.
func (s *Store) Put(_ context.Context, b fleet.Bucket, key string, value []byte) (uint64, error) {
	return s.change(b, key, func(stored) (*stored, error) { return &stored{Value: value, Ends: s.ends(b, 0)}, nil })
}

// Delete implements fleet.Store.
func (s *Store) Delete(_ context.Context, b fleet.Bucket, key string, revision uint64) error {
	_, err := s.change(b, key, func(now stored) (*stored, error) {
		if now.Revision != revision || revision == 0 {
			return nil, fleet.ErrConflict
		}
		return nil, nil
	})
	return err
}

// removeEnded removes the file of a record whose life is over, if it is still that one.
func (s *Store) removeEnded(b fleet.Bucket, key string) {
	path := filepath.Join(s.bucketDir(b), key)
	unlock, err := userfile.LockDir(filepath.Dir(path))
	if err != nil {
		return // another watch does it
	}
	defer unlock()
	if _, err := s.read(path); errors.Is(err, fleet.ErrNoRecord) {
		_ = userfile.Remove(path)
	}
}

// AddEvents implements fleet.Store.
func (s *Store) AddEvents(_ context.Context, events ...fleet.Event) error {
	unlock, err := userfile.LockDir(s.dir)
	if err != nil {
		return err
	}
	defer unlock()
	path := filepath.Join(s.dir, eventsFile)
	data, err := userfile.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.Permission, err, "run mpbond as the user who made it")
	}
	lines := bytes.Split(bytes.TrimRight(data, "\n"), []byte("\n"))
	var last fleet.Event
	for i := len(lines) - 1; i >= 0 && json.Unmarshal(lines[i], &last) != nil; i-- { // an interrupted write
	}
	var added []byte
	for i, e := range events {
		e.Number = last.Number + uint64(i) + 1
		line, err := json.Marshal(e)
		if err != nil {
			return err
		}
		added = append(append(added, line...), '\n')
	}
	if len(data) > maxEventsFile {
		kept := append(bytes.Join(lines[len(lines)/2:], []byte("\n")), '\n')
		return replaceFile(path, append(kept, added...))
	}
	f, err := userfile.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY|userfile.NoFollow, 0o600)
	if err != nil {
		return fault.New(fault.Permission, err, "run mpbond as the user who made it")
	}
	if len(data) > 0 && data[len(data)-1] != '\n' {
		added = append([]byte{'\n'}, added...)
	}
	_, err = f.Write(added)
	return fault.New(fault.Limit, errors.Join(err, f.Close()), "free disk space")
}

// Events implements fleet.Store.
func (s *Store) Events(ctx context.Context, from time.Time, follow bool, take func(fleet.Event)) error {
	t := time.NewTicker(pollInterval)
	defer t.Stop()
	for last := uint64(0); ; {
		data, err := userfile.ReadFile(filepath.Join(s.dir, eventsFile))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fault.New(fault.Permission, err, "run mpbond as the user who made it")
		}
		lines := bufio.NewScanner(bytes.NewReader(data))
		lines.Buffer(nil, 2*fleet.MaxValue)
		for lines.Scan() {
			var e fleet.Event
			if json.Unmarshal(lines.Bytes(), &e) == nil && e.Number > last {
				last = e.Number
				if !e.At.Before(from) {
					take(e)
				}
			}
		}
		if !follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}
