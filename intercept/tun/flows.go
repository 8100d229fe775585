package tun

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"mpbond/intercept"
)

const (
	// maxFlows bounds the UDP flows, each of which has a buffer of 64 KB, to
	// half of what a bond carries. A new one then takes the place of the one
	// unused for longest.
	maxFlows = 512
	// flowIdle is how long an unused flow is kept (RFC 4787, section 4.3: not
	// less than two minutes).
	flowIdle = 2 * time.Minute
	// flowLook is how exactly that is kept.
	flowLook = 10 * time.Second
)

// flows maps the UDP sockets of apps to datagram flows of the bond, one each,
// whatever their destinations (RFC 4787, REQ-1).
type flows struct {
	dial   intercept.PacketDialer // nil: datagrams are refused
	answer func(from, app netip.AddrPort, payload []byte)
	tell   func(app, dest netip.AddrPort, why reason)
	log    *slog.Logger
	ctx    context.Context
	cancel context.CancelFunc

	mu     sync.Mutex
	closed bool
	m      map[netip.AddrPort]*flow
	wg     sync.WaitGroup // receivers; Add under mu
}

type flow struct {
	app  netip.AddrPort
	conn intercept.PacketConn

	used time.Time // guarded by flows.mu
}

func newFlows(dial intercept.PacketDialer, answer func(from, app netip.AddrPort, payload []byte), tell func(app, dest netip.AddrPort, why reason), log *slog.Logger) *flows {
	f := &flows{dial: dial, answer: answer, tell: tell, log: log, m: map[netip.AddrPort]*flow{}}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f
}

// close closes all flows and waits for their receivers.
func (f *flows) close() {
	f.mu.Lock()
	f.closed = true
	f.cancel()
	for _, fl := range f.m {
		fl.conn.Close()
	}
	f.mu.Unlock()
	f.wg.Wait()
}

// send sends a datagram of an app. It does not block.
func (f *flows) send(app, dest netip.AddrPort, payload []byte) {
	if f.dial == nil {
		// QUIC goes over to TCP at once.
		f.tell(app, dest, prohibited)
		return
	}
	// A flow that the far end ended may take one datagram with it, no more.
	for range 2 {
		fl, err := f.get(app)
		if err != nil {
			f.log.Debug("datagram dropped", "app", app, "dest", dest, "err", err)
			return
		}
		if err := fl.conn.Send(payload, dest.String()); err == nil {
			return
		}
		f.drop(fl)
	}
}

// get finds the flow of an app's socket or opens one.
func (f *flows) get(app netip.AddrPort) (*flow, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, net.ErrClosed
	}
	now := time.Now()
	if fl := f.m[app]; fl != nil {
		fl.used = now
		return fl, nil
	}
	if len(f.m) >= maxFlows {
		var oldest *flow
		for _, fl := range f.m {
			if oldest == nil || fl.used.Before(oldest.used) {
				oldest = fl
			}
		}
		delete(f.m, oldest.app)
		oldest.conn.Close()
	}
	c, err := f.dial.DialPackets(f.ctx)
	if err != nil {
		return nil, err
	}
	fl := &flow{app: app, conn: c, used: now}
	f.m[app] = fl
	f.wg.Go(func() { f.receive(fl) })
	return fl, nil
}

// drop closes a flow. The next datagram of its app opens another.
func (f *flows) drop(fl *flow) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.m[fl.app] == fl {
		delete(f.m, fl.app)
	}
	fl.conn.Close()
}

// idle tells whether a flow was unused for long, and closes it then.
func (f *flows) idle(fl *flow) bool {
	f.mu.Lock()
	idle := time.Since(fl.used) >= flowIdle
	f.mu.Unlock()
	return idle
}

// receive hands datagrams from the far end to the app until the flow ends.
func (f *flows) receive(fl *flow) {
	defer f.drop(fl)
	b := make([]byte, 64<<10)
	for {
		if fl.conn.SetReadDeadline(time.Now().Add(flowLook)) != nil {
			return
		}
		n, from, err := fl.conn.Receive(b)
		var refused *intercept.PacketRefusal
		switch {
		case err == nil:
			f.mu.Lock()
			fl.used = time.Now()
			f.mu.Unlock()
			f.answer(from, fl.app, b[:n])
		case errors.Is(err, os.ErrDeadlineExceeded):
			if f.idle(fl) {
				return
			}
		case errors.As(err, &refused):
			if dest, err := netip.ParseAddrPort(refused.Dest); err == nil {
				f.log.Debug("datagrams refused", "dest", dest, "why", refused.Text)
				f.tell(fl.app, dest, reasonFor(refused.Code))
			}
		default:
			return
		}
	}
}
