// SPDX-License-Identifier: Apache-2.0

package board_test

import (
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/onload/board"
)

// TestOverlaps checks that a device requests small items while it carries another one, as many as
// fill the latency, but no large ones, and none twice.
func TestOverlaps(t *testing.T) {
	for _, c := range []struct {
		size unit.Bytes
		want int // under way over one device of 8 Mbit/s and 40 ms
	}{{5_000, 4}, {60_000, 3}, {120_000, 2}, {300_000, 1}} {
		s, err := board.New("auto")
		if err != nil {
			t.Fatal(err)
		}
		b := board.NewBoard(s, 1)
		b.SetConcurrency(4)
		b.SetUp(0)
		now := at(0)
		for i := range 2 { // the rate of the device is measured
			b.AddItems(board.Item{Object: i, To: c.size})
			first := drainOrders(b, now)
			if len(first) != 1 || first[0].Job.Path != 0 {
				t.Fatal(first)
			}
			now = now.Add(40 * time.Millisecond)
			b.ReportProgress(first[0].Job.ID, 0, now)
			now = now.Add(time.Duration(c.size) * time.Microsecond)
			b.Finish(first[0].Job.ID, now)
		}
		for i := range 8 {
			b.AddItems(board.Item{Object: 2 + i, To: c.size})
		}
		if n := len(drainOrders(b, now)); n != c.want {
			t.Errorf("items of %v: %d under way, not %d", c.size, n, c.want)
		}
	}
}

// TestOverlapsAtTheEnd checks that remaining items are not copied by another connection of the same
// device.
func TestOverlapsAtTheEnd(t *testing.T) {
	s, err := board.New("auto")
	if err != nil {
		t.Fatal(err)
	}
	b := board.NewBoard(s, 2)
	b.SetConcurrency(4)
	b.SetUp(0)
	b.SetUp(1)
	b.AddItems(makeItems(2, 10_000, false)...)
	first := drainOrders(b, at(0))
	if len(first) != 2 || first[0].Job.Path != 0 || first[1].Job.Path != 1 {
		t.Fatal(first)
	}
	b.ReportProgress(first[0].Job.ID, 1, at(0.05))
	b.Finish(first[0].Job.ID, at(0.06))
	for _, o := range drainOrders(b, at(0.06)) {
		if o.Kind == board.Start && o.Job.Path != 0 {
			t.Error("a copy over the device that carries the item", o)
		}
	}
	if list := b.DeviceStates(at(0.06)); len(list) != 2 {
		t.Errorf("%d paths", len(list))
	}
	b.SetDown(1, at(0.07))
	b.Exclude(0, 1, at(0.07))
	if b.SetUp(1); b.IsDone() {
		t.Error("a job under way was lost")
	}
}

// TestHomeHasSeveralConnections checks that several connections of the home line count as one home line, at any
// position in the list.
func TestHomeHasSeveralConnections(t *testing.T) {
	for connections := 1; connections <= 4; connections += 3 {
		s, err := board.New("auto")
		if err != nil {
			t.Fatal(err)
		}
		b := board.NewBoard(s, 2)
		b.SetConcurrency(connections)
		b.SetHome(1)
		b.AddItems(board.Item{Object: 0, To: 8e6, Splittable: true})
		b.SetUp(0)
		first := drainOrders(b, at(0))
		expectOrders(t, first, "start p0 0:0-8000000")
		b.ReportProgress(first[0].Job.ID, 0, at(0.1))
		b.ReportProgress(first[0].Job.ID, 1e6, at(1))
		b.SetUp(1)
		// The phone is silent: the home line takes all that is left, and the phone may help.
		expectOrders(t, drainOrders(b, at(3)),
			"cancel p0 0:0-1000000, start p1 0:1000000-8000000, shorten p1 0:1000000-4527778, start p0 0:4527778-8000000")
	}
}
