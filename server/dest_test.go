package server

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"mpbond/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAllowed(t *testing.T) {
	for _, c := range []struct {
		addr  string
		allow string
		want  bool
	}{
		{"192.0.2.1", "", true},
		{"8.8.8.8", "", true},
		{"2001:db8::1", "", true},
		{"0.0.0.0", "", false},
		{"0.1.2.3", "", false},
		{"10.1.2.3", "", false},
		{"100.64.0.1", "", false},
		{"127.0.0.1", "", false},
		{"127.255.255.254", "", false},
		{"169.254.169.254", "", false},
		{"172.16.0.1", "", false},
		{"172.32.0.1", "", true},
		{"192.0.0.8", "", false},
		{"192.168.1.1", "", false},
		{"198.18.0.1", "", false},
		{"224.0.0.1", "", false},
		{"255.255.255.255", "", false},
		{"::", "", false},
		{"::1", "", false},
		{"::127.0.0.1", "", false},
		{"fe80::1", "", false},
		{"fe80::1%lo", "", false},
		{"fec0::1", "", false},
		{"fd00::1", "", false},
		{"ff02::1", "", false},
		{"100::1", "", false},
		{"64:ff9b:1::1", "", false},
		// The IPv4 address within counts: mapped, NAT64, 6to4.
		{"::ffff:127.0.0.1", "", false},
		{"::ffff:8.8.8.8", "", true},
		{"64:ff9b::10.0.0.1", "", false},
		{"64:ff9b::8.8.8.8", "", true},
		{"2002:7f00:1::1", "", false},
		{"2002:c0a8:101::", "", false},
		{"2002:808:808::", "", true},
		{"10.1.2.3", "10.1.0.0/16", true},
		{"10.2.2.3", "10.1.0.0/16", false},
		{"::ffff:10.1.2.3", "10.1.0.0/16", true},
		{"64:ff9b::10.1.2.3", "10.1.0.0/16", true},
		{"fd00:1::2", "fd00:1::/32", true},
		{"fd00:2::2", "fd00:1::/32", false},
		{"fe80::1%eth0", "fe80::/10", true},
	} {
		var allow []netip.Prefix
		if c.allow != "" {
			allow = prefixes(c.allow)
		}
		if got := allowed(netip.MustParseAddr(c.addr), allow); got != c.want {
			t.Errorf("%s with %q: %v", c.addr, c.allow, got)
		}
	}
}

func TestDialRefusals(t *testing.T) {
	web, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer web.Close()
	_, port, _ := net.SplitHostPort(web.Addr().String())
	loopback := prefixes("127.0.0.0/8", "::1/128")
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
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
		{"localhost:" + port, nil, wire.CodeForbidden, "private"}, // what counts is where the name leads
		{"0.0.0.0:" + port, loopback, wire.CodeForbidden, "private"},
		{gone.Addr().String(), loopback, wire.CodeConnRefused, "refused"},
		{"nowhere.invalid:80", nil, wire.CodeNameNotFound, "no such name"},
		{full(t), loopback, wire.CodeTimeout, "no answer"},
		{"127.0.0.1:http-nonsense", loopback, wire.CodeUnreachable, "number"},
	} {
		limit := 10 * time.Second
		if c.code == wire.CodeTimeout || c.code == wire.CodeNameNotFound { // to be waited out, here or where no resolver answers
			limit = 500 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		conn, err := dial(ctx, c.dest, c.allow)
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
	conn, err := dial(t.Context(), "localhost:"+port, loopback)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

// full is the address of a listener that takes no further connection, so that
// a caller gets no answer.
func full(t *testing.T) string {
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

// FuzzAllowed: whatever an address is embedded in, none of the server's own
// network is reached, nor one that only looks like another.
func FuzzAllowed(f *testing.F) {
	for _, s := range []string{"8.8.8.8", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:a00:1::", "2001:db8::1", "fe80::1", "64:ff9b::2002:1", "2002:2002::"} {
		f.Add(netip.MustParseAddr(s).AsSlice())
	}
	allow := prefixes("10.77.0.0/16")
	f.Fuzz(func(t *testing.T, b []byte) {
		a, ok := netip.AddrFromSlice(b)
		if !ok {
			return
		}
		in, u := allowed(a, allow), a.Unmap()
		if in && (u.IsLoopback() || u.IsUnspecified() || u.IsMulticast() || u.IsLinkLocalUnicast() || u.IsPrivate() && !allow[0].Contains(u)) {
			t.Errorf("%v is allowed", a)
		}
		if mapped := netip.AddrFrom16(a.As16()); allowed(mapped, allow) != in || allowed(mapped.WithZone("x"), allow) != in {
			t.Errorf("%v is not judged as %v is", a, mapped)
		}
	})
}
