//go:build linux

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/internal/cli"
	"mpbond/lab"
)

// measured is the report of an experiment of which all schemes took so many
// seconds, with a bound of 1 s.
func measured(g lab.Group, name string, size unit.Bytes, seconds map[string]float64) benchReport {
	r := benchReport{Name: name, Group: g, cell: lab.Cell{House: name, Size: size}, plan: lab.Plan{Size: size, Reps: 1}}
	for scheme, s := range seconds {
		r.plan.Schemes = append(r.plan.Schemes, scheme)
		r.Results = append(r.Results, lab.Result{Scheme: scheme, Bytes: size, Streams: 1, Seconds: s, Bound: 1, SHA: true, LongestGap: s / 2})
	}
	r.Summary = lab.Summarize(r.plan.Schemes, r.Results, false)
	return r
}

func TestClaims(t *testing.T) {
	twice := measured(lab.Stable, "twice", 4*unit.MB, map[string]float64{"mpbond": 1})
	twice.Summary[0].Twice = .02
	for _, c := range []struct {
		name    string
		reports []benchReport
		claim   string // of which
		misses  []string
		asked   int
	}{
		{"near the bound", []benchReport{measured(lab.Grid, "8/10/5", 2*unit.MB, map[string]float64{"mpbond": 1.05})}, "of the bound", nil, 1},
		{"far from the bound", []benchReport{measured(lab.Grid, "8/10/5", 2*unit.MB, map[string]float64{"mpbond": 1.06})}, "of the bound", []string{"8/10/5, 2 MB, down: 94.3 %"}, 1},
		{"small and far from the bound", []benchReport{measured(lab.Grid, "8/10/5", 64*unit.KB, map[string]float64{"mpbond": 2})}, "of the bound", nil, 0},
		{"a little slower", []benchReport{measured(lab.Grid, "1", unit.KB, map[string]float64{"mpbond": 1.03, "single": 1, "kibbutz": 2})}, "slower", nil, 1},
		{"the helper's link is the better path", []benchReport{measured(lab.Grid, "1", unit.KB, map[string]float64{"mpbond": 1.1, "single": 3, "single:helper1": 1, "kibbutz": .9})}, "single path",
			[]string{"10.0 % slower than the helper's link"}, 1},
		{"two users", []benchReport{measured(lab.Dual, "d", unit.MB, map[string]float64{"alone:primary": 1, "both:primary": 1.04, "alone:helper1": 2, "both:helper1": 2.2})}, "two users",
			[]string{"d: second user 2.20 s, +10.0 %"}, 2},
		{"slower than one", []benchReport{measured(lab.Grid, "1", unit.KB, map[string]float64{"mpbond": 1.1, "single": 1, "mpbond:pams": 2})}, "slower",
			[]string{"10.0 % slower than one link"}, 1},
		{"twice", []benchReport{twice}, "twice", []string{"twice: mpbond 2.0 %"}, 1},
		{"drop", []benchReport{measured(lab.Drop, "m4", 4*unit.MB, map[string]float64{"mpbond": 4.6, "mpbond:pams": 4.7})}, "4.26 s", []string{"PAMS 4.70 s"}, 2},
		{"worse without", []benchReport{measured(lab.Drop, "m4", 4*unit.MB, map[string]float64{"mpbond": 4, "mpbond:noreinject": 5})}, "visibly", nil, 1},
		{"no worse without", []benchReport{measured(lab.Drop, "m4", 4*unit.MB, map[string]float64{"mpbond:pams": 4, "mpbond:pams:noreinject": 4.1})}, "visibly",
			[]string{"PAMS: 4.00 s with, 4.10 s without"}, 1},
		{"fall", []benchReport{measured(lab.Fall, "f", 4*unit.MB, map[string]float64{"mpbond": 1.09, "mpbond:pams": 5})}, "slower: within", []string{"f: 1.09 s, +9.0 %"}, 1},
		{"silent", []benchReport{measured(lab.Silent, "s", 4*unit.MB, map[string]float64{"mpbond": 1.2, "kibbutz": 9})}, "silent", []string{"s: 0.60 s"}, 1},
		{"alone", []benchReport{
			measured(lab.Alone, "x", unit.KB, map[string]float64{"mpbond": 1, "single": 1}),
			measured(lab.Grid, "x", unit.KB, map[string]float64{"mpbond": 1.01, "single": 1.1}),
		}, "beside", []string{"single"}, 2},
	} {
		found := false
		for _, got := range claims(c.reports) {
			if !strings.Contains(got.text, c.claim) {
				continue
			}
			if got.asked == 0 && c.asked > 0 {
				continue
			}
			found = true
			if got.asked != c.asked || len(got.misses) != len(c.misses) {
				t.Errorf("%s: %+v", c.name, got)
				continue
			}
			for i, m := range c.misses {
				if !strings.Contains(got.misses[i], strings.Replace(m, "single", "one link", 1)) {
					t.Errorf("%s: %q, want %q", c.name, got.misses[i], m)
				}
			}
			break
		}
		if !found {
			t.Errorf("%s: no claim %q", c.name, c.claim)
		}
	}
}

