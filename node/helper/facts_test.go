// SPDX-License-Identifier: Apache-2.0

package helper

import (
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/base/waittest"
	"mpbond/control/facts"
	"mpbond/control/policy"
	"mpbond/link/pipe"
	"mpbond/link/wire"
)

// TestFactsAreReported: a waiting pipe and one in use get the earlier facts and then each change, but
// nothing that has not changed.
func TestFactsAreReported(t *testing.T) {
	w := newTestWorld(t, overTCP, "127.0.0.1:0", Config{HSInterface: "lo"})
	knows := func(n float64) {
		w.h.SetFacts(
			facts.Facts{Battery: unit.Percent(n), Links: map[string]facts.Link{"lo": {Metered: wire.MeteredYes}}},
		)
	}
	want := func(n float64) wire.Facts {
		return wire.Facts{Battery: unit.Percent(n), Link: "lo", Metered: wire.MeteredYes}
	}
	type factsSource interface{ OnFacts(func(wire.Facts)) }
	listen := func(p factsSource) <-chan wire.Facts {
		c := make(chan wire.Facts, 16)
		p.OnFacts(func(f wire.Facts) { c <- f })
		return c
	}
	expect := func(c <-chan wire.Facts, f wire.Facts) {
		t.Helper()
		select {
		case got := <-c:
			if got != f {
				t.Fatalf("got %+v, not %+v", got, f)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("%+v was not sent", f)
		}
	}
	first := w.acceptWaiting()
	toFirst := listen(first)
	knows(80)
	expect(toFirst, want(80))
	knows(80)
	knows(79)
	expect(toFirst, want(79))

	joined := make(chan *pipe.Link)
	go func() {
		l, err := first.Join(t.Context(), w.server, pipe.DefaultResumeTimeout)
		if err != nil {
			t.Error(err)
		}
		joined <- l
	}()
	conn, err := w.sl.Accept()
	if err != nil {
		t.Fatal(err)
	}
	server, _, err := pipe.AcceptHS(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	link := <-joined
	if link == nil {
		t.FailNow()
	}
	defer link.Close()
	toLink := listen(link)
	go func() { _, _ = io.Copy(io.Discard, link) }()
	toSecond := listen(w.acceptWaiting())
	expect(toSecond, want(79)) // earlier facts
	knows(20)
	expect(toSecond, want(20))
	for got := range toLink { // perhaps the facts at its start first
		if got == want(20) {
			break
		}
		if got != want(79) {
			t.Fatalf("%+v was sent", got)
		}
	}
	if got := w.h.Facts(); got != want(20) {
		t.Errorf("%+v", got)
	}
}

// TestHelperSuspends: below the owner's floor a helper ends its relays and refuses more with the reason,
// until its battery is better and some time has passed.
func TestHelperSuspends(t *testing.T) {
	w := newTestWorld(t, overTCP, "127.0.0.1:0", Config{HSInterface: "lo", BatteryFloor: 20})
	knows := func(n float64) {
		w.h.SetFacts(facts.Facts{Battery: unit.Percent(n), Power: wire.PowerBattery})
	}
	knows(20)
	p, s, _ := w.joinSubflow()
	if _, err := s.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(p, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	knows(19)
	for _, l := range []pipe.Hop{p, s} {
		var r wire.Refuse
		if _, err := io.Copy(io.Discard, l); !errors.As(err, &r) || r.Code != wire.CodeLimit ||
			!strings.Contains(err.Error(), "suspended") {
			t.Errorf("the subflow ended with %v", err)
		}
	}
	const why = "its battery is at 19 %, suspended below 20 %"
	if got := w.h.Facts().RefusalReason; got != why {
		t.Errorf("it refuses: %q", got)
	}
	if _, err := w.acceptWaiting().Join(t.Context(), w.server, pipe.DefaultResumeTimeout); err == nil ||
		!strings.Contains(err.Error(), why) {
		t.Errorf("joined: %v", err)
	}
	knows(50)
	if w.h.Facts().RefusalReason == "" {
		t.Error("it has rested for a moment only")
	}
	w.h.applySuspension(w.h.facts.reevaluate(time.Now().Add(time.Minute)))
	if got := w.h.Facts(); got.RefusalReason != "" || got.Battery.Percent() != 50 {
		t.Errorf("afterwards: %+v", got)
	}
	w.joinSubflow()
	if _, err := New(Config{BatteryFloor: 200}, "x", Identity{keys().helper, w.h.trust}, slog.New(slog.DiscardHandler),
		nil); err == nil {
		t.Error("a floor of 200 % is taken")
	}
}

// TestLimitsOfPolicy: the policy sets limits that the configuration omits, as of the next check.
func TestLimitsOfPolicy(t *testing.T) {
	var says atomic.Pointer[policy.Limits]
	says.Store(new(policy.Limits))
	w := newTestWorld(
		t,
		inMemory,
		"a:1",
		Config{HSInterface: "lo", MaxTemperature: 50, Limits: func() policy.Limits { return *says.Load() }},
	)
	w.h.SetFacts(facts.Facts{Battery: unit.Percent(30), Power: wire.PowerBattery, Temperature: unit.Celsius(45)})
	later := time.Now().Add(time.Minute)
	for _, c := range []struct {
		limits policy.Limits
		rests  string
	}{
		{policy.Limits{}, ""},
		{policy.Limits{BatteryFloor: 40}, "suspended below 40 %"},
		{policy.Limits{BatteryFloor: 20, MaxTemperature: 44}, ""}, // the configuration says 50
	} {
		says.Store(&c.limits)
		w.h.applySuspension(w.h.facts.reevaluate(later))
		if got := w.h.Facts().RefusalReason; (got == "") != (c.rests == "") || !strings.Contains(got, c.rests) {
			t.Errorf("%+v: %q, want %q", c.limits, got, c.rests)
		}
		later = later.Add(time.Minute)
	}
}

// TestPaused: a paused primary loses its subflows, gets no more and gets the reason, also on waiting
// pipes, until it is resumed.
func TestPaused(t *testing.T) {
	w := newTestWorld(t, overTCP, "127.0.0.1:0", Config{HSInterface: "lo"})
	set := func(paused bool) {
		t.Helper()
		if err := w.h.trust.SetPaused("laptop", paused); err != nil {
			t.Fatal(err)
		}
		w.h.TrustChanged()
	}
	p, s, _ := w.joinSubflow()
	if _, err := s.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(p, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	next := w.acceptWaiting()
	got := make(chan string, 9)
	next.OnFacts(func(f wire.Facts) { got <- f.RefusalReason })
	set(true)
	for _, l := range []pipe.Hop{p, s} {
		var r wire.Refuse
		if _, err := io.Copy(io.Discard, l); !errors.As(err, &r) || r.Code != wire.CodeLimit ||
			!strings.Contains(err.Error(), "paused there") {
			t.Errorf("the subflow ended with %v", err)
		}
	}
	expect := func(want string) {
		t.Helper()
		for why := range got {
			if why == want {
				return
			}
		}
	}
	expect("this device is paused there")
	set(false)
	expect("")
	set(true)
	expect("this device is paused there")
	var r wire.Refuse
	if _, err := next.Join(t.Context(), w.server, pipe.DefaultResumeTimeout); !errors.As(err, &r) ||
		r.Code != wire.CodeLimit ||
		!strings.Contains(err.Error(), "mpbond resume") {
		t.Errorf("joined: %v", err)
	}
	set(false)
	w.joinSubflow()
}

// TestRoaming: the reported facts are those of the shared link, also when only the link changes.
func TestRoaming(t *testing.T) {
	w, a := newWorldWith(t, "127.0.0.1", "192.0.2.1")
	w.h.SetFacts(facts.Facts{Links: map[string]facts.Link{"lo": {Metered: wire.MeteredYes}}})
	_, _, _ = w.joinSubflow() // which makes it the link
	if f := w.h.Facts(); f.Link == "lo" {
		t.Fatal("it was known before")
	}
	a.set("127.0.0.1", "192.0.2.2")
	waittest.Until(
		t,
		"the other link was sent",
		func() bool { return w.h.Facts().Link == "lo" && w.h.Facts().Metered == wire.MeteredYes },
	)
}
