// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"mpbond/internal/cli"
	"mpbond/pbe/air"
	"mpbond/pbe/census"
)

// TestCellCheck: the shipped signals agree with themselves. Contradictions are an error of their own.
func TestCellCheck(t *testing.T) {
	const file = "../../pbe/lte/testdata/faded.sc16"
	code, out, errs := runCellwatch(t, "check", file)
	if code != 0 || !strings.Contains(out, "cell 77, 15 PRB: the messages agree") ||
		!strings.Contains(out, "0 (0.0 %) of 19 subframes") {
		t.Errorf("%d: %s%s", code, out, errs)
	}
	code, out, errs = runCellwatch(t, "check", file, "--json")
	var r checkReport
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 || r.Identity != 77 || !r.Consistent ||
		r.Messages != 64 || r.Down < 0.4 || r.Down > 0.5 {
		t.Errorf("%d, %v: %+v%s", code, err, r, errs)
	}
	if code, _, errs := runCellwatch(t, "check", "nowhere.sc16"); code == 0 || errs == "" {
		t.Errorf("no file: %d, %s", code, errs)
	}
	bad := newCheckReport(air.State{Source: "x"}, census.Check{Subframes: 10, Shared: 10, Conflicts: 1, Users: 4, Once: 1})
	var b bytes.Buffer
	if err := printCheckReport(&b, bad); err != nil || bad.Consistent ||
		!strings.Contains(b.String(), "contradict each other") || !strings.Contains(b.String(), "1 (10.0 %) of 10") {
		t.Errorf("%v: %s", err, &b)
	}
	if cli.ExitIntegrity != 5 {
		t.Errorf("the help names exit code 5, it is %d", cli.ExitIntegrity)
	}
}
