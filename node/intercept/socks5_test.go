// SPDX-License-Identifier: Apache-2.0

package intercept

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"mpbond/base/waittest"
	"mpbond/link/wire"
)

// script is an app that sends everything at once and records the answers.
type script struct {
	io.Reader
	answer bytes.Buffer
}

func (s *script) Write(p []byte) (int, error) { return s.answer.Write(p) }

const greet = "\x05\x01\x00"

func TestSOCKSRequests(t *testing.T) {
	long := strings.Repeat("n", 255)
	for _, tc := range []struct {
		name, in, dest, answer string
	}{
		{"IPv4", greet + "\x05\x01\x00\x01\xc6\x33\x64\x07\x00\x50", "198.51.100.7:80", "\x05\x00"},
		{"IPv6", greet + "\x05\x01\x00\x04\x20\x01\x0d\xb8" + strings.Repeat("\x00", 11) + "\x07\x01\xbb",
			"[2001:db8::7]:443", "\x05\x00"},
		{"IPv4 in IPv6", greet + "\x05\x01\x00\x04" + strings.Repeat("\x00", 10) +
			"\xff\xff\xc6\x33\x64\x07\x00\x50", "198.51.100.7:80", "\x05\x00"},
		{"name", greet + "\x05\x01\x00\x03\x0bexample.org\x1f\x90", "example.org:8080", "\x05\x00"},
		{"address as name", greet + "\x05\x01\x00\x03\x03::1\x00\x50", "[::1]:80", "\x05\x00"},
		{"longest name", greet + "\x05\x01\x00\x03\xff" + long + "\x00\x50", long + ":80", "\x05\x00"},
		{"no authentication among others", "\x05\x03\x02\x01\x00\x05\x01\x00\x03\x01x\x00\x50", "x:80", "\x05\x00"},
		{"only authentication", "\x05\x01\x02", "", "\x05\xff"},
		{"no methods", "\x05\x00", "", "\x05\xff"},
		{"BIND", greet + "\x05\x02\x00\x01\xc6\x33\x64\x07\x00\x50", "",
			"\x05\x00\x05\x07\x00\x01\x00\x00\x00\x00\x00\x00"},
		{"UDP ASSOCIATE", greet + "\x05\x03\x00\x01\x00\x00\x00\x00\x12\x34", "from port 4660", "\x05\x00"},
		{"UDP ASSOCIATE, no port", greet + "\x05\x03\x00\x03\x01x\x00\x00", "from port 0", "\x05\x00"},
		{"address type 2", greet + "\x05\x01\x00\x02", "", "\x05\x00\x05\x08\x00\x01\x00\x00\x00\x00\x00\x00"},
		{"empty name", greet + "\x05\x01\x00\x03\x00\x00\x50", "", "\x05\x00\x05\x01\x00\x01\x00\x00\x00\x00\x00\x00"},
		{"name with a port in it", greet + "\x05\x01\x00\x03\x04x:22\x00\x50", "",
			"\x05\x00\x05\x01\x00\x01\x00\x00\x00\x00\x00\x00"},
		{"name with a newline", greet + "\x05\x01\x00\x03\x03a\nb\x00\x50", "",
			"\x05\x00\x05\x01\x00\x01\x00\x00\x00\x00\x00\x00"},
		{"link-local zone", greet + "\x05\x01\x00\x03\x0cfe80::1%eth0\x00\x50", "",
			"\x05\x00\x05\x01\x00\x01\x00\x00\x00\x00\x00\x00"},
		{"port 0", greet + "\x05\x01\x00\x03\x01x\x00\x00", "", "\x05\x00\x05\x01\x00\x01\x00\x00\x00\x00\x00\x00"},
		{"another version in the request", greet + "\x04\x01\x00\x03\x01x\x00\x50", "", "\x05\x00"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &script{Reader: strings.NewReader(tc.in + "rest")}
			dest, udp, err := socksHandshake(s)
			if udp != nil {
				dest += fmt.Sprintf("from port %d", udp.Port)
			}
			if dest != tc.dest || (err == nil) != (tc.dest != "") {
				t.Errorf("destination %q, error %v; want %q", dest, err, tc.dest)
			}
			if s.answer.String() != tc.answer {
				t.Errorf("answered %x, want %x", s.answer.String(), tc.answer)
			}
			if rest, _ := io.ReadAll(s.Reader); err == nil && string(rest) != "rest" {
				t.Errorf("left %q of the app's data unread, want all of it", rest)
			}
			if tc.dest == "" {
				return
			}
			for n := range len(tc.in) {
				dest, _, err := socksHandshake(&script{Reader: strings.NewReader(tc.in[:n])})
				if dest != "" || !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Fatalf("cut after %d bytes: destination %q, error %v", n, dest, err)
				}
			}
		})
	}
}

func FuzzSOCKS(f *testing.F) {
	f.Add([]byte(greet + "\x05\x01\x00\x03\x0bexample.org\x1f\x90"))
	f.Add([]byte(greet + "\x05\x01\x00\x04\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x07\x01\xbb"))
	f.Add([]byte("\x05\xff"))
	f.Fuzz(func(t *testing.T, in []byte) {
		dest, udp, err := socksHandshake(&script{Reader: bytes.NewReader(in)})
		if err != nil || udp != nil {
			return
		}
		host, port, err := net.SplitHostPort(dest)
		if err != nil || host == "" || port == "" || port == "0" || len(host) > 255 ||
			strings.ContainsAny(host, " \r\n\x00/@") {
			t.Errorf("destination %q of %x", dest, in)
		}
	})
}

