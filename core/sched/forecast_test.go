// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"testing"
	"time"

	"mpbond/base/unit"
)

// TestForecastBytes checks that a subflow in slow start carries (2^k − 1) windows in k round trips,
// and no more than its ceiling from then on.
func TestForecastBytes(t *testing.T) {
	// A window of 10,000 bytes each 100 ms.
	known := Subflow{Th: 800 * unit.Kbps}
	growing := Subflow{Th: 800 * unit.Kbps, DoublingTime: 100 * ms}
	capped := Subflow{Th: 800 * unit.Kbps, DoublingTime: 100 * ms, Ceiling: 1600 * unit.Kbps}
	below := Subflow{Th: 800 * unit.Kbps, DoublingTime: 0, Ceiling: 400 * unit.Kbps}
	for _, c := range []struct {
		name   string
		p      Subflow
		within time.Duration
		want   unit.Bytes
	}{
		{"known", known, 300 * ms, 30_000},
		{"one round trip", growing, 100 * ms, 10_000},
		{"three round trips", growing, 300 * ms, 70_000},
		{"up to the ceiling", capped, 100 * ms, 10_000},
		{"beyond the ceiling", capped, 300 * ms, 50_000},
		{"at its limit", below, 100 * ms, 10_000},
		{"no time", growing, 0, 0},
	} {
		if got := c.p.forecastBytes(c.within); got < c.want-2 || got > c.want+2 {
			t.Errorf("%s: %d bytes, want %d", c.name, got, c.want)
		}
	}
	if n := growing.forecastBytes(time.Hour); n <= 0 {
		t.Errorf("an hour of slow start: %d bytes", n)
	}
}

// TestSoonestPAD checks that soonestPAD inverts forecastBytes, and gives no credit to a subflow
// whose bytes are late.
func TestSoonestPAD(t *testing.T) {
	for _, ceiling := range []unit.Rate{0, 1600 * unit.Kbps, 6 * unit.Mbps} {
		p := Subflow{Th: 800 * unit.Kbps, DoublingTime: 100 * ms, Ceiling: ceiling, MinRTT: 100 * ms}
		for queued := unit.Bytes(0); queued < unit.MB; queued = queued*2 + 1000 {
			p.PAD = p.MinRTT/2 + p.Th.Time(queued)
			got := p.soonestPAD()
			if n := p.forecastBytes(got - p.MinRTT/2); n < queued-queued/100-10 || n > queued+queued/100+10 {
				t.Errorf("ceiling %v, %v queued: %v, in which %v leave", ceiling, queued, got, n)
			}
			if got > p.PAD {
				t.Errorf("ceiling %v, %v queued: %v, PAD %v", ceiling, queued, got, p.PAD)
			}
			late := p
			late.IsAckLate = true
			if late.soonestPAD() != p.PAD {
				t.Errorf("late, %v queued: %v, want PAD %v", queued, late.soonestPAD(), p.PAD)
			}
		}
	}
}

// TestAutoInSlowStart checks that a slow subflow gets nothing that a fast one in slow start will
// have delivered before, and nothing that would fill the window first.
func TestAutoInSlowStart(t *testing.T) {
	fast := Subflow{ID: 1, PAD: 5 * ms, MinRTT: 10 * ms, Th: 12 * unit.Mbps, MSS: 1448, DoublingTime: 10 * ms}
	slow := Subflow{ID: 2, Idle: true, PAD: 80 * ms, MinRTT: 160 * ms, Th: 700 * unit.Kbps, MSS: 1448, Measured: true}
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
		if d := a.Pick([]Subflow{f, slow}, c.remaining); d.Wait != c.wait {
			t.Errorf("%s: %+v", c.name, d)
		}
	}
}

