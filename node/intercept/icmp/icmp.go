// SPDX-License-Identifier: Apache-2.0

// Package icmp builds the IP packets that tell an app why its packets do not arrive. It belongs to
// the app's edge, beside packages intercept and tun: the far end reports the reason
// (wire.FlowRefused), and the app's kernel gets it as an ICMP error.
package icmp

import (
	"encoding/binary"
	"net/netip"

	"mpbond/link/wire"
)

// Reason is the reason why a packet does not reach its destination.
type Reason int

// Reasons.
const (
	HostUnreachable Reason = iota
	PortUnreachable
	Prohibited
	TooBig // the packet exceeds the given MTU
)

// ReasonFor returns the Reason for a refusal by the far end.
func ReasonFor(c wire.Code) Reason {
	switch c {
	case wire.CodeConnRefused:
		return PortUnreachable
	case wire.CodeForbidden:
		return Prohibited
	case wire.CodeTooBig:
		return TooBig
	}
	return HostUnreachable
}

// Header lengths, and the time to live of all packets (RFC 1700).
const (
	ipv4HeaderLen, ipv6HeaderLen = 20, 40
	udpHeaderLen                 = 8
	icmpHeaderLen                = 8 // of an ICMP error
	hopLimit                     = 64
)

// Protocol numbers.
const (
	protoICMP4 = 1
	protoUDP   = 17
	protoICMP6 = 58
)

// Maximum length of ICMP errors (RFC 1812, section 4.3.2.3; RFC 4443, section 2.4).
const maxICMPv4Error, maxICMPv6Error = 576, 1280

// Type and code of each reason (RFC 792, RFC 1191, RFC 1812 section 5.2.7.1; RFC 4443 sections 3.1
// and 3.2).
var icmpv4Types = map[Reason][2]byte{HostUnreachable: {3, 1}, PortUnreachable: {3, 3}, Prohibited: {3, 13},
	TooBig: {3, 4}}
var icmpv6Types = map[Reason][2]byte{HostUnreachable: {1, 3}, PortUnreachable: {1, 4}, Prohibited: {1, 1},
	TooBig: {2, 0}}

// Unreachable builds the ICMP packet that tells the sender of packet why it does not arrive. The
// packet comes from the destination's address. mtu is used with TooBig only. Unreachable returns
// nil if packet is not an IP packet. It does not keep packet.
func Unreachable(packet []byte, why Reason, mtu int) []byte {
	if len(packet) == 0 {
		return nil
	}
	switch packet[0] >> 4 {
	case 4:
		if len(packet) < ipv4HeaderLen {
			return nil
		}
		packet = packet[:min(len(packet), maxICMPv4Error-ipv4HeaderLen-icmpHeaderLen)]
		b := make([]byte, ipv4HeaderLen+icmpHeaderLen+len(packet))
		m := b[ipv4HeaderLen:]
		m[0], m[1] = icmpv4Types[why][0], icmpv4Types[why][1]
		if why == TooBig {
			binary.BigEndian.PutUint16(m[6:], uint16(min(max(mtu, 0), 65535)))
		}
		copy(m[icmpHeaderLen:], packet)
		binary.BigEndian.PutUint16(m[2:], ^addChecksum(0, m))
		putIPv4Header(b, protoICMP4, netip.AddrFrom4([4]byte(packet[16:20])), netip.AddrFrom4([4]byte(packet[12:16])))
		return b
	case 6:
		if len(packet) < ipv6HeaderLen {
			return nil
		}
		packet = packet[:min(len(packet), maxICMPv6Error-ipv6HeaderLen-icmpHeaderLen)]
		b := make([]byte, ipv6HeaderLen+icmpHeaderLen+len(packet))
		m := b[ipv6HeaderLen:]
		m[0], m[1] = icmpv6Types[why][0], icmpv6Types[why][1]
		if why == TooBig {
			binary.BigEndian.PutUint32(m[4:], uint32(max(mtu, 0)))
		}
		copy(m[icmpHeaderLen:], packet)
		src, dst := netip.AddrFrom16([16]byte(packet[24:40])), netip.AddrFrom16([16]byte(packet[8:24]))
		binary.BigEndian.PutUint16(m[2:], ^addChecksum(pseudoHeaderSum(src, dst, protoICMP6, len(m)), m))
		putIPv6Header(b, protoICMP6, src, dst)
		return b
	}
	return nil
}

// Datagram builds the IP packet of a UDP datagram. It never fragments, because the packet crosses
// no link. It returns nil if the payload is too long, or if the addresses are of different
// families.
func Datagram(src, dst netip.AddrPort, payload []byte) []byte {
	ip, put := ipv4HeaderLen, putIPv4Header
	switch {
	case src.Addr().BitLen() != dst.Addr().BitLen():
		return nil
	case src.Addr().Is6():
		ip, put = ipv6HeaderLen, putIPv6Header
	}
	n := udpHeaderLen + len(payload)
	if n > 65535 || ip == ipv4HeaderLen && ip+n > 65535 {
		return nil
	}
	b := make([]byte, ip+n)
	u := b[ip:]
	binary.BigEndian.PutUint16(u, src.Port())
	binary.BigEndian.PutUint16(u[2:], dst.Port())
	binary.BigEndian.PutUint16(u[4:], uint16(n))
	copy(u[udpHeaderLen:], payload)
	s := ^addChecksum(pseudoHeaderSum(src.Addr(), dst.Addr(), protoUDP, n), u)
	if s == 0 {
		s = 0xffff // 0 would mean no checksum (RFC 768)
	}
	binary.BigEndian.PutUint16(u[6:], s)
	put(b, protoUDP, src.Addr(), dst.Addr())
	return b
}

// putIPv4Header writes the IPv4 header of b, which already has its payload (RFC 791).
func putIPv4Header(b []byte, proto byte, src, dst netip.Addr) {
	b[0] = 4<<4 | ipv4HeaderLen/4
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	b[8], b[9] = hopLimit, proto
	copy(b[12:], src.AsSlice())
	copy(b[16:], dst.AsSlice())
	binary.BigEndian.PutUint16(b[10:], ^addChecksum(0, b[:ipv4HeaderLen]))
}

// putIPv6Header writes the IPv6 header of b, which already has its payload (RFC 8200).
func putIPv6Header(b []byte, proto byte, src, dst netip.Addr) {
	b[0] = 6 << 4
	binary.BigEndian.PutUint16(b[4:], uint16(len(b)-ipv6HeaderLen))
	b[6], b[7] = proto, hopLimit
	copy(b[8:], src.AsSlice())
	copy(b[24:], dst.AsSlice())
}

// addChecksum adds b to a ones' complement sum (RFC 1071).
func addChecksum(s uint32, b []byte) uint16 {
	for ; len(b) > 1; b = b[2:] {
		s += uint32(b[0])<<8 | uint32(b[1])
	}
	if len(b) > 0 {
		s += uint32(b[0]) << 8
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

// pseudoHeaderSum returns the sum of the pseudo header (RFC 768; RFC 8200 section 8.1).
func pseudoHeaderSum(src, dst netip.Addr, proto byte, n int) uint32 {
	return uint32(addChecksum(uint32(proto)+uint32(n), append(src.AsSlice(), dst.AsSlice()...)))
}
