// SPDX-License-Identifier: Apache-2.0

//go:build !router

package tun

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"

	"mpbond/link/wire"
	"mpbond/node/intercept"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testTimeout bounds every wait.
const testTimeout = time.Minute

// testNet is a machine whose whole traffic is taken. Another IP stack plays its kernel, and
// loopback plays the Internet.
type testNet struct {
	*testing.T
	kernel *stack.Stack
	n      *netstack
	edge   *intercept.Edge
	icmp   chan []byte // ICMP packets to the machine

	mu     sync.Mutex
	at     map[string]string    // destination -> address here
	refuse map[string]wire.Code // destination -> refusal; unknown ones are unreachable
	direct []string             // destinations tried directly
	around chan string          // gets the same
	asked  chan<- intercept.App // gets the app of each dial, if set
}

var (
	site4 = netip.MustParseAddrPort("203.0.113.7:80")
	site6 = netip.MustParseAddrPort("[2001:db8::7]:80")
)

func newTestNet(t *testing.T, packets intercept.PacketDialer) *testNet {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var links [2]*link
	for i, fd := range pair {
		if links[i], err = newLink(os.NewFile(uintptr(fd), "pair"), deviceMTU); err != nil {
			t.Fatal(err)
		}
	}
	w := &testNet{T: t, at: map[string]string{}, refuse: map[string]wire.Code{}, icmp: make(chan []byte, 64),
		around: make(chan string, 64)}
	links[1].acceptPacket = func(p []byte) bool {
		if header.IPVersion(p) == 4 && p[9] == byte(header.ICMPv4ProtocolNumber) || header.IPVersion(p) == 6 &&
			p[6] == byte(header.ICMPv6ProtocolNumber) {
			w.icmp <- bytes.Clone(p)
		}
		return true
	}
	w.edge = intercept.New(intercept.Config{Dialer: w, Packets: packets, Direct: func(_ context.Context, _,
		dest string) (net.Conn, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.direct = append(w.direct, dest)
		w.around <- dest
		return nil, errors.New("no way around")
	}})
	if w.n, err = newNetstack(links[0], w.edge, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	w.kernel = stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol},
	})
	if err := w.kernel.CreateNIC(nicID, links[1]); err != nil {
		t.Fatal(err)
	}
	for _, a := range []netip.Prefix{address4, address6} {
		proto := ipv4.ProtocolNumber
		if a.Addr().Is6() {
			proto = ipv6.ProtocolNumber
		}
		if err := w.kernel.AddProtocolAddress(nicID, tcpip.ProtocolAddress{Protocol: proto,
			AddressWithPrefix: tcpip.AddrFromSlice(a.Addr().AsSlice()).WithPrefix()},
			stack.AddressProperties{}); err != nil {
			t.Fatal(err)
		}
	}
	w.kernel.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nicID},
		{Destination: header.IPv6EmptySubnet, NIC: nicID}})
	var wg sync.WaitGroup
	for _, l := range links {
		wg.Go(func() {
			// The other end may have closed first, with unread packets.
			if err := l.readTUNPackets(); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		w.edge.Close()
		w.n.closeNetstack()
		w.kernel.Close()
		links[1].Close()
		w.kernel.Wait()
		wg.Wait()
	})
	return w
}

// DialStream implements intercept.Dialer.
func (w *testNet) DialStream(ctx context.Context, dest string) (net.Conn, error) {
	w.mu.Lock()
	addr, known := w.at[dest]
	code, refused := w.refuse[dest]
	asked := w.asked
	w.mu.Unlock()
	if app, ok := intercept.AppOf(ctx); ok && asked != nil {
		asked <- app
	}
	if !known {
		if !refused {
			code = wire.CodeUnreachable
		}
		a, b := net.Pipe()
		b.Close()
		return refusedConn{a, wire.Reset{Code: code}}, nil
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", addr)
}

// refusedConn is a stream that the far end refuses.
type refusedConn struct {
	net.Conn
	why error
}

func (r refusedConn) WaitOpen(context.Context) error { return r.why }

// serveAt makes handle serve the connections to dest.
func (w *testNet) serveAt(dest netip.AddrPort, handle func(*net.TCPConn)) {
	w.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.Fatal(err)
	}
	w.mu.Lock()
	w.at[dest.String()] = l.Addr().String()
	w.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { defer c.Close(); handle(c.(*net.TCPConn)) })
		}
	})
	w.Cleanup(func() { l.Close(); wg.Wait() })
}

