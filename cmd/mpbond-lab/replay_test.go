// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mpbond/core/sched"
)

// recordTrace unpacks the recording of package replay.
func recordTrace(t *testing.T) string {
	t.Helper()
	f, err := os.Open("../../lab/replay/testdata/triangle-8-10-5-2MB-pams.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "events.jsonl")
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestReplay(t *testing.T) {
	file := recordTrace(t)
	code, out, errs := runProgram(t, "replay", file, "--scheduler", "pams,minrtt", "--scheduler", "ratio:0.6")
	if code != 0 {
		t.Fatalf("%d: %s", code, errs)
	}
	for _, want := range []string{"server sent 2 MB", "recorded ", "\npams ", "\nminrtt ", "\nratio:0.6 ", "PRIMARY",
		"HELPER1", "far hop", "least RTT of the idle"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in:\n%s", want, out)
		}
	}
	code, out, errs = runProgram(t, "replay", file, "--scheduler", strings.Join(sched.Names(), ","))
	for _, name := range sched.Names() {
		if code != 0 || strings.Count(out, "\n"+name+" ") != 1 {
			t.Errorf("%s is not replayed once: %d, %s\n%s", name, code, errs, out)
		}
	}
	code, out, errs = runProgram(t, "replay", file, "--scheduler", "pams", "--json")
	var report replayReport
	if err := json.Unmarshal([]byte(out), &report); code != 0 || err != nil {
		t.Fatalf("%d, %v: %s", code, err, errs)
	}
	if len(report.Replayed) != 1 || report.Replayed[0].Scheduler != "pams" || report.Recorded.Seconds < 1 ||
		len(report.Subflows) != 2 {
		t.Errorf("%s", out)
	}
	text := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(text, []byte("hello\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ says, scheduler, file string }{
		{"no such file", "pams", text + "y"},
		{"line 1", "pams", text},
		{"unknown scheduler", "fastest", file},
	} {
		if code, _, errs := runProgram(t, "replay", c.file, "--scheduler", c.scheduler); code == 0 ||
			!strings.Contains(errs, c.says) {
			t.Errorf("%s: %d, %s", c.says, code, errs)
		}
	}
}
