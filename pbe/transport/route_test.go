// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/pbe/cc"
)

// TestRouteArrivals: only the newest packet determines the arrival, unless it is a CHALLENGE.
func TestRouteArrivals(t *testing.T) {
	ep, here, there := &Endpoint{}, netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	var r route
	for i, c := range []struct {
		number        uint64
		from          netip.Addr
		asks          bool
		newest, moved bool
	}{
		{5, here, false, true, true}, {6, here, false, true, false}, {6, there, false, false, false},
		{3, there, false, false, false},
		{9, there, true, true, false}, {10, there, false, true, true}, {7, here, false, false, false},
	} {
		if newest, moved := r.onAuthenticPacket(c.number, arrival{ep, c.from}, c.asks); newest != c.newest ||
			moved != c.moved {
			t.Errorf("packet %d: newest %v, moved %v", i, newest, moved)
		}
	}
	if r.largestNumber != 10 || !r.authenticated || r.arrival.from != there {
		t.Errorf("%+v", r.arrival)
	}
}

// TestRouteEndpoints: packets may arrive at the current and the last endpoints, each listed once,
// but not at dropped ones.
func TestRouteEndpoints(t *testing.T) {
	eps := make([]*Endpoint, maxEndpoints+2)
	for i := range eps {
		eps[i] = &Endpoint{closesWithLast: i%2 == 0}
	}
	r := newConnRoute(eps[0], netip.AddrPort{})
	var dropped []*Endpoint
	for _, ep := range append(eps[1:], eps[len(eps)-1]) {
		dropped = append(dropped, r.moveToEndpoint(ep)...)
	}
	before := r.endpoints
	if r.ep != eps[len(eps)-1] || !slices.Equal(dropped, eps[:2]) || !slices.Equal(before, eps[2:]) {
		t.Errorf("%d endpoints, %d dropped", len(before), len(dropped))
	}
	if own := r.dropOwnedEndpoints(eps[4]); !slices.Equal(own, eps[2:3]) || len(r.endpoints) != maxEndpoints-1 ||
		len(before) != maxEndpoints || before[0] != eps[2] {
		t.Errorf("%d own ones are dropped", len(own))
	}
}

// TestRouteFollows: the peer's address changes when it answers from there, once.
func TestRouteFollows(t *testing.T) {
	at := netip.MustParseAddrPort
	r := newConnRoute(nil, at("192.0.2.1:1"))
	for _, c := range []struct {
		to        string
		elsewhere bool
	}{{"192.0.2.1:2", false}, {"192.0.2.2:2", true}} {
		r.validation.startValidation(at(c.to), time.Minute)
		data := r.validation.data
		if moved, _ := r.onResponse(r.remote, data[:]); moved {
			t.Error("a response from the current address is accepted")
		}
		if moved, elsewhere := r.onResponse(at(c.to), data[:]); !moved || elsewhere != c.elsewhere ||
			r.remote != at(c.to) {
			t.Errorf("%s: moved %v, elsewhere %v", c.to, moved, elsewhere)
		}
		if moved, _ := r.onResponse(at(c.to), data[:]); moved {
			t.Error("a response is accepted twice")
		}
	}
}

// TestWaiters: a waiter wakes at the deadline, and at an earlier one set later, but not at a
// removed one.
func TestWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var w waiters
		w.L = &mu
		begun := time.Now()
		set := func(after time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			w.setWaitDeadline(begun.Add(after))
		}
		set(time.Minute)
		took := make(chan time.Duration)
		go func() {
			mu.Lock()
			defer mu.Unlock()
			for !w.deadlinePassed() {
				w.Wait()
			}
			took <- time.Since(begun)
		}()
		synctest.Wait()
		set(time.Second)
		set(5 * time.Second)
		if got := <-took; got != 5*time.Second {
			t.Errorf("woken after %v", got)
		}
		mu.Lock()
		defer mu.Unlock()
		if w.setWaitDeadline(time.Time{}); w.deadlinePassed() {
			t.Error("late without a deadline")
		}
	})
}

// TestReporter: one listener is open at a time, and none while the reporter is disabled.
func TestReporter(t *testing.T) {
	first := &fixedFeedback{radio: cc.CellFeedback{TransportRate: 1}}
	second := &fixedFeedback{radio: cc.CellFeedback{TransportRate: 2}}
	var r feedbackSource
	listen := func(s *fixedFeedback) func() Feedback { return func() Feedback { return s } }
	if r.switchFeedbackTo(listen(first)) != nil {
		t.Error("it reports before it is enabled")
	}
	r.enabled = true
	if report := r.switchFeedbackTo(listen(first)); report == nil || report(0, 0, 0, 0) != first.radio {
		t.Error("the first does not report")
	}
	if report := r.switchFeedbackTo(listen(second)); report == nil || report(0, 0, 0, 0) != second.radio ||
		!first.closed.Load() {
		t.Error("the second does not report, or the first still does")
	}
	if r.switchFeedbackTo(nil) != nil || !second.closed.Load() {
		t.Error("the second still reports")
	}
}
