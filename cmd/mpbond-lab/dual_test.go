// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"mpbond/lab"
)

// Two users with links of 10 and 3 Mbit/s pair both ways. While both download, nearly all that each
// link carries belongs to its owner until the owner is done; without the manager it would be about
// half. Each gains by the other's link while that user is idle. Times are left to the bench on a
// quiet machine.
func TestDual(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, for real-time priority")
	}
	for _, p := range []string{"ip", "curl", "nginx", "nsenter"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("%s is not installed", p)
		}
	}
	program := buildPrograms(t)
	const leastOwn = 0.75
	const measurements = 3 // at most: a disturbed one is discarded, whatever it shows
	var got map[string]lab.DualResult
	disturbed := true
	for n := 0; disturbed && n < measurements; n++ {
		var err error
		if got, disturbed, err = measureDual(t, program); err != nil {
			t.Fatal(err)
		}
	}
	alone, idle, own := got[lab.DualAlone].Seconds, got[lab.DualIdle].Seconds, got[lab.DualBoth].OwnShare
	t.Logf("seconds of both users: alone %.2f, the other idle %.2f; owners' shares of their links %.2f; disturbed %v",
		alone, idle, own, disturbed)
	if min(own[0], own[1]) <= leastOwn || max(own[0], own[1]) >= 1.05 {
		t.Errorf("owners' shares of their links are %.2f", own)
	}
	// Times depend on the machine, shares do not.
	if !disturbed && (idle[0] >= alone[0] || idle[1] >= alone[1]/2) {
		t.Errorf("with the other's link %.2f s, alone %.2f s", idle, alone)
	}
}

// measureDual runs the measurement and returns the result of each case. disturbed says that the
// emulator was late.
func measureDual(t *testing.T, program string) (got map[string]lab.DualResult, disturbed bool, err error) {
	cmd := exec.CommandContext(t.Context(), program, "dual", "--links", "10/3", "--size", "3MB", "--reps", "1",
		"--json")
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+t.TempDir())
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, false, fmt.Errorf("%w: %s", err, &errs)
	}
	got = map[string]lab.DualResult{}
	for line := range strings.Lines(string(out)) {
		var r lab.DualResult
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return nil, false, fmt.Errorf("%w: %s", err, line)
		}
		disturbed = disturbed || r.Disturbed
		got[r.Case] = r
	}
	return got, disturbed, nil
}
