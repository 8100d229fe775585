// Package icmp makes the IP packets that tell an app why what it sends does not
// arrive. In the data path it stands beside intercept and node/intercept/tun, at the
// app's edge: the far end says why (wire.FlowRefused), and the app's kernel
// hears it in the only words it knows.
package icmp

import (
	"encoding/binary"
	"net/netip"

	"mpbond/link/wire"
)

// Reason is why a packet does not reach its destination.
type Reason int

// Reasons.
const (
	HostUnreachable Reason = iota
	PortUnreachable
	Prohibited
	TooBig // with the MTU that the packet exceeds
)

// ReasonFor translates a refusal by the far end.
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

// Header lengths, and what all packets made here carry as time to live
// (RFC 1700).
const (
	len4, len6 = 20, 40
	udpLen     = 8
	headLen    = 8 // of an ICMP error
	hopLimit   = 64
)

// Protocol numbers.
const (
	protoICMP4 = 1
	protoUDP   = 17
	protoICMP6 = 58
)

// Error messages are no longer than this (RFC 1812, section 4.3.2.3; RFC 4443,
// section 2.4).
const most4, most6 = 576, 1280

// types are the type and code of each reason (RFC 792, RFC 1191, RFC 1812
// section 5.2.7.1; RFC 4443 sections 3.1 and 3.2).
var types4 = map[Reason][2]byte{HostUnreachable: {3, 1}, PortUnreachable: {3, 3}, Prohibited: {3, 13}, TooBig: {3, 4}}
var types6 = map[Reason][2]byte{HostUnreachable: {1, 3}, PortUnreachable: {1, 4}, Prohibited: {1, 1}, TooBig: {2, 0}}

// Unreachable makes the ICMP packet that tells the sender of packet why it does
// not arrive, in the name of its destination. Mtu counts for TooBig only. It
// returns nil for what is no IP packet. Packet is not kept.
func Unreachable(packet []byte, why Reason, mtu int) []byte {
	if len(packet) == 0 {
		return nil
	}
	switch packet[0] >> 4 {
	case 4:
		if len(packet) < len4 {
			return nil
		}
		packet = packet[:min(len(packet), most4-len4-headLen)]
		b := make([]byte, len4+headLen+len(packet))
		m := b[len4:]
		m[0], m[1] = types4[why][0], types4[why][1]
		if why == TooBig {
			binary.BigEndian.PutUint16(m[6:], uint16(min(max(mtu, 0), 65535)))
		}
		copy(m[headLen:], packet)
		binary.BigEndian.PutUint16(m[2:], ^sum(0, m))
		header4(b, protoICMP4, netip.AddrFrom4([4]byte(packet[16:20])), netip.AddrFrom4([4]byte(packet[12:16])))
		return b
	case 6:
		if len(packet) < len6 {
			return nil
		}
		packet = packet[:min(len(packet), most6-len6-headLen)]
		b := make([]byte, len6+headLen+len(packet))
		m := b[len6:]
		m[0], m[1] = types6[why][0], types6[why][1]
		if why == TooBig {
			binary.BigEndian.PutUint32(m[4:], uint32(max(mtu, 0)))
		}
		copy(m[headLen:], packet)
		src, dst := netip.AddrFrom16([16]byte(packet[24:40])), netip.AddrFrom16([16]byte(packet[8:24]))
		binary.BigEndian.PutUint16(m[2:], ^sum(pseudo(src, dst, protoICMP6, len(m)), m))
		header6(b, protoICMP6, src, dst)
		return b
	}
	return nil
}

// Datagram makes the IP packet of a UDP datagram, in one piece whatever its
// length: it never meets a link. It returns nil if the payload is too long for
// any, or the addresses are of two families.
func Datagram(src, dst netip.AddrPort, payload []byte) []byte {
	ip, put := len4, header4
	switch {
	case src.Addr().BitLen() != dst.Addr().BitLen():
		return nil
	case src.Addr().Is6():
		ip, put = len6, header6
	}
	n := udpLen + len(payload)
	if n > 65535 || ip == len4 && ip+n > 65535 {
		return nil
	}
	b := make([]byte, ip+n)
	u := b[ip:]
	binary.BigEndian.PutUint16(u, src.Port())
	binary.BigEndian.PutUint16(u[2:], dst.Port())
	binary.BigEndian.PutUint16(u[4:], uint16(n))
	copy(u[udpLen:], payload)
	s := ^sum(pseudo(src.Addr(), dst.Addr(), protoUDP, n), u)
	if s == 0 {
		s = 0xffff // 0 would mean none (RFC 768)
	}
	binary.BigEndian.PutUint16(u[6:], s)
	put(b, protoUDP, src.Addr(), dst.Addr())
	return b
}

// header4 writes the IPv4 header of b, whose payload is in place (RFC 791).
func header4(b []byte, proto byte, src, dst netip.Addr) {
	b[0] = 4<<4 | len4/4
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	b[8], b[9] = hopLimit, proto
	copy(b[12:], src.AsSlice())
	copy(b[16:], dst.AsSlice())
	binary.BigEndian.PutUint16(b[10:], ^sum(0, b[:len4]))
}

// header6 writes the IPv6 header of b, whose payload is in place (RFC 8200).
func header6(b []byte, proto byte, src, dst netip.Addr) {
	b[0] = 6 << 4
	binary.BigEndian.PutUint16(b[4:], uint16(len(b)-len6))
	b[6], b[7] = proto, hopLimit
	copy(b[8:], src.AsSlice())
	copy(b[24:], dst.AsSlice())
}

// sum adds b to a ones' complement sum (RFC 1071).
func sum(s uint32, b []byte) uint16 {
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

// pseudo is the sum of the pseudo header (RFC 768; RFC 8200 section 8.1).
func pseudo(src, dst netip.Addr, proto byte, n int) uint32 {
	return uint32(sum(uint32(proto)+uint32(n), append(src.AsSlice(), dst.AsSlice()...)))
}
