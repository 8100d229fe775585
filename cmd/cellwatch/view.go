// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gdamore/tcell/v2"

	"mpbond/base/text"
	"mpbond/base/unit"
	"mpbond/internal/cli"
	"mpbond/pbe/air"
	"mpbond/pbe/cell"
	"mpbond/pbe/census"
)

const (
	// gridSubframes is the number of subframes kept of each cell.
	gridSubframes = 4000
	// minUserLines is the least height of the table of users, with its head.
	minUserLines = 4
	gridLabel    = 4 // columns before the grid
)

// viewScales are the possible numbers of subframes per column.
var viewScales = [...]int{1, 2, 5, 10, 20}

// Marks of the grid that are not a user's letter.
const (
	markIdle    = '·'
	markAll     = '#'
	markControl = '-'
	markMissed  = ' '
	markUnnamed = '+' // a data user, when letters have run out
)

// letters are assigned to data users in turn.
const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// tile is one position of the grid with its dominant user.
type tile struct {
	mark rune
	rnti cell.RNTI // 0: free
}

// viewRow is a line of the screen: text, with tiles drawn over it from column at on.
type viewRow struct {
	cli.Row
	at    int
	tiles []tile
}

// viewedCell is the state of one cell in the view.
type viewedCell struct {
	grid    *census.Grid
	users   *census.Users
	window  *cell.Window // for its usage
	letters map[cell.RNTI]byte
	list    []census.User // scratch
	// Of the last subframe.
	sfn, index int
	cfi        int
	received   bool
}

// cellView is the model of the live view. applySubframe runs on the goroutine that decodes, all
// else on that of the screen.
type cellView struct {
	mu      sync.Mutex
	cells   []*viewedCell
	states  []air.State
	rnti    cell.RNTI // 0: unknown
	fusion  *cell.Fusion
	monitor *cell.Monitor
	grants  []cell.Grant
	shown   int
	scale   int // index into viewScales
	paused  bool
	help    bool
	skipped int64 // subframes during the pause
	ended   bool
	warning error // the last one
}

// newCellView returns a view of that many cells, and of the device with this RNTI.
func newCellView(cells int, rnti cell.RNTI) *cellView {
	v := &cellView{rnti: rnti, monitor: cell.NewMonitor(), scale: 3}
	var ids []cell.ID
	for i := range cells {
		v.cells = append(v.cells, &viewedCell{grid: census.NewGrid(gridSubframes), users: census.NewUsers(),
			window: cell.NewWindow(0), letters: map[cell.RNTI]byte{}})
		ids = append(ids, cell.ID(i))
		v.monitor.AddCell(cell.ID(i), rnti, cell.DefaultErrorRate)
	}
	v.fusion = cell.NewFusion(ids...)
	return v
}

// applySubframe adds the next subframe.
func (v *cellView) applySubframe(s *air.Subframe) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.paused {
		v.skipped++
		return
	}
	c := v.cells[s.Cell]
	x := census.Subframe{Cell: s.Cell, Number: s.Number, PRB: s.PRB, DCIs: s.DCIs}
	c.grid.Add(x)
	c.users.Add(x)
	m := s.Message(v.grants)
	v.grants = m.Grants
	c.window.Add(m, census.Window)
	v.fusion.Add(m, v.monitor.Add)
	c.sfn, c.index, c.cfi, c.received = s.SFN, s.Index, s.CFI, true
}

// markInputEnded marks the end of the input. It returns false if no subframe ever arrived.
func (v *cellView) markInputEnded() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.ended = true
	return slices.ContainsFunc(v.cells, func(c *viewedCell) bool { return c.received })
}

// setWarning shows a warning.
func (v *cellView) setWarning(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.warning = err
}

// setCarrierStates sets the states of the carriers.
func (v *cellView) setCarrierStates(states []air.State) { v.states = states }

