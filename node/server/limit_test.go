// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/identity"
	"mpbond/base/unit"
	"mpbond/core/bond"
	"mpbond/link/subflow"
	"mpbond/link/tcp"
	"mpbond/link/wire"
	"mpbond/node/endpoint"
)

// TestOneSourceDoesNotFillTheServer: silent connections from one address leave room for others.
func TestOneSourceDoesNotFillTheServer(t *testing.T) {
	s, _, _ := startServer(t, time.Minute)
	from := func(ip string) (net.Conn, error) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
		c, err := d.Dial("tcp", s.Addr().String())
		if err == nil {
			t.Cleanup(func() { c.Close() })
		}
		return c, err
	}
	var first net.Conn
	for range maxPerSource {
		c, err := from("127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		first = cmp.Or(first, c)
	}
	waits := func(c net.Conn) bool {
		_ = c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		_, err := c.Read(make([]byte, 1))
		return errors.Is(err, os.ErrDeadlineExceeded)
	}
	for _, ip := range []string{"127.0.0.1", "127.0.0.2"} {
		c, err := from(ip)
		if err != nil {
			t.Fatal(err)
		}
		if !waits(c) {
			t.Errorf("one more, of %s, is not served", ip)
		}
	}
	_ = first.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := first.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the first of %d of one address: %v", maxPerSource+1, err)
	}
}

// TestDatagramsBeyondTheRateAreDropped: after a burst, as many pass as the rate allows. Each
// direction has its own limit, and all bonds of a device share it.
func TestDatagramsBeyondTheRateAreDropped(t *testing.T) {
	s := newAccountTable(endpoint.NewMemory(0), 8*unit.Mbps)
	v := s.accountOfDevice(identity.PublicKey{1}).rate
	if s.accountOfDevice(identity.PublicKey{1}).rate != v || s.accountOfDevice(identity.PublicKey{2}).rate == v {
		t.Error("a device has not just one")
	}
	passed := 0
	for range 10_000 {
		if !v.exceedsUp(1000) {
			passed++
		}
	}
	if passed < minBurst/1000 || passed > 1000 || v.exceedsDown(1000) {
		t.Errorf("%d KB passed at once", passed)
	}
	if (*deviceRate)(nil).exceedsUp(1 << 30) {
		t.Error("no limit drops something")
	}
}

// TestStreamsKeepToTheRate: two streams of a device, in each direction.
func TestStreamsKeepToTheRate(t *testing.T) {
	const rate, each = 40 * unit.Mbps, 500_000
	s := newAccountTable(endpoint.NewMemory(0), rate)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	began := time.Now()
	var all sync.WaitGroup
	for range 2 {
		d, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		web, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		c := s.accountOfDevice(identity.PublicKey{1}).rate.limitConnRate(t.Context(), d)
		all.Go(func() { _, _ = web.Write(make([]byte, each)) })
		all.Go(func() { _, _ = io.CopyN(io.Discard, web, each) })
		all.Go(func() {
			if n, err := io.CopyN(io.Discard, c, each); err != nil {
				t.Error(n, err)
			}
		})
		all.Go(func() {
			parts := net.Buffers{make([]byte, each/2), make([]byte, each/2)}
			if n, err := parts.WriteTo(c); err != nil {
				t.Error(n, err)
			}
		})
		t.Cleanup(func() { d.Close(); web.Close() })
	}
	all.Wait()
	least := unit.Rate(rate).Time(2*each - 250_000) // beyond a burst
	if took := time.Since(began); took < least || took > 3*least+20*time.Second {
		t.Errorf("took %v, the limit is %v", took, least)
	}
}

// TestJoinsOfOneDevice: the rate of new subflows of a trusted device is limited, from any address,
// without an effect on other devices.
func TestJoinsOfOneDevice(t *testing.T) {
	s, primary, _ := startServer(t, time.Minute)
	other, err := identity.Generate()
	if err == nil {
		err = s.trustFile().Add(
			identity.Peer{Name: "desktop", Roles: []identity.Role{identity.RolePrimary}, Key: other.Public()},
		)
	}
	if err != nil {
		t.Fatal(err)
	}
	join := func(k *identity.Key) error {
		_, err := s.bondForSubflow(t.Context(), bondKey{k.Public(), wire.BondID{1}}, wire.Join{})
		return err
	}
	now := time.Now()
	for range maxPerMinute {
		// a slow machine does not reach the end of that minute
		s.accounts.admitJoin(primary.Public(), now.Add(time.Hour))
	}
	var r wire.Refuse
	if err := join(primary); !errors.As(err, &r) || r.Code != wire.CodeLimit ||
		!strings.Contains(r.Text, "within a minute") {
		t.Error(err)
	}
	if err := join(other); err != nil {
		t.Error(err)
	}
	s.accounts.joins = tcp.RateLimiter[identity.PublicKey]{PerMinute: maxPerMinute} // a minute has passed
	if err := join(primary); err != nil {
		t.Error("a minute later:", err)
	}
}

