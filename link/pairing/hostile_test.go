// SPDX-License-Identifier: Apache-2.0

package pairing

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/fault"
	"mpbond/base/porttest"
	"mpbond/link/wire"
)

// TestWrongCodeAndOn: a caller with a wrong code continues the protocol after the refusal. It must
// not be stored.
func TestWrongCodeAndOn(t *testing.T) {
	server, laptop := newTestDevice(t, "home", wire.PairServer), newTestDevice(t, "laptop", wire.PairPrimary)
	secret := newCode(server)
	c, conn := laptop.handshakeWith(server, "10.0.0.1", laptop.Key)
	defer conn.Close()
	p := newProofContext(laptop.Key.Public(), c.peer, c.binding)
	proof, ke1, err := beginProof(p, secret)
	if err != nil {
		t.Fatal(err)
	}
	_, ke2, err := answerCode(p, secret, ke1)
	if err != nil {
		t.Fatal(err)
	}
	guess, err := proof.finishProof(ke2) // as long as a correct one
	if err != nil {
		t.Fatal(err)
	}
	_, _ = rand.Read(guess)
	for _, f := range []wire.Frame{wire.PairStep{Number: 1, Bytes: ke1}, wire.PairStep{Number: 3, Bytes: guess},
		laptop.identityFor(wire.PairServer)} {
		_ = c.sendPairingFrame(f) // the acceptor may have hung up
		if s, ok := f.(wire.PairStep); ok && s.Number == 1 {
			_, err = c.readPairStep(2)
		} else if err == nil {
			_, err = c.expectPairingFrame(wire.TypePairDone)
			if err == nil {
				t.Fatal("it got PAIR_DONE")
			}
			err = nil
		}
	}
	conn.Close()
	server.awaitNoTries()
	if server.knownPeers() != "" {
		t.Error(server.knownPeers())
	}
	if _, err := laptop.pairWith(server, "10.0.0.2", secret); err != nil {
		t.Errorf("with the code: %v", err)
	}
}

// TestReplacedWhileTrying checks that a try does not count if its code is replaced meanwhile,
// neither for that code nor for the new one.
func TestReplacedWhileTrying(t *testing.T) {
	server, laptop := newTestDevice(t, "home", wire.PairServer), newTestDevice(t, "laptop", wire.PairPrimary)
	c, conn := laptop.handshakeWith(server, "10.0.0.1", laptop.Key)
	defer conn.Close()
	proof, ke1, err := beginProof(newProofContext(laptop.Key.Public(), c.peer, c.binding), newCode(server))
	if err == nil {
		err = c.sendPairingFrame(wire.PairStep{Number: 1, Bytes: ke1})
	}
	if err != nil {
		t.Fatal(err)
	}
	ke2, err := c.readPairStep(2)
	if err != nil {
		t.Fatal(err)
	}
	ke3, err := proof.finishProof(ke2)
	if err != nil {
		t.Fatal(err)
	}
	secret := newCode(server)
	if err := c.sendPairingFrame(wire.PairStep{Number: 3, Bytes: ke3}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.readIdentity(); err == nil {
		t.Error("the code that was replaced is right")
	}
	if _, err := laptop.pairWith(server, "10.0.0.1", secret); err != nil {
		t.Errorf("with the new code: %v", err)
	}
}

// muteConn is a connection that writes nothing more once on is set.
type muteConn struct {
	net.Conn
	on *atomic.Bool
}

func (m muteConn) Write(b []byte) (int, error) {
	if m.on.Load() {
		return len(b), nil
	}
	return m.Conn.Write(b)
}

// TestPairingIsCancelled checks that cancelling ends the wait for the other device and closes the
// connection.
func TestPairingIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, laptop := newTestDevice(t, "home", wire.PairServer), newTestDevice(t, "laptop", wire.PairPrimary)
		soon := func() context.Context {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			return ctx
		}
		began := time.Now()
		on := new(atomic.Bool)
		on.Store(true)
		near, far := net.Pipe()
		defer far.Close()
		if _, err := Call(soon(), muteConn{near, on}, "x:1", laptop.Self,
			"K7QF3M2A"); err != context.Canceled || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		on.Store(false)
		conn := server.connectFrom("10.0.0.1")
		m, err := Call(t.Context(), muteConn{conn, on}, "x:1", laptop.Self, newCode(server))
		if err != nil {
			t.Fatal(err)
		}
		on.Store(true)
		began = time.Now()
		if _, err := m.Finish(soon()); err != context.Canceled || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("it does not hang up")
		}
	})
}

// TestCallAnyErrors checks which error of several addresses is returned: that of a device that
// answered, otherwise that of the first address.
func TestCallAnyErrors(t *testing.T) {
	server, laptop := newTestDevice(t, "home", wire.PairServer), newTestDevice(t, "laptop", wire.PairPrimary)
	var serving sync.WaitGroup
	defer serving.Wait()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serving.Go(func() { _ = server.a.Serve(t.Context(), l) })
	defer l.Close()
	there, nowhere := l.Addr().String(), porttest.FreeAddress(t)
	for _, c := range []struct {
		addrs []string
		kind  fault.Kind
		text  string
	}{
		{[]string{there, nowhere}, fault.UnknownDevice, "no code"},
		{[]string{nowhere, there}, fault.UnknownDevice, "no code"},
		{[]string{nowhere, nowhere}, fault.Unreachable, "refused"}, {nil, fault.Unreachable, "no address"},
	} {
		if _, err := CallAny(t.Context(), Code{Secret: "K7QF3M2A", Addrs: c.addrs}, laptop.Self); !fault.Is(err,
			c.kind) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v: %v (%v)", c.addrs, err, fault.KindOf(err))
		}
	}
}

func TestBestAddresses(t *testing.T) {
	var list []netip.Addr
	for _, a := range []string{"127.0.0.1", "fd00::1", "10.0.0.1", "fe80::1", "192.168.1.1", "2001:db8::1",
		"203.0.113.1", "224.0.0.1"} {
		list = append(list, netip.MustParseAddr(a))
	}
	if got := fmt.Sprint(bestAddresses(slices.Clone(list))); got != "[203.0.113.1 2001:db8::1 10.0.0.1 192.168.1.1]" {
		t.Error(got)
	}
	if got := fmt.Sprint(bestAddresses(list[:2])); got != "[fd00::1]" {
		t.Error(got)
	}
}
