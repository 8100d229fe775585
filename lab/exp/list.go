package exp

import (
	"fmt"
	"strings"
	"time"

	"mpbond/base/fault"
	"mpbond/lab"
)

// Listed is what a row is, or all of several.
type Listed struct {
	Row       string  `json:"row"`
	What      string  `json:"what"`
	From      string  `json:"from,omitempty"`
	Cells     int     `json:"cells"`
	Transfers int     `json:"transfers"`
	Seconds   float64 `json:"seconds"` // that it takes
}

// List lists rows, then what all of them that have a name together come to.
func List(rows []Row, o Options) (list []Listed, err error) {
	add := func(l Listed, all []lab.Experiment) {
		l.Cells = len(all)
		for _, e := range all {
			l.Transfers += e.Transfers()
		}
		l.Seconds = lab.NewJobs(0).Estimate(all, whole).Seconds()
		list = append(list, l)
	}
	pools := map[bool][]lab.Experiment{} // by whether claims are measured
	for _, r := range rows {
		all, err := r.Experiments(o)
		if err != nil {
			return nil, err
		}
		add(Listed{Row: r.ID, What: r.Title, From: r.Source}, all)
		pools[r.Claims] = append(pools[r.Claims], all...)
	}
	add(Listed{Row: AllRows, What: "all published ones together"}, pools[false])
	add(Listed{Row: BenchRows, What: "what mpbond claims, beside its baselines"}, pools[true])
	return list, nil
}

// whole says that all of an experiment is to be done.
func whole(int) float64 { return 1 }

// ListTable is List for people.
func ListTable(list []Listed) Table {
	t := Table{Head: []string{"row", "what", "from", "cells", "transfers", "time"}}
	for _, l := range list {
		t.Add(l.Row, l.What, l.From, fmt.Sprint(l.Cells), fmt.Sprint(l.Transfers), inWhole(l.Seconds))
	}
	return t
}

// inWhole are seconds as a time, without fractions.
func inWhole(seconds float64) string {
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
			t.Add(r.ID, e.Name, strings.Join(e.Plan.Schemes, ", "), fmt.Sprint(e.Transfers()), inWhole(e.Expected.Seconds()))
		}
	}
	if len(t.Rows) == 0 {
		return t, fault.New(fault.Usage, fmt.Errorf("no cell has %q in its name", o.Only), "without --only all cells are listed")
	}
	return t, nil
}
