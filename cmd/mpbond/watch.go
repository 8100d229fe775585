package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settle is how long a file is left alone after a change: some programs empty it
// before they write, and nobody shall be cut off for that.
const settle = 100 * time.Millisecond

// keepTrust reads the trust file again when it has changed, whoever did that,
// and when asked by a signal, until ctx ends. It is how a device that was
// revoked is cut off at once.
func (r *role) keepTrust(ctx context.Context, d device, hangup <-chan os.Signal) error {
	known := r.trust.Peers() // what d began with
	path, err := trustPath()
	if err != nil {
		return err
	}
	events, stop := watchDir(filepath.Dir(path))
	defer stop()
	settled := time.NewTimer(settle)
	defer settled.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hangup:
			r.reload(d)
			known = r.trust.Peers()
			continue
		case name := <-events:
			if name == "" || filepath.Base(name) == filepath.Base(path) {
				settled.Reset(settle)
			}
			continue
		case <-settled.C:
		}
		if err := r.trust.Reload(); err != nil {
			slog.Error("the trust file stays as it was read before", "err", err)
			continue
		}
		if now := r.trust.Peers(); !reflect.DeepEqual(now, known) { // by whomever, this process included
			known = now
			slog.Info("trust file has changed", "devices", len(now))
			d.TrustChanged()
		}
	}
}

// watchDir tells the names of files in a directory that change, first "" when
// it has begun to. If the system cannot, that is all it tells.
func watchDir(dir string) (names <-chan string, stop func()) {
	out := make(chan string, 1)
	out <- ""
	w, err := fsnotify.NewWatcher()
	if err == nil {
		if err = w.Add(dir); err != nil {
			w.Close()
		}
	}
	if err != nil {
		slog.Warn("changes of the trust file are noticed on SIGHUP only", "err", fmt.Errorf("watch %s: %w", dir, err))
		return out, func() {}
	}
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		defer w.Close()
		for {
			var name string
			select {
			case <-end:
				return
			case e := <-w.Events:
				name = e.Name
			case <-w.Errors: // events were lost: look
			}
			select {
			case out <- name:
			case <-end:
				return
			}
		}
	}()
	return out, func() { close(end); <-done }
}