// dialFrom connects as an app would.
func (w *testNet) dialFrom(ctx context.Context, dest netip.AddrPort) (*gonet.TCPConn, error) {
	proto := ipv4.ProtocolNumber
	if dest.Addr().Is6() {
		proto = ipv6.ProtocolNumber
	}
	c, err := gonet.DialContextTCP(ctx, w.kernel, toFullAddress(dest), proto)
	if err != nil {
		return nil, err
	}
	c.SetDeadline(time.Now().Add(testTimeout))
	w.Cleanup(func() { c.Close() })
	return c, nil
}

func randomReader(n int64) io.Reader { return io.LimitReader(rand.NewChaCha8([32]byte{7}), n) }

func hashOf(t *testing.T, r io.Reader) string {
	t.Helper()
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		t.Error(err)
	}
	return string(h.Sum(nil))
}

// TestConnections sends 4 MB each way at once over both families, ends one direction, and still
// gets the other one.
func TestConnections(t *testing.T) {
	const size = 4 << 20
	for _, site := range []netip.AddrPort{site4, site6} {
		t.Run(site.String(), func(t *testing.T) {
			w := newTestNet(t, nil)
			got := make(chan string, 1)
			w.serveAt(site, func(c *net.TCPConn) {
				var wg sync.WaitGroup
				wg.Go(func() { got <- hashOf(t, c) }) // until the app's half-close
				_, _ = io.Copy(c, randomReader(size))
				wg.Wait()
				_, _ = io.WriteString(c, "bye")
			})
			c, err := w.dialFrom(t.Context(), site)
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				if _, err := io.Copy(struct{ io.Writer }{c}, randomReader(size)); err != nil {
					t.Error(err)
				}
				if err := c.CloseWrite(); err != nil {
					t.Error(err)
				}
			})
			if down := hashOf(t, io.LimitReader(c, size)); down != hashOf(t, randomReader(size)) {
				t.Error("the download is damaged")
			}
			rest, err := io.ReadAll(c)
			if string(rest) != "bye" || err != nil {
				t.Errorf("after half-close: %q, %v", rest, err)
			}
			wg.Wait()
			if <-got != hashOf(t, randomReader(size)) {
				t.Error("the upload is damaged")
			}
		})
	}
}

// awaitICMP waits for an ICMP error and checks that the machine can assign it: it comes from dest
// and quotes a packet to there.
func (w *testNet) awaitICMP(dest netip.AddrPort) (icmpType, code byte) {
	w.Helper()
	select {
	case p := <-w.icmp:
		ip, quoted := 20, header.IPv4MinimumSize
		var from, to, src, dst tcpip.Address
		if dest.Addr().Is6() {
			ip, quoted = 40, header.IPv6MinimumSize
			h, q := header.IPv6(p), header.IPv6(p[48:])
			from, to, src, dst = h.SourceAddress(), h.DestinationAddress(), q.SourceAddress(), q.DestinationAddress()
			if m := header.ICMPv6(p[ip:]); header.ICMPv6Checksum(header.ICMPv6ChecksumParams{Header: m,
				Src: from, Dst: to}) != m.Checksum() {
				w.Error("wrong checksum")
			}
		} else {
			h, q := header.IPv4(p), header.IPv4(p[28:])
			from, to, src, dst = h.SourceAddress(), h.DestinationAddress(), q.SourceAddress(), q.DestinationAddress()
			if m := header.ICMPv4(p[ip:]); !h.IsChecksumValid() || header.ICMPv4Checksum(m, 0) != m.Checksum() {
				w.Error("wrong checksum")
			}
		}
		port := netip.AddrPortFrom(dest.Addr(), header.UDP(p[ip+8+quoted:]).DestinationPort())
		if from != dst || to != src || toAddrPort(dst, port.Port()) != dest {
			w.Errorf("from %v to %v, about a packet from %v to %v; want %v", from, to, src, port, dest)
		}
		return p[ip], p[ip+1]
	case <-time.After(testTimeout):
		w.Errorf("no ICMP error about %v", dest)
		return 0, 0
	}
}

