package helper

import (
	"context"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/identity"
	"mpbond/pipe"
)

// TestServersOfEach: a primary is carried to the servers that it has told, and to
// those that the owner trusts; nobody to another primary's.
func TestServersOfEach(t *testing.T) {
	trust, err := identity.OpenTrust(filepath.Join(t.TempDir(), "trust.toml"))
	if err != nil {
		t.Fatal(err)
	}
	laptop, tablet := keys().primary.Public(), keys().helper.Public()
	primary := []identity.Role{identity.RolePrimary}
	for _, p := range []identity.Peer{
		{Name: "laptop", Roles: primary, Key: laptop, Servers: []string{"192.0.2.1:7600", "[2001:DB8::1]:7600"}},
		{Name: "tablet", Roles: primary, Key: tablet, Servers: []string{"192.0.2.2:7600"}},
		{Name: "home", Roles: []identity.Role{identity.RoleServer}, Key: keys().server.Public(), Addresses: []string{"Home.example.org:7600"}},
	} {
		if err := trust.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	h, err := New(Config{}, "phone", Identity{keys().helper, trust}, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	check := func(primary identity.PublicKey, server string, want bool) {
		t.Helper()
		if h.allowed(primary, server) != want {
			t.Errorf("%v to %s: %v", primary.ID(), server, !want)
		}
	}
	for _, server := range []string{"192.0.2.1:7600", "[2001:db8:0::1]:7600", "home.example.org:7600"} {
		check(laptop, server, true)
	}
	check(tablet, "192.0.2.2:7600", true)
	check(tablet, "192.0.2.1:7600", false)
	check(laptop, "192.0.2.2:7600", false)
	check(laptop, "192.0.2.1:22", false)
	check(keys().server.Public(), "home.example.org:7600", false)
	if err := trust.Remove("laptop"); err != nil {
		t.Fatal(err)
	}
	for _, server := range []string{"192.0.2.1:7600", "home.example.org:7600"} {
		check(laptop, server, false)
	}
}

func TestAstray(t *testing.T) {
	for _, c := range []struct {
		server, here, there string
		want                bool
	}{
		{"vps.example.org:7600", "192.168.1.9", "192.0.2.1", false},
		{"192.168.1.2:7600", "192.168.1.9", "192.168.1.2", false},
		{"evil.example.org:22", "127.0.0.1", "127.0.0.1", true},
		{"evil.example.org:22", "192.168.1.9", "127.0.0.1", true},
		{"evil.example.org:80", "192.168.1.9", "169.254.169.254", true},
		{"evil.example.org:80", "fe80::2", "fe80::1", true},
		{"evil.example.org:22", "192.168.1.9", "192.168.1.9", true},
		{"192.168.1.9:22", "192.168.1.9", "192.168.1.9", true},
		{"127.1:22", "127.0.0.1", "127.0.0.1", true},
		{"127.0.0.1:7600", "127.0.0.1", "127.0.0.1", false}, // told between two on one machine
		{"localhost:7600", "::1", "::1", false},
	} {
		end := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 7600} }
		if got := astray(c.server, end(c.here), end(c.there)); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// slowly is a carrier by which something happens while it dials.
type slowly struct {
	pipe.Carrier
	meanwhile func()
}

func (s slowly) Dial(ctx context.Context, addr string) (pipe.Conn, error) {
	c, err := s.Carrier.Dial(ctx, addr)
	s.meanwhile()
	return c, err
}

// TestRevokedWhileDialling: a server that is trusted no longer when the
// connection to it is made is not relayed to.
func TestRevokedWhileDialling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, pipes: inMemory(), servers: inMemory()}
		w.prepare = func(h *Helper) {
			h.servers = slowly{w.servers, func() {
				if err := h.trust.Remove("home"); err != nil {
					t.Error(err)
				}
				h.TrustChanged()
				synctest.Wait() // the relays there are were looked at
			}}
		}
		w.listen("x:1")
		w.start(Config{})
		p, s, _ := w.subflow()
		time.Sleep(time.Minute)
		if list := w.h.Status().Subflows; len(list) > 0 {
			t.Errorf("relayed to whom nobody trusts: %+v", list)
		}
		for _, l := range []*pipe.Link{p, s} {
			if _, err := io.ReadAll(l); err == nil {
				t.Error("it ended in order")
			}
		}
		w.stop()
	})
}
