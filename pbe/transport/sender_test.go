// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"mpbond/base/span"
	"mpbond/base/unit"
)

// TestSenderDelivers: whatever is lost or acknowledged late or twice, each byte reaches the peer
// within its window. Only lost bytes are sent again.
func TestSenderDelivers(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		data := make([]byte, 1+r.IntN(60_000))
		rand.NewChaCha8([32]byte{byte(seed)}).Read(data)
		var s sender
		got, have := make([]byte, len(data)), span.Set[uint64]{}
		var flying []segment
		sent, lost, acked, ended := 0, 0, 0, false
		for steps := 0; !s.isStreamFlushed(); steps++ {
			if steps > 100_000 {
				t.Fatalf("seed %d: stuck at %d of %d", seed, s.buf.base, s.written)
			}
			if n := int(s.written); n < len(data) {
				s.writeToBuffer(data[n:min(len(data), n+r.IntN(5000))])
			}
			s.fin = int(s.written) == len(data)
			s.raiseMaxData(s.buf.base + uint64(r.IntN(20_000)))
			if s.hasPendingData() {
				b, seg := s.appendStreamData(nil, 100+r.IntN(1400))
				var f frame
				for in := (frameReader{buf: b}); len(in.buf) > 0; {
					if err := in.readNextFrame(&f); err != nil {
						t.Fatal(err)
					}
					switch f.kind {
					case frameStream:
						copy(got[f.value:], f.data)
						sent += len(f.data)
						if end := f.value + uint64(len(f.data)); f.value != seg.lo || end != seg.hi || end > s.maxData {
							t.Fatalf("seed %d: a frame to %d for %+v, limit %d", seed, end, seg, s.maxData)
						}
					case frameFin:
						ended = f.value == uint64(len(data))
					}
				}
				if len(b) == 0 || !seg.fin && seg.hi == seg.lo {
					t.Fatalf("seed %d: nothing is sent at %d", seed, s.next)
				}
				flying = append(flying, seg)
			} else if s.isWindowBlocked() != (s.next < s.written) {
				t.Fatalf("seed %d: blocked: %v, with %v unsent", seed, s.isWindowBlocked(), s.unsentBytes())
			}
			for len(flying) > 0 && r.IntN(3) > 0 {
				i := r.IntN(len(flying))
				seg := flying[i]
				if r.IntN(4) == 0 {
					before := s.lost.Size()
					s.onSegmentLost(seg)
					lost += int(s.lost.Size() - before)
				} else {
					s.onSegmentAcked(seg)
					if seg.hi > seg.lo {
						have.Add(seg.lo, seg.hi)
					}
					if s.ackedBytes() != have.Size() {
						t.Fatalf("seed %d: %d of %d acknowledged", seed, s.ackedBytes(), have.Size())
					}
					acked++
				}
				if r.IntN(5) > 0 { // else it is acknowledged, or lost, once more
					flying = append(flying[:i], flying[i+1:]...)
				}
			}
		}
		if !bytes.Equal(got, data) || !ended || s.unackedStreamBytes() != 0 || acked == 0 {
			t.Fatalf("seed %d: ended %v, %v wait", seed, ended, s.unackedStreamBytes())
		}
		if sent > len(data)+lost {
			t.Errorf("seed %d: %d bytes sent of %d and %d lost", seed, sent, len(data), lost)
		}
	}
}

// TestSenderBounds: the buffer is bounded. Limits never decrease and are capped relative to the
// acknowledged bytes.
func TestSenderBounds(t *testing.T) {
	var s sender
	if n := s.writeToBuffer(make([]byte, maxSendBuffer+1)); n != maxSendBuffer || s.writeToBuffer([]byte("x")) != 0 {
		t.Errorf("%d bytes are taken", n)
	}
	s.raiseMaxData(1000)
	s.raiseMaxData(500)
	if s.maxData != 1000 {
		t.Errorf("a limit of %d", s.maxData)
	}
	if s.raiseMaxData(1 << 50); s.maxData != maxWindowAhead {
		t.Errorf("a limit of %d", s.maxData)
	}
	s.onSegmentAcked(segment{lo: 0, hi: 1 << 20})
	if s.writeToBuffer(make([]byte, 2<<20)) != 1<<20 || s.unackedStreamBytes() != unit.Bytes(maxSendBuffer) {
		t.Errorf("%v wait", s.unackedStreamBytes())
	}
}

// TestSenderOldest: a probe carries the first unacknowledged bytes, and none that were never sent.
func TestSenderOldest(t *testing.T) {
	s := sender{maxData: 10_000}
	s.writeToBuffer(make([]byte, 5000))
	if b, seg := s.appendOldest(nil, 1000); len(b) > 0 || seg != (segment{}) {
		t.Errorf("%+v before anything was sent", seg)
	}
	for s.hasPendingData() {
		s.appendStreamData(nil, 1000)
	}
	s.onSegmentAcked(segment{lo: 0, hi: 1000})
	s.onSegmentAcked(segment{lo: 1200, hi: 3000})
	if _, seg := s.appendOldest(nil, 1000); seg.lo != 1000 || seg.hi != 1200 {
		t.Errorf("%+v", seg)
	}
	if b, seg := s.appendOldest(nil, 20); len(b) > 0 || seg != (segment{}) {
		t.Errorf("%+v without room", seg)
	}
}
