// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mpbond/core/trace"
	"mpbond/internal/cli"
	"mpbond/lab/virtual/network"
)

// TestRandom compares schedulers over a few networks. The printed command shows one of them with the same results.
func TestRandom(t *testing.T) {
	code, out, errs := runProgram(t, "random", "--networks", "4", "--first", "3", "--schedulers", "auto,pams", "--json")
	var report randomReport
	if err := json.Unmarshal([]byte(out), &report); code != 0 || err != nil {
		t.Fatalf("%d %v: %s", code, err, errs)
	}
	if len(report.Outcomes) != 4 || len(report.Summaries) == 0 || report.Summaries[0].Count != 4 {
		t.Errorf("%d outcomes, %+v", len(report.Outcomes), report.Summaries)
	}
	dir := t.TempDir()
	args := strings.Fields(strings.Replace(report.Replay, "SEED", "5", 1))
	code, out, errs = runProgram(t, append(args[1:], "--json", "--trace", dir)...)
	var one network.Outcome
	if err := json.Unmarshal([]byte(out), &one); code != 0 || err != nil {
		t.Fatalf("%d %v: %s", code, err, errs)
	}
	if want := report.Outcomes[2].Schemes; !slices.Equal(one.Schemes, want) {
		t.Errorf("first %+v, then %+v", want, one.Schemes)
	}
	f, err := os.Open(filepath.Join(dir, "auto.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	kinds := map[trace.Kind]int{}
	for e, err := range trace.Read(f) {
		if err != nil {
			t.Fatal(err)
		}
		kinds[e.Kind]++
	}
	if kinds[trace.Decision] == 0 || kinds[trace.Segment] == 0 {
		t.Errorf("events: %v", kinds)
	}
}

// TestRandomText prints a report for people, and refuses wrong flags.
func TestRandomText(t *testing.T) {
	code, out, errs := runProgram(t, "random", "--networks", "2", "--class", "stable", "--workload", "cold",
		"--schedulers", "auto", "--cc", "bbr")
	if code != 0 || !strings.Contains(out, "all (2)") ||
		!strings.Contains(out, "mpbond-lab random --seed SEED --class stable --workload cold --cc bbr --schedulers auto") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	code, out, errs = runProgram(t, "random", "--seed", "2", "--schedulers", "auto")
	if code != 0 || !strings.Contains(out, "seed 2:") || !strings.Contains(out, "single:direct") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	for _, bad := range [][]string{{"--class", "odd"}, {"--workload", "x"}, {"--cc", "reno"}, {"--schedulers", "none"},
		{"--trace", "/tmp/x"}, {"more"}} {
		if code, _, _ := runProgram(t, append([]string{"random"}, bad...)...); code != cli.ExitUsage {
			t.Errorf("%v: exit code %d", bad, code)
		}
	}
}
