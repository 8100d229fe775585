// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/base/waittest"
	"mpbond/link/estimate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connPair returns both ends of a connection over loopback.
func connPair(t testing.TB, opt Options) (a, b *Conn) {
	t.Helper()
	l, err := Listen(t.Context(), "127.0.0.1:0", opt)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a, err = Dial(t.Context(), l.Addr().String(), opt); err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// awaitProbe probes c until right accepts what it finds, and returns that.
func awaitProbe(t *testing.T, c *Conn, what string, right func(estimate.Hop) bool) (h estimate.Hop) {
	t.Helper()
	waittest.Until(t, what, func() (ok bool) {
		var err error
		if h, err = c.Probe(); err != nil {
			t.Fatal(err)
		}
		return right(h)
	})
	return h
}

// TestLateBinding checks that a writer that waits keeps at most the low-water mark and one segment
// unsent while the receiver does not read. A plain writer would fill the send buffer.
func TestLateBinding(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("late binding needs Linux")
	}
	const segment = 16 << 10
	for _, lowat := range []unit.Bytes{16 * unit.KB, 64 * unit.KB} {
		a, b := connPair(t, Options{NotSentLowat: lowat})
		stopped := make(chan error)
		go func() {
			buf := make([]byte, segment)
			for {
				if err := a.WaitWritable(); err != nil {
					stopped <- err
					return
				}
				if _, err := a.Write(buf); err != nil {
					stopped <- err
					return
				}
			}
		}()
		// The writer is blocked when the kernel's queue no longer grows: then both windows are
		// full.
		var last unit.Bytes
		same := 0
		waittest.Until(t, "a blocked writer", func() bool {
			h, err := a.Probe()
			if err != nil {
				t.Fatal(err)
			}
			if h.Unsent > lowat+segment {
				t.Fatalf("lowat %v: %v unsent", lowat, h.Unsent)
			}
			if h.Queue == last && h.Unsent > 0 {
				same++
			} else {
				same = 0
			}
			last = h.Queue
			return same >= 20
		})
		// When the reader reads, the writer continues.
		written := a.Written()
		if _, err := io.CopyN(io.Discard, b, int64(written)+10*segment); err != nil {
			t.Fatal(err)
		}
		a.Close()
		if err := <-stopped; !errors.Is(err, net.ErrClosed) {
			t.Fatalf("Close ended the wait with %v", err)
		}
	}
}

func TestWaitObeysDeadlineAndPeer(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("late binding needs Linux")
	}
	fill := func(a *Conn) error {
		for {
			if err := a.WaitWritable(); err != nil {
				return err
			}
			if _, err := a.Write(make([]byte, 64<<10)); err != nil {
				return err
			}
		}
	}
	a, b := connPair(t, Options{})
	_ = a.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	if err := fill(a); !errors.Is(err, context.DeadlineExceeded) && !strings.Contains(err.Error(), "timeout") {
		t.Errorf("deadline: %v", err)
	}
	_ = a.SetWriteDeadline(time.Time{})
	done := make(chan error)
	go func() { done <- fill(a) }()
	b.Close() // with unread data: a reset
	if err := <-done; err == nil {
		t.Error("a reset by the peer did not end the writer")
	}
}

func TestResetIsNoEnd(t *testing.T) {
	for _, writesFirst := range []bool{true, false} {
		a, b := connPair(t, Options{})
		_, _ = b.Write([]byte("x"))
		_ = b.Abort()
		// The reset comes together with the data before it: loopback delivers in the caller's
		// context.
		if _, err := a.Peek(1); err != nil {
			t.Fatal(err)
		}
		if writesFirst {
			if _, err := a.Write([]byte("y")); err == nil {
				t.Fatal("wrote after a reset")
			}
		}
		if _, err := io.Copy(io.Discard, a); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("write first %v: read ends with %v", writesFirst, err)
		}
	}
}

func TestProbe(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("TCP_INFO needs Linux")
	}
	a, b := connPair(t, Options{})
	const n = 8 << 20
	go func() { _, _ = a.Write(make([]byte, n)) }()
	if _, err := io.CopyN(io.Discard, b, n); err != nil {
		t.Fatal(err)
	}
	h := awaitProbe(t, a, "the last acknowledgement", func(h estimate.Hop) bool {
		if h.Acked > n {
			t.Fatalf("%d bytes acknowledged of %d", h.Acked, n)
		}
		return h.Acked == n
	})
	if h.Queue != 0 || h.Unsent != 0 || h.SRTT <= 0 || h.SRTT > time.Second || h.MinRTT <= 0 ||
		h.MinRTT > h.SRTT+time.Second ||
		h.Rate <= 0 || h.Cwnd < h.MSS || h.MSS < 500 || a.Written() != n {
		t.Fatalf("probe makes no sense: %+v", h)
	}
	if h.WireOut == 0 {
		t.Log("this kernel does not count packets (before Linux 4.19)")
	} else if h.WireOut < n || h.WireOut > n*11/10 || h.WireIn == 0 || h.WireIn > n/10 {
		t.Errorf("%d bytes went as packets of %d, and %d came", n, h.WireOut, h.WireIn)
	}
	if plain, _ := a.Probe(); plain.WireOut > 0 {
		a.ipv6 = true // its headers are 20 bytes longer
		if long, _ := a.Probe(); long.WireOut <= plain.WireOut || (long.WireOut-plain.WireOut)%20 != 0 {
			t.Errorf("%d bytes as packets of IPv4, %d as those of IPv6", plain.WireOut, long.WireOut)
		}
	}
	// The other direction has sent nothing, and a single byte does not show what the network can
	// carry.
	if h, _ := b.Probe(); h.Acked != 0 || h.Queue != 0 {
		t.Errorf("the silent direction counts %d acknowledged, %v queued", h.Acked, h.Queue)
	}
	_, _ = b.Write([]byte{1})
	_, _ = a.Read(make([]byte, 1))
	if h := awaitProbe(t, b, "an acknowledgement", func(h estimate.Hop) bool { return h.Acked == 1 }); !h.AppLimited {
		t.Error("one byte is not limited by the application")
	}
	// A FIN does not count as a byte.
	_ = a.CloseWrite()
	_, _ = b.Read(make([]byte, 1))
	if h, _ := a.Probe(); h.Acked != n {
		t.Errorf("after FIN %d acknowledged, want %d", h.Acked, n)
	}
}

