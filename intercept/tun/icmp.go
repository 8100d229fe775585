package tun

import (
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"mpbond/wire"
)

// reason is why a packet does not reach its destination.
type reason int

const (
	hostUnreachable reason = iota
	portUnreachable
	prohibited
)

// reasonFor translates a refusal by the far end.
func reasonFor(c wire.Code) reason {
	switch c {
	case wire.CodeConnRefused:
		return portUnreachable
	case wire.CodeForbidden:
		return prohibited
	}
	return hostUnreachable
}

// verdict is what becomes of a packet from an app.
type verdict int

const (
	deliver verdict = iota // to the stack
	ignore
	refuse // with prohibited
)

// judge decides about a packet by its headers. TCP and UDP go to the stack,
// fragments too, which it joins.
//
// An echo request is refused, so that ping says at once that it cannot be told:
// the stack's own answer, in no time and from any address, would be a lie, and
// the bond carries no ICMP. So is what is neither TCP nor UDP, since the bond
// cannot carry it. Other ICMP, which speaks of packets of the stack, and
// multicast, which no other machine would hear, are ignored: errors must not
// answer them (RFC 1122, section 3.2.2; RFC 4443, section 2.4).
func judge(packet []byte) verdict {
	switch header.IPVersion(packet) {
	case header.IPv4Version:
		h := header.IPv4(packet)
		if !h.IsValid(len(packet)) || multicast(h.DestinationAddress()) {
			return ignore
		}
		switch h.TransportProtocol() {
		case header.TCPProtocolNumber, header.UDPProtocolNumber:
			return deliver
		case header.ICMPv4ProtocolNumber:
			if h.FragmentOffset() > 0 || len(h.Payload()) < header.ICMPv4MinimumSize || header.ICMPv4(h.Payload()).Type() != header.ICMPv4Echo {
				return ignore
			}
		}
		if h.FragmentOffset() > 0 {
			return ignore
		}
		return refuse
	case header.IPv6Version:
		h := header.IPv6(packet)
		if !h.IsValid(len(packet)) || multicast(h.DestinationAddress()) {
			return ignore
		}
		switch h.TransportProtocol() {
		case header.TCPProtocolNumber, header.UDPProtocolNumber, header.IPv6FragmentHeader:
			return deliver
		case header.ICMPv6ProtocolNumber:
			if len(h.Payload()) < header.ICMPv6MinimumSize || header.ICMPv6(h.Payload()).Type() != header.ICMPv6EchoRequest {
				return ignore
			}
		}
		return refuse
	}
	return ignore
}

func multicast(a tcpip.Address) bool {
	return header.IsV4MulticastAddress(a) || header.IsV6MulticastAddress(a) || a == header.IPv4Broadcast
}

// Error messages quote no more than this of a packet, headers of the message
// included (RFC 1812, section 4.3.2.3; RFC 4443, section 2.4).
const (
	quote4 = 576 - header.IPv4MinimumSize - header.ICMPv4MinimumSize
	quote6 = header.IPv6MinimumMTU - header.IPv6MinimumSize - header.ICMPv6MinimumSize
)

