// SPDX-License-Identifier: Apache-2.0

package splice

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if addr := os.Getenv(crashEnv); addr != "" {
		runCrashProcess(addr)
	}
	goleak.VerifyTestMain(m)
}

// tcpPair returns both ends of a connection over loopback.
func tcpPair(t *testing.T) (a, b *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	d, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); d.Close() })
	for _, c := range []net.Conn{c, d} {
		_ = c.SetDeadline(time.Now().Add(time.Minute))
	}
	return c.(*net.TCPConn), d.(*net.TCPConn)
}

// wrapped hides the type of a connection, so that it is read and written plainly.
type wrapped struct{ *net.TCPConn }

func (w wrapped) Read(p []byte) (int, error) { return w.TCPConn.Read(p) }

// result holds the results of Both.
type result struct {
	toB, toA int64
	err      error
}

// joinPair makes two connections and runs Both between their inner ends.
func joinPair(t *testing.T, wrap func(*net.TCPConn) net.Conn) (left, right *net.TCPConn, done chan result) {
	t.Helper()
	left, a := tcpPair(t)
	b, right := tcpPair(t)
	done = make(chan result, 1)
	go func() {
		toB, toA, err := Both(wrap(a), wrap(b))
		done <- result{toB, toA, err}
	}()
	return left, right, done
}

var wraps = map[string]func(*net.TCPConn) net.Conn{
	"plain TCP": func(c *net.TCPConn) net.Conn { return c },
	"wrapped":   func(c *net.TCPConn) net.Conn { return wrapped{c} },
}

func TestBothWays(t *testing.T) {
	for name, wrap := range wraps {
		t.Run(name, func(t *testing.T) {
			left, right, done := joinPair(t, wrap)
			there, back := randomBytes(3<<20, 1), randomBytes(2<<20, 2)
			var all sync.WaitGroup
			for _, c := range []struct {
				at        *net.TCPConn
				out, want []byte
			}{{left, there, back}, {right, back, there}} {
				all.Go(func() {
					_, err := c.at.Write(c.out)
					if err = errors.Join(err, c.at.CloseWrite()); err != nil {
						t.Error(err)
					}
				})
				all.Go(func() {
					if got, err := io.ReadAll(c.at); err != nil || !bytes.Equal(got, c.want) {
						t.Errorf("%d bytes came, %v", len(got), err)
					}
				})
			}
			all.Wait()
			if r := <-done; r != (result{3 << 20, 2 << 20, nil}) {
				t.Errorf("%+v", r)
			}
		})
	}
}

func randomBytes(n int, seed byte) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

// TestHalfClose checks that the end of one direction leaves the other one open.
func TestHalfClose(t *testing.T) {
	left, right, done := joinPair(t, wraps["plain TCP"])
	if err := left.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(right); err != nil || len(b) > 0 {
		t.Errorf("%q, %v", b, err)
	}
	for i := range 10 {
		fmt.Fprintf(right, "%d", i)
		if b := make([]byte, 1); i < 10 {
			if _, err := io.ReadFull(left, b); err != nil || b[0] != '0'+byte(i) {
				t.Fatalf("%q, %v", b, err)
			}
		}
	}
	right.Close()
	if r := <-done; r != (result{0, 10, nil}) {
		t.Errorf("%+v", r)
	}
}

// TestResetIsPassedOn checks that a broken stream never looks complete.
func TestResetIsPassedOn(t *testing.T) {
	for name, wrap := range wraps {
		t.Run(name, func(t *testing.T) {
			left, right, done := joinPair(t, wrap)
			if _, err := io.WriteString(left, "half of it"); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(right, make([]byte, 10)); err != nil {
				t.Fatal(err)
			}
			_ = left.SetLinger(0)
			left.Close()
			if _, err := io.ReadAll(right); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the far end sees %v", err)
			}
			if r := <-done; r.err == nil {
				t.Errorf("%+v", r)
			}
		})
	}
}

// TestCloseEndsIt checks that closing an inner end ends both connections.
func TestCloseEndsIt(t *testing.T) {
	left, a := tcpPair(t)
	b, right := tcpPair(t)
	done := make(chan error, 1)
	go func() {
		_, _, err := Both(a, b)
		done <- err
	}()
	a.Close()
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v", err)
	}
	for _, c := range []net.Conn{left, right} {
		var n net.Error
		if _, err := io.ReadAll(c); errors.As(err, &n) && n.Timeout() {
			t.Errorf("an end is left open: %v", err)
		}
	}
}

func TestNoHalfClose(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if err := CloseWrite(a); err == nil {
		t.Error("a net.Pipe can be closed in one direction?")
	}
	Reset(a)
	if _, err := b.Read(make([]byte, 1)); err == nil {
		t.Error("it is still open")
	}
}

// TestIdleHoldsNoBuffer checks that waiting connections hold no copy buffer.
func TestIdleHoldsNoBuffer(t *testing.T) {
	const n = 100
	heap := func() uint64 {
		runtime.GC()
		runtime.GC() // the pool drops its buffers in two collections
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse
	}
	before := heap()
	for range n {
		left, right, done := joinPair(t, wraps["plain TCP"])
		t.Cleanup(func() { left.Close(); right.Close(); <-done })
		for _, c := range [][2]net.Conn{{left, right}, {right, left}} { // so that both directions have started
			if _, err := c[0].Write([]byte{1}); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(c[1], make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if each := (int64(heap()) - int64(before)) / n; each > 24<<10 {
		t.Errorf("an idle pair holds %d KB", each>>10)
	}
}
