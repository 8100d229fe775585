// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"math/rand/v2"
	"testing"
)

// TestRing compares a ring with a plain slice over random steps: bytes are filled in, sent,
// confirmed or dropped, and read again.
func TestRing(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		limit := 1 + rnd.IntN(3*initialRingSize)
		r := NewRing(limit)
		var held []byte // the model
		var given int
		var base uint64
		var next byte
		for range 400 {
			switch rnd.IntN(5) {
			case 0, 1:
				if len(held) == limit {
					break
				}
				p := r.WaitSpace()
				n := 1 + rnd.IntN(len(p))
				for i := range p[:n] {
					p[i] = next
					held = append(held, next)
					next += 7
				}
				r.CommitFilled(n)
			case 2, 3:
				if given == len(held) {
					break
				}
				if !r.WaitReady() {
					t.Fatal("a ring in which bytes wait is not ready")
				}
				b := r.Peek(1 + rnd.IntN(limit))
				if string(b) != string(held[given:given+len(b)]) || len(b) == 0 {
					t.Fatalf("seed %d: other bytes", seed)
				}
				if r.MarkSent(len(b)); seed%4 != 0 {
					given += len(b)
					break
				}
				r.MarkDropped(0) // a ring whose bytes are never read again
				held, base, given = held[given+len(b):], base+uint64(given+len(b)), 0
			case 4:
				n := rnd.IntN(given + 1)
				if again := r.AppendAt([]byte("x"), base+uint64(n),
					given-n); string(again[1:]) != string(held[n:given]) {
					t.Fatalf("seed %d: other bytes the second time", seed)
				}
				if n == given && rnd.IntN(2) == 0 {
					r.Confirm(base + 1<<40) // more than was sent confirms no more
				} else {
					r.Confirm(base + uint64(n))
				}
				r.Confirm(base) // an old position changes nothing
				held, base, given = held[n:], base+uint64(n), given-n
			}
			if now, most := r.Held(); now != len(held) || most > limit || len(r.buf) > limit {
				t.Fatalf("seed %d: holds %d of %d in %d bytes, limit %d", seed, now, len(held), len(r.buf), limit)
			}
		}
		r.EndFill()
		if r.AllSent() != (given == len(held)) || r.WaitReady() != (given < len(held)) {
			t.Errorf("seed %d: wrong after End", seed)
		}
		r.Kill()
		if r.WaitSpace() != nil || r.WaitReady() || r.AllSent() || r.WaitRoom() {
			t.Errorf("seed %d: alive after Kill", seed)
		}
	}
}
