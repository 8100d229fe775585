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

// Nobody shall be cut off, and nothing let through, because a person saves a file.
const (
	// settleDelay is how long the file is left alone after a change.
	settleDelay = 100 * time.Millisecond
	// emptyFileDelay is how long one that is empty or missing is waited for: some editors
	// empty it before they write, others put it away first.
	emptyFileDelay = time.Second
	// pollFileInterval is how often it is looked at where the system does not tell of
	// changes.
	pollFileInterval = time.Second
	// saveRetryInterval is how often it is tried to write that a device was removed.
	saveRetryInterval = 2 * time.Second
)

// watchTrust reads the trust file again when it has changed, whoever did that,
// and when asked by a signal, until ctx ends. It is how a device that was
// revoked is cut off at once.
func (r *role) watchTrust(ctx context.Context, d runningRole, hangup <-chan os.Signal) error {
	path, err := trustPath()
	if err != nil {
		return err
	}
	changes, stop := watchFile(path)
	defer stop()
	return r.applyTrustChanges(ctx, d, path, hangup, changes)
}

// applyTrustChanges is watchTrust by what is told of changes.
func (r *role) applyTrustChanges(ctx context.Context, d runningRole, path string, hangup <-chan os.Signal, changes <-chan struct{}) error {
	known := r.trust.Peers() // what d began with
	reload := func(forced bool) {
		err := r.trust.Reload()
		if err != nil {
			slog.Error("the trust file stays as it was read before", "err", err, "hint", fault.HintOf(err))
		}
		// Also if the file cannot be read: without what was removed here.
		now := r.trust.Peers()
		if (err != nil || !forced) && reflect.DeepEqual(now, known) { // else it was changed, by whomever, this process included
			return
		}
		if err == nil {
			slog.Info("the trust file was read again", "devices", len(now))
		}
		d.TrustChanged()
		r.recordDeviceChanges(known, now)
		known = now
	}
	watchedFile{
		path:       path,
		removed:    r.removed,
		save:       r.saveTrust,
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

// saveTrust writes that devices were removed, if the disk has room by now.
func (r *role) saveTrust() bool {
	names := r.trust.Unsaved()
	if len(names) == 0 {
		return true
	}
	if r.trust.Save() != nil {
		return false // the removal has reported the error
	}
	slog.Info("it is written now that devices are trusted no longer", "devices", strings.Join(names, ", "))
	return true
}

// watchedFile is a file that is read again when it has changed.
type watchedFile struct {
	path       string
	hasContent func() bool // something would be lost if the file were empty
	reload     func()      // it may have, and is left alone since
	onHangup   func()      // a signal asks for it

	removed <-chan struct{} // what it has does not hold any more; nil: never
	save    func() bool     // writes what holds, and reports whether nothing is left to write
}

// handleChanges calls these functions, one at a time, until ctx ends.
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

// isMissingOrEmpty tells whether a file is missing or empty. A trust file of ours without
// any device is neither.
func isMissingOrEmpty(path string) bool {
	st, err := userfile.Stat(path)
	return err != nil || st.Size() == 0
}

// watchFile tells that a file may have changed, at first when it has begun to look.
func watchFile(path string) (changes <-chan struct{}, stop func()) {
	out := make(chan struct{}, 1)
	out <- struct{}{}
	w, err := (*fsnotify.Watcher)(nil), error(nil)
	if strings.HasPrefix(runtime.GOARCH, "mips") {
		// fsnotify (v1.10.1) reads events at odd addresses, which these processors
		// cannot, and some kernels do not do for them.
		err = errors.New("not on mips processors")
	} else {
		w, err = fsnotify.NewWatcher()
	}
	if err == nil {
		if err = userfile.WithOwnerRights(filepath.Dir(path), w.Add); err != nil { // with the rights of its user
			w.Close()
		}
	}
	end, done := make(chan struct{}), make(chan struct{})
	stop = func() { close(end); <-done }
	if err != nil {
		slog.Warn("changes of a file are noticed a second late", "file", path, "err", fmt.Errorf("watch %s: %w", filepath.Dir(path), err))
		go func() {
			defer close(done)
			pollFile(path, out, end)
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
			case <-w.Errors: // events were lost: look
			}
			notifyChange(out)
		}
	}()
	return out, stop
}

// pollFile tells that a file has changed by looking at it until end is closed.
func pollFile(path string, out chan<- struct{}, end <-chan struct{}) {
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
		case before == nil || now == nil, !os.SameFile(before, now), !before.ModTime().Equal(now.ModTime()), before.Size() != now.Size():
			notifyChange(out)
		}
		before = now
	}
}

// notifyChange says that something has changed, unless that is said and not heard yet.
func notifyChange(out chan<- struct{}) {
	select {
	case out <- struct{}{}:
	default:
	}
}
