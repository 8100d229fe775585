// SPDX-License-Identifier: Apache-2.0

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
	// maxFlows bounds the UDP flows to half of those that a bond carries. A further flow replaces
	// the one that has been idle for longest.
	maxFlows = 512
	// flowIdleTimeout is how long an idle flow is kept (RFC 4787, section 4.3: at least two
	// minutes).
	flowIdleTimeout = 2 * time.Minute
)

// flows maps each UDP socket of an app to one datagram flow of the edge, for all destinations (RFC
// 4787, REQ-1).
type flows struct {
	edge          edge
	sendToApp     func(from, app netip.AddrPort, payload []byte)
	reportRefusal func(app, dest netip.AddrPort, r *intercept.PacketRefusal)
	quit          chan struct{} // closed by closeAllFlows
	wg            sync.WaitGroup

	mu     sync.Mutex
	closed bool
	byApp  map[netip.AddrPort]*flow
}

type flow struct {
	*intercept.Flow
	app      netip.AddrPort
	lastUsed atomic.Int64 // Unix time in ns
}

func newFlows(e edge, sendToApp func(from, app netip.AddrPort, payload []byte),
	reportRefusal func(app, dest netip.AddrPort, r *intercept.PacketRefusal)) *flows {
	f := &flows{edge: e, sendToApp: sendToApp, reportRefusal: reportRefusal, quit: make(chan struct{}),
		byApp: map[netip.AddrPort]*flow{}}
	f.wg.Go(f.runExpiryLoop)
	return f
}

// closeAllFlows closes all flows and waits for their goroutines.
func (f *flows) closeAllFlows() {
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

// sendFlowDatagram sends a datagram of an app. The DSCP is used when the flow is opened. It does
// not block.
func (f *flows) sendFlowDatagram(app intercept.App, dest netip.AddrPort, payload []byte) {
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

// openFlow opens the flow of an app's socket. mu must be held.
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

// dropFlow ends a flow. The next datagram of its app opens another one. mu must be held.
func (f *flows) dropFlow(fl *flow) {
	delete(f.byApp, fl.app)
	f.wg.Go(fl.Close)
}

// runExpiryLoop drops idle flows until closeAllFlows.
func (f *flows) runExpiryLoop() {
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
