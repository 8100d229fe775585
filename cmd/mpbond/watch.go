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
	// settle is how long the file is left alone after a change.
	settle = 100 * time.Millisecond
	// doubt is how long one that is empty or missing is waited for: some editors
	// empty it before they write, others put it away first.
	doubt = time.Second
	// lookEvery is how often it is looked at where the system does not tell of
	// changes.
	lookEvery = time.Second
	// saveEvery is how often it is tried to write that a device was removed.
	saveEvery = 2 * time.Second
)

// keepTrust reads the trust file again when it has changed, whoever did that,
// and when asked by a signal, until ctx ends. It is how a device that was
// revoked is cut off at once.
func (r *role) keepTrust(ctx context.Context, d device, hangup <-chan os.Signal) error {
	path, err := trustPath()
	if err != nil {
		return err
	}
	changes, stop := watch(path)
	defer stop()
	return r.followTrust(ctx, d, path, hangup, changes)
}

// followTrust is keepTrust by what is told of changes.
func (r *role) followTrust(ctx context.Context, d device, path string, hangup <-chan os.Signal, changes <-chan struct{}) error {
	known := r.trust.Peers() // what d began with
	look := func(asked bool) {
		err := r.trust.Reload()
		if err != nil {
			slog.Error("the trust file stays as it was read before", "err", err, "hint", fault.HintOf(err))
		}
		// Also if the file cannot be read: without what was removed here.
		now := r.trust.Peers()
		if (err != nil || !asked) && reflect.DeepEqual(now, known) { // else it was changed, by whomever, this process included
			return
		}
		if err == nil {
			slog.Info("the trust file was read again", "devices", len(now))
		}
		d.TrustChanged()
		r.tellDevices(known, now)
		known = now
	}
	followed{
		path:    path,
		removed: r.removed,
		save:    r.saveTrust,
		full:    func() bool { return len(known) > 0 },
		hangup: func() {
			if r.policy != nil {
				r.policy.ReloadFile(true)
			}
			look(true)
		},
		changed: func() { look(false) },
	}.follow(ctx, hangup, changes)
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

// followed is a file that is read again when it has changed.
type followed struct {
	path    string
	full    func() bool // something would be lost if the file were empty
	changed func()      // it may have, and is left alone since
	hangup  func()      // a signal asks for it

	removed <-chan struct{} // what it has does not hold any more; nil: never
	save    func() bool     // writes what holds, and reports whether nothing is left to write
}

// follow calls these functions, one at a time, until ctx ends.
func (f followed) follow(ctx context.Context, hangup <-chan os.Signal, changes <-chan struct{}) {
	settled := time.NewTimer(settle)
	defer settled.Stop()
	doubted := false
	unsaved := (<-chan time.Time)(nil)
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangup:
			f.hangup()
			continue
		case <-f.removed:
			f.changed()
			unsaved = time.After(saveEvery)
			continue
		case <-unsaved:
			if unsaved = nil; !f.save() {
				unsaved = time.After(saveEvery)
			}
			continue
		case <-changes:
			doubted = false
			settled.Reset(settle)
			continue
		case <-settled.C:
		}
		if f.full() && !doubted && blank(f.path) {
			doubted = true
			settled.Reset(doubt)
			continue
		}
		doubted = false
		f.changed()
	}
}

// blank tells whether a file is missing or empty. A trust file of ours without
// any device is neither.
func blank(path string) bool {
	st, err := userfile.Stat(path)
	return err != nil || st.Size() == 0
}

// watch tells that a file may have changed, at first when it has begun to look.
func watch(path string) (changes <-chan struct{}, stop func()) {
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
		if err = userfile.Do(filepath.Dir(path), w.Add); err != nil { // with the rights of its user
			w.Close()
		}
	}
	end, done := make(chan struct{}), make(chan struct{})
	stop = func() { close(end); <-done }
	if err != nil {
		slog.Warn("changes of a file are noticed a second late", "file", path, "err", fmt.Errorf("watch %s: %w", filepath.Dir(path), err))
		go func() {
			defer close(done)
			poll(path, out, end)
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
			tell(out)
		}
	}()
	return out, stop
}

// poll tells that a file has changed by looking at it until end is closed.
func poll(path string, out chan<- struct{}, end <-chan struct{}) {
	tick := time.NewTicker(lookEvery)
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
			tell(out)
		}
		before = now
	}
}

// tell says that something has changed, unless that is said and not heard yet.
func tell(out chan<- struct{}) {
	select {
	case out <- struct{}{}:
	default:
	}
}
