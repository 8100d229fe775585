// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/pace"
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
			for range 8 {
				select {
				case changed <- struct{}{}:
				default: // a value is already waiting
				}
				time.Sleep(time.Millisecond)
			}
			if n := countTicks(changesTogether); n != 1 {
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
