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
	"mpbond/base/unit"
)

// TestCloseAgain: who goes on after the CLOSE was lost is told again, while anybody is
// there to do so.
func TestCloseAgain(t *testing.T) {
	for lost := range 3 {
		w := newWorld(t, path{delay: 20 * time.Millisecond, rate: 10 * unit.Mbps, queue: 100 * time.Millisecond, mtu: 1472}, 3)
		w.forever(0)
		w.until(2*time.Second, never)
		closes := 0
		w.drop = func(from int, f flight) bool {
			if from == 1 && len(f.frames) == 2 && f.frames[0] == frameClose {
				closes++
				return closes <= lost
			}
			return false
		}
		w.e[1].closing.close(net.ErrClosed)
		begun := w.now
		w.until(time.Second, func() bool { return w.e[0].closing.err != nil })
		if took := w.now - begun; w.e[0].closing.err != errPeer || took > 200*time.Millisecond {
			t.Errorf("%d lost: %v after %v, %d CLOSE", lost, w.e[0].closing.err, took, closes)
		}
		if closes > lost+8 {
			t.Errorf("%d lost: %d CLOSE", lost, closes)
		}
		w.until(time.Second, never)
		if !w.e[1].closing.isOver(w.now) || !w.e[0].closing.isOver(w.now) {
			t.Error("it never ends")
		}
	}
}

// TestUserTimeout: who is heard but acknowledges nothing is given up, told so, and not
// who only does not read.
func TestUserTimeout(t *testing.T) {
	p := path{delay: 20 * time.Millisecond, rate: 10 * unit.Mbps, queue: 100 * time.Millisecond, mtu: 1472}
	w := newWorld(t, p, 3)
	w.e[0].live.userTimeout = 5 * time.Second
	w.forever(1)
	w.until(2*time.Second, never)
	w.e[0].send.write(make([]byte, 1000))
	deaf := w.now
	w.drop = func(from int, f flight) bool { return from == 0 }
	w.until(time.Minute, func() bool { return w.e[0].closing.err != nil })
	if took := w.now - deaf; w.e[0].closing.err != errUnanswered || took < 5*time.Second || took > 6*time.Second {
		t.Errorf("%v after %v", w.e[0].closing.err, took)
	}
	if err := explain(w.e[0].closing.err); !fault.Is(err, fault.Timeout) {
		t.Error(err)
	}

	w = newWorld(t, p, 4) // nobody reads
	w.e[0].live.userTimeout = 5 * time.Second
	w.e[0].send.write(make([]byte, 2*firstWindow))
	w.until(2*time.Minute, func() bool { return w.e[0].closing.err != nil })
	if w.e[0].closing.err != nil || w.e[0].send.buf.base != firstWindow {
		t.Errorf("%v, %d acknowledged", w.e[0].closing.err, w.e[0].send.buf.base)
	}
}

// crash ends an endpoint as the end of its process does: nobody is told.
func crash(ep *Endpoint) { ep.sock.UDPConn.Close() }

// TestRestart: the other ends of a server that was started again learn at once that
// their connections are over, if it has the same secret.
func TestRestart(t *testing.T) {
	secret := []byte("nobody else knows it")
	ep := listen(t, Options{Secret: secret})
	at := ep.Addr().String()
	c := dial(t, ep.Addr(), Options{})
	s, err := ep.Accept()
	if err != nil {
		t.Fatal(err)
	}
	exchangeStreams(t, c, s, 1000)
	crash(ep)
	for _, opt := range []Options{{}, {Secret: []byte("another")}, {Secret: secret}} {
		var again *Endpoint
		eventually(t, "the address is free", func() bool { again, err = Listen(at, opt); return err == nil })
		c.Write([]byte("are you there?"))
		if bytes.Equal(opt.Secret, secret) {
			c.SetReadDeadline(time.Now().Add(patience))
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Error(err)
			}
		} else {
			eventually(t, "it was told", func() bool { again.mu.Lock(); defer again.mu.Unlock(); return again.resets.used > 0 })
			if _, err := c.Probe(); err != nil {
				t.Error("somebody else's word ends it: ", err)
			}
		}
		again.Close()
	}
}

