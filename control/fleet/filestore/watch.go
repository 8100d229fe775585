// SPDX-License-Identifier: Apache-2.0

package filestore

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"mpbond/base/fault"
	"mpbond/base/userfile"
	"mpbond/control/fleet"
)

// Watch implements fleet.Store.
func (s *Store) Watch(ctx context.Context, b fleet.Bucket, take func(fleet.Change)) error {
	w := newWatch(s, b)
	t := time.NewTicker(pollInterval)
	defer t.Stop()
	for isFirst := true; ; isFirst = false {
		changes, err := w.pollChanges()
		for _, c := range changes {
			take(c)
			if c.IsGone {
				s.removeEnded(b, c.Key)
			}
		}
		if err != nil {
			return err
		}
		if isFirst {
			take(fleet.Change{IsCurrent: true})
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}

// watch is a watch of a bucket.
type watch struct {
	store    *Store
	follower follower
	known    map[string]stored    // the records that were reported, without their values
	modified map[string]time.Time // modification times of all files at the last scan
}

func newWatch(s *Store, b fleet.Bucket) *watch {
	return &watch{store: s, follower: follower{dir: s.bucketDir(b)}, known: map[string]stored{}}
}

// pollChanges returns what has changed since the last call, in order. After an error this may not be all, and the watch
// must not be used again.
func (w *watch) pollChanges() (list []fleet.Change, err error) {
	revision, err := readRevision(w.follower.dir)
	if err != nil {
		return nil, err
	}
	keys := w.endedKeys()
	if revision == w.follower.revision && len(keys) == 0 && !w.follower.isScanDue() {
		return nil, nil
	}
	unlock, err := userfile.LockDir(w.follower.dir) // while records are read too: none may be newer than the next change
	if err != nil {
		return nil, err
	}
	defer unlock()
	changed, files, err := w.follower.changed()
	if err != nil {
		return nil, err
	}
	keys = append(keys, changed...)
	if files != nil {
		keys = append(keys, w.modifiedKeys(files)...)
	}
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		if list, err = w.examine(key, list); err != nil {
			break
		}
	}
	slices.SortFunc(list, func(a, b fleet.Change) int { return cmp.Compare(a.Revision, b.Revision) })
	return list, err
}

// endedKeys returns the keys of the records whose lives are over.
func (w *watch) endedKeys() (keys []string) {
	now := w.store.now()
	for key, r := range w.known {
		if r.hasEnded(now) {
			keys = append(keys, key)
		}
	}
	return keys
}

// modificationTick is longer than the ticks in which file systems count. A file that was changed within it may change
// again and keep its modification time.
const modificationTick = time.Second

// modifiedKeys returns the keys of the files that may have changed since the last scan, and of the records whose files
// are gone. files are all.
func (w *watch) modifiedKeys(files []fs.DirEntry) (keys []string) {
	modified := map[string]time.Time{}
	for _, f := range files {
		info, err := f.Info()
		if err != nil {
			continue // removed just now
		}
		key, at := f.Name(), info.ModTime()
		if modified[key] = at; !at.Equal(w.modified[key]) || time.Since(at) <= modificationTick {
			keys = append(keys, key)
		}
	}
	for key := range w.known {
		if _, isThere := modified[key]; !isThere {
			keys = append(keys, key)
		}
	}
	w.modified = modified
	return keys
}

// examine appends to a list how a record differs from what was reported.
func (w *watch) examine(key string, list []fleet.Change) ([]fleet.Change, error) {
	r, err := w.store.read(filepath.Join(w.follower.dir, key))
	before, isKnown := w.known[key]
	switch {
	case errors.Is(err, fleet.ErrNoRecord):
		if delete(w.known, key); isKnown {
			list = append(list, fleet.Change{Record: fleet.Record{Key: key, Revision: before.Revision}, IsGone: true})
		}
		return list, nil
	case fault.Is(err, fault.Integrity): // by hand: what is known stays
		w.store.log.Error("record ignored", "err", err, "hint", fault.HintOf(err))
		return list, nil
	case err != nil: // else it would count as deleted
		return list, err
	}
	w.known[key] = stored{Revision: r.Revision, Ends: r.Ends}
	if r.Revision != before.Revision {
		list = append(list, fleet.Change{Record: fleet.Record{Key: key, Value: r.Value, Revision: r.Revision}})
	}
	return list, nil
}
