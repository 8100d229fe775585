// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"mpbond/base/fault"
	"mpbond/base/porttest"
	"mpbond/base/unit"
	"mpbond/base/waittest"
)

// TestCloseAgain: if the CLOSE was lost, it is repeated in reply to further packets during the
// closing period.
func TestCloseAgain(t *testing.T) {
	for lost := range 3 {
		w := newWorld(t, testPath{delay: 20 * time.Millisecond, rate: 10 * unit.Mbps, queue: 100 * time.Millisecond,
			mtu: 1472}, 3)
		w.keepSending(0)
		w.runUntil(2*time.Second, neverDone)
		closes := 0
		w.drop = func(from int, f flight) bool {
			if from == 1 && len(f.frames) == 2 && f.frames[0] == frameClose {
				closes++
				return closes <= lost
			}
			return false
		}
		w.engines[1].closing.closeLocally(net.ErrClosed)
		begun := w.now
		w.runUntil(time.Second, func() bool { return w.engines[0].closing.err != nil })
		if took := w.now - begun; w.engines[0].closing.err != errClosedByPeer || took > 200*time.Millisecond {
			t.Errorf("%d lost: %v after %v, %d CLOSE", lost, w.engines[0].closing.err, took, closes)
		}
		if closes > lost+8 {
			t.Errorf("%d lost: %d CLOSE", lost, closes)
		}
		w.runUntil(time.Second, neverDone)
		if !w.engines[1].closing.isFullyClosed(w.now) || !w.engines[0].closing.isFullyClosed(w.now) {
			t.Error("it never ends")
		}
	}
}

// TestUserTimeout: a peer that sends but acknowledges nothing is given up and sent a CLOSE. A peer
// that only does not read is kept.
func TestUserTimeout(t *testing.T) {
	p := testPath{delay: 20 * time.Millisecond, rate: 10 * unit.Mbps, queue: 100 * time.Millisecond, mtu: 1472}
	w := newWorld(t, p, 3)
	w.engines[0].liveness.userTimeout = 5 * time.Second
	w.keepSending(1)
	w.runUntil(2*time.Second, neverDone)
	w.engines[0].sender.writeToBuffer(make([]byte, 1000))
	deaf := w.now
	w.drop = func(from int, f flight) bool { return from == 0 }
	w.runUntil(time.Minute, func() bool { return w.engines[0].closing.err != nil })
	if took := w.now - deaf; w.engines[0].closing.err != errUserTimeout || took < 5*time.Second ||
		took > 6*time.Second {
		t.Errorf("%v after %v", w.engines[0].closing.err, took)
	}
	if err := addTimeoutHint(w.engines[0].closing.err); !fault.Is(err, fault.Timeout) {
		t.Error(err)
	}

	w = newWorld(t, p, 4) // the peer does not read
	w.engines[0].liveness.userTimeout = 5 * time.Second
	w.engines[0].sender.writeToBuffer(make([]byte, 2*initialWindow))
	w.runUntil(2*time.Minute, func() bool { return w.engines[0].closing.err != nil })
	if w.engines[0].closing.err != nil || w.engines[0].sender.buf.base != initialWindow {
		t.Errorf("%v, %d acknowledged", w.engines[0].closing.err, w.engines[0].sender.buf.base)
	}
}

// crashEndpoint closes the socket of an endpoint like the end of its process. No CLOSE is sent.
func crashEndpoint(ep *Endpoint) { ep.socket.UDPConn.Close() }

// TestRestart: clients of a server that was restarted with the same secret learn at once that their
// connections are over.
func TestRestart(t *testing.T) {
	secret := []byte("nobody else knows it")
	at := porttest.FreeAddress(t)
	ep, err := Listen(at, Options{ResetKey: secret})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ep.Close() })
	c := dialLocal(t, ep.Addr(), Options{})
	s, err := ep.Accept()
	if err != nil {
		t.Fatal(err)
	}
	exchangeStreams(t, c, s, 1000)
	crashEndpoint(ep)
	for _, opt := range []Options{{}, {ResetKey: []byte("another")}, {ResetKey: secret}} {
		var again *Endpoint
		waittest.Until(t, "the address is free", func() bool { again, err = Listen(at, opt); return err == nil })
		c.Write([]byte("are you there?"))
		if bytes.Equal(opt.ResetKey, secret) {
			c.SetReadDeadline(time.Now().Add(testTimeout))
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Error(err)
			}
		} else {
			waittest.Until(t, "a RESET was sent",
				func() bool { again.mu.Lock(); defer again.mu.Unlock(); return again.resetBudget.used > 0 })
			if _, err := c.Probe(); err != nil {
				t.Error("a RESET of another endpoint ends it: ", err)
			}
		}
		again.Close()
	}
}