// bondWith returns a device's end of a bond with the server and its one subflow.
func bondWith(t *testing.T, s *Server, device *identity.Key, id byte) (*endpoint.Endpoint, *subflow.Subflow) {
	t.Helper()
	c, err := tcp.Dial(t.Context(), s.Addr().String(), tcp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	j := wire.Join{Version: wire.Version, Bond: wire.BondID{id}, Subflow: 1, Device: "test"}
	sf, _, err := subflow.Join(t.Context(), c, device.ClientConfig(s.handshakes.key.Public(), wire.ALPN), j)
	if err != nil {
		t.Fatal(err)
	}
	e := endpoint.New(endpoint.Config{Bond: bond.Config{OpensStreams: true}})
	if err := e.Attach(sf); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		e.Close(now)
	})
	return e, sf
}

// TestLostBondsMakeRoom: a device that was switched off and returns with a new bond need not wait
// until the old bond and its streams are given up; connected bonds are not ended.
func TestLostBondsMakeRoom(t *testing.T) {
	const most = 3
	cfg := Default
	cfg.MaxStreams, cfg.Allow = most, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	s, primary, _ := startServerWith(t, time.Minute, cfg)
	web, err := net.Listen("tcp", "127.0.0.1:0") // whose queue takes all
	if err != nil {
		t.Fatal(err)
	}
	defer web.Close()
	open := func(e *endpoint.Endpoint) error {
		t.Helper()
		c, err := e.Dial(web.Addr().String(), wire.ModeBond, 0)
		if err != nil {
			t.Fatal(err)
		}
		return c.WaitOpen(t.Context())
	}
	refused := func(err error) bool {
		var r wire.Reset
		return errors.As(err, &r) && r.Code == wire.CodeLimit
	}
	old, cut := bondWith(t, s, primary, 1)
	for range most {
		if err := open(old); err != nil {
			t.Fatal(err)
		}
	}
	again, _ := bondWith(t, s, primary, 2)
	if err := open(again); !refused(err) {
		t.Errorf("beside a bond that is connected: %v", err)
	}
	cut.Close()
	for err = open(again); refused(err); err = open(again) { // until the server knows
		if t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
	for n := 1; n < most && err == nil; n++ {
		err = open(again)
	}
	if err != nil {
		t.Fatal(err)
	}
	if list := s.Status(false); len(list) != 1 || list[0].ID != (wire.BondID{2}).String() {
		t.Errorf("bonds: %+v", list)
	}
	if err := open(again); !refused(err) {
		t.Errorf("one too many: %v", err)
	}
}

// TestPlacesOfLostBonds: the bond that has been lost for longest makes room, among those with the
// needed slots, and no more bonds than necessary; slots that it frees later count once.
func TestPlacesOfLostBonds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, primary, _ := newServer(t, Default)
		defer s.ln.Close()
		defer s.wg.Wait()
		const most = 10
		var bonds []*session
		for id := range byte(4) {
			b, err := s.bondForSubflow(t.Context(), bondKey{primary.Public(), wire.BondID{id}}, wire.Join{})
			if err != nil {
				t.Fatal(err)
			}
			bonds = append(bonds, b)
			time.Sleep(time.Second)
		}
		time.Sleep(subflow.HandshakeTimeout) // the bonds are no longer joining
		fill := func(b *session, k slotKind, n int) {
			t.Helper()
			for range n {
				if !b.takeSlot(k, most) {
					t.Fatal("no place")
				}
			}
		}
		there := func(want ...*session) {
			t.Helper()
			s.sessions.mu.Lock()
			defer s.sessions.mu.Unlock()
			for i, b := range want {
				if s.sessions.bonds[b.key] != b {
					t.Errorf("bond %d has ended", i)
				}
			}
			if len(s.sessions.bonds) != len(want) {
				t.Errorf("%d bonds are there, want %d", len(s.sessions.bonds), len(want))
			}
		}
		fill(bonds[0], streamSlots, most)
		fill(bonds[1], flowSlots, 6)
		fill(bonds[2], flowSlots, 4)
		now := bonds[3]
		if !s.sessions.admitSlot(now, flowSlots, most) {
			t.Error("no place for a flow")
		}
		there(bonds[0], bonds[2], now)
		if own, all := now.countSlots(flowSlots); own != 1 || all != 5 {
			t.Errorf("%d of %d", own, all)
		}
		for range 6 {
			bonds[1].giveSlot(flowSlots)
		}
		if _, all := now.countSlots(flowSlots); all != 5 {
			t.Errorf("after the end of what made room %d are taken", all)
		}
		if bonds[1].takeSlot(flowSlots, most) {
			t.Error("a bond that made room has got a place")
		}
		fill(now, flowSlots, 5)
		if !s.sessions.admitSlot(now, flowSlots, most) || s.sessions.admitSlot(now, flowSlots, 7) {
			t.Error("the second bond, and its own place, made no room, or more than there is")
		}
		there(bonds[0], now)
	})
}

