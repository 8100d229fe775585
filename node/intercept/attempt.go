package intercept

import (
	"net"
	"net/netip"

	"mpbond/link/splice"
	"mpbond/link/wire"
)

// Attempt is a connection that an app has asked for and nobody has answered.
// One of the methods is called, once.
type Attempt interface {
	// Accept answers that the destination is reached. The conn must have
	// CloseWrite() error and SetLinger(int) error.
	Accept() (net.Conn, error)
	// Refuse answers that it is not, in the words of the wire.
	Refuse(why wire.Code)
}

// Attempt carries a connection of an app from the attempt to its end, and then
// returns.
// The far end is asked first, so that the app sees a refused or unreachable
// destination as without the bond, and can try another address at once. The
// price is the round trip which a connection costs anyway.
//
// Only destinations in private networks are tried directly, if Config.Direct
// allows: what leaves for the Internet leaves through the bond or not at all.
// IPv6 above all must not go around it where the server has none.
func (e *Edge) Attempt(attempt Attempt, app App, dest netip.AddrPort) {
	if !e.begin() {
		attempt.Refuse(wire.CodeClosed)
		return
	}
	defer e.wg.Done()
	dial := e.open
	if Private(dest.Addr()) {
		dial = e.dial
	}
	app.Network, app.Peer = "tcp", dest
	c, err := dial(app.context(e.ctx), dest.String())
	if err == nil {
		if err = e.waitOpen(e.ctx, c); err != nil {
			splice.Reset(c)
		}
	}
	if err != nil {
		e.log.Info("connection failed", "edge", "tun", "dest", dest, "err", err)
		attempt.Refuse(refusal(err))
		return
	}
	conn, err := attempt.Accept()
	if err != nil { // the app no longer wants it
		splice.Reset(c)
		return
	}
	a := e.newAppConn(conn)
	if err := e.remember(a); err != nil {
		e.logNotTaken(err)
		a.Reset()
		splice.Reset(c)
		return
	}
	defer e.wg.Done()
	e.relay("tun", a, c, dest.String())
}

// Flow carries the datagrams of one socket of an app, for which an Attempt's
// rules hold: what is refused is told, and only destinations in private
// networks are tried directly. Safe for concurrent use.
type Flow struct{ f *appFlow }

// Flow makes one for a socket of app that lives until Close. App.Peer is where its first
// datagram goes. Deliver takes what comes, and refused
// what is refused, from several goroutines; neither may call Close, and deliver
// must not keep b.
func (e *Edge) Flow(app App, deliver func(b []byte, from netip.AddrPort), refused func(*PacketRefusal)) *Flow {
	f := e.newFlow(deliver)
	app.Network = "udp"
	f.ctx = app.context(f.ctx)
	f.refused, f.private = refused, true
	return &Flow{f}
}

// Send sends a datagram or drops it. It does not block and does not keep b.
func (f *Flow) Send(b []byte, dest netip.AddrPort) { f.f.send(b, dest.String()) }

// Close ends the flow and waits until nothing of it runs any more.
func (f *Flow) Close() { f.f.close() }

func privateDest(dest string) bool {
	a, err := netip.ParseAddrPort(dest)
	return err == nil && Private(a.Addr())
}

// shared is the address space between a provider and its customers' routers
// (RFC 6598).
var shared = netip.MustParsePrefix("100.64.0.0/10")

// Private tells addresses that mean something only in networks near this
// device (RFC 1918, 4193, 6598, 3927).
func Private(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsPrivate() || a.IsLinkLocalUnicast() || shared.Contains(a)
}
