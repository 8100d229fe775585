// SPDX-License-Identifier: Apache-2.0

package pairing

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/link/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testDevice is a device that pairs.
type testDevice struct {
	Self
	t testing.TB
	a *Acceptor
	// fleetError is why it cannot join a fleet.
	fleetError error
}

func newTestDevice(t testing.TB, name string, roles wire.PairRoles) *testDevice {
	t.Helper()
	key, err := identity.Generate()
	if err != nil {
		t.Fatal(err)
	}
	trust, err := identity.OpenTrust(filepath.Join(t.TempDir(), "trust.toml"))
	if err != nil {
		t.Fatal(err)
	}
	about := wire.PairIdentity{Roles: roles, Name: name}
	if roles&wire.PairPrimary != 0 {
		about.Port = 7602
	}
	d := &testDevice{Self: Self{Key: key, Trust: trust, About: func() wire.PairIdentity { return about }}, t: t}
	d.a = NewAcceptor(d.Self, slog.New(slog.DiscardHandler))
	t.Cleanup(d.a.Close)
	return d
}

// connFrom is a connection with a given remote address.
type connFrom struct {
	net.Conn
	addr net.Addr
}

func (f connFrom) RemoteAddr() net.Addr { return f.addr }

// connectFrom connects to d from an address. d serves the connection.
func (d *testDevice) connectFrom(ip string) net.Conn {
	near, far := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.a.ServeConn(context.Background(), connFrom{far,
			net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(ip), 40000))})
	}()
	d.t.Cleanup(func() { near.Close(); <-done })
	return near
}

// pairWithCaller makes d call other.
func (d *testDevice) pairWith(other *testDevice, ip, secret string) (identity.Peer, error) {
	m, err := Call(d.t.Context(), other.connectFrom(ip), "192.0.2.7:7600", d.Self, secret)
	if err != nil {
		return identity.Peer{}, err
	}
	return m.Finish(d.t.Context())
}

// callAsStranger makes d call a device with any key, and runs do on the connection.
func (d *testDevice) callAsStranger(key *identity.Key, secret string, do func(*channel)) error {
	near, far := net.Pipe()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		defer far.Close()
		_, err := readPairFrame(far)
		if err != nil {
			d.t.Error(err)
			return
		}
		c, err := openPairingChannel(d.t.Context(), tls.Server(far, key.ServerConfig(wire.PairALPN,
			func(identity.PublicKey) bool { return true })))
		if err != nil {
			d.t.Error(err)
			return
		}
		do(c)
	})
	_, err := Call(d.t.Context(), near, "x:1", d.Self, secret)
	return err
}

// knownPeers returns the trust file of d as text.
func (d *testDevice) knownPeers() string {
	var list []string
	for _, p := range d.Trust.Peers() {
		list = append(list, fmt.Sprint(p.Name, " ", p.Roles, " ", p.Key.ID(), " ", p.Addresses, " ", p.Servers))
	}
	return strings.Join(list, "; ")
}

func newCode(d *testDevice) string {
	inv, _ := d.a.NewCode()
	return inv.Secret
}

