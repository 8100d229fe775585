// SPDX-License-Identifier: Apache-2.0

package intercept

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"mpbond/link/udpsock"
	"mpbond/link/wire"
)

// appFlow carries the datagrams of one socket of an app. It uses a flow of the bond, which it opens
// when needed and again after it has ended. Destinations that the far end cannot reach or does not
// allow are reached directly.
type appFlow struct {
	edge *Edge
	// deliver gets incoming datagrams, from several goroutines. It must not keep b.
	deliver func(b []byte, from netip.AddrPort)
	// refused gets the refusals of destinations that are not tried directly, from the same
	// goroutines. It may be nil.
	refused     func(*PacketRefusal)
	privateOnly bool            // only private addresses are tried directly
	ctx         context.Context // ends with close
	cancel      context.CancelFunc
	wg          sync.WaitGroup

	mu          sync.Mutex
	closed      bool
	conn        PacketConn              // nil: no flow is open
	direct      map[string]net.Conn     // destinations outside the bond; nil: not connected (yet)
	early       [maxEarly]earlyDatagram // the newest datagrams, to be repeated directly
	earlyNext   int
	lastRefusal time.Time // when a refusal by the Dialer was last reported

	receivedAny atomic.Bool // something came over the bond
}

type earlyDatagram struct {
	b    []byte
	dest string
	at   time.Time
}

const (
	// maxEarly datagrams of at most maxEarlySize are kept for earlyLifetime. If they are refused
	// they are sent directly, so that a query to a home router is answered at once.
	maxEarly      = 8
	maxEarlySize  = 2048
	earlyLifetime = 3 * time.Second
	// refusalInterval is the least time between reports to an app that its datagrams are not
	// carried.
	refusalInterval = 100 * time.Millisecond
	// maxDirectDests bounds the direct destinations of a flow.
	maxDirectDests = 64
)

func (e *Edge) newAppFlow(deliver func([]byte, netip.AddrPort)) *appFlow {
	f := &appFlow{edge: e, deliver: deliver, direct: map[string]net.Conn{}}
	f.ctx, f.cancel = context.WithCancel(e.ctx)
	return f
}

// sendAppDatagram sends or drops a datagram of the app. It does not block.
func (f *appFlow) sendAppDatagram(b []byte, dest string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	to, direct := f.direct[dest]
	if to != nil {
		writeDirect(to, b)
		return
	}
	if (f.edge.cfg.Direct != nil || f.edge.cfg.Around != nil) && len(b) <= maxEarlySize {
		k := &f.early[f.earlyNext%maxEarly]
		k.b, k.dest, k.at = append(k.b[:0], b...), dest, time.Now()
		f.earlyNext++
	}
	if direct || f.conn == nil && !f.openBondFlow() {
		return
	}
	err := f.conn.Send(b, dest)
	var ended wire.Reset
	if errors.As(err, &ended) && f.openBondFlow() {
		err = f.conn.Send(b, dest)
	}
	var blocked *PacketRefusal
	switch {
	case errors.Is(err, ErrAround):
		f.bypassBondFor(dest)
	case errors.As(err, &blocked) && f.refused != nil && time.Since(f.lastRefusal) >= refusalInterval:
		f.lastRefusal = time.Now()
		f.wg.Go(func() { f.refused(blocked) })
	}
}

// bypassBondFor sends datagrams for dest around the bond from now on, including the present one. mu
// must be held.
func (f *appFlow) bypassBondFor(dest string) {
	if len(f.direct) < maxDirectDests {
		f.direct[dest] = nil
		f.wg.Go(func() { f.carryDirect(f.edge.dialAround, dest) })
	}
}

// openBondFlow opens a flow of the bond. mu must be held.
func (f *appFlow) openBondFlow() bool {
	f.conn = nil
	c, err := f.edge.cfg.Packets.DialPackets(f.ctx)
	if err != nil {
		f.edge.log.Debug("no datagram flow", "err", err)
		return false
	}
	f.conn = c
	f.wg.Go(func() { f.receiveFrom(c) })
	return true
}

// receiveFrom delivers datagrams from a flow of the bond until it ends.
func (f *appFlow) receiveFrom(c PacketConn) {
	take := receiveFunc(c)
	for {
		b, from, err := take()
		var r *PacketRefusal
		switch {
		case errors.As(err, &r):
			f.sendRefusedDirect(r)
		case err != nil:
			f.mu.Lock()
			if f.conn == c {
				f.conn = nil
			}
			f.mu.Unlock()
			c.Close()
			return
		default:
			f.receivedAny.Store(true)
			f.deliver(b, from)
		}
	}
}

