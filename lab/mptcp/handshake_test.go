// SPDX-License-Identifier: Apache-2.0

package mptcp

import (
	"encoding/binary"
	"net"
	"testing"
	"time"

	"crypto/sha256"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// Addresses of the tests.
var (
	ownM, ownU, web = net.IP{10, 0, 0, 1}, net.IP{10, 0, 1, 1}, net.IP{10, 9, 9, 9}
	serverKey       = []byte{1, 2, 3, 4, 5, 6, 7, 8}
)

// tokenOf returns the token of a key.
func tokenOf(key []byte) []byte {
	h := sha256.Sum256(key)
	return h[:4]
}

// end is one end of a connection.
type end struct {
	ip   net.IP
	port uint16
}

// fakePacket returns a packet with an MPTCP option, if it has a content.
func fakePacket(t testing.TB, from, to end, flags string, option []byte) []byte {
	t.Helper()
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: from.ip, DstIP: to.ip}
	tcp := &layers.TCP{SrcPort: layers.TCPPort(from.port), DstPort: layers.TCPPort(to.port)}
	for _, f := range flags {
		switch f {
		case 'S':
			tcp.SYN = true
		case 'A':
			tcp.ACK = true
		}
	}
	if option != nil {
		tcp.Options = []layers.TCPOption{{OptionType: layers.TCPOptionKindMSS, OptionLength: 4, OptionData: []byte{5, 180}},
			{OptionType: optionKind, OptionLength: uint8(2 + len(option)), OptionData: option}}
	}
	if err := tcp.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ip,
		tcp); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// options of the handshakes.
func capableSYN() []byte              { return []byte{0x01, 0x81} }
func capableAnswer(key []byte) []byte { return append([]byte{0x01, 0x81}, key...) }
func joinSYN(token []byte) []byte {
	return append(append([]byte{0x10, 0x01}, token...), 9, 9, 9, 9)
}
func joinAnswer() []byte { return append([]byte{0x10, 0x01}, make([]byte, 12)...) }

// TestHandshakes reads a connection whose second subflow needs two SYNs and whose server repeats a SYN+ACK.
func TestHandshakes(t *testing.T) {
	began := time.Unix(1e9, 0)
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	var h Handshakes
	// The other link's capture is read first.
	h.AddPacket(at(70), "u", fakePacket(t, end{ownU, 5001}, end{web, 80}, "S", joinSYN(tokenOf(serverKey))))
	h.AddPacket(at(1070), "u", fakePacket(t, end{ownU, 5001}, end{web, 80}, "S", joinSYN(tokenOf(serverKey))))
	h.AddPacket(at(1150), "u", fakePacket(t, end{web, 80}, end{ownU, 5001}, "SA", joinAnswer()))
	h.AddPacket(at(1160), "u", fakePacket(t, end{web, 80}, end{ownU, 5001}, "SA", joinAnswer()))
	h.AddPacket(at(1180), "u", fakePacket(t, end{ownU, 5002}, end{web, 80}, "S", joinSYN([]byte{0, 0, 0, 1}))) // another's
	h.AddPacket(at(0), "m", fakePacket(t, end{ownM, 5000}, end{web, 80}, "S", capableSYN()))
	h.AddPacket(at(60), "m", fakePacket(t, end{web, 80}, end{ownM, 5000}, "SA", capableAnswer(serverKey)))
	h.AddPacket(at(60), "m", fakePacket(t, end{ownM, 5000}, end{web, 80}, "A", capableAnswer(serverKey)))
	h.AddPacket(at(200), "m", fakePacket(t, end{ownM, 5003}, end{web, 80}, "S", nil)) // plain TCP
	h.AddPacket(at(260), "m", fakePacket(t, end{web, 80}, end{ownM, 5003}, "SA", nil))
	h.AddPacket(at(300), "m", fakePacket(t, end{ownM, 5004}, end{web, 80}, "S", capableSYN())) // falls back to it
	h.AddPacket(at(360), "m", fakePacket(t, end{web, 80}, end{ownM, 5004}, "SA", nil))
	h.AddPacket(at(400), "m", fakePacket(t, end{web, 80}, end{ownM, 5999}, "SA", nil)) // of an unknown one
	all := h.Connections()
	if len(all) != 1 || len(all[0].Joined) != 1 {
		t.Fatalf("%d connections: %+v", len(all), all)
	}
	c := all[0]
	if n, took, ok := c.UpWith(1); n != 3 || took != 60*time.Millisecond || !ok {
		t.Errorf("one subflow: %d packets in %v, %v", n, took, ok)
	}
	if n, took, ok := c.UpWith(2); n != 3+2+2 || took != 1150*time.Millisecond || !ok {
		t.Errorf("both: %d packets in %v, %v", n, took, ok)
	}
	for _, n := range []int{0, 3} {
		if packets, took, ok := c.UpWith(n); ok || took != 0 || packets != 3+6 {
			t.Errorf("%d subflows are said to be up after %d packets in %v", n, packets, took)
		}
	}
	if n := h.Count(); n != 3+6+1+3+3 {
		t.Errorf("%d packets in all", n)
	}
}

