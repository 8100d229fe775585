// SPDX-License-Identifier: Apache-2.0

package intercept

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"mpbond/base/waittest"
	"mpbond/internal/cli/clitest"
)

// TestSilentConnectionsMakeRoom checks that a program that opens more than MaxConns connections
// without requests does not lock out other apps, ends none of their streams, and does not fill the
// log.
func TestSilentConnectionsMakeRoom(t *testing.T) {
	const most = 40
	o := startOrigin(t)
	bond := &fakeBond{at: map[string]string{"echo.test:7": tcpServer(t,
		func(c *net.TCPConn) { _, _ = io.Copy(c, c) }), "web.test:80": o.Listener.Addr().String()}}
	log := new(clitest.LockedBuffer)
	e, proxy := startProxy(t, Config{Dialer: bond, MaxConns: most, Log: slog.New(slog.NewTextHandler(log, nil))})
	say := func(c net.Conn, what string) {
		t.Helper()
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		_, err := io.WriteString(c, what)
		got := make([]byte, len(what))
		if err == nil {
			_, err = io.ReadFull(c, got)
		}
		if err != nil || string(got) != what {
			t.Fatalf("wrote %q, read %q: %v", what, got, err)
		}
	}
	stream := func() net.Conn {
		t.Helper()
		c := dialTCP(t, proxy)
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		_, err := io.WriteString(c, greet+"\x05\x01\x00\x03\x09echo.test\x00\x07")
		if err == nil {
			_, err = io.ReadFull(c, make([]byte, 12))
		}
		if err != nil {
			t.Fatal(err)
		}
		say(c, "hello")
		return c
	}
	idle := webClient(t, proxy) // keeps its connection
	get := func() {
		t.Helper()
		resp, err := idle.Get("http://web.test/")
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode >= http.StatusInternalServerError {
			t.Fatal(resp.Status, err)
		}
	}
	get()
	var streams []net.Conn
	for range 10 {
		streams = append(streams, stream())
	}
	for i := range 5 * most {
		c := dialTCP(t, proxy)
		_, _ = io.WriteString(c, []string{"", "\x05", "GET"}[i%3]) // incomplete requests
	}
	for range 10 {
		streams = append(streams, stream())
	}
	for i, c := range streams {
		say(c, fmt.Sprint("stream ", i))
	}
	get()
	if n := e.Conns(); n > most {
		t.Errorf("%d connections have places", n)
	}
	if n := strings.Count(log.String(), "not taken"); n != 1 {
		t.Errorf("%d lines in the log: %s", n, log)
	}
}

// TestBlackHolesMakeRoom checks that a program with too many dials to silent destinations does not
// lock out other apps: its oldest dial ends, even if success was answered early. Streams are kept,
// and connections without a request are replaced before dials.
func TestBlackHolesMakeRoom(t *testing.T) {
	const most = 40
	bond := &fakeBond{at: map[string]string{"echo.test:7": tcpServer(t,
		func(c *net.TCPConn) { _, _ = io.Copy(c, c) })}, hole: make(chan struct{})}
	defer close(bond.hole)
	e, proxy := startProxy(t, Config{Dialer: bond, MaxConns: most})
	ask := func(request string) net.Conn {
		t.Helper()
		c := dialTCP(t, proxy)
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatal(err)
		}
		return c
	}
	say := func(c net.Conn, what string) {
		t.Helper()
		_, err := io.WriteString(c, what)
		got := make([]byte, len(what))
		if err == nil {
			_, err = io.ReadFull(c, got)
		}
		if err != nil || string(got) != what {
			t.Fatalf("wrote %q, read %q: %v", what, got, err)
		}
	}
	stream := func() net.Conn {
		t.Helper()
		c := ask(greet + "\x05\x01\x00\x03\x09echo.test\x00\x07")
		if _, err := io.ReadFull(c, make([]byte, 12)); err != nil {
			t.Fatal(err)
		}
		say(c, "hello")
		return c
	}
	dialed := func(n int) { // until that many dials have started
		t.Helper()
		waittest.Until(t, fmt.Sprint(n, " dials"), func() bool {
			bond.mu.Lock()
			defer bond.mu.Unlock()
			return len(bond.dialed) >= n
		})
	}
	var streams []net.Conn
	for range 10 {
		streams = append(streams, stream())
	}
	var holes []net.Conn
	for i := range 2 * most {
		holes = append(holes, ask([]string{
			greet + "\x05\x01\x00\x03\x09hole.test\x00\x07",
			"CONNECT hole.test:7 HTTP/1.1\r\nHost: hole.test:7\r\n\r\n",
			greet + "\x05\x01\x00\x01\xc0\x00\x02\x01\x00\x50", // 192.0.2.1:80: success is likely
		}[i%3]))
		dialed(10 + len(holes))
	}
	for i := range holes[:most] { // each has ended with a refusal or a reset
		answer, err := io.ReadAll(holes[i])
		refused := bytes.HasPrefix(answer, []byte("HTTP/1.1 5")) || len(answer) > 3 && answer[0] == 5 && answer[3] != 0
		if err == nil && !refused {
			t.Errorf("dial %d ended in order after %q", i, answer)
		}
	}
	ask("") // without a request
	for range 10 {
		streams = append(streams, stream())
	}
	for i, c := range streams {
		say(c, fmt.Sprint("stream ", i))
	}
	if n := e.Conns(); n > most {
		t.Errorf("%d connections have places", n)
	}
	waittest.Until(t, "streams to black holes are given up", func() bool {
		bond.mu.Lock()
		defer bond.mu.Unlock()
		return bond.resets >= 10+2*most+10-most
	})
}