func TestPairing(t *testing.T) {
	server, helper := newTestDevice(t, "home", wire.PairServer), newTestDevice(t, "phone", wire.PairHelper)
	laptop := newTestDevice(t, "laptop", wire.PairPrimary)
	p, err := laptop.pairWith(server, "10.0.0.1", newCode(server))
	if err != nil || p.Name != "home" {
		t.Fatalf("%+v, %v", p, err)
	}
	if inv := server.a.Invitation(); inv.State != Paired || inv.Peer.Name != "laptop" {
		t.Errorf("%+v", inv)
	}
	if _, err := laptop.pairWith(helper, "10.0.0.9", newCode(helper)); err != nil {
		t.Fatal(err)
	}
	for d, want := range map[*testDevice]string{
		server: fmt.Sprintf("laptop [primary] %v [] []", laptop.Key.ID()),
		laptop: fmt.Sprintf("home [server] %v [192.0.2.7:7600] []; phone [helper] %v [192.0.2.7:7600] []",
			server.Key.ID(), helper.Key.ID()),
		helper: fmt.Sprintf("laptop [primary] %v [10.0.0.9:7602] [192.0.2.7:7600]", laptop.Key.ID()),
	} {
		if got := d.knownPeers(); got != want {
			t.Errorf("%s knows\n%s, want\n%s", d.About().Name, got, want)
		}
	}
	if _, err := laptop.pairWith(helper, "10.0.0.9", helper.a.Invitation().Secret); !fault.Is(err,
		fault.UnknownDevice) {
		t.Errorf("a code was used twice: %v", err)
	}
	// Pair again after the address has changed: no duplicates.
	if _, err := laptop.pairWith(helper, "10.0.0.10", newCode(helper)); err != nil {
		t.Fatal(err)
	}
	if got := helper.Trust.ByRole(identity.RolePrimary); len(got) != 1 ||
		fmt.Sprint(got[0].Addresses) != "[10.0.0.10:7602 10.0.0.9:7602]" {
		t.Errorf("%+v", got)
	}
}

