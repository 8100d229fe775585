// SPDX-License-Identifier: Apache-2.0

//go:build linux && !router

package tun

import (
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// packetAction selects how to treat a packet from an app.
type packetAction int

const (
	actionDeliver packetAction = iota // pass it to the stack
	actionIgnore
	actionRefuse // answer with icmp.Prohibited
)

// classifyPacket decides by a packet's headers. TCP and UDP go to the stack, including fragments,
// which the stack reassembles.
//
// Echo requests are refused, because the bond does not carry ICMP. An answer of the stack itself
// would be misleading: it would come at once and from any address. So ping reports at once that it
// does not work. Other protocols are refused too, because the bond cannot carry them. Other ICMP
// concerns packets of the stack, and no other machine would receive multicast. Both are ignored,
// because ICMP errors must not answer them (RFC 1122, section 3.2.2; RFC 4443, section 2.4).
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
			if h.FragmentOffset() > 0 || len(h.Payload()) < header.ICMPv4MinimumSize ||
				header.ICMPv4(h.Payload()).Type() != header.ICMPv4Echo {
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
			if len(h.Payload()) < header.ICMPv6MinimumSize ||
				header.ICMPv6(h.Payload()).Type() != header.ICMPv6EchoRequest {
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
