// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mpbond/internal/cli"
)

// recordings writes data to files and returns their paths.
func recordings(t *testing.T, data ...[]byte) (files []string) {
	t.Helper()
	dir := t.TempDir()
	for i, d := range data {
		name := filepath.Join(dir, string(rune('a'+i))+".cells")
		if err := os.WriteFile(name, d, 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, name)
	}
	return files
}

// TestCellStats checks that each source is counted separately, in all output formats.
func TestCellStats(t *testing.T) {
	files := recordings(t, writeRecording(t, 4000, 500), writeRecording(t, 200, 0))
	code, out, errs := runCellwatch(t, "stats", files[0], files[1])
	if code != cli.ExitOK || errs != "" {
		t.Fatal(code, errs)
	}
	out = strings.Join(strings.Fields(out), " ")
	for _, want := range []string{
		"a.cells, cell 0 (10 MHz, 50 PRB): 4s received, 0 subframes missed",
		"resource blocks used 50.0 %, idle 50.0 %; uplink 0.0 %",
		"8000, 0.0 % of them retransmissions; 0.60 Mbit/s per PRB",
		"users in 40 ms mean 2, median 2, 95th percentile 2, maximum 2 data users only mean 2,",
		"activities 2: 0.0 % in one subframe",
		"duration mean 4000, median 4000, 95th percentile 4000, maximum 4000 ms",
		"mean 7.5, median 6.31, 95th percentile 9, maximum 9 Mbit/s", "formats 1: 100.0 %",
		"10 8000 0 0.0 %", "0 h 2 2 2.0 2.0 50.0 % 0.0 % 0.0 % 4s", "b.cells, cell 0",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in %s", want, out)
		}
	}
	_, out, _ = runCellwatch(t, "stats", files[0], files[1], "--json", "--start", "2026-11-22T07:59:58+01:00")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var s cellStats
	if err := json.Unmarshal([]byte(lines[0]), &s); err != nil || len(lines) != 2 {
		t.Fatal(err, out)
	}
	if s.Users.Mean != 2 || s.Start.Format("2006-01-02 15:04") != "2026-11-22 07:00" || len(s.Hours) != 2 ||
		s.Hours[0].Subframes != 2000 || s.formatHourLabel(s.Hours[1]) != "2026-11-22 08:00" {
		t.Errorf("%+v", s)
	}
	_, out, _ = runCellwatch(t, "stats", files[0], files[1], "--csv")
	table, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	if err != nil || len(table) != 3 || table[2][0] != files[1] || table[1][3] != "4000" || table[1][8] != "0.5000" {
		t.Errorf("%v %v", err, table)
	}
}

// TestCellStatsPlots checks that each plot exists as SVG and PNG.
func TestCellStatsPlots(t *testing.T) {
	files := recordings(t, writeRecording(t, 500, 500), writeRecording(t, 200, 0))
	dir := filepath.Join(t.TempDir(), "new", "figures")
	if code, _, errs := runCellwatch(t, "stats", files[0], files[1], "--plots", dir); code != cli.ExitOK {
		t.Fatal(errs)
	}
	list, err := os.ReadDir(dir)
	if err != nil || len(list) != 2*(6+2*3) {
		t.Errorf("%v, %d files", err, len(list))
	}
	for _, f := range list {
		data, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(f.Name(), ".svg") {
			if !bytes.Contains(data, []byte("<svg")) || bytes.Contains(data, []byte("Nothing to show")) {
				t.Errorf("%s shows nothing", f.Name())
			}
		} else if _, err := png.Decode(bytes.NewReader(data)); err != nil {
			t.Errorf("%s: %v", f.Name(), err)
		}
	}
	data, err := os.ReadFile(filepath.Join(dir, "users-40ms.svg"))
	if err != nil || !bytes.Contains(data, []byte("b.cells 0, filtered")) &&
		!bytes.Contains(data, []byte("b.cells 0, filter…")) {
		t.Errorf("%v\n%s", err, data)
	}
}

// TestCellStatsErrors checks that damaged recordings yield their statistics so far and an error.
func TestCellStatsErrors(t *testing.T) {
	data := writeRecording(t, 500, 0)
	files := recordings(t, data[:len(data)-1], []byte("GIF89a, certainly"))
	code, out, errs := runCellwatch(t, "stats", files[0], files[1], filepath.Join(filepath.Dir(files[0]), "none"))
	if code == cli.ExitOK || !strings.Contains(out, "499ms received") ||
		!strings.Contains(errs, "a.cells: the recording is truncated") ||
		!strings.Contains(errs, "b.cells: this is not a recording") || !strings.Contains(errs, "no such file") {
		t.Errorf("code %d\n%s\n%s", code, out, errs)
	}
	for _, args := range [][]string{{"--start", "noon", files[0]}, {}} {
		if code, _, _ := runCellwatch(t, append([]string{"stats"}, args...)...); code != cli.ExitUsage {
			t.Errorf("%v: code %d", args, code)
		}
	}
	if code, _, errs := runCellwatch(t, "stats", files[1], "--plots", t.TempDir()); code == cli.ExitOK ||
		!strings.Contains(errs, "nothing to draw") {
		t.Errorf("code %d: %s", code, errs)
	}
}
