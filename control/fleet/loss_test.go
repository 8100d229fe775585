// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/base/waittest"
	"mpbond/control/fleet"
)

// TestOtherFleet checks that a server stays with the fleet that it knows.
func TestOtherFleet(t *testing.T) {
	w := newWorld(t)
	a := w.join("eu1", nil)
	w.awaitReady(a)
	early := &member{}
	var err error
	early.Member, err = fleet.NewMember(w.store, fleet.MemberConfig{Server: fleet.Server{Name: "eu3"},
		Log: slog.New(slog.DiscardHandler)})
	w.must(err)
	if _, err := (device{newKey(t)}).enroll(t.Context(), early, w.invite(fleet.InviteTerms{})); !fault.Is(err,
		fault.Unreachable) {
		t.Errorf("a code at a server that does not know the fleet yet: %v", err)
	}
	w.must(a.stop())
	w.must(w.Renew(t.Context()))
	other := fleet.NewOperator(w.store, newKey(t))
	if err := other.Init(t.Context(), "evil"); !fault.Is(err, fault.Exists) {
		t.Errorf("a fleet in the place of another: %v", err)
	}
	if err := other.AddServer(t.Context(), fleet.Server{}); !fault.Is(err, fault.WrongKey) {
		t.Errorf("an operator with another key: %v", err)
	}
	r, err := w.store.Get(t.Context(), fleet.Orders, "fleet")
	w.must(err)
	r.Value = []byte(strings.ReplaceAll(string(r.Value), w.key.Public().String(), newKey(t).Public().String()))
	_, err = w.store.Update(t.Context(), fleet.Orders, r)
	w.must(err)
	refused := w.join("eu1", nil)
	err = <-refused.done // by itself
	refused.done <- err
	if !fault.Is(err, fault.WrongKey) || fault.HintOf(err) == "" {
		t.Errorf("a server in another fleet: %v", err)
	}
	empty := newStore(t, t.TempDir())
	m, err := fleet.NewMember(empty, fleet.MemberConfig{Server: fleet.Server{Name: "x"},
		Log: slog.New(slog.DiscardHandler)})
	w.must(err)
	if err := m.Run(t.Context()); !fault.Is(err, fault.NotFound) {
		t.Errorf("an engine without a fleet: %v", err)
	}
}

// TestEngineLost checks that known devices are served without the engine until the cache is too old, also after a
// restart, that new ones cannot join, and that all goes on when the engine is back.
func TestEngineLost(t *testing.T) {
	w := newWorld(t)
	const life = fleet.MinCacheLife
	long := func(c *fleet.MemberConfig) { c.CacheLife = time.Hour }
	a := w.join("eu1", long)
	b := w.join("eu2", func(c *fleet.MemberConfig) { c.CacheLife = life })
	w.awaitReady(b)
	w.awaitReady(a)
	d, code := device{newKey(t)}, w.invite(fleet.InviteTerms{})
	if _, err := d.enroll(t.Context(), a, w.invite(fleet.InviteTerms{})); err != nil {
		t.Fatal(err)
	}
	w.awaitKnown(b, d, true)
	a.store.lose(true)
	b.store.lose(true)
	lost := time.Now()
	if _, err := (device{newKey(t)}).enroll(t.Context(), a, code); !fault.Is(err, fault.Unreachable) ||
		!strings.Contains(err.Error(), "cannot add devices") {
		t.Errorf("pairing without the engine: %v", err)
	}
	if _, err := a.Registration(t.Context(), code.ID()); !fault.Is(err, fault.Unreachable) {
		t.Errorf("a code without the engine: %v", err)
	}
	w.awaitKnown(b, d, false)
	if took := time.Since(lost); took > 2*life {
		t.Errorf("a cache of %v was used for %v", life, took)
	}
	if !knowsDevice(a, d) {
		t.Error("a known device is not served without the engine")
	}
	waittest.Until(t, "a server says that the engine is lost", func() bool { return a.Status().EngineLost })
	_ = a.stop()
	again := w.join("eu1", func(c *fleet.MemberConfig) { long(c) }) // with its own connection
	again.store.lose(true)
	w.awaitKnown(again, d, true)
	if st := again.Status(); st.Fleet != "acme" || st.Devices != 1 {
		t.Errorf("status without the engine: %+v", st)
	}
	// revoked meanwhile
	_, _, err := w.Rule(t.Context(), d.Public(), func(r *fleet.Ruling) { r.Revoked = true })
	w.must(err)
	again.store.lose(false)
	b.store.lose(false)
	w.awaitKnown(again, d, false)
	waittest.Until(t, "a server says that the engine is back", func() bool { return !b.Status().EngineLost })
	if _, err := (device{newKey(t)}).enroll(t.Context(), b, code); err != nil {
		t.Errorf("pairing after the engine is back: %v", err)
	}
}

