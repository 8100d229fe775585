package helper

import (
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"mpbond/device"
	"mpbond/pipe"
)

// TestOwnerGoesFirst: while the owner uses the interface that a relay's HS-path
// has, both ends of that keep to a limit, and no longer than that. Who the owner
// is does not matter: a program that only the counters know, or a primary in
// this process where there are no counters.
func TestOwnerGoesFirst(t *testing.T) {
	start := time.Now()
	for name, prepare := range map[string]func(m *manager, own func() uint64){
		"any program": func(m *manager, own func() uint64) {
			m.counters = func() (map[string]device.Counters, error) {
				return map[string]device.Counters{"wwan0": {Rx: 1 + own(), Tx: 1 + own()}, "lo": {}}, nil
			}
		},
		"a primary here": func(m *manager, own func() uint64) {
			m.counters = func() (map[string]device.Counters, error) { return nil, os.ErrPermission }
			m.own = func() map[string]device.Flow {
				return map[string]device.Flow{"x/1": {Local: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1}, Rx: own(), Tx: own()}}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var busy atomic.Bool
			moved, last := uint64(0), start // asked by one goroutine
			own := func() uint64 {
				now := time.Now()
				if busy.Load() {
					moved += uint64(now.Sub(last) / time.Microsecond) // 8 Mbit/s
				}
				last = now
				return moved
			}
			w := &world{t: t, pipes: overTCP(), servers: overTCP(), prepare: func(h *Helper) {
				h.manager.interfaceOf = func(net.Addr) string { return "wwan0" }
				prepare(h.manager, own)
			}}
			w.listen("127.0.0.1:0")
			w.start(Config{})
			_, server, conn := w.subflow()
			go func() { _, _ = server.Read(make([]byte, 1)) }() // limits come between data
			limited := func() (down, up bool) {
				p, err := conn.Probe()
				if err != nil {
					t.Fatal(err)
				}
				w.h.mu.Lock()
				defer w.h.mu.Unlock()
				for r := range w.h.relays {
					h, _ := r.hs.Probe()
					up = h.Limit > 0
				}
				return p.Limit > 0, up
			}
			busy.Store(true)
			eventually(t, "both ends are limited", func() bool { down, up := limited(); return down && up })
			if l := w.h.Status().Lent; len(l) != 1 || l[0].Interface != "wwan0" || !l[0].Down.Limited || l[0].Down.Own == 0 {
				t.Errorf("status: %+v", l)
			}
			busy.Store(false)
			eventually(t, "no end is limited", func() bool { down, up := limited(); return !down && !up })
		})
	}
}

// TestNoNetwork: what stays in the machine is nobody's link.
func TestNoNetwork(t *testing.T) {
	if networkOf(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 5}) != "" {
		t.Error("loopback counts as a network")
	}
	a, _ := pipe.MemoryPipe()
	if networkOf(a.LocalAddr()) != "" {
		t.Error("memory counts as a network")
	}
}