// TestAutoProves checks how much unmeasured subflows may hold.
func TestAutoProves(t *testing.T) {
	const mss = 1448
	for _, c := range []struct {
		name            string
		inFlight, acked unit.Bytes
		others          unit.Bytes // in flight on another unmeasured subflow
		remaining       unit.Bytes
		measured        bool
		want            bool
	}{
		{"the first segment", 0, 0, 0, unit.MB, false, true},
		{"the second", mss, 0, 0, unit.MB, false, true},
		{"the tenth", 9 * mss, 0, 0, 10 * unit.MB, false, true},
		{"the eleventh", 10 * mss, 0, 0, 10 * unit.MB, false, false},
		{"the eleventh, after an acknowledgement", 10 * mss, mss, 0, 10 * unit.MB, false, true},
		{"half of what it has delivered", 20 * mss, 40 * mss, 0, unit.MB, false, true},
		{"measured", 100 * mss, mss, 0, unit.MB, true, true},
		{"a hundredth is under a segment", 0, 0, 0, 140_000, false, false},
		{"a hundredth is used up", 0, 0, 10_000, unit.MB, false, false},
		{"a hundredth is used up, but it has proved more", mss, 3 * mss, 10_000, unit.MB, false, true},
	} {
		list := []Subflow{
			{ID: 1, PAD: 5 * ms, MinRTT: 10 * ms, Th: unit.Mbps, MSS: mss, Measured: true},
			{ID: 2, Idle: true, PAD: 80 * ms, MinRTT: 160 * ms, Th: unit.Mbps, MSS: mss, Helped: true,
				InFlight: c.inFlight, Acked: c.acked, Measured: c.measured},
			{ID: 3, PAD: 90 * ms, MinRTT: 180 * ms, Th: unit.Mbps, MSS: mss, Helped: true, InFlight: c.others},
		}
		a := &auto{}
		a.ObserveWindow(Window{Size: unit.GB, Room: unit.GB}, time.Time{})
		if d := a.Pick(list, c.remaining); d.Wait == c.want {
			t.Errorf("%s: %+v", c.name, d)
		}
	}
}

// TestDiffIsTheSum checks that PAMS and auto count what all faster busy subflows deliver.
func TestDiffIsTheSum(t *testing.T) {
	list := []Subflow{
		{ID: 1, PAD: 10 * ms, MinRTT: 20 * ms, Th: 4 * unit.Mbps, MSS: 1448, Measured: true},
		{ID: 2, PAD: 10 * ms, MinRTT: 20 * ms, Th: 2 * unit.Mbps, MSS: 1448, Measured: true},
		{ID: 3, Idle: true, PAD: 110 * ms, MinRTT: 220 * ms, Th: unit.Mbps, MSS: 1448, Measured: true},
	}
	for _, s := range []Scheduler{pams{}, &auto{}} {
		// In 100 ms the two carry 50 and 25 KB.
		if d := s.Pick(list, 70_000); !d.Wait || d.Diff != 75_000 {
			t.Errorf("%s, 70 KB: %+v", s.Name(), d)
		}
		if d := s.Pick(list, 80_000); d.Wait || d.Subflow != 3 || d.Diff != 75_000 {
			t.Errorf("%s, 80 KB: %+v", s.Name(), d)
		}
	}
}

// TestAutoDoesNotWaitForItself checks that a helper that auto may not try yet keeps no other subflow
// waiting: nothing would ever move.
func TestAutoDoesNotWaitForItself(t *testing.T) {
	list := []Subflow{
		{ID: 1, Helped: true, PAD: 5 * ms, MinRTT: 10 * ms, Th: unit.Mbps, MSS: 1448, Measured: true, Acked: unit.MB},
		{ID: 2, Helped: true, Idle: true, PAD: 20 * ms, MinRTT: 40 * ms, Th: 10 * unit.Mbps, MSS: 1448},
		{ID: 3, Helped: true, Idle: true, PAD: 100 * ms, MinRTT: 200 * ms, Th: unit.Mbps, MSS: 1448, Measured: true,
			Acked: unit.MB},
	}
	if d := (&auto{}).Pick(list, 50_000); d.Wait || d.Subflow != 3 {
		t.Errorf("%+v", d)
	}
}
