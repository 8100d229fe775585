//go:build linux && !router

package tun

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"mpbond/node/intercept"
)

const (
	// maxFlows bounds the UDP flows, to half of what a bond carries. A new one
	// then takes the place of the one unused for longest.
	maxFlows = 512
	// flowIdle is how long an unused flow is kept (RFC 4787, section 4.3: not
	// less than two minutes).
	flowIdle = 2 * time.Minute
)

// flows maps the UDP sockets of apps to datagram flows of the edge, one each,
// whatever their destinations (RFC 4787, REQ-1).
type flows struct {
	edge   edge
	answer func(from, app netip.AddrPort, payload []byte)
	tell   func(app, dest netip.AddrPort, r *intercept.PacketRefusal)
	quit   chan struct{} // closed by close
	wg     sync.WaitGroup

	mu     sync.Mutex
	closed bool
	m      map[netip.AddrPort]*flow
}

type flow struct {
	*intercept.Flow
	app  netip.AddrPort
	used atomic.Int64 // UnixNano
}

func newFlows(e edge, answer func(from, app netip.AddrPort, payload []byte), tell func(app, dest netip.AddrPort, r *intercept.PacketRefusal)) *flows {
	f := &flows{edge: e, answer: answer, tell: tell, quit: make(chan struct{}), m: map[netip.AddrPort]*flow{}}
	f.wg.Go(f.clean)
	return f
}

// close closes all flows and waits until nothing of them runs any more.
func (f *flows) close() {
	f.mu.Lock()
	f.closed = true
	old := f.m
	f.m = nil
	f.mu.Unlock()
	close(f.quit)
	for _, fl := range old {
		fl.Close()
	}
	f.wg.Wait()
}

// send sends a datagram of an app, whose DSCP counts when the flow is opened. It
// does not block.
func (f *flows) send(app intercept.App, dest netip.AddrPort, payload []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	fl := f.m[app.Addr]
	if fl == nil {
		fl = f.open(app)
	}
	fl.used.Store(time.Now().UnixNano())
	fl.Send(payload, dest)
}

// open makes the flow of an app's socket. The caller holds mu.
func (f *flows) open(app intercept.App) *flow {
	if len(f.m) >= maxFlows {
		var oldest *flow
		for _, fl := range f.m {
			if oldest == nil || fl.used.Load() < oldest.used.Load() {
				oldest = fl
			}
		}
		f.drop(oldest)
	}
	fl := &flow{app: app.Addr}
	fl.Flow = f.edge.Flow(app, func(b []byte, from netip.AddrPort) {
		fl.used.Store(time.Now().UnixNano())
		f.answer(from, app.Addr, b)
	}, func(r *intercept.PacketRefusal) {
		if dest, err := netip.ParseAddrPort(r.Dest); err == nil {
			f.tell(app.Addr, dest, r)
		}
	})
	f.m[app.Addr] = fl
	return fl
}

// drop ends a flow. The next datagram of its app opens another. The caller
// holds mu.
func (f *flows) drop(fl *flow) {
	delete(f.m, fl.app)
	f.wg.Go(fl.Close)
}

// clean drops flows that are unused for long, until close.
func (f *flows) clean() {
	t := time.NewTicker(flowIdle / 8)
	defer t.Stop()
	for {
		select {
		case <-f.quit:
			return
		case now := <-t.C:
			f.mu.Lock()
			for _, fl := range f.m {
				if now.UnixNano()-fl.used.Load() >= int64(flowIdle) {
					f.drop(fl)
				}
			}
			f.mu.Unlock()
		}
	}
}
