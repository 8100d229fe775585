// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"mpbond/base/fault"
	"mpbond/lab"
)

// ListEntry describes a row, or a group of rows.
type ListEntry struct {
	Row       string  `json:"row"`
	Title     string  `json:"title"`
	Source    string  `json:"source,omitempty"`
	Cells     int     `json:"cells"`
	Transfers int     `json:"transfers"`
	Seconds   float64 `json:"seconds"` // estimated time
	// CellList is set by ListCells.
	CellList []ListCell `json:"cell_list,omitempty"`
}

// ListCell describes a cell of a row.
type ListCell struct {
	Cell      string   `json:"cell"`
	Schemes   []string `json:"schemes"`
	Transfers int      `json:"transfers"`
	Seconds   float64  `json:"seconds"` // estimated time if it runs alone
}

// Names of groups of rows: the published ones, those of the bench, of random networks, of smartphones, of high-speed
// rails, and of PBE-CC in cells as they are.
const (
	AllRows    = "all"
	BenchRows  = "bench"
	RandomRows = "networks"
	PhoneRows  = "phones"
	RailRows   = "rails"
	CellRows   = "cells"
)

// groupNames returns the names of the groups that have the row.
func (r Row) groupNames() []string {
	switch {
	case r.Study != "" && r.isUnpublished:
		return []string{r.Study}
	case r.Study != "":
		return []string{AllRows, r.Study}
	case r.IsNetwork:
		return []string{RandomRows}
	case r.IsClaim:
		return []string{BenchRows}
	}
	return []string{AllRows}
}

// SelectRows returns the rows with these IDs or group names, each once, in the order of the
// arguments.
func SelectRows(rows []Row, ids ...string) (some []Row, err error) {
	for _, id := range ids {
		found := false
		for _, r := range rows {
			if r.ID != id && !slices.Contains(r.groupNames(), id) {
				continue
			}
			found = true
			if !slices.ContainsFunc(some, func(s Row) bool { return s.ID == r.ID }) {
				some = append(some, r)
			}
		}
		if !found {
			return nil, fmt.Errorf("no row %q (there are %s)", id, strings.Join(RowIDs(rows), ", "))
		}
	}
	return some, nil
}

// RowIDs returns the group names and the IDs of rows.
func RowIDs(rows []Row) []string {
	ids := []string{AllRows, BenchRows, RandomRows, PhoneRows, RailRows, CellRows}
	for _, r := range rows {
		ids = append(ids, r.ID)
	}
	return ids
}

// List lists rows, then the groups of rows.
func List(rows []Row, o Options) (list []ListEntry, err error) {
	pools := map[string][]lab.Experiment{} // by group
	for _, r := range rows {
		all, err := r.Experiments(o)
		if err != nil {
			return nil, err
		}
		list = append(list, newListEntry(r.ID, r.Title, r.Source, all))
		for _, g := range r.groupNames() {
			pools[g] = append(pools[g], all...)
		}
	}
	for _, g := range [][2]string{{AllRows, "all published rows together"},
		{BenchRows, "claims of mpbond, compared with its baselines"}, {RandomRows, "random networks"},
		{PhoneRows, "smartphones with WiFi and LTE"}, {RailRows, "two carriers on a high-speed train"},
		{CellRows, "PBE-CC in cells as they are"}} {
		if len(pools[g[0]]) > 0 {
			list = append(list, newListEntry(g[0], g[1], "", pools[g[0]]))
		}
	}
	return list, nil
}

// ListCells lists rows with their cells, without rows that have no cell of o.Only.
func ListCells(rows []Row, o Options) (list []ListEntry, err error) {
	for _, r := range rows {
		all, err := r.Experiments(o)
		if err != nil {
			return nil, err
		}
		if len(all) == 0 && r.recounts == nil {
			continue
		}
		l := newListEntry(r.ID, r.Title, r.Source, all)
		for _, e := range all {
			l.CellList = append(l.CellList, ListCell{e.Name, e.Spec.Schemes, e.TransferCount(), e.Expected.Seconds()})
		}
		list = append(list, l)
	}
	if len(list) == 0 {
		err := fmt.Errorf("no cell has %q in its name", o.Only)
		return nil, fault.New(fault.Usage, err, "omit --only to list all cells")
	}
	return list, nil
}

// newListEntry returns the entry of a row, or group of rows, with these experiments.
func newListEntry(id, title, source string, all []lab.Experiment) ListEntry {
	l := ListEntry{Row: id, Title: title, Source: source, Cells: len(all)}
	for _, e := range all {
		l.Transfers += e.TransferCount()
	}
	l.Seconds = lab.NewJobs(0).Estimate(all, wholeStillToDo).Seconds()
	return l
}

// wholeStillToDo says that an experiment is still to do as a whole.
func wholeStillToDo(int) float64 { return 1 }

// ListTable returns a list as a table: of the cells where there are any, else of the rows.
func ListTable(list []ListEntry) Table {
	t := Table{Head: []string{"row", "title", "source", "cells", "transfers", "time"}}
	cells := Table{Head: []string{"row", "cell", "schemes", "transfers", "time alone"}}
	for _, l := range list {
		t.Add(l.Row, l.Title, l.Source, fmt.Sprint(l.Cells), fmt.Sprint(l.Transfers), formatWhole(l.Seconds))
		for _, c := range l.CellList {
			cells.Add(l.Row, c.Cell, strings.Join(c.Schemes, ", "), fmt.Sprint(c.Transfers), formatWhole(c.Seconds))
		}
	}
	if len(cells.Rows) > 0 {
		return cells
	}
	return t
}

// formatWhole formats seconds as a duration in whole seconds.
func formatWhole(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
}
