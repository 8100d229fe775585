// Package udp has what several rooms need of UDP sockets: reading that holds no
// buffer while nothing comes. The server uses it towards destinations, package
// intercept towards apps.
package udp

import (
	"errors"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"
)

// MaxPayload is larger than any datagram.
const MaxPayload = 65535

var buffers = sync.Pool{New: func() any { return new([MaxPayload]byte) }}

// Receive calls f with each datagram that comes and where it came from, an
// IPv4 address never as IPv6. The bytes are f's until it returns. Receive
// returns when c is closed or f returns false. Many idle sockets cost little: a
// buffer is taken only when there is something to read.
func Receive(c *net.UDPConn, f func(b []byte, from netip.AddrPort) bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	for {
		if err := Await(raw.Read); err != nil {
			return // closed
		}
		buf := buffers.Get().(*[MaxPayload]byte)
		n, from, err := c.ReadFromUDPAddrPort(buf[:])
		on := true
		switch {
		case err == nil:
			on = f(buf[:n], netip.AddrPortFrom(from.Addr().Unmap(), from.Port()))
		case errors.Is(err, net.ErrClosed):
			on = false
		}
		// Other errors are about datagrams sent before, and not lasting.
		buffers.Put(buf)
		if !on {
			return
		}
	}
}

// Await waits until a socket has a datagram or an error; read is the Read of its
// syscall.RawConn.
func Await(read func(func(fd uintptr) bool) error) error {
	return read(func(fd uintptr) bool {
		var one [1]byte
		_, _, err := unix.Recvfrom(int(fd), one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return err != unix.EAGAIN
	})
}
