// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"errors"
	"net"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/base/waittest"
)

// TestMove changes the client's socket repeatedly during a transfer. Each old one is closed.
func TestMove(t *testing.T) {
	c, s := connectPair(t, Options{})
	first, _ := c.currentPath()
	done := make(chan bool)
	go func() {
		exchangeStreams(t, c, s, 1<<20)
		close(done)
	}()
	for range 2 {
		before := c.LocalAddr().String()
		if err := c.Move(); err != nil {
			t.Fatal(err)
		}
		if c.LocalAddr().String() == before {
			t.Error("it is where it was: ", before)
		}
	}
	<-done
	waittest.Until(t, "the server follows", func() bool { return s.RemoteAddr().String() == c.LocalAddr().String() })
	c.mu.Lock()
	n := len(c.route.endpoints)
	c.mu.Unlock()
	if n != 1 {
		t.Errorf("%d endpoints know of it", n)
	}
	if _, err := first.socket.Write(nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the first socket is open: %v", err)
	}
	if err := s.Move(); err == nil {
		t.Error("the end that was dialled can move")
	}
	c.Close()
	if err := c.Move(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed one: %v", err)
	}
}

// TestPeek: Read returns the bytes that Peek has returned.
func TestPeek(t *testing.T) {
	c, s := connectPair(t, Options{})
	c.Write([]byte("ab"))
	if b, err := s.Peek(1); string(b) != "a" || err != nil {
		t.Fatalf("%q, %v", b, err)
	}
	if b, err := s.Peek(2); string(b) != "ab" || err != nil {
		t.Fatalf("%q, %v", b, err)
	}
	b := make([]byte, 3)
	if n, err := s.Read(b); string(b[:n]) != "ab" || err != nil {
		t.Fatalf("%q, %v", b[:n], err)
	}
	c.Write([]byte("cd"))
	c.CloseWrite()
	if b, err := s.Peek(3); err == nil {
		t.Errorf("%q, more than there is", b)
	}
	if n, err := s.Read(b); string(b[:n]) != "cd" || err != nil {
		t.Errorf("%q, %v", b[:n], err)
	}
}

// TestKeepAlive: an idle connection sends PING at the configured interval, and ends after three
// intervals without the peer.
func TestKeepAlive(t *testing.T) {
	const idle = 110 * time.Second
	w := newWorld(t, testPath{delay: 10 * time.Millisecond, mtu: minPayload}, 1)
	for _, e := range w.engines {
		e.liveness.keepAliveInterval = idle
		e.mtu.fixed = true
	}
	w.transfer(1000, 0)
	gone := false
	w.drop = func(int, flight) bool { return gone }
	began, before := w.now, w.engines[0].counts.packets+w.engines[1].counts.packets
	for w.now < began+10*idle {
		w.step()
	}
	if n := w.engines[0].counts.packets + w.engines[1].counts.packets - before; n < 10 || n > 50 {
		t.Errorf("%d packets in ten times the time", n)
	}
	gone = true
	for w.engines[0].closing.err == nil && w.step() {
	}
	if took := w.now - w.engines[0].liveness.lastReceived; took < 3*idle || took > 3*idle+time.Second {
		t.Errorf("given up after %v", took)
	}
}

// TestPaced: the rate stays below Pace's limit until the limit is removed.
func TestPaced(t *testing.T) {
	const n = 2_000_000
	takes := func(pace unit.Rate) time.Duration {
		w := newWorld(t, testPath{delay: 10 * time.Millisecond, mtu: 1472, rate: 50 * unit.Mbps,
			queue: 100 * time.Millisecond}, 1)
		w.engines[0].pacer.maxRate = pace
		return w.transfer(n, 0)
	}
	least := (4 * unit.Mbps).Time(n)
	if took := takes(4 * unit.Mbps); took < least || took > least*12/10 {
		t.Errorf("%v, at least %v", took, least)
	}
	if took := takes(0); took > least/4 {
		t.Errorf("%v without a pace", took)
	}
}

// TestBrokenSocket: Accept returns the error of a socket that fails for good.
func TestBrokenSocket(t *testing.T) {
	ep := listenLocal(t, Options{})
	c := dialLocal(t, ep.Addr(), Options{})
	if _, err := ep.Accept(); err != nil {
		t.Fatal(err)
	}
	ep.socket.SetReadDeadline(time.Now().Add(-time.Hour)) // each read fails
	if _, err := ep.Accept(); err == nil || errors.Is(err, net.ErrClosed) {
		t.Errorf("accepting: %v", err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the connection goes on")
	}
}
