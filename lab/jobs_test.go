// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/base/waittest"
)

// Each experiment reaches three repetitions before any has six. Within a round the longest one is
// first. Experiments that run alone are separate.
func TestOrderRounds(t *testing.T) {
	all := []Experiment{{Expected: 1}, {Expected: 3}, {RunAlone: true, Expected: 9}}
	want := []experimentRound{{1, 0}, {0, 0}, {1, 1}, {0, 1}}
	if got := orderRounds(all, phaseShared); len(got) != 2*len(roundReps) || !slices.Equal(got[:4], want) {
		t.Error(got)
	}
	all[0].StartFirst = true
	if got := orderRounds(all, phaseShared); !slices.Equal(got[:4], []experimentRound{{0, 0}, {1, 0}, {0, 1}, {1, 1}}) {
		t.Errorf("the shorter one is to be first: %v", got)
	}
	all[0].StartFirst = false
	if got := orderRounds(all, phaseAlone); len(got) != len(roundReps) || got[0] != (experimentRound{2, 0}) {
		t.Error(got)
	}
	turns := newRoundQueue(orderRounds(all, phaseShared))
	a, _ := turns.waitForRound()
	b, _ := turns.waitForRound()
	next := make(chan experimentRound)
	go func() {
		p, _ := turns.waitForRound() // both experiments are busy
		next <- p
	}()
	turns.finishRound(b)
	if got := <-next; a != want[0] || b != want[1] || got != want[3] {
		t.Errorf("%v, %v, %v", a, b, got)
	}
}

// TestBudget checks that the budget follows the share of disturbed transfers within its limits.
func TestBudget(t *testing.T) {
	b := newCPUBudget(2)
	feed := func(n, disturbed int) {
		for i := range n {
			b.addTransfer(Result{Seconds: 1, Disturbed: i%10 < disturbed})
		}
	}
	start := b.currentCores()
	if feed(budgetWindow, 2); b.currentCores() != start { // between the limits
		t.Errorf("a fifth is disturbed: %v", b.currentCores())
	}
	if feed(budgetWindow, 5); math.Abs(b.currentCores()/start-0.75) > 1e-9 {
		t.Errorf("half is disturbed: %v, want three quarters of %v", b.currentCores(), start)
	}
	if feed(100*budgetWindow, 10); b.currentCores() != 2*budgetLeast {
		t.Errorf("all is disturbed: %v", b.currentCores())
	}
	if feed(100*budgetWindow, 0); b.currentCores() != 2*budgetMost {
		t.Errorf("nothing is disturbed: %v", b.currentCores())
	}
}

