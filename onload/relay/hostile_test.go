// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/waittest"
	"mpbond/link/tcp"
)

// dialWorld returns an open tunnel between a connection of laptop and a server.
func dialWorld(t testing.TB, w *world, at string) net.Conn {
	t.Helper()
	c, err := w.dialer(keys().laptop).DialContext(t.Context(), "tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return c
}

// expectClosed expects that a tunnel is aborted soon.
func expectClosed(t testing.TB, c net.Conn, why string) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	n, err := io.Copy(io.Discard, c)
	var late net.Error
	if err == nil || n > 0 || errors.As(err, &late) && late.Timeout() {
		t.Errorf("%s: %d bytes, then %v", why, n, err)
	}
}

// TestRevoked checks that the tunnels of a revoked or paused device are aborted at once, visibly,
// and that others continue.
func TestRevoked(t *testing.T) {
	w, at := newWorld(t, func(r *Relay) { r.reviewInterval = time.Hour }), echoServer(t)
	d := w.dialer(keys().other)
	kept, err := d.DialContext(t.Context(), "tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	c := dialWorld(t, w, at)
	if err := w.trust.SetPaused("laptop", true); err != nil {
		t.Fatal(err)
	}
	w.r.TrustChanged()
	expectClosed(t, c, "paused")
	if _, err := w.dialer(keys().laptop).DialContext(t.Context(), "tcp", at); !fault.Is(err, fault.Limit) {
		t.Error("paused:", err)
	}
	if err := w.trust.SetPaused("laptop", false); err != nil {
		t.Fatal(err)
	}
	c = dialWorld(t, w, at)
	if err := w.trust.Remove("laptop"); err != nil {
		t.Fatal(err)
	}
	w.r.TrustChanged()
	expectClosed(t, c, "revoked")
	if _, err := w.dialer(keys().laptop).DialContext(t.Context(), "tcp", at); !fault.Is(err, fault.UnknownDevice) {
		t.Error("revoked:", err)
	}
	if _, err := kept.Write([]byte("y")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(kept, make([]byte, 1)); err != nil {
		t.Error("a tunnel of another device was aborted too:", err)
	}
}

// TestNoMore checks that tunnels that are not allowed any more end by themselves, and that pending
// ones are given up.
func TestNoMore(t *testing.T) {
	w, at := newWorld(t), echoServer(t)
	c := dialWorld(t, w, at)
	w.forbid(fault.New(fault.Limit, errors.New("nothing is left today"), ""))
	expectClosed(t, c, "no allowance")
	waittest.Until(t, "its place is free", func() bool { return len(w.r.Status().Tunnels) == 0 })
}

// TestIdle checks that idle tunnels release their slots.
func TestIdle(t *testing.T) {
	w, at := newWorld(t, func(r *Relay) { r.idleTimeout = time.Second }), echoServer(t)
	expectClosed(t, dialWorld(t, w, at), "idle")
}

// TestBrokenOff checks that an abort at either end is never seen as a clean end at the other.
func TestBrokenOff(t *testing.T) {
	w := newWorld(t)
	reset := listen(t, func(c *net.TCPConn) {
		_, _ = io.ReadFull(c, make([]byte, 1))
		_, _ = io.WriteString(c, "x")
		_, _ = io.ReadFull(c, make([]byte, 1))
		_ = c.SetLinger(0)
	})
	c := dialWorld(t, w, reset)
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	expectClosed(t, c, "the server resets")

	ended := make(chan error, 1)
	at := listen(t, func(c *net.TCPConn) {
		_, err := io.Copy(c, c)
		ended <- err
	})
	c = dialWorld(t, w, at)
	_ = c.(*tunnelConn).NetConn().(*tcp.Conn).Abort()
	if err := <-ended; err == nil {
		t.Error("the primary aborted, and the server saw a clean end")
	}

	c = dialWorld(t, w, at)
	w.stop()
	expectClosed(t, c, "the helper ends")
	if err := <-ended; err == nil {
		t.Error("the helper ended, and the server saw a clean end")
	}
}

// TestLimits checks the limits of tunnels per device and in total.
func TestLimits(t *testing.T) {
	w, at := newWorld(t), echoServer(t)
	for _, key := range []*identity.Key{keys().laptop, keys().other} {
		d := w.dialer(key)
		for n := range maxPerPrimary + 1 {
			c, err := d.DialContext(t.Context(), "tcp", at)
			if err == nil {
				defer c.Close()
			}
			if full := n == maxPerPrimary; full != fault.Is(err, fault.Limit) || !full && err != nil {
				t.Fatalf("%d: %v", n, err)
			}
		}
	}
	if n := len(w.r.Status().Tunnels); n != maxTunnels {
		t.Errorf("%d tunnels", n)
	}
}

// openHandshaken returns a connection of laptop after the handshake.
func openHandshaken(t testing.TB, w *world) *tls.Conn {
	t.Helper()
	c, err := DialTLS(t.Context(), w.addr, tcp.Options{},
		keys().laptop.ClientConfig(keys().helper.Public(), ALPN), addressTimeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestSlowLoris checks that clients that send no request in time release their slots, known or not.
func TestSlowLoris(t *testing.T) {
	w := newWorld(t, func(r *Relay) { r.handshakeTimeout = time.Second })
	silent, err := net.Dial("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	_ = silent.SetDeadline(time.Now().Add(10 * time.Second))
	_, err = io.ReadAll(silent)
	if late := (net.Error)(nil); errors.As(err, &late) && late.Timeout() {
		t.Error("a silent unknown client keeps its connection")
	}
	slow := openHandshaken(t, w)
	_ = slow.SetDeadline(time.Now().Add(10 * time.Second))
	ended := make(chan error, 1)
	go func() { _, err := io.Copy(io.Discard, slow); ended <- err }()
	for tick := time.NewTicker(50 * time.Millisecond); ; { // a byte of the request each time
		select {
		case err := <-ended:
			if late := (net.Error)(nil); errors.As(err, &late) && late.Timeout() {
				t.Error("a slow client keeps its connection")
			}
			tick.Stop()
			return
		case <-tick.C:
			_, _ = io.WriteString(slow, "C")
		}
	}
}

// TestBadRequests checks that invalid, too long and truncated requests get a response or an end,
// and connect to nothing.
func TestBadRequests(t *testing.T) {
	w := newWorld(t)
	at := listen(t, func(*net.TCPConn) { t.Error("it was connected") })
	good := fmt.Sprintf("CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", at)
	bad := []string{
		"GET http://" + at + "/ HTTP/1.1\r\nHost: x\r\n\r\n",
		"CONNECT " + at + " HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
		"CONNECT " + at + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"CONNECT 127.0.0.1 HTTP/1.1\r\nHost: x\r\n\r\n",
		"CONNECT :80 HTTP/1.1\r\nHost: x\r\n\r\n",
		"CONNECT 127.0.0.1:http HTTP/1.1\r\nHost: x\r\n\r\n",
		"CONNECT 127.0.0.1:0 HTTP/1.1\r\nHost: x\r\n\r\n",
		"CONNECT 127.0.0.1:99999 HTTP/1.1\r\nHost: x\r\n\r\n",
		"CONNECT " + at + "\r\n\r\n",
		"CONNECT " + at + " HTTP/1.1\r\n" + strings.Repeat("X: y\r\n", maxHeaderBytes) + "\r\n",
		strings.Repeat("x", 2*maxHeaderBytes),
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"\x16\x03\x01\x00\x00", "\r\n\r\n", "\x00",
	}
	r := rand.New(rand.NewPCG(7, 7))
	for range 10 {
		b := make([]byte, r.IntN(200)+1)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		bad = append(bad, string(b))
	}
	for n := 0; n < len(good); n += 7 {
		bad = append(bad, good[:n])
	}
	for _, text := range bad {
		c := openHandshaken(t, w)
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		go func() { // the response may come before all is read
			_, _ = io.WriteString(c, text)
			_ = c.CloseWrite()
		}()
		a, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: http.MethodConnect})
		if err != nil {
			if late := (net.Error)(nil); errors.As(err, &late) && late.Timeout() {
				t.Errorf("%.60q: %v", text, err)
			}
			continue
		}
		if a.StatusCode != http.StatusBadRequest {
			t.Errorf("%.60q: %s", text, a.Status)
		}
		if err := parseRefusal(a); !fault.Is(err, fault.Protocol) {
			t.Errorf("%.60q: %v", text, err)
		}
	}
	if n := len(w.r.Status().Tunnels); n != 0 {
		t.Errorf("%d tunnels remain", n)
	}
}

// TestBadAnswers checks that any response of a helper leads to a printable error of limited length,
// in time.
func TestBadAnswers(t *testing.T) {
	trust := func(key identity.PublicKey) bool { return key == keys().laptop.Public() }
	var answer atomic.Value // string
	at := listen(t, func(c *net.TCPConn) {
		sec := tls.Server(c, keys().helper.ServerConfig(ALPN, trust))
		if _, err := http.ReadRequest(bufio.NewReader(sec)); err == nil {
			_, _ = io.WriteString(sec, answer.Load().(string))
		}
		sec.Close()
	})
	d := &Dialer{Key: keys().laptop, Helper: identity.Peer{Name: "phone", Key: keys().helper.Public()},
		Addresses: []string{at}}
	for _, text := range []string{
		"", "H", "HTTP/1.1 200", "HTTP/1.1 200 OK\r\n", "SSH-2.0-x\r\n\r\n", "HTTP/1.1 ten\r\n\r\n", "\x00\x01\x02",
		"HTTP/1.1 200 OK\r\n" + strings.Repeat("X: y\r\n", maxHeaderBytes) + "\r\n",
		"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n",
		"HTTP/1.1 503 \x1b[2Jgone\r\nContent-Length: 99999999\r\n\r\n" + strings.Repeat("\x1b[31mred\n", 10000),
		"HTTP/1.1 503 No\r\nMpbond-Fault: usage\r\n\r\nlie",
		"HTTP/1.1 503 No\r\nMpbond-Fault: limit\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
	} {
		answer.Store(text)
		begin := time.Now()
		c, err := d.DialContext(t.Context(), "tcp", "192.0.2.1:80")
		if err == nil {
			c.Close()
			t.Errorf("%.60q is taken for a connection", text)
			continue
		}
		kind := fault.KindOf(err)
		if !slices.Contains([]fault.Kind{fault.Protocol, fault.Limit}, kind) || len(err.Error()) > 2*maxErrorText ||
			strings.ContainsAny(err.Error(), "\x1b\n") || time.Since(begin) > 5*time.Second {
			t.Errorf("%.60q: %v (%s)", text, err, kind)
		}
	}
}

// TestUnknownCallers checks that devices without a known key and role fail in the handshake, and that
// handshakes per source are limited.
func TestUnknownCallers(t *testing.T) {
	w := newWorld(t)
	if err := w.trust.Add(identity.Peer{Name: "vps", Roles: []identity.Role{identity.RoleServer, identity.RoleHelper},
		Key: keys().stranger.Public()}); err != nil {
		t.Fatal(err)
	}
	for name, cfg := range map[string]*tls.Config{
		"another role":     keys().stranger.ClientConfig(keys().helper.Public(), ALPN),
		"another protocol": keys().laptop.ClientConfig(keys().helper.Public(), "mpbond-pipe"),
		"no key":           {InsecureSkipVerify: true, NextProtos: []string{ALPN}},
		"old TLS":          {InsecureSkipVerify: true, NextProtos: []string{ALPN}, MaxVersion: tls.VersionTLS12},
	} {
		c, err := DialTLS(t.Context(), w.addr, tcp.Options{}, cfg, addressTimeout)
		if err == nil {
			_, _ = io.WriteString(c, "CONNECT 127.0.0.1:80 HTTP/1.1\r\nHost: x\r\n\r\n")
			_, err = c.Read(make([]byte, 1))
			c.Close()
		}
		if err == nil {
			t.Errorf("%s: it is answered", name)
		}
	}
	var silent []net.Conn
	for range maxPerAddress {
		c, err := net.Dial("tcp", w.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		silent = append(silent, c)
	}
	if _, err := w.dialer(keys().laptop).DialContext(t.Context(), "tcp",
		"192.0.2.1:80"); !fault.Is(err, fault.Permission) {
		t.Errorf("a primary gets no response beside silent clients of its address: %v", err)
	}
	_ = silent[0].SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := silent[0].Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the first silent client keeps its slot: %v", err)
	}
}

// FuzzRequest checks that any accepted request has a host:port with a number.
func FuzzRequest(f *testing.F) {
	f.Add("CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\n")
	f.Add("GET / HTTP/1.1\r\n\r\n")
	f.Add("CONNECT [::1]:80 HTTP/1.0\r\n\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		server, err := readConnectRequest(bufio.NewReader(io.LimitReader(strings.NewReader(text), maxHeaderBytes)))
		if err != nil {
			if server != "" || !fault.Is(err, fault.Protocol) {
				t.Errorf("%q, %v", server, err)
			}
			return
		}
		if host, port, err := net.SplitHostPort(server); err != nil || host == "" || !isValidPort(port) {
			t.Errorf("%q", server)
		}
	})
}

// TestServeEnds checks that a failing listener ends Serve and all tunnels.
func TestServeEnds(t *testing.T) {
	l, err := tcp.Listen(t.Context(), "127.0.0.1:0", tcp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	done := make(chan error, 1)
	go func() {
		done <- New(Config{Key: keys().helper, Trust: w.trust,
			Log: slog.New(slog.DiscardHandler)}).Serve(context.Background(), l)
	}()
	l.Close()
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}
