// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/lab"
	"mpbond/lab/radio"
)

// claimRows returns the rows of the bench with the drives that come with the program.
func claimRows(t *testing.T) []Row {
	t.Helper()
	all, err := ClaimRows("")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Every cell can run, has a unique name in all rows, and has an estimate of its time. The short
// form is short.
func TestBench(t *testing.T) {
	for _, quick := range []bool{false, true} {
		var all []lab.Experiment
		for _, r := range claimRows(t) {
			some, err := r.Experiments(Options{Quick: quick, Seed: 1})
			if err != nil || len(some) == 0 {
				t.Fatalf("%s: %d cells, %v", r.ID, len(some), err)
			}
			all = append(all, some...)
		}
		seen := map[string]bool{}
		for _, e := range all {
			if seen[e.Name] {
				t.Errorf("two are named %s", e.Name)
			}
			seen[e.Name] = true
			if err := e.Check(); err != nil && !fault.Is(err, fault.Unsupported) {
				t.Errorf("%s: %v", e.Name, err)
			}
			if e.Expected <= 0 || e.Spec.Seed != 1 {
				t.Errorf("%+v", e)
			}
			if filling := strings.HasPrefix(e.Name, "1"); e.RunAlone != (strings.HasPrefix(e.Name, "1 GB") ||
				strings.HasPrefix(e.Name, "1000") || strings.HasSuffix(e.Name, aloneSuffix)) {
				t.Errorf("%s: alone %v, filling %v", e.Name, e.RunAlone, filling)
			}
		}
		took := lab.NewJobs(0).Estimate(all, wholeStillToDo)
		t.Logf("quick %v: %d transfers, %v", quick, countTransfers(all), took)
		if limit := map[bool]time.Duration{false: 90 * time.Minute, true: 5 * time.Minute}[quick]; took < limit/9 ||
			took > limit {
			t.Errorf("quick %v takes %v", quick, took)
		}
	}
}

// TestGridIsWhole checks the cells against the tables to show.
func TestGridIsWhole(t *testing.T) {
	all, err := rowB1StableLinks().Experiments(Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	grid := 0
	for _, e := range all {
		if !strings.HasSuffix(e.Name, ", down") && !strings.HasSuffix(e.Name, ", up") {
			continue
		}
		grid++
		for _, s := range e.Spec.Schemes {
			if n := e.Spec.RepsOf(s); n != benchReps && (s != singleScheme || n != 3 || e.Spec.Size != 10*unit.MB) {
				t.Errorf("%v: %s: %d transfers", e.Name, s, n)
			}
		}
		if helped := slices.Contains(e.Spec.Schemes, helperLinkScheme); helped != (strings.HasPrefix(e.Name, "5/") ||
			strings.HasPrefix(e.Name, "1/")) {
			t.Errorf("%s: the helper's link %v", e.Name, helped)
		}
	}
	if grid != 32 || !slices.ContainsFunc(all, func(e lab.Experiment) bool { return e.Name == "1/18/5, 10 MB, up" }) {
		t.Errorf("%d cells", grid)
	}
	some, err := rowB1StableLinks().Experiments(Options{Only: "5/10/5, 2 MB"})
	if err != nil || len(some) != 2 {
		t.Errorf("%d of two cells, %v", len(some), err)
	}
}

// Rows are selected by ID and by group name, each once.
func TestSelectRows(t *testing.T) {
	published := PublishedRows(radio.Sets[0])
	all := append(published, claimRows(t)...)
	for _, c := range []struct {
		ids  []string
		want int
	}{{[]string{"m4", "m4"}, 1}, {[]string{"all"}, len(published) - 15}, {[]string{"phones"}, 12}, {[]string{"rails"}, 10},
		{[]string{"cells"}, 11},
		{[]string{"bench"}, 7}, {[]string{"b2", "bench", "m4"}, 8}, {[]string{"m99"}, 0}, {[]string{"m4", "bench2"}, 0}} {
		some, err := SelectRows(all, c.ids...)
		if len(some) != c.want || (err != nil) != (c.want == 0) {
			t.Errorf("%v: %d rows, %v", c.ids, len(some), err)
		}
	}
	list, err := List(all, Options{Quick: true})
	if err != nil || len(list) != len(all)+5 || list[len(all)].Row != AllRows || list[len(all)+1].Transfers == 0 {
		t.Errorf("%v, %v", list, err)
	}
	cells, err := ListCells(all[len(published):], Options{Only: "1/18/5, 10 MB, up"})
	if table := ListTable(cells); err != nil || len(table.Rows) != 1 || table.Rows[0][3] != "53" {
		t.Errorf("%v, %v", cells, err)
	}
}

// setCellTimes sets the results of one transfer of each scheme in a cell with these times and a
// bound of 1 s.
func setCellTimes(d Data, cell string, seconds map[string]float64) {
	for scheme, s := range seconds {
		d[cell] = append(d[cell], lab.Result{Scheme: scheme, Bytes: unit.MB, Streams: 1, Seconds: s, Bound: 1,
			SHA: true, LongestGap: s / 2})
	}
}

// TestClaims checks which cases of claims hold, fail, or were not measured.
func TestClaims(t *testing.T) {
	type times = map[string]float64
	rows := claimRows(t)
	drop := rows[1].Cells[0].Name
	for _, c := range []struct {
		name, claim string // part of its text
		data        map[string]times
		misses      []string
		n, absent   int
	}{
		{"near the bound", "least 95 % of the bound", map[string]times{"8/10/5, 2 MB, down": {"mpbond": 1.05}}, nil, 1,
			15},
		{"far from the bound", "least 95 % of the bound", map[string]times{"8/10/5, 2 MB, down": {"mpbond": 1.06}},
			[]string{"8/10/5, 2 MB, down: 94.3 %"}, 1, 15},
		{"small and far from the bound", "least 95 % of the bound",
			map[string]times{"8/10/5, 64 KB, down": {"mpbond": 2}}, nil, 0, 16},
		{"a little slower", "of the others", map[string]times{"8/10/5, 64 KB, up": {"mpbond": 1.03, "single": 1,
			"mptcp": 2}}, nil, 1, 31},
		{"slower than one", "of the others", map[string]times{"8/10/5, 64 KB, up": {"mpbond": 1.1, "single": 1,
			"mpbond:pams": 2}}, []string{"8/10/5, 64 KB, up: 10.0 % slower than single"}, 1, 31},
		{"the helper's link is the better path", "single path",
			map[string]times{"5/10/5, 64 KB, up": {"mpbond": 1.1, "single": 3, "single:helper1": 1, "mptcp": .9}},
			[]string{"5/10/5, 64 KB, up: 10.0 % slower than single:helper1"}, 1, 31},
		{"beside others", "no median", map[string]times{"8/10/5, 64 KB, down": {"mpbond": 1.01, "single": 1.1},
			"8/10/5, 64 KB, down" + aloneSuffix: {"mpbond": 1, "single": 1}},
			[]string{"8/10/5, 64 KB, down" + aloneSuffix + ": single: 1.000 s, 1.100 s in the grid"}, 2, 8},
		{"two users", "two users", map[string]times{rows[4].Cells[0].Name: {"alone:primary": 1, "both:primary": 1.04,
			"alone:helper1": 2, "both:helper1": 2.2}},
			[]string{rows[4].Cells[0].Name + ": helper1: 2.20 s, +10.0 %"}, 2, 4},
		{"drop", "4.26 s", map[string]times{drop: {"mpbond": 4.6, "mpbond:pams": 4.7}},
			[]string{drop + ": mpbond:pams: 4.70 s"}, 2, 0},
		{"worse without", "visibly", map[string]times{drop: {"mpbond": 4, "mpbond:noreinject": 5}}, nil, 1, 1},
		{"no worse without", "visibly", map[string]times{drop: {"mpbond:pams": 4, "mpbond:pams:noreinject": 4.1}},
			[]string{drop + ": mpbond:pams: 4.00 s with, 4.10 s without"}, 1, 1},
		{"fall", "slower: within", map[string]times{rows[1].Cells[1].Name: {"mpbond": 1.09, "mpbond:pams": 5}},
			[]string{rows[1].Cells[1].Name + ": 1.09 s, +9.0 %"}, 1, 1},
		{"silent", "silent", map[string]times{rows[2].Cells[0].Name: {"mpbond": 1.2, "mptcp": 9}},
			[]string{rows[2].Cells[0].Name + ": 0.60 s"}, 1, 2},
	} {
		d := Data{}
		for cell, seconds := range c.data {
			setCellTimes(d, cell, seconds)
		}
		found := 0
		for _, r := range rows {
			outcomes, _ := r.EvaluatePoints(d)
			for _, o := range outcomes {
				if !strings.Contains(o.What, c.claim) {
					continue
				}
				found++
				verdict := NotMeasured
				if len(c.misses) > 0 {
					verdict = NotReproduced
				} else if c.n > 0 && c.absent == 0 {
					verdict = Reproduced
				}
				if o.N != c.n || len(o.missing) != c.absent || !slices.Equal(o.missed, c.misses) ||
					o.Verdict != verdict {
					t.Errorf("%s: %d measured, not in %q, %d absent: %s", c.name, o.N, o.missed, len(o.missing),
						o.Verdict)
				}
			}
		}
		if found != 1 {
			t.Errorf("%s: %d claims %q", c.name, found, c.claim)
		}
	}
}

// Duplicates count in cells of some size.
func TestDuplicateClaim(t *testing.T) {
	d := Data{}
	for _, cell := range []string{"20 MB, two helpers", "8/10/5, 64 KB, up"} {
		setCellTimes(d, cell, map[string]float64{Product: 1})
		d[cell][0].Duplicate = d[cell][0].Bytes / 50
	}
	outcomes, _ := rowB1StableLinks().EvaluatePoints(d)
	for _, o := range outcomes {
		if strings.Contains(o.What, "twice") && (o.N != 1 || len(o.missed) != 1 ||
			o.missed[0] != "20 MB, two helpers: mpbond: 2.0 %") {
			t.Errorf("%d cases, %q", o.N, o.missed)
		}
	}
}

// newRecord returns a record in which all of some cells is planned.
func newRecord(r Row, d Data) Record {
	rec := Record{Row: r.ID, Stamp: Stamp{Version: "abc1234", Cells: map[string]int{}}, Results: d,
		Errors: map[string]string{}}
	for cell, results := range d {
		rec.Cells[cell] = len(results)
	}
	return rec
}

// TestMatrix checks medians of the grid, rates of drives, and the overview.
func TestMatrix(t *testing.T) {
	rows, d := claimRows(t), Data{}
	setCellTimes(d, "8/10/5, 2 MB, down", map[string]float64{"mpbond": 1.25, "mpbond:pams": 2, "mptcp": 1.5,
		"single": 3})
	rec := newRecord(rows[0], d)
	rec.Cells["1/18/5, 64 KB, down"] = 3
	e := Evaluate(rows[0], rec)
	for _, p := range e.Points {
		if total := p.N + len(p.Missing); total != 1 && (total != 2 || strings.Contains(p.What, "95 %")) {
			t.Errorf("of two cells: %s, %v", p, p.Missing)
		}
	}
	var text strings.Builder
	e.Tables[0].writeMarkdown(&text)
	want := "| 8/10/5, 2 MB, down | 1.000 s | 1.250 s | 2.000 s | 1.500 s | 3.000 s | 80.0 % | 1.200 | mptcp | " +
		"0.0 % | 4/4 |"
	if got := text.String(); !strings.Contains(got, want) || !strings.Contains(got, "| 1/18/5, 64 KB, down | – |") ||
		!strings.Contains(got, "| 0/3 |") || strings.Contains(got, "14/10/5") {
		t.Error(got)
	}
	text.Reset()
	drives := Data{}
	setCellTimes(drives, rows[3].Cells[0].Name, map[string]float64{"mpbond": 1, "single": 2, "single:helper1": 4,
		"mptcp": 2})
	setCellTimes(drives, rows[3].Cells[1].Name, map[string]float64{"mpbond": 1, "single": 1})
	Evaluate(rows[3], newRecord(rows[3], drives)).Tables[0].writeMarkdown(&text)
	if got := text.String(); !strings.Contains(got, " | 4.19 Mbit/s | 2.1 Mbit/s | 4.19 Mbit/s | 8.39 Mbit/s | "+
		"2.00 | 1.33 | 100 % | 4/4 |") || !strings.Contains(got, rows[3].Cells[1].Name+" | – |") ||
		strings.Contains(got, "mean |") {
		t.Error(got)
	}
	text.Reset()
	fails := Data{}
	setCellTimes(fails, "20 MB, two helpers, the PS-path falls silent at 3 s",
		map[string]float64{"mpbond": 1.25, "mptcp": 2.5})
	all := []Evaluation{e, Evaluate(rows[2], newRecord(rows[2], fails))}
	if err := WriteOverview(&text, all); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| 2 MB, 8/10/5 | 1.00 s | 1.25 s | 1.50 s | 3.00 s |",
		"| 20 MB, two helpers, primary's own link silent from 3 s | 1.00 s | 1.25 s | 2.50 s | – |", "mpbond abc1234"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	var screen, page strings.Builder
	if err := all[1].Print(&screen); err != nil || !strings.Contains(screen.String(), "mptcp") ||
		strings.Contains(screen.String(), "fluid bound") {
		t.Errorf("%v: %s", err, screen.String())
	}
	if err := WriteHTML(&page, all); err != nil || !strings.Contains(page.String(), "longest gap") {
		t.Error(err)
	}
}

// TestSchemeTable checks medians and ratios. Empty columns are omitted.
func TestSchemeTable(t *testing.T) {
	result := func(scheme string, seconds, gap float64) lab.Result {
		return lab.Result{Scheme: scheme, Bytes: unit.MB, Streams: 1, Seconds: seconds, LongestGap: gap, Bound: 1,
			SHA:     true,
			Devices: map[string]unit.Bytes{"primary": 750, "helper1": 250}}
	}
	late, failed := result("mptcp", 9, 9), result("single", 0, 0)
	late.Disturbed, failed.Error = true, "no | way"
	schemes := []string{"mpbond", "mpbond:minrtt", "mptcp", "single"}
	table := SchemeTable("what", SummarizeSchemes(schemes, []lab.Result{result("mpbond", 1.25, .5),
		result("mpbond:minrtt", 2, .25), result("mptcp", 2.5, 0), late, failed}))
	var screen, doc strings.Builder
	if err := table.Print(&screen); err != nil {
		t.Fatal(err)
	}
	table.writeMarkdown(&doc)
	for _, want := range []string{"mpbond", "1.250 s", "80 % of 1.00 s", "2.00", "0.50 s", "helper1 25 %, primary 75 %",
		"1 disturbed, discarded", "SHA-256 right", "mptcp", "1 failed: no "} {
		if !strings.Contains(screen.String(), want) || !strings.Contains(doc.String(), want) {
			t.Errorf("no %q in\n%s\n%s", want, screen.String(), doc.String())
		}
	}
	if strings.Contains(doc.String(), "peak memory") || strings.Contains(doc.String(), "× single") ||
		!strings.Contains(doc.String(), `no \| way`) {
		t.Errorf("columns and cells of\n%s", doc.String())
	}
}

// TestSchemes summarises the transfers of each scheme.
func TestSchemes(t *testing.T) {
	good := func(seconds, gap float64) lab.Result {
		return lab.Result{Scheme: "a", Bytes: 1000, Streams: 2, Seconds: seconds, LongestGap: gap, Bound: 1,
			Duplicate: 200,
			Devices:   map[string]unit.Bytes{"x": 300, "y": 100},
			PeakRSS:   map[string]unit.Bytes{"x": unit.Bytes(seconds)}}
	}
	late, bad := good(9, 9), good(9, 9)
	late.Disturbed, bad.Error = true, "broken"
	got := SummarizeSchemes([]string{"a", "b"}, []lab.Result{good(4, .1), late, good(2, .3), bad, good(3, .2)})
	a := got[0]
	if len(got) != 2 || a.N != 3 || a.Discarded != 1 || a.Failed != 1 || a.Error != "broken" || got[1].N != 0 {
		t.Errorf("%+v", got)
	}
	if a.Seconds != 3 || a.Min != 2 || a.Max != 4 || a.Gap != .3 || a.DuplicateShare != .1 || a.Shares["x"] != .75 ||
		a.PeakRSS["x"] != 4 || a.Rate != 5333 {
		t.Errorf("%+v", a)
	}
}

func TestWriteDocument(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.md")
	for _, c := range []struct{ old, want string }{
		{"", DocumentBegin + "\nnew\n" + DocumentEnd + "\n"},
		{"# Top\n" + DocumentBegin + "\nold\n" + DocumentEnd + "\nEnd\n", "# Top\n" + DocumentBegin + "\nnew\n" +
			DocumentEnd + "\nEnd\n"},
		{DocumentBegin + "\n" + DocumentEnd + "\n", DocumentBegin + "\nnew\n" + DocumentEnd + "\n"},
	} {
		if c.old != "" {
			if err := os.WriteFile(file, []byte(c.old), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := WriteDocument(file, []byte("new\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(file); string(got) != c.want {
			t.Errorf("%q became %q", c.old, got)
		}
	}
	if err := os.WriteFile(file, []byte("no place\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := WriteDocument(file, []byte("new\n"), 0o644); !fault.Is(err, fault.Exists) || fault.HintOf(err) == "" {
		t.Errorf("a file without a place: %v", err)
	}
}

// TestOverviewCells checks that the cells of the overview exist.
func TestOverviewCells(t *testing.T) {
	found := 0
	for _, r := range claimRows(t) {
		for _, c := range r.Cells {
			if _, ok := overviewCells[c.Name]; ok {
				found++
			}
		}
	}
	if found != len(overviewCells) {
		t.Errorf("%d of %d cells exist", found, len(overviewCells))
	}
}
