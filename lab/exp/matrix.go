// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"mpbond/base/fault"
	"mpbond/base/unit"
)

// gridColumns are the schemes of the grid's columns.
var gridColumns = []string{Product, pams, naive, mptcp, singleScheme, helperLinkScheme}

// cellCountedText returns how many transfers of a cell count, of those planned.
func (rec Record) cellCountedText(cell string) string {
	return fmt.Sprintf("%d/%d", min(rec.Results.countedTransfers(cell), rec.Cells[cell]), rec.Cells[cell])
}

// plannedCells returns the cells that the run had.
func (rec Record) plannedCells(cells []Cell) (some []Cell) {
	for _, c := range cells {
		if rec.Cells[c.Name] > 0 {
			some = append(some, c)
		}
	}
	return some
}

// gridMedianTable has a row for each cell of the grid: medians in seconds.
func gridMedianTable(rec Record, grid []Cell) Table {
	t := Table{Title: "Stable links by rates, size and direction", Head: []string{"cell", "bound"}}
	t.Head = append(t.Head, gridColumns...)
	t.Head = append(t.Head, "mpbond of bound", "× best other", "best other", "duplicates", "counted", "discarded",
		"failed")
	for _, c := range rec.plannedCells(grid) {
		row := []string{c.Name, ""}
		discarded, failed := 0, 0
		for _, column := range gridColumns {
			cell := ""
			s, ok := rec.Results.schemeSummary(c.Name, column)
			if ok {
				cell, row[1] = formatSeconds(s.Seconds), formatSeconds(s.Bound)
			}
			row = append(row, cell)
			discarded, failed = discarded+s.Discarded, failed+s.Failed
		}
		more := make([]string, 4)
		if ours, ok := rec.Results.schemeSummary(c.Name, Product); ok {
			more[0], more[3] = fmt.Sprintf("%.1f %%", 100*ours.Bound/ours.Seconds),
				fmt.Sprintf("%.1f %%", 100*ours.DuplicateShare)
			if best, ok := rec.Results.fastestBaseline(c, acceptAnyScheme); ok {
				more[1], more[2] = fmt.Sprintf("%.3f", best.Seconds/ours.Seconds), best.Scheme
			}
		}
		t.Add(append(append(row, more...), rec.cellCountedText(c.Name), formatUnlessZero(discarded),
			formatUnlessZero(failed))...)
	}
	return t
}

// schemeTables returns a table for each measured cell.
func schemeTables(rec Record, cells []Cell) (all []Table) {
	for _, c := range cells {
		if len(rec.Results[c.Name]) > 0 {
			all = append(all, SchemeTable(c.Name+", "+rec.cellCountedText(c.Name)+" counted", SummarizeSchemes(c.Schemes,
				rec.Results[c.Name])))
		}
	}
	return all
}

// driveRates is the result of one drive.
type driveRates struct {
	a, b, ours    unit.Rate // of each carrier alone, and of the product
	better, total float64   // R_better: relative to the better carrier; R_total: to the sum
	bound         float64   // share of it
}

// driveRates returns the result of a drive.
func (d Data) driveRates(cell string) (x driveRates, ok bool) {
	ours, ok1 := d.schemeSummary(cell, Product)
	a, ok2 := d.schemeSummary(cell, singleScheme)
	b, ok3 := d.schemeSummary(cell, helperLinkScheme)
	if !ok1 || !ok2 || !ok3 || a.Rate+b.Rate <= 0 {
		return x, false
	}
	return driveRates{a: a.Rate, b: b.Rate, ours: ours.Rate, better: float64(ours.Rate) / float64(max(a.Rate, b.Rate)),
		total: float64(ours.Rate) / float64(a.Rate+b.Rate), bound: ours.Bound / ours.Seconds}, true
}

