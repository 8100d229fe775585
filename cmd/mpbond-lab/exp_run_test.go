// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"mpbond/base/waittest"
	"mpbond/internal/cli"
	"mpbond/lab"
	"mpbond/lab/exp"
)

// A run that is killed, then one that is interrupted, lose no finished transfer and leave nothing
// behind. The third one makes the rest. Reports work meanwhile.
func TestExpGoesOn(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, for real-time priority")
	}
	for _, p := range []string{"ip", "curl", "nginx", "nsenter"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("%s is not installed", p)
		}
	}
	t.Parallel() // it judges no figures
	results, program := t.TempDir(), buildPrograms(t)
	dir := exp.QuickDir(results)
	runtime, err := os.MkdirTemp("", "exp") // short: a socket's path has 108 bytes at most
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(runtime)
	const real, row = "m13", "p10" // with real packets, and computed: never disturbed
	full := keepFull(t, results, row)
	// run starts or resumes a run and sends it a signal after some more transfers.
	run := func(row string, more int, signal syscall.Signal) (code int, screen string) {
		cmd := exec.Command(program, "exp", "run", row, "--quick", "--dir", results)
		cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+runtime)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		before := len(endedCells(t, dir, row, anyTransfer))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		if more > 0 {
			waittest.Until(t, fmt.Sprint(more, " more transfers"), func() bool {
				select {
				case err := <-done:
					t.Fatalf("%s ended before its signal: %v: %s", row, err, stderr.String())
				default:
				}
				return len(endedCells(t, dir, row, anyTransfer)) >= before+more
			})
			_ = cmd.Process.Signal(signal)
		}
		<-done
		awaitNothingLeft(t, fmt.Sprint(signal), runtime)
		return cmd.ProcessState.ExitCode(), stderr.String()
	}
	run(real, 1, syscall.SIGKILL)
	if code, screen := run(real, 1, syscall.SIGINT); code != cli.ExitInterrupted ||
		strings.Count(screen, "interrupted") != 1 {
		t.Errorf("interrupted: %d %s", code, screen)
	}
	run(row, 2, syscall.SIGKILL)
	if code, out, errs := runProgram(t, "exp", "report", "--quick", "--dir", results); code != cli.ExitOK ||
		!strings.Contains(out, real) || !strings.Contains(out, row) {
		t.Errorf("report: %d %s %s", code, out, errs)
	}
	code, screen := run(row, 1, syscall.SIGINT)
	if code != cli.ExitInterrupted || strings.Count(screen, "interrupted") != 1 ||
		!strings.Contains(screen, "transfers are taken from "+dir) {
		t.Errorf("interrupted: %d %s", code, screen)
	}
	code, screen = run(row, 0, 0)
	if code != cli.ExitOK || !strings.Contains(screen, "transfers are taken from "+dir) {
		t.Errorf("the rest: %d %s", code, screen)
	}
	if now, err := os.ReadFile(filepath.Join(results, row+".jsonl")); err != nil || !bytes.Equal(now, full) {
		t.Errorf("what a run in full had measured is lost to the short form: %v", err)
	}
	times := map[string]int{}
	for _, transfer := range endedCells(t, dir, row, exp.IsCounted) {
		if times[transfer]++; times[transfer] > 1 {
			t.Errorf("%s was made again", transfer)
		}
	}
	if len(times) != 51 {
		t.Errorf("%d of 51 transfers: %s", len(times), screen)
	}
}

// keepFull makes a record of a full run and returns the content of its file.
func keepFull(t *testing.T, dir, row string) []byte {
	j, err := exp.OpenJournal(dir, row, exp.Stamp{Version: "v0"}, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(j.Add("cell", lab.Result{Scheme: exp.Product}), j.Close()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, row+".jsonl"))
	if err != nil || len(text) == 0 {
		t.Fatal("no record", err)
	}
	return text
}

// anyTransfer accepts all transfers.
func anyTransfer(lab.Result) bool { return true }

// endedCells returns the accepted transfers of a row.
func endedCells(t *testing.T, dir, row string, accepts func(lab.Result) bool) (all []string) {
	rec, err := exp.LoadRecord(dir, row, true)
	if err != nil {
		t.Fatal(err)
	}
	for cell, results := range rec.Results {
		for _, r := range results {
			if accepts(r) {
				all = append(all, fmt.Sprintf("%s, %s, %d", cell, r.Scheme, r.Rep))
			}
		}
	}
	return all
}