// TestFirstContact checks that a new server says that the engine is lost until it has answered for the first time.
func TestFirstContact(t *testing.T) {
	w := newWorld(t)
	lost := newStore(t, filepath.Join(w.dir, "engine"))
	lost.lose(true)
	a := w.joinBy(lost, "eu1", nil)
	waittest.Until(t, "the server says that the engine is lost", func() bool { return a.Status().EngineLost })
	lost.lose(false)
	waittest.Until(t, "the server says that the engine answers", func() bool { return !a.Status().EngineLost })
}

// serverCounts stands for the file in which a server counts the bytes of one device.
type serverCounts struct {
	*world
	device string
	day    string
	now    atomic.Pointer[fleet.DeviceUsage]
	reads  atomic.Int64 // by servers
}

// daysAgo returns a day in the past.
func daysAgo(n int) string { return time.Now().AddDate(0, 0, -n).Format(time.DateOnly) }

func (c *serverCounts) set(month, all unit.Bytes) {
	c.now.Store(&fleet.DeviceUsage{Device: c.device, Day: c.day, Month: fleet.Volume{Down: month},
		All: fleet.Volume{Down: all}})
}

// start starts a server, and waits until it has read its file.
func (c *serverCounts) start(name string) *member {
	return c.startWith(name, func(*fleet.MemberConfig) {})
}

func (c *serverCounts) startWith(name string, edit func(*fleet.MemberConfig)) *member {
	before := c.reads.Load()
	m := c.join(name, func(cfg *fleet.MemberConfig) {
		edit(cfg)
		var last *fleet.DeviceUsage
		cfg.Usage = func() []fleet.DeviceUsage {
			c.reads.Add(1)
			if now := c.now.Load(); now != last {
				last = now
				return []fleet.DeviceUsage{*now}
			}
			return nil
		}
	})
	c.awaitReads(before + 2)
	return m
}

// awaitReads waits until servers have read the file so often. A read follows the report of the one before.
func (c *serverCounts) awaitReads(n int64) {
	waittest.Until(c, "the server has read its counts", func() bool { return c.reads.Load() >= n })
}

// expect waits until the fleet counts so much.
func (c *serverCounts) expect(month, all unit.Bytes) {
	c.Helper()
	waittest.UntilSuccess(c, func() error { return c.check(month, all) })
}

func (c *serverCounts) check(month, all unit.Bytes) error {
	rows, err := fleet.ReadUsage(c.Context(), c.store)
	if err != nil {
		return err
	}
	var m, sum unit.Bytes
	for _, r := range rows {
		m, sum = m+r.InMonth.Down, sum+r.All.Down
	}
	if m != month || sum != all {
		return fmt.Errorf("the fleet counts %v in the month and %v in all, not %v and %v", m, sum, month, all)
	}
	return nil
}

