// SPDX-License-Identifier: Apache-2.0

package udpsock

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// EnableFailures makes the kernel keep the ICMP errors about datagrams sent on c (ip(7), ipv6(7):
// IP_RECVERR), for Receive. Otherwise an unconnected socket gets none. Each kept error also fails
// one call to send, to any destination, and that datagram is not sent: use Send.
func EnableFailures(c *net.UDPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var err4, err6 error
	if err := raw.Control(func(fd uintptr) {
		err4 = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_RECVERR, 1)
		err6 = unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_RECVERR, 1)
	}); err != nil {
		return err
	}
	if err4 == nil || err6 == nil { // a socket has one family or both
		return nil
	}
	return errors.Join(err4, err6)
}

// waitReadable waits until raw has a datagram, or returns the error that ends raw. If failed is not
// nil, it is called with the errors that the kernel has kept.
func waitReadable(raw syscall.RawConn, failed func(Failure)) error {
	return raw.Read(func(fd uintptr) bool {
		for {
			if failed != nil {
				readFailures(int(fd), failed)
			}
			var one [1]byte
			_, _, err := unix.Recvfrom(int(fd), one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
			if err == nil || err == unix.EAGAIN {
				return err == nil
			}
			// Other errors concern datagrams sent before, and are reported once.
		}
	})
}

// readFailures calls f with each error that the socket keeps. The control message contains a struct
// sock_extended_err (recvmsg(2), ip(7)):
//
//	errno (4) | origin | type | code | pad | info (4), the MTU | data (4)
func readFailures(fd int, f func(Failure)) {
	var oob [256]byte
	for {
		_, m, _, to, err := unix.Recvmsg(fd, nil, oob[:], unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return
		}
		list, err := unix.ParseSocketControlMessage(oob[:m])
		if err != nil {
			continue
		}
		var dest netip.AddrPort
		switch a := to.(type) {
		case *unix.SockaddrInet4:
			dest = netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
		case *unix.SockaddrInet6:
			dest = unmapAddrPort(netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port)))
		default:
			continue
		}
		for _, c := range list {
			h, d := c.Header, c.Data
			if !(h.Level == unix.SOL_IP && h.Type == unix.IP_RECVERR || h.Level == unix.SOL_IPV6 &&
				h.Type == unix.IPV6_RECVERR) || len(d) < 16 {
				continue
			}
			if origin := d[4]; origin != unix.SO_EE_ORIGIN_ICMP && origin != unix.SO_EE_ORIGIN_ICMP6 {
				continue // the sender got this error
			}
			e := Failure{Dest: dest, Err: syscall.Errno(binary.NativeEndian.Uint32(d))}
			if e.Err == syscall.EMSGSIZE {
				e.MTU = int(binary.NativeEndian.Uint32(d[8:]))
			}
			f(e)
		}
	}
}