// handleViewKey executes a key. It returns true if the key ends the view.
func (v *cellView) handleViewKey(e *tcell.EventKey) (quit bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	r := e.Rune()
	switch {
	case e.Key() == tcell.KeyEscape && v.help:
		v.help = false
	case e.Key() == tcell.KeyEscape, e.Key() == tcell.KeyCtrlC, r == 'q':
		return true
	case e.Key() == tcell.KeyTab:
		v.shown = (v.shown + 1) % len(v.cells)
	case e.Key() == tcell.KeyBacktab:
		v.shown = (v.shown + len(v.cells) - 1) % len(v.cells)
	case r >= '1' && r <= '9' && int(r-'1') < len(v.cells):
		v.shown = int(r - '1')
	case r == ' ' || r == 'p':
		v.paused, v.skipped = !v.paused, 0
	case r == '+' || r == '=':
		v.scale = max(v.scale-1, 0)
	case r == '-':
		v.scale = min(v.scale+1, len(viewScales)-1)
	case r == '?' || r == 'h':
		v.help = !v.help
	}
	return false
}

// drawCellView lays out the view for a screen of that size.
func (v *cellView) drawCellView(width, height int) (rows []viewRow) {
	v.mu.Lock()
	defer v.mu.Unlock()
	add := func(style int, format string, args ...any) {
		rows = append(rows, viewRow{Row: cli.Row{Text: cli.Truncate(text.Printable(fmt.Sprintf(format, args...)),
			width), Style: style}})
	}
	c := v.cells[v.shown]
	v.drawHeaderLines(c, add)
	switch room := height - len(rows) - 1; {
	case v.help:
		for _, line := range viewHelp {
			add(cli.StylePlain, "%s", line)
		}
	case c.received:
		c.list = c.users.List(c.list[:0])
		c.assignLetters()
		table := min(len(c.list)+1, max(minUserLines, room/3))
		rows = append(rows, c.drawBlockGrid(width, room-table, viewScales[v.scale])...)
		rows = append(rows, c.drawUserTable(height-len(rows)-1, width, v.rnti)...)
	}
	for len(rows) < height-1 {
		add(cli.StylePlain, "")
	}
	rows = rows[:max(min(len(rows), height-1), 0)]
	if height > 0 {
		v.drawFooterLine(add)
	}
	return rows
}

var viewHelp = []string{
	"",
	"  Tab, 1 to 8  next cell, cell N     Space  pause and resume",
	"  + and -      less and more time    ?      toggle this help        q, Esc  quit",
	"",
	"The grid has downlink resource blocks upwards and time to the right. Each position shows",
	"its main user: A to z are users of the table below, - a user with control traffic only,",
	"+ another user, # blocks for all users, · nobody. Blank was not received. Each user has a",
	"colour, the same as in pictures of cellwatch grid.",
	"",
	"The table is of the last second: a user's part of all blocks, the rate of these, the last",
	"MCS and format, and the part of the transport blocks that were retransmissions (RETX).",
}

// drawFooterLine draws the last line: why nothing moves, a warning, or the keys.
func (v *cellView) drawFooterLine(add func(style int, format string, args ...any)) {
	switch {
	case v.ended:
		add(cli.StyleHead, "the input has ended; q quits")
	case v.paused:
		add(cli.StyleHead, "paused; %d subframes skipped; Space resumes", v.skipped)
	case v.warning != nil:
		add(cli.StyleBad, "%v", v.warning)
	default:
		add(cli.StyleDim, "q quits; Space pauses; Tab: next cell; + and -: time scale; ?: help")
	}
}

