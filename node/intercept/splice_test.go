// SPDX-License-Identifier: Apache-2.0

package intercept

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"mpbond/link/wire"
)

func TestResetReachesTheApp(t *testing.T) {
	// The server sends something and resets on request.
	addr := tcpServer(t, func(c *net.TCPConn) {
		io.WriteString(c, "part")
		io.ReadFull(c, make([]byte, 1))
		c.SetLinger(0)
	})
	bond := &fakeBond{at: map[string]string{"s.test:80": addr}}
	_, proxy := startProxy(t, Config{Dialer: bond})
	c, _ := socksDial(t, proxy, "s.test")
	if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	c.Write([]byte("x"))
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the app read %d bytes, %v; want a reset", n, err)
	}
}

func TestResetByTheAppReachesTheServer(t *testing.T) {
	got := make(chan error, 1)
	addr := tcpServer(t, func(c *net.TCPConn) {
		io.WriteString(c, "hello")
		_, err := io.ReadAll(c)
		got <- err
	})
	bond := &fakeBond{at: map[string]string{"s.test:80": addr}}
	_, proxy := startProxy(t, Config{Dialer: bond})
	c, _ := socksDial(t, proxy, "s.test")
	if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	c.SetLinger(0)
	c.Close()
	if err := <-got; !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the server saw %v, want a reset", err)
	}
}

func TestServerEndsFirst(t *testing.T) {
	got := make(chan string, 1)
	addr := tcpServer(t, func(c *net.TCPConn) {
		io.WriteString(c, "all I say")
		c.CloseWrite()
		b, _ := io.ReadAll(c)
		got <- string(b)
	})
	bond := &fakeBond{at: map[string]string{"s.test:80": addr}}
	_, proxy := startProxy(t, Config{Dialer: bond})
	c, _ := socksDial(t, proxy, "s.test")
	if b, err := io.ReadAll(c); string(b) != "all I say" || err != nil {
		t.Errorf("read %q, %v", b, err)
	}
	io.WriteString(c, "still here")
	c.CloseWrite()
	if s := <-got; s != "still here" {
		t.Errorf("the server read %q", s)
	}
}

func TestTooManyConnections(t *testing.T) {
	bond := &fakeBond{at: map[string]string{"s.test:80": tcpServer(t, echoAtEnd)}}
	e, proxy := startProxy(t, Config{Dialer: bond, MaxConns: 2, WaitOpen: true}) // so that both count as answered
	one, _ := socksDial(t, proxy, "s.test")
	two, _ := socksDial(t, proxy, "s.test")
	third, err := net.Dial("tcp", proxy)
	if err == nil { // otherwise the reset came before the dialer returned
		_, err = third.Read(make([]byte, 1))
		third.Close()
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the third connection got %v, want a reset", err)
	}
	if n := e.Conns(); n != 2 {
		t.Errorf("%d connections", n)
	}
	for _, c := range []*net.TCPConn{one, two} {
		io.WriteString(c, "x")
		c.CloseWrite()
		if b, err := io.ReadAll(c); string(b) != "X" || err != nil {
			t.Errorf("read %q, %v", b, err)
		}
	}
}

func TestFallbackReplays(t *testing.T) {
	direct := tcpServer(t, echoAtEnd)
	dialDirect := func(ctx context.Context, _, dest string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", direct)
	}
	for _, tc := range []struct {
		name   string
		code   wire.Code
		send   int // bytes before the far end's answer
		direct bool
	}{
		{"home address", wire.CodeForbidden, 100, true},
		{"no IPv6 there", wire.CodeUnreachable, 0, true},
		{"local name", wire.CodeNameNotFound, maxReplay, true},
		{"more than is kept", wire.CodeForbidden, 4 * maxReplay, true},
		{"refused everywhere", wire.CodeConnRefused, 100, false},
		{"limit of the server", wire.CodeLimit, 100, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bond := &fakeBond{refuse: map[string]wire.Code{"s.test:80": tc.code}, release: make(chan struct{})}
			e, proxy := startProxy(t, Config{Dialer: bond, Direct: dialDirect})
			e.reached.markReached("s.test:80", time.Now()) // so that success is answered early
			c, _ := socksDial(t, proxy, "s.test")
			sent := strings.Repeat("a", tc.send)
			io.WriteString(c, sent)
			c.CloseWrite()
			close(bond.release)
			b, err := io.ReadAll(c)
			if tc.direct && (err != nil || !bytes.Equal(b, bytes.ToUpper([]byte(sent)))) {
				t.Errorf("read %d bytes, %v; want the answer of the direct connection", len(b), err)
			}
			if !tc.direct && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("read %d bytes, %v; want a reset", len(b), err)
			}
		})
	}
}

// TestFallbackOpened checks that the fallback is not used if the far end accepts.
func TestFallbackOpened(t *testing.T) {
	bond := &fakeBond{at: map[string]string{"s.test:80": tcpServer(t, echoAtEnd)}, release: make(chan struct{})}
	e, proxy := startProxy(t, Config{Dialer: bond, Direct: func(context.Context, string, string) (net.Conn, error) {
		t.Error("went direct")
		return nil, errors.ErrUnsupported
	}})
	e.reached.markReached("s.test:80", time.Now()) // so that success is answered early
	c, _ := socksDial(t, proxy, "s.test")
	data := strings.Repeat("z", 3*maxReplay)
	io.WriteString(c, data)
	c.CloseWrite()
	close(bond.release)
	if b, err := io.ReadAll(c); string(b) != strings.ToUpper(data) || err != nil {
		t.Errorf("read %d bytes, %v", len(b), err)
	}
}

// TestFallbackClosedWhileWaiting checks that an app that gives up releases everything.
func TestFallbackClosedWhileWaiting(t *testing.T) {
	bond := &fakeBond{release: make(chan struct{})}
	e, proxy := startProxy(t, Config{Dialer: bond, Direct: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.ErrUnsupported
	}})
	e.reached.markReached("s.test:80", time.Now()) // so that success is answered early
	c, _ := socksDial(t, proxy, "s.test")
	io.WriteString(c, "x")
	e.Close() // returns although the far end never answers
	close(bond.release)
	if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the app saw %v, want a reset", err)
	}
}

func BenchmarkSplice(b *testing.B) {
	sink := tcpServer(b, func(c *net.TCPConn) { io.Copy(io.Discard, c) })
	bond := &fakeBond{at: map[string]string{"s.test:80": sink}}
	_, proxy := startProxy(b, Config{Dialer: bond})
	c := dialTCP(b, proxy)
	io.WriteString(c, greet+"\x05\x01\x00\x03\x06s.test\x00\x50")
	io.ReadFull(c, make([]byte, 12))
	buf := make([]byte, 256<<10)
	b.SetBytes(int64(len(buf)))
	for b.Loop() {
		if _, err := c.Write(buf); err != nil {
			b.Fatal(err)
		}
	}
}
