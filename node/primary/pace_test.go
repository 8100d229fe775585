// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/config"
	"mpbond/base/identity"
	"mpbond/base/pace"
	"mpbond/base/unit"
	"mpbond/control/policy"
	"mpbond/link/pipe"
	"mpbond/link/subflow"
	"mpbond/link/wire"
)

// attachMuteSubflow gives the bond a subflow whose server acknowledges nothing.
func attachMuteSubflow(t *testing.T, b *bondHolder) {
	t.Helper()
	net, mine, theirs := &pipe.Memory{}, newKey(t), newKey(t)
	l, err := net.Listen(t.Context(), "home:1")
	if err != nil {
		t.Fatal(err)
	}
	joined := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			cfg := theirs.ServerConfig(wire.ALPN, func(identity.PublicKey) bool { return true })
			_, _, err = subflow.Accept(t.Context(), c, cfg,
				func(identity.PublicKey, wire.Join) (wire.OK, error) { return wire.OK{Instance: 1}, nil })
		}
		joined <- err
	}()
	c, err := net.Dial(t.Context(), "home:1")
	if err != nil {
		t.Fatal(err)
	}
	s, j := b.prepareJoin()
	sf, ok, err := subflow.Join(t.Context(), c, mine.ClientConfig(theirs.Public(), wire.ALPN), j)
	if err == nil {
		err = <-joined
	}
	if err == nil {
		_, err = b.addAcceptedSubflow(s, sf, ok.Instance, sessionSubflow{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// endBond ends a bond without a farewell.
func endBond(t *testing.T, b *bondHolder) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	b.closeWithFarewell(gone)
}

// TestBondAwaitsProgress checks that a bond awaits progress while bytes have stalled or an app lacks a subflow, and
// not without any app.
func TestBondAwaitsProgress(t *testing.T) {
	for name, c := range map[string]struct {
		subflow, stream, flow bool
		want                  bool
	}{
		"no app":                     {},
		"stalled bytes":              {subflow: true, stream: true, want: true},
		"a stream without a subflow": {stream: true, want: true},
		"a flow without a subflow":   {flow: true, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBondHolder(t, time.Hour)
				defer endBond(t, b)
				e := b.currentSession().endpoint
				if c.subflow {
					attachMuteSubflow(t, b)
				}
				if c.stream {
					if _, err := e.Dial("web:80", wire.ModeBond, 0); err != nil {
						t.Fatal(err)
					}
				}
				if c.flow {
					if _, err := b.dialPackets(); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(10 * time.Second)
				if got := awaitsProgress(e); got != c.want {
					t.Errorf("awaits progress: %v, want %v", got, c.want)
				}
			})
		})
	}
}

// TestIdleUplinksReactAtOnce checks that interfaces are looked for rarely while idle, and at once when the system
// reports a change.
func TestIdleUplinksReactAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUplinks(t)
		u.clock = pace.New()
		u.clock.AllowIdle(true)
		var looks atomic.Int32
		var added atomic.Bool
		u.listInterfaces = func() ([]string, error) {
			looks.Add(1)
			if added.Load() {
				return []string{"wlan0", "usb0"}, nil
			}
			return []string{"wlan0", "lan0"}, nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan struct{})
		go func() { u.runUplinks(ctx); close(ran) }()
		time.Sleep(pace.IdleInterval + pace.IdleInterval/2)
		looks.Store(0)
		added.Store(true)
		time.Sleep(pace.IdleInterval / 4)
		if n := looks.Load(); n != 0 || u.openNames() != "lan0 wlan0" {
			t.Errorf("%d looks while idle, %q open", n, u.openNames())
		}
		u.clock.TickNow()
		synctest.Wait()
		if n := looks.Load(); n != 1 || u.openNames() != "usb0 wlan0" {
			t.Errorf("%d looks after a change, %q open", n, u.openNames())
		}
		cancel()
		<-ran
	})
}

// TestMeteredUplinkIsNotDelayedByIdleness checks that an idle program uses a metered interface, and leaves it, as
// soon as that is due.
func TestMeteredUplinkIsNotDelayedByIdleness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUplinks(t, "wwan0")
		u.clock = pace.New()
		u.clock.AllowIdle(true)
		u.listInterfaces = func() ([]string, error) { return []string{"wlan0", "wwan0"}, nil }
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan struct{})
		go func() { u.runUplinks(ctx); close(ran) }()
		synctest.Wait()
		u.countSubflow("wlan0", 1)
		time.Sleep(2*pace.IdleInterval + pace.IdleInterval/4)
		if got := u.openNames(); got != "wlan0" {
			t.Errorf("%q open while WiFi works", got)
		}
		u.countSubflow("wlan0", -1)
		time.Sleep(4 * time.Second) // its 3 s, and the interval of the checks
		synctest.Wait()
		if got := u.openNames(); got != "wlan0 wwan0" {
			t.Errorf("%q open after WiFi has not worked for 4 s", got)
		}
		u.countSubflow("wlan0", 1)
		time.Sleep(11 * time.Second) // its 10 s, and the interval of the checks
		synctest.Wait()
		if got := u.openNames(); got != "wlan0" {
			t.Errorf("%q open after WiFi has worked for 11 s", got)
		}
		cancel()
		<-ran
	})
}

