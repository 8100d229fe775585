package sched

import (
	"testing"
	"time"

	"mpbond/unit"
)

const ms = time.Millisecond

// direct and helped are the two subflows of the published setup.
func paths(directIdle, helpedIdle bool, directPAD, helpedPAD time.Duration) []Path {
	return []Path{
		{ID: 1, Idle: directIdle, PAD: directPAD, SRTT: 50 * ms, Th: 8 * unit.Mbps},
		{ID: 2, Idle: helpedIdle, PAD: helpedPAD, SRTT: 70 * ms, Th: 5 * unit.Mbps},
	}
}

// queued makes what waits at the helped subflow exceed auto's budget.
func queued(p []Path) []Path {
	p[1].Wait = budget + 1
	return p
}

func TestDecisions(t *testing.T) {
	for _, c := range []struct {
		name, scheduler string
		paths           []Path
		remaining       unit.Bytes
		want            Decision
	}{
		{"nothing idle", "pams", paths(false, false, 25*ms, 40*ms), unit.MB, Decision{Wait: true, Reason: NoIdlePath}},
		{"both idle", "pams", paths(true, true, 25*ms, 40*ms), unit.MB, Decision{Path: 1, Reason: LeastPAD}},
		{"helped is quicker", "pams", paths(true, true, 90*ms, 40*ms), unit.MB, Decision{Path: 2, Reason: LeastPAD}},
		// Until the helped subflow delivers, 1 s from now, the direct one takes
		// 8 Mbit/s * 0.5 s = 500,000 bytes.
		{"direct busy, much left", "pams", paths(false, true, 500*ms, time.Second), 500_001, Decision{Path: 2, Reason: LeastIdlePAD, Diff: 500_000}},
		{"direct busy, exactly that left", "pams", paths(false, true, 500*ms, time.Second), 500_000, Decision{Path: 2, Reason: LeastIdlePAD, Diff: 500_000}},
		{"direct busy, little left", "pams", paths(false, true, 500*ms, time.Second), 499_999, Decision{Wait: true, Reason: FasterIsSoon, Diff: 500_000}},
		{"direct busy but slower", "pams", paths(false, true, 500*ms, 100*ms), 1, Decision{Path: 2, Reason: LeastPAD}},
		{"alone", "pams", paths(true, false, 25*ms, 0)[:1], 1, Decision{Path: 1, Reason: OnlyPath}},

		{"helped has enough queued", "auto", queued(paths(false, true, 25*ms, time.Second)), unit.MB, Decision{Wait: true, Reason: BudgetSpent}},
		{"queued, though the quickest", "auto", queued(paths(false, true, 2*time.Second, time.Second)), unit.MB, Decision{Wait: true, Reason: BudgetSpent}},
		{"little queued", "auto", paths(false, true, 500*ms, time.Second), unit.MB, Decision{Path: 2, Reason: LeastIdlePAD, Diff: 500_000}},

		{"never waits", "minpad", paths(false, true, 25*ms, time.Second), 1, Decision{Path: 2, Reason: LeastIdlePAD}},
		{"least", "minpad", paths(true, true, 25*ms, time.Second), 1, Decision{Path: 1, Reason: LeastPAD}},
		{"blind to the pipe", "minrtt", paths(true, true, time.Hour, 0), 1, Decision{Path: 1, Reason: LeastRTT}},
		{"takes what is idle", "minrtt", paths(false, true, 0, time.Hour), 1, Decision{Path: 2, Reason: LeastRTT}},
		{"nothing idle", "minrtt", paths(false, false, 0, 0), 1, Decision{Wait: true, Reason: NoIdlePath}},
		{"first turn", "roundrobin", paths(true, true, 0, 0), 1, Decision{Path: 1, Reason: NextInTurn}},
	} {
		s, err := New(c.scheduler)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Pick(c.paths, c.remaining); got != c.want {
			t.Errorf("%s, %s: %+v, want %+v", c.scheduler, c.name, got, c.want)
		}
	}
}

func TestRoundRobinTakesTurns(t *testing.T) {
	s, _ := New("roundrobin")
	p := []Path{{ID: 3, Idle: true}, {ID: 5, Idle: true}, {ID: 9, Idle: true}}
	for i, want := range []uint32{3, 5, 9, 3, 5} {
		if d := s.Pick(p, 1); uint32(d.Path) != want {
			t.Errorf("turn %d: path %d, want %d", i, d.Path, want)
		}
	}
	p[2].Idle = false
	if d := s.Pick(p, 1); d.Path != 3 {
		t.Errorf("a busy path's turn goes to %d, want 3", d.Path)
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
	if _, err := New("fastest"); err == nil {
		t.Error("an unknown name is accepted")
	}
	for r := Reason(0); r < reasonCount; r++ {
		if r.String() == "" {
			t.Errorf("reason %d has no text", r)
		}
	}
}
