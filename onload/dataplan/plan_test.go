// SPDX-License-Identifier: Apache-2.0

package dataplan

import (
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/control/device"
)

// fakeSystem is the system of a Keeper.
type fakeSystem struct {
	counters map[string]device.Counters
	err      error
	boot     string
}

func (s *fakeSystem) open(t *testing.T, path, link string) *Keeper {
	t.Helper()
	k, err := Open(path, link, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	k.counters = func() (map[string]device.Counters, error) { return s.counters, s.err }
	k.bootID = func() string { return s.boot }
	t.Cleanup(func() { k.journal.Close() })
	return k
}

// at returns a time on a day of June.
func at(day, hour int) time.Time { return time.Date(2026, 6, day, hour, 0, 0, 0, time.Local) }

// TestDays checks that counters count once, over restarts of mpbond and of the system, on the days
// of their readings.
func TestDays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plan.jsonl")
	s := &fakeSystem{boot: "one"}
	k := s.open(t, path, "wwan0")
	look := func(day, hour int, rx, tx uint64, want map[string]unit.Bytes) {
		t.Helper()
		s.counters = map[string]device.Counters{"wwan0": {Rx: rx, Tx: tx}, "wlan0": {Rx: 1 << 40}}
		k.Update(at(day, hour))
		if got := k.Days(); !maps.Equal(got, want) {
			t.Errorf("June %d: %v, want %v", day, got, want)
		}
	}
	look(1, 8, 5000, 1000, map[string]unit.Bytes{"2026-06-01": 0}) // from before
	look(1, 9, 5500, 1020, map[string]unit.Bytes{"2026-06-01": 520})
	look(2, 0, 6500, 1020, map[string]unit.Bytes{"2026-06-01": 520, "2026-06-02": 1000})
	if err := k.journal.Close(); err != nil {
		t.Fatal(err)
	}
	k = s.open(t, path, "wwan0") // mpbond was not running
	look(4, 1, 7500, 1020, map[string]unit.Bytes{"2026-06-01": 520, "2026-06-02": 1000, "2026-06-04": 1000})
	s.boot = "two" // the system has restarted too
	look(4, 2, 8000, 1100, map[string]unit.Bytes{"2026-06-01": 520, "2026-06-02": 1000, "2026-06-04": 10100})
	// the modem has restarted
	look(4, 3, 100, 10, map[string]unit.Bytes{"2026-06-01": 520, "2026-06-02": 1000, "2026-06-04": 10210})

	before := k.Days()
	s.counters = nil
	k.Update(at(5, 1)) // the link is missing
	before["2026-06-05"] = 0
	if got := k.Days(); !maps.Equal(got, before) {
		t.Errorf("without the link: %v", got)
	}
	s.counters = map[string]device.Counters{"wwan0": {Rx: 70, Tx: 7}}
	k.Update(at(5, 2))
	before["2026-06-05"] = 77
	s.err = errors.New("this system does not tell")
	k.Update(at(6, 1)) // an unknown day
	if got := k.Days(); !maps.Equal(got, before) {
		t.Errorf("at the end: %v, want %v", got, before)
	}
	if err := k.journal.Close(); err != nil {
		t.Fatal(err)
	}
	if got := s.open(t, path, "wlan0").Days(); len(got) != 0 {
		t.Errorf("another link's: %v", got)
	}
}

// TestLong checks that the file size is limited and needed records are kept.
func TestLong(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plan.jsonl")
	s := &fakeSystem{}
	k := s.open(t, path, "wwan0")
	day := at(1, 12)
	for n := range 30000 {
		s.counters = map[string]device.Counters{"wwan0": {Rx: uint64(n) * 10}}
		if n%50 == 0 {
			day = day.AddDate(0, 0, 1)
		}
		k.Update(day)
	}
	want := k.Days()[day.Format(time.DateOnly)]
	if err := k.journal.Close(); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(path)
	if err != nil || st.Size() > 3<<20 {
		t.Errorf("%v bytes, %v", st.Size(), err)
	}
	k = s.open(t, path, "wwan0")
	if got := k.Days(); got[day.Format(time.DateOnly)] != want || len(got) < keepDays || k.lastRecord.Rx != 299990 {
		t.Errorf("%d days, the last of %v instead of %v", len(got), got[day.Format(time.DateOnly)], want)
	}
}

// TestDamage checks that invalid lines are ignored.
func TestDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plan.jsonl")
	text := `{"day":"2026-06-01","link":"wwan0","all":5}` + "\n" + `{"day":"yesterday","link":"wwan0"}` + "\nx\n" +
		`{"day":"2026-06-02","link":"wwan0","all":-5}` + "\n" + `{"day":"2026-0`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := (&fakeSystem{}).open(t, path, "wwan0").Days(); !maps.Equal(got, map[string]unit.Bytes{"2026-06-01": 5}) {
		t.Error(got)
	}
}
