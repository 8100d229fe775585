// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"math"
	"testing"
	"time"

	"mpbond/base/unit"
)

const ms = time.Millisecond

// direct and helped are the two subflows of the published setup.
func twoSubflows(directIdle, helpedIdle bool, directPAD, helpedPAD time.Duration) []Subflow {
	return []Subflow{
		{ID: 1, Idle: directIdle, PAD: directPAD, SRTT: 50 * ms, Th: 8 * unit.Mbps},
		{ID: 2, Idle: helpedIdle, PAD: helpedPAD, SRTT: 70 * ms, Th: 5 * unit.Mbps},
	}
}

// forecastByPAD makes the forecast of each subflow its PAD, as at constant rates.
func forecastByPAD(list []Subflow) []Subflow {
	for i := range list {
		list[i].Forecast, list[i].HalfArrives = list[i].PAD, list[i].MinRTT/2
	}
	return list
}

// withQueues makes what waits at the helped subflow exceed auto's budget.
func withQueues(p []Subflow) []Subflow {
	p[1].FarQueueTime = maxQueueBudget + 1
	return p
}

// withPastPAD sets what was measured.
func withPastPAD(p []Subflow, direct, helped time.Duration) []Subflow {
	p[0].PastPAD, p[1].PastPAD = direct, helped
	return p
}

// withDoubt makes the direct subflow doubtful and something wait at the helped one.
func withDoubt(wait time.Duration, p []Subflow) []Subflow {
	p[0].Doubtful, p[1].FarQueueTime = true, wait
	return p
}

func TestDecisions(t *testing.T) {
	for _, c := range []struct {
		name, scheduler string
		paths           []Subflow
		remaining       unit.Bytes
		want            Decision
	}{
		{"nothing idle", "pams", twoSubflows(false, false, 25*ms, 40*ms), unit.MB,
			Decision{Wait: true, Reason: NoIdleSubflow}},
		{"both idle", "pams", twoSubflows(true, true, 25*ms, 40*ms), unit.MB, Decision{Subflow: 1, Reason: Fastest}},
		{"helped is quicker", "pams", twoSubflows(true, true, 90*ms, 40*ms), unit.MB, Decision{Subflow: 2, Reason: Fastest}},
		// Until the helped subflow delivers, 1 s from now, the direct one takes
		// 8 Mbit/s * 0.5 s = 500,000 bytes.
		{"direct busy, much left", "pams", twoSubflows(false, true, 500*ms, time.Second), 500_001,
			Decision{Subflow: 2, Reason: FastestIdle, Diff: 500_000}},
		{"direct busy, exactly that left", "pams", twoSubflows(false, true, 500*ms, time.Second), 500_000,
			Decision{Subflow: 2, Reason: FastestIdle, Diff: 500_000}},
		{"direct busy, little left", "pams", twoSubflows(false, true, 500*ms, time.Second), 499_999,
			Decision{Wait: true, Reason: FasterIsSoon, Diff: 500_000}},
		{"direct busy but slower", "pams", twoSubflows(false, true, 500*ms, 100*ms), 1,
			Decision{Subflow: 2, Reason: Fastest}},
		{"alone", "pams", twoSubflows(true, false, 25*ms, 0)[:1], 1, Decision{Subflow: 1, Reason: OnlySubflow}},

		{"helped has enough queued", "auto", withQueues(twoSubflows(false, true, 25*ms, time.Second)), unit.MB,
			Decision{Wait: true, Reason: BudgetSpent}},
		{"queued, though the quickest", "auto", withQueues(twoSubflows(false, true, 2*time.Second, time.Second)), unit.MB,
			Decision{Wait: true, Reason: BudgetSpent}},
		{"little queued", "auto", twoSubflows(false, true, 500*ms, time.Second), unit.MB,
			Decision{Subflow: 2, Reason: FastestIdle, Diff: 500_000}},

		{"enough queued while the other is doubtful", "auto",
			withDoubt(maxQueueBudget*3/4, twoSubflows(false, true, 25*ms, time.Second)), unit.MB,
			Decision{Wait: true, Reason: BudgetSpent}},
		{"little queued while the other is doubtful", "auto",
			withDoubt(maxQueueBudget/3, twoSubflows(false, true, 500*ms, time.Second)), unit.MB,
			Decision{Subflow: 2, Reason: FastestIdle, Diff: 500_000}},

		{"what was measured counts", "pams-measured", withPastPAD(twoSubflows(true, true, 90*ms, 40*ms), 90*ms, 91*ms),
			unit.MB, Decision{Subflow: 1, Reason: Fastest}},
		{"measured, and little left", "pams-measured", withPastPAD(twoSubflows(false, true, 0, 0), 500*ms, time.Second),
			499_999, Decision{Wait: true, Reason: FasterIsSoon, Diff: 500_000}},
		{"a full buffer that nothing has left", "pams-measured",
			withPastPAD(twoSubflows(false, true, 500*ms, time.Second), 500*ms, 40*ms), 1,
			Decision{Subflow: 2, Reason: Fastest}},

		{"never waits", "minpad", twoSubflows(false, true, 25*ms, time.Second), 1,
			Decision{Subflow: 2, Reason: FastestIdle}},
		{"least", "minpad", twoSubflows(true, true, 25*ms, time.Second), 1, Decision{Subflow: 1, Reason: Fastest}},
		{"blind to the pipe", "minrtt", twoSubflows(true, true, time.Hour, 0), 1, Decision{Subflow: 1, Reason: LeastRTT}},
		{"takes what is idle", "minrtt", twoSubflows(false, true, 0, time.Hour), 1, Decision{Subflow: 2, Reason: LeastRTT}},
		{"nothing idle", "minrtt", twoSubflows(false, false, 0, 0), 1, Decision{Wait: true, Reason: NoIdleSubflow}},
		{"first turn", "roundrobin", twoSubflows(true, true, 0, 0), 1, Decision{Subflow: 1, Reason: NextInTurn}},
	} {
		s, err := New(c.scheduler)
		if err != nil {
			t.Fatal(err)
		}
		if w, ok := s.(WindowAware); ok {
			w.ObserveWindow(Window{BusyFor: time.Hour}, time.Unix(1, 0))
		}
		if got := s.Pick(forecastByPAD(c.paths), c.remaining); got != c.want {
			t.Errorf("%s, %s: %+v, want %+v", c.scheduler, c.name, got, c.want)
		}
	}
}

