// SPDX-License-Identifier: Apache-2.0

package dialpolicy

import (
	"net"
	"net/netip"
	"testing"
)

func TestAllowed(t *testing.T) {
	for _, c := range []struct {
		addr  string
		allow string
		want  bool
	}{
		{"192.0.2.1", "", true},
		{"8.8.8.8", "", true},
		{"2001:db8::1", "", true},
		{"0.0.0.0", "", false},
		{"0.1.2.3", "", false},
		{"10.1.2.3", "", false},
		{"100.64.0.1", "", false},
		{"127.0.0.1", "", false},
		{"127.255.255.254", "", false},
		{"169.254.169.254", "", false},
		{"172.16.0.1", "", false},
		{"172.32.0.1", "", true},
		{"192.0.0.8", "", false},
		{"192.168.1.1", "", false},
		{"198.18.0.1", "", false},
		{"224.0.0.1", "", false},
		{"255.255.255.255", "", false},
		{"::", "", false},
		{"::1", "", false},
		{"::127.0.0.1", "", false},
		{"fe80::1", "", false},
		{"fe80::1%lo", "", false},
		{"fec0::1", "", false},
		{"2001:0:a00:1::1", "", false},
		{"::ffff:0:a00:1", "", false},
		{"fd00::1", "", false},
		{"ff02::1", "", false},
		{"100::1", "", false},
		{"64:ff9b:1::1", "", false},
		// The embedded IPv4 address counts: mapped, NAT64, 6to4.
		{"::ffff:127.0.0.1", "", false},
		{"::ffff:8.8.8.8", "", true},
		{"64:ff9b::10.0.0.1", "", false},
		{"64:ff9b::8.8.8.8", "", true},
		{"2002:7f00:1::1", "", false},
		{"2002:c0a8:101::", "", false},
		{"2002:808:808::", "", true},
		{"10.1.2.3", "10.1.0.0/16", true},
		{"10.2.2.3", "10.1.0.0/16", false},
		{"::ffff:10.1.2.3", "10.1.0.0/16", true},
		{"64:ff9b::10.1.2.3", "10.1.0.0/16", true},
		{"fd00:1::2", "fd00:1::/32", true},
		{"fd00:2::2", "fd00:1::/32", false},
		{"fe80::1%eth0", "fe80::/10", true},
	} {
		var allow []netip.Prefix
		if c.allow != "" {
			allow = mustParsePrefixes(c.allow)
		}
		if got := Allowed(netip.MustParseAddr(c.addr), allow); got != c.want {
			t.Errorf("%s with %q: %v", c.addr, c.allow, got)
		}
	}
}

// TestOwn checks that addresses of this host are refused unless listed, of any kind.
func TestOwn(t *testing.T) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range list {
		ip, _ := netip.AddrFromSlice(i.(*net.IPNet).IP)
		if AllowedNow(ip, nil) {
			t.Errorf("%v is permitted", ip)
		}
		if !AllowedNow(ip, []netip.Prefix{netip.PrefixFrom(ip.Unmap(), ip.Unmap().BitLen())}) {
			t.Errorf("%v is listed, and not permitted", ip)
		}
	}
	if !AllowedNow(netip.MustParseAddr("9.9.9.9"), nil) {
		t.Error("nothing is permitted")
	}
}

// TestNear checks that addresses in this host's networks are refused.
func TestNear(t *testing.T) {
	var list []net.Addr
	for _, s := range []string{"2001:db8:7:1::2/64", "192.0.2.77/26", "203.0.113.9/32"} {
		ip, n, err := net.ParseCIDR(s)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, &net.IPNet{IP: ip, Mask: n.Mask})
	}
	for addr, want := range map[string]bool{
		"2001:db8:7:1::2": true, "2001:db8:7:1:aaaa::50": true, "2001:db8:7:2::50": false,
		"192.0.2.77": true, "192.0.2.126": true, "::ffff:192.0.2.126": true, "192.0.2.129": false,
		"203.0.113.9": true, "203.0.113.10": false,
	} {
		if isOnLocalNetwork(netip.MustParseAddr(addr), list) != want {
			t.Errorf("%s: %v", addr, !want)
		}
	}
}

// FuzzAllowed checks that embedded or disguised addresses never reach the local network.
func FuzzAllowed(f *testing.F) {
	for _, s := range []string{"8.8.8.8", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:a00:1::", "2001:db8::1",
		"fe80::1", "64:ff9b::2002:1", "2002:2002::"} {
		f.Add(netip.MustParseAddr(s).AsSlice())
	}
	allow := mustParsePrefixes("10.77.0.0/16")
	f.Fuzz(func(t *testing.T, b []byte) {
		a, ok := netip.AddrFromSlice(b)
		if !ok {
			return
		}
		in, u := Allowed(a, allow), a.Unmap()
		if in && (u.IsLoopback() || u.IsUnspecified() || u.IsMulticast() || u.IsLinkLocalUnicast() || u.IsPrivate() &&
			!allow[0].Contains(u)) {
			t.Errorf("%v is allowed", a)
		}
		if mapped := netip.AddrFrom16(a.As16()); Allowed(mapped, allow) != in ||
			Allowed(mapped.WithZone("x"), allow) != in {
			t.Errorf("%v is not judged as %v is", a, mapped)
		}
	})
}
