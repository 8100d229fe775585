// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

func TestSendBufferNext(t *testing.T) {
	for _, c := range []struct {
		name   string
		todo   seqSet
		limit  wire.DataSeq
		ahead  unit.Bytes
		shared bool
		want   seqSpan
	}{
		{"the next", seqSet{{From: 0, To: 1000}}, 1e6, 0, false, seqSpan{From: 0, To: 100}},
		{"ahead", seqSet{{From: 0, To: 1000}}, 1e6, 300, false, seqSpan{From: 300, To: 400}},
		{"ahead over a gap", seqSet{{From: 0, To: 100}, {From: 500, To: 1000}}, 1e6, 150, false, seqSpan{From: 550, To: 650}},
		{"further ahead than there is", seqSet{{From: 0, To: 1000}}, 1e6, 5000, false, seqSpan{From: 900, To: 1000}},
		{"further ahead than the window", seqSet{{From: 0, To: 1000}}, 400, 5000, false, seqSpan{From: 300, To: 400}},
		{"little left", seqSet{{From: 40, To: 60}}, 1e6, 5000, false, seqSpan{From: 40, To: 60}},
		{"last span beyond the window", seqSet{{From: 0, To: 50}, {From: 500, To: 900}}, 400, 10, false,
			seqSpan{From: 0, To: 50}},
		{"recalled from live subflows", seqSet{{From: 0, To: 100}, {From: 500, To: 1000}}, 1e6, 0, true,
			seqSpan{From: 900, To: 1000}},
	} {
		s := &sendBuffer{unsent: c.todo, limit: c.limit, end: 1000}
		if c.shared {
			s.alsoInFlight = slices.Clone(c.todo)
		}
		if got := s.nextUnsentSpan(c.ahead, 100); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestSendableRoom(t *testing.T) {
	for _, c := range []struct {
		name   string
		unsent seqSet
		limit  wire.DataSeq
		want   unit.Bytes
	}{
		{"all written", nil, 1500, 500},
		{"beyond the window", seqSet{{From: 900, To: 1000}}, 950, 50},
		{"a recalled byte behind bytes in flight", seqSet{{From: 100, To: 200}}, 1500, 600},
		{"none", seqSet{{From: 900, To: 1000}}, 800, 0},
	} {
		s := &sendBuffer{unsent: c.unsent, limit: c.limit, end: 1000}
		if got := s.sendableRoom(); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// Where a byte of the model is.
const (
	isUnsent = 1 << iota
	isInFlight
	isAcked
)

// TestSendBuffer holds a sendBuffer against a model of one mark for each byte, through random
// operations.
func TestSendBuffer(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 5))
		s := sendBuffer{pages: pages{pool: &pagePool{}}, limit: 500}
		var model []byte
		var text []byte
		some := func() seqSpan {
			from := r.IntN(len(model) + 1)
			return seqSpan{From: wire.DataSeq(from), To: wire.DataSeq(from + r.IntN(len(model)-from+1))}
		}
		each := func(part seqSpan, f func(i wire.DataSeq)) {
			for i := part.From; i < part.To; i++ {
				f(i)
			}
		}
		for range 300 {
			switch r.IntN(6) {
			case 0:
				p := make([]byte, r.IntN(3000))
				for i := range p {
					p[i] = byte(r.Uint32())
					model = append(model, isUnsent)
				}
				text = append(text, p...)
				if s.appendUnsent(p) < len(p) {
					t.Fatal("no memory")
				}
			case 1:
				if raised := s.raiseLimit(s.limit + wire.DataSeq(r.IntN(4000)) - 1000); !raised && s.limit < 500 {
					t.Fatalf("seed %d: the limit fell to %d", seed, s.limit)
				}
			case 2, 3:
				if !s.isSendable() {
					break
				}
				part := s.nextUnsentSpan(unit.Bytes(r.IntN(2000)), wire.DataSeq(1+r.IntN(1500)))
				if part.From >= part.To || part.To > s.limit {
					t.Fatalf("seed %d: %v is to be sent, the window ends at %d", seed, part, s.limit)
				}
				if got := s.appendSpan(nil, part); !bytes.Equal(got, text[part.From:part.To]) {
					t.Fatalf("seed %d: other bytes than were written", seed)
				}
				s.markSpanSent(part)
				each(part, func(i wire.DataSeq) {
					if model[i]&isUnsent == 0 {
						t.Fatalf("seed %d: byte %d is sent, which is not unsent", seed, i)
					}
					model[i] = isInFlight
				})
			case 4:
				part := some()
				if s.hasUnacked(part) && r.IntN(3) == 0 {
					s.requeueSpan(part, r.IntN(2) == 0, func(p seqSpan) {
						each(p, func(i wire.DataSeq) { model[i] = isUnsent })
					})
				}
			case 5:
				part, n := some(), unit.Bytes(0)
				each(part, func(i wire.DataSeq) {
					if model[i] != isAcked {
						n++
					}
					model[i] = isAcked
				})
				if got := s.acknowledge(part); got != n {
					t.Fatalf("seed %d: %v newly acknowledged, want %v", seed, got, n)
				}
			}
			checkSendBuffer(t, &s, model)
		}
		left := s.countUnacked()
		if n := s.dropHeldBytes(); n != left || !s.isFullyAcked() || s.countUnacked() != 0 || s.isSendable() ||
			s.pages.pool.inUse != 0 {
			t.Errorf("seed %d: dropped %v of %v, %d pages are left", seed, n, left, s.pages.pool.inUse)
		}
	}
}

func checkSendBuffer(t *testing.T, s *sendBuffer, model []byte) {
	t.Helper()
	var unsent, held unit.Bytes
	first := len(model)
	for i, m := range model {
		if m != isAcked {
			held++
			first = min(first, i)
		}
		if m == isUnsent {
			unsent++
		}
	}
	if int(s.end) != len(model) || int(s.firstUnacked) != first || unit.Bytes(s.unsent.Size()) != unsent ||
		s.countUnacked() != held {
		t.Fatalf("end %d, first unacknowledged %d, %d unsent, %v held; want %d, %d, %v, %v", s.end, s.firstUnacked,
			s.unsent.Size(), s.countUnacked(), len(model), first, unsent, held)
	}
	for _, part := range s.alsoInFlight {
		s.eachUnacked(part, func(p seqSpan) {
			if p != part {
				t.Fatalf("%v of the shared %v is acknowledged", part, p)
			}
		})
	}
	if held == 0 && s.pages.pool.inUse > 0 {
		t.Fatalf("%d pages are held for nothing", s.pages.pool.inUse)
	}
}
