// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestSource(t *testing.T) {
	for in, want := range map[string]string{"192.0.2.7:1": "192.0.2.7/32",
		"[::ffff:192.0.2.7]:1": "192.0.2.7/32", "[2001:db8:1:2:3::4]:1": "2001:db8:1:2::/64",
		"[fe80::1%7]:1": "fe80::/64"} {
		a, err := net.ResolveTCPAddr("tcp", in)
		if err != nil {
			t.Fatal(err)
		}
		if got := SourceOf(a).String(); got != want {
			t.Errorf("%s: %s", in, got)
		}
	}
}

// TestAdmit checks the limits per source and in total, and that releasing a slot makes room.
func TestAdmit(t *testing.T) {
	g := NewAdmissionLimit(3, 2, 100)
	at := func(last byte) net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, last), Port: 1} }
	leave := g.Admit(at(1))
	if leave == nil || g.Admit(at(1)) == nil {
		t.Fatal("no place at first")
	}
	if g.Admit(at(1)) != nil {
		t.Error("one source has them all")
	}
	other := g.Admit(&net.UnixAddr{})
	if other == nil {
		t.Error("none is left for another source")
	}
	if g.Admit(at(2)) != nil {
		t.Error("one too many")
	}
	leave()
	if g.Admit(at(1)) == nil {
		t.Error("who has left makes no room")
	}
	other()
	if len(g.sources) != 1 || g.used != 2 {
		t.Errorf("%d inside, of %v", g.used, g.sources)
	}
}

// TestAdmitPerMinute checks that a source is admitted only so often in a minute, that this does not
// affect others, and that refused calls are not counted.
func TestAdmitPerMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewAdmissionLimit(3, 2, 10)
		at := func(last byte) net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, last), Port: 1} }
		let := func(from net.Addr, most time.Duration) (in int) {
			for began := time.Now(); time.Since(began) < most; time.Sleep(100 * time.Millisecond) {
				if leave := g.Admit(from); leave != nil {
					in++
					leave()
				}
			}
			return in
		}
		if in := let(at(1), time.Minute); in != 10 {
			t.Errorf("%d in the first minute", in)
		}
		if in := let(at(1), 10*time.Minute); in < 95 || in > 110 {
			t.Errorf("%d in ten minutes", in)
		}
		if in := let(at(2), time.Second); in != 10 {
			t.Errorf("%d of another source", in)
		}
		time.Sleep(time.Minute)
		leave := g.Admit(at(3))
		other := g.Admit(at(3))
		for range 100 {
			if g.Admit(at(3)) != nil {
				t.Fatal("more at once than may be")
			}
		}
		leave()
		other()
		if in := let(at(3), time.Second); in != 8 {
			t.Errorf("%d after two", in)
		}
	})
}

// TestRateLimiterIsBounded checks that so many keys are remembered, for a minute, and that further
// keys share one limit.
func TestRateLimiterIsBounded(t *testing.T) {
	now := time.Unix(1e9, 0)
	tries := RateLimiter[int]{PerMinute: 5}
	in := 0
	for i := range 2 * maxLimitedKeys {
		if tries.Allow(i, now) {
			in++
		}
	}
	if in != maxLimitedKeys+5 || len(tries.counts) != maxLimitedKeys {
		t.Errorf("%d were let in, %d are remembered", in, len(tries.counts))
	}
	if !tries.Allow(7, now) {
		t.Error("the others keep one out that was there before")
	}
	if now = now.Add(time.Minute); !tries.Allow(2*maxLimitedKeys, now) || len(tries.counts) != 1 {
		t.Errorf("a minute later %d are remembered", len(tries.counts))
	}
}

