// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"mpbond/e2e/rig"
)

// Ports of services, which run beside the web server.
const (
	echoPort = "7"    // UDP
	dnsPort  = "53"   // UDP and TCP; every name resolves to the address that was asked
	webPort  = "9001" // TCP: see serveWeb
	noPort   = "9"
)

// runServices serves until it fails.
func runServices() error {
	errs := make(chan error)
	echo, err := net.ListenPacket("udp", ":"+echoPort)
	if err != nil {
		return err
	}
	go func() {
		b := make([]byte, 64<<10)
		for {
			n, from, err := echo.ReadFrom(b)
			if err != nil {
				errs <- err
				return
			}
			_, _ = echo.WriteTo(b[:n], from)
		}
	}()
	serve := func(port string, handle func(net.Conn)) error {
		l, err := net.Listen("tcp", ":"+port)
		if err != nil {
			return err
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					errs <- err
					return
				}
				go func() { defer c.Close(); handle(c) }()
			}
		}()
		return nil
	}
	if err := serve(webPort, serveWeb); err != nil {
		return err
	}
	if err := serve(dnsPort, func(c net.Conn) {
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		q := make([]byte, int(size[0])<<8|int(size[1]))
		if _, err := io.ReadFull(c, q); err == nil {
			a := answerDNS(q, c.LocalAddr().(*net.TCPAddr).IP)
			_, _ = c.Write(append([]byte{byte(len(a) >> 8), byte(len(a))}, a...))
		}
	}); err != nil {
		return err
	}
	return <-errs
}

// startServices starts runServices in the web node and waits until it serves.
func (n *network) startServices() {
	n.Helper()
	n.Start("web", os.Args[0], "lab", "services")
	n.awaitPort("web", 53) // the last one that it opens
}

// answerDNS returns the answer to a query, with ip as the address of every name.
func answerDNS(query []byte, ip net.IP) []byte {
	var m dnsmessage.Message
	if m.Unpack(query) != nil || len(m.Questions) != 1 {
		return nil
	}
	m.Response, m.Additionals = true, nil
	if q := m.Questions[0]; q.Type == dnsmessage.TypeA && ip.To4() != nil {
		m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 60},
			Body: &dnsmessage.AResource{A: [4]byte(ip.To4())}}}
	}
	b, _ := m.Pack()
	return b
}

