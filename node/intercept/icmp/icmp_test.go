// SPDX-License-Identifier: Apache-2.0

package icmp

import (
	"bytes"
	"net/netip"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"mpbond/link/wire"
)

var (
	app4, dest4 = netip.MustParseAddrPort("192.168.1.5:40000"), netip.MustParseAddrPort("203.0.113.9:443")
	app6, dest6 = netip.MustParseAddrPort("[fd00::5]:40000"), netip.MustParseAddrPort("[2001:db8::9]:443")
)

// TestDatagram parses the result with another IP stack.
func TestDatagram(t *testing.T) {
	for _, n := range []int{0, 1, 2, 1400, 1401, 65507} {
		payload := bytes.Repeat([]byte{0xa5, 0x5a, 0xff}, n)[:n]
		h := header.IPv4(Datagram(app4, dest4, payload))
		if !h.IsValid(len(h)) || !h.IsChecksumValid() || h.TTL() == 0 ||
			h.SourceAddress() != tcpip.AddrFrom4(app4.Addr().As4()) ||
			h.DestinationAddress() != tcpip.AddrFrom4(dest4.Addr().As4()) {
			t.Fatalf("IPv4, %d bytes: % x", n, h[:20])
		}
		checkUDP(t, h.Payload(), payload, h.SourceAddress(), h.DestinationAddress())
		g := header.IPv6(Datagram(app6, dest6, payload))
		if !g.IsValid(len(g)) || g.HopLimit() == 0 ||
			g.SourceAddress() != tcpip.AddrFrom16(app6.Addr().As16()) ||
			g.DestinationAddress() != tcpip.AddrFrom16(dest6.Addr().As16()) {
			t.Fatalf("IPv6, %d bytes: % x", n, g[:40])
		}
		checkUDP(t, g.Payload(), payload, g.SourceAddress(), g.DestinationAddress())
	}
	if Datagram(app4, dest6, nil) != nil || Datagram(app4, dest4, make([]byte, 65508)) != nil ||
		Datagram(app6, dest6, make([]byte, 65528)) != nil {
		t.Error("a datagram that cannot be was made")
	}
}

func checkUDP(t *testing.T, b, payload []byte, src, dst tcpip.Address) {
	t.Helper()
	u := header.UDP(b)
	if u.SourcePort() != 40000 || u.DestinationPort() != 443 || int(u.Length()) != len(b) ||
		!bytes.Equal(u.Payload(), payload) {
		t.Fatalf("%d bytes: % x", len(payload), b[:8])
	}
	if !u.IsChecksumValid(src, dst, checksum.Checksum(payload, 0)) {
		t.Errorf("%d bytes: the checksum is wrong", len(payload))
	}
}

// TestUnreachable checks types and codes of RFC 792 and RFC 4443, and the quoted packet.
func TestUnreachable(t *testing.T) {
	for _, c := range []struct {
		code  wire.Code
		mtu   int
		type4 header.ICMPv4Type
		code4 header.ICMPv4Code
		type6 header.ICMPv6Type
		code6 header.ICMPv6Code
	}{
		{wire.CodeConnRefused, 0, header.ICMPv4DstUnreachable, header.ICMPv4PortUnreachable,
			header.ICMPv6DstUnreachable, header.ICMPv6PortUnreachable},
		{wire.CodeUnreachable, 0, header.ICMPv4DstUnreachable, header.ICMPv4HostUnreachable,
			header.ICMPv6DstUnreachable, header.ICMPv6AddressUnreachable},
		{wire.CodeForbidden, 0, header.ICMPv4DstUnreachable, header.ICMPv4AdminProhibited,
			header.ICMPv6DstUnreachable, header.ICMPv6Prohibited},
		{wire.CodeTooBig, 1400, header.ICMPv4DstUnreachable, header.ICMPv4FragmentationNeeded,
			header.ICMPv6PacketTooBig, 0},
	} {
		for _, n := range []int{0, 100, 5000} {
			p4 := Datagram(app4, dest4, make([]byte, n))
			h := header.IPv4(Unreachable(p4, ReasonFor(c.code), c.mtu))
			m := header.ICMPv4(h.Payload())
			if !h.IsValid(len(h)) || !h.IsChecksumValid() || len(h) > 576 ||
				h.SourceAddress() != tcpip.AddrFrom4(dest4.Addr().As4()) ||
				h.DestinationAddress() != tcpip.AddrFrom4(app4.Addr().As4()) {
				t.Fatalf("%v: % x", c.code, h[:20])
			}
			if m.Type() != c.type4 || m.Code() != c.code4 || checksum.Checksum(m, 0) != 0xffff ||
				int(m.MTU()) != c.mtu || !bytes.HasPrefix(p4, m.Payload()) || len(m.Payload()) < 28 {
				t.Errorf("%v, IPv4: % x", c.code, m)
			}
			p6 := Datagram(app6, dest6, make([]byte, n))
			g := header.IPv6(Unreachable(p6, ReasonFor(c.code), c.mtu))
			m6 := header.ICMPv6(g.Payload())
			if !g.IsValid(len(g)) || len(g) > 1280 ||
				g.SourceAddress() != tcpip.AddrFrom16(dest6.Addr().As16()) ||
				g.DestinationAddress() != tcpip.AddrFrom16(app6.Addr().As16()) {
				t.Fatalf("%v: % x", c.code, g[:40])
			}
			want := header.ICMPv6Checksum(header.ICMPv6ChecksumParams{Header: m6, Src: g.SourceAddress(),
				Dst: g.DestinationAddress()})
			if m6.Type() != c.type6 || m6.Code() != c.code6 || m6.Checksum() != want ||
				int(m6.MTU()) != c.mtu || !bytes.HasPrefix(p6, m6.Payload()) || len(m6.Payload()) < 48 {
				t.Errorf("%v, IPv6: % x", c.code, m6)
			}
		}
	}
	for n := range 40 {
		for _, p := range [][]byte{Datagram(app4, dest4, nil), Datagram(app6, dest6, nil)} {
			if n < len(p) {
				Unreachable(p[:n], PortUnreachable, 0) // must not panic
			}
		}
	}
	if Unreachable(nil, PortUnreachable, 0) != nil || Unreachable(make([]byte, 100), PortUnreachable,
		0) != nil || Unreachable(make([]byte, 19), HostUnreachable, 0) != nil {
		t.Error("an error about no packet was made")
	}
}

// FuzzUnreachable checks that the answer to any input is a small IP packet to its source, or nil.
func FuzzUnreachable(f *testing.F) {
	f.Add(Datagram(netip.MustParseAddrPort("10.0.0.1:1"), netip.MustParseAddrPort("10.0.0.2:2"), []byte("x")), 1280)
	f.Add(Datagram(netip.MustParseAddrPort("[2001:db8::1]:1"), netip.MustParseAddrPort("[2001:db8::2]:2"),
		make([]byte, 2000)), -1)
	f.Fuzz(func(t *testing.T, packet []byte, mtu int) {
		for _, why := range []Reason{HostUnreachable, PortUnreachable, Prohibited, TooBig} {
			b := Unreachable(packet, why, mtu)
			switch {
			case b == nil:
			case b[0]>>4 == 4 && len(b) <= maxICMPv4Error && header.IPv4(b).IsValid(len(b)) &&
				string(b[16:20]) == string(packet[12:16]):
			case b[0]>>4 == 6 && len(b) <= maxICMPv6Error && header.IPv6(b).IsValid(len(b)) &&
				string(b[24:40]) == string(packet[8:24]):
			default:
				t.Errorf("%x is answered by %x", packet, b)
			}
		}
	})
}
