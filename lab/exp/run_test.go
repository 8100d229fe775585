// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"mpbond/base/fault"
	"mpbond/lab"
	"mpbond/lab/virtual"
)

// A scheme that always fails is an error. One that was disturbed, not started, or tried once is
// not.
func TestBroken(t *testing.T) {
	failed, late := lab.Result{Scheme: "a", Error: "no"}, lab.Result{Scheme: "a", Error: "no", Disturbed: true}
	pool := func(c cellRun) *pool {
		c.spec.Schemes, c.spec.Reps = []string{"a", "b"}, 1
		return &pool{cells: []cellRun{c}, experiments: []lab.Experiment{{Name: "x"}}}
	}
	for _, c := range []struct {
		results []lab.Result
		broken  bool
	}{
		{nil, false},
		{[]lab.Result{failed}, false}, // no time for another try
		{[]lab.Result{failed, failed}, true},
		{[]lab.Result{failed, late, failed}, true},
		{[]lab.Result{failed, late, late}, false},
		{[]lab.Result{failed, {Scheme: "a", Rep: 1, Error: "no"}, {Scheme: "b"}}, true},
		{[]lab.Result{failed, failed, {Scheme: "a"}}, false},
		{[]lab.Result{failed, failed, {Scheme: "a", Disturbed: true}}, false},
	} {
		p := pool(cellRun{results: c.results})
		if err := p.brokenSchemes(); (err != nil) != c.broken {
			t.Errorf("%v: %v", c.results, err)
		}
		if p.missingTransfers() == nil {
			t.Errorf("%v: nothing is missing", c.results)
		}
	}
	if pool(cellRun{err: "its lab failed"}).brokenSchemes() == nil {
		t.Error("a cell without a lab")
	}
	if err := pool(cellRun{results: []lab.Result{{Scheme: "a"}, {Scheme: "b"}}}).missingTransfers(); err != nil {
		t.Error(err)
	}
}

// twoPlaces returns a row of two short cells in virtual time.
func twoPlaces() Row {
	r := commonPBERow("t1", "Two places", "none", "")
	for n, name := range []string{"one", "other"} {
		r.Cells = append(r.Cells, Cell{Name: name, Schemes: []string{pbe, "cubic"}, Reps: 2, Quick: 1,
			Model: &model{makeCase: func(seed uint64) virtual.Case {
				c := virtual.Location(uint64(n), seed)
				c.Length = 200 * ms
				return c
			}}})
	}
	return r
}

// A run omits schemes that this machine cannot run, says so once, and misses nothing.
func TestOmitsRefusedSchemes(t *testing.T) {
	var said []string
	r := Run{Rows: []Row{twoPlaces()}, Options: Options{Seed: 1}, Dir: t.TempDir(), Jobs: 1, Version: "v1",
		PrintLine: func(text string) { said = append(said, text) },
		Progress:  func(string, bool) {},
		checkScheme: func(name string) error {
			if name == "cubic" {
				return errors.New("no such control")
			}
			return nil
		}}
	all, err := r.Measure(t.Context())
	if err != nil || len(all) != 1 || all[0].Counted != 4 {
		t.Fatalf("%v, %+v", err, all)
	}
	warnings := 0
	for _, line := range said {
		if strings.Contains(line, "cubic is omitted: no such control") {
			warnings++
		}
	}
	if warnings != 1 {
		t.Errorf("%d warnings in %q", warnings, said)
	}
}

// A run resumes one of the same version and choice of cells. When nothing is missing, the next one
// starts again.
func TestMeasure(t *testing.T) {
	dir := t.TempDir()
	var said []string
	measure := func(version, only string, stop int) ([]Evaluation, error) {
		said = nil
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		left := stop
		r := Run{Rows: []Row{twoPlaces(), rowB6MachineLimits()}, Options: Options{Seed: 1, Only: only}, Dir: dir, Jobs: 1,
			Version:   version,
			PrintLine: func(text string) { said = append(said, text) },
			Progress: func(string, bool) {
				if left--; left == 0 {
					cancel()
				}
			}}
		r.Rows = r.Rows[:1]
		return r.Measure(ctx)
	}
	takes := func(n string) bool { return strings.Contains(strings.Join(said, "\n"), n+" transfers are taken") }
	if all, err := measure("v1", "", 3); !errors.Is(err, context.Canceled) || all != nil {
		t.Fatalf("interrupted: %v", err)
	}
	all, err := measure("v1", "", 0)
	if err != nil || !takes("3") || len(all) != 1 || all[0].Counted != 8 || all[0].Planned != 8 ||
		all[0].Stamp.Cells["other"] != 4 {
		t.Fatalf("the rest: %v, %q, %+v", err, said, all)
	}
	if all, err := measure("v1", "", 0); err != nil || takes("8") || all[0].Counted != 8 {
		t.Errorf("anew: %v, %q", err, said)
	}
	if _, err := os.Stat(recordPath(dir, "t1") + ".old"); err != nil {
		t.Error(err)
	}
	if all, err := measure("v1", "oth", 0); err != nil || takes("4") || all[0].Counted != 4 || all[0].Planned != 4 ||
		!strings.Contains(all[0].Rerun, "--only oth") {
		t.Errorf("some cells: %v, %q, %+v", err, said, all)
	}
	for _, version := range []string{"v2", "v2-dirty"} {
		if _, err := measure(version, "", 3); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		_, err := measure(version, "", 0)
		if dirty := version != "v2"; err != nil || takes("3") == dirty {
			t.Errorf("%s: %v, %q", version, err, said)
		}
	}
	if _, err := measure("v1", "no such cell", 0); !fault.Is(err, fault.Usage) {
		t.Errorf("no cell: %v", err)
	}
}