// trustServer adds a server with the given addresses to the trust file of d.
func (d *testDevice) trustServer(name string, addrs ...string) {
	d.t.Helper()
	key, err := identity.Generate()
	if err == nil {
		err = d.Trust.Add(identity.Peer{Name: name, Roles: []identity.Role{identity.RoleServer},
			Key: key.Public(), Addresses: addrs})
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// TestDualDevicesPair checks that both devices keep their own server, and let the other one carry
// subflows to it.
func TestDualDevicesPair(t *testing.T) {
	const both = wire.PairPrimary | wire.PairHelper
	anna, bob := newTestDevice(t, "anna", both), newTestDevice(t, "bob", both)
	anna.trustServer("annas", "192.0.2.1:7600")
	bob.trustServer("bobs", "192.0.2.2:7600", "bob.example.org:7600")
	if _, err := anna.pairWith(bob, "10.0.0.1", newCode(bob)); err != nil {
		t.Fatal(err)
	}
	if p, _ := anna.Trust.LookupName("bob"); !p.HasRole(identity.RoleHelper) || !p.HasRole(identity.RolePrimary) {
		t.Errorf("anna knows %s", anna.knownPeers())
	}
	if p, _ := anna.Trust.LookupName("bob"); fmt.Sprint(p.Servers) != "[192.0.2.2:7600 bob.example.org:7600]" {
		t.Errorf("anna did not get bob's server: %s", anna.knownPeers())
	}
	if p, _ := bob.Trust.LookupName("anna"); fmt.Sprint(p.Addresses, p.Servers) != "[10.0.0.1:7602] [192.0.2.1:7600]" {
		t.Errorf("bob knows %s", bob.knownPeers())
	}
	for _, d := range []*testDevice{anna, bob} { // without naming its own server
		if list := d.Trust.ByRole(identity.RoleServer); len(list) != 1 {
			t.Errorf("%s has the servers %v", d.About().Name, list)
		}
	}
}

// TestServersOfPeer checks that a peer cannot make a helper call addresses that only the helper can
// reach. Loopback is allowed if both run on one machine.
func TestServersOfPeer(t *testing.T) {
	helper, laptop := newTestDevice(t, "phone", wire.PairHelper), newTestDevice(t, "laptop", wire.PairPrimary)
	laptop.trustServer("home", "127.0.0.1:22", "[::1]:22", "[::ffff:127.0.0.2]:22", "LocalHost:22",
		"0.0.0.0:22", "[::]:22", "169.254.169.254:80", "[fe80::1%eth0]:80",
		"192.168.1.2:7600", "vps.example.org:7600")
	for ip, want := range map[string]string{
		"10.0.0.1":  "[192.168.1.2:7600 vps.example.org:7600]",
		"127.0.0.1": "[127.0.0.1:22 [::1]:22 [::ffff:127.0.0.2]:22 LocalHost:22 192.168.1.2:7600 vps.example.org:7600]",
	} {
		if _, err := laptop.pairWith(helper, ip, newCode(helper)); err != nil {
			t.Fatal(err)
		}
		if p, _ := helper.Trust.LookupName("laptop"); fmt.Sprint(p.Servers) != want {
			t.Errorf("from %s: %v, want %s", ip, p.Servers, want)
		}
	}
}

// TestIncompatibleRoles checks that nothing is stored and the code remains valid.
func TestIncompatibleRoles(t *testing.T) {
	const server, helper, primary = wire.PairServer, wire.PairHelper, wire.PairPrimary
	for _, pair := range [][2]wire.PairRoles{{helper, helper}, {primary, primary}, {server, server}, {server, helper}} {
		a, b := newTestDevice(t, "a", pair[0]), newTestDevice(t, "b", pair[1])
		if _, err := a.pairWith(b, "10.0.0.1", newCode(b)); !fault.Is(err, fault.Usage) {
			t.Errorf("%v: %v", pair, err)
		}
		if a.knownPeers()+b.knownPeers() != "" {
			t.Error(pair, a.knownPeers(), b.knownPeers())
		}
	}
	for own, want := range map[wire.PairRoles]wire.PairRoles{server: primary, helper: primary,
		primary: server | helper, primary | helper: server | helper | primary} {
		if got := rolesOfUse(own); got != want {
			t.Errorf("%v wants %v, not %v", own, got, want)
		}
	}
	laptop := newTestDevice(t, "laptop", primary)
	laptop.trustServer("home", "192.0.2.1:7600")
	for theirs, want := range map[wire.PairRoles]int{server: 0, primary: 0, helper: 1, primary | helper: 1} {
		if got := laptop.identityFor(theirs).Servers; len(got) != want {
			t.Errorf("%v get %v", theirs, got)
		}
	}
	b := newTestDevice(t, "b", helper)
	newCode(b)
	if _, err := b.pairWith(b, "10.0.0.1", b.a.Invitation().Secret); !fault.Is(err, fault.Usage) {
		t.Errorf("with itself: %v", err)
	}
}

// handshakeWith calls other with a key and completes the TLS handshake.
func (d *testDevice) handshakeWith(other *testDevice, ip string, key *identity.Key) (*channel, net.Conn) {
	d.t.Helper()
	conn := other.connectFrom(ip)
	if _, err := conn.Write(wire.Append(nil, wire.Pair{Version: wire.Version})); err != nil {
		d.t.Fatal(err)
	}
	c, err := openPairingChannel(d.t.Context(), tls.Client(conn, key.UnverifiedConfig(wire.PairALPN)))
	if err != nil {
		d.t.Fatal(err)
	}
	return c, conn
}

func TestCodesExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, laptop := newTestDevice(t, "home", wire.PairServer), newTestDevice(t, "laptop", wire.PairPrimary)
		inv, ended := server.a.NewCode()
		time.Sleep(Lifetime - time.Second)
		if got := server.a.Invitation(); got.State != Open || got.Until != inv.Until {
			t.Fatalf("%+v", got)
		}
		time.Sleep(2 * time.Second)
		<-ended
		if _, err := laptop.pairWith(server, "10.0.0.1", inv.Secret); !fault.Is(err, fault.UnknownDevice) {
			t.Errorf("%v", err)
		}
		if got := server.a.Invitation(); got.State != Expired {
			t.Errorf("%+v", got)
		}
		// The timer of a device that slept is late.
		late := newCode(server)
		server.a.invitation.Until = time.Now().Round(0).Add(-time.Minute)
		if _, err := laptop.pairWith(server, "10.0.0.1", late); err == nil || server.a.Invitation().State != Expired {
			t.Errorf("after a sleep: %v, %v", err, server.a.Invitation().State)
		}
		// A new code replaces the old one.
		first := newCode(server)
		second := newCode(server)
		if _, err := laptop.pairWith(server, "10.0.0.1", first); err == nil {
			t.Error("a code that was replaced holds")
		}
		if _, err := laptop.pairWith(server, "10.0.0.1", second); err != nil {
			t.Error(err)
		}
		for what, f := range map[string]func(){"another": func() { server.a.NewCode() },
			"the program": server.a.Close} {
			inv, ended := server.a.NewCode()
			f()
			select {
			case <-ended:
			default:
				t.Errorf("%s ends without a notice", what)
			}
			if now := server.a.Invitation(); what == "the program" &&
				(now.Secret != inv.Secret || now.State != Replaced) {
				t.Errorf("%s ends: %+v", what, now)
			}
		}
	})
}

