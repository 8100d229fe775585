// SPDX-License-Identifier: Apache-2.0

package filestore

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"mpbond/base/fault"
	"mpbond/control/fleet"
	"mpbond/control/fleet/storetest"
)

func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) (a, b fleet.Store) {
		dir := t.TempDir()
		return open(t, dir), open(t, dir)
	})
}

// TestLives checks that a record lives as long as its bucket says after each write, and as Create says.
func TestLives(t *testing.T) {
	s := open(t, t.TempDir())
	now := time.Now()
	s.now = func() time.Time { return now }
	for _, b := range fleet.Buckets() {
		life := fleet.RecordLife(b)
		if _, err := s.Put(t.Context(), b, "x", nil); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Create(t.Context(), b, "short", nil, time.Second); err != nil {
			t.Fatal(err)
		}
		begin := now
		now = now.Add(max(life, time.Second) - 1)
		if _, err := s.Get(t.Context(), b, "x"); err != nil {
			t.Errorf("%s: before its life is over: %v", b, err)
		}
		now = begin.Add(max(life, time.Second))
		if _, err := s.Get(t.Context(), b, "short"); err != fleet.ErrNoRecord {
			t.Errorf("%s: a record of one second: %v", b, err)
		}
		if _, err := s.Get(t.Context(), b, "x"); (err == fleet.ErrNoRecord) != (life > 0) {
			t.Errorf("%s: after %v: %v", b, now.Sub(begin), err)
		}
	}
}

// TestDamagedRecord checks that a record that somebody has damaged by hand is an error for those who ask for it,
// that others are served, and that it can be replaced.
func TestDamagedRecord(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	for _, key := range []string{"good", "bad"} {
		if _, err := s.Put(t.Context(), fleet.Devices, key, []byte("1")); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "devices", "bad"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), fleet.Devices, "bad"); !fault.Is(err, fault.Integrity) || fault.HintOf(err) == "" {
		t.Errorf("a damaged record: %v", err)
	}
	list, err := fleet.List(t.Context(), s, fleet.Devices)
	if err != nil || len(list) != 1 || list[0].Key != "good" {
		t.Errorf("list %v: %v", list, err)
	}
	if _, err := s.Put(t.Context(), fleet.Devices, "bad", []byte("2")); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Get(t.Context(), fleet.Devices, "bad"); err != nil || string(r.Value) != "2" {
		t.Errorf("%v, %v", r, err)
	}
}

// TestSweep checks that records whose life is over are removed from a bucket that nobody watches, by later records.
func TestSweep(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	s := open(t, dir)
	s.now = func() time.Time { return now }
	create := func(key string) {
		t.Helper()
		if _, err := s.Create(t.Context(), fleet.Codes, key, []byte("1"), time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	count := func(key string) { // has the life of its bucket
		t.Helper()
		if _, err := s.Create(t.Context(), fleet.UsageCounts, key, []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
	}
	expectIn := func(b fleet.Bucket, want ...string) {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(dir, string(b), "[a-z]*"))
		for i := range files {
			files[i] = filepath.Base(files[i])
		}
		if err != nil || !slices.Equal(files, want) {
			t.Errorf("files %q, want %q: %v", files, want, err)
		}
	}
	expect := func(want ...string) { t.Helper(); expectIn(fleet.Codes, want...) }
	create("a")
	create("b")
	now = now.Add(sweepInterval / 2)
	create("c")
	expect("a", "b", "c")
	now = now.Add(sweepInterval / 2)
	create("d")
	expect("d")
	now = now.Add(-24 * time.Hour) // the clock was a day ahead
	create("e")
	expect("d", "e")
	now = now.Add(sweepInterval)
	create("f")
	expect("d", "f")
	count("old")
	now = now.Add(fleet.UsageLife)
	count("new")
	expectIn(fleet.UsageCounts, "new")
}
