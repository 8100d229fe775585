// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"slices"
	"strings"

	"mpbond/base/unit"
	"mpbond/lab"
)

// Schemes of the bench besides mptcp.
const (
	singleScheme     = "single"
	helperLinkScheme = "single:helper1"
)

const (
	benchReps  = 10
	benchSetup = "Times are medians. " + commonSetup + " Rates are PS/HS/pipe in Mbit/s; a second helper equals " +
		"the first."
)

// ClaimRows returns the rows of the bench: what mpbond claims, compared with its baselines. Drives
// are read from a directory; with "" they are those that come with the program.
func ClaimRows(drives string) ([]Row, error) {
	ridden, err := lab.LoadDrives(drives)
	if err != nil {
		return nil, err
	}
	all := []Row{rowB1StableLinks(), rowB2SlowerLinks(), rowB3FailingLinks(), rowB4Drives(ridden), rowB5TwoUsers(),
		rowB6MachineLimits(), rowB7FadingLinks()}
	for i := range all {
		all[i].Source, all[i].IsClaim = "none: ours", true
	}
	return all, nil
}

// The grid of row b1. Networks in helpedLinks have the helper's link alone as a further scheme,
// since it is no slower than the direct path there.
var (
	gridLinks   = []string{"8/10/5", "5/10/5", "1/18/5", "14/10/5"}
	gridSizes   = []unit.Bytes{64 * unit.KB, 512 * unit.KB, 2 * unit.MB, 10 * unit.MB}
	gridSchemes = []string{Product, pams, naive, mptcp, singleScheme}
	helpedLinks = []string{"5/10/5", "1/18/5"}
)

const (
	maxQuickGridSize = 2 * unit.MB // largest size in the short form
	// twoHelpers has two helpers.
	twoHelpers = "8/10/5,10/5"
)

// newGridCell returns a cell of the grid.
func newGridCell(links string, size unit.Bytes, upload bool) Cell {
	c := Cell{Links: links, Size: size, Upload: upload, Schemes: slices.Clone(gridSchemes), Reps: benchReps}
	c.Name = fmt.Sprintf("%s, %v, %s", links, size, map[bool]string{false: "down", true: "up"}[upload])
	if slices.Contains(helpedLinks, links) {
		c.Schemes = append(c.Schemes, helperLinkScheme)
	}
	if size <= maxQuickGridSize {
		c.Quick = 1
	}
	return c
}

// rowB1StableLinks returns row b1: stable links by rates, sizes and directions.
func rowB1StableLinks() Row {
	r := Row{ID: "b1", Title: "Stable links by rates, size and direction", Metrics: []Metric{Time, DuplicateShare},
		Setup: benchSetup + " mpbond:minrtt:noreinject is the scheduler of the least round trip, without " +
			"reinjection. Two cells are measured again, alone on the machine."}
	var grid, alone []Cell
	for _, links := range gridLinks {
		for _, size := range gridSizes {
			for _, upload := range []bool{false, true} {
				grid = append(grid, newGridCell(links, size, upload))
			}
		}
	}
	for _, size := range []unit.Bytes{64 * unit.KB, 2 * unit.MB} {
		c := newGridCell("8/10/5", size, false)
		c.Name, c.Quick, c.Alone = c.Name+aloneSuffix, 0, true
		if size > unit.MB {
			c.Reps /= 2
		}
		alone = append(alone, c)
	}
	others := []Cell{
		{Name: "4 MB, 8/10/5", Links: "8/10/5", Size: 4 * unit.MB, Schemes: []string{Product, pams, mptcp,
			singleScheme}, Reps: benchReps},
		{Name: "20 MB, two helpers", Links: twoHelpers, Size: 20 * unit.MB, Schemes: []string{Product, mptcp,
			singleScheme}, Reps: 3},
	}
	r.Cells = slices.Concat(grid, others, alone)
	r.Points = append(gridClaims(grid), duplicateClaim(slices.Concat(grid, others)), isolationClaim(alone))
	r.tables = func(rec Record) []Table {
		return append([]Table{gridMedianTable(rec, grid)}, schemeTables(rec, slices.Concat(others, alone))...)
	}
	return r
}

// aloneSuffix ends the names of cells that run alone.
const aloneSuffix = ", nothing beside it"

// rowB2SlowerLinks returns row b2: links that become slower.
func rowB2SlowerLinks() Row {
	r := Row{ID: "b2", Title: "A link becomes slower", Setup: benchSetup + " The published bound of the drop, " +
		fmt.Sprint(publishedDropBound) + " s, counts payload alone and no round trips.",
		Metrics: []Metric{Time, LongestGap}}
	cell := func(links, what, at string, schemes ...string) Cell {
		return Cell{Name: fmt.Sprintf("4 MB, %s, %s at 2 s", links, what), Links: links, Size: 4 * unit.MB,
			Schemes: schemes, Reps: benchReps, Quick: 1, At: []string{at}}
	}
	drop := cell("5/10/5", "pipe falls from 5 to 1 Mbit/s", "2s:pipe1.rate=1Mbit/s", Product, pams, Product+noReinject,
		pams+noReinject, mptcp, singleScheme)
	falls := []Cell{
		cell("8/10/5", "HS-path falls from 10 to 1 Mbit/s", "2s:hs1.rate=1Mbit/s", Product, pams, mptcp, singleScheme),
		cell("8/10/5", "pipe falls from 5 to 1 Mbit/s", "2s:pipe1.rate=1Mbit/s", Product, pams, mptcp, singleScheme),
	}
	r.Points = append(pipeDropClaims(drop), linkFallClaim(falls))
	return r.withCellTables(append([]Cell{drop}, falls...))
}

