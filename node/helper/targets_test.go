// SPDX-License-Identifier: Apache-2.0

package helper

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/link/tcp"
	"mpbond/node/dial"
)

func targetAt(key identity.PublicKey, addr string) *target {
	return &target{primary: identity.Peer{Name: "laptop", Key: key}, addr: addr, state: stateStarting}
}

// TestReplaceTargets: after any list the targets match it; existing ones stay and run on, others
// are new or stopped.
func TestReplaceTargets(t *testing.T) {
	rng, s := rand.New(rand.NewPCG(5, 6)), new(targetSet)
	owners := []identity.PublicKey{keys().primary.Public(), keys().server.Public()}
	stopped := map[*target]bool{}
	for range 300 {
		before := s.listTargets()
		var list []*target
		for _, key := range owners {
			for i := range 5 {
				if rng.IntN(2) == 0 {
					list = append(list, targetAt(key, fmt.Sprintf("192.0.2.%d:1", i)))
				}
			}
		}
		want := slices.Clone(list)
		added := s.replaceTargets(list)
		for _, x := range added {
			x.stop = func() { stopped[x] = true }
		}
		after := s.listTargets()
		if len(after) != len(want) || !slices.EqualFunc(after, want, (*target).isSameTarget) {
			t.Fatalf("%v after %v", after, want)
		}
		for _, x := range after {
			if stopped[x] || slices.Contains(before, x) == slices.Contains(added, x) {
				t.Fatalf(
					"%v: stopped %v, there before %v, new %v",
					x,
					stopped[x],
					slices.Contains(before, x),
					slices.Contains(added, x),
				)
			}
		}
		for _, x := range before {
			if !slices.Contains(after, x) && !stopped[x] {
				t.Fatalf("%v is not stopped", x)
			}
		}
		if n := len(s.targetsOfPrimary(owners[0])) + len(s.targetsOfPrimary(owners[1])); n != len(after) {
			t.Fatalf("%d of %d targets by their primaries", n, len(after))
		}
	}
}

// TestTargetStates: the state of a target after calls succeed or fail, and the result for its
// primary.
func TestTargetStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := keys().primary.Public()
		s, x, y := new(targetSet), targetAt(key, "192.0.2.1:1"), targetAt(key, "192.0.2.2:1")
		s.replaceTargets([]*target{x, y})
		check := func(what string, at, connected int) {
			t.Helper()
			n := 0
			for _, yes := range s.connectedAddresses(key) {
				if yes {
					n++
				}
			}
			if got := s.countWaitingPipes(key); got != at || n != connected {
				t.Errorf("%s: %d wait and %d are connected, want %d and %d", what, got, n, at, connected)
			}
		}
		check("at first", 0, 0)
		began := time.Now()
		x.setTargetState(stateWaiting, nil)
		y.setTargetState(stateBusy, nil)
		check("one waits, one is busy", 1, 2)
		time.Sleep(time.Minute)
		if got := x.waitedSince(began); got != time.Minute {
			t.Errorf("it has waited for %v", got)
		}
		if got := x.waitedSince(time.Now()); got != 0 {
			t.Errorf("since a later call it has waited for %v", got)
		}
		x.setAttemptFailed(time.Now(), os.ErrDeadlineExceeded)
		time.Sleep(time.Minute)
		x.setAttemptFailed(time.Now(), syscall.ECONNREFUSED)
		check("one fails", 0, 1)
		if _, since, err := x.currentPipeState(); time.Since(since) != time.Minute || err != syscall.ECONNREFUSED {
			t.Errorf("failing for %v: %v", time.Since(since), err)
		}
	})
}

// TestUnreachable: a primary is unreachable if none of its addresses has answered for a while; the
// longest silent one gives the reason. Addresses outside networks, and causes on this device, do
// not count.
func TestUnreachable(t *testing.T) {
	refused, silent, noRoute := fmt.Errorf(
		"dial: %w",
		syscall.ECONNREFUSED,
	), fmt.Errorf(
		"dial: %w",
		os.ErrDeadlineExceeded,
	), fmt.Errorf(
		"dial: %w",
		syscall.ENETUNREACH,
	)
	now := time.Unix(1e9, 0)
	fails := func(addr string, err error, since time.Duration) *target {
		return &target{addr: addr, state: stateRetrying, err: err, failingSince: now.Add(-since)}
	}
	for name, c := range map[string]struct {
		targets []*target
		at      string
		cause   fault.Cause
	}{
		"nothing": {nil, "", fault.CauseUnknown},
		"not yet": {[]*target{fails("192.0.2.1:1", refused, minReportDelay-1)}, "", fault.CauseUnknown},
		"refused": {[]*target{fails("192.0.2.1:1", refused, minReportDelay)}, "192.0.2.1:1", fault.CauseRefused},
		"the oldest": {[]*target{fails("192.0.2.1:1", refused, time.Minute), fails("192.0.2.2:1", silent, time.Hour)},
			"192.0.2.2:1", fault.CauseNoAnswer},
		"one waits": {[]*target{fails("192.0.2.1:1", refused, time.Hour), {addr: "192.0.2.2:1", state: stateWaiting}},
			"", fault.CauseUnknown},
		"one is busy": {[]*target{fails("192.0.2.1:1", refused, time.Hour), {addr: "192.0.2.2:1", state: stateBusy}}, "",
			fault.CauseUnknown},
		"no route":       {[]*target{fails("192.0.2.1:1", noRoute, time.Hour)}, "", fault.CauseUnknown},
		"another error":  {[]*target{fails("192.0.2.1:1", dial.ErrElsewhere, time.Hour)}, "", fault.CauseUnknown},
		"over Bluetooth": {[]*target{fails("rfcomm://00:11:22:33:44:55", silent, time.Hour)}, "", fault.CauseUnknown},
	} {
		if at, cause := findUnreachable(c.targets, now); at != c.at || cause != c.cause {
			t.Errorf("%s: %q, %v", name, at, cause)
		}
	}
	if got := tcp.CauseOf(noRoute); got != fault.CauseNoRoute {
		t.Errorf("the cause is %v", got)
	}
}

// TestWaitingPipes: a wait ends with the reason of the drop, with its own context, or not at all.
func TestWaitingPipes(t *testing.T) {
	var w waitingPipes
	here, there := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 2)}
	one, endOne := w.trackPipe(t.Context(), here)
	two, endTwo := w.trackPipe(t.Context(), there)
	parent, cancel := context.WithCancel(t.Context())
	three, endThree := w.trackPipe(parent, here)
	endThree()
	w.dropPipesWhere(errAddress, func(local net.Addr) bool { return local == here })
	if context.Cause(one) != errAddress || two.Err() != nil || context.Cause(three) != context.Canceled {
		t.Errorf("they ended with %v, %v, %v", context.Cause(one), context.Cause(two), context.Cause(three))
	}
	cancel()
	endOne()
	endTwo()
	if w.dropPipesWhere(errSlept, func(a net.Addr) bool {
		t.Errorf("%v is still there",
			a)
		return true
	}); len(w.set) != 0 {
		t.Errorf("%d pipes are left", len(w.set))
	}
}

// TestWakeUp: each signal ends the waits that began before it, once.
func TestWakeUp(t *testing.T) {
	var w wakeSignal
	w.fireSignal() // without a waiter
	for range 3 {
		a, b := w.nextSignal(), w.nextSignal()
		select {
		case <-a:
			t.Fatal("nobody has called")
		default:
		}
		w.fireSignal()
		<-a
		<-b
	}
}
