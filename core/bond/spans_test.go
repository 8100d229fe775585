package bond

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"mpbond/link/wire"
)

// TestSpansAgainstModel drives the set with random operations beside a plain
// bitmap.
func TestSpansAgainstModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var s spans
		var model [200]bool
		for range 60 {
			from := wire.DataSeq(rng.IntN(len(model)))
			to := from + wire.DataSeq(rng.IntN(len(model)-int(from)+1))
			if rng.IntN(3) > 0 {
				want := uint64(0)
				for i := from; i < to; i++ {
					if !model[i] {
						want++
					}
					model[i] = true
				}
				if got := s.add(from, to); got != want {
					t.Fatalf("add [%d,%d): %d new, want %d", from, to, got, want)
				}
			} else {
				for i := from; i < to; i++ {
					model[i] = false
				}
				s.remove(from, to)
			}
			var got [200]bool
			last := wire.DataSeq(0)
			for i, p := range s {
				if p.from >= p.to || i > 0 && p.from <= last {
					t.Fatalf("not sorted and apart: %v", s)
				}
				last = p.to
				for j := p.from; j < p.to; j++ {
					got[j] = true
				}
			}
			if got != model {
				t.Fatalf("set %v does not match the model", s)
			}
			from, to = 20, 180
			var gaps [200]bool
			s.missing(from, to, func(a, b wire.DataSeq) {
				for j := a; j < b; j++ {
					gaps[j] = true
				}
			})
			for j := from; j < to; j++ {
				if gaps[j] == model[j] {
					t.Fatalf("missing() of %v is wrong at %d", s, j)
				}
			}
		}
	}
}

func TestPages(t *testing.T) {
	pool := &pagePool{}
	p := pages{pool: pool}
	want := make([]byte, 5*pageSize+123)
	for i := range want {
		want[i] = byte(i * 7)
	}
	// Written out of order in odd pieces, read and released in order.
	for from := len(want) / 1000 * 1000; from >= 0; from -= 1000 {
		p.reserve(wire.DataSeq(from), wire.DataSeq(min(from+1000, len(want))))
		p.write(wire.DataSeq(from), want[from:min(from+1000, len(want))])
	}
	if got := p.append(nil, 0, wire.DataSeq(len(want))); !bytes.Equal(got, want) {
		t.Fatal("bytes read differ from those written")
	}
	p.release(3*pageSize + 5)
	if pool.inUse != 3 || len(pool.free) != 3 {
		t.Errorf("after release: %d pages in use, %d free; want 3 and 3", pool.inUse, len(pool.free))
	}
	if got := p.append(nil, 3*pageSize+5, wire.DataSeq(len(want))); !bytes.Equal(got, want[3*pageSize+5:]) {
		t.Error("bytes after release differ")
	}
	p.drop()
	if pool.inUse != 0 {
		t.Errorf("%d pages leaked", pool.inUse)
	}
}
