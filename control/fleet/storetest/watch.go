// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"mpbond/base/waittest"
	"mpbond/control/fleet"
)

// watcher collects what a watch reports.
type watcher struct {
	mu      sync.Mutex
	changes []fleet.Change
	done    chan error
	stop    context.CancelFunc
}

func startWatch(t *testing.T, s fleet.Store, b fleet.Bucket) *watcher {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &watcher{done: make(chan error, 1), stop: cancel}
	go func() {
		err := s.Watch(ctx, b, func(c fleet.Change) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.changes = append(w.changes, c)
		})
		if err != nil {
			t.Errorf("watch: %v", err)
		}
		w.done <- err
	}()
	t.Cleanup(cancel)
	return w
}

// summary describes the changes so far: "key=value" each, "-key" for the end of a record, "|" when all that were
// there have been reported.
func (w *watcher) summary() (list []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.changes {
		switch {
		case c.IsCurrent:
			list = append(list, "|")
		case c.IsGone:
			list = append(list, "-"+c.Key)
		default:
			list = append(list, c.Key+"="+string(c.Value))
		}
	}
	return list
}

// awaitChanges waits until the changes are these.
func (w *watcher) awaitChanges(t *testing.T, want ...string) {
	t.Helper()
	waittest.UntilSuccess(t, func() error {
		if got := w.summary(); !slices.Equal(got, want) {
			return fmt.Errorf("the watch reported %q instead of %q", got, want)
		}
		return nil
	})
}

// awaitLast waits until the last changes of all records are these, in the order of their text. A watch may leave out
// the value of a record whose life ends soon.
func (w *watcher) awaitLast(t *testing.T, want ...string) {
	t.Helper()
	waittest.UntilSuccess(t, func() error {
		last := map[string]string{}
		for _, text := range w.summary() {
			key, _, _ := strings.Cut(strings.TrimPrefix(text, "-"), "=")
			last[key] = text
		}
		delete(last, "|")
		if got := slices.Sorted(maps.Values(last)); !slices.Equal(got, want) {
			return fmt.Errorf("the watch reported %q last instead of %q", got, want)
		}
		return nil
	})
}

// testWatch checks what a watch reports, and that it ends with its context.
func testWatch(t *testing.T, a, b fleet.Store) {
	ctx := t.Context()
	empty := startWatch(t, b, fleet.Codes)
	empty.awaitChanges(t, "|")
	first := must(a.Put(ctx, fleet.Orders, "list", []byte("1")))(t)
	gone := must(a.Create(ctx, fleet.Orders, "gone", []byte("1"), 0))(t)
	if err := a.Delete(ctx, fleet.Orders, "gone", gone); err != nil {
		t.Fatal(err)
	}
	w := startWatch(t, b, fleet.Orders)
	waittest.Until(t, "all that was there is reported", func() bool { return slices.Contains(w.summary(), "|") })
	w.mu.Lock()
	w.changes = slices.DeleteFunc(w.changes, func(c fleet.Change) bool { return c.IsGone && c.Key == "gone" })
	w.mu.Unlock() // an engine may report what ended before
	w.awaitChanges(t, "list=1", "|")
	r := fleet.Record{Key: "list", Value: []byte("2"), Revision: first}
	r.Revision = must(a.Update(ctx, fleet.Orders, r))(t)
	w.awaitChanges(t, "list=1", "|", "list=2")
	must(b.Put(ctx, fleet.Orders, "drain.eu1", []byte("yes")))(t)
	w.awaitChanges(t, "list=1", "|", "list=2", "drain.eu1=yes")
	if err := a.Delete(ctx, fleet.Orders, "list", r.Revision); err != nil {
		t.Fatal(err)
	}
	w.awaitChanges(t, "list=1", "|", "list=2", "drain.eu1=yes", "-list")
	w.mu.Lock()
	for i, c := range w.changes[2:] {
		if before := w.changes[i+1]; !before.IsCurrent && c.Revision <= before.Revision && !c.IsGone {
			t.Errorf("revision %d follows %d", c.Revision, before.Revision)
		}
	}
	w.mu.Unlock()
	w.stop()
	if err := <-w.done; err != nil {
		t.Errorf("the end of the context is an error: %v", err)
	}
	if got := empty.summary(); !slices.Equal(got, []string{"|"}) {
		t.Errorf("the watch of another bucket reported %q", got)
	}
}

