// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"mpbond/base/fault"
	"mpbond/base/userfile"
)

// Delays of watched files. A file that an editor is just saving must neither cut devices off
// nor lift rules.
const (
	// settleDelay is the time from the last change of the file until it is reread.
	settleDelay = 100 * time.Millisecond
	// emptyFileDelay is the extra wait for a file that is empty or missing: some editors empty or
	// rename a file before they write it.
	emptyFileDelay = time.Second
	// pollFileInterval is the interval of checks where the system does not report changes.
	pollFileInterval = time.Second
	// saveRetryInterval is the time between two tries to save that a device was removed.
	saveRetryInterval = 2 * time.Second
)

// watchTrust rereads the trust file when it changes, and on SIGHUP, until ctx ends. This is how a
// revoked device is cut off at once.
func (r *role) watchTrust(ctx context.Context, d runningRole, hangup <-chan os.Signal) error {
	path, err := trustFilePath()
	if err != nil {
		return err
	}
	changes, stop := watchFileChanges(path)
	defer stop()
	return r.applyTrustChanges(ctx, d, path, hangup, changes)
}

// applyTrustChanges does the work of watchTrust for the given channel of changes.
func (r *role) applyTrustChanges(ctx context.Context, d runningRole, path string, hangup <-chan os.Signal,
	changes <-chan struct{}) error {
	known := r.trust.Peers() // those that d knows
	reload := func(forced bool) {
		err := r.trust.Reload()
		if err != nil {
			slog.Error("trust file not reread, using the last one", "err", err, "hint", fault.HintOf(err))
		}
		// If the file cannot be read these are the last peers, without those removed here.
		now := r.trust.Peers()
		// unchanged; else this or another process has changed it
		if (err != nil || !forced) && reflect.DeepEqual(now, known) {
			return
		}
		if err == nil {
			slog.Info("trust file reread", "devices", len(now))
		}
		d.TrustChanged()
		r.recordDeviceChanges(known, now)
		known = now
	}
	watchedFile{
		path:       path,
		removed:    r.removed,
		save:       r.retryTrustSave,
		hasContent: func() bool { return len(known) > 0 },
		onHangup: func() {
			if r.policy != nil {
				r.policy.Reload(true)
			}
			reload(true)
		},
		reload: func() { reload(false) },
	}.handleChanges(ctx, hangup, changes)
	return nil
}

// retryTrustSave saves the trust file if a removal could not be saved earlier, and reports whether
// nothing remains to be saved.
func (r *role) retryTrustSave() bool {
	names := r.trust.Unsaved()
	if len(names) == 0 {
		return true
	}
	if r.trust.Save() != nil {
		return false // the removal already reported the error
	}
	slog.Info("revocation saved", "devices", strings.Join(names, ", "))
	return true
}

// watchedFile is a file that is reread when it changes.
type watchedFile struct {
	path       string
	hasContent func() bool // reports whether something would be lost if the file were empty
	reload     func()      // called when the file has settled after a change
	onHangup   func()      // called on SIGHUP

	removed <-chan struct{} // gets a value when a removal is not saved yet; nil: never
	save    func() bool     // saves the file, and reports whether nothing remains to be saved
}

// handleChanges calls the functions of f, one at a time, until ctx ends.
func (f watchedFile) handleChanges(ctx context.Context, hangup <-chan os.Signal, changes <-chan struct{}) {
	settled := time.NewTimer(settleDelay)
	defer settled.Stop()
	doubted := false
	unsaved := (<-chan time.Time)(nil)
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangup:
			f.onHangup()
			continue
		case <-f.removed:
			f.reload()
			unsaved = time.After(saveRetryInterval)
			continue
		case <-unsaved:
			if unsaved = nil; !f.save() {
				unsaved = time.After(saveRetryInterval)
			}
			continue
		case <-changes:
			doubted = false
			settled.Reset(settleDelay)
			continue
		case <-settled.C:
		}
		if f.hasContent() && !doubted && isMissingOrEmpty(f.path) {
			doubted = true
			settled.Reset(emptyFileDelay)
			continue
		}
		doubted = false
		f.reload()
	}
}

// isMissingOrEmpty reports whether a file is missing or empty. A trust file without devices is not
// empty.
func isMissingOrEmpty(path string) bool {
	st, err := userfile.Stat(path)
	return err != nil || st.Size() == 0
}

// watchFileChanges returns a channel that gets a value at once, and whenever the file may have
// changed.
func watchFileChanges(path string) (changes <-chan struct{}, stop func()) {
	out := make(chan struct{}, 1)
	out <- struct{}{}
	w, err := (*fsnotify.Watcher)(nil), error(nil)
	if strings.HasPrefix(runtime.GOARCH, "mips") {
		// fsnotify (v1.10.1) reads events at unaligned addresses. These processors cannot do
		// that, and some of their kernels do not emulate it.
		err = errors.New("not on mips processors")
	} else {
		w, err = fsnotify.NewWatcher()
	}
	if err == nil {
		if err = userfile.WithOwnerRights(filepath.Dir(path), w.Add); err != nil {
			w.Close()
		}
	}
	end, done := make(chan struct{}), make(chan struct{})
	stop = func() { close(end); <-done }
	if err != nil {
		slog.Warn("file is polled every second", "file", path, "err",
			fmt.Errorf("watch %s: %w", filepath.Dir(path), err))
		go func() {
			defer close(done)
			pollFileChanges(path, out, end)
		}()
		return out, stop
	}
	go func() {
		defer close(done)
		defer w.Close()
		for {
			select {
			case <-end:
				return
			case e := <-w.Events:
				if filepath.Base(e.Name) != filepath.Base(path) {
					continue
				}
			case <-w.Errors: // events were lost, so the file may have changed
			}
			signalChange(out)
		}
	}()
	return out, stop
}

// pollFileChanges checks a file at every interval and reports its changes until end is closed.
func pollFileChanges(path string, out chan<- struct{}, end <-chan struct{}) {
	tick := time.NewTicker(pollFileInterval)
	defer tick.Stop()
	before, _ := userfile.Stat(path)
	for {
		select {
		case <-end:
			return
		case <-tick.C:
		}
		now, _ := userfile.Stat(path)
		switch {
		case before == nil && now == nil:
		case before == nil || now == nil, !os.SameFile(before,
			now), !before.ModTime().Equal(now.ModTime()), before.Size() != now.Size():
			signalChange(out)
		}
		before = now
	}
}

// signalChange sends a value to out unless one is waiting.
func signalChange(out chan<- struct{}) {
	select {
	case out <- struct{}{}:
	default:
	}
}