// TestForgottenID: packets for a connection that the endpoint has dropped, such as one that Accept
// did not take, are answered with RESET.
func TestForgottenID(t *testing.T) {
	c, s := connectPair(t, Options{})
	s.route.ep.unregisterPeerConn(s)
	c.Write([]byte("x"))
	c.SetReadDeadline(time.Now().Add(testTimeout))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Error(err)
	}
	s.route.ep.adoptMigratedConn(s) // so that the test can end it
}

// TestResetByOthers: only a RESET with the true token ends a connection. Nothing else that an
// observer sees does.
func TestResetByOthers(t *testing.T) {
	var welcome []byte
	var sh *shim
	c, _ := connectVia(t, Options{}, func(a net.Addr) net.Addr {
		sh = newShim(t, a, func(dir int, p []byte) [][]byte {
			if p[0] == typeWelcome {
				welcome = bytes.Clone(p)
			}
			return [][]byte{p}
		})
		return sh.front.LocalAddr()
	})
	sh.do(func() {})
	for at := 0; at+resetTokenLen <= welcomeLen; at++ {
		c.route.ep.handleResetPacket(append(append([]byte{typeReset}, c.peerID[:]...), welcome[at:at+resetTokenLen]...))
	}
	c.route.ep.handleResetPacket(append(append([]byte{typeReset}, c.id[:]...), c.peerResetToken[:]...))
	if _, err := c.Probe(); err != nil {
		t.Fatal(err)
	}
	c.route.ep.handleResetPacket(append(append([]byte{typeReset}, c.peerID[:]...), c.peerResetToken[:]...))
	if _, err := c.Probe(); !errors.Is(err, syscall.ECONNRESET) {
		t.Error(err)
	}
}

// TestBusy: a client that finds no room gets a short BUSY packet.
func TestBusy(t *testing.T) {
	ep := listenLocal(t, Options{})
	ep.mu.Lock()
	for range maxConns {
		ep.conns[randomConnID()] = &Conn{}
	}
	ep.mu.Unlock()
	waittest.Until(t, "the client knows why", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := Dial(ctx, ep.Addr().String(), Options{})
		return fault.Is(err, fault.Unreachable) && strings.Contains(err.Error(), "accepts no more connections")
	})
	if busyLen >= retryLen {
		t.Error("it is long")
	}
}

// TestManyRetries: a server that answers each HELLO with a new token does not make the client send
// more.
func TestManyRetries(t *testing.T) {
	server := loopback(t)
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	begun, done := time.Now(), make(chan struct{})
	go func() {
		defer close(done)
		_, _ = Dial(ctx, server.LocalAddr().String(), Options{})
	}()
	buf := make([]byte, 2000)
	for n := range 4 {
		_, from, err := server.ReadFromUDPAddrPort(buf)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			b := append([]byte{typeRetry, version}, buf[2:2+connIDLen]...)
			server.WriteToUDPAddrPort(append(b, bytes.Repeat([]byte{byte(10*n + i)}, addressTokenLen)...), from)
		}
	}
	// the second HELLO was sent at once, the fourth after the third timeout
	if took := time.Since(begun); took < 2*firstHelloTimeout {
		t.Errorf("four within %v", took)
	}
	cancel()
	<-done
}

// TestBudget checks the limit of each second.
func TestBudget(t *testing.T) {
	var b rateBudget
	now, took := time.Now(), 0
	for range 3000 {
		if b.allowNextEvent(now, 1000) {
			took++
		}
		now = now.Add(time.Millisecond)
	}
	if took != 3000 {
		t.Errorf("%d of 3000", took)
	}
	for range 1500 {
		if b.allowNextEvent(now, 1000) {
			took++
		}
	}
	if took != 4000 {
		t.Errorf("%d of 1500 at once", took-3000)
	}
}

// TestManyMigrations: a connection is registered only at its last endpoints.
func TestManyMigrations(t *testing.T) {
	c, s := connectPair(t, Options{})
	var all []*Endpoint
	for range 8 {
		ep := listenLocal(t, Options{})
		all = append(all, ep)
		for range 2 { // the second time it is already registered
			if err := c.Migrate(ep); err != nil {
				t.Fatal(err)
			}
		}
	}
	exchangeStreams(t, c, s, 10_000)
	for i, ep := range all {
		ep.mu.Lock()
		if known := ep.conns[c.id] == c; known != (i >= len(all)-maxEndpoints) {
			t.Errorf("endpoint %d: %v", i, known)
		}
		ep.mu.Unlock()
	}
}

// TestLocalAddr: the result is the address of the route, and is cached.
func TestLocalAddr(t *testing.T) {
	ep, err := Listen(":0", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ep.Close()
	_, port, _ := net.SplitHostPort(ep.Addr().String())
	to, err := net.ResolveUDPAddr("udp4", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		t.Fatal(err)
	}
	c := dialLocal(t, to, Options{})
	s, err := ep.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if got := s.LocalAddr().String(); got != c.RemoteAddr().String() {
		t.Errorf("%s, not %s", got, c.RemoteAddr())
	}
	if s.LocalAddr() != s.LocalAddr() {
		t.Error("the address is looked up again")
	}
}