// TestTokens: a subflow joins the connection of its token only.
func TestTokens(t *testing.T) {
	var h Handshakes
	now := time.Unix(1e9, 0)
	for i := range 3 {
		key := append([]byte{byte(i)}, serverKey[1:]...)
		h.AddPacket(now, "m", fakePacket(t, end{ownM, uint16(100 + i)}, end{web, 80}, "S", capableSYN()))
		h.AddPacket(now, "m", fakePacket(t, end{web, 80}, end{ownM, uint16(100 + i)}, "SA", capableAnswer(key)))
		for j := range i {
			h.AddPacket(now, "u", fakePacket(t, end{ownU, uint16(200 + 10*i + j)}, end{web, 80}, "S", joinSYN(tokenOf(key))))
		}
	}
	all := h.Connections()
	for i, c := range all {
		if got := len(c.Joined); got != i {
			t.Errorf("connection %d has %d further subflows", i, got)
		}
		if token := binary.BigEndian.Uint32(tokenOf(append([]byte{byte(i)}, serverKey[1:]...))); c.First.token != token {
			t.Errorf("connection %d: token %x, want %x", i, c.First.token, token)
		}
	}
	if len(all) != 3 {
		t.Errorf("%d connections", len(all))
	}
}

// TestTruncated: no part of a packet is a handshake, and none panics.
func TestTruncated(t *testing.T) {
	syn := fakePacket(t, end{ownM, 1}, end{web, 80}, "S", capableSYN())
	answer := fakePacket(t, end{web, 80}, end{ownM, 1}, "SA", capableAnswer(serverKey))
	for n := range syn {
		var h Handshakes
		if h.AddPacket(time.Now(), "m", syn[:n]); h.Count() != 0 {
			t.Fatalf("%d of %d bytes count", n, len(syn))
		}
	}
	for n := range answer {
		var h Handshakes
		h.AddPacket(time.Now(), "m", syn)
		if h.AddPacket(time.Now(), "m", answer[:n]); h.Count() != 1 {
			t.Fatalf("%d of %d bytes of the answer count", n, len(answer))
		}
	}
}

func FuzzAddPacket(f *testing.F) {
	f.Add(fakePacket(f, end{ownM, 1}, end{web, 80}, "S", joinSYN(tokenOf(serverKey))),
		fakePacket(f, end{web, 80}, end{ownM, 1}, "SA", joinAnswer()))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		var h Handshakes
		h.AddPacket(time.Unix(1, 0), "m", a)
		h.AddPacket(time.Unix(2, 0), "m", b)
		for _, c := range h.Connections() {
			c.UpWith(1)
		}
		if n := h.Count(); n < 0 || n > 3 {
			t.Errorf("two packets count as %d", n)
		}
	})
}
