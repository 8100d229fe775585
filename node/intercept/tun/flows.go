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
	// flowIdleTimeout is how long an unused flow is kept (RFC 4787, section 4.3: not
	// less than two minutes).
	flowIdleTimeout = 2 * time.Minute
)

// flows maps the UDP sockets of apps to datagram flows of the edge, one each,
// whatever their destinations (RFC 4787, REQ-1).
type flows struct {
	edge          edge
	sendToApp     func(from, app netip.AddrPort, payload []byte)
	reportRefusal func(app, dest netip.AddrPort, r *intercept.PacketRefusal)
	quit          chan struct{} // closed by close
	wg            sync.WaitGroup

	mu     sync.Mutex
	closed bool
	byApp  map[netip.AddrPort]*flow
}

type flow struct {
	*intercept.Flow
	app      netip.AddrPort
	lastUsed atomic.Int64 // UnixNano
}

func newFlows(e edge, sendToApp func(from, app netip.AddrPort, payload []byte), reportRefusal func(app, dest netip.AddrPort, r *intercept.PacketRefusal)) *flows {
	f := &flows{edge: e, sendToApp: sendToApp, reportRefusal: reportRefusal, quit: make(chan struct{}), byApp: map[netip.AddrPort]*flow{}}
	f.wg.Go(f.expireFlows)
	return f
}

// closeAll closes all flows and waits until nothing of them runs any more.
func (f *flows) closeAll() {
	f.mu.Lock()
	f.closed = true
	old := f.byApp
	f.byApp = nil
	f.mu.Unlock()
	close(f.quit)
	for _, fl := range old {
		fl.Close()
	}
	f.wg.Wait()
}

// sendDatagram sends a datagram of an app, whose DSCP counts when the flow is opened. It
// does not block.
func (f *flows) sendDatagram(app intercept.App, dest netip.AddrPort, payload []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	fl := f.byApp[app.Addr]
	if fl == nil {
		fl = f.openFlow(app)
	}
	fl.lastUsed.Store(time.Now().UnixNano())
	fl.Send(payload, dest)
}

// openFlow makes the flow of an app's socket. The caller holds mu.
func (f *flows) openFlow(app intercept.App) *flow {
	if len(f.byApp) >= maxFlows {
		var oldest *flow
		for _, fl := range f.byApp {
			if oldest == nil || fl.lastUsed.Load() < oldest.lastUsed.Load() {
				oldest = fl
			}
		}
		f.dropFlow(oldest)
	}
	fl := &flow{app: app.Addr}
	fl.Flow = f.edge.NewFlow(app, func(b []byte, from netip.AddrPort) {
		fl.lastUsed.Store(time.Now().UnixNano())
		f.sendToApp(from, app.Addr, b)
	}, func(r *intercept.PacketRefusal) {
		if dest, err := netip.ParseAddrPort(r.Dest); err == nil {
			f.reportRefusal(app.Addr, dest, r)
		}
	})
	f.byApp[app.Addr] = fl
	return fl
}

// dropFlow ends a flow. The next datagram of its app opens another. The caller
// holds mu.
func (f *flows) dropFlow(fl *flow) {
	delete(f.byApp, fl.app)
	f.wg.Go(fl.Close)
}

// expireFlows drops flows that are unused for long, until close.
func (f *flows) expireFlows() {
	t := time.NewTicker(flowIdleTimeout / 8)
	defer t.Stop()
	for {
		select {
		case <-f.quit:
			return
		case now := <-t.C:
			f.mu.Lock()
			for _, fl := range f.byApp {
				if now.UnixNano()-fl.lastUsed.Load() >= int64(flowIdleTimeout) {
					f.dropFlow(fl)
				}
			}
			f.mu.Unlock()
		}
	}
}