// TestDecisionsFromWindows: schedulers that look at more than PAD.
func TestDecisionsFromWindows(t *testing.T) {
	// The pair of subflows with more fields; f changes them.
	pair := func(directIdle, helpedIdle bool, f func(direct, helped *Subflow)) []Subflow {
		p := twoSubflows(directIdle, helpedIdle, 25*ms, 40*ms)
		for i := range p {
			p[i].MSS, p[i].Cwnd, p[i].FarCwnd = 1448, 50_000, 14_480
		}
		p[1].Helped = true
		if f != nil {
			f(&p[0], &p[1])
		}
		return p
	}
	for _, c := range []struct {
		name, scheduler string
		paths           []Subflow
		remaining       unit.Bytes
		window          Window
		want            Decision
	}{
		{"room in all windows", "minrtt-windows", pair(true, true, nil), 1, Window{}, Decision{Subflow: 1, Reason: LeastRTT}},
		{"own window full", "minrtt-windows", pair(true, true, func(d, _ *Subflow) { d.Flight = d.Cwnd }), 1, Window{},
			Decision{Subflow: 2, Reason: LeastRTT}},
		{"pipe's window full", "minrtt-windows", pair(false, true, func(_, h *Subflow) { h.FarFlight = h.FarCwnd }), 1,
			Window{}, Decision{Wait: true, Reason: WindowFull}},
		{"pipe's window nearly full", "minrtt-windows",
			pair(false, true, func(_, h *Subflow) { h.FarFlight = h.FarCwnd - 1 }), 1, Window{},
			Decision{Subflow: 2, Reason: LeastRTT}},
		{"a direct subflow has no far window", "minrtt-windows",
			pair(true, false, func(d, _ *Subflow) { d.FarFlight = 1 << 30 }), 1, Window{},
			Decision{Subflow: 1, Reason: LeastRTT}},
		{"nothing idle", "minrtt-windows", pair(false, false, nil), 1, Window{}, Decision{Wait: true, Reason: NoIdleSubflow}},

		// The direct one takes the rest in 25 + 15 ms, the helped one delivers in 40 ms: 15 ms at 8
		// Mbit/s are 15,000 bytes.
		{"fastest is idle", "ecf", pair(true, true, nil), unit.MB, Window{}, Decision{Subflow: 1, Reason: Fastest}},
		{"fastest completes too late", "ecf", pair(false, true, nil), 15_000, Window{},
			Decision{Subflow: 2, Reason: FastestIdle}},
		{"fastest completes first, but the slow one is soon done", "ecf", pair(false, true, nil), 14_999, Window{},
			Decision{Subflow: 2, Reason: FastestIdle}},
		{"fastest completes first", "ecf", pair(false, true, func(_, h *Subflow) { h.PAD = 50 * ms }), 24_999, Window{},
			Decision{Wait: true, Reason: FasterIsSoon}},
		{"not if both deviate", "ecf", pair(false, true, func(_, h *Subflow) { h.PAD, h.RTTVar = 50*ms, ms }), 24_999,
			Window{}, Decision{Subflow: 2, Reason: FastestIdle}},
		{"nothing idle", "ecf", pair(false, false, nil), 1, Window{}, Decision{Wait: true, Reason: NoIdleSubflow}},

		// rtts = 1.6: X = (25,000 + 1448*0.3) * 1.6 = 40,695; with λ 1.2 48,834.
		{"fastest is idle", "blest", pair(true, true, nil), 1, Window{}, Decision{Subflow: 1, Reason: Fastest}},
		{"the window has room for both", "blest", pair(false, true, nil), 1, Window{Size: 48_835 + 1448},
			Decision{Subflow: 2, Reason: FastestIdle}},
		{"the window is too small", "blest", pair(false, true, nil), 1, Window{Size: 48_833 + 1448},
			Decision{Wait: true, Reason: WouldBlock}},
		{"what is in flight counts", "blest", pair(false, true, func(_, h *Subflow) { h.InFlight = 100_000 }), 1,
			Window{Size: 148_833 + 1448}, Decision{Wait: true, Reason: WouldBlock}},
		{"nothing idle", "blest", pair(false, false, nil), 1, Window{}, Decision{Wait: true, Reason: NoIdleSubflow}},

		{"quickest first", "redundant", pair(true, true, nil), 1, Window{},
			Decision{Subflow: 1, Copy: true, Reason: OnEverySubflow}},
		{"no copy into a queue", "redundant",
			pair(false, true, func(_, h *Subflow) { h.FarQueueTime = MaxCopyFarWait + 1 }), 1,
			Window{}, Decision{Wait: true, Reason: BudgetSpent}},
		{"a short queue", "redundant", pair(false, true, func(_, h *Subflow) { h.FarQueueTime = MaxCopyFarWait }), 1,
			Window{},
			Decision{Subflow: 2, Copy: true, Reason: OnEverySubflow}},
		{"nothing idle", "redundant", pair(false, false, nil), 1, Window{}, Decision{Wait: true, Reason: NoIdleSubflow}},

		{"within the budget", "auto", pair(false, true, func(_, h *Subflow) { h.FarQueueTime = maxQueueBudget }), unit.MB,
			Window{}, Decision{Subflow: 2, Reason: FastestIdle, Diff: 15_000}},
		{"beyond the budget", "auto", pair(false, true, func(_, h *Subflow) { h.FarQueueTime = maxQueueBudget + 1 }), unit.MB,
			Window{}, Decision{Wait: true, Reason: BudgetSpent}},
		{"a local hop that has fallen, and enough waits", "auto",
			pair(false, true, func(_, h *Subflow) { h.FallenQueueTime = maxQueueBudget + 1 }), unit.MB,
			Window{SourceIsLimit: true}, Decision{Wait: true, Reason: BudgetSpent}},
		{"a local hop that has fallen", "auto",
			pair(false, true, func(_, h *Subflow) { h.FallenQueueTime = maxQueueBudget }), unit.MB,
			Window{}, Decision{Subflow: 2, Reason: FastestIdle, Diff: 15_000}},
		{"the source has ended", "auto",
			pair(false, true, func(_, h *Subflow) { h.FarQueueTime = maxFinalQueueBudget }), unit.MB,
			Window{SourceIsLimit: true}, Decision{Subflow: 2, Reason: FastestIdle, Diff: 15_000}},
		{"the source has ended, and enough waits at the helper", "auto",
			pair(false, true, func(_, h *Subflow) { h.FarQueueTime = maxFinalQueueBudget + 1 }), unit.MB,
			Window{SourceIsLimit: true}, Decision{Wait: true, Reason: BudgetSpent}},
		{"another one in doubt", "auto", pair(false, true,
			func(d, h *Subflow) { d.Doubtful, h.FarQueueTime = true, maxFinalQueueBudget/2+1 }), unit.MB,
			Window{SourceIsLimit: true}, Decision{Wait: true, Reason: BudgetSpent}},

		{"enough for the beginning", "auto",
			pair(false, true, func(_, h *Subflow) { h.FarQueueTime = minQueueBudget + 1 }), unit.MB, Window{BusyFor: 1},
			Decision{Wait: true, Reason: BudgetSpent}},
		{"little enough for the beginning", "auto",
			pair(false, true, func(_, h *Subflow) { h.FarQueueTime = minQueueBudget }), unit.MB, Window{BusyFor: 1},
			Decision{Subflow: 2, Reason: FastestIdle, Diff: 15_000}},
		{"its share of the time that has passed", "auto",
			pair(false, true, func(_, h *Subflow) { h.FarQueueTime = 150 * ms }), unit.MB,
			Window{BusyFor: queueShare * 150 * ms}, Decision{Subflow: 2, Reason: FastestIdle, Diff: 15_000}},
		{"more than its share of it", "auto",
			pair(false, true, func(_, h *Subflow) { h.FarQueueTime = 151 * ms }), unit.MB,
			Window{BusyFor: queueShare * 150 * ms}, Decision{Wait: true, Reason: BudgetSpent}},

		{"the beginning, though the source has ended", "auto",
			pair(false, true, func(_, h *Subflow) { h.FarQueueTime = minQueueBudget + 1 }), unit.MB,
			Window{BusyFor: 1, SourceIsLimit: true}, Decision{Wait: true, Reason: BudgetSpent}},
		{"the beginning, and another one in doubt", "auto",
			pair(false, true, func(d, h *Subflow) { d.Doubtful, h.FarQueueTime = true, minQueueBudget }), unit.MB,
			Window{BusyFor: 1}, Decision{Subflow: 2, Reason: FastestIdle, Diff: 15_000}},
		{"enough at the helper, which is not trusted either", "auto",
			pair(false, true, func(_, h *Subflow) { h.Helped, h.FarQueueTime = true, time.Second }), 1,
			Window{}, Decision{Wait: true, Reason: BudgetSpent}},

		{"first", "ratio:0.6", pair(true, true, nil), 1, Window{}, Decision{Subflow: 1, Reason: BehindShare}},
		{"its turn, but busy", "ratio:0.6", pair(false, true, nil), 1, Window{}, Decision{Wait: true, Reason: NotItsTurn}},
		{"no share for the direct one", "ratio:0", pair(true, true, nil), 1, Window{},
			Decision{Subflow: 2, Reason: BehindShare}},
		{"alone, though without a share", "ratio:0", pair(true, true, nil)[:1], 1, Window{},
			Decision{Subflow: 1, Reason: BehindShare}},
		{"no subflow", "ratio:0.5", nil, 1, Window{}, Decision{Wait: true, Reason: NoIdleSubflow}},
	} {
		s, err := New(c.scheduler)
		if err != nil {
			t.Fatal(err)
		}
		if c.window.BusyFor == 0 {
			c.window.BusyFor = time.Hour
		}
		if w, ok := s.(WindowAware); ok {
			w.ObserveWindow(c.window, time.Unix(1, 0))
		}
		if got := s.Pick(forecastByPAD(c.paths), c.remaining); got != c.want {
			t.Errorf("%s, %s: %+v, want %+v", c.scheduler, c.name, got, c.want)
		}
	}
}