func TestCork(t *testing.T) {
	a, b := connPair(t, Options{})
	a.Cork()
	for range 4 {
		if n, err := a.Write(make([]byte, 1000)); n != 1000 || err != nil {
			t.Fatal(n, err)
		}
	}
	if a.Written() != 0 {
		t.Errorf("%d bytes left while corked", a.Written())
	}
	if err := a.Flush(); err != nil || a.Written() != 4000 {
		t.Errorf("flush: %v, %d bytes", err, a.Written())
	}
	a.Cork()
	_, _ = a.Write(make([]byte, corkLimit))
	if a.Written() != 4000+corkLimit {
		t.Error("the gathered bytes are not bounded")
	}
	if err := a.Flush(); err != nil {
		t.Error(err)
	}
	if _, err := io.CopyN(io.Discard, b, 4000+corkLimit); err != nil {
		t.Error(err)
	}
	a.Close()
	a.Cork()
	_, _ = a.Write([]byte{1})
	if err := a.Flush(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("flush after Close: %v", err)
	}
}

func TestPeek(t *testing.T) {
	a, b := connPair(t, Options{})
	_, _ = a.Write([]byte("hello"))
	p, err := b.Peek(1)
	if err != nil || p[0] != 'h' {
		t.Fatal(p, err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(b, got); err != nil || !bytes.Equal(got, []byte("hello")) {
		t.Fatal(got, err)
	}
}

func TestErrorsAreFaults(t *testing.T) {
	l, err := Listen(t.Context(), "127.0.0.1:0", Options{})
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	check := func(what string, err error, kind fault.Kind, hint string) {
		t.Helper()
		if !fault.Is(err, kind) || !strings.Contains(fault.HintOf(err), hint) {
			t.Errorf("%s: %v (%v; %s)", what, err, fault.KindOf(err), fault.HintOf(err))
		}
	}
	_, err = Listen(t.Context(), addr, Options{})
	check("port in use", err, fault.AlreadyRunning, "already running")
	_, err = Dial(t.Context(), addr, Options{Local: "192.0.2.1"})
	check("foreign local address", err, fault.Config, "ip address")
	if runtime.GOOS == "linux" {
		_, err = Dial(t.Context(), addr, Options{Congestion: "nosuch"})
		check("congestion control", err, fault.Config, "cubic")
		_, err = Listen(t.Context(), "127.0.0.1:0", Options{Congestion: "nosuch"})
		check("congestion control at Listen", err, fault.Config, "cubic")
		_, err = Dial(t.Context(), addr, Options{Interface: "nosuch0"})
		check("interface", err, fault.Config, "ip link")
	}
	l.Close()
	_, err = Dial(t.Context(), addr, Options{})
	check("nobody there", err, fault.Unreachable, "nothing listens")
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept after Close: %v", err)
	}
}

func BenchmarkProbe(b *testing.B) {
	c, _ := connPair(b, Options{})
	for b.Loop() {
		if _, err := c.Probe(); err != nil {
			b.Fatal(err)
		}
	}
}

// TestCongestionOverUDPOnly checks that a name that the system lacks is valid over UDP if we
// implement it there. TCP then uses the system's default.
func TestCongestionOverUDPOnly(t *testing.T) {
	overUDP["ours"] = true
	t.Cleanup(func() { delete(overUDP, "ours") })
	if err := CheckCongestion("ours", true); err != nil {
		t.Error(err)
	}
	if err := CheckCongestion("ours", false); err == nil {
		t.Error("it is valid without UDP")
	}
	l, err := Listen(t.Context(), "127.0.0.1:0", Options{Congestion: "ours"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := Dial(t.Context(), l.Addr().String(), Options{Congestion: "ours"})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// TestCheckCongestion checks that names that exist only over UDP are valid if UDP is used, and that
// unknown names are not.
func TestCheckCongestion(t *testing.T) {
	for name, c := range map[string]struct{ overTCP, overUDP bool }{"": {true, true}, PBE: {false, true},
		Copa: {false, true}, "nosuch": {false, false}} {
		for udp, want := range map[bool]bool{false: c.overTCP, true: c.overUDP} {
			if err := CheckCongestion(name, udp); (err == nil) != want {
				t.Errorf("%q, UDP %v: %v", name, udp, err)
			}
		}
		l, err := Listen(t.Context(), "127.0.0.1:0", Options{Congestion: name})
		if (err == nil) != c.overUDP {
			t.Errorf("%q: %v", name, err)
		}
		if err == nil {
			l.Close()
		}
	}
	if err := CheckCongestion(Copa, false); !fault.Is(err, fault.Config) || fault.HintOf(err) == "" {
		t.Error(err)
	}
}
