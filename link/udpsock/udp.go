// SPDX-License-Identifier: Apache-2.0

// Package udpsock contains UDP functions that several packages share: reading without a buffer
// while the socket is idle, and ICMP errors about sent datagrams. The server uses it towards
// destinations, package intercept towards apps.
package udpsock

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

// MaxPayload exceeds the payload of any datagram.
const MaxPayload = 65535

var buffers = sync.Pool{New: func() any { return new([MaxPayload]byte) }}

// Failure is an ICMP error about a sent datagram.
type Failure struct {
	Dest netip.AddrPort // destination of the datagram; IPv4 addresses are not mapped to IPv6
	// Err is the kernel's error: ECONNREFUSED for a closed port, EMSGSIZE for a datagram that is
	// too long, others for unreachable destinations.
	Err syscall.Errno
	MTU int // of the path, with EMSGSIZE
}

// Send sends b to an address, or to the address that c is connected to if to is not valid. Its
// error is about this datagram, not about an earlier one.
func Send(c *net.UDPConn, b []byte, to netip.AddrPort) error {
	var err error
	for range 2 { // the first error may be about an earlier datagram
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

// Receive calls f with each datagram and its source; IPv4 addresses are not mapped to IPv6. f may
// use the bytes until it returns. Receive returns when c is closed or f returns false. An idle
// socket holds no buffer, except outside Linux. If failed is not nil, the same goroutine calls it
// with the errors that EnableFailures makes the kernel keep.
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
			// The poller also reports an error when a socket has no room to send. It passes.
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
