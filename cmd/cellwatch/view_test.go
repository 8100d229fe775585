// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gdamore/tcell/v2"

	"mpbond/internal/cli/clitest"
	"mpbond/pbe/air"
	"mpbond/pbe/cell"
	"mpbond/pbe/lte"
)

// seenAir returns subframe n of a cell: 500 has blocks 10 to 29 and moves up, 700 has the last ten
// in every second frame, 900 sends; control users and paging appear occasionally.
func seenAir(id cell.ID, n int64, prb uint8) *air.Subframe {
	s := &air.Subframe{Cell: id, Number: n, PRB: prb,
		Subframe: &lte.Subframe{SFN: int(n / 10 % 1024), Index: int(n % 10), CFI: 2, SNR: 20}}
	give := func(who cell.RNTI, format cell.Format, first, blocks int) {
		d := lte.DCI{RNTI: who, Format: format, Level: 2, PRB: blocks, HARQ: uint8(n % 8), N: 1,
			Blocks: [2]cell.Block{{MCS: 12, NDI: n/8%2 == 0, Size: cell.Bits(blocks) * 500}}}
		for i := first; i < first+blocks; i++ {
			d.PRBs[i>>6] |= 1 << (i & 63)
		}
		s.DCIs = append(s.DCIs, d)
	}
	up := int(n / 100 % 2 * 5)
	give(500, cell.Format2, 5+up, 10)
	if n/10%2 == 0 {
		give(700, cell.Format1, int(prb)-5, 5)
	}
	if n%100 < 10 {
		give(0xFFFE, cell.Format1A, 0, 5)
	}
	if n%37 == 0 {
		give(cell.RNTI(0x1000+n), cell.Format1A, 0, 4)
	}
	give(900, cell.Format0, 0, 2)
	return s
}

func viewState() []air.State {
	return []air.State{
		{Source: "walk.cf32", Rate: 7_680_000, HasCell: true, Cell: lte.Cell{ID: 301, PRB: 25, Ports: 2},
			Offset: 312.4, SNR: 19.96, Lost: 76_800},
		{Source: "iq.sc16", Rate: 1_920_000},
	}
}

// renderRows returns the screen as text, with the marks of tiles.
func renderRows(rows []viewRow) string {
	var b strings.Builder
	for _, r := range rows {
		line := []rune(r.Text)
		for i, t := range r.tiles {
			for len(line) <= r.at+i {
				line = append(line, ' ')
			}
			line[r.at+i] = t.mark
		}
		b.WriteString(strings.TrimRight(string(line), " ") + "\n")
	}
	return b.String()
}

// goldenView is the screen of TestCellView.
const goldenView = `
[1: cell 301, 5 MHz]  2: no cell yet
25 PRB, ports: 2, SFN 89.9, SNR 20.0 dB, CFI 2, carrier +312 Hz; lost 10ms; wal…
load 55.8 %, idle 11.1 of 25 PRB; in 40 ms 4 users, 2 of them data users
0x01f4: C_p 10.5 Mbit/s, C_f 12.5 Mbit/s, C_t 9.81 Mbit/s; cell 0: N 1, own 10.…
 24 B·B·B·B·B·B·B·B·B·B·B·B·B·B·B·B·B·B·B·B·B·B·B·B·B·B·B·B·B·B·B·B·B·    B·B·B·
 21 B·B·B·B·B·B·B·B·B·B·B·B·B·B·B·B·B·B·B·B·B·B·B·B·B·B·B·B·B·B·B·B·B·    B·B·B·
 18 AA··········AAAAAAAAAA··········AAAAAAAAAA··········AAAAAAAAAA····    ··AAAA
 15 AA··········AAAAAAAAAA··········AAAAAAAAAA··········AAAAAAAAAA····    ··AAAA
 12 AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA    AAAAAA
  9 AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA    AAAAAA
  6 ··AAAAAAAAAA··········AAAAAAAAAA··········AAAAAAAAAA··········AAAA    AA····
  3 ··#·········#·········#·········#·········#·········#·········#···    ··#···
  0 ··#·········#·········#·········#·········#·········#·········#···    ··#···
    −760ms                                                10 ms a column, SFN 89
  USER             PRB         RATE MCS DCI    RETX  UPLINK LAST DCI
A 0x01f4 500    40.0 %   5.0 Mbit/s  12 2     0.0 %   0.0 % now
B 0x02bc 700    10.0 %   1.2 Mbit/s  12 1     0.0 %   0.0 % now
- 0x3b81 15233   0.0 %     2 kbit/s  12 1A    0.0 %   0.0 % now
- 0x3b5c 15196   0.0 %     2 kbit/s  12 1A    0.0 %   0.0 % now
- 0x3b12 15122   0.0 %     2 kbit/s  12 1A    0.0 %   0.0 % 0.1 s ago
- 0x3aed 15085   0.0 %     2 kbit/s  12 1A    0.0 %   0.0 % 0.1 s ago
- 0x3ac8 15048   0.0 %     2 kbit/s  12 1A    0.0 %   0.0 % 0.2 s ago
  and 20 more users with less
q quits; Space pauses; Tab: next cell; + and -: time scale; ?: help
`

