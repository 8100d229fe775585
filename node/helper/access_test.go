// SPDX-License-Identifier: Apache-2.0

package helper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/link/pipe"
	"mpbond/link/wire"
)

// TestServersOfEach: a primary may reach the servers that it announced and those that the owner
// trusts, but not those of another primary.
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
		{Name: "home", Roles: []identity.Role{identity.RoleServer}, Key: keys().server.Public(),
			Addresses: []string{"Home.example.org:7600"}},
	} {
		if err := trust.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	a := newServerAccess(trust, slog.New(slog.DiscardHandler))
	check := func(primary identity.PublicKey, server string, want bool) {
		t.Helper()
		if a.allowsServer(primary, server) != want {
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
		{"127.0.0.1:7600", "127.0.0.1", "127.0.0.1", false}, // announced between two roles on one machine
		{"localhost:7600", "::1", "::1", false},
	} {
		end := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 7600} }
		if got := leadsToSelf(c.server, end(c.here), end(c.there)); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// slowly is a carrier that calls a function while it dials.
type slowly struct {
	pipe.Carrier
	meanwhile func()
}

func (s slowly) Dial(ctx context.Context, addr string) (pipe.Conn, error) {
	c, err := s.Carrier.Dial(ctx, addr)
	s.meanwhile()
	return c, err
}

// TestRevokedWhileDialling: the helper does not relay to a server whose trust was revoked during
// the dial.
func TestRevokedWhileDialling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &testWorld{t: t, pipes: inMemory(), servers: inMemory()}
		w.prepare = func(h *Helper) {
			h.dialWith(slowly{w.servers, func() {
				if err := h.trust.Remove("home"); err != nil {
					t.Error(err)
				}
				h.TrustChanged()
				synctest.Wait() // existing relays have been checked
			}})
		}
		w.listenAll("x:1")
		w.startHelper(Config{})
		p, s, _ := w.joinSubflow()
		time.Sleep(time.Minute)
		if list := w.h.Status().Subflows; len(list) > 0 {
			t.Errorf("relayed to whom nobody trusts: %+v", list)
		}
		for _, l := range []pipe.Hop{p, s} {
			if _, err := io.ReadAll(l); err == nil {
				t.Error("it ended in order")
			}
		}
		w.stop()
	})
}

// hooked is a carrier that calls a function once, at the next write after it is armed.
type hooked struct {
	pipe.Carrier
	armed     *atomic.Bool
	meanwhile func()
}

func (h hooked) Dial(ctx context.Context, addr string) (pipe.Conn, error) {
	c, err := h.Carrier.Dial(ctx, addr)
	return hookedConn{c, h}, err
}

type hookedConn struct {
	pipe.Conn
	hooked
}

func (c hookedConn) Write(b []byte) (int, error) {
	if c.armed.CompareAndSwap(true, false) {
		c.meanwhile()
	}
	return c.Conn.Write(b)
}

// TestSubflowWhileEnding: a subflow answered after the helper has closed all others is closed too,
// and the helper ends.
func TestSubflowWhileEnding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &testWorld{t: t, pipes: inMemory(), servers: inMemory()}
		armed, ended := new(atomic.Bool), make(chan struct{})
		w.prepare = func(h *Helper) {
			h.dialWith(slowly{w.servers, func() { armed.Store(true) }}) // the answer is the next write
			h.calls.carrier = hooked{w.pipes, armed, func() {
				go func() { w.stop(); close(ended) }()
				synctest.Wait()
			}}
		}
		w.listenAll("x:1")
		w.startHelper(Config{})
		p := w.acceptWaiting()
		joined := make(chan error, 1)
		go func() {
			_, err := p.Join(t.Context(), w.server, pipe.DefaultResumeTimeout)
			joined <- err
		}()
		conn, err := w.sl.Accept()
		if err == nil {
			_, _, err = pipe.AcceptHS(t.Context(), conn)
		}
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-ended:
		case <-time.After(3 * refuseTimeout):
			t.Error("the helper does not end")
			<-ended
		}
		if err := <-joined; err != nil {
			t.Error(err)
		}
	})
}

