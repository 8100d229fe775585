// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mpbond/internal/cli"
	"mpbond/lab"
	"mpbond/lab/exp"
	"mpbond/lab/radio"
)

// Existing rows are listed; missing ones are an error before anything runs; a report is made of
// kept results.
func TestExp(t *testing.T) {
	run := func(args ...string) (int, string) {
		var out, errs strings.Builder
		code := mpbondLabProgram().Run(t.Context(), append([]string{"exp"}, args...), &out, &errs)
		return code, out.String() + errs.String()
	}
	dir := t.TempDir()
	code, text := run("list")
	for _, r := range exp.PublishedRows(radio.Sets[0]) {
		if code != 0 || !strings.Contains(text, r.ID) || !strings.Contains(text, r.Title) {
			t.Errorf("list: %d %s", code, text)
		}
	}
	for _, bad := range [][]string{{"run", "m99"}, {"run", "m4", "--reps", "-1"}, {"run", "m4", "--set", "nokia3310"},
		{"run"}, {"run", "bench", "--only", "no such cell"}} {
		if code, text := run(append(bad, "--dir", dir)...); code != cli.ExitUsage {
			t.Errorf("%v: %d %s", bad, code, text)
		}
	}
	if code, text := run("list", "bench", "--only", "1/18/5, 10 MB, up"); code != 0 || !strings.Contains(text, "53") ||
		strings.Contains(text, "1/18/5, 2 MB") {
		t.Errorf("cells of rows: %d %s", code, text)
	}
	if code, text := run("report", "--dir", dir); code == 0 || !strings.Contains(text, "exp run") {
		t.Errorf("a report of nothing: %d %s", code, text)
	}
	rows, err := exp.SelectRows(exp.PublishedRows(radio.Sets[0]), "m4")
	if err != nil {
		t.Fatal(err)
	}
	row := rows[0]
	cell := row.Cells[0].Name
	rec := exp.Record{Row: "m4", Stamp: exp.Stamp{Version: "abc1234"},
		Results: exp.Data{cell: []lab.Result{{Scheme: exp.Product, Seconds: 4.7}}}}
	keep := func(in string) (err error) {
		j, err := exp.OpenJournal(in, "m4", rec.Stamp, true)
		if err != nil {
			return err
		}
		for _, r := range rec.Results[cell] {
			err = errors.Join(err, j.Add(cell, r))
		}
		return errors.Join(err, j.Close())
	}
	if err := keep(dir); err != nil {
		t.Fatal(err)
	}
	if code, text := run("report", "--dir", dir); code != 0 || !strings.Contains(text, "m4") ||
		!strings.Contains(text, string(exp.NotMeasured)) {
		t.Errorf("%d %s", code, text)
	}
	// Screens warn about single transfers and the short form.
	for _, scheme := range row.Cells[0].Schemes {
		rec.Results[cell] = append(rec.Results[cell], lab.Result{Scheme: scheme, Seconds: 5})
	}
	rec.Results[cell] = rec.Results[cell][1:]
	if code, text := run("report", "--quick", "--dir", dir); code == 0 ||
		!strings.Contains(text, "--quick first") {
		t.Errorf("a report of no short form: %d %s", code, text)
	}
	for _, quick := range []bool{false, true} {
		rec.Quick = quick
		args, in := []string{"report", "--dir", dir}, dir
		if quick {
			args, in = append(args, "--quick"), exp.QuickDir(dir)
		}
		var screen strings.Builder
		if err := errors.Join(keep(in), exp.Evaluate(row, rec).Print(&screen)); err != nil {
			t.Fatal(err)
		}
		_, text := run(args...)
		for _, s := range []string{text, screen.String()} {
			if !strings.Contains(s, "not for figures") || strings.Contains(s, "short form") != quick {
				t.Errorf("short %v: %s", quick, s)
			}
		}
	}
	if code, text := run("report", "--dir", dir, "--markdown", filepath.Join(dir, "report.md")); code != 0 {
		t.Errorf("%d %s", code, text)
	}
	// The tables of a document of other rows stay as they are.
	other := filepath.Join(dir, "other.md")
	document := "# A page\n\n## m1\n\n" + exp.DocumentBegin + "\n## p1\n" + exp.DocumentEnd + "\n"
	if err := os.WriteFile(other, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	code, text = run("report", "--dir", dir, "--markdown", other)
	if after, err := os.ReadFile(other); code == 0 || err != nil || string(after) != document ||
		!strings.Contains(text, "do not have m4") || !strings.Contains(text, "report p1 --markdown") {
		t.Errorf("%d %v %s\n%s", code, err, text, after)
	}
	for _, name := range []string{"report.html", "report.csv", "report.md"} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !strings.Contains(string(text),
			"abc1234") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