// TestCellView checks the screen of a known stream with missed subframes.
func TestCellView(t *testing.T) {
	v := newCellView(2, 500)
	for n := int64(10_240); n < 10_240+900; n++ {
		if n < 10_240+800 || n >= 10_240+840 {
			v.applySubframe(seenAir(0, n, 25))
		}
	}
	v.setCarrierStates(viewState())
	if got := renderRows(v.drawCellView(80, 24)); got != goldenView[1:] {
		t.Errorf("\n%s", got)
	}
}

// TestCellViewColours checks that positions have the colours of their users.
func TestCellViewColours(t *testing.T) {
	v := newCellView(1, 0)
	for n := range int64(50) {
		v.applySubframe(seenAir(0, n, 25))
	}
	v.handleViewKey(tcell.NewEventKey(tcell.KeyRune, '+', 0))
	v.handleViewKey(tcell.NewEventKey(tcell.KeyRune, '+', 0))
	v.handleViewKey(tcell.NewEventKey(tcell.KeyRune, '+', 0)) // one subframe per column
	rows := v.drawCellView(54, 60)
	grid := map[string][]tile{}
	for _, r := range rows {
		if len(r.tiles) > 1 {
			grid[strings.TrimSpace(r.Text)] = r.tiles
		}
	}
	if len(grid) != 25 {
		t.Fatalf("%d lines", len(grid))
	}
	for n := range 50 {
		for line, want := range map[string]tile{"5": {'A', 500}, "14": {'A', 500}, "15": {mark: markIdle},
			"24": {'B', 700}, "4": {markAll, 0xFFFE}} {
			switch {
			case line == "24" && n/10%2 == 1:
				want = tile{mark: markIdle}
			case line == "4" && n >= 10:
				want = tile{mark: markIdle}
			}
			if got := grid[line][n]; got != want {
				t.Fatalf("PRB %s of subframe %d: %c of %d, want %c of %d", line, n, got.mark, got.rnti, want.mark,
					want.rnti)
			}
		}
	}
	if got := grid["0"][37]; got != (tile{markControl, 0x1025}) {
		t.Errorf("a control user is %c", got.mark)
	}
}

// TestCellViewFits checks that the view fits any size, and the last line is the footer.
func TestCellViewFits(t *testing.T) {
	v := newCellView(3, 0)
	check := func() {
		for width := 0; width < 130; width += 1 + width/20 {
			for _, height := range []int{0, 1, 2, 3, 4, 5, 7, 9, 24, 60} {
				rows := v.drawCellView(width, height)
				if len(rows) != height {
					t.Fatalf("%d rows of %d", len(rows), height)
				}
				for _, r := range rows {
					if utf8.RuneCountInString(r.Text) > width || len(r.tiles) > 0 && r.at+len(r.tiles) > width {
						t.Fatalf("%q is wider than %d", r.Text, width)
					}
				}
			}
		}
	}
	check()
	v.setCarrierStates(viewState())
	for n := range int64(300) {
		v.applySubframe(seenAir(0, n, 100))
		v.applySubframe(seenAir(2, n, 6+19))
	}
	check()
	v.help = true
	check()
}

