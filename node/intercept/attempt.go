// SPDX-License-Identifier: Apache-2.0

package intercept

import (
	"net"
	"net/netip"

	"mpbond/link/splice"
	"mpbond/link/wire"
)

// Attempt is an app's connection attempt that was not answered yet. Exactly one method must be
// called, once.
type Attempt interface {
	// Accept answers that the destination is reached. The returned conn must have CloseWrite()
	// error and SetLinger(int) error.
	Accept() (net.Conn, error)
	// Refuse answers that the destination is not reached, for the given reason.
	Refuse(why wire.Code)
}

// ServeAttempt carries a connection of an app from its attempt to its end, and then returns. The
// far end is asked first. So the app sees a refused or unreachable destination as it would without
// the bond, and can try another address at once. This costs the round trip that a connection needs
// anyway.
//
// Config.Direct is used only for destinations in private networks. All other traffic uses the bond
// or fails. In particular IPv6 must not bypass a bond with a server without IPv6.
func (e *Edge) ServeAttempt(attempt Attempt, app App, dest netip.AddrPort) {
	if !e.beginEdgeWork() {
		attempt.Refuse(wire.CodeClosed)
		return
	}
	defer e.wg.Done()
	dial := e.openStreamToDest
	if IsPrivate(dest.Addr()) {
		dial = e.dialWithFallback
	}
	app.Network, app.Peer = "tcp", dest
	c, err := dial(app.contextWithApp(e.ctx), dest.String())
	if err == nil {
		if err = e.awaitOpenAnswer(e.ctx, c); err != nil {
			splice.Reset(c)
		}
	}
	if err != nil {
		e.log.Info("connection failed", "edge", "tun", "dest", dest, "err", err)
		attempt.Refuse(refusalCode(err))
		return
	}
	conn, err := attempt.Accept()
	if err != nil { // the app has given up
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

// Flow carries the datagrams of one socket of an app, by the rules of an Attempt: refusals are
// reported, and only destinations in private networks are tried directly. Safe for concurrent use.
type Flow struct{ f *appFlow }

// NewFlow returns a Flow for a socket of app, which lives until Close. App.Peer is the destination
// of its first datagram. deliver gets incoming datagrams, refused gets refusals. Several goroutines
// call them. Neither may call Close, and deliver must not keep b.
func (e *Edge) NewFlow(app App, deliver func(b []byte, from netip.AddrPort), refused func(*PacketRefusal)) *Flow {
	f := e.newAppFlow(deliver)
	app.Network = "udp"
	f.ctx = app.contextWithApp(f.ctx)
	f.refused, f.privateOnly = refused, true
	return &Flow{f}
}

// Send sends a datagram or drops it. It does not block and does not keep b.
func (f *Flow) Send(b []byte, dest netip.AddrPort) { f.f.sendAppDatagram(b, dest.String()) }

// Close ends the flow and waits for its goroutines.
func (f *Flow) Close() { f.f.closeAppFlow() }

func isPrivateDest(dest string) bool {
	a, err := netip.ParseAddrPort(dest)
	return err == nil && IsPrivate(a.Addr())
}

// sharedAddressSpace is used between a provider and its customers' routers (RFC 6598).
var sharedAddressSpace = netip.MustParsePrefix("100.64.0.0/10")

// IsPrivate reports whether an address is valid only in networks near this device (RFC 1918, 4193,
// 6598, 3927).
func IsPrivate(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsPrivate() || a.IsLinkLocalUnicast() || sharedAddressSpace.Contains(a)
}
