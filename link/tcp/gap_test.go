// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"math/rand/v2"
	"testing"
	"time"

	"mpbond/base/unit"
)

// TestReceiveGap checks that the estimate follows what a receiver holds behind gaps, over random losses
// and retransmissions that come late, and that nothing remains of it a second after the last gap.
func TestReceiveGap(t *testing.T) {
	const packet, tick = 1448, 50 * time.Millisecond
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 7))
		loss, late, small := r.Float64()*0.1, 1+r.IntN(30), r.IntN(2) == 0
		var g receiveGap
		var counts receivedCounts
		now := time.Unix(1000, 0)
		sizes, have := []unit.Bytes{}, []bool{} // of each packet sent
		var missing []struct{ packet, dueTick int }
		next, total := 0, unit.Bytes(0)
		short, tickShort := unit.Bytes(0), unit.Bytes(0) // what packets lacked while there was a gap, and in this tick
		arrive := func(i int) {
			have[i], total, counts.packets = true, total+sizes[i], counts.packets+1
			tickShort += packet - sizes[i]
			if i != next {
				counts.outOfOrder++
				return
			}
			for next < len(have) && have[next] {
				counts.bytes += uint64(sizes[next])
				next++
			}
		}
		const lossy, quiet = 200, 25 // ticks
		for k := range lossy + quiet {
			tickShort = 0
			gap, before := total > unit.Bytes(counts.bytes), counts.outOfOrder
			for len(missing) > 0 && (missing[0].dueTick <= k || k >= lossy) {
				i := missing[0].packet
				missing = missing[1:]
				arrive(i)
			}
			for range 1 + r.IntN(40) {
				size := unit.Bytes(packet)
				if small && r.IntN(4) == 0 {
					size = 100
				}
				sizes, have = append(sizes, size), append(have, false)
				if i := len(sizes) - 1; k < lossy && r.Float64() < loss {
					missing = append(missing, struct{ packet, dueTick int }{i, k + late})
				} else {
					arrive(i)
				}
			}
			now = now.Add(tick)
			if gap || counts.outOfOrder > before {
				short += tickShort
			}
			got, want := g.updateGap(now, counts, packet), total-unit.Bytes(counts.bytes)
			switch {
			case small && (got < want*9/10 || got > want+short || k == lossy+quiet-1 && got != 0):
				t.Fatalf("seed %d, tick %d, small packets: %v behind a gap, estimate %v", seed, k, want, got)
			case !small && got != want:
				t.Fatalf("seed %d, tick %d: %v behind a gap, estimate %v", seed, k, want, got)
			}
		}
	}
}

// TestReceiveGapOfWrappedCounts checks that counters of 32 bits may wrap.
func TestReceiveGapOfWrappedCounts(t *testing.T) {
	var g receiveGap
	now := time.Unix(1000, 0)
	g.updateGap(now, receivedCounts{1<<32 - 2, 1<<32 - 1, 5000}, 1000)
	g.waiting = 0
	if got := g.updateGap(now, receivedCounts{2, 2, 6000}, 1000); got != 3000 {
		t.Errorf("%v behind a gap, want 3000 B", got)
	}
}
