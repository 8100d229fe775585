// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// memoryListener is a listener of connections in memory with deadlines in virtual time.
type memoryListener struct {
	calls chan net.Conn
	end   func()
	ended chan struct{}
}

func newMemoryListener() *memoryListener {
	l := &memoryListener{calls: make(chan net.Conn), ended: make(chan struct{})}
	l.end = sync.OnceFunc(func() { close(l.ended) })
	return l
}

// Accept implements net.Listener.
func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.calls:
		return c, nil
	case <-l.ended:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *memoryListener) Close() error { l.end(); return nil }

// Addr implements net.Listener.
func (l *memoryListener) Addr() net.Addr { return &net.UnixAddr{} }

// dialWith connects, once there is room, and sends says.
func (l *memoryListener) dialWith(says string) net.Conn {
	near, far := net.Pipe()
	l.calls <- far
	if says != "" {
		_, _ = io.WriteString(near, says) // a refused caller has sent enough
	}
	return near
}

// TestSlowCallers: a client that holds all connections with unfinished requests blocks others only
// for the timeout of a header or body, with a token or without.
func TestSlowCallers(t *testing.T) {
	const head = "POST /v2/chunk HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
	const token = "Authorization: Bearer " + secret + "\r\n"
	for name, says := range map[string]string{
		"nothing":                 "",
		"a part of the header":    head,
		"a part of the body":      head + token + "Content-Length: 1000\r\n\r\n{",
		"no token":                head + "Content-Length: 1000\r\n\r\n{",
		"no token, unknown end":   head + "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
		"no token, leave to send": head + "Expect: 100-continue\r\nContent-Length: 1000\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newMemoryListener()
				ctx, cancel := context.WithCancel(t.Context())
				var all sync.WaitGroup
				all.Go(func() {
					if err := runHTTPServer(ctx, l, requireToken(Handler(fullRole(nil)), secret)); err != nil {
						t.Error(err)
					}
				})
				began := time.Now()
				for range maxConns {
					all.Go(func() {
						conn := l.dialWith(says)
						defer conn.Close()
						_, _ = io.Copy(io.Discard, conn) // until it is disconnected
					})
				}
				synctest.Wait()
				conn := l.dialWith(
					"GET /v2/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + token + "\r\n",
				)
				answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil || answer.StatusCode != http.StatusOK {
					t.Errorf("%v, %v", answer, err)
				}
				if took := time.Since(began); took > readTimeout+time.Second {
					t.Errorf("it took %v", took)
				}
				conn.Close()
				cancel()
				all.Wait()
			})
		})
	}
}

// TestReadersMayBeQuiet: a reader of events may be quiet for any time.
func TestReadersMayBeQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, feed := newMemoryListener(), new(Feed)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			if err := runHTTPServer(ctx, l, Handler(Role{Status: exampleStatus, Feed: feed})); err != nil {
				t.Error(err)
			}
		})
		conn := l.dialWith("GET /v2/events HTTP/1.1\r\nHost: x\r\n\r\n")
		lines := make(chan string)
		all.Go(func() {
			defer close(lines)
			for r := bufio.NewScanner(conn); r.Scan(); {
				lines <- r.Text()
			}
		})
		time.AfterFunc(time.Hour, func() { feed.Add(openEvents(1)) })
		found := errors.New("it was cut off")
		for line := range lines {
			if strings.Contains(line, `"stream_open"`) {
				found = nil
				conn.Close()
			}
		}
		if found != nil {
			t.Error(found)
		}
		cancel()
		all.Wait()
	})
}
