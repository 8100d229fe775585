// SPDX-License-Identifier: Apache-2.0

package board_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/onload/board"
)

var start = time.Unix(1000, 0)

func at(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }

// newBoard returns a board with items and with all devices up.
func newBoard(t *testing.T, name string, paths int, items ...board.Item) *board.Board {
	t.Helper()
	s, err := board.New(name)
	if err != nil {
		t.Fatal(err)
	}
	if s.Name() != name {
		t.Errorf("%s calls itself %s", name, s.Name())
	}
	b := board.NewBoard(s, paths)
	for p := range paths {
		b.SetUp(p)
	}
	b.AddItems(items...)
	return b
}

// drainOrders returns all pending orders.
func drainOrders(b *board.Board, now time.Time) (list []board.Order) {
	for {
		o, ok := b.NextOrder(now)
		if !ok {
			return list
		}
		list = append(list, o)
	}
}

func formatOrders(list []board.Order) string {
	var s []string
	for _, o := range list {
		s = append(s, fmt.Sprintf("%s p%d %d:%d-%d", []string{"start", "shorten", "cancel"}[o.Kind], o.Job.Path,
			o.Job.Item.Object, o.Job.Item.From, o.Job.Item.To))
	}
	return strings.Join(s, ", ")
}

func expectOrders(t *testing.T, got []board.Order, want string) {
	t.Helper()
	if s := formatOrders(got); s != want {
		t.Errorf("got %s\nwant %s", s, want)
	}
}

func makeItems(n int, size unit.Bytes, split bool) (list []board.Item) {
	for i := range n {
		list = append(list, board.Item{Object: i, To: size, Splittable: split})
	}
	return list
}

func TestGreedyCopiesTheOldest(t *testing.T) {
	b := newBoard(t, "grd", 2, makeItems(3, 100, false)...)
	first := drainOrders(b, at(0))
	expectOrders(t, first, "start p0 0:0-100, start p1 1:0-100")
	b.Finish(first[0].Job.ID, at(1))
	expectOrders(t, drainOrders(b, at(1)), "start p0 2:0-100")
	b.Finish(first[1].Job.ID, at(2))
	copied := drainOrders(b, at(2))
	expectOrders(t, copied, "start p1 2:0-100")
	if !b.Finish(copied[0].Job.ID, at(3)) || !b.IsDone() {
		t.Error("the copy did not count")
	}
	expectOrders(t, drainOrders(b, at(3)), "cancel p0 2:0-100")
}

func TestRoundRobinTurns(t *testing.T) {
	b := newBoard(t, "rr", 2, makeItems(5, 100, false)...)
	first := drainOrders(b, at(0))
	b.Finish(first[0].Job.ID, at(1))
	expectOrders(t, drainOrders(b, at(1)), "start p0 2:0-100")
	b.SetDown(1, at(2)) // all items belong to path 0 now, in order
	for _, want := range []string{"", "start p0 1:0-100", "start p0 3:0-100", "start p0 4:0-100"} {
		o := drainOrders(b, at(3))
		expectOrders(t, o, want)
		if len(o) == 0 {
			b.Finish(first[1].Job.ID+1, at(3)) // those of item 2
			continue
		}
		b.Finish(o[0].Job.ID, at(4))
	}
	if !b.IsDone() {
		t.Error("the board is not done")
	}
}

func TestLeastTimeQueues(t *testing.T) {
	b := newBoard(t, "min", 2, makeItems(7, 100, false)...)
	first := drainOrders(b, at(0))
	expectOrders(t, first, "start p0 0:0-100, start p1 1:0-100")
	b.Finish(first[0].Job.ID, at(1)) // 100 bytes/s
	next := drainOrders(b, at(1))
	expectOrders(t, next, "start p0 2:0-100")
	// 25 bytes/s: items 3, 4, 5 wait for path 0, item 6 finishes earlier here
	b.Finish(first[1].Job.ID, at(4))
	o := drainOrders(b, at(4))
	expectOrders(t, o, "start p1 6:0-100")
	if o[0].Reason != board.LeastTime {
		t.Error(o[0].Reason)
	}
}

func TestQueueTakesChunks(t *testing.T) {
	b := newBoard(t, "queue", 2, board.Item{To: 3 * board.DefaultChunk / 2, Splittable: true})
	expectOrders(t, drainOrders(b, at(0)), "start p0 0:0-524288, start p1 0:524288-786432")
}

