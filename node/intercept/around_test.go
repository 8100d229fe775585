// SPDX-License-Identifier: Apache-2.0

package intercept

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"mpbond/link/wire"
)

// aroundDialer is a Dialer that sends some destinations around the bond, blocks others, and records
// the apps.
type aroundDialer struct {
	*fakeBond
	around, block map[string]bool

	mu   sync.Mutex
	apps []netip.AddrPort
}

func (j *aroundDialer) DialStream(ctx context.Context, dest string) (net.Conn, error) {
	app, _ := AppOf(ctx)
	j.mu.Lock()
	j.apps = append(j.apps, app.Addr)
	j.mu.Unlock()
	switch {
	case j.around[dest]:
		return nil, ErrAround
	case j.block[dest]:
		return nil, wire.Reset{Code: wire.CodeForbidden, Text: "a rule blocks it"}
	}
	return j.fakeBond.DialStream(ctx, dest)
}

// TestAroundAndBlocked checks that destinations around the bond are connected directly if possible,
// and that blocked ones are refused without another attempt.
func TestAroundAndBlocked(t *testing.T) {
	echo := tcpServer(t, echoAtEnd)
	site := tcpServer(t, func(c *net.TCPConn) {
		b := make([]byte, 4096)
		if _, err := c.Read(b); err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	j := &aroundDialer{fakeBond: &fakeBond{}, around: map[string]bool{"around.example:80": true,
		"web.example:80": true}, block: map[string]bool{"blocked.example:80": true}}
	dialed := make(chan string, 10)
	around := func(_ context.Context, network, dest string) (net.Conn, error) {
		dialed <- dest
		if dest == "web.example:80" {
			return net.Dial(network, site)
		}
		return net.Dial(network, echo)
	}
	_, with := startProxy(t, Config{Dialer: j, Around: around, Direct: around})
	_, without := startProxy(t, Config{Dialer: j})
	ask := func(proxy, host string) (reply byte, c *net.TCPConn) {
		c = dialTCP(t, proxy)
		_, _ = c.Write(append(append([]byte{5, 1, 0, 5, 1, 0, 3, byte(len(host))}, host...), 0, 80))
		b := make([]byte, 12)
		if _, err := io.ReadFull(c, b); err != nil {
			t.Fatal(err)
		}
		return b[3], c
	}
	reply, c := ask(with, "around.example")
	if _, err := io.WriteString(c, "hello"); err != nil || reply != socksSucceeded {
		t.Fatalf("reply %d, %v", reply, err)
	}
	_ = c.CloseWrite()
	if b, err := io.ReadAll(c); err != nil || string(b) != "HELLO" {
		t.Errorf("around the bond: %q, %v", b, err)
	}
	if reply, _ := ask(with, "blocked.example"); reply != socksNotAllowed {
		t.Errorf("blocked: reply %d", reply)
	}
	if reply, _ := ask(without, "around.example"); reply != socksNotAllowed {
		t.Errorf("no way around: reply %d", reply)
	}
	proxied := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: with})}}
	for host, want := range map[string]int{"web.example": http.StatusOK, "blocked.example": http.StatusForbidden} {
		r, err := proxied.Get("http://" + host + "/")
		if err != nil {
			t.Fatal(err)
		}
		if r.Body.Close(); r.StatusCode != want {
			t.Errorf("%s: %s, want %d", host, r.Status, want)
		}
	}
	if len(dialed) != 2 || <-dialed != "around.example:80" || <-dialed != "web.example:80" {
		t.Error("connected without the bond was something else than should be")
	}
	j.fakeBond.mu.Lock()
	defer j.fakeBond.mu.Unlock()
	if len(j.dialed) > 0 {
		t.Errorf("the bond was asked for %q", j.dialed)
	}
}

// TestBondOnly checks that a BondOnly stream never becomes a direct connection, although others do.
func TestBondOnly(t *testing.T) {
	echo := tcpServer(t, echoAtEnd)
	for _, only := range []bool{false, true} {
		dialed := make(chan string, 1)
		_, addr := startProxy(t, Config{Dialer: bondOnlyDialer{&fakeBond{}, only},
			Direct: func(_ context.Context, network, dest string) (net.Conn, error) {
				dialed <- dest
				return net.Dial(network, echo)
			}})
		c := dialTCP(t, addr)
		_, _ = c.Write([]byte{5, 1, 0, 5, 1, 0, 1, 192, 0, 2, 1, 0, 80})
		_, _ = io.WriteString(c, "hello")
		_ = c.CloseWrite()
		b, err := io.ReadAll(c)
		if direct := strings.HasSuffix(string(b), "HELLO"); direct == only || len(dialed) > 0 == only {
			t.Errorf("kept to the bond %v: %q, %v", only, b, err)
		}
	}
}

