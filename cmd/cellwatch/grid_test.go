// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mpbond/internal/cli"
	"mpbond/pbe/cell"
	"mpbond/pbe/census"
	"mpbond/pbe/lte"
)

// TestCellGrid checks the positions of known grants in the picture.
func TestCellGrid(t *testing.T) {
	files := recordings(t, writeRecording(t, 400, 500))
	out := filepath.Join(t.TempDir(), "grid.png")
	if code, _, errs := runCellwatch(t, "grid", files[0], files[0], "--from", "100ms", "--for", "200ms", "--out",
		out); code != cli.ExitOK {
		t.Fatal(errs)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	// Two panels of 50 PRB and 200 subframes, of 8 by 4 pixels each: 500 has 10 blocks, 700 the
	// next 15, the rest is idle.
	for panel := range 2 {
		for column := range 200 {
			for prb := range 50 {
				want := color.Color(gridIdle)
				switch {
				case prb < 10:
					want = gridUserColor(500)
				case prb < 25:
					want = gridUserColor(700)
				}
				x, y := 100+8*column+3, panel*(60+200+90)+60+200-4*prb-2
				if got := color.RGBAModel.Convert(img.At(x, y)); got != want {
					t.Fatalf("panel %d, PRB %d, subframe %d: %v, want %v", panel, prb, column, got, want)
				}
			}
		}
	}
	if code, o, _ := runCellwatch(t, "grid", files[0], "--out", "-"); code != cli.ExitOK ||
		!strings.HasPrefix(o, "\x89PNG") {
		t.Errorf("code %d, %.20q", code, o)
	}
}

// TestGridPanel checks positions, missed subframes, and blocks for all users.
func TestGridPanel(t *testing.T) {
	g := census.NewGrid(100)
	wide := lte.DCI{RNTI: 900, Format: cell.Format1}
	for i := range int64(60) {
		if i == 30 {
			continue
		}
		d := []lte.DCI{{RNTI: 500, Format: cell.Format1, Level: 1, PRB: 3, PRBs: lte.PRBSet{7 << 40}},
			{RNTI: 0xFFFF, Format: cell.Format1A, Level: 4, PRB: 1, PRBs: lte.PRBSet{1}}}
		for who := range cell.RNTI(10) {
			d = append(d, lte.DCI{RNTI: 600 + who, Format: cell.Format1, Level: 1, PRB: 1,
				PRBs: lte.PRBSet{1 << (10 + who)}})
		}
		g.Add(census.Subframe{Number: 10_240 + i, PRB: 50, DCIs: append(d, wide)})
	}
	p := layoutGridPanel("cell", g, [3]int64{10_230, 10, 70})
	at := func(column, row int) color.Color { return p.ColorAt(row, column) }
	for _, c := range []struct {
		column, row int
		want        color.Color
	}{{0, 40, gridUserColor(500)}, {0, 42, gridUserColor(500)}, {59, 43, gridIdle}, {0, 0, gridUserColor(0xFFFE)},
		{29, 15, gridUserColor(605)}, {30, 40, gridMissed}, {60, 0, gridMissed}, {69, 0, gridMissed}} {
		if got := at(c.column, c.row); got != c.want {
			t.Errorf("column %d, PRB %d: %v, want %v", c.column, c.row, got, c.want)
		}
	}
	if p.Title != "cell; blocks are stacked" { // wide has no position
		t.Error(p.Title)
	}
	if len(p.X) != 7 || p.X[1].Label != "SFN 1" || p.X[1].Below != "0.02 s" || len(p.Y) != 5 {
		t.Errorf("%+v %+v", p.X, p.Y)
	}
	if len(p.Keys) != 6 || p.Keys[0].Name != "for all  2.0 %" || p.Keys[1].Name != "0x01f4  6.0 %" ||
		p.Keys[5].Name != "7 more  14.0 %" {
		t.Errorf("%+v", p.Keys)
	}
}

// TestGridErrors checks the limits of a picture.
func TestGridErrors(t *testing.T) {
	files := recordings(t, writeRecording(t, 100, 500))
	out := filepath.Join(t.TempDir(), "grid.png")
	for _, c := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{"--for", "1601ms"}, cli.ExitUsage, "draw several pictures"},
		{[]string{"--for", "0s"}, cli.ExitUsage, "1 to 1600 ms"},
		{[]string{"--from", "-1s"}, cli.ExitUsage, "--from"},
		{[]string{"--from", "1s"}, cli.ExitFailure, "before the end"},
	} {
		code, _, errs := runCellwatch(t, append([]string{"grid", files[0], "--out", out}, c.args...)...)
		if code != c.code || !strings.Contains(errs, c.text) {
			t.Errorf("%v: code %d: %s", c.args, code, errs)
		}
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("a picture of nothing")
	}
	for _, n := range []int{1, 120, 121, 250, maxGridColumns} {
		if step := subframesPerMark(n); n/step > 12 || step%10 != 0 {
			t.Errorf("%d subframes: a mark each %d", n, step)
		}
	}
}
