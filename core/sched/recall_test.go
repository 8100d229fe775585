// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"testing"
	"time"

	"mpbond/base/unit"
)

func TestRecall(t *testing.T) {
	two := func(fast, slow time.Duration, inFlight unit.Bytes) []Subflow {
		return []Subflow{{ID: 1, PAD: fast, Tail: fast, SRTT: 150 * ms, MinRTT: 50 * ms, Th: 8 * unit.Mbps},
			{ID: 2, PAD: slow, Tail: slow, SRTT: 70 * ms, Th: 5 * unit.Mbps, MSS: 1400, InFlight: inFlight}}
	}
	for _, c := range []struct {
		name        string
		paths       []Subflow
		eta         float64
		paper, auto Recall
	}{
		// 5 Mbit/s for 400 ms; auto lets the quick one carry 8/13 of that.
		{"slow by far", two(100*ms, 500*ms, unit.MB), 0.2, Recall{2, 250_000, Unlimited}, Recall{2, 153_846, Unlimited}},
		{"exactly eta", two(100*ms, 120*ms, unit.MB), 0.2, Recall{}, Recall{}},
		{"under a round trip", two(100*ms, 130*ms, unit.MB), 0.2, Recall{2, 18_750, Unlimited}, Recall{2, 3000, SmallGaps}},
		{"a little", two(20*ms, 25*ms, unit.MB), 0.2, Recall{2, 3125, Unlimited}, Recall{2, 1923, SmallGaps}},
		{"beyond the budget", two(10*ms, 60*ms, unit.MB), 0.2, Recall{2, 31_250, Unlimited}, Recall{2, 3000, SmallGaps}},
		// The helped one's tail is carried by the direct one already: copies the
		// other way would wait behind it.
		{"its tail was recalled", []Subflow{{ID: 1, PAD: 100 * ms, Tail: 100 * ms, Th: 8 * unit.Mbps, InFlight: unit.MB},
			{ID: 2, PAD: 500 * ms, Tail: 50 * ms, Th: unit.Mbps, InFlight: unit.MB}}, 0.2, Recall{}, Recall{}},
		{"another eta", two(100*ms, 500*ms, unit.MB), 4, Recall{}, Recall{}},
		{"nothing in flight on the slow one", two(100*ms, 500*ms, 0), 0.2, Recall{}, Recall{}},
		{"alone", two(100*ms, 500*ms, unit.MB)[1:], 0.2, Recall{}, Recall{}},
		{"none", nil, 0.2, Recall{}, Recall{}},
	} {
		if got := PaperRecall(c.paths, c.eta, Ledger{}); got != c.paper {
			t.Errorf("%s, paper: %+v, want %+v", c.name, got, c.paper)
		}
		if got := (&auto{}).Recall(c.paths, c.eta, Ledger{Given: 300_000}); got != c.auto {
			t.Errorf("%s, auto: %+v, want %+v", c.name, got, c.auto)
		}
	}
}