// TestECFHysteresis: once it waits, it takes a quarter more to stop waiting.
func TestECFHysteresis(t *testing.T) {
	s := &ecf{}
	p := twoSubflows(false, true, 25*ms, 100*ms) // 100 ms: 75,000 bytes; with β 125 ms: 100,000
	for i, c := range []struct {
		remaining unit.Bytes
		wait      bool
	}{{80_000, false}, {74_000, true}, {80_000, true}, {99_000, true}, {100_000, false}, {80_000, false}} {
		if d := s.Pick(p, c.remaining); d.Wait != c.wait {
			t.Errorf("%d: %v left: wait %v, want %v", i, c.remaining, d.Wait, c.wait)
		}
	}
}

// TestBLESTAdapts: λ rises after a round trip in which the window blocked,
// falls after one in which it did not, and stays within its bounds.
func TestBLESTAdapts(t *testing.T) {
	b := &blest{}
	p := twoSubflows(false, true, 25*ms, 100*ms)
	now := time.Unix(1, 0)
	pick := func(blocked uint64, later time.Duration) float64 {
		now = now.Add(later)
		b.ObserveWindow(Window{Size: unit.MB, Blocked: blocked}, now)
		b.Pick(p, unit.MB)
		return math.Round(b.lambda*1000) / 1000
	}
	for i, c := range []struct {
		blocked uint64
		later   time.Duration
		want    float64
	}{{7, 0, 1.2}, {7, 99 * ms, 1.2}, {7, ms, 1.19}, {8, 50 * ms, 1.19}, {8, 50 * ms, 1.23}, {9, 100 * ms, 1.27},
		{10, 100 * ms, 1.3}, {10, 100 * ms, 1.29}} {
		if got := pick(c.blocked, c.later); got != c.want {
			t.Errorf("%d: λ = %v, want %v", i, got, c.want)
		}
	}
	for range 100 {
		pick(10, time.Second)
	}
	if b.lambda != blestMin {
		t.Errorf("never blocked: λ = %v", b.lambda)
	}
}

