// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/net/dns/dnsmessage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// buildAnswer returns an answer as announcers send it.
func buildAnswer(t testing.TB, s Service, port uint16, txt []string, ips ...string) []byte {
	t.Helper()
	name := dnsmessage.MustNewName
	head := func(of string) dnsmessage.ResourceHeader {
		return dnsmessage.ResourceHeader{Name: name(of), Class: dnsmessage.ClassINET | topBit, TTL: 120}
	}
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: 7, Response: true, Authoritative: true})
	b.EnableCompression()
	instance := "Phone." + serviceName(s)
	err := errors.Join(b.StartAnswers(),
		b.PTRResource(head(serviceName(s)), dnsmessage.PTRResource{PTR: name(instance)}),
		b.SRVResource(head(instance), dnsmessage.SRVResource{Port: port, Target: name("Host.local.")}))
	for _, ip := range ips {
		if a := netip.MustParseAddr(ip); a.Is4() {
			err = errors.Join(err, b.AResource(head("host.local."), dnsmessage.AResource{A: a.As4()}))
		} else {
			err = errors.Join(err, b.AAAAResource(head("host.local."), dnsmessage.AAAAResource{AAAA: a.As16()}))
		}
	}
	err = errors.Join(err, b.TXTResource(head(instance), dnsmessage.TXTResource{TXT: txt}))
	packet, e := b.Finish()
	if err = errors.Join(err, e); err != nil {
		t.Fatal(err)
	}
	return packet
}

// TestAnswers checks that addresses which cannot be called, invalid IDs and answers to other
// queries are ignored.
func TestAnswers(t *testing.T) {
	v1 := []string{"v=1"}
	for name, c := range map[string]struct {
		packet []byte
		want   string
	}{
		"both kinds": {buildAnswer(t, Pipes, 7602, []string{"x", "id=K7QF"}, "2001:db8::1", "10.0.0.1"),
			"[{K7QF 10.0.0.1:7602}]"},
		"IPv6":             {buildAnswer(t, Pipes, 1, v1, "2001:db8::1"), "[{ [2001:db8::1]:1}]"},
		"link-local":       {buildAnswer(t, Pipes, 1, v1, "fe80::1"), "[]"},
		"loopback":         {buildAnswer(t, Pipes, 1, v1, "127.0.0.1"), "[]"},
		"multicast":        {buildAnswer(t, Pipes, 1, v1, "224.0.0.251"), "[]"},
		"anything":         {buildAnswer(t, Pipes, 1, v1, "0.0.0.0"), "[]"},
		"one that is good": {buildAnswer(t, Pipes, 1, v1, "127.0.0.1", "10.0.0.2"), "[{ 10.0.0.2:1}]"},
		"long ID": {buildAnswer(t, Pipes, 1, []string{"id=" + strings.Repeat("x", 200)}, "10.0.0.1"),
			"[{ 10.0.0.1:1}]"},
		"another service": {buildAnswer(t, Codes, 1, v1, "10.0.0.1"), "[]"},
		"a question":      {buildQuery(Pipes, 7), "[]"},
	} {
		if got := fmt.Sprint(parseMDNSAnswer(c.packet, Pipes, 7)); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	good := buildAnswer(t, Pipes, 1, v1, "10.0.0.1")
	if got := parseMDNSAnswer(good, Pipes, 8); got != nil {
		t.Errorf("of another question: %v", got)
	}
	for n := range good {
		if got := parseMDNSAnswer(good[:n], Pipes, 7); got != nil {
			t.Errorf("%d of %d bytes: %v", n, len(good), got)
		}
	}
}

func TestPublic(t *testing.T) {
	for addr, want := range map[string]bool{"192.168.1.1": false, "10.77.0.1": false, "172.16.0.1": false,
		"192.0.2.1": true, "100.64.0.1": true, "2001:db8::1": false} {
		if got := isPublicIPv4(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %v", addr, got)
		}
	}
}

// TestLinks checks that loopback is not included, and that all links have addresses that others can
// call.
func TestLinks(t *testing.T) {
	for _, l := range localLinks() {
		if l.iface.Flags&net.FlagLoopback != 0 || len(l.addrs) == 0 {
			t.Errorf("%+v", l)
		}
		for _, a := range l.addrs {
			if !a.IsGlobalUnicast() || isPublicIPv4(a) {
				t.Errorf("%s has %v", l.iface.Name, a)
			}
		}
		if !l.isSameLink(l) {
			t.Errorf("%s is not itself", l.iface.Name)
		}
		other := l
		other.addrs = append(other.addrs[:len(other.addrs):len(other.addrs)], netip.MustParseAddr("192.0.2.1"))
		if l.isSameLink(other) {
			t.Errorf("another address of %s goes unnoticed", l.iface.Name)
		}
	}
}

// FuzzAnswers checks that any answer yields only callable addresses and short IDs.
func FuzzAnswers(f *testing.F) {
	f.Add(buildAnswer(f, Pipes, 7602, []string{"id=K7QF"}, "10.0.0.1", "fe80::1"))
	f.Add(buildAnswer(f, Pipes, 1, []string{"x"}, "2001:db8::1"))
	f.Add(buildQuery(Pipes, 7))
	f.Fuzz(func(t *testing.T, packet []byte) {
		for _, got := range parseMDNSAnswer(packet, Pipes, 7) {
			a := got.Addr.Addr()
			if !a.IsGlobalUnicast() || a.Is4In6() || a.Zone() != "" || got.Addr.Port() == 0 || len(got.ID) > 32 {
				t.Errorf("%+v", got)
			}
		}
	})
}

// TestFoundAreBounded checks that the result is bounded and has no duplicates.
func TestFoundAreBounded(t *testing.T) {
	var list []Found
	for i := range 3 * maxFound {
		f := Found{"K7QF", netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), uint16(i+1))}
		list = appendNewFound(appendNewFound(list, []Found{f}), []Found{f, f})
		if len(list) != min(i+1, maxFound) {
			t.Fatalf("after %d: %d are kept", i+1, len(list))
		}
	}
}

// TestTXTRecords checks that a device that shows a code does not announce its ID.
func TestTXTRecords(t *testing.T) {
	if got := findDeviceID(txtRecords("K7QF")); got != "K7QF" {
		t.Errorf("%q", got)
	}
	if got := txtRecords(""); len(got) != 1 || findDeviceID(got) != "" {
		t.Errorf("%q", got)
	}
}

func TestLocal(t *testing.T) {
	const usual = net.FlagUp | net.FlagMulticast | net.FlagBroadcast | net.FlagRunning
	for f, want := range map[net.Flags]bool{usual: true, usual &^ net.FlagUp: false,
		usual &^ net.FlagMulticast: false, usual | net.FlagLoopback: false, usual | net.FlagPointToPoint: false} {
		if got := isLocalNetwork(f); got != want {
			t.Errorf("%v: %v", f, got)
		}
	}
}
