// SPDX-License-Identifier: Apache-2.0

package intercept

import (
	"context"
	"net"
	"net/netip"
)

// App describes the app that asks for a connection.
type App struct {
	// Addr is the app's end of its connection to the proxy, to the redirection port, or through a
	// TUN device.
	Addr netip.AddrPort
	// DSCP is the DSCP of the app's first packet (RFC 2474); 0 if unknown. Later changes are not
	// seen.
	DSCP uint8
	// Network is "tcp" or "udp". Peer is the other end of the app's socket, as the app sees it.
	// Together with Addr they identify the socket's owner. Peer is invalid if unknown.
	Network string
	Peer    netip.AddrPort
	// ByRun reports that the socket belongs to `mpbond run`, which connects on behalf of its app.
	ByRun bool
	// Name is the app's own name for the destination, if it connects to an address and also sends a
	// name.
	Name string
}

type appKey struct{}

// AppOf returns the app for which a Dialer opens a connection.
func AppOf(ctx context.Context) (App, bool) {
	a, ok := ctx.Value(appKey{}).(App)
	return a, ok
}

// withConnApp returns ctx with the description of the app.
func (a *appConn) withConnApp(ctx context.Context) context.Context {
	return a.describeApp().contextWithApp(ctx)
}

// describeApp returns the description of the app.
func (a *appConn) describeApp() App {
	app := App{Network: "tcp", Addr: tcpAddrPort(a.Conn.RemoteAddr()), Peer: tcpAddrPort(a.Conn.LocalAddr())}
	if t, ok := a.Conn.(*net.TCPConn); ok {
		app.DSCP = dscpOfSavedSYN(t)
	}
	return app
}

func tcpAddrPort(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(t.AddrPort().Addr().Unmap(), t.AddrPort().Port())
}

// contextWithApp returns ctx with a.
func (a App) contextWithApp(ctx context.Context) context.Context {
	return context.WithValue(ctx, appKey{}, a)
}

// Listen opens a port for apps, as net.Listen does. It does not use MPTCP, Go's default: MPTCP
// sockets do not report the DSCP of a connection's first packet.
func Listen(network, addr string) (net.Listener, error) {
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	return lc.Listen(context.Background(), network, addr)
}

// HeaderDSCP returns the DSCP in an IP header: bits 8 to 13 of IPv4 (RFC 791), 4 to 9 of IPv6 (RFC
// 8200).
func HeaderDSCP(h []byte) uint8 {
	if len(h) < 2 {
		return 0
	}
	switch h[0] >> 4 {
	case 4:
		return h[1] >> 2
	case 6:
		return (h[0]&0xf)<<2 | h[1]>>6
	}
	return 0
}