// TestCrashedPrimaryIsLetIn: each start of a primary makes a bond. After any number of crashes the
// lost bonds make room, the longest lost first.
func TestCrashedPrimaryIsLetIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, primary, _ := newServer(t, Default)
		defer s.ln.Close()
		defer s.wg.Wait()
		for id := range byte(3 * Default.MaxBonds) {
			if _, err := s.bondForSubflow(t.Context(), bondKey{primary.Public(), wire.BondID{id}},
				wire.Join{}); err != nil {
				t.Fatalf("start %d: %v", id, err)
			}
			s.sessions.mu.Lock()
			_, first := s.sessions.bonds[bondKey{primary.Public(), wire.BondID{id - byte(Default.MaxBonds) + 1}}]
			if n := len(s.sessions.bonds); n > Default.MaxBonds || int(id) >= Default.MaxBonds && !first {
				t.Errorf("start %d: %d bonds; the oldest that has a place is there: %v", id, n, first)
			}
			s.sessions.mu.Unlock()
			time.Sleep(1700 * time.Millisecond)
		}
	})
}

// TestJoiningBondIsKept: a bond whose first subflow is joining makes no room for another one of its
// device, until the time for handshakes has passed.
func TestJoiningBondIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, primary, _ := newServer(t, Default)
		defer s.ln.Close()
		defer s.wg.Wait()
		join := func(id byte) error {
			_, err := s.bondForSubflow(t.Context(), bondKey{primary.Public(), wire.BondID{id}}, wire.Join{})
			return err
		}
		for id := range byte(Default.MaxBonds) {
			if err := join(id); err != nil {
				t.Fatalf("start %d: %v", id, err)
			}
		}
		if r, ok := join(100).(wire.Refuse); !ok || r.Code != wire.CodeLimit {
			t.Errorf("one more while all are joining: %v", r)
		}
		time.Sleep(subflow.HandshakeTimeout)
		if err := join(101); err != nil {
			t.Errorf("after the time for handshakes: %v", err)
		}
	})
}

// TestUnknownDevicesDoNotFillTheLog: whatever unknown devices send, the log has one line a minute
// for each kind of failure.
func TestUnknownDevicesDoNotFillTheLog(t *testing.T) {
	s, _, stop := startServer(t, time.Minute)
	for i := range 60 {
		c := dialServer(t, s)
		_, _ = io.WriteString(c, []string{"GET / HTTP/1.0\r\n\r\n", "\x16\x03\x01\x00\x05hello", ""}[i%3])
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, c)
	}
	if log := stop(); strings.Count(log, "\n") > 5 || !strings.Contains(log, "connection refused") {
		t.Errorf("log:\n%s", log)
	}
}

// TestAccounts: a device has one account, and only its own new subflows count.
func TestAccounts(t *testing.T) {
	table, now := newAccountTable(endpoint.NewMemory(0), 0), time.Unix(1e9, 0)
	a, b := identity.PublicKey{1}, identity.PublicKey{2}
	first := table.accountOfDevice(a)
	if first.rate != nil || table.accountOfDevice(b) == first || table.accountOfDevice(a) != first {
		t.Error("a device has not just one account, or a speed that nobody set")
	}
	for range maxPerMinute {
		if !table.admitJoin(a, now) {
			t.Fatal("refused too soon")
		}
	}
	if table.admitJoin(a, now) || !table.admitJoin(b, now) || !table.admitJoin(a, now.Add(time.Minute)) {
		t.Error("the bound is not each device's own, or does not end")
	}
}
