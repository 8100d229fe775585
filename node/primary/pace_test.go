// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/pace"
)

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
