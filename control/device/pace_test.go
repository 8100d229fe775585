// SPDX-License-Identifier: Apache-2.0

package device

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/pace"
	"mpbond/base/unit"
	"mpbond/control/policy"
)

// TestCountsAtOnceAfterIdleness checks that usage is counted, and caps are enforced, as soon as an idle program carries
// something.
func TestCountsAtOnceAfterIdleness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := pace.New()
		clock.AllowIdle(true)
		u, _, _ := newUsage(t)
		u.SetClock(clock)
		c, _ := capsOf(u, "", map[string]policy.Caps{"wwan0": {Daily: 20e6}})
		ctx, end := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { u.Run(ctx) })
		all.Go(func() { c.Run(ctx) })
		conn := &fakeConn{local: "10.0.0.1:1"}
		conn.open(u, policy.ForHSPath)
		carry := func(to unit.Bytes) (counted unit.Bytes, aborted bool) {
			u.mu.Lock()
			conn.in = to
			u.mu.Unlock()
			synctest.Wait()
			u.mu.Lock()
			defer u.mu.Unlock()
			for _, r := range u.used {
				counted += r.Down
			}
			return counted, conn.aborted
		}
		time.Sleep(pace.IdleInterval + pace.IdleInterval/2)
		if counted, _ := carry(1e6); counted != 0 {
			t.Errorf("%d counted while idle", counted)
		}
		u.NoteCarrying()
		if counted, aborted := carry(1e6); counted != 1e6 || aborted {
			t.Errorf("%d counted, aborted %v, want 1e6", counted, aborted)
		}
		time.Sleep(pace.IdleInterval + pace.IdleInterval/2)
		carry(20e6)
		u.NoteCarrying()
		if counted, aborted := carry(20e6); counted != 20e6 || !aborted {
			t.Errorf("%d counted, aborted %v, want 20e6 and the end", counted, aborted)
		}
		end()
		all.Wait()
		u.Close()
	})
}

// TestConnectionsWakeClock checks which reports of connections end idleness.
func TestConnectionsWakeClock(t *testing.T) {
	for name, report := range map[string]func(u *Usage){
		"a connection opens":          func(u *Usage) { (&fakeConn{local: "10.0.0.1:1"}).open(u, policy.ForHSPath) },
		"one with a ledger carries":   func(u *Usage) { u.LedgerFor(policy.ForHSPath).Carrying() },
		"one that is counted carries": func(u *Usage) { u.NoteCarrying() },
		"one that CountConn is to count": func(u *Usage) {
			local := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1}
			u.CountConn(&fakeConn{}, policy.ForHSPath, "", local)()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clock := pace.New()
				clock.AllowIdle(true)
				u, _, _ := newUsage(t)
				u.SetClock(clock)
				tick := clock.NewTicker(time.Second)
				defer tick.Stop()
				time.Sleep(pace.IdleInterval + pace.IdleInterval/2)
				for len(tick.C) > 0 {
					<-tick.C
				}
				if report(u); len(tick.C) == 0 {
					t.Error("the clock still idles")
				}
			})
		})
	}
	(*Usage)(nil).NoteCarrying()
}
