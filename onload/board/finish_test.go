// SPDX-License-Identifier: Apache-2.0

package board_test

import (
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/onload/board"
)

// TestLeastTimeWeighs checks that the last item has a weight of three quarters in the rate of MIN.
func TestLeastTimeWeighs(t *testing.T) {
	b := newBoard(t, "min", 2, makeItems(7, 100, false)...)
	first := drainOrders(b, at(0))
	b.Finish(first[0].Job.ID, at(1)) // 100 bytes/s
	drainOrders(b, at(1))
	b.Finish(first[1].Job.ID, at(4)) // 25 bytes/s
	o := drainOrders(b, at(4))
	expectOrders(t, o, "start p1 6:0-100")
	b.Finish(o[0].Job.ID, at(5)) // 100 bytes/s: 81 in the mean, and 500 bytes wait for path 0
	b.AddItems(board.Item{Object: 7, To: 1000})
	expectOrders(t, drainOrders(b, at(5)), "start p1 7:0-1000")
}

// TestMoveIsPaid checks that the bytes of a moved item count as wasted, and that the limit of one
// item per path but one holds.
func TestMoveIsPaid(t *testing.T) {
	list := makeItems(2, 1_000_000, false)
	for i := range list {
		list[i].NoCopies = true
	}
	b := newBoard(t, "auto", 2, list...)
	first := drainOrders(b, at(0))
	b.ReportProgress(first[0].Job.ID, 0, at(0.1))
	b.Finish(first[1].Job.ID, at(0.5))
	b.ReportProgress(first[0].Job.ID, 900_000, at(100))
	moved := drainOrders(b, at(100))
	expectOrders(t, moved, "cancel p0 0:0-1000000, start p1 0:0-1000000")
	b.SetDown(1, at(101))
	again := drainOrders(b, at(101))
	expectOrders(t, again, "start p0 0:0-1000000")
	b.SetUp(1)
	b.ReportProgress(again[0].Job.ID, 0, at(101.1))
	b.ReportProgress(again[0].Job.ID, 500_000, at(300))
	expectOrders(t, drainOrders(b, at(300)), "")
}

// TestBeyondItsEnd checks that bytes beyond the end of a shortened job do not count.
func TestBeyondItsEnd(t *testing.T) {
	b := newBoard(t, "auto", 2, board.Item{To: 8e6, Splittable: true})
	o := drainOrders(b, at(0))
	expectOrders(t, o, "start p0 0:0-8000000, shorten p0 0:0-4000000, start p1 0:4000000-8000000")
	b.ReportProgress(o[0].Job.ID, 0, at(0.1))
	b.ReportProgress(o[0].Job.ID, 6e6, at(1))
	b.SetDown(0, at(1))
	b.Finish(o[2].Job.ID, at(2))
	expectOrders(t, drainOrders(b, at(2)), "")
	if !b.IsDone() {
		t.Error("the board is not done")
	}
}

// TestHelpsOldOnlyIfWorth checks that an older item is helped before the next is started only if
// that saves over twenty latencies.
func TestHelpsOldOnlyIfWorth(t *testing.T) {
	for size, want := range map[unit.Bytes]board.Reason{
		960_000:   board.NextItem, // would finish half a second earlier
		3_500_000: board.SplitsOlder,
	} {
		b := newBoard(t, "auto", 2, board.Item{To: 25_000}, board.Item{Object: 1, To: 1e6},
			board.Item{Object: 2, To: size, Splittable: true}, board.Item{Object: 3, To: 10_000, Splittable: true})
		first := drainOrders(b, at(0))
		b.ReportProgress(first[0].Job.ID, 0, at(0.05))
		b.Finish(first[0].Job.ID, at(0.1)) // 500 KB/s
		old := drainOrders(b, at(0.1))
		b.ReportProgress(first[1].Job.ID, 0, at(0.1)) // its latency is taken as 50 ms
		b.ReportProgress(old[0].Job.ID, 0, at(0.15))
		b.ReportProgress(old[0].Job.ID, 500_000, at(1.1))
		b.Finish(first[1].Job.ID, at(1.1))
		if o := drainOrders(b, at(1.1)); len(o) == 0 || o[0].Reason != want {
			t.Errorf("%v: %s", size, formatOrders(o))
		}
	}
}

// TestLatency checks that the latency is the lower one of the last two responses, and that the
// first one includes the connection setup.
func TestLatency(t *testing.T) {
	b, now := newBoard(t, "rr", 1, makeItems(3, 100, false)...), 0.0
	for _, c := range []struct{ took, want time.Duration }{{200, 100}, {300, 200}, {1000, 300}} {
		o := drainOrders(b, at(now))
		now += float64(c.took) / 1000
		b.ReportProgress(o[0].Job.ID, 1, at(now))
		if got := b.DeviceStates(at(now))[0].Latency.Round(time.Millisecond); got != c.want*time.Millisecond {
			t.Errorf("after one of %d ms it is %v, want %d ms", c.took, got, c.want)
		}
		b.Finish(o[0].Job.ID, at(now))
	}
}

// TestLeastTimeBlind checks that an item of unknown size counts as the mean of the known sizes.
// Otherwise all waiting items would go to the path with the least under way.
func TestLeastTimeBlind(t *testing.T) {
	var list []board.Item
	for i := range 8 {
		list = append(list, board.Item{Object: i, To: board.Unknown})
	}
	b := newBoard(t, "min", 2, list...)
	first := drainOrders(b, at(0))
	for _, o := range first {
		b.SetObjectSize(o.Job.ID, 1000, false)
	}
	b.Finish(first[1].Job.ID, at(1))
	second := drainOrders(b, at(1))
	expectOrders(t, second, "start p1 2:0--1")
	b.SetObjectSize(second[0].Job.ID, 1000, false)
	b.Finish(first[0].Job.ID, at(1.1)) // both rates are known now, and path 1 has 1000 bytes under way
	shares, now := map[int]int{}, 1.1
	under := append(second, drainOrders(b, at(now))...)
	for ; len(under) > 0; now++ {
		for _, o := range under {
			b.SetObjectSize(o.Job.ID, 1000, false)
			b.Finish(o.Job.ID, at(now+1))
			shares[o.Job.Path]++
		}
		under = drainOrders(b, at(now+1))
	}
	if shares[0] != 3 || shares[1] != 3 {
		t.Errorf("of six items the paths had %v", shares)
	}
}