// unreachable makes the ICMP packet that tells the sender of packet why it does
// not arrive, in the name of its destination. It returns nil for what is no IP
// packet. Packet is not kept.
func unreachable(packet []byte, why reason) []byte {
	switch header.IPVersion(packet) {
	case header.IPv4Version:
		if len(packet) < header.IPv4MinimumSize {
			return nil
		}
		packet = packet[:min(len(packet), quote4)]
		from := header.IPv4(packet)
		b := make([]byte, header.IPv4MinimumSize+header.ICMPv4MinimumSize+len(packet))
		m := header.ICMPv4(b[header.IPv4MinimumSize:])
		m.SetType(header.ICMPv4DstUnreachable)
		m.SetCode(map[reason]header.ICMPv4Code{
			hostUnreachable: header.ICMPv4HostUnreachable, portUnreachable: header.ICMPv4PortUnreachable,
			prohibited: header.ICMPv4AdminProhibited,
		}[why])
		copy(m[header.ICMPv4MinimumSize:], packet)
		m.SetChecksum(header.ICMPv4Checksum(m, 0))
		encode4(b, header.ICMPv4ProtocolNumber, from.DestinationAddress(), from.SourceAddress())
		return b
	case header.IPv6Version:
		if len(packet) < header.IPv6MinimumSize {
			return nil
		}
		packet = packet[:min(len(packet), quote6)]
		from := header.IPv6(packet)
		b := make([]byte, header.IPv6MinimumSize+header.ICMPv6MinimumSize+len(packet))
		m := header.ICMPv6(b[header.IPv6MinimumSize:])
		m.SetType(header.ICMPv6DstUnreachable)
		m.SetCode(map[reason]header.ICMPv6Code{
			hostUnreachable: header.ICMPv6AddressUnreachable, portUnreachable: header.ICMPv6PortUnreachable,
			prohibited: header.ICMPv6Prohibited,
		}[why])
		copy(m[header.ICMPv6MinimumSize:], packet)
		src, dst := from.DestinationAddress(), from.SourceAddress()
		m.SetChecksum(header.ICMPv6Checksum(header.ICMPv6ChecksumParams{Header: m, Src: src, Dst: dst}))
		encode6(b, header.ICMPv6ProtocolNumber, src, dst)
		return b
	}
	return nil
}

// hopLimit is what all packets made here carry (RFC 1700).
const hopLimit = 64

// encode4 writes the IPv4 header of b, whose payload is in place.
func encode4(b []byte, proto tcpip.TransportProtocolNumber, src, dst tcpip.Address) {
	h := header.IPv4(b)
	h.Encode(&header.IPv4Fields{TotalLength: uint16(len(b)), TTL: hopLimit, Protocol: uint8(proto), SrcAddr: src, DstAddr: dst})
	h.SetChecksum(^h.CalculateChecksum())
}

// encode6 writes the IPv6 header of b, whose payload is in place.
func encode6(b []byte, proto tcpip.TransportProtocolNumber, src, dst tcpip.Address) {
	header.IPv6(b).Encode(&header.IPv6Fields{PayloadLength: uint16(len(b) - header.IPv6MinimumSize),
		TransportProtocol: proto, HopLimit: hopLimit, SrcAddr: src, DstAddr: dst})
}

// datagram makes the IP packet of a UDP datagram, in one piece whatever its
// length: it never meets a link. It returns nil if the payload is too long for
// any, or the addresses are of two families.
func datagram(src, dst tcpip.FullAddress, payload []byte) []byte {
	ip, put := header.IPv4MinimumSize, encode4
	switch {
	case src.Addr.Len() != dst.Addr.Len():
		return nil
	case src.Addr.Len() == header.IPv6AddressSize:
		ip, put = header.IPv6MinimumSize, encode6
	}
	n := header.UDPMinimumSize + len(payload)
	if n > 65535 || ip == header.IPv4MinimumSize && ip+n > 65535 {
		return nil
	}
	b := make([]byte, ip+n)
	u := header.UDP(b[ip:])
	u.Encode(&header.UDPFields{SrcPort: src.Port, DstPort: dst.Port, Length: uint16(n)})
	copy(u[header.UDPMinimumSize:], payload)
	sum := header.PseudoHeaderChecksum(header.UDPProtocolNumber, src.Addr, dst.Addr, uint16(n))
	sum = ^u.CalculateChecksum(checksum.Checksum(payload, sum))
	if sum == 0 {
		sum = 0xffff // 0 would mean none (RFC 768)
	}
	u.SetChecksum(sum)
	put(b, header.UDPProtocolNumber, src.Addr, dst.Addr)
	return b
}