// TestSilentCallersAreCutOff checks that no wait exceeds its documented limit.
func TestSilentCallersAreCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, laptop := newTestDevice(t, "home", wire.PairServer), newTestDevice(t, "laptop", wire.PairPrimary)
		secret := newCode(server)
		began := time.Now()
		conn := server.connectFrom("10.0.0.1")
		if _, err := conn.Read(make([]byte, 1)); err != io.EOF || time.Since(began) != stepTimeout {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		began = time.Now()
		m, err := Call(t.Context(), server.connectFrom("10.0.0.1"), "x:1", laptop.Self, secret)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		if _, err := laptop.pairWith(server, "10.0.0.2", secret); !fault.Is(err, fault.UnknownDevice) &&
			!fault.Is(err, fault.Limit) {
			t.Errorf("two at once: %v", err)
		}
		if _, err := m.channel.tls.Read(make([]byte, 1)); err == nil || time.Since(began) < identityTimeout {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		synctest.Wait()
		if _, err := laptop.pairWith(server, "10.0.0.2", secret); err != nil {
			t.Errorf("the code does not hold on: %v", err)
		}
	})
}

// TestManInTheMiddle checks that both devices detect an attacker who relays between two
// connections.
func TestManInTheMiddle(t *testing.T) {
	server, laptop := newTestDevice(t, "home", wire.PairServer), newTestDevice(t, "laptop", wire.PairPrimary)
	secret := newCode(server)
	evil, err := identity.Generate()
	if err != nil {
		t.Fatal(err)
	}
	up, _ := laptop.handshakeWith(server, "10.0.0.66", evil)
	err = laptop.callAsStranger(evil, secret, func(down *channel) {
		go func() { _, _ = io.Copy(down.tls, up.tls) }()
		_, _ = io.Copy(up.tls, down.tls)
		up.tls.NetConn().Close()
	})
	if err != errWrongCode {
		t.Errorf("%v", err)
	}
	if server.knownPeers()+laptop.knownPeers() != "" {
		t.Error(server.knownPeers(), laptop.knownPeers())
	}
}