// TestRefusals checks that an app gets the reason before it is connected.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		dest           string
		code           wire.Code
		icmpType, icmp byte // 0 for a reset
		direct         bool
	}{
		{"203.0.113.7:80", wire.CodeConnRefused, 0, 0, false},
		{"[2001:db8::7]:80", wire.CodeConnRefused, 0, 0, false},
		{"203.0.113.7:80", wire.CodeUnreachable, 3, 1, false},
		{"[2001:db8::7]:80", wire.CodeUnreachable, 1, 3, false},
		{"203.0.113.7:80", wire.CodeForbidden, 3, 13, false},
		{"[2001:db8::7]:80", wire.CodeForbidden, 1, 1, false},
		{"192.168.9.9:80", wire.CodeForbidden, 3, 13, true},
		{"[fd00::9]:80", wire.CodeForbidden, 1, 1, true},
		{"203.0.113.7:80", wire.CodeInternal, 0, 0, false},
	} {
		t.Run(fmt.Sprintf("%s code %v", c.dest, c.code), func(t *testing.T) {
			w := newTestNet(t, nil)
			w.mu.Lock()
			w.refuse[c.dest] = c.code
			w.mu.Unlock()
			dest := netip.MustParseAddrPort(c.dest)
			ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
			defer cancel()
			failed := make(chan error, 1)
			go func() {
				conn, err := w.dialFrom(ctx, dest)
				if err == nil {
					conn.Close()
				}
				failed <- err
			}()
			if c.icmpType != 0 {
				if typ, code := w.awaitICMP(dest); typ != c.icmpType || code != c.icmp {
					t.Errorf("ICMP %d %d", typ, code)
				}
				cancel()
			}
			if err := <-failed; err == nil || c.icmpType == 0 && !strings.Contains(err.Error(), "refused") {
				t.Errorf("the app sees %v", err)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			if (len(w.direct) > 0) != c.direct {
				t.Errorf("tried directly: %v", w.direct)
			}
		})
	}
}

// TestReset checks that a broken stream resets the app's connection, and vice versa.
func TestReset(t *testing.T) {
	w := newTestNet(t, nil)
	broken := make(chan error, 1)
	w.serveAt(site4, func(c *net.TCPConn) {
		b := make([]byte, 1)
		_, _ = c.Read(b)
		if b[0] == 'r' {
			_ = c.SetLinger(0)
			return
		}
		_, _ = c.Write(b)
		_, err := c.Read(b)
		broken <- err
	})
	c, err := w.dialFrom(t.Context(), site4)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = c.Write([]byte("r"))
	if _, err := c.Read(make([]byte, 1)); err == nil || err == io.EOF {
		t.Errorf("the app sees %v", err)
	}
	if c, err = w.dialFrom(t.Context(), site4); err != nil {
		t.Fatal(err)
	}
	_, _ = c.Write([]byte("x"))
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	w.kernel.Close() // resets
	if err := <-broken; err == nil || err == io.EOF {
		t.Errorf("the far end sees %v", err)
	}
}

// listenUDP opens a UDP socket of an app.
func (w *testNet) listenUDP(remote netip.AddrPort) *gonet.UDPConn {
	w.Helper()
	proto, r := ipv4.ProtocolNumber, toFullAddress(remote)
	if remote.Addr().Is6() {
		proto = ipv6.ProtocolNumber
	}
	c, err := gonet.DialUDP(w.kernel, nil, &r, proto)
	if err != nil {
		w.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(testTimeout))
	w.Cleanup(func() { c.Close() })
	return c
}

// TestDatagrams checks that short and long datagrams come back from their destination, with one
// flow for each socket of the app, and that a refused port is reported.
func TestDatagrams(t *testing.T) {
	refused := netip.MustParseAddrPort("203.0.113.8:9")
	bond := &fakePackets{refuse: refused.String(), code: wire.CodeConnRefused}
	w := newTestNet(t, bond)
	for i, site := range []netip.AddrPort{site4, site6} {
		c := w.listenUDP(site)
		for _, n := range []int{0, 1, 1400, 9000, 60000} {
			want, _ := io.ReadAll(randomReader(int64(n)))
			if _, err := c.Write(want); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, 65536)
			n, err := c.Read(got)
			if err != nil || !bytes.Equal(got[:n], want) {
				t.Fatalf("%v: %d of %d bytes, %v", site, n, len(want), err)
			}
		}
		bond.mu.Lock()
		flows := bond.flows
		bond.mu.Unlock()
		if flows != i+1 {
			t.Errorf("%d flows", flows)
		}
	}
	c := w.listenUDP(refused)
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if typ, code := w.awaitICMP(refused); typ != 3 || code != 3 {
		t.Errorf("ICMP %d %d", typ, code)
	}
}

