// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mpbond/internal/cli"
	"mpbond/pbe/cell"
)

// narrowCopy returns a copy of a small recording of samples, which a test may damage.
func narrowCopy(t *testing.T) (file string, data []byte) {
	t.Helper()
	data, err := os.ReadFile(narrowSamples + ".sc16")
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "walk.sc16")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return file, data
}

// TestCellKeepsInputs checks that inputs are never overwritten, and that two outputs must differ.
func TestCellKeepsInputs(t *testing.T) {
	file, data := narrowCopy(t)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	for _, bad := range [][]string{{"watch", file, "--record", link}, {"grid", file, "--out", link},
		{"watch", file, "--json", "--record", "-"}, {"watch", file, "--for", "-1s"}, {"scan", file, "--for", "-1s"}} {
		if code, _, errs := runCellwatch(t, bad...); code != cli.ExitUsage || !strings.Contains(errs, "hint") {
			t.Errorf("%v: %d: %s", bad, code, errs)
		}
		if now, err := os.ReadFile(file); err != nil || !bytes.Equal(now, data) {
			t.Fatalf("%v: the samples are gone", bad)
		}
	}
}

// TestCellOutputsAreWhole checks that existing files are replaced only by complete ones.
func TestCellOutputsAreWhole(t *testing.T) {
	file, _ := narrowCopy(t)
	silence, old := filepath.Join(t.TempDir(), "silence.sc16"), filepath.Join(t.TempDir(), "old")
	if err := errors.Join(os.WriteFile(silence, make([]byte, 400_000), 0o600),
		os.WriteFile(old, []byte("old"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][]string{{"watch", silence, "--rate", "1.92M", "--record", old},
		{"grid", silence, "--rate", "1.92M", "--out", old}} {
		if code, _, _ := runCellwatch(t, c...); code == cli.ExitOK {
			t.Errorf("%v: a cell in silence", c)
		}
		if now, _ := os.ReadFile(old); string(now) != "old" {
			t.Errorf("%v: the file is %q", c, now)
		}
	}
	code, out, errs := runCellwatch(t, "watch", file, "--record", old, "--for", "10ms")
	in, err := os.Open(old)
	if err != nil || code != cli.ExitOK || !strings.Contains(out, ": 10 subframes, ") {
		t.Fatal(code, out, errs, err)
	}
	defer in.Close()
	r, err := cell.NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for ; err == nil; n++ {
		_, err = r.Read()
	}
	if left, _ := os.ReadDir(filepath.Dir(old)); n-1 != 10 || len(left) != 1 {
		t.Errorf("%d subframes, %v beside", n-1, left)
	}
}

// TestCellFullDisk checks the errors of failed output.
func TestCellFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full:", err)
	}
	defer full.Close()
	for _, c := range [][]string{{"scan"}, {"scan", "--json"}, {"watch"}, {"watch", "--json"}, {"stats"},
		{"grid", "--out", "-"}} {
		var errs bytes.Buffer
		if code := cellwatchProgram().Run(t.Context(), append([]string{c[0], narrowSamples + ".sc16"}, c[1:]...), full,
			&errs); code == cli.ExitOK || errs.Len() == 0 {
			t.Errorf("%v: %d %s", c, code, &errs)
		}
	}
}

// TestStatsOfAnySamples checks --format and --rate for names without an ending, and that unknown
// values are not printed as zero.
func TestStatsOfAnySamples(t *testing.T) {
	file, data := narrowCopy(t)
	plain := filepath.Join(t.TempDir(), "walk")
	if err := os.WriteFile(plain, data, 0o600); err != nil {
		t.Fatal(err)
	}
	_, want, _ := runCellwatch(t, "stats", file, "--csv")
	code, got, errs := runCellwatch(t, "stats", plain, "--format", "sc16", "--rate", "1.92M", "--csv")
	if code != cli.ExitOK || strings.ReplaceAll(want, file, plain) != got {
		t.Errorf("%d: %s%s, want %s", code, got, errs, want)
	}
	if !strings.Contains(got, ",,,") {
		t.Errorf("%s: users in 40 ms of less than that", got)
	}
	if _, out, _ := runCellwatch(t, "stats", file, "--json"); !strings.Contains(out, `"mean_users_40ms":null`) {
		t.Error(out)
	}
	_, out, _ := runCellwatch(t, "stats", file)
	if out = strings.Join(strings.Fields(out), " "); !strings.Contains(out, " - - ") || strings.HasSuffix(out, " 0s") {
		t.Error(out)
	}
	empty := filepath.Join(t.TempDir(), "text.cf32")
	if err := os.WriteFile(empty, []byte("this is text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, errs := runCellwatch(t, "stats", empty); strings.Count(errs, empty) != 1 {
		t.Error(errs)
	}
}