// TestUsage checks that what servers carry is counted once: after restarts, after losses of the engine and of the
// server's own file.
func TestUsage(t *testing.T) {
	c := &serverCounts{world: newWorld(t), device: newKey(t).ID().String(), day: daysAgo(40)}
	c.set(100, 1000) // the file has this at the start
	a := c.start("eu1")
	c.expect(100, 1000)
	c.set(150, 1050)
	c.expect(150, 1050)
	c.must(a.stop())
	a = c.start("eu1") // restarted with the same file
	c.set(160, 1060)
	c.expect(160, 1060)
	a.store.lose(true)
	c.set(200, 1100)
	waittest.Until(t, "a count waits", func() bool { return a.Status().Waiting > 0 })
	a.store.lose(false)
	c.expect(200, 1100)
	c.must(a.stop())
	c.set(0, 0) // the file is lost
	a = c.start("eu1")
	c.set(50, 50)
	c.expect(250, 1150)
	c.must(a.stop())
	c.set(50, 50)
	a = c.start("eu1")
	c.set(80, 80)
	c.expect(280, 1180)
	c.day = daysAgo(0) // of another month
	c.set(1, 81)
	c.expect(1, 1181)
	c.must(a.stop())
	c.set(10, 10)
	c.start("eu2") // another server's own counts
	c.expect(11, 1191)
}

// TestSmallChanges checks that what an idle device carries is written when it matters, and then all of it.
func TestSmallChanges(t *testing.T) {
	c := &serverCounts{world: newWorld(t), device: newKey(t).ID().String(), day: daysAgo(40)}
	c.set(100*unit.KB, 100*unit.KB)
	a := c.start("eu1")
	c.expect(100*unit.KB, 100*unit.KB)
	for _, n := range []unit.Bytes{102 * unit.KB, 100 * unit.MB, 100*unit.MB + 16*unit.KB} {
		before := c.now.Load().All.Down
		c.set(before+unit.KB-1, before+unit.KB-1) // less than a hundredth
		c.awaitReads(c.reads.Load() + 2)
		if err := c.check(before, before); err != nil || a.Status().Waiting > 0 {
			t.Error(err, a.Status().Waiting)
		}
		c.set(n, n)
		c.expect(n, n)
	}
}

// TestFormerCounts checks that a server that starts writes no counts whose life on the engine is over, until it carries
// something for the device again, and that a clock that is a day off keeps no others back.
func TestFormerCounts(t *testing.T) {
	life := int(fleet.UsageLife / (24 * time.Hour))
	c := &serverCounts{world: newWorld(t), device: newKey(t).ID().String(), day: daysAgo(life + 2)}
	c.set(100, 1000)
	a := c.start("eu1")
	c.must(c.check(0, 0))
	c.day = daysAgo(0)
	c.set(1, 1001)
	c.expect(1, 1001)
	c.must(a.stop())
	c.day = daysAgo(62) // the first day of the last month, at most
	c.set(50, 2000)
	c.startWith("us1", func(cfg *fleet.MemberConfig) {
		cfg.SetClock(func() time.Time { return time.Now().Add(24 * time.Hour) })
	})
	c.expect(51, 3001)
}

// TestQuotaOverServers checks that what two servers carry counts for one quota, at both.
func TestQuotaOverServers(t *testing.T) {
	w := newWorld(t)
	var usage atomic.Pointer[[]fleet.DeviceUsage]
	usage.Store(&[]fleet.DeviceUsage{})
	edit := func(c *fleet.MemberConfig) { c.Usage = func() []fleet.DeviceUsage { return *usage.Load() } }
	a, b := w.join("eu1", edit), w.join("us1", edit)
	w.awaitReady(a)
	d := device{newKey(t)}
	_, err := d.enroll(t.Context(), a, w.invite(fleet.InviteTerms{Terms: fleet.Terms{Quota: 2 * unit.MB}}))
	w.must(err)
	w.awaitKnown(b, d, true)
	carry := func(n unit.Bytes) {
		usage.Store(&[]fleet.DeviceUsage{{Device: d.ID().String(), Day: daysAgo(0), Month: fleet.Volume{Down: n},
			All: fleet.Volume{Down: n}}})
	}
	carry(unit.MB - 20*unit.KB)
	waittest.UntilSuccess(t, func() error {
		rows, err := fleet.ReadUsage(t.Context(), w.store)
		if err == nil && len(rows) < 2 {
			err = fmt.Errorf("%d of two servers have counted", len(rows))
		}
		return err
	})
	if a.Paused(d.Public()) || b.Paused(d.Public()) {
		t.Error("the device is paused before it has used up its quota")
	}
	carry(unit.MB)
	waittest.Until(t, "the quota is used up at both servers", func() bool {
		return a.Paused(d.Public()) && b.Paused(d.Public())
	})
}