// TestRatioShares: one direct and two helped subflows, and one that leaves.
func TestRatioShares(t *testing.T) {
	s, err := New("ratio:0.5")
	if err != nil {
		t.Fatal(err)
	}
	p := []Subflow{{ID: 1, Idle: true, Given: 12345}, {ID: 2, Idle: true, Helped: true}, {ID: 3, Idle: true, Helped: true}}
	count := func(n int) (got [3]unit.Bytes) {
		before := p
		p = append([]Subflow(nil), p...)
		for range n {
			d := s.Pick(p, unit.MB)
			for i := range p {
				if p[i].ID == d.Subflow {
					p[i].Given += 1000
				}
			}
		}
		for i := range p {
			got[i] = p[i].Given - before[i].Given
		}
		return got
	}
	if got := count(100); got != [3]unit.Bytes{50_000, 25_000, 25_000} {
		t.Errorf("three subflows: %v", got)
	}
	p = p[:2]
	if got := count(100); got != [3]unit.Bytes{50_000, 50_000} {
		t.Errorf("after one has left: %v", got)
	}
	p = p[1:]
	if got := count(100); got != [3]unit.Bytes{100_000} {
		t.Errorf("without a direct one: %v", got)
	}
}

func TestRoundRobinTakesTurns(t *testing.T) {
	s, _ := New("roundrobin")
	p := []Subflow{{ID: 3, Idle: true}, {ID: 5, Idle: true}, {ID: 9, Idle: true}}
	for i, want := range []uint32{3, 5, 9, 3, 5} {
		if d := s.Pick(p, 1); uint32(d.Subflow) != want {
			t.Errorf("turn %d: path %d, want %d", i, d.Subflow, want)
		}
	}
	p[2].Idle = false
	if d := s.Pick(p, 1); d.Subflow != 3 {
		t.Errorf("a busy path's turn goes to %d, want 3", d.Subflow)
	}
}

func TestNames(t *testing.T) {
	for _, n := range Names() {
		s, err := New(n)
		if err != nil || s.Name() != n {
			t.Errorf("%s: %v, %v", n, s, err)
		}
	}
	if s, err := New(""); err != nil || s.Name() != Default {
		t.Errorf("no name: %v, %v", s, err)
	}
	for _, bad := range []string{"fastest", "ratio:", "ratio:1.5", "ratio:-0.1", "ratio:NaN", "ratio:half", "pams:0.5"} {
		if _, err := New(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
	if s, err := New("Ratio:0.25"); err != nil || s.Name() != "ratio:0.25" {
		t.Errorf("ratio: %v, %v", s, err)
	}
	for r := Reason(0); r < reasonCount; r++ {
		if r.String() == "" {
			t.Errorf("reason %d has no text", r)
		}
	}
}
