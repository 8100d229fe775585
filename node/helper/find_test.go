package helper

import (
	"context"
	"errors"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/link/discovery"
)

// lan is what a fake local network says.
type lan struct {
	list  atomic.Pointer[[]discovery.Found]
	asked atomic.Int64
}

func (l *lan) say(addrs ...string) {
	list := []discovery.Found{{ID: "AAAA-BBBB-CCCC-DDDD", Addr: netip.MustParseAddrPort("10.0.0.99:7602")}}
	for _, a := range addrs {
		list = append(list, discovery.Found{ID: keys().primary.Public().ID().String(), Addr: netip.MustParseAddrPort(a)})
	}
	l.list.Store(&list)
}

func (l *lan) find(context.Context) ([]discovery.Found, error) {
	l.asked.Add(1)
	if p := l.list.Load(); p != nil {
		return *p, nil
	}
	return nil, errors.New("no network")
}

// TestPrimaryIsFound where it says it is, though another address is in the
// trust file; and again after it has moved.
func TestPrimaryIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lan
		w := &world{t: t, pipes: inMemory(), servers: inMemory(), prepare: func(h *Helper) { h.FindWith(l.find) }}
		w.listenAt("10.0.0.1:7602", "x:1")
		w.primary = "10.0.0.250:7602" // where it was once
		w.start(Config{})
		time.Sleep(30 * time.Second)
		l.say("10.0.0.1:7602")
		began := time.Now()
		a := w.waiting()
		if took := time.Since(began); took > findRest+backoffMax {
			t.Errorf("found after %v", took)
		}
		synctest.Wait()
		if n := len(w.h.Status().Pipes); n != 2 {
			t.Errorf("pipes %+v", w.h.Status().Pipes)
		}
		// It is there: the network is asked no more.
		before := l.asked.Load()
		time.Sleep(10 * time.Minute)
		if n := l.asked.Load() - before; n > 1 { // once more after something was found
			t.Errorf("asked %d times in ten minutes", n)
		}
		// It moves.
		w.pl.Close()
		w.sl.Close()
		a.Close()
		l.say("10.0.0.2:7602")
		w.listenAt("10.0.0.2:7602", "x:1")
		began = time.Now()
		b := w.waiting()
		if took := time.Since(began); took > findRest+backoffMax {
			t.Errorf("found again after %v", took)
		}
		w.stop()
		b.Close()
	})
}

// TestLiarsAreBounded: who claims to be the primary at many addresses does not
// make the helper call at all of them, and is forgotten when it is silent; the
// primary is found then.
func TestLiarsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lan
		w := &world{t: t, pipes: inMemory(), servers: inMemory(), prepare: func(h *Helper) { h.FindWith(l.find) }}
		w.listenAt("10.0.0.1:7602", "x:1")
		w.primary = "10.0.0.250:7602"
		w.start(Config{})
		for i := range byte(100) {
			l.say(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 1, i}), 7602).String())
			time.Sleep(findRest)
			synctest.Wait()
			if n := len(w.h.Status().Pipes); n > maxFound+1 {
				t.Fatalf("%d pipes", n)
			}
		}
		l.say("10.0.0.1:7602")
		time.Sleep(keepFound + 2*findRest)
		a := w.waiting()
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
