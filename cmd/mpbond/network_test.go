// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/pace"
	"mpbond/core/trace"
)

// TestNetworkChangesTickTogether checks that a burst of changes is one tick, soon after its first change.
func TestNetworkChangesTickTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock, changed := pace.New(), make(chan struct{}, 1)
		tick := clock.NewTicker(time.Hour)
		defer tick.Stop()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { passNetworkChanges(ctx, changed, clock); close(ended) }()
		countTicks := func(within time.Duration) (n int) {
			for end := time.After(within); ; {
				select {
				case <-tick.C:
					n++
				case <-end:
					return n
				}
			}
		}
		for range 2 {
			n := 0
			for range 8 {
				select {
				case changed <- struct{}{}:
				default: // a value is already waiting
				}
				n += countTicks(time.Millisecond)
			}
			if n += countTicks(changesTogether); n != 1 {
				t.Errorf("%d ticks for a burst of changes, want 1", n)
			}
			if n := countTicks(time.Minute); n != 0 {
				t.Errorf("%d ticks without a change", n)
			}
		}
		changed <- struct{}{}
		cancel()
		<-ended
	})
}

// TestClockIdlesWhileChangesAreReported checks that a clock idles as long as changes of the network are reported, and
// no longer.
func TestClockIdlesWhileChangesAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock, changed := pace.New(), make(chan struct{}, 1)
		tick := clock.NewTicker(time.Second)
		defer tick.Stop()
		go passNetworkChanges(t.Context(), changed, clock)
		synctest.Wait()
		apart := func() time.Duration {
			time.Sleep(pace.IdleInterval)
			for len(tick.C) > 0 {
				<-tick.C
			}
			first := <-tick.C
			return (<-tick.C).Sub(first)
		}
		if d := apart(); d != pace.IdleInterval {
			t.Errorf("ticks %v apart while changes are reported", d)
		}
		close(changed)
		synctest.Wait()
		if d := apart(); d != time.Second {
			t.Errorf("ticks %v apart while changes are not reported", d)
		}
	})
}

// TestEventWakesClock checks that a change of the state ends idleness.
func TestEventWakesClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := role{name: "helper", clock: pace.New()}
		r.clock.AllowIdle(true)
		rec, err := r.openRecorder("")
		if err != nil {
			t.Fatal(err)
		}
		tick := r.clock.NewTicker(time.Second)
		defer tick.Stop()
		time.Sleep(pace.IdleInterval + pace.IdleInterval/2)
		for len(tick.C) > 0 {
			<-tick.C
		}
		rec.Add(trace.Event{Kind: trace.SubflowDown})
		if len(tick.C) == 0 {
			t.Error("the clock still idles")
		}
	})
}
