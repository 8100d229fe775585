// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"math/rand/v2"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// TestArrivedAgainstSpans drives marks and a set of ranges with the same bytes, in random
// order, as a stream does.
func TestArrivedAgainstSpans(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		var a arrivedSet
		var model seqSet
		next := wire.DataSeq(rng.IntN(3 * pageSize))
		a.removeArrived(next, next, 0)
		for range 400 {
			from := next + wire.DataSeq(rng.IntN(5*pageSize))
			if rng.IntN(4) == 0 {
				from = next
			}
			to := from + wire.DataSeq(rng.IntN([]int{3, 200, 3 * pageSize}[rng.IntN(3)]))
			var got, want seqSet
			a.eachMissing(from, to, func(from, to wire.DataSeq) { got.Add(from, to) })
			for from, to := range model.Missing(from, to) {
				want.Add(from, to)
			}
			if len(got) != len(want) || got.Size() != want.Size() {
				t.Fatalf("of [%d,%d) %v is missing, want %v", from, to, got, want)
			}
			model.Add(from, to)
			if from > next {
				a.markArrived(from, to)
			} else if from < to {
				after := a.findPosition(false, to, max(to, a.end))
				a.removeArrived(from, after, uint64(want.Size()))
				if after != model[0].To {
					t.Fatalf("all has arrived up to %d, want %d", after, model[0].To)
				}
				next = after
				model = model[1:]
			}
			end := wire.DataSeq(0)
			pages := map[wire.DataSeq]bool{}
			for _, p := range model {
				end = p.To
				for at := p.From - p.From%pageSize; at < p.To; at += pageSize {
					pages[at] = true
				}
			}
			if a.count != uint64(model.Size()) || a.end != end || a.bitmaps < len(pages) || a.bitmaps > len(pages)+1 {
				t.Fatalf("%d bytes up to %d on %d pages, want %d up to %d on %d", a.count, a.end, a.bitmaps, model.Size(), end,
					len(pages))
			}
		}
	}
}

// TestSmallWritesOverUnequalSubflows: an app writes 10 bytes at a time over two subflows, one with
// a delay of 2 s. This leaves 10,000 gaps at the far end, which are no reason to reset the stream.
func TestSmallWritesOverUnequalSubflows(t *testing.T) {
	n := newSim(t, "roundrobin", -1)
	n.addSubflow(1, n.newHopPair(50*unit.Mbps, 5*time.Millisecond), nil)
	n.addSubflow(2, n.newHopPair(50*unit.Mbps, 2*time.Second), nil)
	s, err := n.ends[0].OpenStream("far:1")
	if err != nil {
		t.Fatal(err)
	}
	n.foreign = s.ID()
	const size, piece = 300_000, 10
	sent, got, jumps := 0, 0, 0
	var write func()
	write = func() {
		if s.Room() >= piece {
			s.Write(n.fillPattern(s.ID(), 0, sent, piece))
			sent += piece
		}
		if sent < size {
			n.at(n.now.Add(40*time.Microsecond), 0, write)
		}
	}
	n.at(n.now.Add(100*time.Millisecond), 0, write)
	n.onEnd[0] = func(*Bond) {
		if s.err != nil {
			t.Fatalf("after %d bytes: %v", got, s.err)
		}
	}
	n.onEnd[1] = func(b *Bond) {
		far := b.streams.all[n.foreign]
		if far == nil {
			return
		}
		if far.reassembly.arrived.count > 0 {
			jumps = max(jumps, int(far.reassembly.arrived.count/piece))
		}
		if k := far.Readable(); k > 0 {
			far.Consume(k)
			got += k
		}
	}
	n.run(func() bool { return got == size })
	if t.Logf("%d pieces had gaps between them", jumps); jumps < 10_000 {
		t.Error("too few to show it")
	}
}
