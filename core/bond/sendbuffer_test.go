package bond

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

func TestSendBufferNext(t *testing.T) {
	for _, c := range []struct {
		name    string
		todo    spans
		limit   wire.DataSeq
		ahead   unit.Bytes
		fromEnd bool
		want    span
	}{
		{"the next", spans{{0, 1000}}, 1e6, 0, false, span{0, 100}},
		{"ahead", spans{{0, 1000}}, 1e6, 300, false, span{300, 400}},
		{"ahead over a gap", spans{{0, 100}, {500, 1000}}, 1e6, 150, false, span{550, 650}},
		{"further ahead than there is", spans{{0, 1000}}, 1e6, 5000, false, span{900, 1000}},
		{"further ahead than the window", spans{{0, 1000}}, 400, 5000, false, span{300, 400}},
		{"little left", spans{{40, 60}}, 1e6, 5000, false, span{40, 60}},
		{"last span beyond the window", spans{{0, 50}, {500, 900}}, 400, 10, false, span{0, 50}},
		{"from the end", spans{{0, 100}, {500, 1000}}, 1e6, 0, true, span{900, 1000}},
	} {
		s := &sendBuffer{unsent: c.todo, limit: c.limit, end: 1000}
		if got := s.next(c.ahead, 100, c.fromEnd); got != c.want {
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
		some := func() span {
			from := r.IntN(len(model) + 1)
			return span{wire.DataSeq(from), wire.DataSeq(from + r.IntN(len(model)-from+1))}
		}
		each := func(part span, f func(i wire.DataSeq)) {
			for i := part.from; i < part.to; i++ {
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
				if !s.write(p) {
					t.Fatal("no memory")
				}
			case 1:
				if raised := s.raiseLimit(s.limit + wire.DataSeq(r.IntN(4000)) - 1000); !raised && s.limit < 500 {
					t.Fatalf("seed %d: the limit fell to %d", seed, s.limit)
				}
			case 2, 3:
				if !s.sendable() {
					break
				}
				part := s.next(unit.Bytes(r.IntN(2000)), wire.DataSeq(1+r.IntN(1500)), r.IntN(4) == 0)
				if part.from >= part.to || part.to > s.limit {
					t.Fatalf("seed %d: %v is to be sent, the window ends at %d", seed, part, s.limit)
				}
				if got := s.append(nil, part); !bytes.Equal(got, text[part.from:part.to]) {
					t.Fatalf("seed %d: other bytes than were written", seed)
				}
				s.markSent(part)
				each(part, func(i wire.DataSeq) {
					if model[i]&isUnsent == 0 {
						t.Fatalf("seed %d: byte %d is sent, which is not unsent", seed, i)
					}
					model[i] = isInFlight
				})
			case 4:
				part := some()
				if s.anyUnacked(part) && r.IntN(3) == 0 {
					s.giveBack(part, r.IntN(2) == 0, func(p span) {
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
		left := s.held()
		if n := s.drop(); n != left || !s.empty() || s.held() != 0 || s.sendable() || s.pages.pool.inUse != 0 {
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
	if int(s.end) != len(model) || int(s.firstUnacked) != first || unit.Bytes(s.unsent.size()) != unsent || s.held() != held {
		t.Fatalf("end %d, first unacknowledged %d, %d unsent, %v held; want %d, %d, %v, %v", s.end, s.firstUnacked, s.unsent.size(), s.held(), len(model), first, unsent, held)
	}
	for _, part := range s.shared {
		s.eachUnacked(part, func(p span) {
			if p != part {
				t.Fatalf("%v of the shared %v is acknowledged", part, p)
			}
		})
	}
	if held == 0 && s.pages.pool.inUse > 0 {
		t.Fatalf("%d pages are held for nothing", s.pages.pool.inUse)
	}
}
