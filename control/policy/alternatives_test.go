// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

func TestAlternatives(t *testing.T) {
	wifi := newOwnSubflow(30*unit.Mbps, wire.RadioWiFi)
	lte := newOwnSubflow(25*unit.Mbps, wire.RadioCellular)
	for _, c := range []struct {
		name     string
		bytes    unit.Bytes
		subflows []Subflow
		want     []Alternative // without times and energies
	}{
		{"a message", 200, []Subflow{wifi, lte}, []Alternative{{Subflows: 1}, {Subflows: 2, WhyNot: WhyNotSlower},
			{Subflows: 3, WhyNot: WhyNotNeeded}}},
		{"a song", 20 * unit.MB, []Subflow{wifi, lte}, []Alternative{{Subflows: 3}, {Subflows: 1, WhyNot: WhyNotSlower},
			{Subflows: 2, WhyNot: WhyNotSlower}}},
		{"LTE costs money", 20 * unit.MB, []Subflow{wifi, metered(lte)}, []Alternative{{Subflows: 1},
			{Subflows: 2, WhyNot: WhyNotTier}, {Subflows: 3, WhyNot: WhyNotTier}}},
		{"one subflow", 200, []Subflow{lte}, []Alternative{{Subflows: 1}}},
	} {
		d := Demand{Pending: c.bytes}
		ChooseSubflows(c.subflows, d)
		got := AppendAlternatives(nil, c.subflows, d)
		for i := range got {
			got[i].Time, got[i].Energy = 0, 0
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// TestAlternativesKeepTheChoice checks, for random subflows, that the choice stays marked and comes
// first, that each set is listed once, and that nothing is allocated.
func TestAlternativesKeepTheChoice(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	list := make([]Alternative, 0, maxAlternatives+2)
	for range 2000 {
		subflows := make([]Subflow, 1+random.IntN(5))
		for i := range subflows {
			subflows[i] = Subflow{Direct: random.IntN(2) == 0, Rate: unit.Rate(1e5 + random.Int64N(1e8)),
				Delay: time.Duration(random.Int64N(int64(time.Second))), Radio: wire.Radio(random.IntN(4)),
				QuietFor: time.Duration(random.Int64N(int64(20 * time.Second))), Tier: wire.Tier(random.IntN(3)),
				RoundTrip: time.Duration(random.Int64N(int64(time.Second))), Loss: random.Float64() * .02}
		}
		d := Demand{Pending: unit.Bytes(random.Int64N(1 << 24))}
		ChooseSubflows(subflows, d)
		chosen := allowedSet(subflows)
		if n := testing.AllocsPerRun(1, func() { list = AppendAlternatives(list[:0], subflows, d) }); n > 0 {
			t.Fatalf("%g allocations", n)
		}
		if allowedSet(subflows) != chosen || list[0].Subflows != chosen || list[0].WhyNot != "" {
			t.Fatalf("the choice was %b; now %b is allowed, and first is %+v", chosen, allowedSet(subflows), list[0])
		}
		seen := map[uint64]bool{}
		for _, a := range list {
			if seen[a.Subflows] || a.Subflows != chosen && a.WhyNot == "" {
				t.Fatalf("%+v in %+v", a, list)
			}
			seen[a.Subflows] = true
		}
	}
}

// TestLossIsWeighed checks that a subflow that loses packets is left earlier, and never chosen for
// smaller streams.
func TestLossIsWeighed(t *testing.T) {
	lossy := func(loss float64) Subflow {
		s := newOwnSubflow(8*unit.Mbps, wire.RadioNone)
		s.RoundTrip, s.Loss = 50*time.Millisecond, loss
		return s
	}
	before := time.Duration(0)
	for _, loss := range []float64{0, .001, .01, .1} {
		s := lossy(loss)
		if took := s.finishAlone(20_000, present); took <= before {
			t.Errorf("with a loss of %g it takes %v, with less %v", loss, took, before)
		} else {
			before = took
		}
	}
	// least returns the smallest stream that leaves the lossy subflow for one that must wake.
	least := func(loss float64) unit.Bytes {
		for n := unit.Bytes(1000); ; n += 1000 {
			list := []Subflow{lossy(loss), newOwnSubflow(25*unit.Mbps, wire.RadioCellular)}
			if ChooseSubflows(list, Demand{Pending: n}); list[1].Allowed {
				return n
			}
		}
	}
	last := least(0)
	for _, loss := range []float64{.002, .01, .05} {
		n := least(loss)
		if n > last {
			t.Errorf("with a loss of %g streams of %d bytes wake LTE, with less of %d", loss, n, last)
		}
		last = n
	}
}

// TestBestOther checks that the best other set is the cheapest one in time and energy, and that to have
// bytes sooner than the app needs them counts nothing.
func TestBestOther(t *testing.T) {
	all := []Alternative{{Subflows: 1, Time: time.Second}, {Subflows: 2, Time: 400 * time.Millisecond, Energy: 40},
		{Subflows: 3, Time: 1100 * time.Millisecond, Energy: 1}}
	for in, want := range map[time.Duration]uint64{0: 2, 2 * time.Second: 3} {
		if other := BestOther(all, Demand{NeededIn: in}); other == nil || other.Subflows != want {
			t.Errorf("needed in %v: %+v, want set %d", in, other, want)
		}
	}
	if BestOther(all[:1], Demand{}) != nil {
		t.Error("the choice is the best other set")
	}
}