// drawHeaderLines draws the cells, the state of the shown one, and the capacity.
func (v *cellView) drawHeaderLines(c *viewedCell, add func(style int, format string, args ...any)) {
	var names []string
	for i := range v.cells {
		name := "no cell yet"
		if i < len(v.states) {
			if s := v.states[i]; s.Cell.PRB > 0 {
				name = fmt.Sprintf("cell %d, %g MHz", s.Cell.ID, cellMHz[s.Cell.PRB])
			}
		}
		if len(v.cells) > 1 {
			name = fmt.Sprintf("%d: %s", i+1, name)
		}
		if i == v.shown && len(v.cells) > 1 {
			name = "[" + name + "]"
		}
		names = append(names, name)
	}
	add(cli.StyleHead, "%s", strings.Join(names, "  "))
	if v.shown < len(v.states) {
		s := v.states[v.shown]
		what := "searching for a cell"
		switch {
		case c.received && s.HasCell:
			what = fmt.Sprintf("%d PRB, ports: %d, SFN %d.%d, SNR %.1f dB, CFI %d, carrier %+.0f Hz", s.Cell.PRB,
				s.Cell.Ports, c.sfn, c.index, s.SNR, c.cfi, s.Offset)
		case c.received:
			what = "the cell is lost"
		}
		add(cli.IfElse(s.HasCell, cli.StylePlain, cli.StyleBad), "%s; lost %v; %s", what, lostSampleTime(s), s.Source)
	}
	if !c.received {
		return
	}
	f := c.window.Usage(cell.FilterByPRB)
	add(cli.StylePlain, "load %s, idle %.1f of %.0f PRB; in 40 ms %d users, %d of them data users",
		formatPartPercent(1-f.IdlePRB/f.PRB), f.IdlePRB, f.PRB, f.AllUsers, f.Users-1)
	if v.rnti != 0 {
		l := newCapacityLine(v.monitor.Estimate(), v.rnti, 0)
		add(cli.StylePlain, "0x%04x: C_p %v, C_f %v, C_t %v; %s", uint16(v.rnti), l.Physical, l.Fair, l.Transport,
			l.describeActiveCells())
	}
}

// lostSampleTime returns the duration of the dropped samples.
func lostSampleTime(s air.State) time.Duration {
	if s.Rate == 0 {
		return 0
	}
	return (time.Duration(s.Lost) * time.Second / time.Duration(s.Rate)).Round(time.Millisecond)
}

// assignLetters gives letters to data users without one and frees those of users that are gone.
func (c *viewedCell) assignLetters() {
	there, used := map[cell.RNTI]bool{}, map[byte]bool{}
	for _, u := range c.list {
		there[u.RNTI] = true
	}
	for r, l := range c.letters {
		if !there[r] {
			delete(c.letters, r)
		} else {
			used[l] = true
		}
	}
	for _, u := range c.list {
		if _, has := c.letters[u.RNTI]; has || !u.IsDataUser {
			continue
		}
		for i := range len(letters) {
			if l := letters[i]; !used[l] {
				c.letters[u.RNTI], used[l] = l, true
				break
			}
		}
	}
}

// userTileMark returns the mark of a user.
func (c *viewedCell) userTileMark(r cell.RNTI, data bool) rune {
	l, has := c.letters[r]
	switch {
	case !r.IsUser():
		return markAll
	case has:
		return rune(l)
	case data:
		return markUnnamed
	}
	return markControl
}

// drawBlockGrid draws at most room lines: the grid, with the highest block at the top, and a time
// axis.
func (c *viewedCell) drawBlockGrid(width, room, scale int) (rows []viewRow) {
	columns, prb := width-gridLabel, c.grid.PRB
	if columns < 1 || room < 2 || c.grid.Len() == 0 {
		return nil
	}
	data := map[cell.RNTI]bool{}
	for _, u := range c.list {
		data[u.RNTI] = u.IsDataUser
	}
	each := (prb + room - 2) / (room - 1) // PRBs per line
	newest := c.grid.At(c.grid.Len()-1).Number / int64(scale)
	for low := (prb - 1) / each * each; low >= 0; low -= each {
		r := viewRow{Row: cli.Row{Text: fmt.Sprintf("%3d ", low), Style: cli.StyleDim}, at: gridLabel,
			tiles: make([]tile, columns)}
		for x := range r.tiles {
			r.tiles[x] = c.dominantTile(newest-int64(columns-1-x), scale, low, min(low+each, prb))
			if t := &r.tiles[x]; t.mark == 0 {
				t.mark = c.userTileMark(t.rnti, data[t.rnti])
			}
		}
		rows = append(rows, r)
	}
	return append(rows, viewRow{Row: cli.Row{Text: cli.Truncate(c.formatTimeAxis(columns, scale), width),
		Style: cli.StyleDim}})
}

