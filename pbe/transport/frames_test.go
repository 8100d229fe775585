// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"encoding/binary"
	"reflect"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/pbe/cc"
)

// someFrames returns one frame of each kind, decoded and encoded.
func someFrames() (list []frame, b [][]byte) {
	ack := ackFrame{delay: 3 * time.Millisecond, oneWayDelay: 1 << 31, maxData: 1 << 40, count: 3}
	copy(ack.ranges[:], []ackRange{{90, 1 << 35}, {70, 88}, {0, 3}})
	radio := cc.CellFeedback{TransportRate: 77 * unit.Mbps, FairRate: 3 * unit.Kbps, Internet: true, Activated: 200}
	add := func(f frame, bytes []byte) { list, b = append(list, f), append(b, bytes) }
	add(frame{kind: framePadding}, []byte{framePadding})
	add(frame{kind: framePing}, []byte{framePing})
	add(frame{kind: frameAck, ack: ack}, ack.appendEncodedAck(nil))
	add(frame{kind: frameRadio, radio: radio}, appendRadio(nil, radio))
	var out sender
	out.writeToBuffer([]byte("what the stream says"))
	add(frame{kind: frameStream, value: 5, data: []byte("the stream")}, out.appendStream(nil, segment{lo: 5, hi: 15}))
	add(frame{kind: frameFin, value: 1 << 50}, binary.AppendUvarint([]byte{frameFin}, 1<<50))
	add(frame{kind: frameClose}, []byte{frameClose, 0})
	add(frame{kind: frameStamp, sent: 5_000_000, value: 25_000}, appendStamp(nil, 5*time.Second, 25*time.Millisecond))
	add(frame{kind: frameChallenge, data: []byte("12345678")}, []byte("\x0812345678"))
	add(frame{kind: frameResponse, data: []byte("12345678")}, []byte("\x0912345678"))
	return list, b
}

// TestFrames: each frame is decoded as it was encoded. An incomplete frame is an error.
func TestFrames(t *testing.T) {
	frames, bytes := someFrames()
	var all []byte
	for i, want := range frames {
		all = append(all, bytes[i]...)
		var got frame
		r := frameReader{buf: bytes[i]}
		if err := r.readNextFrame(&got); err != nil || len(r.buf) > 0 || !reflect.DeepEqual(got, want) {
			t.Errorf("frame %d: %+v, %v, %d bytes are left; want %+v", want.kind, got, err, len(r.buf), want)
		}
		for n := 1; n < len(bytes[i]); n++ {
			r := frameReader{buf: bytes[i][:n]}
			if err := r.readNextFrame(&got); err == nil && len(r.buf) == 0 {
				t.Errorf("frame %d: the first %d of %d bytes are one", want.kind, n, len(bytes[i]))
			}
		}
	}
	r := frameReader{buf: all}
	for i := range frames {
		var got frame
		if err := r.readNextFrame(&got); err != nil || got.kind != frames[i].kind {
			t.Fatalf("frame %d of several: %v, %v", i, got.kind, err)
		}
	}
}

// TestBadFrames: impossible frames are refused.
func TestBadFrames(t *testing.T) {
	uv := func(kind byte, v ...uint64) []byte {
		b := []byte{kind}
		for _, x := range v {
			b = binary.AppendUvarint(b, x)
		}
		return b
	}
	ack := func(largest, ranges, first uint64, more ...uint64) []byte {
		b := append(uv(frameAck, largest, 0), 0, 0, 0, 0)
		return append(b, uv(0, append([]uint64{0, ranges, first}, more...)...)[1:]...)
	}
	for what, b := range map[string][]byte{
		"an unknown kind":                {0x0a},
		"an offset over 2^60":            uv(frameFin, 1<<60+1),
		"a varint of 11 bytes":           {frameFin, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1},
		"data longer than the packet":    uv(frameStream, 0, 1<<59),
		"a range below zero":             ack(5, 0, 6),
		"a second range below zero":      ack(5, 1, 2, 2, 0),
		"a range that begins nowhere":    ack(5, 1, 2, 0, 2),
		"more ranges than are ever sent": ack(1<<20, maxAckRanges, 0),
		"a challenge of 7 bytes":         append([]byte{frameChallenge}, make([]byte, 7)...),
	} {
		r := frameReader{buf: b}
		var f frame
		if err := r.readNextFrame(&f); err == nil {
			t.Errorf("%s is accepted: %+v", what, f)
		}
	}
}

// FuzzPacket: an engine handles or refuses any frames without panic and with bounded memory, and
// goes on.
func FuzzPacket(f *testing.F) {
	_, frames := someFrames()
	var all []byte
	for _, b := range frames {
		f.Add(b, b)
		all = append(all, b...)
	}
	f.Add(all, all)
	f.Fuzz(func(t *testing.T, a, b []byte) {
		e := newConnEngine(cc.NewCUBIC(), 28)
		now := time.Second
		e.liveness.lastReceived, e.liveness.lastSent = now, now
		e.sender.writeToBuffer(make([]byte, 20_000))
		for i, p := range [][]byte{a, b} {
			now += time.Millisecond
			e.handleTimers(now)
			for range 20 {
				if _, _, ok := e.appendPacket(now, nil); !ok {
					break
				}
			}
			if e.handlePacketFrames(now, uint64(2*i), p) != nil {
				return
			}
		}
		if len(e.receiver.buf.buf) > maxWindow || len(e.receiver.receivedRanges) > maxReceiveRanges ||
			len(e.acks.received) > maxReceivedRanges || e.loss.sent.count > maxSentPackets || e.loss.bytesInFlight < 0 {
			t.Fatalf("%d bytes, %d gaps, %d numbers, %d in flight", len(e.receiver.buf.buf),
				len(e.receiver.receivedRanges), len(e.acks.received), e.loss.bytesInFlight)
		}
		e.readAvailable(now, make([]byte, 1<<20))
		for range 50 {
			if now = max(now, e.nextWakeTime(now)); e.closing.err != nil {
				return
			}
			e.handleTimers(now)
			e.appendPacket(now, nil)
		}
	})
}

// FuzzDatagram: no datagram from outside opens a connection.
func FuzzDatagram(f *testing.F) {
	c, s, _ := deriveBothKeys(f, nil)
	good := c.sealPacket(append(appendDataHeader(nil, connID{}), framePing), 0, 1)
	f.Add(good, uint64(0))
	f.Add([]byte{typeData}, uint64(1<<62))
	f.Fuzz(func(t *testing.T, p []byte, high uint64) {
		if _, _, err := s.openPacket(p, high); err == nil && string(p) != string(good) {
			t.Fatalf("%x is accepted as the peer's", p)
		}
	})
}
