//go:build !linux

package transport

import (
	"errors"
	"net"
	"net/netip"
)

// socket sends and receives packets one by one. It does not forbid the network to
// cut them up, so that their length cannot be tried. send is for any goroutine,
// receive for one.
type socket struct {
	*net.UDPConn
	dontFragment bool // never
	v6           bool
	readBuffers  []byte
}

// messageBatch is what a batch needs to be sent: nothing.
type messageBatch struct{}

func newSocket(c *net.UDPConn) (*socket, error) {
	_ = c.SetReadBuffer(socketBuffer)
	_ = c.SetWriteBuffer(socketBuffer)
	local, _ := c.LocalAddr().(*net.UDPAddr)
	return &socket{UDPConn: c, v6: local != nil && local.IP.To4() == nil, readBuffers: make([]byte, 1<<16)}, nil
}

// sendBatch sends the packets of o. What the system does not take is lost, as in the
// network; it returns how many packets that were, and their bytes.
func (s *socket) sendBatch(o *outbox, to netip.AddrPort) (packets, bytes int) {
	if a := to.Addr(); s.v6 && a.Is4() {
		to = netip.AddrPortFrom(netip.AddrFrom16(a.As16()), to.Port())
	}
	start := 0
	for _, end := range o.ends {
		if _, err := s.WriteToUDPAddrPort(o.buf[start:end], to); errors.Is(err, net.ErrClosed) {
			return packets, bytes
		} else if err != nil {
			packets, bytes = packets+1, bytes+end-start
		}
		start = end
	}
	return packets, bytes
}

// receiveBatch waits for a packet and hands it on. The memory is its own again
// afterwards.
func (s *socket) receiveBatch(handle func(train []byte, size int, from netip.AddrPort)) error {
	n, a, err := s.ReadFromUDPAddrPort(s.readBuffers)
	if err == nil && n > 0 {
		handle(s.readBuffers[:n], n, netip.AddrPortFrom(a.Addr().Unmap(), a.Port()))
	}
	return err
}
