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

// ServeAttempt carries a connection of an app from the attempt to its end, and then
// returns.
// The far end is asked first, so that the app sees a refused or unreachable
// destination as without the bond, and can try another address at once. The
// price is the round trip which a connection costs anyway.
//
// Only destinations in private networks are tried directly, if Config.Direct
// allows: what leaves for the Internet leaves through the bond or not at all.
// IPv6 above all must not go around it where the server has none.
func (e *Edge) ServeAttempt(attempt Attempt, app App, dest netip.AddrPort) {
	if !e.beginWork() {
		attempt.Refuse(wire.CodeClosed)
		return
	}
	defer e.wg.Done()
	dial := e.openStream
	if IsPrivate(dest.Addr()) {
		dial = e.dialWithFallback
	}
	app.Network, app.Peer = "tcp", dest
	c, err := dial(app.withApp(e.ctx), dest.String())
	if err == nil {
		if err = e.awaitOpen(e.ctx, c); err != nil {
			splice.Reset(c)
		}
	}
	if err != nil {
		e.log.Info("connection failed", "edge", "tun", "dest", dest, "err", err)
		attempt.Refuse(refusalCode(err))
		return
	}
	conn, err := attempt.Accept()
	if err != nil { // the app no longer wants it
		splice.Reset(c)
		return
	}
	a := e.newAppConn(conn)
	if err := e.registerConn(a); err != nil {
		e.logRejected(err)
		a.Reset()
		splice.Reset(c)
		return
	}
	defer e.wg.Done()
	e.relayConn("tun", a, c, dest.String())
}

// Flow carries the datagrams of one socket of an app, for which an Attempt's
// rules hold: what is refused is told, and only destinations in private
// networks are tried directly. Safe for concurrent use.
type Flow struct{ f *appFlow }

// NewFlow makes one for a socket of app that lives until Close. App.Peer is where its first
// datagram goes. Deliver takes what comes, and refused
// what is refused, from several goroutines; neither may call Close, and deliver
// must not keep b.
func (e *Edge) NewFlow(app App, deliver func(b []byte, from netip.AddrPort), refused func(*PacketRefusal)) *Flow {
	f := e.newAppFlow(deliver)
	app.Network = "udp"
	f.ctx = app.withApp(f.ctx)
	f.refused, f.privateOnly = refused, true
	return &Flow{f}
}

// Send sends a datagram or drops it. It does not block and does not keep b.
func (f *Flow) Send(b []byte, dest netip.AddrPort) { f.f.sendDatagram(b, dest.String()) }

// Close ends the flow and waits until nothing of it runs any more.
func (f *Flow) Close() { f.f.close() }

func isPrivateDest(dest string) bool {
	a, err := netip.ParseAddrPort(dest)
	return err == nil && IsPrivate(a.Addr())
}

// sharedAddressSpace is the address space between a provider and its customers' routers
// (RFC 6598).
var sharedAddressSpace = netip.MustParsePrefix("100.64.0.0/10")

// IsPrivate tells addresses that mean something only in networks near this
// device (RFC 1918, 4193, 6598, 3927).
func IsPrivate(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsPrivate() || a.IsLinkLocalUnicast() || sharedAddressSpace.Contains(a)
}
