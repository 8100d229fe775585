// SPDX-License-Identifier: Apache-2.0

package udpsock

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"mpbond/base/porttest"
)

// closedPort returns an address on which nothing listens. The kernel gives its port to no socket.
func closedPort(t *testing.T, host string) netip.AddrPort {
	t.Helper()
	port := netip.MustParseAddrPort(porttest.FreeAddress(t)).Port()
	addr := netip.AddrPortFrom(netip.MustParseAddr(host), port)
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(addr))
	if err != nil {
		t.Skipf("no UDP at %s: %v", addr, err)
	}
	c.Close()
	return addr
}

// TestFailures checks that an unconnected socket gets errors about closed ports, for IPv4 and IPv6,
// and can send to others right after each error.
func TestFailures(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		t.Run(host, func(t *testing.T) {
			closed := closedPort(t, host)
			open, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(closed.Addr(), 0)))
			if err != nil {
				t.Fatal(err)
			}
			defer open.Close()
			_ = open.SetReadDeadline(time.Now().Add(time.Minute))
			to := open.LocalAddr().(*net.UDPAddr).AddrPort()
			c, err := net.ListenUDP("udp", nil) // of both families, like the server's
			if err != nil {
				t.Fatal(err)
			}
			if err := EnableFailures(c); err != nil {
				t.Fatal(err)
			}
			failures, done := make(chan Failure, 100), make(chan bool)
			go func() {
				defer close(done)
				Receive(c, func([]byte, netip.AddrPort) bool { return true }, func(f Failure) { failures <- f })
			}()
			defer func() { c.Close(); <-done }()
			for i := range byte(20) {
				// The error of the first datagram may come before the second one is sent.
				for _, dest := range []netip.AddrPort{closed, to} {
					if err := Send(c, []byte{i}, dest); err != nil {
						t.Fatalf("to %v: %v", dest, err)
					}
				}
				b := make([]byte, 10)
				if n, err := open.Read(b); err != nil || n != 1 || b[0] != i {
					t.Fatalf("datagram %d arrives as %v, %v", i, b[:n], err)
				}
				select {
				case f := <-failures:
					if f.Dest != closed || f.Err != syscall.ECONNREFUSED {
						t.Errorf("got %+v, want %v refused", f, closed)
					}
				case <-time.After(time.Minute):
					t.Fatal("no failure came")
				}
			}
		})
	}
}

// TestSendFails checks that an error about this datagram is returned at once.
func TestSendFails(t *testing.T) {
	c, err := net.ListenUDP("udp4", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := EnableFailures(c); err != nil {
		t.Fatal(err)
	}
	to := netip.MustParseAddrPort("127.0.0.1:9")
	if err := Send(c, make([]byte, 65530), to); !errors.Is(err, syscall.EMSGSIZE) {
		t.Errorf("one too long: %v", err)
	}
	c.Close()
	if err := Send(c, nil, to); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	Receive(c, nil, nil) // returns at once
}
