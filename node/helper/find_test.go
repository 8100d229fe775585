// SPDX-License-Identifier: Apache-2.0

package helper

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/link/discovery"
)

// fakeLAN is a fake local network.
type fakeLAN struct {
	list  atomic.Pointer[[]discovery.Found]
	asked atomic.Int64
}

func (l *fakeLAN) setAddresses(addrs ...string) {
	list := []discovery.Found{{ID: "AAAA-BBBB-CCCC-DDDD", Addr: netip.MustParseAddrPort("10.0.0.99:7602")}}
	for _, a := range addrs {
		list = append(
			list,
			discovery.Found{ID: keys().primary.Public().ID().String(), Addr: netip.MustParseAddrPort(a)},
		)
	}
	l.list.Store(&list)
}

func (l *fakeLAN) findPrimaries(context.Context) ([]discovery.Found, error) {
	l.asked.Add(1)
	if p := l.list.Load(); p != nil {
		return *p, nil
	}
	return nil, errors.New("no network")
}

// TestPrimaryIsFound: a primary is found at its announced address although the trust file has
// another one, and again after it has moved.
func TestPrimaryIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l fakeLAN
		w := &testWorld{
			t:       t,
			pipes:   inMemory(),
			servers: inMemory(),
			prepare: func(h *Helper) { h.SetDiscovery(l.findPrimaries) },
		}
		w.listenAt("10.0.0.1:7602", "x:1")
		w.primary = "10.0.0.250:7602" // its old address
		w.startHelper(Config{})
		time.Sleep(30 * time.Second)
		l.setAddresses("10.0.0.1:7602")
		began := time.Now()
		a := w.acceptWaiting()
		if took := time.Since(began); took > maxSearchInterval+maxCallBackoff {
			t.Errorf("found after %v", took)
		}
		synctest.Wait()
		if n := len(w.h.Status().Pipes); n != 2 {
			t.Errorf("pipes %+v", w.h.Status().Pipes)
		}
		// It is connected: no more searches.
		before := l.asked.Load()
		time.Sleep(10 * time.Minute)
		if n := l.asked.Load() - before; n > 1 { // once more after a result
			t.Errorf("asked %d times in ten minutes", n)
		}
		// It moves.
		w.pl.Close()
		w.sl.Close()
		a.Close()
		l.setAddresses("10.0.0.2:7602")
		w.listenAt("10.0.0.2:7602", "x:1")
		began = time.Now()
		b := w.acceptWaiting()
		if took := time.Since(began); took > maxSearchInterval+maxCallBackoff {
			t.Errorf("found again after %v", took)
		}
		w.stop()
		b.Close()
	})
}

// TestFalseAnswersAreBounded: a device that claims to be the primary at many addresses does not
// make the helper call all of them, and is forgotten when it is silent; the primary is then found.
func TestFalseAnswersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l fakeLAN
		w := &testWorld{
			t:       t,
			pipes:   inMemory(),
			servers: inMemory(),
			prepare: func(h *Helper) { h.SetDiscovery(l.findPrimaries) },
		}
		w.listenAt("10.0.0.1:7602", "x:1")
		w.primary = "10.0.0.250:7602"
		w.startHelper(Config{})
		for i := range byte(100) {
			l.setAddresses(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 1, i}), 7602).String())
			time.Sleep(maxSearchInterval)
			synctest.Wait()
			if n := len(w.h.Status().Pipes); n > maxFound+1 {
				t.Fatalf("%d pipes", n)
			}
		}
		l.setAddresses("10.0.0.1:7602")
		time.Sleep(foundLifetime + 2*maxSearchInterval)
		a := w.acceptWaiting()
		synctest.Wait()
		for _, p := range w.h.Status().Pipes {
			if p.Address != "10.0.0.250:7602" && p.Address != "10.0.0.1:7602" {
				t.Errorf("%s is not forgotten", p.Address)
			}
		}
		w.stop()
		a.Close()
	})
}

// TestFoundAddresses: addresses of a primary are bounded, stay while they are found or work, and
// are forgotten otherwise; those of other devices are ignored.
func TestFoundAddresses(t *testing.T) {
	key, now := keys().primary.Public(), time.Unix(1e9, 0)
	f := newFinder(nil, slog.New(slog.DiscardHandler))
	found := func(hosts ...byte) (list []discovery.Found) {
		for _, h := range hosts {
			list = append(
				list,
				discovery.Found{
					ID:   key.ID().String(),
					Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, h}), 7602),
				},
			)
		}
		return list
	}
	at := func(hosts ...byte) (list []string) {
		for _, x := range found(hosts...) {
			list = append(list, x.Addr.String())
		}
		return list
	}
	other := []discovery.Found{{ID: "AAAA-BBBB-CCCC-DDDD", Addr: netip.MustParseAddrPort("10.0.0.99:7602")}}
	for i, c := range []struct {
		after   time.Duration
		list    []discovery.Found
		works   []string
		changed bool
		want    []string
	}{
		{0, nil, nil, false, nil},
		{0, other, nil, false, nil},
		{0, found(1), nil, true, at(1)},
		{time.Minute, found(1, 2), nil, true, at(1, 2)},
		{time.Minute, found(1, 2), nil, false, at(1, 2)},
		{foundLifetime, nil, at(2), false, at(1, 2)},
		{time.Second, nil, nil, true, at(2)},
		{foundLifetime, found(2, 3, 4, 5, 6, 7, 8, 9, 10, 11), nil, true, at(2, 3, 4, 5, 6, 7, 8, 9)},
		{time.Second, found(12), nil, false, at(2, 3, 4, 5, 6, 7, 8, 9)},
		{foundLifetime + time.Second, found(12), nil, true, at(12)},
	} {
		now = now.Add(c.after)
		connected := map[string]bool{}
		for _, addr := range c.works {
			connected[addr] = true
		}
		if changed := f.recordFound(now, []roamingPrimary{{key, connected}}, c.list); changed != c.changed {
			t.Errorf("%d: changed %v", i, changed)
		}
		if got := f.foundAddresses(key); !slices.Equal(got, c.want) {
			t.Errorf("%d: %v, want %v", i, got, c.want)
		}
	}
	if len(f.foundAddresses(keys().server.Public())) > 0 {
		t.Error("another device is found")
	}
}

// TestMissed: a primary is missed while none of its addresses is connected.
func TestMissed(t *testing.T) {
	for i, c := range []struct {
		connected map[string]bool
		want      bool
	}{{nil, true}, {map[string]bool{"a": false, "b": false}, true}, {map[string]bool{"a": false, "b": true}, false}} {
		if got := (roamingPrimary{connected: c.connected}).isMissingPipe(); got != c.want {
			t.Errorf("%d: %v", i, got)
		}
	}
}
