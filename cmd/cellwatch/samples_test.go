// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"image/color"
	"image/png"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/gdamore/tcell/v2"

	"mpbond/internal/cli"
	"mpbond/internal/cli/clitest"
	"mpbond/pbe/cell"
)

const narrowSamples = "../../pbe/lte/testdata/narrow"

// sentIn returns the messages of a small recording of samples, from its list.
func sentIn(t *testing.T) (rows []map[string]string) {
	t.Helper()
	data, err := os.ReadFile(narrowSamples + ".csv")
	if err != nil {
		t.Fatal(err)
	}
	table, err := csv.NewReader(bytes.NewReader(data)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range table[1:] {
		row := map[string]string{}
		for i, name := range table[0] {
			row[name] = r[i]
		}
		rows = append(rows, row)
	}
	return rows
}

// TestStatsOfSamples checks that formats and levels are those that were sent, and that a recording
// by watch gives the same statistics, except for levels, which it lacks.
func TestStatsOfSamples(t *testing.T) {
	code, out, errs := runCellwatch(t, "stats", narrowSamples+".sc16", "--json")
	var s cellStats
	if err := json.Unmarshal([]byte(out), &s); err != nil || code != cli.ExitOK {
		t.Fatal(code, err, errs)
	}
	want := map[string]int64{}
	for _, r := range sentIn(t) {
		format := r["format"]
		if n, _ := strconv.Atoi(r["rnti"]); n > 0xFFF3 || n < 0x3D {
			format += " for all"
		}
		want[format]++
		want["level "+r["level"]]++
	}
	got := map[string]int64{}
	for _, c := range s.Formats {
		got[c.Name] = c.Count
	}
	for _, c := range s.Levels {
		got["level "+c.Name] = c.Count
	}
	for name, n := range want {
		if got[name] != n {
			t.Errorf("%s: %d messages, want %d", name, got[name], n)
		}
	}
	recorded := t.TempDir() + "/narrow.cells"
	if code, _, errs := runCellwatch(t, "watch", narrowSamples+".sc16", "--record", recorded); code != cli.ExitOK {
		t.Fatal(errs)
	}
	_, out, _ = runCellwatch(t, "stats", recorded, "--json")
	var again cellStats
	if err := json.Unmarshal([]byte(out), &again); err != nil || !reflect.DeepEqual(again.Load, s.Load) ||
		len(again.Formats) != len(s.Formats) || again.Subframes != s.Subframes || len(again.Levels) != 0 {
		t.Errorf("%v: %+v, want %+v", err, again.Summary, s.Summary)
	}
}

// TestGridOfSamples checks that each user's colour fills as many positions of a subframe as the
// user has blocks.
func TestGridOfSamples(t *testing.T) {
	code, data, errs := runCellwatch(t, "grid", narrowSamples+".sc16", "--out", "-")
	if code != cli.ExitOK {
		t.Fatal(errs)
	}
	img, err := png.Decode(strings.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	rows := sentIn(t)
	first, _ := strconv.Atoi(rows[0]["sfn"])
	given := map[[2]int]int{}
	columns := 0
	for _, r := range rows {
		sfn, _ := strconv.Atoi(r["sfn"])
		index, _ := strconv.Atoi(r["subframe"])
		rnti, _ := strconv.Atoi(r["rnti"])
		prb, _ := strconv.Atoi(r["prb"])
		columns = max(columns, (sfn-first)*10+index+1)
		if r["format"] != "0" {
			given[[2]int{(sfn-first)*10 + index, rnti}] += prb
		}
	}
	for at, want := range given {
		got := 0
		for prb := range 6 { // each 16 by 33 pixels
			if color.RGBAModel.Convert(img.At(100+16*at[0]+8, 60+6*33-33*prb-16)) == gridUserColor(cell.RNTI(at[1])) {
				got++
			}
		}
		if got != want {
			t.Errorf("subframe %d: 0x%04x has %d blocks, want %d", at[0], at[1], got, want)
		}
	}
	if len(given) < 20 || columns > 40 {
		t.Errorf("%d grants in %d subframes", len(given), columns)
	}
}

// TestWatchOnTerminal checks that a file of samples is shown until the user quits, and that errors
// appear after the screen is released.
func TestWatchOnTerminal(t *testing.T) {
	screen := tcell.NewSimulationScreen("UTF-8")
	if err := screen.Init(); err != nil {
		t.Fatal(err)
	}
	screen.SetSize(100, 30)
	cmd := watchCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetContext(t.Context())
	first := screen
	go func() {
		defer first.InjectKey(tcell.KeyRune, 'q', 0)
		clitest.AwaitText(t, first, "cell 9, 1.4 MHz", "0x1234 4660", "0x4601: C_p", "the input has ended")
	}()
	o := watchOptions{rnti: "0x4601", screen: func() (tcell.Screen, error) { return screen, nil }}
	if err := watchCells(cmd, []string{narrowSamples + ".sc16"}, o); err != nil ||
		!strings.Contains(out.String(), "narrow.sc16): ") {
		t.Errorf("%v\n%s", err, &out)
	}
	name := t.TempDir() + "/silence.sc16"
	if err := os.WriteFile(name, make([]byte, 400_000), 0o600); err != nil {
		t.Fatal(err)
	}
	screen = tcell.NewSimulationScreen("UTF-8")
	if err := screen.Init(); err != nil {
		t.Fatal(err)
	}
	if err := watchCells(cmd, []string{name}, o); err == nil {
		t.Error("a cell in silence")
	}
}
