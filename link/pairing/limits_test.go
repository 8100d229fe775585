// SPDX-License-Identifier: Apache-2.0

package pairing

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/fault"
	"mpbond/base/waittest"
	"mpbond/link/wire"
)

// TestTriesAreLimited checks the limits per source and in total, and that a successful try is given
// back.
func TestTriesAreLimited(t *testing.T) {
	server, laptop := newTestDevice(t, "home", wire.PairServer), newTestDevice(t, "laptop", wire.PairPrimary)
	inv, ended := server.a.NewCode()
	secret := inv.Secret
	wrong := strings.Repeat("0", secretLen)
	try := func(ip, secret string, kind fault.Kind) {
		t.Helper()
		if _, err := laptop.pairWith(server, ip, secret); fault.KindOf(err) != kind {
			t.Errorf("from %s: %v", ip, err)
		}
	}
	for range maxTriesPerSource {
		try("2001:db8::1", wrong, fault.UnknownDevice)
	}
	try("2001:db8::2", secret, fault.Limit) // the same network
	for i := maxTriesPerSource; i < maxTries; i++ {
		if inv := server.a.Invitation(); inv.State != Open {
			t.Fatalf("after %d tries: %+v", i, inv)
		}
		try(fmt.Sprintf("10.0.0.%d", i/maxTriesPerSource), wrong, fault.UnknownDevice)
	}
	<-ended // once it sees that the last caller has gone
	if inv := server.a.Invitation(); inv.State != UsedUp {
		t.Fatalf("%+v", inv)
	}
	try("10.1.0.4", secret, fault.UnknownDevice)
	if server.knownPeers()+laptop.knownPeers() != "" {
		t.Error(server.knownPeers(), laptop.knownPeers())
	}
	secret = newCode(server)
	for range maxTriesPerSource + 1 { // with the right code, but interrupted
		m, err := Call(t.Context(), server.connectFrom("10.0.0.1"), "x:1", laptop.Self, secret)
		if err != nil {
			t.Fatal(err)
		}
		m.Close()
		server.awaitNoTries()
	}
	try("10.0.0.1", secret, "")
}

// awaitNoTries waits until no caller has reserved the code.
func (d *testDevice) awaitNoTries() {
	waittest.Until(d.t, "the code is free", func() bool {
		d.a.mu.Lock()
		defer d.a.mu.Unlock()
		return !d.a.codeTaken
	})
}

// TestReplacedMeanwhile checks that a caller with a proved code is not stored once the code is
// replaced.
func TestReplacedMeanwhile(t *testing.T) {
	server, laptop := newTestDevice(t, "home", wire.PairServer), newTestDevice(t, "laptop", wire.PairPrimary)
	m, err := Call(t.Context(), server.connectFrom("10.0.0.1"), "x:1", laptop.Self, newCode(server))
	if err != nil {
		t.Fatal(err)
	}
	secret := newCode(server)
	if _, err := m.Finish(t.Context()); !fault.Is(err, fault.UnknownDevice) {
		t.Errorf("%v", err)
	}
	if server.knownPeers()+laptop.knownPeers() != "" {
		t.Error(server.knownPeers(), laptop.knownPeers())
	}
	if _, err := laptop.pairWith(server, "10.0.0.1", secret); err != nil {
		t.Errorf("the new one: %v", err)
	}
}

// pipeListener is a listener of connections in memory. It fails once broken is closed.
type pipeListener struct {
	calls  chan net.Conn
	broken chan struct{}
	closed chan struct{}
	once   sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{calls: make(chan net.Conn), broken: make(chan struct{}), closed: make(chan struct{})}
}

// Accept implements net.Listener.
func (p *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-p.calls:
		return c, nil
	case <-p.broken:
		return nil, errors.New("out of files")
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *pipeListener) Close() error { p.once.Do(func() { close(p.closed) }); return nil }

// Addr implements net.Listener.
func (p *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// callFrom connects from an address.
func (p *pipeListener) callFrom(ip string) net.Conn {
	near, far := net.Pipe()
	p.calls <- connFrom{far, net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(ip), 40000))}
	return near
}