// rowB3FailingLinks returns row b3: links that fail.
func rowB3FailingLinks() Row {
	r := Row{ID: "b3", Title: "A link goes silent, or a helper is killed", Setup: benchSetup +
		" 20 MB over two helpers. The reported gap is the median of the longest gaps of all transfers.",
		Metrics: []Metric{Time, LongestGap}}
	cell := func(what, at string, schemes ...string) Cell {
		return Cell{Name: "20 MB, two helpers, " + what + " at 3 s", Links: twoHelpers, Size: 20 * unit.MB,
			Schemes: schemes, Reps: benchReps, Quick: 1, At: []string{"3s:" + at}}
	}
	silent := []Cell{
		cell("a pipe falls silent", "pipe1.outage=on", Product, mptcp),
		cell("an HS-path falls silent", "hs1.outage=on", Product, mptcp),
		cell("the PS-path falls silent", "ps.outage=on", Product, mptcp),
	}
	r.Points = []Point{silentClaim(silent)}
	return r.withCellTables(append(silent, cell("one is killed", "kill=helper1", Product)))
}

// rowB4Drives returns row b4: recorded drives.
func rowB4Drives(drives []lab.Drive) Row {
	r := Row{ID: "b4", Title: "Recorded drives, two carriers", Metrics: []Metric{Rate},
		Setup: fmt.Sprintf("Direct path and HS-path follow two carriers measured at the same moment in one car "+
			"(lab/drives); the pipe has 100 Mbit/s. Transfers end after %v; their mean rate counts. R_better is "+
			"mpbond's rate divided by that of the better carrier alone, R_total by the sum of both.", lab.DriveLength)}
	seen := map[bool]bool{}
	for _, d := range drives {
		c := Cell{Name: "drive " + d.Name, Drive: &d, Length: lab.DriveLength, Upload: d.Upload,
			Schemes: []string{Product, singleScheme, helperLinkScheme, mptcp}, Reps: 1}
		if !seen[d.Upload] { // one of each direction
			c.Quick, seen[d.Upload] = 1, true
		}
		r.Cells = append(r.Cells, c)
	}
	r.Points = []Point{betterClaim(r.Cells)}
	r.tables = func(rec Record) []Table { return []Table{driveTable(rec, r.Cells)} }
	return r
}

// rowB5TwoUsers returns row b5: two users who share their links.
func rowB5TwoUsers() Row {
	r := Row{ID: "b5", Title: "Two users share their links", Setup: "Times are medians. 8 MB each: alone without " +
		"mpbond, while the other is idle, and both at once.", Metrics: []Metric{Time}}
	var cells []Cell
	for i, links := range []string{"10/3", "10/10", "5/10"} {
		c := Cell{Name: "two users, links of " + strings.ReplaceAll(links, "/", " and ") + " Mbit/s", Links: links,
			Size: 8 * unit.MB, Reps: benchReps, Dual: &lab.DualSpec{}}
		if i == 0 {
			c.Quick = 1
		}
		for _, which := range []string{lab.DualAlone, lab.DualIdle, lab.DualBoth} {
			for _, user := range lab.DualUsers {
				c.Schemes = append(c.Schemes, lab.DualSchemeName(which, user))
			}
		}
		cells = append(cells, c)
	}
	r.Points = []Point{dualUsersClaim(cells)}
	return r.withCellTables(cells)
}

// rowB6MachineLimits returns row b6: the limits of the machine.
func rowB6MachineLimits() Row {
	r := Row{ID: "b6", Title: "Limits of the machine: many streams, unlimited links", Metrics: []Metric{Rate},
		Setup: "Medians; cells run alone. Many streams: 40/50/25 Mbit/s, the second helper 50/25. Unlimited links " +
			"are veth pairs, and all processes share the machine's processors. relay leaves bytes in the kernel; " +
			"relay:copy reads and writes them."}
	return r.withCellTables([]Cell{
		{Name: "1000 streams of 100 KB at once, two helpers", Links: "40/50/25,50/25", Size: 100 * unit.KB,
			Streams: 1000, Schemes: []string{Product}, Reps: 3, Quick: 1, FillsMachine: true},
		{Name: "1 GB, links not limited, all on one machine", Links: "-/-/-", Size: unit.GB, Unchecked: true, Reps: 7,
			Quick: 1, FillsMachine: true,
			Schemes: []string{Product + ":direct", Product + ":direct:subflows=2", Product, mptcp + ":direct",
				mptcp + ":direct:subflows=2", "relay", "relay:copy", singleScheme}},
	})
}

// withCellTables returns the row with these cells and a table for each of them.
func (r Row) withCellTables(cells []Cell) Row {
	r.Cells = cells
	r.tables = func(rec Record) []Table { return schemeTables(rec, cells) }
	return r
}

// DuplicateShare is the share of bytes that arrived more than once.
var DuplicateShare = Metric{Name: "sent twice", Unit: "%", Of: func(r lab.Result) (float64, bool) {
	return 100 * float64(r.Duplicate) / float64(max(1, payloadBytes(r))), strings.HasPrefix(r.Scheme, Product)
}}
