// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bytes"
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"mpbond/base/fault"
)

// TestRetry: while many connections are unconfirmed, an address must prove that it receives. A
// source cannot take all slots, nor with forged addresses those of another source.
func TestRetry(t *testing.T) {
	ep := listenLocal(t, Options{})
	// hello asks for a connection and returns the kind of answer.
	hello := func(from *net.UDPConn, token []byte) (answer []byte) {
		t.Helper()
		p := appendHello(nil, randomConnID(), bytes.Repeat([]byte{9}, shareLen), token)
		if _, err := from.WriteToUDPAddrPort(p, addrOf(ep.Addr())); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 2000)
		from.SetReadDeadline(time.Now().Add(testTimeout))
		n, _, err := from.ReadFromUDPAddrPort(buf)
		if err != nil || n >= len(p) {
			t.Fatalf("%d bytes, %v", n, err)
		}
		return buf[:n]
	}
	keep := func() { // none expires on a slow machine
		ep.mu.Lock()
		defer ep.mu.Unlock()
		for _, h := range ep.halfOpen {
			h.since = time.Now().Add(time.Hour)
		}
	}
	none := make([]byte, addressTokenLen)
	for i := range maxHalfOpen / maxPerSource {
		from, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 1, byte(i+1))})
		if err != nil {
			t.Skip("no other loopback addresses: ", err)
		}
		defer from.Close()
		for range maxPerSource {
			if a := hello(from, none); a[0] != typeWelcome {
				t.Fatalf("the answer is %d", a[0])
			}
			keep()
		}
		retry := hello(from, none)
		if retry[0] != typeRetry {
			t.Fatal("one source has more places than it may")
		}
		// All that may have been others with its address.
		if a := hello(from, retry[2+connIDLen:]); a[0] != typeWelcome {
			t.Error("false addresses take the place of the true one")
		}
		keep()
	}
	var retries int
	sh := newShim(t, ep.Addr(), func(dir int, p []byte) [][]byte {
		if p[0] == typeRetry {
			retries++
			if len(p) != retryLen {
				t.Errorf("an answer of %d bytes", len(p))
			}
		}
		return [][]byte{p}
	})
	c := dialLocal(t, sh.front.LocalAddr(), Options{})
	s, err := ep.Accept()
	if err != nil {
		t.Fatal(err)
	}
	exchangeStreams(t, c, s, 10_000)
	sh.do(func() {
		if retries == 0 {
			t.Error("the client was not asked to show its address")
		}
	})
}

// TestHandshakeLosses: the first packets may be lost, duplicated and damaged.
func TestHandshakeLosses(t *testing.T) {
	for _, at := range []int{0, 9, 10, 39, 41, 58} { // of HELLO's id and share, and of WELCOME's
		n := [2]int{}
		c, s, _ := connectViaShim(t, func(dir int, p []byte) [][]byte {
			if n[dir]++; n[dir] == 1 {
				p[2+at] ^= 1
			}
			return [][]byte{p, p}
		})
		exchangeStreams(t, c, s, 1000)
	}
	n := 0
	c, s, _ := connectViaShim(t, func(dir int, p []byte) [][]byte {
		if n++; n == 1 || n == 3 { // the HELLO; the first answer
			return nil
		}
		return [][]byte{p}
	})
	exchangeStreams(t, c, s, 1000)
}

// TestOtherVersion: a HELLO of another version, or a short one, gets no answer and no slot.
func TestOtherVersion(t *testing.T) {
	ep := listenLocal(t, Options{})
	from := loopback(t)
	defer from.Close()
	good := appendHello(nil, randomConnID(), bytes.Repeat([]byte{9}, shareLen), make([]byte, addressTokenLen))
	other := bytes.Clone(good)
	other[1] = version + 1
	for _, p := range [][]byte{other, good[:minPayload-1], good} {
		from.WriteToUDPAddrPort(p, addrOf(ep.Addr()))
	}
	// The only answer is to the last.
	buf := make([]byte, 2000)
	from.SetReadDeadline(time.Now().Add(testTimeout))
	if n, _, err := from.ReadFromUDPAddrPort(buf); err != nil || n != welcomeLen {
		t.Fatal(n, err)
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if len(ep.halfOpen) != 1 {
		t.Errorf("%d connections", len(ep.halfOpen))
	}
}

// TestNobodyAnswers: dialing ends with its context and explains why.
func TestNobodyAnswers(t *testing.T) {
	silent := loopback(t)
	defer silent.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := Dial(ctx, silent.LocalAddr().String(), Options{})
	if !fault.Is(err, fault.Unreachable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	for _, addr := range []string{"nowhere", "127.0.0.1:http5", "127.0.0.1:99999"} {
		if _, err := Dial(ctx, addr, Options{}); !fault.Is(err, fault.Config) {
			t.Errorf("%s: %v", addr, err)
		}
	}
}