// TestWantedStreamWakesIdleProgram checks that a new stream, which may have no subflow yet, ends idleness.
func TestWantedStreamWakesIdleProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := pace.New()
		clock.AllowIdle(true)
		tick := clock.NewTicker(time.Second)
		defer tick.Stop()
		time.Sleep(pace.IdleInterval + pace.IdleInterval/2)
		for len(tick.C) > 0 {
			<-tick.C
		}
		newDemand(func() bool { return false }, clock).notifyWanted()
		if len(tick.C) != 1 {
			t.Error("no tick")
		}
	})
}

// TestMaintenanceKeepsPaceWhileProgressIsAwaited checks that the program does not idle while a flow lacks a subflow.
func TestMaintenanceKeepsPaceWhileProgressIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := pace.New()
		clock.AllowIdle(true)
		trust, _ := newTrustWith(t)
		err := trust.Add(identity.Peer{Name: "home", Roles: []identity.Role{identity.RoleServer}, Key: newKey(t).Public(),
			Addresses: []string{"192.0.2.1:7600"}})
		if err != nil {
			t.Fatal(err)
		}
		cfg := Default
		cfg.Name, cfg.Pipe, cfg.Clock, cfg.GiveUp = "laptop", "", clock, config.Duration(time.Hour)
		p, err := New(cfg, newKey(t), trust, slog.New(slog.DiscardHandler), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer endBond(t, p.bond)
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan struct{})
		go func() { p.runMaintenance(ctx); close(ran) }()
		tick := clock.NewTicker(time.Second)
		defer tick.Stop()
		countTicks := func() (n int) {
			for end := time.After(30*time.Second + time.Millisecond); ; {
				select {
				case <-tick.C:
					n++
				case <-end:
					return n
				}
			}
		}
		time.Sleep(pace.IdleInterval + pace.IdleInterval/2)
		countTicks()
		if n := countTicks(); n != 3 {
			t.Errorf("%d ticks in 30 s without an app", n)
		}
		if _, err := p.bond.dialPackets(); err != nil {
			t.Fatal(err)
		}
		if n := countTicks(); n < 30 {
			t.Errorf("%d ticks in 30 s while a flow lacks a subflow", n)
		}
		cancel()
		<-ran
	})
}

// TestEmptyClassKeepsPace checks that a stream whose class lacks a subflow keeps the program awake, and that a class
// without a stream does not.
func TestEmptyClassKeepsPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBondHolder(t, time.Hour)
		defer endBond(t, b)
		b.clock = pace.New()
		b.clock.AllowIdle(true)
		tick := b.clock.NewTicker(time.Second)
		defer tick.Stop()
		wakes := func() bool {
			time.Sleep(2*pace.IdleInterval + pace.IdleInterval/2)
			for len(tick.C) > 0 {
				<-tick.C
			}
			b.failEmptyClasses(time.Now())
			return len(tick.C) > 0
		}
		var id wire.GroupID
		b.updateClasses(func() {
			var err error
			if id, err = b.classForSettings(&policy.TrafficClass{Devices: []string{"phone"}, Weight: 1}); err != nil {
				t.Fatal(err)
			}
		})
		if wakes() {
			t.Error("a class without a stream keeps the program awake")
		}
		if _, err := b.currentSession().endpoint.Dial("web:80", wire.ModeBond, id); err != nil {
			t.Fatal(err)
		}
		if !wakes() {
			t.Error("the program idles while a stream's class lacks a subflow")
		}
	})
}

// TestQuietBondNeedsWholeSecond checks that a busy bond is not taken for a quiet one because ticks come soon after each
// other, or because other subflows have carried less.
func TestQuietBondNeedsWholeSecond(t *testing.T) {
	const ms = time.Millisecond
	var m quietMeter
	now, few, many := time.Unix(1e9, 0), uint64(quietBytes/2), uint64(10*unit.MB)
	for i, step := range []struct {
		after   time.Duration
		carried uint64
		isQuiet bool
	}{
		{0, 0, false},
		{time.Second, few, true},
		{time.Second, few + many, false},
		{ms, few + many + 1, false},
		{999 * ms, few + 2*many, false},
		{time.Second, 2*few + 2*many, true},
		{10 * time.Second, 2*few + 2*many, true},
		{time.Second, many, false}, // another session
		{time.Second, many + 1, true},
	} {
		now = now.Add(step.after)
		if got := m.observe(now, step.carried); got != step.isQuiet {
			t.Errorf("step %d: quiet %v", i, got)
		}
	}
}