// TestDowngrade checks that another version, an older TLS and another protocol are refused without
// using a try.
func TestDowngrade(t *testing.T) {
	server, laptop := newTestDevice(t, "home", wire.PairServer), newTestDevice(t, "laptop", wire.PairPrimary)
	secret := newCode(server)
	for range 2 * maxTriesPerSource {
		conn := server.connectFrom("10.0.0.1")
		if _, err := conn.Write(wire.Append(nil, wire.Pair{Version: wire.Version - 1})); err != nil {
			t.Fatal(err)
		}
		c, err := openPairingChannel(t.Context(), tls.Client(conn, laptop.Key.UnverifiedConfig(wire.PairALPN)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.expectPairingFrame(wire.TypePairStep); !fault.Is(err, fault.Protocol) ||
			!strings.Contains(err.Error(), "version") {
			t.Errorf("another version: %v", err)
		}
		conn.Close()
	}
	for name, change := range map[string]func(*tls.Config){
		"TLS 1.2":       func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS12, tls.VersionTLS12 },
		"pipe protocol": func(c *tls.Config) { c.NextProtos, c.VerifyConnection = []string{wire.PipeALPN}, nil },
		"no protocol":   func(c *tls.Config) { c.NextProtos, c.VerifyConnection = nil, nil },
		"no key":        func(c *tls.Config) { c.Certificates = nil },
	} {
		conn := server.connectFrom("10.0.0.1")
		if _, err := conn.Write(wire.Append(nil, wire.Pair{Version: wire.Version})); err != nil {
			t.Fatal(err)
		}
		cfg := laptop.Key.UnverifiedConfig(wire.PairALPN)
		change(cfg)
		c := tls.Client(conn, cfg)
		err := c.HandshakeContext(t.Context())
		if err == nil { // the client's handshake ends first
			_, err = c.Read(make([]byte, 1))
		}
		if err == nil || err == io.EOF {
			t.Errorf("%s: %v", name, err)
		}
		conn.Close()
	}
	if _, err := laptop.pairWith(server, "10.0.0.1", secret); err != nil {
		t.Errorf("tries were used up: %v", err)
	}
}

// TestTruncation cuts the caller's messages at each byte. Nothing may be stored unless all of them
// arrived.
func TestTruncation(t *testing.T) {
	server, laptop := newTestDevice(t, "home", wire.PairServer), newTestDevice(t, "laptop", wire.PairPrimary)
	about := wire.Append(nil, laptop.About())
	for cut := 0; ; cut += 7 {
		secret := newCode(server)
		c, conn := laptop.handshakeWith(server, "10.0.0.1", laptop.Key)
		left := cut
		send := func(b []byte) bool {
			n := min(left, len(b))
			left -= n
			_, err := c.tls.Write(b[:n])
			if err != nil || n < len(b) {
				conn.Close()
				return false
			}
			return true
		}
		whole := func() bool {
			proof, ke1, err := beginProof(newProofContext(laptop.Key.Public(), c.peer, c.binding), secret)
			if err != nil || !send(wire.Append(nil, wire.PairStep{Number: 1, Bytes: ke1})) {
				return false
			}
			ke2, err := c.readPairStep(2)
			if err != nil {
				t.Fatal(err)
			}
			ke3, err := proof.finishProof(ke2)
			if err != nil || !send(wire.Append(nil, wire.PairStep{Number: 3, Bytes: ke3})) {
				return false
			}
			if _, err := c.readIdentity(); err != nil {
				t.Fatal(err)
			}
			if !send(about) {
				return false
			}
			_, err = c.expectPairingFrame(wire.TypePairDone)
			return err == nil
		}()
		if whole {
			break
		}
		if cut > 1000 || server.knownPeers() != "" {
			t.Fatalf("cut at %d: %q", cut, server.knownPeers())
		}
	}
	if server.knownPeers() == "" {
		t.Error("not paired when nothing was cut")
	}
}

// TestRefusalsArePlain checks that an unknown device's text is made printable before it is shown.
func TestRefusalsArePlain(t *testing.T) {
	laptop := newTestDevice(t, "laptop", wire.PairPrimary)
	evil, err := identity.Generate()
	if err != nil {
		t.Fatal(err)
	}
	err = laptop.callAsStranger(evil, "K7QF3M2A", func(c *channel) {
		if _, err := c.readPairStep(1); err != nil {
			t.Error(err)
		}
		c.sendPairingRefusal(wire.CodeLimit, "\x1b[2Jall is well\r\n\u202e")
	})
	if err == nil || !strings.Contains(err.Error(), "?[2Jall is well???") {
		t.Errorf("%q", err)
	}
}

func TestGarbage(t *testing.T) {
	server := newTestDevice(t, "home", wire.PairServer)
	newCode(server)
	for _, in := range [][]byte{[]byte("GET / HTTP/1.1\r\n\r\n"), {0x60, 0, 0, 200}, {0x60, 0xff, 0xff, 0xff},
		{0x16, 3, 1, 0, 5},
		append([]byte{0x60, 0, 0, 7, 'm', 'p', 'b', 'i', 'n', 'd'}, wire.Version),
		append([]byte{0x60, 0, 0, 8, 'm', 'p', 'b', 'o', 'n', 'd'}, wire.Version, 0)} {
		conn := server.connectFrom("10.0.0.1")
		go func() { _, _ = conn.Write(in); conn.Close() }()
		_, _ = io.Copy(io.Discard, conn)
	}
	if inv := server.a.Invitation(); inv.State != Open {
		t.Errorf("%+v", inv)
	}
}
