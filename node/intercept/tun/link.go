// SPDX-License-Identifier: Apache-2.0

//go:build linux && !router

package tun

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

const (
	// vnetLen is the length of struct virtio_net_hdr (linux/virtio_net.h), which precedes each
	// packet, in host byte order:
	//
	//	flags (1) | gso_type (1) | hdr_len (2) | gso_size (2) | csum_start (2) | csum_offset (2)
	vnetLen = 10
	// maxPacket is the longest IPv4 packet, and the longest IPv6 packet that is not a jumbogram.
	maxPacket = 65535 + header.IPv6MinimumSize
	// maxSegment is the largest TCP packet that the kernel can segment. Its length field has 16
	// bits.
	maxSegment = 65535
)

// link makes a TUN device, opened with IFF_VNET_HDR, a link of the stack. Both sides pass TCP
// segments much longer than the MTU and without checksums, because these never reach a wire. Each
// read and write carries one packet, so tests can use a SOCK_SEQPACKET socket instead.
type link struct {
	f            *os.File
	raw          rawWriter
	mtu          uint32
	dispatcher   atomic.Pointer[stack.NetworkDispatcher] // nil until attached
	acceptPacket func(packet []byte) bool                // reports whether the stack gets the packet; must not keep it
}

// rawWriter is the part of syscall.RawConn that link uses.
type rawWriter interface {
	Write(func(fd uintptr) bool) error
}

// newLink makes a link of f, which must be non-blocking. It owns f, even if it fails.
func newLink(f *os.File, mtu uint32) (*link, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, err
	}
	return &link{f: f, raw: raw, mtu: mtu}, nil
}

// readTUNPackets delivers packets until Close, and then returns nil.
func (l *link) readTUNPackets() error {
	b := make([]byte, vnetLen+maxPacket)
	for {
		n, err := l.f.Read(b)
		if errors.Is(err, os.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading from the TUN device: %w", err)
		}
		if n > vnetLen {
			l.deliverToStack(b[vnetLen:n])
		}
	}
}

// deliverToStack passes a copy of a packet to the stack.
func (l *link) deliverToStack(packet []byte) {
	var proto tcpip.NetworkProtocolNumber
	switch header.IPVersion(packet) {
	case header.IPv4Version:
		proto = header.IPv4ProtocolNumber
	case header.IPv6Version:
		proto = header.IPv6ProtocolNumber
	default:
		return
	}
	d := l.dispatcher.Load()
	if d == nil || l.acceptPacket != nil && !l.acceptPacket(packet) {
		return
	}
	p := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(packet)})
	(*d).DeliverNetworkPacket(proto, p)
	p.DecRef()
}

// WritePackets implements stack.LinkEndpoint. Packets that the kernel does not accept are lost, as
// on any link.
func (l *link) WritePackets(list stack.PacketBufferList) (int, tcpip.Error) {
	n := 0
	for _, p := range list.AsSlice() {
		h := buildVnetHeader(p)
		if err := l.writeParts(append([][]byte{h[:]}, p.AsSlices()...)); err != nil {
			return n, &tcpip.ErrClosedForSend{}
		}
		n++
	}
	return n, nil
}

// writeTUNPacket writes one packet with all its checksums.
func (l *link) writeTUNPacket(packet []byte) error {
	return l.writeParts([][]byte{make([]byte, vnetLen), packet})
}

// writeParts writes one packet, given in parts, and waits while the interface has no room.
func (l *link) writeParts(parts [][]byte) error {
	var werr error
	err := l.raw.Write(func(fd uintptr) bool {
		for {
			if _, werr = unix.Writev(int(fd), parts); werr != unix.EINTR {
				break
			}
		}
		return werr != unix.EAGAIN
	})
	return errors.Join(err, werr)
}

// buildVnetHeader tells the kernel which checksum to complete, and how to segment the packet for
// apps that see single segments.
func buildVnetHeader(p *stack.PacketBuffer) (h [vnetLen]byte) {
	gso := p.GSOOptions
	if gso.Type == stack.GSONone {
		return h
	}
	if gso.NeedsCsum {
		h[0] = unix.VIRTIO_NET_HDR_F_NEEDS_CSUM
		binary.NativeEndian.PutUint16(h[6:], gso.L3HdrLen)
		binary.NativeEndian.PutUint16(h[8:], gso.CsumOffset)
	}
	binary.NativeEndian.PutUint16(h[2:], uint16(p.HeaderSize()))
	if p.Data().Size() > int(gso.MSS) {
		h[1] = unix.VIRTIO_NET_HDR_GSO_TCPV4
		if gso.Type == stack.GSOTCPv6 {
			h[1] = unix.VIRTIO_NET_HDR_GSO_TCPV6
		}
		binary.NativeEndian.PutUint16(h[4:], gso.MSS)
	}
	return h
}

// Close ends readTUNPackets and all writes.
func (l *link) Close() { l.f.Close() }

// The remaining methods of stack.LinkEndpoint.

func (l *link) Attach(d stack.NetworkDispatcher) {
	if d == nil {
		l.dispatcher.Store(nil)
		return
	}
	l.dispatcher.Store(&d)
}
func (l *link) IsAttached() bool { return l.dispatcher.Load() != nil }
func (l *link) MTU() uint32      { return l.mtu }

// Capabilities: incoming packets were made on this machine.
func (l *link) Capabilities() stack.LinkEndpointCapabilities {
	return stack.CapabilityRXChecksumOffload
}
func (l *link) GSOMaxSize() uint32                      { return maxSegment }
func (l *link) SupportedGSO() stack.SupportedGSO        { return stack.HostGSOSupported }
func (l *link) SetMTU(uint32)                           {}
func (l *link) MaxHeaderLength() uint16                 { return 0 }
func (l *link) LinkAddress() tcpip.LinkAddress          { return "" }
func (l *link) SetLinkAddress(tcpip.LinkAddress)        {}
func (l *link) Wait()                                   {}
func (l *link) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareNone }
func (l *link) AddHeader(*stack.PacketBuffer)           {}
func (l *link) ParseHeader(*stack.PacketBuffer) bool    { return true }
func (l *link) SetOnCloseAction(func())                 {}