// TestLateUsage checks that a write that seemed to fail, and takes effect later, changes no count.
func TestLateUsage(t *testing.T) {
	for _, isFirst := range []bool{true, false} {
		t.Run(fmt.Sprintf("first write %v", isFirst), func(t *testing.T) {
			c := &serverCounts{world: newWorld(t), device: newKey(t).ID().String(), day: daysAgo(40)}
			c.set(10, 10)
			started := make(chan *member, 1)
			isAsked := false
			a := c.join("eu1", func(cfg *fleet.MemberConfig) {
				cfg.Usage = func() []fleet.DeviceUsage {
					if !isAsked && isFirst { // the engine does not get what the file has at the start
						(<-started).store.delays.Store(true)
					}
					isAsked = true
					return []fleet.DeviceUsage{*c.now.Load()}
				}
			})
			started <- a
			if isFirst {
				<-a.store.delayed
			} else {
				c.expect(10, 10)
			}
			for _, isBefore := range []bool{true, false} { // the late write comes before the next one
				n := c.now.Load().All.Down + 40
				a.store.delays.Store(true)
				c.set(n, n)
				land := <-a.store.delayed
				if isBefore {
					land()
				}
				c.set(n+10, n+10)
				c.expect(n+10, n+10)
				if land(); c.check(n+10, n+10) != nil {
					t.Error(c.check(n+10, n+10))
				}
				c.set(n+20, n+20)
				c.expect(n+20, n+20)
			}
		})
	}
}

// TestEvents checks that pairings and revocations are on record.
func TestEvents(t *testing.T) {
	w := newWorld(t)
	a := w.join("eu1", nil)
	w.awaitReady(a)
	d := device{newKey(t)}
	a.store.lose(true)
	a.store.lose(false)
	if _, err := d.enroll(t.Context(), a, w.invite(fleet.InviteTerms{Name: "anna"})); err != nil {
		t.Fatal(err)
	}
	waittest.UntilSuccess(t, func() error {
		var kinds []string
		if err := w.store.Events(t.Context(), time.Time{}, false, func(e fleet.Event) {
			kinds = append(kinds, e.Kind+" "+e.Name+" "+e.Server)
		}); err != nil {
			return err
		}
		if len(kinds) != 1 || kinds[0] != "paired anna eu1" {
			return fmt.Errorf("events %q", kinds)
		}
		return nil
	})
}

// TestDrain checks that the order to drain reaches its server alone, and that others know of it.
func TestDrain(t *testing.T) {
	w := newWorld(t)
	a, b := w.join("eu1", nil), w.join("eu2", nil)
	w.awaitReady(a)
	waittest.Until(t, "both servers report", func() bool { return len(a.Status().Running) == 2 })
	w.must(w.Drain(t.Context(), "eu2", true))
	waittest.Until(t, "eu2 drains", b.IsDraining)
	if a.IsDraining() {
		t.Error("eu1 drains too")
	}
	waittest.Until(t, "eu1 says so", func() bool {
		_, offer, err := a.Offer()
		return err == nil && strings.Contains(string(offer), `"draining":true`)
	})
	w.must(w.Drain(t.Context(), "eu2", false))
	waittest.Until(t, "eu2 serves again", func() bool { return !b.IsDraining() })
	if err := w.Drain(t.Context(), "nobody", true); !fault.Is(err, fault.NotFound) {
		t.Errorf("an unknown server: %v", err)
	}
	w.must(b.stop())
	waittest.Until(t, "a server that has ended is gone at once", func() bool { return len(a.Status().Running) == 1 })
}
