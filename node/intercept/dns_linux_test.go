// SPDX-License-Identifier: Apache-2.0

package intercept

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// dnsMessage returns a query or, with answers, the response to it.
func dnsMessage(t testing.TB, udpSize, answers int, rcode dnsmessage.RCode) []byte {
	t.Helper()
	name := dnsmessage.MustNewName("example.org.")
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 7, Response: answers >= 0, RCode: rcode},
		Questions: []dnsmessage.Question{{Name: name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
	}
	for i := range max(0, answers) {
		m.Answers = append(m.Answers, dnsmessage.Resource{
			Header: dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET},
			Body:   &dnsmessage.AResource{A: [4]byte{192, 0, 2, byte(i)}},
		})
	}
	if udpSize > 0 {
		h := dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName("."), Class: dnsmessage.Class(udpSize),
			Type: dnsmessage.TypeOPT}
		m.Additionals = []dnsmessage.Resource{{Header: h, Body: &dnsmessage.OPTResource{}}}
	}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestDNSAnswerFits(t *testing.T) {
	long := dnsMessage(t, 0, 100, 0)
	for _, tc := range []struct {
		name  string
		query []byte
		whole bool
	}{
		{"plain query", dnsMessage(t, 0, -1, 0), false},
		{"small EDNS", dnsMessage(t, 100, -1, 0), false},
		{"large EDNS", dnsMessage(t, 4096, -1, 0), true},
		{"garbage", []byte("what"), false},
	} {
		got := truncateDNS(tc.query, long)
		if tc.whole {
			if len(got) != len(long) {
				t.Errorf("%s: cut to %d bytes", tc.name, len(got))
			}
			continue
		}
		var m dnsmessage.Message
		if err := m.Unpack(got); err != nil || !m.Truncated || m.ID != 7 || len(m.Answers) != 0 ||
			len(m.Questions) != 1 || len(got) > dnsPlainSize {
			t.Errorf("%s: %d bytes, %v, %+v", tc.name, len(got), err, m.Header)
		}
	}
	// A truncated query counts as one without EDNS, or is parsed.
	q := dnsMessage(t, 4096, -1, 0)
	for n := range q {
		truncateDNS(q[:n], long)
	}
}

func TestDNSAsksBothWays(t *testing.T) {
	query := dnsMessage(t, 0, -1, 0)
	good, none, sick := dnsMessage(t, 0, 1, 0), dnsMessage(t, 0, 0, dnsmessage.RCodeNameError),
		dnsMessage(t, 0, 0, dnsmessage.RCodeServerFailure)
	type way = func(context.Context, netip.AddrPort, []byte) ([]byte, error)
	says := func(b []byte) way {
		return func(context.Context, netip.AddrPort, []byte) ([]byte, error) { return b, nil }
	}
	silent := func(ctx context.Context, _ netip.AddrPort, _ []byte) ([]byte, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	refused := func(context.Context, netip.AddrPort, []byte) ([]byte, error) { return nil, syscall.ECONNREFUSED }
	for _, tc := range []struct {
		name           string
		direct, bonded way
		want           []byte
	}{
		{"direct only", says(good), silent, good},
		{"bond only", silent, says(good), good},
		{"bond refuses", says(good), refused, good},
		{"direct resolver is sick", says(sick), says(good), good},
		{"no such name", says(none), silent, none},
		{"both sick", says(sick), says(sick), sick},
		{"one sick, one gone", refused, says(sick), sick},
		{"neither", refused, refused, nil},
	} {
		var wg sync.WaitGroup
		got, err := raceDNSQueries(context.Background(), &wg, []dnsQueryFunc{dnsQueryFunc(tc.direct),
			dnsQueryFunc(tc.bonded)}, netip.AddrPort{}, query)
		wg.Wait()
		if string(got) != string(tc.want) || (err == nil) != (tc.want != nil) {
			t.Errorf("%s: %x, %v", tc.name, got, err)
		}
	}
}

func TestTransparentRefusesWhatWasNotRedirected(t *testing.T) {
	lns, err := ListenTransparent(0)
	if err != nil {
		t.Fatal(err)
	}
	e := New(Config{Dialer: &fakeBond{}})
	done := make(chan error, len(lns))
	for _, ln := range lns {
		go func() { done <- e.ServeTransparent(ln) }()
	}
	for _, ln := range lns {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err == nil {
			_, err = c.Read(make([]byte, 1))
			c.Close()
		}
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%v: %v, want a reset", ln.Addr(), err)
		}
	}
	port := uint16(lns[0].Addr().(*net.TCPAddr).Port)
	if _, err := ListenTransparent(port); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a port in use: %v", err)
	}
	e.Close()
	for range lns {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestConntrack queries the real kernel.
func TestConntrack(t *testing.T) {
	needRoot(t)
	c, err := newConntrack()
	if err != nil {
		t.Skip(err)
	}
	defer c.Close()
	for _, host := range []string{"192.0.2.1", "2001:db8::1"} {
		a := netip.AddrPortFrom(netip.MustParseAddr(host), 9)
		if d, err := c.originalUDPDest(a, a); !isNotFound(err) {
			t.Errorf("a flow that does not exist: %v, %v", d, err)
		}
	}
}

func FuzzDNSFits(f *testing.F) {
	f.Add(dnsMessage(f, 1232, -1, 0), dnsMessage(f, 0, 100, 0))
	f.Fuzz(func(t *testing.T, query, answer []byte) {
		if got := truncateDNS(query, answer); len(got) > max(len(answer), dnsPlainSize) {
			t.Errorf("an answer of %d bytes grew to %d", len(answer), len(got))
		}
	})
}

// FuzzNames checks that no answer of a resolver takes unbounded memory.
func FuzzNames(f *testing.F) {
	f.Add(dnsMessage(f, 1232, -1, 0))
	f.Add(dnsMessage(f, 0, 100, 0))
	n := new(Names)
	f.Fuzz(func(t *testing.T, answer []byte) {
		n.learnFromDNS(answer)
		if len(n.current) > maxNames || len(n.previous) > maxNames {
			t.Errorf("%d and %d names are kept", len(n.current), len(n.previous))
		}
		for _, name := range n.current {
			if len(name) > 255 {
				t.Errorf("a name has %d bytes", len(name))
			}
			break
		}
	})
}