// driveTable has a row for each recorded drive, and their means.
func driveTable(rec Record, drives []Cell) Table {
	t := Table{Title: "Recorded drives, two carriers: mean rates",
		Head: []string{"drive", "carrier a alone", "carrier b alone", mptcp, Product, "R_better", "R_total", "of bound",
			"counted", "failed"}}
	add := func(name string, x driveRates, kernel, counted, failed string) {
		t.Add(name, x.a.String(), x.b.String(), kernel, x.ours.String(),
			fmt.Sprintf("%.2f", x.better), fmt.Sprintf("%.2f", x.total), fmt.Sprintf("%.0f %%", 100*x.bound), counted,
			failed)
	}
	var sum driveRates
	var kernels []float64
	n := 0
	for _, c := range rec.plannedCells(drives) {
		x, ok := rec.Results.driveRates(c.Name)
		if !ok {
			t.Add(c.Name, "", "", "", "", "", "", "", rec.cellCountedText(c.Name), rec.cellFailureText(c))
			continue
		}
		kernel := ""
		if s, ok := rec.Results.schemeSummary(c.Name, mptcp); ok {
			kernel = s.Rate.String()
			kernels = append(kernels, float64(s.Rate))
		}
		add(c.Name, x, kernel, rec.cellCountedText(c.Name), rec.cellFailureText(c))
		n++
		sum = driveRates{sum.a + x.a, sum.b + x.b, sum.ours + x.ours, sum.better + x.better, sum.total + x.total,
			sum.bound + x.bound}
	}
	if n > 1 {
		kernel := ""
		if len(kernels) > 0 {
			kernel = unit.Rate(meanOfValues(kernels)).String()
		}
		m, f := unit.Rate(n), float64(n)
		add("mean", driveRates{sum.a / m, sum.b / m, sum.ours / m, sum.better / f, sum.total / f, sum.bound / f},
			kernel, "", "")
	}
	return t
}

// cellFailureText names the schemes with failed transfers, and their number.
func (rec Record) cellFailureText(c Cell) string {
	var all []string
	for _, s := range SummarizeSchemes(c.Schemes, rec.Results[c.Name]) {
		if s.Failed > 0 {
			all = append(all, fmt.Sprintf("%s %d: %s", s.Scheme, s.Failed, s.Error))
		}
	}
	return joinBySemicolon(all)
}

func joinBySemicolon(all []string) string { return strings.Join(all, "; ") }

// overviewCells are the cells of WriteOverview, each with a name that fits a narrow column.
var overviewCells = map[string]string{
	"8/10/5, 2 MB, down":  "2 MB, 8/10/5",
	"8/10/5, 10 MB, down": "10 MB, 8/10/5",
	"5/10/5, 2 MB, down":  "2 MB, 5/10/5",
	"20 MB, two helpers":  "20 MB, two helpers",
	"20 MB, two helpers, the PS-path falls silent at 3 s": "20 MB, two helpers, primary's own link silent from 3 s",
}

// overviewTable compares mpbond with kernel MPTCP and with one link, for the row's cells among
// overviewCells.
func (r Row) overviewTable(rec Record) Table {
	t := Table{Head: []string{"download", "bound", Product, "kernel MPTCP", "primary's link alone"}}
	for _, c := range r.Cells {
		name, ok := overviewCells[c.Name]
		if !ok || rec.Results.countedTransfers(c.Name) == 0 {
			continue
		}
		bound := ""
		seconds := map[string]string{}
		for _, s := range SummarizeSchemes(c.Schemes, rec.Results[c.Name]) {
			if s.N == 0 {
				continue
			}
			seconds[s.Scheme] = fmt.Sprintf("%.2f s", s.Seconds)
			if s.Scheme == Product {
				bound = fmt.Sprintf("%.2f s", s.Bound)
			}
		}
		t.Add(name, bound, seconds[Product], seconds[mptcp], seconds[singleScheme])
	}
	return t
}

// WriteOverview writes one narrow table of overviewCells, for a document.
func WriteOverview(w io.Writer, all []Evaluation) error {
	var t Table
	var b strings.Builder
	var sum Evaluation // of all rows with a part
	for _, e := range all {
		if len(e.overview.Rows) > 0 {
			t.Head, t.Rows = e.overview.Head, append(t.Rows, e.overview.Rows...)
			e.Counted, e.Planned = e.Counted+sum.Counted, e.Planned+sum.Planned
			sum = e
		}
	}
	if len(t.Rows) == 0 {
		return fault.New(fault.NotFound, errors.New("no row of the overview was measured yet"),
			"`mpbond-lab exp run bench` measures it")
	}
	t.writeMarkdown(&b)
	fmt.Fprintf(&b, "\n%s.\n", sum.Provenance())
	_, err := io.WriteString(w, b.String())
	return err
}
