// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mpbond/base/porttest"
	"mpbond/link/wire"
)

func TestDialRefusals(t *testing.T) {
	web, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer web.Close()
	_, port, _ := net.SplitHostPort(web.Addr().String())
	loopback := parsePrefixes("127.0.0.0/8", "::1/128")
	gone := porttest.FreeAddress(t)
	for _, c := range []struct {
		dest  string
		allow []netip.Prefix
		code  wire.Code
		text  string
	}{
		{"127.0.0.1:" + port, nil, wire.CodeForbidden, "private"},
		{"[::1]:" + port, nil, wire.CodeForbidden, "private"},
		{"[::ffff:127.0.0.1]:" + port, nil, wire.CodeForbidden, "private"},
		{"[64:ff9b::7f00:1]:" + port, nil, wire.CodeForbidden, "private"},
		{"[2002:7f00:1::]:" + port, nil, wire.CodeForbidden, "private"},
		{"localhost:" + port, nil, wire.CodeForbidden, "private"}, // the resolved address counts
		{"0.0.0.0:" + port, loopback, wire.CodeForbidden, "private"},
		{gone, loopback, wire.CodeConnRefused, "refused"},
		{"nowhere.invalid:80", nil, wire.CodeNameNotFound, "cannot resolve"},
		{fullBacklog(t), loopback, wire.CodeTimeout, "no answer"},
		{"127.0.0.1:http-nonsense", loopback, wire.CodeUnreachable, "numeric"},
	} {
		limit := 10 * time.Second
		// takes a timeout, here or without a resolver
		if c.code == wire.CodeTimeout || c.code == wire.CodeNameNotFound {
			limit = 500 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		conn, err := destinations{c.allow}.dialDestination(ctx, c.dest)
		cancel()
		if err == nil {
			conn.Close()
		}
		var r wire.Reset
		if !errors.As(err, &r) {
			t.Errorf("%s: %v", c.dest, err)
			continue
		}
		if c.code == wire.CodeNameNotFound && (r.Code == wire.CodeTimeout || r.Code == wire.CodeUnreachable) {
			t.Logf("no resolver answers here: %v", r)
			continue
		}
		if r.Code != c.code || !strings.Contains(r.Text, c.text) || !strings.Contains(r.Text, c.dest) {
			t.Errorf("%s: %v, %q", c.dest, r.Code, r.Text)
		}
	}
	conn, err := destinations{loopback}.dialDestination(t.Context(), "localhost:"+port)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

// TestDialWithoutSockets: only the server's own lack of sockets is its limit; a broken connection is not.
func TestDialWithoutSockets(t *testing.T) {
	for errno, want := range map[unix.Errno]wire.Code{
		unix.EMFILE: wire.CodeLimit, unix.ENFILE: wire.CodeLimit, unix.ECONNABORTED: wire.CodeUnreachable,
	} {
		if r := explainDialError("example.org:80", &net.OpError{Op: "dial", Err: errno}); r.Code != want {
			t.Errorf("%v: %v, %q", errno, r.Code, r.Text)
		}
	}
}

// fullBacklog returns the address of a listener that accepts no more connections, so that callers
// get no answer.
func fullBacklog(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(sa.(*unix.SockaddrInet4).Port)).String()
	for range 5 {
		c, err := net.DialTimeout("tcp", addr, 500*time.Millisecond)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { c.Close() })
	}
	t.Fatal("the listener never fills")
	return ""
}