type bondOnlyDialer struct {
	Dialer
	only bool
}

func (k bondOnlyDialer) DialStream(ctx context.Context, dest string) (net.Conn, error) {
	c, err := k.Dialer.DialStream(ctx, dest)
	if err == nil && k.only {
		return bondOnlyStream{c.(*fakeStream)}, nil
	}
	return c, err
}

type bondOnlyStream struct{ *fakeStream }

func (bondOnlyStream) OnlyBond() {}

// TestPlainHTTPIsOfItsApp checks that a decision about one app's connection to an origin does not
// apply to another app.
func TestPlainHTTPIsOfItsApp(t *testing.T) {
	site := tcpServer(t, func(c *net.TCPConn) {
		for b := make([]byte, 4096); ; {
			if _, err := c.Read(b); err != nil {
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	j := &aroundDialer{fakeBond: &fakeBond{at: map[string]string{"site.example:80": site}}}
	_, addr := startProxy(t, Config{Dialer: j})
	for range 2 {
		app := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: addr})}
		for range 2 {
			r, err := (&http.Client{Transport: app}).Get("http://site.example/")
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.ReadAll(r.Body)
			r.Body.Close()
		}
		app.CloseIdleConnections()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.apps) != 2 || j.apps[0] == j.apps[1] || !j.apps[0].IsValid() {
		t.Errorf("the bond was asked for the apps %v, want one connection for each of two", j.apps)
	}
}

// TestDatagramsAroundAndBlocked checks the same for datagrams of one socket, for each destination.
func TestDatagramsAroundAndBlocked(t *testing.T) {
	echo, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		for b := make([]byte, 100); ; {
			n, from, err := echo.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = echo.WriteTo(b[:n], from)
		}
	}()
	const around, blocked = "192.0.2.1:7", "192.0.2.2:7"
	e := New(Config{Dialer: &fakeBond{}, Packets: aroundPackets{}, Around: func(_ context.Context, network,
		dest string) (net.Conn, error) {
		if dest != around {
			t.Errorf("%s goes around the bond", dest)
		}
		return net.Dial(network, echo.LocalAddr().String())
	}})
	defer e.Close()
	came, refused := make(chan string, 1000), make(chan string, 1000)
	f := e.NewFlow(App{}, func(b []byte, _ netip.AddrPort) { came <- string(b) },
		func(r *PacketRefusal) { refused <- r.Dest })
	defer f.Close()
	for _, c := range []struct {
		dest, says string
		to         chan string
	}{{around, "hello", came}, {blocked, blocked, refused}} {
		got := ""
		for try := 0; got == "" && try < 100; try++ { // datagrams may be lost
			f.Send([]byte("hello"), netip.MustParseAddrPort(c.dest))
			select {
			case got = <-c.to:
			case <-time.After(200 * time.Millisecond):
			}
		}
		if got != c.says {
			t.Errorf("%s: %q, want %q", c.dest, got, c.says)
		}
	}
}

type aroundPackets struct{}

func (aroundPackets) DialPackets(context.Context) (PacketConn, error) {
	return &aroundPacketConn{done: make(chan struct{})}, nil
}

type aroundPacketConn struct {
	done chan struct{}
	once sync.Once
}

func (c *aroundPacketConn) Send(_ []byte, dest string) error {
	if dest == "192.0.2.1:7" {
		return ErrAround
	}
	return &PacketRefusal{Dest: dest, Code: wire.CodeForbidden}
}

func (c *aroundPacketConn) Receive([]byte) (int, netip.AddrPort, error) {
	<-c.done
	return 0, netip.AddrPort{}, net.ErrClosed
}
func (c *aroundPacketConn) SetReadDeadline(time.Time) error { return nil }
func (c *aroundPacketConn) Close() error                    { c.once.Do(func() { close(c.done) }); return nil }

