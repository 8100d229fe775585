package intercept

import (
	"context"
	"net"
	"net/netip"
)

// App is what is known of the app that asks for a connection.
type App struct {
	// Addr is its end of the connection to this device's proxy or redirection, or
	// of the one that a TUN device took.
	Addr netip.AddrPort
	// DSCP is that of its first packet (RFC 2474), 0 where the system does not
	// tell: later changes are not seen.
	DSCP uint8
	// Network is "tcp" or "udp", and Peer the other end of Addr's socket as the app
	// sees it: they tell whose it is. Peer is not valid where it is not known.
	Network string
	Peer    netip.AddrPort
	// ByRun tells that the socket is that of `mpbond run`, which asks for its app.
	ByRun bool
	// Name is what the app calls the destination, where it gives an address and
	// says it nevertheless.
	Name string
}

type appKey struct{}

// AppOf returns what a Dialer may know of the app that it dials for.
func AppOf(ctx context.Context) (App, bool) {
	a, ok := ctx.Value(appKey{}).(App)
	return a, ok
}

// withApp is ctx with what is known of the app.
func (a *appConn) withApp(ctx context.Context) context.Context {
	return a.appInfo().withApp(ctx)
}

// appInfo is what is known of the app.
func (a *appConn) appInfo() App {
	app := App{Network: "tcp", Addr: tcpAddrPort(a.Conn.RemoteAddr()), Peer: tcpAddrPort(a.Conn.LocalAddr())}
	if t, ok := a.Conn.(*net.TCPConn); ok {
		app.DSCP = dscpOf(t)
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

// withApp is ctx with what is known of the app.
func (a App) withApp(ctx context.Context) context.Context {
	return context.WithValue(ctx, appKey{}, a)
}

// Listen opens a port for apps, as net.Listen does. It is no MPTCP socket, as those of
// Go are by default: these do not tell the DSCP of a connection's first packet.
func Listen(network, addr string) (net.Listener, error) {
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	return lc.Listen(context.Background(), network, addr)
}

// HeaderDSCP is the DSCP in an IP header: bits 8 to 13 of IPv4 (RFC 791), 4 to
// 9 of IPv6 (RFC 8200).
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