// probeAddress does in a node what apps do and prints the result.
func probeAddress(what, addr string) error {
	start := time.Now()
	switch what {
	case "connect": // prints why a connection fails
		c, err := net.DialTimeout("tcp", addr, rig.Patience)
		took := time.Since(start)
		var errno syscall.Errno
		if errors.As(err, &errno) {
			fmt.Printf("%v %v", errno, took < time.Second)
			return nil
		}
		if err == nil {
			c.Close()
		}
		return fmt.Errorf("connected, %v", err)
	case "put", "puts": // uploads that end with a half-close, one or 50 at once
		uploads, size := 1, int64(mb)
		if what == "puts" {
			uploads, size = 50, mb/4
		}
		errs := make(chan error, uploads)
		for range uploads {
			go func() {
				c, err := net.DialTimeout("tcp", addr, rig.Patience)
				if err == nil {
					err = new(web).putBytes(c, size)
					c.Close()
				}
				errs <- err
			}()
		}
		var err error
		for range uploads {
			err = errors.Join(err, <-errs)
		}
		return err
	case "echo":
		c, err := net.Dial("udp", addr)
		if err != nil {
			return err
		}
		defer c.Close()
		for _, n := range []int64{1, 1200, 5000} {
			want, _ := io.ReadAll(rig.Noise(n))
			got := make([]byte, 64<<10)
			for try := 0; ; try++ { // datagrams may be lost
				if _, err := c.Write(want); err != nil {
					return err
				}
				_ = c.SetReadDeadline(time.Now().Add(time.Second))
				n, err := c.Read(got)
				if err == nil && bytes.Equal(got[:n], want) {
					break
				}
				if try == 5 {
					return fmt.Errorf("%d of %d bytes, %w", n, len(want), err)
				}
			}
		}
		return nil
	case "refused": // prints the error an app gets for datagrams to a closed port
		c, err := net.Dial("udp", addr)
		if err != nil {
			return err
		}
		defer c.Close()
		if raw, err := c.(*net.UDPConn).SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { // as apps do that want more errors than of closed ports
				_ = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_RECVERR, 1)
			})
		}
		for range 5 { // datagrams and their errors may be lost
			if _, err = c.Write([]byte("x")); err == nil {
				_ = c.SetReadDeadline(time.Now().Add(time.Second))
				_, err = c.Read(make([]byte, 1))
			}
			var errno syscall.Errno
			if errors.As(err, &errno) {
				fmt.Print(errno)
				return nil
			}
		}
		return err
	case "lookup":
		c, err := net.Dial("udp", addr)
		if err != nil {
			return err
		}
		defer c.Close()
		q := dnsmessage.Message{Header: dnsmessage.Header{ID: 7, RecursionDesired: true},
			Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName("web.example."), Type: dnsmessage.TypeA,
				Class: dnsmessage.ClassINET}}}
		b, err := q.Pack()
		if err != nil {
			return err
		}
		if _, err := c.Write(b); err != nil {
			return err
		}
		_ = c.SetReadDeadline(time.Now().Add(rig.Patience))
		b = make([]byte, 512)
		n, err := c.Read(b)
		if err != nil {
			return err
		}
		var a dnsmessage.Message
		if err := a.Unpack(b[:n]); err != nil {
			return err
		}
		if len(a.Answers) != 1 {
			return fmt.Errorf("answer %+v", a)
		}
		fmt.Print(net.IP(a.Answers[0].Body.(*dnsmessage.AResource).A[:]))
		return nil
	}
	return fmt.Errorf("unknown probe %q", what)
}

// routingState returns all rules, routes, links and addresses of the primary.
func (n *network) routingState() string {
	n.Helper()
	out := n.Must("primary", "sh", "-c", `for f in -4 -6; do echo "rules $f"; ip $f rule; echo "routes $f"; `+
		`ip $f route show table all; done; ip -o link | sed 's/:.*//; s/^/link /'; ip -o addr`)
	lines := strings.Split(out, "\n")
	slices.Sort(lines) // a restored route may be listed elsewhere
	return strings.Join(lines, "\n")
}

// primaryBondBytes returns the bytes that the primary's bond has carried, in both directions. The
// server may also have an older bond.
func (n *network) primaryBondBytes() (sum int64) {
	n.Helper()
	s, err := n.Status("primary", "primary")
	if err != nil {
		n.Fatal(err)
	}
	for _, p := range s.Bonds[0].Subflows {
		sum += int64(p.RxBytes + p.TxBytes)
	}
	return sum
}

// prepareTUN ends the primary and leaves it only its default route to the web server. The lab gives
// each node a route to each other one, and TUN leaves destinations with an own route alone.
func (n *network) prepareTUN() {
	n.Helper()
	n.processIn("primary").End(syscall.SIGTERM)
	n.Must("primary", "sh", "-c", fmt.Sprintf("ip -4 route del %s/32 && ip -6 route del %s/128", n.web4, n.web6))
}

// startTUN starts a primary that takes all traffic.
func (n *network) startTUN(args ...string) *rig.Process {
	n.Helper()
	p := n.Start("primary", append([]string{n.Mpbond, "primary", "--name", "laptop", "--tun"}, args...)...)
	n.Await(2)
	return p
}

