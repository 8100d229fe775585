// SPDX-License-Identifier: Apache-2.0

package intercept

import (
	"context"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"mpbond/link/wire"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// fakeBond is a Dialer with destinations on this machine.
type fakeBond struct {
	mu      sync.Mutex
	at      map[string]string    // destination -> address; others are unreachable
	refuse  map[string]wire.Code // destination -> refusal
	release chan struct{}        // if not nil, answers wait until it is closed
	hole    chan struct{}        // if not nil, destinations missing in at do not answer until it is closed
	dialed  []string
	resets  int
}

func (b *fakeBond) DialStream(_ context.Context, dest string) (net.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dialed = append(b.dialed, dest)
	s := &fakeStream{bond: b, answered: make(chan struct{}), buffered: make(chan []byte, 64)}
	go func() {
		defer close(s.answered)
		if b.release != nil {
			<-b.release
		}
		b.mu.Lock()
		code, refused := b.refuse[dest]
		addr, known := b.at[dest]
		b.mu.Unlock()
		if !refused && !known && b.hole != nil {
			<-b.hole
		}
		if !refused && !known {
			code, refused = wire.CodeUnreachable, true
		}
		if refused {
			s.err = wire.Reset{Code: code, Text: "the server says no to " + dest}
			return
		}
		c, err := net.Dial("tcp", addr)
		if err != nil {
			s.err = wire.Reset{Code: wire.CodeConnRefused, Text: err.Error()}
			return
		}
		s.c = c.(*net.TCPConn)
	}()
	return s, nil
}

// fakeStream can be used before its destination has answered. Like a stream of the bond it fails
// instead of blocking.
type fakeStream struct {
	bond     *fakeBond
	answered chan struct{}
	buffered chan []byte
	c        *net.TCPConn // set when answered
	err      error

	mu    sync.Mutex
	early [][]byte
	half  bool
}

func (s *fakeStream) WaitOpen(ctx context.Context) error {
	select {
	case <-s.answered:
		return s.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// flush sends what was written before the answer. mu must not be held.
func (s *fakeStream) flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flushLocked()
}

func (s *fakeStream) flushLocked() error {
	if s.err != nil {
		return s.err
	}
	for _, b := range s.early {
		if _, err := s.c.Write(b); err != nil {
			return err
		}
	}
	s.early = nil
	if s.half {
		s.half = false
		return s.c.CloseWrite()
	}
	return nil
}

func (s *fakeStream) Read(p []byte) (int, error) {
	<-s.answered
	if err := s.flush(); err != nil {
		return 0, err
	}
	return s.c.Read(p)
}

func (s *fakeStream) Write(p []byte) (int, error) {
	// Hold the lock, so that no answer comes in between: p would never be flushed.
	s.mu.Lock()
	select {
	case <-s.answered:
		err := s.flushLocked()
		s.mu.Unlock()
		if err != nil {
			return 0, err
		}
		return s.c.Write(p)
	default:
		s.early = append(s.early, append([]byte(nil), p...))
		s.mu.Unlock()
		return len(p), nil
	}
}

func (s *fakeStream) CloseWrite() error {
	s.mu.Lock()
	s.half = true
	s.mu.Unlock()
	select {
	case <-s.answered:
		return s.flush()
	default:
		return nil
	}
}

func (s *fakeStream) Close() error {
	go func() {
		<-s.answered
		if s.c != nil {
			s.c.Close()
		}
	}()
	return nil
}

func (s *fakeStream) Reset() {
	s.bond.mu.Lock()
	s.bond.resets++
	s.bond.mu.Unlock()
	go func() {
		<-s.answered
		if s.c != nil {
			s.c.SetLinger(0)
			s.c.Close()
		}
	}()
}

func (s *fakeStream) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (s *fakeStream) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (s *fakeStream) SetDeadline(time.Time) error      { return nil }
func (s *fakeStream) SetReadDeadline(time.Time) error  { return nil }
func (s *fakeStream) SetWriteDeadline(time.Time) error { return nil }

// startProxy serves cfg on a port of the loopback address.
func startProxy(t testing.TB, cfg Config) (*Edge, string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := New(cfg)
	done := make(chan error, 1)
	go func() { done <- e.ServeProxy(ln) }()
	t.Cleanup(func() {
		e.Close()
		if err := <-done; err != nil {
			t.Errorf("ServeProxy ended with %v", err)
		}
	})
	return e, ln.Addr().String()
}

// tcpServer runs handle on each connection.
func tcpServer(t testing.TB, handle func(*net.TCPConn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				handle(c.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() { ln.Close(); wg.Wait() })
	return ln.Addr().String()
}

// echoAtEnd answers in capitals after the app has ended its direction, which requires half-close.
func echoAtEnd(c *net.TCPConn) {
	b, err := io.ReadAll(c)
	if err == nil {
		io.WriteString(c, strings.ToUpper(string(b)))
	}
}

// dialTCP connects, with a deadline that ends a broken test.
func dialTCP(t testing.TB, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(time.Minute))
	t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

func needRoot(t testing.TB) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}
