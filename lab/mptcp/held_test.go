// SPDX-License-Identifier: Apache-2.0

package mptcp

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// serverStart returns the sequence number of the first byte of a server with serverKey.
func serverStart() uint64 {
	h := sha256.Sum256(serverKey)
	return binary.BigEndian.Uint64(h[24:]) + 1
}

// segment is a piece of a connection on a subflow, relative to the beginning of both.
type segment struct {
	join           bool // on the second subflow
	from, at, size uint32
	mapped         uint32 // length of its mapping; 0: it has none
	long           bool   // with sequence numbers of 64 bits
}

// firstSeqs are the first sequence numbers of both subflows. One wraps around.
var firstSeqs = [2]uint32{0xfffffff0, 77}

// makePacket returns the packet of a segment, without its payload.
func (x segment) makePacket(t testing.TB) []byte {
	t.Helper()
	own, port, first := ownM, uint16(5000), firstSeqs[0]
	if x.join {
		own, port, first = ownU, 5001, firstSeqs[1]
	}
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: web, DstIP: own}
	tcp := &layers.TCP{SrcPort: 80, DstPort: layers.TCPPort(port), ACK: true, Seq: first + x.from}
	option := []byte{dss << 4, dssHasAck, 0, 0, 0, 9}
	if x.mapped > 0 {
		data := serverStart() + uint64(x.at)
		if option[1] |= dssHasMap; x.long {
			option[1] |= dssLongNo
			option = binary.BigEndian.AppendUint64(option, data)
		} else {
			option = binary.BigEndian.AppendUint32(option, uint32(data))
		}
		option = binary.BigEndian.AppendUint32(option, 1+x.from)
		option = binary.BigEndian.AppendUint16(option, uint16(x.mapped))
	}
	tcp.Options = []layers.TCPOption{{OptionType: optionKind, OptionLength: uint8(2 + len(option)), OptionData: option}}
	if err := tcp.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ip, tcp,
		gopacket.Payload(make([]byte, x.size))); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()[:len(b.Bytes())-int(x.size)]
}

// newHeld returns a connection with two subflows.
func newHeld(t testing.TB) *Held {
	h := &Held{}
	for i, own := range []net.IP{ownM, ownU} {
		answer := [2][]byte{capableAnswer(serverKey), joinAnswer()}[i]
		p := fakePacket(t, end{web, 80}, end{own, uint16(5000 + i)}, "SA", answer)
		binary.BigEndian.PutUint32(p[20+4:], firstSeqs[i]-1) // of the SYN
		h.AddPacket(p)
	}
	return h
}

// TestHeld: bytes wait until all before them have arrived, over whichever subflow.
func TestHeld(t *testing.T) {
	h := newHeld(t)
	for i, c := range []struct {
		segment
		want uint64
	}{
		{segment{false, 0, 0, 100, 100, false}, 0},
		{segment{true, 0, 300, 100, 100, true}, 100},  // 100 to 300 are missing
		{segment{true, 100, 400, 50, 100, true}, 150}, // half of a mapping
		{segment{true, 150, 450, 50, 0, false}, 200},  // the other half has none of its own
		{segment{true, 0, 300, 100, 100, true}, 200},  // again
		{segment{false, 100, 100, 100, 200, false}, 200},
		{segment{false, 200, 200, 100, 0, false}, 0},
		{segment{true, 999, 0, 100, 0, false}, 0}, // its mapping is unknown
		{segment{false, 300, 600, 100, 100, false}, 100},
		{segment{true, 200, 550, 100, 100, false}, 150}, // overlaps it
		{segment{true, 300, 500, 50, 50, false}, 0},
	} {
		if h.AddPacket(c.makePacket(t)); h.Bytes() != c.want {
			t.Errorf("after packet %d %d bytes wait, want %d", i, h.Bytes(), c.want)
		}
	}
	if got := h.next - serverStart(); got != 700 {
		t.Errorf("%d bytes are in order, want 700", got)
	}
	h.AddPacket(fakePacket(t, end{web, 80}, end{ownM, 5000}, "SA", capableAnswer(serverKey))) // the SYN+ACK again
	if got := h.next - serverStart(); got != 700 {
		t.Errorf("a repeated SYN+ACK began the connection again: %d", got)
	}
	h.AddPacket(fakePacket(t, end{web, 80}, end{ownM, 6000}, "SA", capableAnswer(serverKey))) // another connection
	if h.Bytes() != 0 || h.next != serverStart() {
		t.Errorf("the next connection begins with %d bytes at %d", h.Bytes(), h.next-serverStart())
	}
}

// TestHeldProperties: in whatever order segments arrive, some of them twice, none waits in the end, and
// meanwhile those wait that arrived behind the first missing one.
func TestHeldProperties(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		const count, size = 40, 10
		var all []segment
		used := [2]uint32{}
		for i := range uint32(count) {
			s := segment{join: r.IntN(2) == 0, at: i * size, size: size, mapped: size, long: r.IntN(2) == 0}
			on := map[bool]int{true: 1}[s.join]
			s.from = used[on]
			used[on] += size
			all = append(all, s)
		}
		all = append(all, all[:r.IntN(count)]...)
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		h, arrived := newHeld(t), map[uint32]bool{}
		for _, s := range all {
			h.AddPacket(s.makePacket(t))
			arrived[s.at] = true
			first := uint32(0)
			for arrived[first] {
				first += size
			}
			want := uint64(0)
			for at := range arrived {
				if at > first {
					want += size
				}
			}
			if h.Bytes() != want {
				t.Fatalf("seed %d: %d bytes wait, want %d", seed, h.Bytes(), want)
			}
		}
	}
}

func FuzzHeld(f *testing.F) {
	f.Add(segment{true, 0, 300, 100, 100, true}.makePacket(f))
	f.Add(fakePacket(f, end{web, 80}, end{ownM, 5000}, "SA", capableAnswer(serverKey)))
	f.Fuzz(func(t *testing.T, b []byte) {
		h := newHeld(t)
		h.AddPacket(b)
		h.AddPacket(segment{false, 0, 0, 100, 100, false}.makePacket(t))
		h.Bytes()
	})
}
