// SPDX-License-Identifier: Apache-2.0

package device

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/control/policy"
	"mpbond/link/estimate"
)

// fakeConn is a connection that has carried what the test says.
type fakeConn struct {
	in, out, pending unit.Bytes
	local            string
	device, peer     string
	err              error
	window           unit.Bytes
	minRTT           time.Duration
	aborted          bool
}

func (c *fakeConn) Carried() (in, out, pending unit.Bytes, err error) {
	return c.in, c.out, c.pending, c.err
}

func (c *fakeConn) Peer() string { return c.peer }

func (c *fakeConn) Probe() (estimate.Hop, error) { return estimate.Hop{MinRTT: c.minRTT}, nil }

func (c *fakeConn) LimitWindow(n unit.Bytes) error {
	c.window = n
	return nil
}

func (c *fakeConn) Abort() error {
	c.aborted = true
	return nil
}

func (c *fakeConn) open(u *Usage, p policy.Purpose) {
	local, _ := net.ResolveTCPAddr("tcp", c.local)
	u.addCountedConn(c, p, c.device, local)
}

// newUsage returns a Usage with the interfaces of 10.0.0.x, and a clock.
func newUsage(t *testing.T) (u *Usage, clock *time.Time, log *bytes.Buffer) {
	t.Helper()
	clock, log = new(time.Time), &bytes.Buffer{}
	*clock = time.Date(2026, 11, 21, 23, 0, 0, 0, time.UTC)
	u = NewUsage(slog.New(slog.NewTextHandler(log, nil)))
	u.now = func() time.Time { return *clock }
	u.interfaceOf = func(a net.Addr) string {
		return map[string]string{"10.0.0.1": "wwan0", "10.0.0.2": "wlan0"}[a.(*net.TCPAddr).IP.String()]
	}
	return u, clock, log
}

func lines(list []policy.UsageRecord) string {
	var all []string
	for _, r := range list {
		all = append(all, fmt.Sprintf("%s %s %s %s %d/%d", r.Day[5:], r.Link, r.Purpose, r.Peer, r.Down, r.Up))
	}
	return strings.Join(all, "; ")
}

// TestAddRecords: counts of another process are added to a file and stay there; the file is not
// rewritten.
func TestAddRecords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "usage.jsonl")
	row := policy.UsageRecord{Day: "2026-11-21", Link: "wwan0", Purpose: policy.ForDirect, Peer: "S", Down: 10, Up: 1}
	other := row
	other.Link = "wlan0"
	var file os.FileInfo
	for n := range unit.Bytes(3) {
		if err := AddRecords(path, []policy.UsageRecord{row, other}); err != nil {
			t.Fatal(err)
		}
		switch st, err := os.Stat(path); {
		case err != nil:
			t.Fatal(err)
		case file != nil && !os.SameFile(file, st):
			t.Error("the file was made anew")
		default:
			file = st
		}
		j, rows, damage, err := openRecords(path, 0)
		if err != nil {
			t.Fatal(err)
		}
		j.Close()
		if got := rows[recordKey(row)]; len(rows) != 2 || got.Down != 10*(n+1) || got.Up != n+1 || damage != nil {
			t.Errorf("%+v, %v", rows, damage)
		}
	}
	u, _, _ := newUsage(t)
	if err := u.OpenFile(path); err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	if err := AddRecords(path, []policy.UsageRecord{row}); !fault.Is(err, fault.AlreadyRunning) {
		t.Errorf("while it is kept: %v", err)
	}
	if list, problem := u.List(); len(list) != 2 || list[1].Down != 30 || problem != nil {
		t.Errorf("%+v, %v", list, problem)
	}
}

