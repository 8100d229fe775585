// SPDX-License-Identifier: Apache-2.0

package permit

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/onload/allowance"
)

// TestRevokes checks that a loaded cell ends watched permits early, at the helper and in the
// service's file, and that permits are granted again afterwards.
func TestRevokes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "permits.jsonl")
	w := newWorld(t, path) // with a stopped clock: no permit expires
	w.s.SetLoad("north", .1)
	k, err := newKeeperWithClock(w.newClient().WatchPermit, filepath.Join(t.TempDir(), "permit.jsonl"), quiet, w.now)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { k.Run(ctx); close(done) }()
	defer func() { cancel(); <-done }()
	changes := func(free bool) {
		t.Helper()
		for k.DayLimit().Unlimited != free {
			select {
			case <-k.Changed():
			case <-time.After(10 * time.Second):
				t.Fatalf("%+v", k.DayLimit())
			}
		}
	}
	changes(true)
	w.s.SetLoad("north", .69)
	if held := w.s.HeldPermits(); len(held) != 1 || !k.DayLimit().Unlimited {
		t.Errorf("under the threshold: %+v, %+v", held, k.DayLimit())
	}
	w.s.SetLoad("north", .7)
	changes(false)
	if why := k.DayLimit().Reason; !strings.Contains(why, "the operator refuses: the load of the cell is 70 %") {
		t.Error(why)
	}
	w.restart(path)
	if held := w.s.HeldPermits(); len(held) != 0 {
		t.Errorf("after a restart: %+v", held)
	}
}

// TestAsksAfterRevocation checks in virtual time when a Keeper asks again: after a revocation when
// the service says, after a lost connection soon, otherwise at half of the life.
func TestAsksAfterRevocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var asked []time.Duration
		answers := make(chan chan allowance.Answer, 1)
		k, err := newKeeperWithClock(func(context.Context) (allowance.Answer, <-chan allowance.Answer, error) {
			asked = append(asked, time.Since(begin))
			later := make(chan allowance.Answer, 1)
			answers <- later
			return allowance.Answer{Granted: true, Life: 5 * time.Minute}, later, nil
		}, filepath.Join(t.TempDir(), "permit.jsonl"), quiet, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { k.Run(ctx); close(done) }()
		later := <-answers
		time.Sleep(10 * time.Second)
		if !k.DayLimit().Unlimited {
			t.Error("there is no permit")
		}
		later <- allowance.Answer{Reason: "loaded", RetryAfter: time.Minute} // at 10 s
		synctest.Wait()
		if k.DayLimit().Unlimited {
			t.Error("the permit was not revoked")
		}
		later = <-answers // at 70 s
		time.Sleep(10 * time.Second)
		close(later) // at 80 s: the watch has ended
		synctest.Wait()
		if !k.DayLimit().Unlimited {
			t.Error("the permit was lost with the connection")
		}
		<-answers // at 85 s
		<-answers // at 235 s
		cancel()
		<-done
		for i, want := range []time.Duration{0, 70, 85, 235} {
			if asked[i] != want*time.Second {
				t.Errorf("asked at %v", asked)
			}
		}
	})
}

// TestOlderService checks that a permit of a service without watching is renewed at half of its
// life.
func TestOlderService(t *testing.T) {
	w := newWorld(t, "")
	w.s.SetLoad("north", .1)
	// a request of an older helper
	if a, err := w.newClient().RequestPermit(t.Context()); err != nil || !a.Granted {
		t.Errorf("%+v, %v", a, err)
	}
	if len(w.s.watchers) != 0 {
		t.Error("a helper that did not ask for it is watched")
	}
}
