package server

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"mpbond/identity"
	"mpbond/tcp"
	"mpbond/unit"
	"mpbond/wire"
)

// TestOneSourceDoesNotFillTheServer: silent connections from one address leave
// room for others.
func TestOneSourceDoesNotFillTheServer(t *testing.T) {
	s, _, _ := start(t, time.Minute)
	from := func(ip string) (net.Conn, error) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
		c, err := d.Dial("tcp", s.Addr().String())
		if err == nil {
			t.Cleanup(func() { c.Close() })
		}
		return c, err
	}
	for range maxFromOne {
		if _, err := from("127.0.0.1"); err != nil {
			t.Fatal(err)
		}
	}
	c, err := from("127.0.0.1")
	if err == nil { // the reset may be there before connect(2) has returned
		_, err = c.Read(make([]byte, 1))
	}
	if err == nil {
		t.Error("one more was served")
	}
	if c, err = from("127.0.0.2"); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	if _, err := c.Read(make([]byte, 1)); err == nil || err == io.EOF || !err.(net.Error).Timeout() {
		t.Errorf("another address: %v", err)
	}
}

// TestDatagramsBeyondTheRateAreDropped: after a burst, as many pass as the rate
// allows. Both directions have their own, and all bonds of a device share one.
func TestDatagramsBeyondTheRateAreDropped(t *testing.T) {
	s := &Server{cfg: Config{Rate: 8 * unit.Mbps}, accounts: map[identity.PublicKey]*account{}}
	v := s.accountOf(identity.PublicKey{1}).speed
	if s.accountOf(identity.PublicKey{1}).speed != v || s.accountOf(identity.PublicKey{2}).speed == v {
		t.Error("a device has not just one")
	}
	passed := 0
	for range 10_000 {
		if !v.dropsUp(1000) {
			passed++
		}
	}
	if passed < leastBurst/1000 || passed > 1000 || v.dropsDown(1000) {
		t.Errorf("%d KB passed at once", passed)
	}
	if (*speed)(nil).dropsUp(1 << 30) {
		t.Error("no limit drops something")
	}
}

// TestStreamsKeepToTheRate: two streams of a device, each way.
func TestStreamsKeepToTheRate(t *testing.T) {
	const rate, each = 40 * unit.Mbps, 500_000
	s := &Server{cfg: Config{Rate: rate}, accounts: map[identity.PublicKey]*account{}}
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
		c := s.accountOf(identity.PublicKey{1}).speed.carry(t.Context(), d)
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

// TestJoinsOfOneDevice: a device that is trusted may not begin subflows without
// end either, from wherever; another one is not kept out by that.
func TestJoinsOfOneDevice(t *testing.T) {
	s, primary, _ := start(t, time.Minute)
	other, err := identity.Generate()
	if err == nil {
		err = s.trust.Add(identity.Peer{Name: "desktop", Roles: []identity.Role{identity.RolePrimary}, Key: other.Public()})
	}
	if err != nil {
		t.Fatal(err)
	}
	join := func(k *identity.Key) error {
		_, err := s.join(t.Context(), bondKey{k.Public(), wire.BondID{1}}, wire.Join{})
		return err
	}
	now := time.Now()
	for range maxPerMinute {
		s.joins.Take(primary.Public(), now.Add(time.Hour)) // a slow machine does not come to the end of that minute
	}
	var r wire.Refuse
	if err := join(primary); !errors.As(err, &r) || r.Code != wire.CodeLimit || !strings.Contains(r.Text, "within a minute") {
		t.Error(err)
	}
	if err := join(other); err != nil {
		t.Error(err)
	}
	s.joins = tcp.Tries[identity.PublicKey]{PerMinute: maxPerMinute} // a minute has passed
	if err := join(primary); err != nil {
		t.Error("a minute later:", err)
	}
}
