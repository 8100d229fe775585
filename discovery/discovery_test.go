package discovery

import (
	"net"
	"net/netip"
	"testing"

	"github.com/hashicorp/mdns"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestAnswers: what cannot be called, or is no ID of ours, is not taken.
func TestAnswers(t *testing.T) {
	v6 := &net.IPAddr{IP: net.ParseIP("2001:db8::1")}
	for name, c := range map[string]struct {
		e    mdns.ServiceEntry
		want Found
		none bool
	}{
		"both kinds": {mdns.ServiceEntry{AddrV4: net.IPv4(10, 0, 0, 1), AddrV6IPAddr: v6, Port: 7602, InfoFields: []string{"x", "id=K7QF"}},
			Found{"K7QF", netip.MustParseAddrPort("10.0.0.1:7602")}, false},
		"IPv6":       {mdns.ServiceEntry{AddrV6IPAddr: v6, Port: 1}, Found{"", netip.MustParseAddrPort("[2001:db8::1]:1")}, false},
		"link-local": {mdns.ServiceEntry{AddrV6IPAddr: &net.IPAddr{IP: net.ParseIP("fe80::1"), Zone: "eth0"}, Port: 1}, Found{}, true},
		"loopback":   {mdns.ServiceEntry{AddrV4: net.IPv4(127, 0, 0, 1), Port: 1}, Found{}, true},
		"multicast":  {mdns.ServiceEntry{AddrV4: net.IPv4(224, 0, 0, 251), Port: 1}, Found{}, true},
		"anything":   {mdns.ServiceEntry{AddrV4: net.IPv4zero, Port: 1}, Found{}, true},
		"no port":    {mdns.ServiceEntry{AddrV4: net.IPv4(10, 0, 0, 1)}, Found{}, true},
		"bad port":   {mdns.ServiceEntry{AddrV4: net.IPv4(10, 0, 0, 1), Port: 65536}, Found{}, true},
		"no address": {mdns.ServiceEntry{Port: 1}, Found{}, true},
		"long ID": {mdns.ServiceEntry{AddrV4: net.IPv4(10, 0, 0, 1), Port: 1, InfoFields: []string{"id=" + string(make([]byte, 200))}},
			Found{"", netip.MustParseAddrPort("10.0.0.1:1")}, false},
	} {
		got := appendEntry(nil, &c.e)
		if c.none != (len(got) == 0) || !c.none && got[0] != c.want || len(got) > 1 {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestPublic(t *testing.T) {
	for addr, want := range map[string]bool{"192.168.1.1": false, "10.77.0.1": false, "172.16.0.1": false, "192.0.2.1": true, "100.64.0.1": true, "2001:db8::1": false} {
		if got := public4(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %v", addr, got)
		}
	}
}

// TestLinks: loopback is none, and all have addresses that others can call.
func TestLinks(t *testing.T) {
	for _, l := range links() {
		if l.iface.Flags&net.FlagLoopback != 0 || len(l.addrs) == 0 {
			t.Errorf("%+v", l)
		}
		for _, a := range l.addrs {
			if !a.IsGlobalUnicast() || public4(a) {
				t.Errorf("%s has %v", l.iface.Name, a)
			}
		}
		if !l.same(l) {
			t.Errorf("%s is not itself", l.iface.Name)
		}
		other := l
		other.addrs = append(other.addrs[:len(other.addrs):len(other.addrs)], netip.MustParseAddr("192.0.2.1"))
		if l.same(other) {
			t.Errorf("another address of %s goes unnoticed", l.iface.Name)
		}
	}
}

// FuzzAnswers: whatever an answer says, nothing comes of it but an address where
// a device may be called, of whom it says so in few characters.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte{10, 0, 0, 1}, []byte(net.ParseIP("fe80::1")), 7602, "id=K7QF")
	f.Add([]byte{}, []byte(net.ParseIP("2001:db8::1")), 1, "x")
	f.Fuzz(func(t *testing.T, v4, v6 []byte, port int, txt string) {
		e := mdns.ServiceEntry{AddrV4: v4, Port: port, InfoFields: []string{"v=1", txt}}
		if len(v6) > 0 {
			e.AddrV6IPAddr = &net.IPAddr{IP: v6, Zone: txt}
		}
		for _, got := range appendEntry(nil, &e) {
			a := got.Addr.Addr()
			if !a.IsGlobalUnicast() || a.Is4In6() || a.Zone() != "" || int(got.Addr.Port()) != port || port == 0 || len(got.ID) > 32 {
				t.Errorf("%+v of %+v", got, e)
			}
		}
	})
}
