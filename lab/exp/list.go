package exp

import (
	"fmt"
	"strings"
	"time"

	"mpbond/base/fault"
	"mpbond/lab"
)

// ListEntry is what a row is, or all of several.
type ListEntry struct {
	Row       string  `json:"row"`
	Title     string  `json:"what"`
	Source    string  `json:"from,omitempty"`
	Cells     int     `json:"cells"`
	Transfers int     `json:"transfers"`
	Seconds   float64 `json:"seconds"` // that it takes
}

// List lists rows, then what all of them that have a name together come to.
func List(rows []Row, o Options) (list []ListEntry, err error) {
	add := func(l ListEntry, all []lab.Experiment) {
		l.Cells = len(all)
		for _, e := range all {
			l.Transfers += e.TransferCount()
		}
		l.Seconds = lab.NewJobs(0).Estimate(all, allLeft).Seconds()
		list = append(list, l)
	}
	pools := map[bool][]lab.Experiment{} // by whether claims are measured
	for _, r := range rows {
		all, err := r.Experiments(o)
		if err != nil {
			return nil, err
		}
		add(ListEntry{Row: r.ID, Title: r.Title, Source: r.Source}, all)
		pools[r.IsClaim] = append(pools[r.IsClaim], all...)
	}
	add(ListEntry{Row: AllRows, Title: "all published ones together"}, pools[false])
	add(ListEntry{Row: BenchRows, Title: "what mpbond claims, beside its baselines"}, pools[true])
	return list, nil
}

// allLeft says that all of an experiment is to be done.
func allLeft(int) float64 { return 1 }

// ListTable is List for people.
func ListTable(list []ListEntry) Table {
	t := Table{Head: []string{"row", "what", "from", "cells", "transfers", "time"}}
	for _, l := range list {
		t.Add(l.Row, l.Title, l.Source, fmt.Sprint(l.Cells), fmt.Sprint(l.Transfers), formatWhole(l.Seconds))
	}
	return t
}

// formatWhole are seconds as a time, without fractions.
func formatWhole(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
}

// CellTable lists the cells of rows.
func CellTable(rows []Row, o Options) (Table, error) {
	t := Table{Head: []string{"row", "cell", "schemes", "transfers", "time by itself"}}
	for _, r := range rows {
		all, err := r.Experiments(o)
		if err != nil {
			return t, err
		}
		for _, e := range all {
			t.Add(r.ID, e.Name, strings.Join(e.Spec.Schemes, ", "), fmt.Sprint(e.TransferCount()), formatWhole(e.Expected.Seconds()))
		}
	}
	if len(t.Rows) == 0 {
		return t, fault.New(fault.Usage, fmt.Errorf("no cell has %q in its name", o.Only), "without --only all cells are listed")
	}
	return t, nil
}