// TestUsageKeptLater: while another process has locked the file, counting continues in memory and a
// log entry says so. Once the file is free it gets all counts.
func TestUsageKeptLater(t *testing.T) {
	path := filepath.Join(t.TempDir(), "usage.jsonl")
	row := policy.UsageRecord{Day: "2026-11-21", Link: "wwan0", Purpose: policy.ForHSPath, Peer: "p", Down: 1000, Up: 2000}
	older := row
	older.Day = "2026-11-20"
	if err := AddRecords(path, []policy.UsageRecord{older, row}); err != nil {
		t.Fatal(err)
	}
	has, _, _, err := openRecords(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	u, _, log := newUsage(t)
	if err := u.OpenFile(path); !fault.Is(err, fault.AlreadyRunning) {
		t.Fatal(err)
	}
	c := &fakeConn{local: "10.0.0.1:1", in: 100, out: 10, peer: "p"}
	c.open(u, policy.ForHSPath)
	for range 3 {
		u.CountNow()
	}
	if list, problem := u.List(); lines(list) != "11-21 wwan0 hs-path p 100/10" || problem == nil {
		t.Errorf("%s, %v", lines(list), problem)
	}
	if err := has.Close(); err != nil {
		t.Fatal(err)
	}
	const want = "11-20 wwan0 hs-path p 1000/2000; 11-21 wwan0 hs-path p 1100/2010"
	wants(t, u, want)
	if !strings.Contains(log.String(), "saving usage works again") {
		t.Errorf("said %s", log)
	}
	c.in++
	wants(t, u, strings.Replace(want, "1100", "1101", 1))
	u.Close()
	u, _, _ = newUsage(t)
	if err := u.OpenFile(path); err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	wants(t, u, strings.Replace(want, "1100", "1101", 1))
}

func wants(t *testing.T, u *Usage, want string) {
	t.Helper()
	list, err := u.List()
	if got := lines(list); got != want || err != nil {
		t.Errorf("used %s, %v\n want %s", got, err, want)
	}
}

func TestUsageCounts(t *testing.T) {
	u, clock, _ := newUsage(t)
	hs := &fakeConn{local: "10.0.0.1:1", in: 100, out: 10}
	pipe := &fakeConn{local: "10.0.0.2:1", in: 5, out: 50, peer: "p"}
	bound := &fakeConn{local: "10.0.0.2:2", device: "wwan0", in: 7, peer: "p"}
	lo := &fakeConn{local: "127.0.0.1:1", in: 1 << 40}
	hs.open(u, policy.ForHSPath)
	pipe.open(u, policy.ForPipe)
	bound.open(u, policy.ForHSPath)
	lo.open(u, policy.ForHSPath)
	u.CountNow()
	hs.peer = "p"
	hs.in, hs.out, pipe.out = 200, 20, 70
	wants(t, u, "11-21 wlan0 pipe p 5/70; 11-21 wwan0 hs-path  100/10; 11-21 wwan0 hs-path p 107/10")
	wants(t, u, "11-21 wlan0 pipe p 5/70; 11-21 wwan0 hs-path  100/10; 11-21 wwan0 hs-path p 107/10")

	*clock = clock.Add(2 * time.Hour) // the next day
	hs.in, hs.out, hs.pending = 210, 15, 1000
	u.removeCountedConn(hs) // with what the kernel still sends
	u.removeCountedConn(hs)
	pipe.err, pipe.in = errors.New("closed"), 1<<40
	wants(t, u, "11-21 wlan0 pipe p 5/70; 11-21 wwan0 hs-path  100/10; 11-21 wwan0 hs-path p 107/10; "+
		"11-22 wwan0 hs-path p 10/995")

	*clock = time.Unix(0, 0) // a clock that has lost its time
	bound.in = 8
	wants(t, u, "11-21 wlan0 pipe p 5/70; 11-21 wwan0 hs-path  100/10; 11-21 wwan0 hs-path p 107/10; "+
		"11-22 wwan0 hs-path p 11/995")
}

func TestUsageOfNobody(t *testing.T) {
	var u *Usage
	if u.LedgerFor(policy.ForPipe) != nil {
		t.Error("a ledger of nobody")
	}
}

// TestUsageKept: what was counted is there after a restart, also one without
// notice, but for what came after the last count.
func TestUsageKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "usage.jsonl")
	c := &fakeConn{local: "10.0.0.1:1", in: 100, out: 10, peer: "p"}
	u, clock, log := newUsage(t)
	if err := u.OpenFile(path); err != nil {
		t.Fatal(err)
	}
	c.open(u, policy.ForHSPath)
	u.CountNow()
	c.in = 300
	u.CountNow()
	c.in = 400 // lost
	killed, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	u.removeCountedConn(c)
	u.Close()

	again := func(data []byte) *Usage {
		t.Helper()
		if data != nil {
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		next, time, l := newUsage(t)
		*time, log = *clock, l
		if err := next.OpenFile(path); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(next.Close)
		return next
	}
	u = again(nil)
	wants(t, u, "11-21 wwan0 hs-path p 400/10")
	other := &fakeConn{local: "10.0.0.1:2", in: 1, peer: "p"} // the counts of another connection
	other.open(u, policy.ForHSPath)
	wants(t, u, "11-21 wwan0 hs-path p 401/10")
	u.Close()

	u = again(killed)
	wants(t, u, "11-21 wwan0 hs-path p 300/10")
	u.Close()
	*clock = clock.AddDate(2, 0, 0) // forgets nothing
	u = again(nil)
	wants(t, u, "11-21 wwan0 hs-path p 300/10")
	u.Close()

	u = again(append([]byte("garbage\n"), killed...))
	wants(t, u, "11-21 wwan0 hs-path p 300/10")
	if bad, err := os.ReadFile(path + ".bad"); err != nil || !bytes.HasPrefix(bad, []byte("garbage\n{")) ||
		!strings.Contains(log.String(), path+".bad") {
		t.Errorf("kept aside %q, %v; said %s", bad, err, log)
	}
}