// TestAdmitEvicting checks which caller a newcomer replaces: one of its own source if that has
// reached its limit, otherwise one of the source with the most slots. Silent callers go first while
// they are the larger part.
func TestAdmitEvicting(t *testing.T) {
	g := NewAdmissionLimit(4, 3, 100)
	at := func(last byte) net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, last), Port: 1} }
	var dropped []string
	enter := func(last byte, name string) *Slot {
		v := g.AdmitEvicting(at(last), func() { dropped = append(dropped, name) })
		if v == nil {
			t.Fatalf("%s finds no place", name)
		}
		return v
	}
	check := func(want ...string) {
		t.Helper()
		if !slices.Equal(dropped, want) {
			t.Errorf("dropped %q, want %q", dropped, want)
		}
		dropped = nil
	}
	a1 := enter(1, "a1")
	a1.AwaitTurn()
	a2, a3 := enter(1, "a2"), enter(1, "a3")
	check()
	enter(1, "a4") // most of a1 to a3 are silent
	check("a2")
	b := enter(2, "b")
	check()
	c := enter(3, "c")
	check("a3")
	if a2.AwaitTurn() || !a2.IsEvicted() || a1.IsEvicted() {
		t.Error("a caller that was evicted goes on")
	}
	for _, v := range []*Slot{b, c} {
		if !v.AwaitTurn() {
			t.Error("it may not be answered")
		}
	}
	enter(4, "d") // source a has the most slots, and a4 is silent, but more callers have spoken
	check("a1")
	for _, v := range []*Slot{a1, a2, a3, b, c} {
		v.Release()
		v.Release()
	}
	if g.used != 2 || g.evictedCount != 0 || len(g.sources) != 2 || g.silentCount != 2 {
		t.Errorf("%d inside, %d silent, %d evicted, %d sources", g.used, g.silentCount, g.evictedCount, len(g.sources))
	}
	if leave := g.Admit(at(9)); leave == nil || g.Admit(at(9)) == nil || g.Admit(at(9)) != nil {
		t.Error("Admit does not take the places that are left")
	}
	check()
}

// TestReservedSlots checks that a source with an authenticated caller keeps some slots against
// others that have as many.
func TestReservedSlots(t *testing.T) {
	g := NewAdmissionLimit(8, 8, 100)
	at := func(last byte) net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, last), Port: 1} }
	if v := g.AdmitEvicting(at(1), func() {}); !v.MarkProved() || v.IsEvicted() || g.used != 0 {
		t.Fatal("it has not proved itself")
	}
	var own []*Slot
	for range reservedSlots {
		own = append(own, g.AdmitEvicting(at(1), func() {}))
	}
	for i := range byte(100) {
		g.AdmitEvicting(at(2+i%8), func() {})
		if g.evictedCount == 7 {
			for _, v := range own {
				if v.IsEvicted() {
					t.Fatalf("evicted after %d strangers", i+1)
				}
			}
			g.evictedCount = 0 // they are released
		}
	}
}

// TestAdmitWaitsForRelease checks that evicted callers that have not released their slots are
// bounded too.
func TestAdmitWaitsForRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewAdmissionLimit(2, 2, 100)
		at := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}
		var visits []*Slot
		for range 4 {
			visits = append(visits, g.AdmitEvicting(at, func() {}))
		}
		entered := false
		go func() {
			g.AdmitEvicting(at, func() {})
			entered = true
		}()
		synctest.Wait()
		if entered {
			t.Error("a fifth has entered before one of the first has left")
		}
		visits[0].Release()
		synctest.Wait()
		if !entered {
			t.Error("it waits although one has left")
		}
	})
}

// TestCrowds simulates attacks from 24 and 240 addresses, each with 64 connections that are
// reopened at once. A known device needs two round trips of 300 ms for its handshake and retries a
// second after it is refused. It must be admitted within two seconds, from any address.
func TestCrowds(t *testing.T) {
	for _, c := range []struct {
		name    string
		sources int
		every   time.Duration // between two connections of the attackers
		speaks  int           // how many of 10 connections send a ClientHello
		own     byte          // the device's address; 1 is also an attacker's
	}{
		{"24 silent", 24, time.Millisecond, 0, 250},
		{"240 silent", 240, time.Millisecond, 0, 250},
		{"240 silent, many", 240, 200 * time.Microsecond, 0, 250},
		{"240 with half a handshake", 240, time.Millisecond, 10, 250},
		{"240 with half a handshake, many", 240, 200 * time.Microsecond, 10, 250},
		{"240 of both kinds", 240, 200 * time.Microsecond, 5, 250},
		{"an address of the crowd", 24, time.Millisecond, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewAdmissionLimit(512, 64, 600)
				at := func(n int) net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, byte(n>>8), byte(n)), Port: 1} }
				end := make(chan bool)
				var all sync.WaitGroup
				all.Go(func() {
					for i := 0; ; i++ {
						select {
						case <-end:
							return
						case <-time.After(c.every):
						}
						all.Go(func() {
							dropped := make(chan bool)
							v := g.AdmitEvicting(at(1+i%c.sources), func() { close(dropped) })
							defer v.Release()
							if i%10 < c.speaks && !v.AwaitTurn() {
								return
							}
							select {
							case <-dropped:
							case <-end:
							case <-time.After(10 * time.Second):
							}
						})
					}
				})
				time.Sleep(12 * time.Second)
				var worst time.Duration
				for range 5 {
					began := time.Now()
					for !joinsWithin(g, at(int(c.own)), 300*time.Millisecond) {
						time.Sleep(time.Second)
					}
					worst = max(worst, time.Since(began))
					g.mu.Lock()
					clear(g.provedSources) // each time it is unknown, as at first
					g.mu.Unlock()
					time.Sleep(100 * time.Millisecond)
				}
				t.Logf("a handshake of two round trips of 300 ms took %v at most", worst)
				if worst > 2*time.Second {
					t.Errorf("it took %v", worst)
				}
				close(end)
				all.Wait()
			})
		})
	}
}

