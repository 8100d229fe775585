// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"mpbond/base/fault"
	"mpbond/base/waittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// carriers lists all carriers, with an address to listen on.
var carriers = []struct {
	c    func() Carrier
	addr string
}{
	{func() Carrier { return TCP{} }, "127.0.0.1:0"},
	{func() Carrier { return &Memory{} }, "somewhere"},
	{func() Carrier { return RFCOMM{} }, os.Getenv(rfcommEnv)},
}

// rfcommEnv names the RFCOMM address of a Bluetooth adapter that another adapter of this machine
// reaches by radio or through btvirt.
const rfcommEnv = "MPBOND_TEST_RFCOMM"

// skipUnlessAvailable skips the test if this machine lacks the carrier.
func skipUnlessAvailable(t *testing.T, c Carrier, addr string) {
	if c.Name() != "rfcomm" {
		return
	}
	l, err := c.Listen(t.Context(), "30")
	if err != nil {
		t.Skip(err)
	}
	l.Close()
	if addr == "" {
		t.Skip(rfcommEnv + " names no adapter")
	}
}

// runOnEach runs f on a fresh carrier of each kind.
func runOnEach(t *testing.T, f func(t *testing.T, c Carrier, addr string)) {
	for _, c := range carriers {
		carrier := c.c()
		t.Run(carrier.Name(), func(t *testing.T) {
			skipUnlessAvailable(t, carrier, c.addr)
			f(t, carrier, c.addr)
		})
	}
}

// connectPair makes a connection over c and returns both ends.
func connectPair(t testing.TB, c Carrier, addr string) (dialled, accepted Conn) {
	t.Helper()
	l, err := c.Listen(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := make(chan Conn, 1)
	go func() {
		b, _ := l.Accept()
		got <- b
	}()
	a, err := c.Dial(t.Context(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b := <-got
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func TestCarrierMovesBytesAndEnds(t *testing.T) {
	runOnEach(t, func(t *testing.T, c Carrier, addr string) {
		a, b := connectPair(t, c, addr)
		sent := make([]byte, 1<<20)
		_, _ = rand.Read(sent)
		go func() {
			for p := sent; len(p) > 0; {
				if err := a.WaitWritable(); err != nil {
					t.Error(err)
					return
				}
				n := min(len(p), 10000)
				a.Cork()
				_, _ = a.Write(p[:n/2])
				_, _ = a.Write(p[n/2 : n])
				if err := a.Flush(); err != nil {
					t.Error(err)
					return
				}
				p = p[n:]
			}
			_ = a.CloseWrite()
		}()
		got := make([]byte, len(sent))
		_, err := io.ReadFull(b, got)
		if _, half := c.(RFCOMM); err == nil && !half {
			_, err = b.Read(make([]byte, 1))
			if err == io.EOF {
				err = nil
			} else {
				t.Errorf("after the end: %v", err)
			}
		}
		if err != nil || !bytes.Equal(got, sent) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
		waittest.Until(t, "the last acknowledgement", func() bool {
			h, err := a.Probe()
			if err != nil {
				t.Fatal(err)
			}
			if h.Acked > uint64(len(sent)) {
				t.Fatalf("%d acknowledged of %d", h.Acked, len(sent))
			}
			return h.Queue == 0 && h.Acked == uint64(len(sent))
		})
		// After half-close the other direction still works.
		if _, err := b.Write([]byte("bye")); err != nil {
			t.Fatal(err)
		}
		b.Close()
		if got, err := io.ReadAll(a); string(got) != "bye" || err != nil {
			t.Fatalf("%q, %v", got, err)
		}
		_ = a.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := a.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("after the end once more: %v", err)
		}
	})
}

func TestCarrierDeadlinesAndClose(t *testing.T) {
	runOnEach(t, func(t *testing.T, c Carrier, addr string) {
		a, b := connectPair(t, c, addr)
		deadlinesAndClose(t, a, b)
	})
}

// deadlinesAndClose checks that a, whose other end is b, respects deadlines, and that Close wakes
// blocked calls. It closes a.
func deadlinesAndClose(t *testing.T, a, b Conn) {
	t.Helper()
	_ = a.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if _, err := a.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read deadline: %v", err)
	}
	_ = a.SetDeadline(time.Time{})
	errs := make(chan error, 2)
	go func() { _, err := a.Read(make([]byte, 1)); errs <- err }()
	go func() {
		var err error
		for err == nil {
			if err = a.WaitWritable(); err == nil {
				_, err = a.Write(make([]byte, 16<<10))
			}
		}
		errs <- err
	}()
	if _, err := io.ReadFull(b, make([]byte, 100<<10)); err != nil {
		t.Fatal(err)
	}
	a.Close()
	for range 2 {
		if err := <-errs; !errors.Is(err, net.ErrClosed) {
			t.Errorf("blocked at Close: %v", err)
		}
	}
	if err := a.WaitWritable(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("wait after Close: %v", err)
	}
}

func TestCarrierListener(t *testing.T) {
	runOnEach(t, func(t *testing.T, c Carrier, addr string) {
		l, err := c.Listen(t.Context(), addr)
		if err != nil {
			t.Fatal(err)
		}
		addr = l.Addr().String()
		if _, err := c.Listen(t.Context(), addr); !fault.Is(err, fault.AlreadyRunning) || fault.HintOf(err) == "" {
			t.Errorf("second listener: %v", err)
		}
		l.Close()
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("accept after Close: %v", err)
		}
		if _, err := c.Dial(t.Context(), addr); !fault.Is(err, fault.Unreachable) || fault.HintOf(err) == "" {
			t.Errorf("nobody listens: %v", err)
		}
	})
}
