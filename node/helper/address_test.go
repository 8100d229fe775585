// SPDX-License-Identifier: Apache-2.0

package helper

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/waittest"
	"mpbond/link/pipe"
	"mpbond/link/wire"
)

// addresses is a list of addresses that the test controls.
type addresses struct {
	mu  sync.Mutex
	now map[netip.Addr]bool
}

func (a *addresses) get() (map[netip.Addr]bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.now), nil
}

func (a *addresses) set(list ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.now = map[netip.Addr]bool{}
	for _, s := range list {
		a.now[netip.MustParseAddr(s)] = true
	}
}

// newWorldWith returns a world whose helper has seen these addresses.
func newWorldWith(t *testing.T, list ...string) (*testWorld, *addresses) {
	a, looked := &addresses{}, make(chan struct{}, 99)
	a.set(list...)
	w := &testWorld{t: t, pipes: overTCP(), servers: overTCP()}
	w.listenAt("127.0.0.1:0", "[::1]:0")
	w.prepare = func(h *Helper) {
		h.addressWatch.listAddresses = func() (map[netip.Addr]bool, error) {
			defer func() {
				select {
				case looked <- struct{}{}:
				default:
				}
			}()
			return a.get()
		}
	}
	w.startHelper(Config{})
	<-looked
	<-looked // the first check has been applied
	return w, a
}

// TestPipeLosesAddress: a waiting pipe, and one that carries a subflow, are replaced when their
// local address is lost; the subflow stays the same.
func TestPipeLosesAddress(t *testing.T) {
	w, a := newWorldWith(t, "127.0.0.1", "192.0.2.1")
	p, s, _ := w.joinSubflow()
	reserve := w.acceptWaiting()
	want, _ := io.ReadAll(newNoise(1<<20, 1))
	got, read := make([]byte, len(want)), make(chan error, 1)
	go func() {
		_, err := io.ReadFull(p, got)
		read <- err
	}()
	a.set("192.0.2.1")
	select {
	case <-reserve.Done():
	case <-time.After(time.Minute):
		t.Fatal("the pipe that waits is still there")
	}
	a.set("127.0.0.1", "192.0.2.1")
	waittest.Until(t, "the subflow needs another pipe", p.IsBroken)
	next := w.acceptWaiting()
	if err := p.Resume(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = s.Write(want) }()
	if err := <-read; err != nil || !bytes.Equal(got, want) {
		t.Error("other bytes", err)
	}
	if p.Counts().Resumed+p.Counts().Migrated != 1 {
		t.Errorf("%+v", p.Counts())
	}
}

// TestForeignAddress: a connection from an address that no interface ever had is not touched.
func TestForeignAddress(t *testing.T) {
	w, a := newWorldWith(t, "192.0.2.1")
	p, s, _ := w.joinSubflow()
	a.set("192.0.2.2")
	// That nothing happens has no event: addresses are compared twice meanwhile.
	for end := time.Now().Add(2 * addressInterval); time.Now().Before(end); {
		if _, err := s.Write(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(p, make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if p.IsBroken() || p.Counts() != (pipe.Counts{}) {
		t.Errorf("%+v", p.Counts())
	}
}

// TestServerSideLosesAddress: a subflow whose HS-path has lost its address goes back to the primary
// at once.
func TestServerSideLosesAddress(t *testing.T) {
	w, a := newWorldWith(t, "127.0.0.1", "::1")
	p, _, _ := w.joinSubflow()
	a.set("127.0.0.1")
	ended := make(chan error, 1)
	go func() {
		_, err := p.Read(make([]byte, 1))
		ended <- err
	}()
	select {
	case err := <-ended:
		var r wire.Refuse
		if !errors.As(err, &r) || r.Code != wire.CodeConnReset {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the primary got nothing")
	}
}

// TestAwake: after a sleep a waiting pipe is replaced although nothing shows that it is dead, and a
// primary that has been away for long is called at once.
func TestAwake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slept atomic.Int64
		w := &testWorld{t: t, pipes: inMemory(), servers: inMemory()}
		w.listenAll("x:1")
		w.prepare = func(h *Helper) {
			h.addressWatch.wall = func() time.Time { return wallClock().Add(time.Duration(slept.Load())) }
		}
		w.startHelper(Config{})
		a := w.acceptWaiting()
		time.Sleep(time.Hour)
		if a.Err() != nil {
			t.Fatal("without a sleep:", a.Err())
		}
		slept.Add(int64(time.Minute))
		began := time.Now()
		b := w.acceptWaiting()
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("a new pipe came after %v", took)
		}
		<-a.Done()
		slept.Add(int64(-time.Hour)) // the clock was set
		time.Sleep(time.Minute)
		if b.Err() != nil {
			t.Error("a clock that was set back:", b.Err())
		}
		w.pl.Close()
		w.sl.Close()
		b.Close()
		for range 5 { // at different times between two calls, which are 15 s apart
			time.Sleep(10 * time.Minute)
			w.listenAll("x:1")
			slept.Add(int64(time.Minute))
			began = time.Now()
			b = w.acceptWaiting()
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("after a long absence it was called after %v", took)
			}
			w.pl.Close()
			w.sl.Close()
			b.Close()
		}
		w.stop()
	})
}

