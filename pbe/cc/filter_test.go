package cc

import (
	"math/rand/v2"
	"testing"
)

func TestExtreme(t *testing.T) {
	for _, less := range []bool{false, true} {
		r := rand.New(rand.NewPCG(1, 2))
		e := extreme{less: less}
		var list []point
		at := int64(0)
		for range 5000 {
			at += r.Int64N(4)
			p := point{at, r.Int64N(100)}
			list = append(list, p)
			e.add(p.at, p.v, 20)
			want := p.v
			for _, q := range list {
				if q.at >= at-20 && (q.v < want) == less && q.v != want {
					want = q.v
				}
			}
			if e.get() != want {
				t.Fatalf("less %v at %d: %d, want %d", less, at, e.get(), want)
			}
		}
	}
	var e extreme
	if !e.empty() || e.get() != 0 {
		t.Error("an empty one has a value")
	}
}
