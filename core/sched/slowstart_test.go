// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"testing"
	"time"

	"mpbond/base/unit"
)

// TestDeliverableWithin checks that a subflow in slow start delivers its window when half of it
// arrives, and twice as much in each round trip that follows, but no more than its ceiling and less
// what is in flight.
func TestDeliverableWithin(t *testing.T) {
	// A window of 10,000 bytes each 100 ms.
	known := Subflow{Th: 800 * unit.Kbps, Forecast: 50 * ms, HalfArrives: 50 * ms}
	growing, capped, late := known, known, known
	growing.DoublingTime = 100 * ms
	capped.DoublingTime, capped.Ceiling = 100*ms, 1600*unit.Kbps
	late.DoublingTime, late.IsAckLate = 100*ms, true
	busy := growing
	busy.InFlight, busy.Forecast = 15_000, 200*ms
	several := growing // half of three windows arrive in the second round trip
	several.InFlight, several.Forecast, several.HalfArrives = 30_000, 150*ms, 100*ms
	for _, c := range []struct {
		name string
		p    Subflow
		by   time.Duration
		want unit.Bytes
	}{
		{"known", known, 350 * ms, 30_000},
		{"known, before anything arrives", known, 40 * ms, 0},
		{"before anything arrives", growing, 40 * ms, 0},
		{"a window", growing, 51 * ms, 10_200},
		{"three windows", growing, 150 * ms, 30_000},
		{"seven windows", growing, 250 * ms, 70_000},
		{"less what is in flight", busy, 150 * ms, 15_000},
		{"several windows in flight: at least the rate after the forecast", several, 200 * ms, 5000},
		{"up to the ceiling", capped, 250 * ms, 40_000},
		{"late: as known", late, 250 * ms, 20_000},
	} {
		if got := c.p.deliverableWithin(c.by); got < c.want-2 || got > c.want+2 {
			t.Errorf("%s: %d bytes, want %d", c.name, got, c.want)
		}
	}
	if n := growing.deliverableWithin(time.Hour); n <= 0 {
		t.Errorf("an hour of slow start: %d bytes", n)
	}
}

// TestAutoInSlowStart checks that a slow subflow gets nothing that a fast one in slow start will
// have delivered before, and nothing that would fill the window first.
func TestAutoInSlowStart(t *testing.T) {
	fast := Subflow{ID: 1, PAD: 5 * ms, MinRTT: 10 * ms, Th: 12 * unit.Mbps, MSS: 1448, DoublingTime: 10 * ms}
	slow := Subflow{ID: 2, Idle: true, PAD: 80 * ms, MinRTT: 160 * ms, Th: 700 * unit.Kbps, MSS: 1448}
	for _, c := range []struct {
		name      string
		grows     bool
		remaining unit.Bytes
		room      unit.Bytes
		wait      bool
	}{
		{"short, fast in slow start", true, unit.MB, 8 * unit.MB, true},
		{"short, fast at its limit", false, unit.MB, 8 * unit.MB, false},
		{"long", true, 50 * unit.MB, 50 * unit.MB, false},
		{"long, small window", true, 50 * unit.MB, 512 * unit.KB, true},
		{"small window, fast at its limit", false, 50 * unit.MB, 512 * unit.KB, false},
	} {
		f := fast
		if !c.grows {
			f.DoublingTime = 0
		}
		a := &auto{}
		a.ObserveWindow(Window{Size: c.room, Room: c.room}, time.Time{})
		if d := a.Pick(forecastByPAD([]Subflow{f, slow}), c.remaining); d.Wait != c.wait {
			t.Errorf("%s: %+v", c.name, d)
		}
	}
}

// TestDiffIsTheSum checks that PAMS and auto count what all faster busy subflows deliver.
func TestDiffIsTheSum(t *testing.T) {
	list := []Subflow{
		{ID: 1, PAD: 10 * ms, MinRTT: 20 * ms, Th: 4 * unit.Mbps, MSS: 1448},
		{ID: 2, PAD: 10 * ms, MinRTT: 20 * ms, Th: 2 * unit.Mbps, MSS: 1448},
		{ID: 3, Idle: true, PAD: 110 * ms, MinRTT: 220 * ms, Th: unit.Mbps, MSS: 1448},
	}
	for _, c := range []struct {
		s    Scheduler
		diff unit.Bytes
	}{
		{pams{}, 75_000}, // in 100 ms the two carry 50 and 25 KB
		{&auto{}, 75_000},
	} {
		if d := c.s.Pick(forecastByPAD(list), c.diff-1000); !d.Wait || d.Diff != c.diff {
			t.Errorf("%s, less than that: %+v", c.s.Name(), d)
		}
		if d := c.s.Pick(forecastByPAD(list), c.diff+1000); d.Wait || d.Subflow != 3 || d.Diff != c.diff {
			t.Errorf("%s, more than that: %+v", c.s.Name(), d)
		}
	}
}

// TestAutoDoesNotWaitForItself checks that a helper that auto does not trust yet keeps no other
// subflow waiting: nothing would ever move.
func TestAutoDoesNotWaitForItself(t *testing.T) {
	list := []Subflow{
		{ID: 1, PAD: 200 * ms, MinRTT: 10 * ms, Th: 10 * unit.Mbps, MSS: 1448},
		{ID: 2, Helped: true, Idle: true, PAD: 20 * ms, MinRTT: 40 * ms, Th: 10 * unit.Mbps, MSS: 1448,
			TimeToAck: time.Second},
		{ID: 3, Helped: true, Idle: true, PAD: 100 * ms, MinRTT: 200 * ms, Th: unit.Mbps, MSS: 1448, Acked: unit.MB},
	}
	if d := (&auto{}).Pick(forecastByPAD(list), 50_000); d.Wait || d.Subflow != 3 {
		t.Errorf("%+v", d)
	}
}

// TestForecastsDoNotOverflow checks that a helper that shows its failure after many round trips of
// many direct subflows gets no bytes of a short transfer.
func TestForecastsDoNotOverflow(t *testing.T) {
	helper := Subflow{ID: 1, Helped: true, MSS: 1448, TimeToAck: time.Minute}
	list := []Subflow{helper}
	for range 20 {
		list = append(list, Subflow{Th: 10 * unit.Gbps, DoublingTime: ms, MinRTT: ms, Forecast: ms, HalfArrives: ms,
			MSS: 1448})
	}
	for n := range list {
		if list := list[:n+1]; isSubflowTrusted(list, &helper, 100*unit.KB) != (n == 0) {
			t.Errorf("%d direct subflows: trusted %v", n, n > 0)
		}
	}
}