// TestAutoSplits checks that the second path takes so much that both paths end together, that
// nothing else is started, and that nothing is copied.
func TestAutoSplits(t *testing.T) {
	b := newBoard(t, "auto", 2, board.Item{To: 8e6, Splittable: true})
	first := drainOrders(b, at(0))
	expectOrders(t, first, "start p0 0:0-8000000, shorten p0 0:0-4000000, start p1 0:4000000-8000000")
	a, z := first[0].Job.ID, first[2].Job.ID
	for s := range 31 { // path 0 has 1 MB/s, path 1 0.1 MB/s
		b.ReportProgress(a, unit.Bytes(s*1e5), at(0.1+float64(s)/10))
		b.ReportProgress(z, unit.Bytes(s*1e4), at(0.1+float64(s)/10))
	}
	expectOrders(t, drainOrders(b, at(3.1)), "")
	b.ReportProgress(a, 4e6, at(4))
	b.Finish(a, at(4))
	o := drainOrders(b, at(4))
	if len(o) != 2 || o[0].Kind != board.Shorten || o[1].Reason != board.SplitsLast {
		t.Fatal(formatOrders(o))
	}
	if taken := o[1].Job.Item.Size(); taken < 3e6 || taken > 3.6e6 {
		t.Errorf("took %v of 3.7 MB", taken)
	}
}

// TestAutoWaitsForSizes checks that an item of unknown size is copied only without a response for
// long, and is split as soon as possible.
func TestAutoWaitsForSizes(t *testing.T) {
	b := newBoard(t, "auto", 2, board.Item{To: board.Unknown})
	first := drainOrders(b, at(0))
	expectOrders(t, first, "start p0 0:0--1")
	expectOrders(t, drainOrders(b, at(0.9)), "")
	c := drainOrders(b, at(1.1))
	expectOrders(t, c, "start p1 0:0--1")
	if c[0].Reason != board.NoAnswer {
		t.Error(c[0].Reason)
	}
	b.SetObjectSize(c[0].Job.ID, 1e6, true)
	// A new path 1 is assumed to wait for its response as long as path 0.
	expectOrders(t, drainOrders(b, at(1.2)), "cancel p0 0:0-1000000, shorten p1 0:0-496724, start p0 0:496724-1000000")
}

// TestExcludedAndDropped checks that an excluded path gets other objects, and that a removed object
// can be added again.
func TestExcludedAndDropped(t *testing.T) {
	for _, name := range board.Names() {
		b := newBoard(t, name, 2, makeItems(2, 100, true)...)
		b.Exclude(0, 0, at(0))
		b.Exclude(1, 1, at(0))
		begun := map[string]bool{}
		for n := 0; !b.IsDone() && n < 10; n++ {
			for _, o := range drainOrders(b, at(1)) {
				begun[fmt.Sprintf("p%d %d", o.Job.Path, o.Job.Item.Object)] = true
				b.Finish(o.Job.ID, at(2))
			}
		}
		if !b.IsDone() || len(begun) != 2 || !begun["p0 1"] || !begun["p1 0"] {
			t.Errorf("%s: %v", name, begun)
		}
	}
	b := newBoard(t, "auto", 1, makeItems(1, 100, true)...)
	drainOrders(b, at(0))
	b.Exclude(0, 0, at(0))
	expectOrders(t, drainOrders(b, at(0)), "")
	b.RemoveObject(0)
	if !b.IsDone() {
		t.Error("the board is not done")
	}
	b.AddItems(makeItems(1, 70, true)...)
	expectOrders(t, drainOrders(b, at(0)), "start p0 0:0-70")
	b.RemoveObject(0)
	expectOrders(t, drainOrders(b, at(0)), "cancel p0 0:0-70")
}

// TestFailuresReturn checks that an item of a failed path waits again, without the received bytes
// of a splittable item, and is not started twice while a copy is running.
func TestFailuresReturn(t *testing.T) {
	for _, split := range []bool{false, true} {
		b := newBoard(t, "grd", 1, makeItems(2, 100, split)...)
		o := drainOrders(b, at(0))
		b.ReportProgress(o[0].Job.ID, 40, at(1))
		b.SetDown(0, at(2))
		expectOrders(t, drainOrders(b, at(2)), "")
		b.SetUp(0)
		want := "start p0 0:0-100"
		if split {
			want = "start p0 0:40-100"
		}
		expectOrders(t, drainOrders(b, at(3)), want)
	}
	b := newBoard(t, "grd", 2, makeItems(1, 100, false)...)
	o := drainOrders(b, at(0))
	expectOrders(t, o, "start p0 0:0-100, start p1 0:0-100")
	b.SetDown(0, at(1))
	expectOrders(t, drainOrders(b, at(1)), "")
	if b.IsDone() || !b.Finish(o[1].Job.ID, at(2)) || !b.IsDone() {
		t.Error("the copy did not count")
	}
	if b.Finish(o[0].Job.ID, at(3)) {
		t.Error("delivered twice")
	}
}