// testWatchMany checks that a watch that begins amid changes ends with the last state of each record.
func testWatchMany(t *testing.T, a, b fleet.Store) {
	const keys, rounds = 30, 5
	var g sync.WaitGroup
	for _, s := range []fleet.Store{a, b} {
		g.Go(func() {
			for n := range rounds {
				for k := range keys {
					key := fmt.Sprintf("k%d", k)
					if s == b {
						key = fmt.Sprintf("l%d", k)
					}
					if _, err := s.Put(t.Context(), fleet.Devices, key, fmt.Appendf(nil, "%d", n)); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	w := startWatch(t, a, fleet.Devices)
	g.Wait()
	waittest.UntilSuccess(t, func() error {
		last := map[string]string{}
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, c := range w.changes {
			last[c.Key] = string(c.Value)
		}
		delete(last, "") // IsCurrent
		if len(last) != 2*keys {
			return fmt.Errorf("the watch reported %d records instead of %d", len(last), 2*keys)
		}
		for key, v := range last {
			if v != fmt.Sprint(rounds-1) {
				return fmt.Errorf("%s ended with %s", key, v)
			}
		}
		return nil
	})
}

// testLives checks that records end with their lives, and that watches report it.
func testLives(t *testing.T, a, b fleet.Store) {
	ctx := t.Context()
	w, servers := startWatch(t, b, fleet.Codes), startWatch(t, b, fleet.Servers)
	w.awaitChanges(t, "|")
	servers.awaitChanges(t, "|")
	began := time.Now()
	must(a.Create(ctx, fleet.Codes, "short", []byte("1"), time.Second))(t)
	must(a.Create(ctx, fleet.Codes, "long", []byte("1"), time.Hour))(t)
	must(a.Put(ctx, fleet.Servers, "eu1", []byte("1")))(t)
	must(a.Put(ctx, fleet.Servers, "eu2", []byte("1")))(t)
	w.awaitLast(t, "-short", "long=1")
	if took := time.Since(began); took < time.Second {
		t.Errorf("a record of one second ended after %v", took)
	}
	if _, err := a.Get(ctx, fleet.Codes, "short"); err != fleet.ErrNoRecord {
		t.Errorf("a record whose life is over: %v", err)
	}
	must(a.Create(ctx, fleet.Codes, "short", []byte("2"), time.Hour))(t) // its name is free
	r := must(a.Get(ctx, fleet.Codes, "long"))(t)
	r.Value, r.Life = []byte("2"), time.Second
	if _, err := a.Update(ctx, fleet.Codes, fleet.Record{Key: r.Key, Revision: r.Revision + 100,
		Life: r.Life}); err != fleet.ErrConflict {
		t.Errorf("updated another revision, with a life: %v", err)
	}
	must(a.Update(ctx, fleet.Codes, r))(t)
	w.awaitLast(t, "-long", "short=2")
	// a record in Servers lives on when it is written again
	waittest.Until(t, "half a life of a server has passed",
		func() bool { return time.Since(began) > fleet.ServerLife/2 })
	again := time.Now()
	must(a.Put(ctx, fleet.Servers, "eu2", []byte("2")))(t)
	waittest.Until(t, "eu1 has ended", func() bool { return slices.Contains(servers.summary(), "-eu1") })
	if took := time.Since(began); took < fleet.ServerLife {
		t.Errorf("eu1 ended after %v", took)
	}
	servers.awaitLast(t, "-eu1", "-eu2")
	if took := time.Since(again); took < fleet.ServerLife {
		t.Errorf("eu2 ended after %v", took)
	}
}
