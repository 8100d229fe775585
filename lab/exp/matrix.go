package exp

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/lab"
)

// gridColumns are the matrix's columns.
var gridColumns = []struct{ scheme, title string }{
	{Product, Product}, {pams, "PAMS"}, {naive, "naive"}, {mptcp, "kernel MPTCP"}, {oneLink, "one link"}, {otherLink, "the helper's link"},
}

func columnTitle(scheme string) string {
	for _, c := range gridColumns {
		if c.scheme == scheme {
			return c.title
		}
	}
	return schemeTitle(scheme)
}

// countedOf is how many transfers of a cell count, of those that were planned.
func (rec Record) countedOf(cell string) string {
	return fmt.Sprintf("%d/%d", min(rec.Results.count(cell), rec.Cells[cell]), rec.Cells[cell])
}

// planned are those of the cells that the run had.
func (rec Record) planned(cells []Cell) (some []Cell) {
	for _, c := range cells {
		if rec.Cells[c.Name] > 0 {
			some = append(some, c)
		}
	}
	return some
}

// matrix has a row for each cell of the grid: medians in seconds.
func matrix(rec Record, grid []Cell) Table {
	t := Table{Title: "Stable links: house, size, direction", Head: []string{"cell", "bound"}}
	for _, c := range gridColumns {
		t.Head = append(t.Head, c.title)
	}
	t.Head = append(t.Head, "mpbond of bound", "× the best other", "which", "sent twice", "counted", "discarded", "failed")
	for _, c := range rec.planned(grid) {
		row := []string{c.Name, ""}
		discarded, failed := 0, 0
		for _, column := range gridColumns {
			cell := ""
			s, ok := rec.Results.summary(c.Name, column.scheme)
			if ok {
				cell, row[1] = inSeconds(s.Seconds), inSeconds(s.Bound)
			}
			row = append(row, cell)
			discarded, failed = discarded+s.Discarded, failed+s.Failed
		}
		more := make([]string, 4)
		if ours, ok := rec.Results.summary(c.Name, Product); ok {
			more[0], more[3] = fmt.Sprintf("%.1f %%", 100*ours.Bound/ours.Seconds), fmt.Sprintf("%.1f %%", 100*ours.Twice)
			if best, ok := rec.Results.fastest(c, anyScheme); ok {
				more[1], more[2] = fmt.Sprintf("%.3f", best.Seconds/ours.Seconds), columnTitle(best.Scheme)
			}
		}
		t.Add(append(append(row, more...), rec.countedOf(c.Name), unlessNone(discarded), unlessNone(failed))...)
	}
	return t
}

// schemeTables are one for each cell that was measured.
func schemeTables(rec Record, cells []Cell) (all []Table) {
	for _, c := range cells {
		if len(rec.Results[c.Name]) > 0 {
			all = append(all, SchemeTable(c.Name+", "+rec.countedOf(c.Name)+" counted", Schemes(c.Schemes, rec.Results[c.Name])))
		}
	}
	return all
}

// ride is what one drive came to.
type ride struct {
	a, b, ours    unit.Rate // of each carrier alone, and of the product
	better, total float64   // R_better: to the better carrier alone; R_total: to the sum
	bound         float64   // part of it
}

func (d Data) ride(cell string) (x ride, ok bool) {
	ours, ok1 := d.summary(cell, Product)
	a, ok2 := d.summary(cell, oneLink)
	b, ok3 := d.summary(cell, otherLink)
	if !ok1 || !ok2 || !ok3 || a.Rate+b.Rate <= 0 {
		return x, false
	}
	return ride{a: a.Rate, b: b.Rate, ours: ours.Rate, better: float64(ours.Rate) / float64(max(a.Rate, b.Rate)),
		total: float64(ours.Rate) / float64(a.Rate+b.Rate), bound: ours.Bound / ours.Seconds}, true
}