// socksDial sends a SOCKS5 request to the proxy and returns the reply code.
func socksDial(t *testing.T, proxy, name string) (*net.TCPConn, byte) {
	t.Helper()
	c := dialTCP(t, proxy)
	io.WriteString(c, greet+"\x05\x01\x00\x03"+string(rune(len(name)))+name+"\x00\x50")
	b := make([]byte, 12)
	if _, err := io.ReadFull(c, b); err != nil {
		t.Fatalf("reading the reply: %v", err)
	}
	return c, b[3]
}

func TestSOCKSHalfClose(t *testing.T) {
	bond := &fakeBond{at: map[string]string{"upper.test:80": tcpServer(t, echoAtEnd)}}
	e, proxy := startProxy(t, Config{Dialer: bond})
	c, reply := socksDial(t, proxy, "upper.test")
	if reply != socksSucceeded {
		t.Fatalf("reply %d", reply)
	}
	io.WriteString(c, "question")
	c.CloseWrite()
	b, err := io.ReadAll(c)
	if err != nil || string(b) != "QUESTION" {
		t.Errorf("read %q, %v", b, err)
	}
	e.Close()
	if e.Conns() != 0 {
		t.Errorf("%d connections remain", e.Conns())
	}
}

func TestSOCKSReplies(t *testing.T) {
	bond := &fakeBond{
		at: map[string]string{"up.test:80": tcpServer(t, echoAtEnd)},
		refuse: map[string]wire.Code{
			"refused.test:80": wire.CodeConnRefused, "private.test:80": wire.CodeForbidden,
			"noname.test:80": wire.CodeNameNotFound, "busy.test:80": wire.CodeLimit, "slow.test:80": wire.CodeTimeout,
		},
	}
	_, proxy := startProxy(t, Config{Dialer: bond})
	for name, want := range map[string]byte{
		"up.test": socksSucceeded, "refused.test": socksRefused, "private.test": socksNotAllowed,
		"noname.test": socksHostUnreachable, "slow.test": socksHostUnreachable, "busy.test": socksFailure,
	} {
		if c, reply := socksDial(t, proxy, name); reply != want {
			t.Errorf("%s: reply %d, want %d", name, reply, want)
		} else {
			c.Close()
		}
	}

	// Recently reached destinations and web ports of numeric addresses get success at once. A
	// refusal is then a reset, and the next reply is the true one.
	bond.mu.Lock()
	bond.refuse["up.test:80"], bond.refuse["192.0.2.1:80"] = wire.CodeConnRefused, wire.CodeConnRefused
	bond.mu.Unlock()
	for _, name := range []string{"up.test", "192.0.2.1"} {
		c, reply := socksDial(t, proxy, name)
		if reply != socksSucceeded {
			t.Fatalf("%s: reply %d", name, reply)
		}
		if n, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: a refused destination shows as %d bytes, %v; want a reset", name, n, err)
		}
	}
	awaitReply(t, proxy, "up.test", socksRefused)
	_, waiting := startProxy(t, Config{Dialer: bond, WaitOpen: true})
	awaitReply(t, waiting, "192.0.2.1", socksRefused)
}

// awaitReply repeats a request until the edge has noticed how the previous connection ended.
func awaitReply(t *testing.T, proxy, name string, want byte) {
	t.Helper()
	waittest.UntilSuccess(t, func() error {
		c, reply := socksDial(t, proxy, name)
		c.Close()
		if reply != want {
			return fmt.Errorf("%s: reply %d, want %d", name, reply, want)
		}
		return nil
	})
}

// TestReached checks that the memory of destinations is bounded and expires.
func TestReached(t *testing.T) {
	var r reachedDests
	now := time.Unix(1_800_000_000, 0)
	for i := range 3 * maxReached {
		r.markReached(fmt.Sprintf("host%d.test:443", i), now)
	}
	if len(r.lastReached) > maxReached {
		t.Errorf("%d are kept", len(r.lastReached))
	}
	r.markReached("a.test:443", now)
	for _, c := range []struct {
		dest  string
		after time.Duration
		want  bool
	}{
		{"a.test:443", 0, true}, {"a.test:443", reachedLifetime + 1, false}, {"a.test:80", 0, false},
		{"192.0.2.1:443", 0, true},
		{"[2001:db8::1]:80", 0, true}, {"192.0.2.1:22", 0, false}, {"x", 0, false},
	} {
		if got := r.isLikelyReachable(c.dest, now.Add(c.after)); got != c.want {
			t.Errorf("%s after %v: %v", c.dest, c.after, got)
		}
	}
	r.markUnreached("a.test:443")
	if r.wasReachedRecently("a.test:443", now) {
		t.Error("it is not forgotten")
	}
}

// TestGarbage sends data that is neither SOCKS5 nor HTTP. The port answers or closes and does not
// hang.
func TestGarbage(t *testing.T) {
	e, proxy := startProxy(t, Config{Dialer: &fakeBond{}})
	for _, in := range []string{"\x04\x01\x00\x50\x01\x01\x01\x01\x00", "\x16\x03\x01\x00\x05hello",
		"\x00\x00\x00", "\x05\x01\x00\x05\x09", "GET", "\r\n\r\n\r\n", ""} {
		c := dialTCP(t, proxy)
		io.WriteString(c, in)
		c.CloseWrite()
		if _, err := io.ReadAll(c); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%q: %v", in, err)
		}
	}
	e.Close()
}