// TestOldestFirst checks that each item is delivered exactly once under random events, and that no
// scheduler starts an item before an older one, except those with queues, and auto, which plans.
func TestOldestFirst(t *testing.T) {
	for _, name := range board.Names() {
		for seed := range 200 {
			r := rand.New(rand.NewPCG(uint64(seed), 11))
			n := 1 + r.IntN(20)
			b := newBoard(t, name, 1+r.IntN(4), makeItems(n, 1000, false)...)
			var running []board.Job
			begun, delivered, newest := map[int]bool{}, map[int]int{}, -1
			for step := 0; !b.IsDone(); step++ {
				for _, o := range drainOrders(b, at(float64(step))) {
					i := o.Job.Item.Object
					running = slices.DeleteFunc(running, func(j board.Job) bool { return j.ID == o.Job.ID })
					if o.Kind != board.Start {
						continue
					}
					running = append(running, o.Job)
					if !begun[i] && i != newest+1 && (name == "grd" || name == "queue") {
						t.Fatalf("%s, seed %d: begins %d after %d", name, seed, i, newest)
					}
					begun[i], newest = true, max(newest, i)
				}
				if len(running) == 0 {
					t.Fatalf("%s, seed %d: no job is under way", name, seed)
				}
				at2, k := at(float64(step)+0.5), r.IntN(len(running))
				j := running[k]
				running = slices.Delete(running, k, k+1)
				switch r.IntN(4) {
				case 0:
					b.Fail(j.ID, at2)
				case 1:
					b.SetDown(j.Path, at2)
					b.SetUp(j.Path)
				default:
					if b.Finish(j.ID, at2) {
						delivered[j.Item.Object]++
					}
				}
			}
			for i := range n {
				if delivered[i] != 1 {
					t.Fatalf("%s, seed %d: item %d was delivered %d times", name, seed, i, delivered[i])
				}
			}
		}
	}
}

func TestNames(t *testing.T) {
	if _, err := board.New("x"); !fault.Is(err, fault.Usage) ||
		!strings.Contains(fault.HintOf(err), "auto, grd, min, queue, rr") {
		t.Error(err, fault.HintOf(err))
	}
	for r := board.NothingLeft; !strings.HasPrefix(r.String(), "reason "); r++ {
		if r.String() == "" {
			t.Errorf("reason %d has no text", r)
		}
	}
}

// TestOnce checks that no scheduler copies an item with NoCopies, and that auto moves a slow one to
// a fast idle path.
func TestOnce(t *testing.T) {
	for _, name := range board.Names() {
		list := makeItems(3, 1_000_000, false)
		for i := range list {
			list[i].NoCopies = true
		}
		b := newBoard(t, name, 2, list...)
		first := drainOrders(b, at(0))
		if len(first) != 2 {
			t.Fatal(name, first)
		}
		b.ReportProgress(first[0].Job.ID, 0, at(0))
		b.ReportProgress(first[1].Job.ID, 0, at(0))
		b.Finish(first[1].Job.ID, at(0.5))
		for _, o := range drainOrders(b, at(0.5)) {
			b.Finish(o.Job.ID, at(0.9))
		}
		b.ReportProgress(first[0].Job.ID, 10_000, at(0.95))
		expectOrders(t, drainOrders(b, at(0.95)), "")
		b.ReportProgress(first[0].Job.ID, 20_000, at(2))
		want := ""
		if name == "auto" {
			want = "cancel p0 0:0-1000000, start p1 0:0-1000000"
		}
		expectOrders(t, drainOrders(b, at(2)), want)
	}
}

// TestLeft checks that an item with NoCopies is left to a busy path that would finish it earlier,
// and is started if no path is busy.
func TestLeft(t *testing.T) {
	list := makeItems(4, 1_000_000, false)
	for i := range list {
		list[i].NoCopies = true
	}
	b := newBoard(t, "auto", 2, list...)
	first := drainOrders(b, at(0))
	b.ReportProgress(first[0].Job.ID, 0, at(0))
	b.ReportProgress(first[1].Job.ID, 0, at(0))
	b.ReportProgress(first[0].Job.ID, 900_000, at(9))
	b.Finish(first[1].Job.ID, at(9))
	second := drainOrders(b, at(9))
	expectOrders(t, second, "start p1 2:0-1000000")
	b.ReportProgress(second[0].Job.ID, 0, at(9))
	b.ReportProgress(second[0].Job.ID, 900_000, at(9.9))
	b.Finish(first[0].Job.ID, at(10))
	expectOrders(t, drainOrders(b, at(10)), "") // 10 s, while the other path needs 1 s for both
	b.SetDown(1, at(10))
	if got := drainOrders(b, at(10)); len(got) != 1 || got[0].Job.Path != 0 {
		t.Errorf("no path is busy: %v", got)
	}
}