// TestSleepAtAnyRead: a sleep is noticed between any two readings of the clock.
func TestSleepAtAnyRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var slept time.Duration
		reads := 0 // readings before the sleep
		w := &testWorld{t: t, pipes: inMemory(), servers: inMemory()}
		w.listenAll("x:1")
		w.prepare = func(h *Helper) {
			h.addressWatch.wall = func() time.Time {
				mu.Lock()
				defer mu.Unlock()
				now := wallClock().Add(slept)
				if reads--; reads == 0 {
					slept += time.Minute
				}
				return now
			}
		}
		w.startHelper(Config{})
		for after := 1; after <= 4; after++ {
			a := w.acceptWaiting()
			mu.Lock()
			reads = after
			mu.Unlock()
			time.Sleep(time.Duration(after+2) * addressInterval)
			synctest.Wait()
			if a.Err() == nil {
				t.Fatalf("a sleep after %d readings is not noticed", after)
			}
		}
		w.stop()
	})
}

// TestAddressWatch: changes derived from addresses and the clock.
func TestAddressWatch(t *testing.T) {
	a, clock := &addresses{}, time.Unix(1e9, 0)
	var broken error
	w := newAddressWatch()
	w.wall = func() time.Time { return clock }
	w.listAddresses = func() (map[netip.Addr]bool, error) {
		if broken != nil {
			return nil, broken
		}
		return a.get()
	}
	end := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 5} }
	due := time.Now()
	w.startAddressWatch(due)
	const one, two, foreign = "192.0.2.1", "192.0.2.2", "192.0.2.3"
	for i, c := range []struct {
		after    time.Duration // by the wall clock
		dueAfter time.Duration // by the monotonic one; 0: addressInterval
		list     []string
		err      error
		slept    time.Duration
		others   bool
		unlooked bool
		lost     []string
	}{
		{after: time.Second, list: []string{one}},
		{after: time.Second, list: []string{one, two}, others: true},
		{after: time.Second, err: errors.New("no netlink"), unlooked: true},
		{after: time.Second, list: []string{two}, others: true, lost: []string{one}},
		{after: time.Minute, list: []string{two}, slept: 59 * time.Second, lost: []string{one}},
		{after: minSleep, list: []string{two}, lost: []string{one}},
		{after: -time.Hour, list: []string{two}, lost: []string{one}}, // the clock was set
		{after: time.Second, list: []string{two}, lost: []string{one}},
		{after: time.Second, list: []string{one}, others: true, lost: []string{two}},
		{after: time.Minute, dueAfter: time.Minute, list: []string{one}, lost: []string{two}}, // idle
	} {
		clock, broken, due = clock.Add(c.after), c.err, due.Add(cmp.Or(c.dueAfter, addressInterval))
		a.set(c.list...)
		got := w.detectChanges(due)
		if got.slept != c.slept || got.addresses != c.others || (got.isLost == nil) != c.unlooked {
			t.Errorf("%d: %+v", i, got)
		}
		for _, ip := range []string{one, two, foreign} {
			if got.isLost != nil && got.isLost(end(ip)) != slices.Contains(c.lost, ip) {
				t.Errorf("%d: %s is lost: %v", i, ip, !slices.Contains(c.lost, ip))
			}
		}
		if got.isLost != nil && got.isLost(pipeAddr{}) {
			t.Errorf("%d: an end without an address has lost it", i)
		}
	}
}

// pipeAddr is an address outside IP networks.
type pipeAddr struct{}

func (pipeAddr) Network() string { return "memory" }
func (pipeAddr) String() string  { return "memory" }
