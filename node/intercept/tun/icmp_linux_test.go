// SPDX-License-Identifier: Apache-2.0

//go:build !router

package tun

import (
	"net/netip"
	"testing"

	"mpbond/node/intercept/icmp"
)

// FuzzClassifyPacket checks that invalid packets are ignored, and that accepted ones have all
// headers.
func FuzzClassifyPacket(f *testing.F) {
	f.Add(icmp.Datagram(netip.MustParseAddrPort("10.0.0.1:1"), netip.MustParseAddrPort("10.0.0.2:2"), []byte("x")))
	f.Add(icmp.Datagram(netip.MustParseAddrPort("[2001:db8::1]:1"), netip.MustParseAddrPort("[2001:db8::2]:2"), nil))
	f.Add(icmp.Unreachable(make([]byte, 20), icmp.Prohibited, 0))
	f.Fuzz(func(t *testing.T, packet []byte) {
		if v := classifyPacket(packet); v != actionIgnore && (len(packet) < 20 || packet[0]>>4 != 4 &&
			packet[0]>>4 != 6) {
			t.Errorf("%x: %v", packet, v)
		}
	})
}
