//go:build linux && !router

package tun

import (
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// packetAction is what becomes of a packet from an app.
type packetAction int

const (
	actionDeliver packetAction = iota // to the stack
	actionIgnore
	actionRefuse // with icmp.Prohibited
)

// classifyPacket decides about a packet by its headers. TCP and UDP go to the stack,
// fragments too, which it joins.
//
// An echo request is refused, so that ping says at once that it cannot be told:
// the stack's own answer, in no time and from any address, would be a lie, and
// the bond carries no ICMP. So is what is neither TCP nor UDP, since the bond
// cannot carry it. Other ICMP, which speaks of packets of the stack, and
// multicast, which no other machine would hear, are ignored: errors must not
// answer them (RFC 1122, section 3.2.2; RFC 4443, section 2.4).
func classifyPacket(packet []byte) packetAction {
	switch header.IPVersion(packet) {
	case header.IPv4Version:
		h := header.IPv4(packet)
		if !h.IsValid(len(packet)) || isMulticast(h.DestinationAddress()) {
			return actionIgnore
		}
		switch h.TransportProtocol() {
		case header.TCPProtocolNumber, header.UDPProtocolNumber:
			return actionDeliver
		case header.ICMPv4ProtocolNumber:
			if h.FragmentOffset() > 0 || len(h.Payload()) < header.ICMPv4MinimumSize || header.ICMPv4(h.Payload()).Type() != header.ICMPv4Echo {
				return actionIgnore
			}
		}
		if h.FragmentOffset() > 0 {
			return actionIgnore
		}
		return actionRefuse
	case header.IPv6Version:
		h := header.IPv6(packet)
		if !h.IsValid(len(packet)) || isMulticast(h.DestinationAddress()) {
			return actionIgnore
		}
		switch h.TransportProtocol() {
		case header.TCPProtocolNumber, header.UDPProtocolNumber, header.IPv6FragmentHeader:
			return actionDeliver
		case header.ICMPv6ProtocolNumber:
			if len(h.Payload()) < header.ICMPv6MinimumSize || header.ICMPv6(h.Payload()).Type() != header.ICMPv6EchoRequest {
				return actionIgnore
			}
		}
		return actionRefuse
	}
	return actionIgnore
}

func isMulticast(a tcpip.Address) bool {
	return header.IsV4MulticastAddress(a) || header.IsV6MulticastAddress(a) || a == header.IPv4Broadcast
}