// TestDatagramErrors checks that errors at the far end become the matching ICMP errors.
func TestDatagramErrors(t *testing.T) {
	for _, c := range []struct {
		dest      string
		code      wire.Code
		typ, want uint8
	}{
		{"203.0.113.8:9", wire.CodeConnRefused, 3, 3}, {"[2001:db8::8]:9", wire.CodeConnRefused, 1, 4},
		{"203.0.113.8:9", wire.CodeUnreachable, 3, 1}, {"[2001:db8::8]:9", wire.CodeUnreachable, 1, 3},
		{"203.0.113.8:9", wire.CodeForbidden, 3, 13}, {"[2001:db8::8]:9", wire.CodeForbidden, 1, 1},
		{"203.0.113.8:9", wire.CodeTooBig, 3, 4}, {"[2001:db8::8]:9", wire.CodeTooBig, 2, 0},
	} {
		dest := netip.MustParseAddrPort(c.dest)
		w := newTestNet(t, &fakePackets{refuse: c.dest, code: c.code})
		if _, err := w.listenUDP(dest).Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if typ, code := w.awaitICMP(dest); typ != c.typ || code != c.want {
			t.Errorf("%s, %v: ICMP %d %d, want %d %d", c.dest, c.code, typ, code, c.typ, c.want)
		}
	}
}

// TestDatagramsAround checks that refused datagrams are sent directly to private addresses only.
func TestDatagramsAround(t *testing.T) {
	for dest, around := range map[string]bool{"192.168.9.9:123": true, "[fd00::9]:123": true,
		"203.0.113.8:123": false, "[2001:db8::9]:123": false} {
		w := newTestNet(t, &fakePackets{refuse: dest, code: wire.CodeUnreachable})
		to := netip.MustParseAddrPort(dest)
		if _, err := w.listenUDP(to).Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if !around {
			w.awaitICMP(to)
			w.mu.Lock()
			if len(w.direct) > 0 {
				t.Errorf("%s: tried directly", dest)
			}
			w.mu.Unlock()
			continue
		}
		select {
		case got := <-w.around:
			if got != dest {
				t.Errorf("tried %s directly, want %s", got, dest)
			}
		case <-time.After(testTimeout):
			t.Errorf("%s: not tried directly", dest)
		}
	}
}

// TestDSCP checks that the dialer gets the DSCP and address of the app, for TCP and UDP, IPv4 and
// IPv6.
func TestDSCP(t *testing.T) {
	for _, site := range []netip.AddrPort{site4, site6} {
		const dscp = 46
		apps := make(chan intercept.App, 2)
		w := newTestNet(t, &fakePackets{asked: apps})
		w.mu.Lock()
		w.asked = apps
		w.mu.Unlock()
		var wq waiter.Queue
		proto, opt := ipv4.ProtocolNumber, tcpip.IPv4TOSOption
		if site.Addr().Is6() {
			proto, opt = ipv6.ProtocolNumber, tcpip.IPv6TrafficClassOption
		}
		for _, transport := range []tcpip.TransportProtocolNumber{tcp.ProtocolNumber, udp.ProtocolNumber} {
			ep, e := w.kernel.NewEndpoint(transport, proto, &wq)
			if e != nil {
				t.Fatal(e)
			}
			defer ep.Close()
			if e := ep.SetSockOptInt(opt, dscp<<2); e != nil {
				t.Fatal(e)
			}
			if e := ep.Connect(toFullAddress(site)); e != nil && transport == udp.ProtocolNumber {
				t.Fatal(e)
			}
			if transport == udp.ProtocolNumber {
				if _, e := ep.Write(strings.NewReader("x"), tcpip.WriteOptions{}); e != nil {
					t.Fatal(e)
				}
			}
			select {
			case app := <-apps:
				local, _ := ep.GetLocalAddress()
				if app.DSCP != dscp || app.Addr.Port() != local.Port {
					t.Errorf("%v, protocol %d: %+v, want DSCP %d and port %d", site, transport, app, dscp, local.Port)
				}
			case <-time.After(testTimeout):
				t.Fatalf("%v, protocol %d: nobody dials", site, transport)
			}
		}
	}
}

// TestDNS checks that a query over UDP goes through the bond over TCP.
func TestDNS(t *testing.T) {
	resolver := netip.MustParseAddrPort("203.0.113.53:53")
	w := newTestNet(t, nil)
	query := append([]byte{0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}, "\x07example\x03org\x00\x00\x01\x00\x01"...)
	answer := bytes.Clone(query)
	answer[2] |= 0x80
	w.serveAt(resolver, func(c *net.TCPConn) {
		b := make([]byte, 2+len(query))
		if _, err := io.ReadFull(c, b); err == nil {
			_, _ = c.Write(append(b[:2:2], answer...))
		}
	})
	c := w.listenUDP(resolver)
	if _, err := c.Write(query); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 512)
	n, err := c.Read(b)
	if err != nil || !bytes.Equal(b[:n], answer) {
		t.Errorf("%x, %v", b[:n], err)
	}
}
func toFullAddress(a netip.AddrPort) tcpip.FullAddress {
	return tcpip.FullAddress{Addr: tcpip.AddrFromSlice(a.Addr().AsSlice()), Port: a.Port()}
}
