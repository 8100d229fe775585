// Package udpsock has what several packages need of UDP sockets: reading that holds no
// buffer while nothing comes, and what the network answers to datagrams that do
// not arrive. The server uses it towards destinations, package intercept towards
// apps.
package udpsock

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
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
// goroutine. Outside Linux an idle socket holds a buffer.
func Receive(c *net.UDPConn, f func(b []byte, from netip.AddrPort) bool, failed func(Failure)) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	for {
		err := waitReadable(raw, failed)
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
			on = f(buf[:n], unmapAddrPort(from))
		case errors.Is(err, net.ErrClosed):
			on = false
		}
		buffers.Put(buf)
		if !on {
			return
		}
	}
}

func unmapAddrPort(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}