// TestMeasuredRecall: the paper's rule by what was measured, less what was
// recalled before.
func TestMeasuredRecall(t *testing.T) {
	paths := []Subflow{{ID: 1, PAD: 500 * ms, PastPAD: 100 * ms, Tail: 500 * ms, Th: 8 * unit.Mbps, InFlight: unit.MB},
		{ID: 2, PAD: 100 * ms, PastPAD: 500 * ms, Tail: 40 * ms, Th: 5 * unit.Mbps, InFlight: unit.MB}}
	if got, want := (&measuredPAMS{}).Recall(paths, 0.2, Ledger{}), (Recall{2, 212_500, Unlimited}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestAllowance: what auto copies for small gaps, by what was given and copied.
func TestAllowance(t *testing.T) {
	for _, c := range []struct {
		name string
		gap  time.Duration
		so   Ledger
		want Recall
	}{
		{"tiny", 50 * ms, Ledger{Given: 64 * unit.KB}, Recall{}},
		{"tiny, the estimates may be wrong", 150 * ms, Ledger{Given: 64 * unit.KB}, Recall{}},
		{"tiny, a link has failed", 250 * ms, Ledger{Given: 64 * unit.KB}, Recall{2, 96_153, Unlimited}},
		{"short", 50 * ms, Ledger{Given: 512 * unit.KB}, Recall{2, 5242, SmallGaps}},
		{"short, over a round trip", 60 * ms, Ledger{Given: 512 * unit.KB}, Recall{2, 23_076, Unlimited}},
		{"one part in a hundred", 50 * ms, Ledger{Given: 1_900_000}, Recall{2, 19_000, SmallGaps}},
		{"a part is spent", 50 * ms, Ledger{Given: 2_000_000, SmallGapRecalls: 18_000}, Recall{2, 2000, SmallGaps}},
		{"it is spent", 50 * ms, Ledger{Given: 2_000_000, SmallGapRecalls: 19_000}, Recall{}},
		{"more than is asked", 50 * ms, Ledger{Given: 10_000_000}, Recall{2, 19_230, SmallGaps}},
	} {
		paths := []Subflow{{ID: 1, PAD: 10 * ms, Tail: 10 * ms, SRTT: 150 * ms, MinRTT: 50 * ms, Th: 8 * unit.Mbps},
			{ID: 2, PAD: 10*ms + c.gap, Tail: 10*ms + c.gap, SRTT: 70 * ms, Th: 5 * unit.Mbps, MSS: 1400, InFlight: unit.MB}}
		if got := (&auto{}).Recall(paths, 0.2, c.so); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// TestRecallLate: what a helper has not delivered in time is recalled whatever the gap,
// and counts against no budget.
func TestRecallLate(t *testing.T) {
	paths := []Subflow{{ID: 1, PAD: 10 * ms, Tail: 10 * ms, MinRTT: 50 * ms, Th: 8 * unit.Mbps},
		{ID: 2, PAD: 60 * ms, Tail: 60 * ms, Th: 5 * unit.Mbps, MSS: 1400, InFlight: unit.MB, Helped: true, IsAckLate: true}}
	for _, so := range []Ledger{{Given: 64 * unit.KB}, {Given: 2_000_000, SmallGapRecalls: 20_000}} {
		if got, want := (&auto{}).Recall(paths, 0.2, so), (Recall{2, 19_230, Unlimited}); got != want {
			t.Errorf("%+v: %+v, want %+v", so, got, want)
		}
	}
}

// TestRecallLateDirect checks that an allowance bounds what is recalled since a direct subflow is late,
// and not what is recalled since it is slow.
func TestRecallLateDirect(t *testing.T) {
	for _, c := range []struct {
		name           string
		lateBy, slowBy time.Duration
		sent           Ledger
		want           Recall
	}{
		{"late", 60 * ms, 0, Ledger{Given: unit.MB}, Recall{2, 19_230, LateDirect}},
		{"late, else the fastest", 60 * ms, -5 * ms, Ledger{Given: unit.MB}, Recall{2, 19_230, LateDirect}},
		{"later than the allowance", 600 * ms, 0, Ledger{Given: 500_000}, Recall{2, 50_000 + shortTransfer, LateDirect}},
		{"a part is spent", 60 * ms, 0, Ledger{Given: 100_000, LateRecalls: shortTransfer}, Recall{2, 10_000, LateDirect}},
		{"it is spent", 60 * ms, 0, Ledger{Given: 100_000, LateRecalls: shortTransfer + 9000}, Recall{}},
		{"late and slow", 60 * ms, 200 * ms, Ledger{Given: unit.MB, LateRecalls: unit.MB}, Recall{2, 76_923, Unlimited}},
	} {
		slow := 10*ms + c.slowBy
		paths := []Subflow{{ID: 1, PAD: 10 * ms, Tail: 10 * ms, MinRTT: 50 * ms, Th: 8 * unit.Mbps},
			{ID: 2, PAD: slow, Tail: slow, LateBy: c.lateBy, Th: 5 * unit.Mbps, MSS: 1400, InFlight: unit.MB}}
		if got := (&auto{}).Recall(paths, 0.2, c.sent); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// TestCountRecalled checks that each budget has its own count.
func TestCountRecalled(t *testing.T) {
	var l Ledger
	l.CountRecalled(Unlimited, 1)
	l.CountRecalled(SmallGaps, 2)
	l.CountRecalled(LateDirect, 4)
	if want := (Ledger{SmallGapRecalls: 2, LateRecalls: 4}); l != want {
		t.Errorf("%+v, want %+v", l, want)
	}
}

// TestTrusted checks that a helper that has not delivered a packet holds bytes only while the others
// have enough to do until its failure would show.
func TestTrusted(t *testing.T) {
	direct := Subflow{ID: 1, Forecast: 30 * ms, Th: 8 * unit.Mbps}
	for _, c := range []struct {
		name      string
		acked     unit.Bytes
		inFlight  unit.Bytes
		remaining unit.Bytes
		want      bool
	}{
		// What the direct subflow sends in 130 ms is 130 KB.
		{"new, short transfer", 0, 0, 120_000, false},
		{"new, longer transfer", 0, 0, 140_000, true},
		{"new, its own bytes count", 0, 20_000, 120_000, true},
		{"proved", 1400, 20_000, 10_000, true},
		{"proved too little", 1399, 0, 10_000, false},
	} {
		helper := Subflow{ID: 2, Idle: true, Forecast: 20 * ms, TimeToAck: 130 * ms, Th: 5 * unit.Mbps, MSS: 1400,
			Helped: true, Acked: c.acked, InFlight: c.inFlight}
		if got := isSubflowTrusted([]Subflow{direct, helper}, &helper, c.remaining); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
		if d := (&auto{}).Pick([]Subflow{direct, helper}, c.remaining); d.Wait == c.want {
			t.Errorf("%s: %+v", c.name, d)
		}
		if !isSubflowTrusted([]Subflow{helper}, &helper, c.remaining) {
			t.Errorf("%s: the only subflow is not used", c.name)
		}
		if !isSubflowTrusted([]Subflow{direct, helper}, &direct, c.remaining) {
			t.Errorf("%s: the direct subflow is not used", c.name)
		}
	}
}