// formatTimeAxis returns the time axis below the grid.
func (c *viewedCell) formatTimeAxis(columns, scale int) string {
	back := time.Duration(columns*scale) * time.Millisecond
	left, right := fmt.Sprintf("%4s−%v", "", back), fmt.Sprintf("SFN %d", c.sfn)
	if scale > 1 {
		right = fmt.Sprintf("%d ms a column, SFN %d", scale, c.sfn)
	}
	space := gridLabel + columns - len([]rune(left)) - len(right)
	return left + strings.Repeat(" ", max(space, 1)) + right
}

// dominantTile returns the user with most of the blocks from low to high in the subframes of one
// column. A mark of 0 stands for the user's.
func (c *viewedCell) dominantTile(column int64, scale, low, high int) tile {
	type share struct {
		who cell.RNTI
		n   int
	}
	var few [16]share
	list, received := few[:0], 0
	oldest := c.grid.At(0).Number
	for number := column * int64(scale); number < (column+1)*int64(scale); number++ {
		i := int(number - oldest)
		if number < oldest || i >= c.grid.Len() || !c.grid.At(i).Received {
			continue
		}
		received++
	blocks:
		for _, rnti := range c.grid.At(i).Users[low:high] {
			for k := range list {
				if list[k].who == rnti {
					list[k].n++
					continue blocks
				}
			}
			list = append(list, share{rnti, 1})
		}
	}
	if received == 0 {
		return tile{mark: markMissed}
	}
	best, idle := share{}, 0
	for _, h := range list {
		switch {
		case h.who == 0:
			idle = h.n
		case h.n > best.n:
			best = h
		}
	}
	if 2*idle > received*(high-low) || best.n == 0 {
		return tile{mark: markIdle}
	}
	return tile{rnti: best.who}
}

// drawUserTable draws the table of users in at most room lines; self is highlighted.
func (c *viewedCell) drawUserTable(room, width int, self cell.RNTI) (rows []viewRow) {
	if room < 2 {
		return nil
	}
	const columns = "  %-12s %7s %12s %3s %-3s %7s %7s %s"
	add := func(style int, format string, args ...any) {
		rows = append(rows, viewRow{Row: cli.Row{Text: cli.Truncate(text.Printable(fmt.Sprintf(format, args...)),
			width), Style: style}})
	}
	add(cli.StyleHead, columns, "USER", "PRB", "RATE", "MCS", "DCI", "RETX", "UPLINK", "LAST DCI")
	shown := c.list[:min(len(c.list), room-1)]
	if len(shown) < len(c.list) {
		shown = shown[:len(shown)-1]
	}
	for _, u := range shown {
		mcs, format := "-", "-"
		if u.MCS >= 0 {
			mcs, format = fmt.Sprint(u.MCS), u.Format.String()
		}
		ago := "now"
		if u.SinceMessage >= 100 {
			ago = fmt.Sprintf("%.1f s ago", float64(u.SinceMessage)/1000)
		}
		style := cli.IfElse(u.SinceMessage < 1000, cli.StylePlain, cli.StyleDim)
		if u.RNTI == self {
			style = cli.StyleHead
		}
		add(style, columns, fmt.Sprintf("0x%04x %d", uint16(u.RNTI), u.RNTI), formatPartPercent(u.PRBPart),
			formatLiveRate(u.Rate), mcs, format, formatPartPercent(u.Retransmitted), formatPartPercent(u.UplinkPart), ago)
		if width > 0 {
			rows[len(rows)-1].tiles = []tile{{c.userTileMark(u.RNTI, u.IsDataUser), u.RNTI}}
		}
	}
	if more := len(c.list) - len(shown); more > 0 {
		add(cli.StyleDim, "  and %d more users with less", more)
	}
	return rows
}

// formatLiveRate formats a rate with constant precision, so that it is readable while it changes.
func formatLiveRate(r unit.Rate) string {
	if r >= unit.Mbps {
		return fmt.Sprintf("%.1f Mbit/s", float64(r)/1e6)
	}
	return fmt.Sprintf("%.0f kbit/s", float64(r)/1e3)
}