// Transfers are admitted in order while they fit, also past one that has given up.
func TestAdmission(t *testing.T) {
	g := newAdmission(1)
	first, err := g.waitForAdmission(t.Context(), .6)
	if err != nil {
		t.Fatal(err)
	}
	entered := make(chan string, 3)
	waiting := func(n int) {
		t.Helper()
		waittest.Until(t, fmt.Sprint(n, " in the queue"), func() bool {
			g.mu.Lock()
			defer g.mu.Unlock()
			return len(g.queue) == n
		})
	}
	var wg sync.WaitGroup
	leaves := make(chan func(), 3)
	enter := func(ctx context.Context, name string, need float64) {
		wg.Go(func() {
			leave, err := g.waitForAdmission(ctx, need)
			if err != nil {
				entered <- "not " + name
				return
			}
			entered <- name
			leaves <- leave
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	enter(ctx, "large", 5) // runs alone when it can
	waiting(1)
	enter(t.Context(), "small", .3) // would fit, but came later
	waiting(2)
	cancel()
	if a, b := <-entered, <-entered; a+b != "not largesmall" && a+b != "smallnot large" {
		t.Error(a, b)
	}
	first()
	first() // the first call counts
	enter(t.Context(), "next", .7)
	if got := <-entered; got != "next" {
		t.Error(got)
	}
	wg.Wait()
	(<-leaves)()
	(<-leaves)()
	if g.used > 1e-9 || g.used < -1e-9 || len(g.queue) != 0 {
		t.Errorf("%v in use, %d wait", g.used, len(g.queue))
	}
	if _, err := newAdmission(0).waitForAdmission(t.Context(), 100); err != nil {
		t.Error(err)
	}
}

func TestDisturbed(t *testing.T) {
	ms := time.Millisecond
	for _, c := range []struct {
		late  Lateness
		took  time.Duration
		timed bool
		want  bool
	}{
		{Lateness{P99: ms, P999: 9 * ms, Max: 9 * ms}, 2 * time.Second, false, false},
		{Lateness{P99: ms, P999: 9 * ms, Max: 11 * ms}, 2 * time.Second, false, true},
		{Lateness{P99: ms, Max: 2 * ms}, 100 * ms, false, false}, // 0.5 % would be too strict for any machine
		{Lateness{P99: ms, Max: 3 * ms}, 100 * ms, false, true},
		{Lateness{P99: 3 * ms, Max: 4 * ms}, 80 * time.Second, false, true},
		{Lateness{P99: ms, Max: 40 * ms}, 10 * time.Second, false, false},
		{Lateness{P99: ms, Max: 40 * ms}, 10 * time.Second, true, true},
		{Lateness{P99: ms, Max: 19 * ms}, 3 * time.Second, true, false},
		{Lateness{P99: 3 * ms, Max: 4 * ms}, 10 * time.Second, true, true},
	} {
		if got := c.late.isDisturbed(c.took, c.timed); got != c.want {
			t.Errorf("%+v", c)
		}
	}
}

func TestDrives(t *testing.T) {
	all, err := LoadDrives("")
	if err != nil || len(all) != 7 {
		t.Fatalf("%d drives, %v", len(all), err)
	}
	for _, d := range all {
		p, err := d.RunSpec(DriveLength)
		if err != nil {
			t.Fatal(err)
		}
		if bound, err := p.Bound(); err != nil || bound < DriveLength {
			t.Errorf("%s: %v are through after %v, %v", d.Name, p.Size, bound, err)
		}
		if q, err := DriveSpec(d.Name); err != nil || q.Size != p.Size || q.Length != DriveLength {
			t.Errorf("%s: the plan by name is %v of %v, %v", d.Name, q.Length, q.Size, err)
		}
		if d.Upload != (d.Name == "UL_3_15") || d.MeanRate(0, DriveLength) > maxDriveRate {
			t.Errorf("%s: %v", d.Name, d.MeanRate(0, DriveLength))
		}
	}
	if _, err := DriveSpec("DL"); err == nil {
		t.Error("a drive that is not there has a plan")
	}
	dir := t.TempDir()
	for _, c := range []struct{ text, err string }{
		{"t,a,b\n0,1,60\n2,3,4\n", ""},
		{"t,a,b\n0,1,1\n", "two rows"},
		{"t,a,b\n0,1,1\n0,1,1\n", "ascend"},
		{"t,a,b\n0,1,-1\n1,1,1\n", "not a time or rate"},
		{"t,a,b\n0,1,x\n1,1,1\n", "not a time or rate"},
		{"t,a\n0,1\n1,1\n", "two rates"},
		{"", "header"},
	} {
		if err := os.WriteFile(filepath.Join(dir, "DL_x.csv"), []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		all, err := LoadDrives(dir)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q: %v", c.text, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if a, b := all[0].MeanRate(0, 4*time.Second), all[0].MeanRate(1, 4*time.Second); a != 2*unit.Mbps ||
			b != 22*unit.Mbps {
			t.Errorf("means %v, %v", a, b)
		}
	}
	if _, err := LoadDrives(t.TempDir()); err == nil {
		t.Error("no drives are drives")
	}
}

// TestRunAll runs two labs at once. A scheme that one experiment cannot run must not affect the
// other one.
func TestRunAll(t *testing.T) {
	needPrograms(t, "curl", "nginx", "ip", "nft")
	var all []Experiment
	for range 2 {
		top, err := Triangle("8/10/5")
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, Experiment{Spec: RunSpec{Topology: top, Schemes: []string{"single", "single:helper1"},
			Size: 64 * unit.KB, Reps: 2, KeepDisturbed: true}})
	}
	bad := all[0]
	bad.Spec.Schemes = []string{"pigeon"}
	all = append(all, bad, Experiment{RunAlone: true, Spec: all[0].Spec})
	got := map[int]int{}
	running, most, ended := 0, 0, 0
	errs := make([]error, len(all))
	RunAll(t.Context(), all, NewJobs(2), func(i int, scheme string, rep int) bool {
		return i == 1 && scheme == "single" && rep == 0
	}, Events{
		RoundBegan: func(i int) {
			if running++; i == 3 && running > 1 {
				t.Error("it is not alone")
			}
			most = max(most, running)
		},
		Result: func(i int, r Result) {
			if r.Error != "" || !r.SHA {
				t.Errorf("%+v", r)
			}
			by := map[string]string{"single": "primary", "single:helper1": "helper1"}[r.Scheme]
			if r.Devices[by] < r.Bytes {
				t.Errorf("%s: %v", r.Scheme, r.Devices)
			}
			got[i]++
		},
		RoundEnded: func(i int, err error, last bool) {
			running--
			errs[i] = err
			if last {
				ended++
			}
		},
	})
	if ended != len(all) || got[0] != 4 || got[1] != 3 || got[3] != 4 || most != 2 || running != 0 || errs[0] != nil ||
		errs[1] != nil || errs[2] == nil {
		t.Errorf("%v results, %d at once, %v", got, most, errs)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	RunAll(ctx, all, NewJobs(0), func(int, string, int) bool { return false }, Events{
		RoundBegan: func(int) {}, Result: func(int, Result) { t.Error("a transfer after the end") },
		RoundEnded: func(_ int, err error, _ bool) {
			if err != nil && !errors.Is(err, context.Canceled) && !strings.Contains(err.Error(), "pigeon") {
				t.Error(err)
			}
		},
	})
}

// TestRunLength ends transfers before they are complete, in both directions.
func TestRunLength(t *testing.T) {
	t.Parallel()
	needPrograms(t, "curl", "nginx")
	top, err := Triangle("8")
	if err != nil {
		t.Fatal(err)
	}
	for _, upload := range []bool{false, true} {
		p := RunSpec{Topology: top, Schemes: []string{"single"}, Size: 4 * unit.MB, Reps: 1, Upload: upload,
			Length: time.Second, KeepDisturbed: true}
		var r Result
		if err := Run(t.Context(), p, func(got Result) { r = got }); err != nil {
			t.Fatal(err)
		}
		// A sink that waits for a processor begins to count later than data arrives.
		most := unit.MB + (8 * unit.Mbps).Bytes(r.Starved+r.Lateness.Max)
		if r.Error != "" || !r.SHA || r.Seconds != 1 || r.Bytes < 300*unit.KB || r.Bytes > most || r.Bound > 1.2 {
			t.Errorf("upload %v: %+v", upload, r)
		}
	}
}

// TestMPTCPDirect adds a subflow over the same link.
func TestMPTCPDirect(t *testing.T) {
	t.Parallel()
	needPrograms(t, "curl", "nginx", "ip", "mptcpize")
	if _, err := os.Stat("/proc/sys/net/mptcp/enabled"); err != nil {
		t.Skip("needs a kernel with MPTCP")
	}
	top, err := Triangle("8")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int64{"mptcp:direct": 0, "mptcp:direct:subflows=2": 1}
	p := RunSpec{Topology: top, Schemes: []string{"mptcp:direct", "mptcp:direct:subflows=2"}, Size: 1500 * unit.KB,
		Reps: 1, KeepDisturbed: true}
	if err := Run(t.Context(), p, func(r Result) {
		if r.Error != "" || r.Notes["mptcp_joined"] != want[r.Scheme] {
			t.Errorf("%+v", r)
		}
	}); err != nil {
		t.Fatal(err)
	}
}

// A scheme that hangs is ended and later given up. Other schemes continue.
func TestRunGivesUp(t *testing.T) {
	t.Parallel()
	needPrograms(t, "curl", "nginx")
	top, err := Triangle("8")
	if err != nil {
		t.Fatal(err)
	}
	p := RunSpec{Topology: top, Schemes: []string{"single", "single:none"}, Size: 64 * unit.KB, Reps: 4,
		KeepDisturbed: true}
	s, err := p.newRunSession()
	if err != nil {
		t.Fatal(err)
	}
	s.schemes["single:none"] = &hangingScheme{}
	s.limits["single:none"] = 50 * time.Millisecond
	n := map[string]int{}
	if err := s.runInNewLab(t.Context(), func(r Result) {
		n[r.Scheme]++
		if hung := strings.Contains(r.Error, errTooLong.Error()); hung != (r.Scheme == "single:none") {
			t.Errorf("%+v", r)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if n["single"] != 4 || n["single:none"] != maxTimeouts {
		t.Error(n)
	}
}

// hangingScheme never comes up.
type hangingScheme struct{ singleScheme }

func (*hangingScheme) Start(ctx context.Context, _ *Bench) error { <-ctx.Done(); return ctx.Err() }
func (*hangingScheme) Stop(context.Context, *Bench) error        { return nil }
