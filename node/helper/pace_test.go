// SPDX-License-Identifier: Apache-2.0

package helper

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/pace"
	"mpbond/link/tcp"
)

// idlingClock returns a clock that may idle.
func idlingClock() *pace.Clock {
	c := pace.New()
	c.AllowIdle(true)
	return c
}

// TestUnsentBytesKeepPace checks that a helper does not idle while bytes wait in an HS-path, whose silence it measures.
func TestUnsentBytesKeepPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := idlingClock()
		w := newTestWorld(t, inMemory, "x:1", Config{Clock: clock})
		p, _, _ := w.joinSubflow()
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
		countTicks()
		if n := countTicks(); n != 3 {
			t.Errorf("%d ticks in 30 s while idle", n)
		}
		if _, err := p.Write(make([]byte, 1000)); err != nil { // the server does not read them
			t.Fatal(err)
		}
		time.Sleep(pace.IdleInterval)
		if n := countTicks(); n < 30 {
			t.Errorf("%d ticks in 30 s while bytes wait", n)
		}
		w.stop()
	})
}

// TestFirstSearchesAreNotDelayedByIdleness checks that idleness does not delay the first searches for a primary.
func TestFirstSearchesAreNotDelayedByIdleness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l fakeLAN
		f := newFinder(idlingClock(), slog.New(slog.DiscardHandler))
		f.search = l.findPrimaries
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		missing := func() []roamingPrimary { return []roamingPrimary{{key: keys().primary.Public()}} }
		go func() { f.runSearchLoop(ctx, missing, func() {}); close(ended) }()
		time.Sleep(pace.IdleInterval - time.Second)
		if n := l.asked.Load(); n != 4 { // after 2, 3, 4.5 and 6.75 s
			t.Errorf("%d searches, want 4", n)
		}
		cancel()
		<-ended
	})
}

// carryingLedger counts the calls of Carrying.
type carryingLedger struct {
	tcp.Ledger
	carried *int
}

func (l carryingLedger) Carrying() { *l.carried++ }

// TestShareLedgerPassesOnCarrying checks that a shared connection that carries bytes is reported, if somebody listens.
func TestShareLedgerPassesOnCarrying(t *testing.T) {
	n := 0
	var s linkShare
	s.newShareLedger(carryingLedger{carried: &n}).Carrying()
	s.newShareLedger(nil).Carrying()
	if n != 1 {
		t.Errorf("%d reports, want 1", n)
	}
}