// TestCallersAreBounded checks that one source cannot keep others from calling, that the number of
// open calls is bounded, that each call ends in time, and that Serve waits for it. A failing
// listener is closed.
func TestCallersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, laptop := newTestDevice(t, "home", wire.PairServer), newTestDevice(t, "laptop", wire.PairPrimary)
		l, ended := newPipeListener(), make(chan error, 1)
		var all sync.WaitGroup
		defer all.Wait()
		all.Go(func() { ended <- server.a.Serve(t.Context(), l) })
		var waiting, shut atomic.Int32 // calls that wait, and refused calls
		silent := func(ip string) {
			conn := l.callFrom(ip)
			waiting.Add(1)
			began := time.Now()
			all.Go(func() {
				_, _ = conn.Read(make([]byte, 1))
				conn.Close()
				waiting.Add(-1)
				if time.Since(began) < stepTimeout {
					shut.Add(1)
				}
			})
			synctest.Wait()
		}
		for range 2 * maxCallsPerSource {
			silent("10.0.0.2")
		}
		if waiting.Load() != maxCallsPerSource || shut.Load() != maxCallsPerSource {
			t.Errorf("one address has %d calls, %d were turned away", waiting.Load(), shut.Load())
		}
		m, err := Call(t.Context(), l.callFrom("10.0.0.3"), "x:1", laptop.Self, newCode(server))
		if err != nil {
			t.Fatal(err)
		}
		m.Close()
		synctest.Wait()
		for i := range 2 * maxCalls {
			silent(fmt.Sprintf("10.0.1.%d", i))
		}
		if waiting.Load() != maxCalls || shut.Load() != maxCallsPerSource+maxCalls+maxCallsPerSource {
			t.Errorf("all have %d calls, %d were turned away", waiting.Load(), shut.Load())
		}
		time.Sleep(stepTimeout)
		synctest.Wait()
		if m, err = Call(t.Context(), l.callFrom("10.0.0.2"), "x:1", laptop.Self, newCode(server)); err != nil {
			t.Fatalf("no room is made: %v", err)
		}
		m.Close()
		l.callFrom("10.0.0.2")
		close(l.broken)
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("it ends with %v before a call has", err)
		default:
		}
		if err := <-ended; err == nil || err.Error() != "out of files" {
			t.Errorf("it goes on: %v", err)
		}
		select {
		case <-l.closed:
		default:
			t.Error("what failed is listened at")
		}
	})
}

// TestOneTryForAllAddresses checks that a device with several addresses is tried once with a wrong
// code, and reached at any address with the right one, even if others are silent.
func TestOneTryForAllAddresses(t *testing.T) {
	server, laptop := newTestDevice(t, "home", wire.PairServer), newTestDevice(t, "laptop", wire.PairPrimary)
	code := Code{Secret: newCode(server)}
	ctx, cancel := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	defer serving.Wait()
	defer cancel()
	for i := range 10 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		code.Addrs = append(code.Addrs, l.Addr().String())
		if i < 7 {
			defer l.Close() // nothing listens there
			continue
		}
		serving.Go(func() {
			if err := server.a.Serve(ctx, l); err != nil {
				t.Error(err)
			}
		})
	}
	wrong := code
	// The silent addresses are awaited if none has the right code.
	wrong.Secret, wrong.Addrs = strings.Repeat("0", secretLen), code.Addrs[7:]
	if _, err := CallAny(ctx, wrong, laptop.Self); err != errWrongCode {
		t.Errorf("%v", err)
	}
	server.a.mu.Lock()
	if server.a.triesLeft != maxTries-1 {
		t.Errorf("%d tries are left", server.a.triesLeft)
	}
	server.a.mu.Unlock()
	m, err := CallAny(ctx, code, laptop.Self)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := m.Finish(ctx); err != nil || len(p.Addresses) != 1 {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := CallAny(ctx, Code{Secret: code.Secret, Addrs: []string{"127.0.0.1:1"}},
		laptop.Self); !fault.Is(err, fault.Unreachable) {
		t.Errorf("nobody is there: %v", err)
	}
}

// TestSilenceUsesATry checks that a caller that stops after the acceptor's answer has used a try.
func TestSilenceUsesATry(t *testing.T) {
	server, laptop := newTestDevice(t, "home", wire.PairServer), newTestDevice(t, "laptop", wire.PairPrimary)
	secret := newCode(server)
	for range maxTriesPerSource {
		c, conn := laptop.handshakeWith(server, "10.0.0.1", laptop.Key)
		_, ke1, err := beginProof(newProofContext(laptop.Key.Public(), c.peer, c.binding), secret)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.sendPairingFrame(wire.PairStep{Number: 1, Bytes: ke1}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.readPairStep(2); err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	if _, err := laptop.pairWith(server, "10.0.0.1", secret); !fault.Is(err, fault.Limit) {
		t.Errorf("%v", err)
	}
}