// TestSecondTry checks that a device with an interrupted handshake, as after a restart of the
// server, gets its turn although newcomers are always waiting, and that newcomers get theirs.
func TestSecondTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewAdmissionLimit(512, 64, 600)
		var all sync.WaitGroup
		var answered atomic.Int64
		call := func(from net.Addr) {
			all.Go(func() {
				v := g.AdmitEvicting(from, func() {})
				defer v.Release()
				if v.AwaitTurn() {
					answered.Add(1)
				}
			})
		}
		for n := range 400 { // they wait for over a second
			call(&net.TCPAddr{IP: net.IPv4(10, 0, byte(n>>8), byte(n)), Port: 1})
		}
		synctest.Wait()
		own, other := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1},
			&net.TCPAddr{IP: net.IPv4(192, 0, 2, 2), Port: 1}
		g.mu.Lock()
		g.rate.Allow(SourceOf(own), time.Now()) // its first turn
		g.rate.Allow(SourceOf(other), time.Now())
		g.mu.Unlock()
		v := g.AdmitEvicting(own, func() {})
		if !v.AwaitTurn() {
			t.Fatal("it may not be answered")
		}
		v.Release()
		if n := answered.Load(); n > 10 {
			t.Errorf("%d newcomers were answered first", n)
		}
		before := answered.Load()
		for range 40 { // there is always one that comes again
			call(other)
			time.Sleep(turnInterval)
		}
		g.mu.Lock()
		again := g.rate.counts[SourceOf(other)] - 1
		g.mu.Unlock()
		if n := answered.Load() - before; again < 9 || n-int64(again) < 28 {
			t.Errorf("of %d turns %d were for one that came again", n, again)
		}
		all.Wait()
	})
}

// joinsWithin runs a handshake and reports whether it was admitted.
func joinsWithin(g *AdmissionLimit, from net.Addr, rtt time.Duration) bool {
	dropped := make(chan bool)
	v := g.AdmitEvicting(from, func() { close(dropped) })
	if v == nil {
		return false
	}
	defer v.Release()
	time.Sleep(time.Millisecond) // its first flight follows at once
	if !v.AwaitTurn() {
		return false
	}
	select {
	case <-dropped:
		return false
	case <-time.After(2 * rtt):
	}
	return v.MarkProved()
}

// TestProvedSourcesOfOneDevice checks that a device has the handshakes of its newest maxProvedBy sources only answered
// at once, and that it does not displace the sources of others.
func TestProvedSourcesOfOneDevice(t *testing.T) {
	g := NewAdmissionLimit(512, 64, 600)
	at := func(n int) net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, byte(n>>8), byte(n)), Port: 1} }
	prove := func(n int, by string) {
		if v := g.AdmitEvicting(at(n), func() {}); !v.MarkProvedBy(by) {
			t.Fatal("it was evicted")
		}
	}
	isProved := func(n int) bool {
		v := g.AdmitEvicting(at(n), func() {})
		defer v.Release()
		return v.IsSourceProved()
	}
	prove(9000, "phone")
	prove(9001, "")
	for n := range 2 * maxProved {
		prove(n, "hostile")
		prove(n, "hostile")
	}
	for n, want := range map[int]bool{9000: true, 9001: true, 2*maxProved - 1: true, 2*maxProved - maxProvedBy: true,
		2*maxProved - maxProvedBy - 1: false, 0: false} {
		if isProved(n) != want {
			t.Errorf("source %d is proved: %v", n, !want)
		}
	}
	prove(2*maxProved-1, "phone") // another device at the same network
	prove(1, "hostile")
	prove(2, "hostile")
	if !isProved(2*maxProved-1) || isProved(2*maxProved-maxProvedBy) {
		t.Error("the device that came last does not keep the source")
	}
}