// sendRefusedDirect sends datagrams to a refused destination directly from now on, including the
// refused ones. If that cannot help, it reports the refusal to the app.
func (f *appFlow) sendRefusedDirect(r *PacketRefusal) {
	if !f.mayGoDirect(r) {
		f.edge.log.Debug("datagrams refused", "dest", r.Dest, "why", r)
		f.deliverRefusal(r)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.direct[r.Dest]; ok || f.closed || len(f.direct) >= maxDirectDests {
		return
	}
	f.edge.log.Info("datagrams go direct", "dest", r.Dest, "why", r)
	f.direct[r.Dest] = nil
	f.wg.Go(func() { f.carryDirect(f.edge.cfg.Direct, r.Dest) })
}

// mayGoDirect reports whether a refused destination may be reached around the bond.
func (f *appFlow) mayGoDirect(r *PacketRefusal) bool {
	if f.edge.cfg.Direct == nil || !mayWorkDirect(wire.Reset{Code: r.Code}) {
		return false
	}
	if isPrivateDest(r.Dest) {
		return true
	}
	// If the flow works, a destination that is unreachable once stays with the bond.
	return !f.privateOnly && !(r.Code == wire.CodeUnreachable && f.receivedAny.Load())
}

func (f *appFlow) deliverRefusal(r *PacketRefusal) {
	if f.refused != nil {
		f.refused(r)
	}
}

// carryDirect connects to a direct destination and delivers its datagrams.
func (f *appFlow) carryDirect(dial func(ctx context.Context, network, dest string) (net.Conn, error), dest string) {
	c, err := dial(f.ctx, "udp", dest)
	if err != nil {
		f.edge.log.Info("datagrams lost", "dest", dest, "err", err)
		f.deliverRefusal(&PacketRefusal{Dest: dest, Code: refusalCode(err), Text: err.Error()})
		return
	}
	defer c.Close()
	stop := context.AfterFunc(f.ctx, func() { c.Close() })
	defer stop()
	u, _ := c.(*net.UDPConn)
	if u != nil && f.refused != nil {
		if err := udpsock.EnableFailures(u); err != nil {
			f.edge.log.Debug("ICMP errors are not passed on", "dest", dest, "err", err)
		}
	}
	f.mu.Lock()
	f.direct[dest] = c
	f.replayEarly(dest, c)
	f.mu.Unlock()
	if u != nil {
		udpsock.Receive(u, func(b []byte, from netip.AddrPort) bool { f.deliver(b, from); return true },
			func(e udpsock.Failure) {
				f.deliverRefusal(icmpRefusal(dest, e))
			})
	}
}

// icmpRefusal converts an ICMP error to a refusal.
func icmpRefusal(dest string, e udpsock.Failure) *PacketRefusal {
	r := &PacketRefusal{Dest: dest, Code: refusalCode(e.Err), Text: dest + ": " + e.Err.Error()}
	if e.Err == syscall.EMSGSIZE {
		r.Code, r.MTU = wire.CodeTooBig, e.MTU
	}
	return r
}

// writeDirect sends a datagram to a direct destination; it may be lost.
func writeDirect(c net.Conn, b []byte) {
	if u, ok := c.(*net.UDPConn); ok {
		_ = udpsock.Send(u, b, netip.AddrPort{})
		return
	}
	_, _ = c.Write(b)
}

// replayEarly sends the early datagrams to a destination, once.
func (f *appFlow) replayEarly(dest string, c net.Conn) {
	for i := range f.early {
		k := &f.early[(f.earlyNext+i)%maxEarly]
		if k.dest == dest {
			k.dest = ""
			if time.Since(k.at) < earlyLifetime {
				writeDirect(c, k.b)
			}
		}
	}
}

// closeAppFlow ends the flow and waits until deliver is no longer called.
func (f *appFlow) closeAppFlow() {
	f.mu.Lock()
	f.closed = true
	if f.conn != nil {
		f.conn.Close()
	}
	f.mu.Unlock()
	f.cancel() // also ends direct connections
	f.wg.Wait()
}

// receiveFunc returns a function that waits for datagrams of c. If c has Take, it returns c's own
// bytes, so that an idle flow needs no buffer.
func receiveFunc(c PacketConn) func() ([]byte, netip.AddrPort, error) {
	if t, ok := c.(interface {
		Take() ([]byte, netip.AddrPort, error)
	}); ok {
		return t.Take
	}
	b := make([]byte, udpsock.MaxPayload)
	return func() ([]byte, netip.AddrPort, error) {
		n, from, err := c.Receive(b)
		return b[:n], from, err
	}
}
