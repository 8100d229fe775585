//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/internal/cli"
	"mpbond/lab"
)

func TestWriteBetween(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.md")
	if err := writeBetween("", "x\n"); err != nil {
		t.Error(err)
	}
	for _, c := range []struct{ old, want string }{
		{"", benchBegin + "\nnew\n" + benchEnd + "\n"},
		{"# Top\n" + benchBegin + "\nold\n" + benchEnd + "\nEnd\n", "# Top\n" + benchBegin + "\nnew\n" + benchEnd + "\nEnd\n"},
		{benchBegin + "\n" + benchEnd + "\n", benchBegin + "\nnew\n" + benchEnd + "\n"},
	} {
		if c.old != "" {
			if err := os.WriteFile(file, []byte(c.old), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := writeBetween(file, "new\n"); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(file); string(got) != c.want {
			t.Errorf("%q became %q", c.old, got)
		}
	}
	if err := os.WriteFile(file, []byte("no place\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := writeBetween(file, "new\n"); !fault.Is(err, fault.Exists) || fault.HintOf(err) == "" {
		t.Errorf("a file without a place: %v", err)
	}
}

func TestBenchTables(t *testing.T) {
	result := func(scheme string, seconds, gap float64) lab.Result {
		return lab.Result{Scheme: scheme, Bytes: unit.MB, Streams: 1, Seconds: seconds, LongestGap: gap, Bound: 1, SHA: true,
			Devices: map[string]unit.Bytes{"primary": 750, "helper1": 250}}
	}
	late := result("kibbutz", 9, 9)
	late.Disturbed = true
	schemes := []string{"mpbond", "mpbond:minrtt", "kibbutz", "single"}
	r := benchReport{Name: "what", plan: lab.Plan{At: []string{"3s:kill=helper1"}}, Results: []lab.Result{
		result("mpbond", 1.25, .5), result("mpbond:minrtt", 2, .25), result("kibbutz", 2.5, 0), late}}
	r.Summary = lab.Summarize(schemes, r.Results, false)
	var s strings.Builder
	if err := r.table().print(&s); err != nil {
		t.Fatal(err)
	}
	md := r.table().markdown()
	for _, want := range []string{"mpbond", "1.250 s", "80 % of 1.00 s", "2.00", "0.50 s", "helper1 25 %, primary 75 %", "1 disturbed, discarded", "SHA-256 right", "kernel MPTCP", "one link"} {
		if !strings.Contains(s.String(), want) || !strings.Contains(md, want) {
			t.Errorf("no %q in\n%s\n%s", want, s.String(), md)
		}
	}
	if strings.Contains(md, "peak memory") || strings.Contains(md, "× one link") {
		t.Errorf("a column without cells in\n%s", md)
	}
	b := &bench{reports: []benchReport{r}}
	got := b.overview().markdown()
	want := "| what | 1.00 s | 1.25 s | 2.50 s | mpbond:minrtt 2.00 s; " +
		"longest gap, median: mpbond 0.50 s, mpbond:minrtt 0.25 s, kernel MPTCP 0.00 s |"
	if !strings.Contains(got, want) {
		t.Errorf("overview\n%s", got)
	}
}

func TestBenchFindsNothing(t *testing.T) {
	var out, errs strings.Builder
	if code := thisProgram().Run(t.Context(), []string{"bench", "--only", "no such thing"}, &out, &errs); code != cli.ExitUsage {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
}