func TestTUN(t *testing.T) {
	t.Parallel() // it checks neither rates nor times
	n := newNetwork(t)
	n.prepareTUN()
	n.startServices()
	before := n.routingState()
	expectRestored := func(t *testing.T) {
		t.Helper()
		if after := n.routingState(); after != before {
			t.Errorf("was\n%s\nis\n%s", before, after)
		}
	}
	const size = 4 * mb
	want, _ := rig.Sum(rig.Noise(size))
	file := filepath.Join(n.Dir, "upload")
	b, _ := io.ReadAll(rig.Noise(size))
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	probeFrom := func(t *testing.T, what, addr string) string {
		t.Helper()
		out, err := n.Run("primary", os.Args[0], "lab", "probe", what, addr)
		if err != nil {
			t.Error(err)
		}
		return out
	}
	curl := func(t *testing.T, size int64, args ...string) string {
		t.Helper()
		before := n.primaryBondBytes()
		out, err := n.Run("primary", append([]string{"curl", "-gsSf", "--max-time", "60", "-H", "Expect:"}, args...)...)
		if err != nil {
			t.Error(err)
		}
		if now := n.primaryBondBytes(); now < before+size {
			t.Errorf("the bond has carried only %d bytes", now-before)
		}
		return out
	}
	p := n.startTUN("--direct=false")
	for _, c := range []struct {
		name, args string
		upload     bool
	}{
		{"IPv4", fmt.Sprintf("http://%s/%d", n.web4, size), false},
		{"IPv6", fmt.Sprintf("http://[%s]/%d", n.web6, size), false},
		{"by name", fmt.Sprintf("http://web/%d", size), false},
		{"upload", "-T " + file + " http://web/", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := curl(t, size, strings.Fields(c.args)...)
			if !c.upload {
				got, _ = rig.Sum(strings.NewReader(got))
			}
			if got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
	t.Run("half-close", func(t *testing.T) {
		probeFrom(t, "put", net.JoinHostPort(n.web4, webPort))
		probeFrom(t, "put", net.JoinHostPort(n.web6, webPort))
	})
	t.Run("at once", func(t *testing.T) {
		probeFrom(t, "puts", net.JoinHostPort(n.web4, webPort))
	})
	t.Run("UDP", func(t *testing.T) {
		probeFrom(t, "echo", net.JoinHostPort(n.web4, echoPort))
		probeFrom(t, "echo", net.JoinHostPort(n.web6, echoPort))
	})
	t.Run("UDP to a closed port", func(t *testing.T) {
		for _, ip := range []string{n.web4, n.web6} {
			if got := probeFrom(t, "refused", net.JoinHostPort(ip, noPort)); got != "connection refused" {
				t.Errorf("%s: %q", ip, got)
			}
		}
		if got := probeFrom(t, "refused", "203.0.113.9:9"); got != "no route to host" {
			t.Errorf("unreachable: %q", got)
		}
	})
	t.Run("DNS through the bond", func(t *testing.T) {
		if got := probeFrom(t, "lookup", net.JoinHostPort(n.web4, dnsPort)); got != n.web4 {
			t.Errorf("the name has address %q", got)
		}
	})
	for _, c := range []struct{ name, addr, want string }{
		{"refused", net.JoinHostPort(n.web4, noPort), "connection refused true"},
		{"refused, IPv6", net.JoinHostPort(n.web6, noPort), "connection refused true"},
		{"unreachable", "203.0.113.9:80", "no route to host true"},
		{"unreachable, IPv6", "[2001:db8::9]:80", "no route to host true"},
		{"not allowed", "192.168.99.99:80", "no route to host true"},
		{"not allowed, IPv6", "[fd99::9]:80", "permission denied true"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := probeFrom(t, "connect", c.addr); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
	t.Run("ping", func(t *testing.T) {
		out, _ := n.Run("primary", "ping", "-c", "1", "-W", "2", n.web4)
		if !strings.Contains(out, "Packet filtered") {
			t.Errorf("ping says %s", out)
		}
	})
	t.Run("what goes around", func(t *testing.T) {
		for dest, dev := range map[string]string{
			n.web4: "mpbond0", n.web6: "mpbond0", n.web4 + " mark 0x6d706264": "ps", n.web6 + " mark 0x6d706264": "ps",
			"224.0.0.251": "ps", strings.Fields(n.Must("primary", "sh", "-c",
				"ip -4 route show default | sed 's/.*via //'"))[0]: "ps",
		} {
			if out := n.Must("primary", append([]string{"ip", "route", "get"},
				strings.Fields(dest)...)...); !strings.Contains(out, "dev "+dev+" ") {
				t.Errorf("%s goes %s, not by %s", dest, out, dev)
			}
		}
	})
	t.Run("a second one", func(t *testing.T) {
		_, err := n.Run("primary", n.Mpbond, "primary", "--tun", "--proxy", "", "--transparent", "0", "--pipe", "",
			"--socket", filepath.Join(n.Dir, "second.sock"))
		if err == nil || !strings.Contains(err.Error(), "another mpbond") {
			t.Errorf("%v", err)
		}
	})
	p.End(syscall.SIGTERM)
	t.Run("restored", expectRestored)

	p = n.startTUN()
	var cut []*transfer // they only wait for bytes, so only a new start can end them
	for _, at := range []string{n.web4, "[" + n.web6 + "]"} {
		x := n.startAppTransfer(1000, "curl", "-gsSfN", "--max-time", "60", "--limit-rate", "1M",
			fmt.Sprintf("http://%s/%d", at, 100*mb))
		<-x.begun
		cut = append(cut, x)
	}
	p.End(syscall.SIGKILL)
	t.Run("after SIGKILL the network works without", func(t *testing.T) {
		got, err := n.Run("primary", "curl", "-sSf", "--max-time", "60", fmt.Sprintf("http://%s/%d", n.web4, size))
		if got, _ = rig.Sum(strings.NewReader(got)); err != nil || got != want {
			t.Errorf("%s, %v", got, err)
		}
	})
	if n.routingState() == before {
		t.Error("SIGKILL leaves nothing to repair: the test has no effect")
	}
	for _, x := range cut {
		select {
		case <-x.done:
			t.Errorf("before the second start: %v %s", x.err, &x.errs)
		default:
		}
	}
	p = n.startTUN()
	for _, x := range cut {
		began := time.Now()
		if <-x.done; !strings.HasPrefix(x.errs.String(), "curl: (56)") {
			t.Errorf("%v: %v %s", x.cmd.Args, x.err, &x.errs)
		}
		t.Logf("it saw the error %v after the second start", time.Since(began).Round(time.Millisecond))
	}
	t.Run("after a second start", func(t *testing.T) {
		if got, _ := rig.Sum(strings.NewReader(curl(t, size, fmt.Sprintf("http://%s/%d", n.web4, size)))); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
	p.End(syscall.SIGTERM)
	t.Run("restored after repair", expectRestored)
}

// BenchmarkTUN downloads over unlimited links: by a connection through the TUN device, in turn with
// one by SOCKS5.
func BenchmarkTUN(b *testing.B) {
	n := newNetworkWith(b, "-/-/-", "", nil)
	n.prepareTUN()
	n.startTUN()
	const size = 400 * mb
	ways := map[string][]string{"tun": nil, "socks": {"--socks5", "127.0.0.1:1080"}}
	took := map[string]time.Duration{}
	b.SetBytes(size)
	for b.Loop() {
		for way, args := range ways {
			start := time.Now()
			n.Must("primary", append([]string{"curl", "-gsSf", "-o", "/dev/null",
				fmt.Sprintf("http://%s/zeros/%d", n.web4, size)}, args...)...)
			took[way] += time.Since(start)
		}
	}
	for way := range ways {
		b.ReportMetric(size/1e6*float64(b.N)/took[way].Seconds(), way+"-MB/s")
	}
}
