// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"testing"
	"time"
)

// deriveBothKeys returns the keys of both ends. meddle may modify the server's answer on the way.
func deriveBothKeys(t testing.TB, meddle func(bare []byte)) (client, server *keys, same bool) {
	t.Helper()
	a, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	b, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	hello := appendHello(nil, randomConnID(), a.PublicKey().Bytes(),
		make([]byte, addressTokenLen))[:helloLen-addressTokenLen]
	bare := append([]byte{typeWelcome, version}, make([]byte, 2*connIDLen)...)
	bare = append(bare, b.PublicKey().Bytes()...)
	server, serverKey, err := deriveKeys(b, a.PublicKey().Bytes(), hello, bare, false)
	if err != nil {
		t.Fatal(err)
	}
	token := [resetTokenLen]byte{1, 2, 3}
	w := serverKey.sealWelcome(bare, token[:])
	if bytes.Contains(w, token[:3]) {
		t.Error("the token of RESET can be read on the way")
	}
	if meddle != nil {
		meddle(w)
	}
	client, clientKey, err := deriveKeys(a, w[welcomeBareLen-shareLen:welcomeBareLen], hello, w[:welcomeBareLen], true)
	if err != nil {
		return nil, server, false
	}
	got, ok := clientKey.openWelcome(w)
	return client, server, ok && got == token
}

// TestExchange: both ends derive the same keys, and none if any of the first packets was modified,
// for example its version.
func TestExchange(t *testing.T) {
	if _, _, same := deriveBothKeys(t, nil); !same {
		t.Fatal("the ends do not agree")
	}
	for i := range welcomeLen {
		if i == welcomeBareLen-1 {
			continue // X25519 looks at all but the top bit of its last byte
		}
		if _, _, same := deriveBothKeys(t, func(b []byte) { b[i] ^= 4 }); same {
			t.Errorf("byte %d of WELCOME may be changed", i)
		}
	}
	if _, _, same := deriveBothKeys(t, func(b []byte) { clear(b[welcomeBareLen-shareLen : welcomeBareLen]) }); same {
		t.Error("a share of small order is accepted")
	}
}

// TestPacket: packets open as they were sealed, and in no other form.
func TestPacket(t *testing.T) {
	c, s, _ := deriveBothKeys(t, nil)
	id := randomConnID()
	whole := func(number uint64, frames string) []byte {
		return c.sealPacket(append(appendDataHeader(nil, id), frames...), 0, number)
	}
	for _, number := range []uint64{0, 1, 1<<32 - 1, 1 << 32, 1<<40 + 5} {
		p := whole(number, "frames")
		frames, got, err := s.openPacket(p, max(number, 3)-3)
		if err != nil || got != number || string(frames) != "frames" {
			t.Errorf("packet %d: %q of %d, %v", number, frames, got, err)
		}
		if _, _, err := c.openPacket(p, 0); err == nil {
			t.Errorf("packet %d is accepted by its own sender", number)
		}
	}
	p := whole(7, "frames")
	for n := range p {
		if _, _, err := s.openPacket(p[:n], 6); err == nil {
			t.Errorf("the first %d of %d bytes are a packet", n, len(p))
		}
		q := bytes.Clone(p)
		q[n] ^= 1
		if _, _, err := s.openPacket(q, 6); err == nil {
			t.Errorf("byte %d may be changed", n)
		}
	}
	if _, _, err := s.openPacket(append(bytes.Clone(p), 0), 6); err == nil {
		t.Error("a packet may be longer")
	}
	other, _, _ := deriveBothKeys(t, nil)
	if _, _, err := s.openPacket(other.sealPacket(append(appendDataHeader(nil, id), "frames"...), 0, 7), 6); err == nil {
		t.Error("a packet of another connection is accepted")
	}
}

func TestDecodePacketNumber(t *testing.T) {
	for _, c := range []struct {
		low        uint32
		high, want uint64
	}{
		{0, 0, 0}, {5, 4, 5}, {0, 1<<32 - 1, 1 << 32}, {1<<32 - 1, 1 << 32, 1<<32 - 1}, {1 << 31, 1, 1 << 31},
		{3, 1<<33 + 7, 1<<33 + 3}, {1<<32 - 2, 1<<33 + 7, 1<<33 - 2}, {7, 7<<32 | 1<<31 | 8, 8<<32 | 7},
	} {
		if got := decodePacketNumber(c.low, c.high); got != c.want {
			t.Errorf("%#x after %#x is %#x, not %#x", c.low, c.high, got, c.want)
		}
	}
}

func TestToken(t *testing.T) {
	secret, now := []byte("secret"), time.UnixMilli(1_000_000_000_000)
	token := newAddressToken(secret, now, "192.0.2.1:7")
	for _, c := range []struct {
		why  string
		good bool
		ok   bool
	}{
		{"as it was given", true, isValidAddressToken(secret, now.Add(tokenLifetime), "192.0.2.1:7", token)},
		{"too old", false, isValidAddressToken(secret, now.Add(tokenLifetime+time.Second), "192.0.2.1:7", token)},
		{"of another address", false, isValidAddressToken(secret, now, "192.0.2.1:8", token)},
		{"of another server", false, isValidAddressToken([]byte("other"), now, "192.0.2.1:7", token)},
		{"none", false, isValidAddressToken(secret, now, "192.0.2.1:7", make([]byte, addressTokenLen))},
	} {
		if c.ok != c.good {
			t.Errorf("%s: %v", c.why, c.ok)
		}
	}
	if len(token) != addressTokenLen || retryLen >= minPayload || welcomeLen >= minPayload {
		t.Error("an answer is longer than what it answers")
	}
}
