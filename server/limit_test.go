package server

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"mpbond/identity"
	"mpbond/unit"
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
	s := &Server{cfg: Config{Rate: 8 * unit.Mbps}, speeds: map[identity.PublicKey]*speed{}}
	v := s.speedOf(identity.PublicKey{1})
	if s.speedOf(identity.PublicKey{1}) != v || s.speedOf(identity.PublicKey{2}) == v {
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
	s := &Server{cfg: Config{Rate: rate}, speeds: map[identity.PublicKey]*speed{}}
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
		c := s.speedOf(identity.PublicKey{1}).carry(t.Context(), d)
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