// TestCellViewKeys checks the keys for cells, pause, help and quit.
func TestCellViewKeys(t *testing.T) {
	v := newCellView(2, 0)
	v.setCarrierStates(viewState())
	press := func(keys string) (quit bool) {
		for _, r := range keys {
			e := tcell.NewEventKey(tcell.KeyRune, r, 0)
			if r == '\t' {
				e = tcell.NewEventKey(tcell.KeyTab, 0, 0)
			}
			quit = v.handleViewKey(e)
		}
		return quit
	}
	says := func(what string) {
		t.Helper()
		if got := renderRows(v.drawCellView(100, 30)); !strings.Contains(got, what) {
			t.Errorf("no %q in\n%s", what, got)
		}
	}
	says("[1: cell 301, 5 MHz]  2: no cell yet")
	press("\t")
	says("1: cell 301, 5 MHz  [2: no cell yet]")
	says("searching for a cell; lost 0s; iq.sc16")
	press("1 ")
	v.applySubframe(seenAir(0, 5, 25))
	says("paused; 1 subframes skipped")
	press(" ")
	v.applySubframe(seenAir(0, 6, 25))
	says("load 80.0 %, idle 5.0 of 25 PRB; in 40 ms 2 users, 0 of them data users")
	says("q quits")
	v.setWarning(errors.New("samples were lost"))
	says("samples were lost")
	press("?")
	says("cellwatch grid")
	if v.handleViewKey(tcell.NewEventKey(tcell.KeyEscape, 0, 0)) || v.help {
		t.Error("Esc does not end the help first")
	}
	if press("19x7\t\t+++---") || v.shown != 0 || v.scale != 3 {
		t.Errorf("cell %d, scale %d", v.shown, v.scale)
	}
	if !v.markInputEnded() || !press("q") {
		t.Error("it does not end")
	}
	says("the input has ended")
}

// TestCellScreen checks that the loop draws on a screen in memory, waits at the end of the input,
// and ends by its keys, with its context, and without any input.
func TestCellScreen(t *testing.T) {
	begin := func(ctx context.Context, stop func()) (tcell.SimulationScreen, *cellScreen) {
		screen := tcell.NewSimulationScreen("UTF-8")
		if err := screen.Init(); err != nil {
			t.Fatal(err)
		}
		screen.SetSize(90, 24)
		return screen, startCellScreen(ctx, screen, newCellView(2, 0), viewState, stop)
	}
	for _, key := range []struct {
		key tcell.Key
		r   rune
	}{{tcell.KeyRune, 'q'}, {tcell.KeyEscape, 0}, {tcell.KeyCtrlC, 0}} {
		stopped := make(chan struct{})
		screen, s := begin(t.Context(), func() { close(stopped) })
		for n := range int64(500) {
			if err := s.Add(seenAir(0, n, 25)); err != nil {
				t.Fatal(err)
			}
		}
		clitest.AwaitText(t, screen, "[1: cell 301, 5 MHz]", "SFN 49.9", "0x01f4 500", "AAAA", "q quits")
		screen.SetSize(50, 12)
		clitest.AwaitText(t, screen, "10 ms a column, SFN 49")
		go func() {
			defer screen.InjectKey(key.key, key.r, 0)
			clitest.AwaitText(t, screen, "the input has ended")
		}()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		<-stopped
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, s := begin(ctx, func() {})
	_ = s.Add(seenAir(0, 1, 25))
	cancel()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	_, s = begin(t.Context(), func() {})
	if err := s.Close(); err != nil { // without any subframe
		t.Error(err)
	}
}

// TestTilesCanBeRead checks that the letter of each user contrasts with the user's colour.
func TestTilesCanBeRead(t *testing.T) {
	luminance := func(c tcell.Color) float64 { // WCAG 2
		part := func(v int32) float64 {
			x := float64(v) / 255
			if x <= 0.03928 {
				return x / 12.92
			}
			return math.Pow((x+0.055)/1.055, 2.4)
		}
		r, g, b := c.RGB()
		return 0.2126*part(r) + 0.7152*part(g) + 0.0722*part(b)
	}
	for r := range cell.RNTI(0xFFFF) {
		text, back, _ := userTileStyle(r).Decompose()
		a, b := luminance(text), luminance(back)
		if ratio := (max(a, b) + 0.05) / (min(a, b) + 0.05); ratio < 4.4 {
			t.Fatalf("RNTI %#x: contrast %.1f", uint16(r), ratio)
		}
	}
}