func TestMatrixAndRides(t *testing.T) {
	reports := []benchReport{
		measured(lab.Grid, "8/10/5", 2*unit.MB, map[string]float64{"mpbond": 1.25, "mpbond:pams": 2, "kibbutz": 1.5, "single": 3}),
		{Name: "nothing yet", Group: lab.Grid, cell: lab.Cell{House: "1/18/5", Size: 64 * unit.KB}, plan: lab.Plan{Schemes: []string{"mpbond"}, Reps: 3}},
		measured(lab.Ride, "drive one", unit.MB, map[string]float64{"mpbond": 1, "single": 2, "single:helper1": 4, "kibbutz": 2}),
		measured(lab.Ride, "drive two", unit.MB, map[string]float64{"mpbond": 1, "single": 1}),
	}
	got := matrix(reports).markdown()
	want := "| 8/10/5, 2 MB, down | 1.000 s | 1.250 s | 2.000 s | 1.500 s | 3.000 s | 80.0 % | 1.200 | kernel MPTCP | 0.0 % | 4/4 |"
	if !strings.Contains(got, want) || !strings.Contains(got, "| 1/18/5, 64 KB, down | – |") || !strings.Contains(got, "| 0/3 |") {
		t.Error(got)
	}
	got = rides(reports).markdown()
	want = "| drive one | 4.19 Mbit/s | 2.1 Mbit/s | 4.19 Mbit/s | 8.39 Mbit/s | 2.00 | 1.33 | 100 % | 4/4 |"
	if !strings.Contains(got, want) || !strings.Contains(got, "| drive two | – |") || strings.Contains(got, "mean |") {
		t.Error(got)
	}
	b := &bench{reports: reports, experiments: make([]lab.Experiment, 4)}
	if text := b.tables(); !strings.Contains(text, "**Claims**") || !strings.Contains(b.stamp(), "10 of 13 planned") {
		t.Error(text, b.stamp())
	}
}

// TestJournal takes a run up where it was interrupted, with the last line cut
// off, and does not take over what failed or is of another version.
func TestJournal(t *testing.T) {
	defer func(was string) { cli.Version = was }(cli.Version)
	cli.Version = "v1"
	name := filepath.Join(t.TempDir(), "new", "bench.jsonl")
	e := lab.Experiment{Name: "e", Plan: lab.Plan{Size: unit.MB}}
	has := func(j *journal, e lab.Experiment, scheme string, rep int) bool {
		b := &bench{experiments: []lab.Experiment{e}, reports: []benchReport{{taken: j.of(e)}}}
		return b.made(0, scheme, rep)
	}
	j, err := openJournal(name, 1, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []lab.Result{{Scheme: "a"}, {Scheme: "a", Rep: 1, Disturbed: true}, {Scheme: "a", Rep: 2, Error: "x"}} {
		if err := j.add(e, r); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := j.file.WriteString(`{"version":"older","experiment":"` + j.key(e) + `","result":{"scheme":"b"}}` + "\n{\"vers"); err != nil {
		t.Fatal(err)
	}
	if err := j.close(false); err != nil {
		t.Fatal(err)
	}
	if j, err = openJournal(name, 1, false); err != nil {
		t.Fatal(err)
	}
	if err := j.add(e, lab.Result{Scheme: "c"}); err != nil {
		t.Fatal(err)
	}
	if err := j.close(false); err != nil {
		t.Fatal(err)
	}
	if j, err = openJournal(name, 1, false); err != nil {
		t.Fatal(err)
	}
	other := e
	other.Plan.Length = time.Second
	if !has(j, e, "a", 0) || has(j, e, "a", 1) || has(j, e, "a", 2) || has(j, e, "b", 0) || !has(j, e, "c", 0) || has(j, other, "a", 0) || len(j.of(e)) != 3 {
		t.Errorf("%+v", j.old)
	}
	if j.others() != 1 {
		t.Errorf("%d transfers of other versions", j.others())
	}
	if all, err := openJournal(name, 1, true); err != nil || !has(all, e, "b", 0) || all.others() != 0 {
		t.Errorf("any version: %+v, %v", all, err)
	}
	cli.Version = "v1-dirty"
	if dirty, err := openJournal(name, 1, false); err != nil || len(dirty.old) != 0 {
		t.Errorf("%v, %v", dirty, err)
	}
	cli.Version = "v1"
	if err := j.close(true); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(name + ".old"); err != nil {
		t.Error(err)
	}
	if j, err = openJournal(name, 2, false); err != nil || len(j.old) != 0 {
		t.Errorf("%v, %v", j, err)
	}
	if none, err := openJournal("", 1, false); err != nil || none.add(e, lab.Result{}) != nil || has(none, e, "a", 0) || none.close(true) != nil {
		t.Error("no journal")
	}
}

// TestBenchInterrupted: what is interrupted before it begins has measured
// nothing, says so, and writes what documents it was asked for.
func TestBenchInterrupted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "b.md")
	var out, errs strings.Builder
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b := &bench{benchOptions: benchOptions{markdown: file}, out: &out, screen: &errs,
		experiments: []lab.Experiment{{Name: "never", Group: lab.Grid, Plan: lab.Plan{Topology: &lab.Topology{}}}}}
	b.reports = []benchReport{{Name: "never", Group: lab.Grid, plan: lab.Plan{Schemes: []string{"single"}, Reps: 3}}}
	b.begin = time.Now()
	lab.RunAll(ctx, b.experiments, lab.NewJobs(1), b.made, lab.Events{Began: func(int) {}, Result: nil, Ended: func(i int, err error, _ bool) { _ = b.pause(i, err) }})
	if err := b.finish(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil || !strings.HasPrefix(string(text), benchBegin) || !strings.Contains(out.String(), "0 of 3 planned transfers") {
		t.Errorf("%s, %v, %s", text, err, out.String())
	}
}

func TestBenchList(t *testing.T) {
	var out, errs strings.Builder
	if code := thisProgram().Run(t.Context(), []string{"bench", "--list", "--only", "1/18/5, 10 MB, up"}, &out, &errs); code != 0 {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	if got := out.String(); !strings.Contains(got, "53") || !strings.Contains(got, "1 experiments") {
		t.Error(got)
	}
}