// rides has a row for each recorded drive, and their means.
func rides(rec Record, drives []Cell) Table {
	t := Table{Title: "Recorded drives, two carriers: mean rates",
		Head: []string{"drive", "carrier a alone", "carrier b alone", "kernel MPTCP", "mpbond", "R_better", "R_total", "of bound", "counted", "failed"}}
	add := func(name string, x ride, kernel, counted, failed string) {
		t.Add(name, x.a.String(), x.b.String(), kernel, x.ours.String(),
			fmt.Sprintf("%.2f", x.better), fmt.Sprintf("%.2f", x.total), fmt.Sprintf("%.0f %%", 100*x.bound), counted, failed)
	}
	var sum ride
	var kernels []float64
	n := 0
	for _, c := range rec.planned(drives) {
		x, ok := rec.Results.ride(c.Name)
		if !ok {
			t.Add(c.Name, "", "", "", "", "", "", "", rec.countedOf(c.Name), rec.failures(c))
			continue
		}
		kernel := ""
		if s, ok := rec.Results.summary(c.Name, mptcp); ok {
			kernel = s.Rate.String()
			kernels = append(kernels, float64(s.Rate))
		}
		add(c.Name, x, kernel, rec.countedOf(c.Name), rec.failures(c))
		n++
		sum = ride{sum.a + x.a, sum.b + x.b, sum.ours + x.ours, sum.better + x.better, sum.total + x.total, sum.bound + x.bound}
	}
	if n > 1 {
		kernel := ""
		if len(kernels) > 0 {
			kernel = unit.Rate(mean(kernels)).String()
		}
		m, f := unit.Rate(n), float64(n)
		add("mean", ride{sum.a / m, sum.b / m, sum.ours / m, sum.better / f, sum.total / f, sum.bound / f}, kernel, "", "")
	}
	return t
}

// failures names the schemes of which transfers failed, and how often.
func (rec Record) failures(c Cell) string {
	var all []string
	for _, s := range Schemes(c.Schemes, rec.Results[c.Name]) {
		if s.Failed > 0 {
			all = append(all, fmt.Sprintf("%s %d: %s", schemeTitle(s.Scheme), s.Failed, s.Error))
		}
	}
	return joined(all)
}

func joined(all []string) string { return strings.Join(all, "; ") }

// overviewOf has a row for each of some cells: mpbond as it is, the baselines, and what
// else is worth a word.
func (r Row) overviewOf(rec Record) Table {
	t := Table{Head: []string{"what", "bound", "mpbond", "kernel MPTCP", "one link", "besides", "counted"}}
	for _, c := range r.Cells {
		if !slices.Contains(r.Overview, c.Name) || rec.Results.count(c.Name) == 0 {
			continue
		}
		value := func(s Summary) string {
			switch {
			case s.N == 0:
				return ""
			case c.Unchecked:
				return s.Rate.String()
			}
			return fmt.Sprintf("%.2f s", s.Seconds)
		}
		all := Schemes(c.Schemes, rec.Results[c.Name])
		of := func(scheme string) (s Summary) {
			if i := slices.Index(c.Schemes, scheme); i >= 0 {
				s = all[i]
			}
			return s
		}
		ours, bound := of(Product), ""
		if ours.N > 0 && !c.Unchecked {
			bound = fmt.Sprintf("%.2f s", ours.Bound)
		}
		t.Add(c.Name, bound, value(ours), value(of(mptcp)), value(of(oneLink)), joined(c.besides(all, value)), rec.countedOf(c.Name))
	}
	return t
}

// besides are variants of mpbond and of baselines, and what the cell is about if that is
// not time.
func (c Cell) besides(all []Summary, value func(Summary) string) (texts []string) {
	var gaps []string
	for _, s := range all {
		if s.N == 0 {
			continue
		}
		base, _, variant := strings.Cut(s.Scheme, ":")
		if variant && base != oneLink || base == "relay" {
			texts = append(texts, schemeTitle(s.Scheme)+" "+value(s))
		}
		gaps = append(gaps, fmt.Sprintf("%s %.2f s", schemeTitle(s.Scheme), s.MedianGap))
		if c.Streams > 1 && len(s.PeakRSS) > 0 {
			texts = append(texts, "peak memory: "+lab.ByDevice(s.PeakRSS, unit.Bytes.String))
		}
	}
	if (lab.Plan{At: c.At}).Breaks() {
		texts = append(texts, "longest gap, median: "+strings.Join(gaps, ", "))
	}
	return texts
}

// WriteOverview writes one table of the cells that rows name for it, for a document.
func WriteOverview(w io.Writer, all []Evaluation) error {
	var t Table
	var b strings.Builder
	var sum Evaluation // of all rows that have a part
	for _, e := range all {
		if len(e.overview.Rows) > 0 {
			t.Head, t.Rows = e.overview.Head, append(t.Rows, e.overview.Rows...)
			e.Counted, e.Planned = e.Counted+sum.Counted, e.Planned+sum.Planned
			sum = e
		}
	}
	if len(t.Rows) == 0 {
		return fault.New(fault.NotFound, errors.New("nothing was measured yet of what an overview shows"), "`mpbond-lab exp run bench` measures it")
	}
	t.markdown(&b)
	fmt.Fprintf(&b, "\n%s.\n", sum.Made())
	_, err := io.WriteString(w, b.String())
	return err
}