// TestForgottenID: one that an endpoint has given up, as it does with those that it
// could not give to Accept, is answered with a RESET.
func TestForgottenID(t *testing.T) {
	c, s := two(t, Options{})
	s.route.ep.forget(s)
	c.Write([]byte("x"))
	c.SetReadDeadline(time.Now().Add(patience))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Error(err)
	}
	s.route.ep.adopt(s) // so that the test can end it
}

// TestResetOfStrangers: nothing that was seen on the way ends a connection, but the true
// token does.
func TestResetOfStrangers(t *testing.T) {
	var welcome []byte
	var sh *shim
	c, _ := through(t, Options{}, func(a net.Addr) net.Addr {
		sh = newShim(t, a, func(dir int, p []byte) [][]byte {
			if p[0] == typeWelcome {
				welcome = bytes.Clone(p)
			}
			return [][]byte{p}
		})
		return sh.front.LocalAddr()
	})
	sh.do(func() {})
	for at := 0; at+tokenSize <= welcomeLen; at++ {
		c.route.ep.reset(append(append([]byte{typeReset}, c.peer[:]...), welcome[at:at+tokenSize]...))
	}
	c.route.ep.reset(append(append([]byte{typeReset}, c.id[:]...), c.reset[:]...))
	if _, err := c.Probe(); err != nil {
		t.Fatal(err)
	}
	c.route.ep.reset(append(append([]byte{typeReset}, c.peer[:]...), c.reset[:]...))
	if _, err := c.Probe(); !errors.Is(err, syscall.ECONNRESET) {
		t.Error(err)
	}
}

// TestBusy: who finds no room is told so, briefly.
func TestBusy(t *testing.T) {
	ep := listen(t, Options{})
	ep.mu.Lock()
	for range maxConns {
		ep.conns[newID()] = &Conn{}
	}
	ep.mu.Unlock()
	eventually(t, "the client knows why", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := Dial(ctx, ep.Addr().String(), Options{})
		return fault.Is(err, fault.Unreachable) && strings.Contains(err.Error(), "no room")
	})
	if busyLen >= retryLen {
		t.Error("it is long")
	}
}

// TestManyRetries: who answers each HELLO with ever new tokens does not make the client
// send more than it does anyway.
func TestManyRetries(t *testing.T) {
	server := loopback(t)
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
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
			b := append([]byte{typeRetry, version}, buf[2:2+idLen]...)
			server.WriteToUDPAddrPort(append(b, bytes.Repeat([]byte{byte(10*n + i)}, tokenLen)...), from)
		}
	}
	if took := time.Since(begun); took < 2*firstTry { // the second came at once, and the fourth after the third
		t.Errorf("four within %v", took)
	}
	cancel()
	<-done
}

// TestBudget: so much in each second.
func TestBudget(t *testing.T) {
	var b budget
	now, took := time.Now(), 0
	for range 3000 {
		if b.take(now, 1000) {
			took++
		}
		now = now.Add(time.Millisecond)
	}
	if took != 3000 {
		t.Errorf("%d of 3000", took)
	}
	for range 1500 {
		if b.take(now, 1000) {
			took++
		}
	}
	if took != 4000 {
		t.Errorf("%d of 1500 at once", took-3000)
	}
}

// TestManyMigrations: a connection is known at the endpoints that it was at last only.
func TestManyMigrations(t *testing.T) {
	c, s := two(t, Options{})
	var all []*Endpoint
	for range 8 {
		ep := listen(t, Options{})
		all = append(all, ep)
		for range 2 { // the second time it is there already
			if err := c.Migrate(ep); err != nil {
				t.Fatal(err)
			}
		}
	}
	exchangeStreams(t, c, s, 10_000)
	for i, ep := range all {
		ep.mu.Lock()
		if known := ep.conns[c.id] == c; known != (i >= len(all)-maxWays) {
			t.Errorf("endpoint %d: %v", i, known)
		}
		ep.mu.Unlock()
	}
}

// TestLocalAddr is the one on the way, without a socket each time it is asked for.
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
	c := dial(t, to, Options{})
	s, err := ep.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if got := s.LocalAddr().String(); got != c.RemoteAddr().String() {
		t.Errorf("%s, not %s", got, c.RemoteAddr())
	}
	if s.LocalAddr() != s.LocalAddr() {
		t.Error("it is found anew")
	}
}