// TestServersAreAnnounced: a primary with other servers than at pairing announces them and may reach
// them, but nothing that only this device can reach. The servers are saved, and the number of
// changes is bounded.
func TestServersAreAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorld(t, inMemory, "x:1", Config{})
		ask := func(p *pipe.Waiting, server string) wire.Code {
			t.Helper()
			_, err := p.Join(t.Context(), server, pipe.DefaultResumeTimeout)
			var r wire.Refuse
			if !errors.As(err, &r) {
				t.Errorf("%s: %v", server, err)
			}
			return r.Code
		}
		tell := func(servers ...string) *pipe.Waiting {
			p := w.acceptWaiting()
			p.SendServers(func() []string { return servers })
			return p
		}
		const other = "192.0.2.77:7600" // unreachable
		if got := ask(w.acceptWaiting(), other); got != wire.CodeForbidden {
			t.Errorf("a server that was not announced: %v", got)
		}
		if got := ask(tell(other, "127.0.0.1:22", "169.254.1.1:80"), "127.0.0.1:22"); got != wire.CodeForbidden {
			t.Errorf("the helper itself: %v", got)
		}
		if got := ask(w.acceptWaiting(), other); got != wire.CodeUnreachable {
			t.Errorf("a server that was announced: %v", got)
		}
		if p, _ := w.h.trust.LookupName("laptop"); !slices.Equal(p.Servers, []string{other}) {
			t.Errorf("written down: %v", p.Servers)
		}
		if got := ask(tell(), other); got != wire.CodeForbidden {
			t.Errorf("a server that it has no more: %v", got)
		}
		for n := 2; n < maxServerChanges; n++ {
			// the owner's own server
			if got := ask(tell(fmt.Sprintf("192.0.2.%d:1", n)), "192.0.2.9:1"); got != wire.CodeUnreachable {
				t.Errorf("announced %d times: %v", n+1, got)
			}
		}
		_, err := tell(other).Join(t.Context(), other, pipe.DefaultResumeTimeout)
		if r := (wire.Refuse{}); err == nil || errors.As(err, &r) { // else the pipe has ended
			t.Errorf("announced %d times: %v", maxServerChanges+1, err)
		}
		time.Sleep(serverChangePeriod)
		if got := ask(tell(other), other); got != wire.CodeUnreachable {
			t.Errorf("later: %v", got)
		}
		w.stop()
	})
}

// TestRevokedFirst: relays of a revoked primary end even while another primary does not read what
// is sent to it.
func TestRevokedFirst(t *testing.T) {
	w := newTestWorld(t, overTCP, "127.0.0.1:0", Config{})
	p, _, _ := w.joinSubflow()
	w.h.announcer.sending.Lock() // held as by a sender
	defer w.h.announcer.sending.Unlock()
	if err := w.h.trust.Remove("laptop"); err != nil {
		t.Fatal(err)
	}
	w.h.TrustChanged()
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, p)
		ended <- err
	}()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("it ended in order")
		}
	case <-time.After(time.Minute):
		t.Error("it goes on")
	}
}

// TestServerChangesAreCounted: each primary has a bound on changes of its servers per period, and
// repeating the stored servers does not count.
func TestServerChangesAreCounted(t *testing.T) {
	trust, err := identity.OpenTrust(filepath.Join(t.TempDir(), "trust.toml"))
	if err != nil {
		t.Fatal(err)
	}
	laptop := identity.Peer{Name: "laptop", Roles: []identity.Role{identity.RolePrimary}, Key: keys().primary.Public()}
	tablet := identity.Peer{Name: "tablet", Roles: []identity.Role{identity.RolePrimary}, Key: keys().server.Public()}
	for _, p := range []identity.Peer{laptop, tablet} {
		if err := trust.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	a := newServerAccess(trust, slog.New(slog.DiscardHandler))
	remote, now := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 5), Port: 1}, time.Now()
	announce := func(p identity.Peer, n int) error {
		return a.storeServers(p, remote, []string{fmt.Sprintf("192.0.2.%d:7600", n)}, now)
	}
	for n := range 2 * maxServerChanges {
		if err := announce(laptop, n/2); err != nil { // each twice
			t.Fatalf("change %d: %v", n/2+1, err)
		}
	}
	if err := announce(laptop, 99); !fault.Is(err, fault.Limit) || a.allowsServer(laptop.Key, "192.0.2.99:7600") {
		t.Errorf("change %d: %v", maxServerChanges+1, err)
	}
	if err := announce(tablet, 1); err != nil || !a.allowsServer(tablet.Key, "192.0.2.1:7600") {
		t.Errorf("another primary: %v", err)
	}
	now = now.Add(serverChangePeriod)
	if err := announce(laptop, 99); err != nil || !a.allowsServer(laptop.Key, "192.0.2.99:7600") {
		t.Errorf("a period later: %v", err)
	}
	if err := trust.SetPaused("laptop", true); err != nil {
		t.Fatal(err)
	}
	for server, want := range map[string]error{"192.0.2.99:7600": errPaused, "192.0.2.98:7600": errNotTrusted} {
		if got := a.checkAccess(laptop.Key, server); got != want {
			t.Errorf("paused, to %s: %v", server, got)
		}
	}
}
