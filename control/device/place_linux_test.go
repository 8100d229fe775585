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
	wifi := wayOut{link: "wlan0", gateway: "02:00:00:00:00:01", subnets: nets("192.168.0.0/24")}
	wifi6 := wifi
	wifi6.six = true
	lte := wayOut{link: "wwan0", subnets: nets("10.7.0.0/16", "2001:db8:1:1::/64")}
	lte6 := wayOut{link: "wwan0", six: true, subnets: nets("2001:db8:1:1::/64")}
	other := func(w wayOut, f func(*wayOut)) wayOut { f(&w); return w }
	for _, c := range []struct {
		name string
		a, b []wayOut
		same bool
	}{
		{"in another order", []wayOut{wifi, lte}, []wayOut{lte, wifi}, true},
		{"twice", []wayOut{wifi, wifi}, []wayOut{wifi}, true},
		{"another gateway", []wayOut{wifi}, []wayOut{other(wifi, func(w *wayOut) { w.gateway = "02:00:00:00:00:02" })}, false},
		{"another interface to the same gateway", []wayOut{wifi}, []wayOut{other(wifi, func(w *wayOut) { w.link = "wlan1" })}, true},
		{"one way more", []wayOut{wifi}, []wayOut{wifi, lte}, false},
		{"IPv6 comes later", []wayOut{wifi}, []wayOut{wifi, other(wifi6, func(w *wayOut) { w.gateway = "02:00:00:00:00:09" })}, true},
		{"IPv6 is gone, the router is the same", []wayOut{wifi}, []wayOut{wifi6}, true},
		{"IPv6 only, another gateway", []wayOut{wifi6}, []wayOut{other(wifi6, func(w *wayOut) { w.gateway = "02:00:00:00:00:02" })}, false},
		{"cellular, IPv6 only, another /64 of the provider", []wayOut{lte6}, []wayOut{other(lte6, func(w *wayOut) { w.subnets = nets("2001:db8:7:7::/64") })}, true},
		{"cellular, IPv6 only, another provider", []wayOut{lte6}, []wayOut{other(lte6, func(w *wayOut) { w.subnets = nets("2001:db9:1:1::/64") })}, false},
		{"cellular, both: IPv4 counts", []wayOut{lte}, []wayOut{lte, lte6}, true},
		{"another IPv4 subnet", []wayOut{lte}, []wayOut{other(lte, func(w *wayOut) { w.subnets = nets("10.8.0.0/16") })}, false},
	} {
		a, b := placeOf(c.a), placeOf(c.b)
		if len(a) != 32 || len(b) != 32 || (a == b) != c.same {
			t.Errorf("%s: %s, %s", c.name, a, b)
		}
	}
	if p := placeOf(nil); p != "" {
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
		p, err := Place()
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
		must(netlink.NeighSet(&netlink.Neigh{LinkIndex: index, State: netlink.NUD_PERMANENT, IP: net.ParseIP(ip), HardwareAddr: hw}))
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
