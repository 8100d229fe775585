// Package udp has what several rooms need of UDP sockets: reading that holds no
// buffer while nothing comes, and what the network answers to datagrams that do
// not arrive. The server uses it towards destinations, package intercept towards
// apps.
package udp

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// MaxPayload is larger than any datagram.
const MaxPayload = 65535

var buffers = sync.Pool{New: func() any { return new([MaxPayload]byte) }}

// Failure is an ICMP error about a datagram that was sent.
type Failure struct {
	Dest netip.AddrPort // where it was sent to, an IPv4 address never as IPv6
	// Err is what the kernel makes of it: ECONNREFUSED for a port where nobody
	// listens, EMSGSIZE for one too long, others for what is unreachable.
	Err syscall.Errno
	MTU int // of the way, of EMSGSIZE
}

// Failing lets the kernel keep the ICMP errors about what c sends (ip(7),
// ipv6(7): IP_RECVERR), for Receive to tell. Without it a socket that is not
// connected hears of none. With it each error also fails one call to send, of
// whatever destination, and that datagram is not sent: use Send.
func Failing(c *net.UDPConn) error {
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
	if err4 == nil || err6 == nil { // a socket is of one family, or of both
		return nil
	}
	return errors.Join(err4, err6)
}

// Send sends b to an address, or, if that is not valid, to where c is connected
// to. An error is about this datagram, and not about an earlier one.
func Send(c *net.UDPConn, b []byte, to netip.AddrPort) error {
	var err error
	for range 2 { // the first error may be that of an earlier one
		if to.IsValid() {
			_, err = c.WriteToUDPAddrPort(b, to)
		} else {
			_, err = c.Write(b)
		}
		if err == nil || errors.Is(err, net.ErrClosed) {
			break
		}
	}
	return err
}

// Receive calls f with each datagram that comes and where it came from, an
// IPv4 address never as IPv6. The bytes are f's until it returns. Receive
// returns when c is closed or f returns false. Many idle sockets cost little: a
// buffer is taken only when there is something to read. Failed, unless nil, is
// called with the errors that Failing made the kernel keep, by the same
// goroutine.
func Receive(c *net.UDPConn, f func(b []byte, from netip.AddrPort) bool, failed func(Failure)) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	for {
		err := raw.Read(func(fd uintptr) bool {
			for {
				if failed != nil {
					failures(int(fd), failed)
				}
				var one [1]byte
				_, _, err := unix.Recvfrom(int(fd), one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
				if err == nil || err == unix.EAGAIN {
					return err == nil
				}
				// Another error is about datagrams sent before, and told once.
			}
		})
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// The poller reports an error of a socket that has no room to send
			// either as one of its own. It passes.
			time.Sleep(10 * time.Millisecond)
			continue
		}
		buf := buffers.Get().(*[MaxPayload]byte)
		n, from, err := c.ReadFromUDPAddrPort(buf[:])
		on := true
		switch {
		case err == nil:
			on = f(buf[:n], plain(from))
		case errors.Is(err, net.ErrClosed):
			on = false
		}
		buffers.Put(buf)
		if !on {
			return
		}
	}
}

func plain(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// failures calls f with each error that a socket keeps. In the control message
// there is a struct sock_extended_err (recvmsg(2), ip(7)):
//
//	errno (4) | origin | type | code | pad | info (4), the MTU | data (4)
func failures(fd int, f func(Failure)) {
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
			dest = plain(netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port)))
		default:
			continue
		}
		for _, c := range list {
			h, d := c.Header, c.Data
			if !(h.Level == unix.SOL_IP && h.Type == unix.IP_RECVERR || h.Level == unix.SOL_IPV6 && h.Type == unix.IPV6_RECVERR) || len(d) < 16 {
				continue
			}
			if origin := d[4]; origin != unix.SO_EE_ORIGIN_ICMP && origin != unix.SO_EE_ORIGIN_ICMP6 {
				continue // the caller of send was told
			}
			e := Failure{Dest: dest, Err: syscall.Errno(binary.NativeEndian.Uint32(d))}
			if e.Err == syscall.EMSGSIZE {
				e.MTU = int(binary.NativeEndian.Uint32(d[8:]))
			}
			f(e)
		}
	}
}
