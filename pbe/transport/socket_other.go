// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package transport

import (
	"errors"
	"net"
	"net/netip"
)

// socket sends and receives packets one by one. The network may fragment them, so MTU probes do not
// work. sendOutboxPackets is safe for concurrent use, receiveTrains is not.
type socket struct {
	*net.UDPConn
	dontFragment bool // always false
	v6           bool
	readBuffers  []byte
}

// messageBatch is empty: packets are sent one by one.
type messageBatch struct{}

// newUDPSocket configures a UDP socket.
func newUDPSocket(c *net.UDPConn) (*socket, error) {
	_ = c.SetReadBuffer(socketBuffer)
	_ = c.SetWriteBuffer(socketBuffer)
	local, _ := c.LocalAddr().(*net.UDPAddr)
	return &socket{UDPConn: c, v6: local != nil && local.IP.To4() == nil, readBuffers: make([]byte, 1<<16)}, nil
}

// sendOutboxPackets sends the packets of o. It returns the number and the bytes of the packets that
// the system refused. They are lost, as in the network.
func (s *socket) sendOutboxPackets(o *outbox, to netip.AddrPort) (packets, bytes int) {
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

// receiveTrains waits for a packet and passes it to handle. The memory is reused after handle
// returns.
func (s *socket) receiveTrains(handle func(train []byte, size int, from netip.AddrPort)) error {
	n, a, err := s.ReadFromUDPAddrPort(s.readBuffers)
	if err == nil && n > 0 {
		handle(s.readBuffers[:n], n, netip.AddrPortFrom(a.Addr().Unmap(), a.Port()))
	}
	return err
}
