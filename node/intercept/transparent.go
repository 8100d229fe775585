// SPDX-License-Identifier: Apache-2.0

//go:build linux

package intercept

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// ListenTransparent listens for redirected connections on 127.0.0.1 and, if the machine has IPv6,
// on [::1], with the same port; port 0 chooses one. The kernel redirects outgoing connections to
// exactly these addresses.
func ListenTransparent(port uint16) ([]net.Listener, error) {
	list, err := listenPair("tcp", port, func(network string, at netip.AddrPort) (net.Listener,
		error) {
		return Listen(network, at.String())
	})
	if err != nil {
		return nil, fmt.Errorf("listening for redirected connections: %w", err)
	}
	return list, nil
}

// ServeTransparent serves connections that the kernel redirected to ln (see Redirect) until Close,
// and then returns nil. A connection that was made to ln directly may ask for a SOCKS5 UDP
// association, as Redirect does for the datagrams of its app. Others are reset.
func (e *Edge) ServeTransparent(ln net.Listener) error {
	return e.acceptAppConns(ln, func(a *appConn) {
		dest, err := originalTCPDest(a.Conn)
		if errors.Is(err, errNotRedirected) && e.cfg.Packets != nil {
			e.serveAssociationOnly(a)
			return
		}
		if err != nil {
			// Only Debug, because Redirect probes the listener this way.
			e.log.Debug("redirected connection refused", "app", a.RemoteAddr(), "err", err)
			a.Reset()
			return
		}
		e.markConnActive(a) // the kernel has accepted it
		app := a.describeApp()
		app.Peer = dest // as its socket sees it
		app.Name = e.readServerName(a, dest)
		c, err := e.dialWithFallback(app.contextWithApp(e.ctx), dest.String())
		if err != nil {
			e.log.Info("redirected connection failed", "dest", dest, "err", err)
			a.Reset()
			return
		}
		e.relayConn("redirect", a, c, dest.String())
	})
}

// serveAssociationOnly serves a connection that may ask for an association and nothing else.
func (e *Edge) serveAssociationOnly(a *appConn) {
	a.SetDeadline(time.Now().Add(handshakeTimeout)) //nolint:errcheck // reading reports it
	if b, err := a.peekByte(); err != nil {
		a.CloseInOrder() //nolint:errcheck // it has asked for nothing
	} else if b != socksVersion {
		e.log.Debug("redirected connection refused", "app", a.RemoteAddr(), "err", errNotRedirected)
		a.Reset()
	} else if _, from, err := socksHandshake(a); err != nil || from == nil {
		e.log.Debug("redirected connection refused", "app", a.RemoteAddr(), "err", cmp.Or(err, errNotRedirected))
		a.Reset()
	} else {
		e.markConnActive(a)
		e.serveAssociation(a, *from, true)
	}
}

var errNotRedirected = errors.New("the connection was not redirected: only `mpbond run` uses this port; use " +
	"the proxy port")

// originalTCPDest returns the app's original destination from connection tracking.
func originalTCPDest(c net.Conn) (netip.AddrPort, error) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return netip.AddrPort{}, errors.New("only TCP connections are redirected")
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, err
	}
	local := tcp.LocalAddr().(*net.TCPAddr).AddrPort()
	var dest netip.AddrPort
	var serr error
	err = raw.Control(func(fd uintptr) {
		if local.Addr().Unmap().Is4() {
			dest, serr = originalIPv4(int(fd))
		} else {
			dest, serr = originalIPv6(int(fd))
		}
	})
	if err := errors.Join(err, serr); err != nil {
		return netip.AddrPort{}, fmt.Errorf("unknown destination: %w", err)
	}
	if dest == netip.AddrPortFrom(local.Addr().Unmap(), local.Port()) {
		return netip.AddrPort{}, errNotRedirected
	}
	return dest, nil
}

// SO_ORIGINAL_DST returns a sockaddr. x/sys/unix cannot read this option, but it reads others whose
// structures have room for one:
//
//	sockaddr_in   family (2) | port (2) | address (4) | zero (8)
//	sockaddr_in6  family (2) | port (2) | flow (4) | address (16) | scope (4)
//
// ipv6_mreq is 20 bytes of address and index, ip6_mtuinfo begins with a sockaddr_in6.
func originalIPv4(fd int) (netip.AddrPort, error) {
	b, err := unix.GetsockoptIPv6Mreq(fd, unix.SOL_IP, unix.SO_ORIGINAL_DST)
	if err != nil {
		return netip.AddrPort{}, err
	}
	m := b.Multiaddr
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(m[4:8])), uint16(m[2])<<8|uint16(m[3])), nil
}

func originalIPv6(fd int) (netip.AddrPort, error) {
	b, err := unix.GetsockoptIPv6MTUInfo(fd, unix.SOL_IPV6, unix.SO_ORIGINAL_DST)
	if err != nil {
		return netip.AddrPort{}, err
	}
	port := b.Addr.Port // network byte order in a host integer
	return netip.AddrPortFrom(netip.AddrFrom16(b.Addr.Addr), port>>8|port<<8), nil
}
