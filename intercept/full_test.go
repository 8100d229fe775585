package intercept

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// lockedBuffer is a bytes.Buffer for a log.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestSilentConnectionsMakeRoom: a program that opens more connections than there are
// places, and asks for nothing, keeps no other app out, ends none of their streams, and
// fills no log.
func TestSilentConnectionsMakeRoom(t *testing.T) {
	const most = 40
	o := origin(t)
	bond := &fakeBond{at: map[string]string{"echo.test:7": tcpServer(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) }), "web.test:80": o.Listener.Addr().String()}}
	log := new(lockedBuffer)
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
			t.Fatalf("said %q, heard %q: %v", what, got, err)
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
		_, _ = io.WriteString(c, []string{"", "\x05", "GET"}[i%3]) // and not all of it
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
