// SPDX-License-Identifier: Apache-2.0

package device

import (
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestPlaceOf(t *testing.T) {
	nets := func(list ...string) (out []netip.Prefix) {
		for _, s := range list {
			out = append(out, netip.MustParsePrefix(s))
		}
		return out
	}
	wifi := defaultRoute{link: "wlan0", gateway: "02:00:00:00:00:01", subnets: nets("192.168.0.0/24")}
	wifi6 := wifi
	wifi6.isIPv6 = true
	lte := defaultRoute{link: "wwan0", subnets: nets("10.7.0.0/16", "2001:db8:1:1::/64")}
	lte6 := defaultRoute{link: "wwan0", isIPv6: true, subnets: nets("2001:db8:1:1::/64")}
	other := func(w defaultRoute, f func(*defaultRoute)) defaultRoute { f(&w); return w }
	for _, c := range []struct {
		name string
		a, b []defaultRoute
		same bool
	}{
		{"in another order", []defaultRoute{wifi, lte}, []defaultRoute{lte, wifi}, true},
		{"twice", []defaultRoute{wifi, wifi}, []defaultRoute{wifi}, true},
		{"another gateway", []defaultRoute{wifi},
			[]defaultRoute{other(wifi, func(w *defaultRoute) { w.gateway = "02:00:00:00:00:02" })}, false},
		{"another interface to the same gateway", []defaultRoute{wifi},
			[]defaultRoute{other(wifi, func(w *defaultRoute) { w.link = "wlan1" })}, true},
		{"one way more", []defaultRoute{wifi}, []defaultRoute{wifi, lte}, false},
		{"IPv6 comes later", []defaultRoute{wifi}, []defaultRoute{wifi,
			other(wifi6, func(w *defaultRoute) { w.gateway = "02:00:00:00:00:09" })}, true},
		{"IPv6 is gone, the router is the same", []defaultRoute{wifi}, []defaultRoute{wifi6}, true},
		{"IPv6 only, another gateway", []defaultRoute{wifi6},
			[]defaultRoute{other(wifi6, func(w *defaultRoute) { w.gateway = "02:00:00:00:00:02" })}, false},
		{"cellular, IPv6 only, another /64 of the provider", []defaultRoute{lte6},
			[]defaultRoute{other(lte6, func(w *defaultRoute) { w.subnets = nets("2001:db8:7:7::/64") })}, true},
		{"cellular, IPv6 only, another provider", []defaultRoute{lte6},
			[]defaultRoute{other(lte6, func(w *defaultRoute) { w.subnets = nets("2001:db9:1:1::/64") })}, false},
		{"cellular, both: IPv4 counts", []defaultRoute{lte}, []defaultRoute{lte, lte6}, true},
		{"another IPv4 subnet", []defaultRoute{lte},
			[]defaultRoute{other(lte, func(w *defaultRoute) { w.subnets = nets("10.8.0.0/16") })}, false},
	} {
		a, b := hashLocation(c.a), hashLocation(c.b)
		if len(a) != 32 || len(b) != 32 || (a == b) != c.same {
			t.Errorf("%s: %s, %s", c.name, a, b)
		}
	}
	if p := hashLocation(nil); p != "" {
		t.Errorf("nowhere is %q", p)
	}
}

// TestPlace asks the kernel, in a network namespace of the test's own.
func TestPlace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root for a network namespace")
	}
	runtime.LockOSThread() // and never unlocked: the thread ends with the test, and the namespace with it
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skip("no network namespaces: ", err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	place := func() string {
		t.Helper()
		p, err := Location()
		must(err)
		return p
	}
	if p := place(); p != "" {
		t.Errorf("without a network: %q", p)
	}
	must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "wlan0"}, PeerName: "peer0"}))
	link, err := netlink.LinkByName("wlan0")
	must(err)
	peer, err := netlink.LinkByName("peer0")
	must(err)
	must(netlink.LinkSetUp(peer))
	must(netlink.LinkSetUp(link))
	index := link.Attrs().Index
	address := func(s string) {
		t.Helper()
		a, err := netlink.ParseAddr(s)
		must(err)
		a.Flags = unix.IFA_F_NODAD
		must(netlink.AddrAdd(link, a))
	}
	gateway := func(ip, mac string) {
		t.Helper()
		hw, err := net.ParseMAC(mac)
		must(err)
		must(netlink.NeighSet(&netlink.Neigh{LinkIndex: index, State: netlink.NUD_PERMANENT, IP: net.ParseIP(ip),
			HardwareAddr: hw}))
	}
	address("2001:db8:1:1::2/64")
	if p := place(); p != "" {
		t.Errorf("without a default route: %q", p)
	}
	must(netlink.RouteAdd(&netlink.Route{LinkIndex: index, Gw: net.ParseIP("fe80::1"), Family: netlink.FAMILY_V6}))
	silent := place()
	gateway("fe80::1", "02:00:00:00:00:01")
	home := place()
	gateway("fe80::1", "02:00:00:00:00:02")
	cafe := place()
	if len(silent) != 32 || len(home) != 32 || silent == home || home == cafe {
		t.Errorf("IPv6 only: with a gateway unheard of %q, of two %q and %q", silent, home, cafe)
	}
	address("192.168.0.2/24")
	must(netlink.RouteAdd(&netlink.Route{LinkIndex: index, Gw: net.ParseIP("192.168.0.1")}))
	gateway("192.168.0.1", "02:00:00:00:00:01")
	if p := place(); p != home {
		t.Errorf("with IPv4 by the router of home: %q, want %q", p, home)
	}
}