// TestHelloName checks that the name in a TLS client hello is read, and that all bytes can still be
// read afterwards, whatever they are.
func TestHelloName(t *testing.T) {
	dest := netip.MustParseAddrPort("192.0.2.1:443")
	for _, c := range []struct {
		name   string
		names  *Names
		dest   netip.AddrPort
		say    func(net.Conn)
		want   string
		begins string
	}{
		{"TLS", &Names{}, dest, func(c net.Conn) {
			_ = tls.Client(c,
				&tls.Config{ServerName: "www.example.org"}).Handshake()
		}, "www.example.org", "\x16\x03\x01"},
		{"no TLS", &Names{}, dest, func(c net.Conn) { _, _ = io.WriteString(c, "GET / HTTP/1.0\r\n") }, "",
			"GET / HTTP/1.0\r\n"},
		{"another port", &Names{}, netip.MustParseAddrPort("192.0.2.1:22"),
			func(c net.Conn) { _, _ = io.WriteString(c, "SSH-") }, "", "SSH-"},
		{"nobody asks", &Names{Wanted: func() bool { return false }}, dest,
			func(c net.Conn) { _, _ = io.WriteString(c, "hello") }, "", "hello"},
	} {
		near, far := net.Pipe()
		done := make(chan struct{})
		go func() { defer close(done); c.say(far) }()
		e := New(Config{Dialer: &fakeBond{}, Names: c.names})
		a := &appConn{Conn: near, edge: e}
		if got := e.readServerName(a, c.dest); got != c.want {
			t.Errorf("%s: name %q, want %q", c.name, got, c.want)
		}
		if got := c.names.Of(c.dest.Addr()); got != c.want {
			t.Errorf("%s: datagrams there are known as %q, want %q", c.name, got, c.want)
		}
		b := make([]byte, len(c.begins))
		if _, err := io.ReadFull(a, b); err != nil || string(b) != c.begins {
			t.Errorf("%s: then %q is read, want %q; %v", c.name, b, c.begins, err)
		}
		near.Close()
		far.Close()
		<-done
		e.Close()
	}
}

// TestNames checks that addresses get the names they were asked by, through aliases too, and that
// old names make room for new ones.
func TestNames(t *testing.T) {
	answer := func(name string, addr ...netip.Addr) []byte {
		m := dnsmessage.Message{Header: dnsmessage.Header{Response: true},
			Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: dnsmessage.TypeA,
				Class: dnsmessage.ClassINET}}}
		alias := dnsmessage.MustNewName("cdn.example.net.")
		m.Answers = append(m.Answers, dnsmessage.Resource{
			Header: dnsmessage.ResourceHeader{Name: m.Questions[0].Name, Class: dnsmessage.ClassINET},
			Body:   &dnsmessage.CNAMEResource{CNAME: alias}})
		for _, a := range addr {
			h := dnsmessage.ResourceHeader{Name: alias, Class: dnsmessage.ClassINET}
			if a.Is4() {
				m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: a.As4()}})
			} else {
				m.Answers = append(m.Answers, dnsmessage.Resource{Header: h,
					Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
			}
		}
		b, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	var n Names
	four, six := netip.MustParseAddr("192.0.2.9"), netip.MustParseAddr("2001:db8::9")
	whole := answer("www.example.org.", four, six)
	for i := range whole { // truncated messages are harmless
		new(Names).learnFromDNS(whole[:i])
	}
	n.learnFromDNS(whole)
	for _, a := range []netip.Addr{four, six, netip.MustParseAddr("::ffff:192.0.2.9")} {
		if got := n.Of(a); got != "www.example.org." {
			t.Errorf("%v is %q", a, got)
		}
	}
	n.learnFromDNS(answer("other.example.org.", four))
	if got := n.Of(four); got != "other.example.org." {
		t.Errorf("asked for again, it is %q", got)
	}
	for i := range 3 * maxNames {
		n.learnFromDNS(answer("x.example.", netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})))
	}
	if len(n.current)+len(n.previous) > 2*maxNames || n.Of(four) != "" {
		t.Errorf("%d and %d names are kept", len(n.current), len(n.previous))
	}
	if (*Names)(nil).Of(four) != "" {
		t.Error("nobody knows names")
	}
}
