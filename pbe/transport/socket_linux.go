// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

// Limits of one system call. Linux splits a buffer of up to 64 KB into up to 64 packets
// (UDP_MAX_SEGMENTS).
const (
	maxSegments   = 64
	maxTrainBytes = 65000
	readBatchSize = 8 // trains
)

// socket sends and receives batches of packets. One system call handles several messages (sendmmsg,
// recvmmsg). A message is a train of packets if the kernel can split it (UDP_SEGMENT, Linux 4.18)
// and join it (UDP_GRO, Linux 5.0). sendOutboxPackets is safe for concurrent use, receiveTrains is
// not.
type socket struct {
	*net.UDPConn
	pc           *ipv4.PacketConn
	dontFragment bool // the network does not fragment packets, so MTU probes work
	gsoEnabled   atomic.Bool
	readBuffers  []ipv4.Message
}

// messageBatch holds the messages of one batch. Its memory is reused.
type messageBatch struct {
	list         []ipv4.Message
	packetCounts []int // packets of each message
	to           net.UDPAddr
}

// newUDPSocket configures a UDP socket.
func newUDPSocket(c *net.UDPConn) (*socket, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &socket{UDPConn: c, pc: ipv4.NewPacketConn(c)} // IPv6 sockets too: the calls are the same
	err = raw.Control(func(fd uintptr) {
		set := func(level, option, value int) bool { return unix.SetsockoptInt(int(fd), level, option, value) == nil }
		// Root may exceed the system's limit.
		_ = set(unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, socketBuffer) || set(unix.SOL_SOCKET, unix.SO_RCVBUF, socketBuffer)
		_ = set(unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, socketBuffer) || set(unix.SOL_SOCKET, unix.SO_SNDBUF, socketBuffer)
		v4 := set(unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
		domain, _ := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DOMAIN)
		s.dontFragment = v4 && (domain == unix.AF_INET ||
			set(unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE))
		_, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT)
		s.gsoEnabled.Store(err == nil)
		_ = set(unix.IPPROTO_UDP, unix.UDP_GRO, 1)
	})
	for range readBatchSize {
		s.readBuffers = append(s.readBuffers, ipv4.Message{
			Buffers: [][]byte{make([]byte, 1<<16)},
			OOB:     make([]byte, unix.CmsgSpace(4)),
		})
	}
	return s, err
}

// sendOutboxPackets sends the packets of o. It returns the number and the bytes of the packets that
// the kernel refused. They are lost, as in the network.
func (s *socket) sendOutboxPackets(o *outbox, to netip.AddrPort) (packets, bytes int) {
	m := &o.messageBatch
	m.to = net.UDPAddr{IP: append(m.to.IP[:0], to.Addr().AsSlice()...), Port: int(to.Port()), Zone: to.Addr().Zone()}
	useTrains := s.gsoEnabled.Load()
	for done := 0; done < len(o.ends); {
		o.buildMessages(done, useTrains)
		n, err := s.pc.WriteBatch(m.list, 0)
		n = max(n, 0)
		for _, c := range m.packetCounts[:n] {
			done += c
		}
		switch {
		case err == nil:
		case errors.Is(err, net.ErrClosed):
			return packets, bytes
		case m.packetCounts[n] > 1 && (errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EINVAL)):
			useTrains = false
			// Either the device does not support segmentation, or it now carries only shorter
			// packets. Linux before 6.14 reports both in the same way.
			if errors.Is(err, syscall.EIO) || o.packetLen(done) <= minPayload {
				s.gsoEnabled.Store(false)
			}
		default:
			done += m.packetCounts[n]
			packets += m.packetCounts[n]
			bytes += len(m.list[n].Buffers[0])
		}
	}
	return packets, bytes
}

// packetLen returns the length of packet i.
func (o *outbox) packetLen(i int) int {
	if i == 0 {
		return o.ends[0]
	}
	return o.ends[i] - o.ends[i-1]
}

// buildMessages builds the messages of the packets from index first on. With useTrains, packets of
// one length share a message; its last packet may be shorter.
func (o *outbox) buildMessages(first int, useTrains bool) {
	m := &o.messageBatch
	m.list, m.packetCounts = m.list[:0], m.packetCounts[:0]
	start := 0
	if first > 0 {
		start = o.ends[first-1]
	}
	for i := first; i < len(o.ends); {
		size, j := o.ends[i]-start, i+1
		for useTrains && i+1 != o.soloIndex && j+1 != o.soloIndex && j < len(o.ends) && j-i < maxSegments &&
			o.packetLen(j) <= size && o.ends[j]-start <= maxTrainBytes {
			j++
			if o.packetLen(j-1) < size {
				break
			}
		}
		m.addGSOMessage(o.buf[start:o.ends[j-1]], size, j-i)
		start, i = o.ends[j-1], j
	}
}

// addGSOMessage appends a message with that many packets. Its control message has their length
// (udp(7)).
func (m *messageBatch) addGSOMessage(train []byte, size, packets int) {
	if n := len(m.list); n < cap(m.list) {
		m.list = m.list[:n+1]
	} else {
		m.list = append(m.list, ipv4.Message{})
	}
	msg := &m.list[len(m.list)-1]
	if msg.Buffers == nil {
		msg.Buffers, msg.OOB = make([][]byte, 1), make([]byte, unix.CmsgSpace(2))
	}
	msg.Buffers[0], msg.Addr, msg.OOB = train, &m.to, msg.OOB[:0]
	m.packetCounts = append(m.packetCounts, packets)
	if packets == 1 {
		return
	}
	b := msg.OOB[:unix.CmsgSpace(2)]
	at := unix.CmsgLen(0)
	if at-8 == 8 {
		binary.NativeEndian.PutUint64(b, uint64(unix.CmsgLen(2)))
	} else {
		binary.NativeEndian.PutUint32(b, uint32(unix.CmsgLen(2)))
	}
	binary.NativeEndian.PutUint32(b[at-8:], unix.IPPROTO_UDP)
	binary.NativeEndian.PutUint32(b[at-4:], unix.UDP_SEGMENT)
	binary.NativeEndian.PutUint16(b[at:], uint16(size))
	msg.OOB = b
}

// receiveTrains waits for packets and passes them to handle as trains of packets of one size. The
// last packet of a train may be shorter. The memory is reused after handle returns.
func (s *socket) receiveTrains(handle func(train []byte, size int, from netip.AddrPort)) error {
	n, err := s.pc.ReadBatch(s.readBuffers, 0)
	if err != nil {
		return err
	}
	for i := range n {
		m := &s.readBuffers[i]
		from, ok := m.Addr.(*net.UDPAddr)
		if !ok || m.N == 0 || m.Flags&unix.MSG_TRUNC != 0 {
			continue
		}
		size := m.N
		if m.NN >= unix.CmsgLen(4) {
			h, data, _, err := unix.ParseOneSocketControlMessage(m.OOB[:m.NN])
			if err == nil && h.Level == unix.IPPROTO_UDP && h.Type == unix.UDP_GRO {
				size = max(int(binary.NativeEndian.Uint32(data)), 1)
			}
		}
		a := from.AddrPort()
		handle(m.Buffers[0][:m.N], size, netip.AddrPortFrom(a.Addr().Unmap(), a.Port()))
	}
	return nil
}