// TestUsageForgets: the newest days are kept, whatever the clock says now; what
// is not written yet is not forgotten.
func TestUsageForgets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "usage.jsonl")
	u, clock, _ := newUsage(t)
	if err := u.OpenFile(path); err != nil {
		t.Fatal(err)
	}
	c := &fakeConn{local: "10.0.0.1:1"}
	c.open(u, policy.ForHSPath)
	const more = 3
	first := *clock
	for n := range keepDays + more {
		*clock = first.AddDate(0, 0, 7*n) // not on each day
		c.in++
		u.CountNow()
	}
	u.Close()
	for _, now := range []time.Time{time.Unix(0, 0), *clock, clock.AddDate(10, 0, 0)} {
		next, at, _ := newUsage(t)
		*at = now
		if err := next.OpenFile(path); err != nil {
			t.Fatal(err)
		}
		list, _ := next.List()
		if want := first.AddDate(0, 0, 7*more).Format(time.DateOnly); len(list) != keepDays || list[0].Day != want {
			t.Errorf("at %v: %d days from %s on, want %d from %s on", now, len(list), list[0].Day, keepDays, want)
		}
		next.Close()
	}

	u, clock, _ = newUsage(t)
	if err := u.OpenFile(path); err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	*clock = first.AddDate(0, 0, -1) // a clock that is behind
	behind := &fakeConn{local: "10.0.0.1:1", in: 5}
	behind.open(u, policy.ForHSPath)
	u.mu.Lock()
	for c, n := range u.open {
		u.countConnBytes(c, n, false)
	}
	u.dropOldDays()
	u.mu.Unlock()
	if list, _ := u.List(); len(list) != keepDays+1 || list[0].Down != 5 || u.CountNow() {
		t.Errorf("%d days, the first with %d, or they are written again and again", len(list), list[0].Down)
	}
	u.mu.Lock()
	u.dropOldDays()
	u.mu.Unlock()
	if list, _ := u.List(); len(list) != keepDays {
		t.Errorf("%d days", len(list))
	}
}

// TestUsageWithoutRoom: if writing fails it is reported, counting continues, and the counts are
// written later.
func TestUsageWithoutRoom(t *testing.T) {
	dir := t.TempDir()
	u, _, log := newUsage(t)
	if err := u.OpenFile(filepath.Join(dir, "usage.jsonl")); err != nil {
		t.Fatal(err)
	}
	u2, _, _ := newUsage(t)
	if err := u2.OpenFile(filepath.Join(dir, "usage.jsonl")); !fault.Is(err, fault.AlreadyRunning) {
		t.Errorf("two keep one file: %v", err)
	}
	if _, err := u2.List(); err == nil {
		t.Error("it does not say that nothing is kept")
	}
	c := &fakeConn{local: "10.0.0.1:1", in: 100}
	c.open(u, policy.ForHSPath)
	journal := u.journal
	u.journal = &failing{}
	if u.CountNow(); !strings.Contains(log.String(), "no room") {
		t.Errorf("said %s", log)
	}
	if _, err := u.List(); err == nil {
		t.Error("it does not say that nothing is kept")
	}
	c.in = 150
	u.CountNow()
	if n := strings.Count(log.String(), "no room"); n != 1 {
		t.Errorf("said %d times", n)
	}
	u.journal = journal
	wants(t, u, "11-21 wwan0 hs-path  150/0")
	data, err := os.ReadFile(filepath.Join(dir, "usage.jsonl"))
	var row policy.UsageRecord
	if err != nil || json.Unmarshal(data, &row) != nil || row.Down != 150 {
		t.Errorf("written %s, %v", data, err)
	}
	u.Close()
}

type failing struct{}

func (*failing) Append(...any) error  { return errors.New("no room") }
func (*failing) Rewrite(...any) error { return errors.New("no room") }
func (*failing) NeedsRewrite() bool   { return false }
func (*failing) Close() error         { return nil }

// TestUsageInTime: while something is carried less than a second of it is not
// in the file yet.
func TestUsageInTime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "usage.jsonl")
	synctest.Test(t, func(t *testing.T) {
		u, _, _ := newUsage(t)
		if err := u.OpenFile(path); err != nil {
			t.Fatal(err)
		}
		c := &fakeConn{local: "10.0.0.1:1"}
		c.open(u, policy.ForHSPath)
		ctx, end := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { u.Run(ctx) })
		const each = 10 * time.Millisecond
		most := unit.Bytes(0)
		for n := range unit.Bytes(1000) {
			u.mu.Lock()
			c.in = n
			u.mu.Unlock()
			time.Sleep(each)
			synctest.Wait()
			u.mu.Lock()
			kept := unit.Bytes(0)
			for _, r := range u.used {
				if !u.changed[r] {
					kept = r.Down
				}
			}
			u.mu.Unlock()
			most = max(most, n-kept)
		}
		if limit := unit.Bytes(time.Second / each); most > limit {
			t.Errorf("%d of them were not kept, want %d at most", most, limit)
		}
		end()
		all.Wait()
		u.Close()
	})
}
