//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/lab"
)

// Lines between which a document holds what the bench wrote.
const (
	benchBegin = "<!-- bench -->"
	benchEnd   = "<!-- end of bench -->"
)

// between returns the document with text between its marked lines, or just
// these if there is no such document.
func between(file, text string) (string, error) {
	if file == "" {
		return "", nil
	}
	old, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return benchBegin + "\n" + text + benchEnd + "\n", nil
	}
	if err != nil {
		return "", err
	}
	before, rest, ok1 := strings.Cut(string(old), benchBegin+"\n")
	_, after, ok2 := strings.Cut(rest, benchEnd+"\n")
	if !ok1 || !ok2 {
		return "", fault.New(fault.Exists, fmt.Errorf("%s is there and has no place for the tables", file),
			"put the lines "+benchBegin+" and "+benchEnd+" into it, or name another file")
	}
	return before + benchBegin + "\n" + text + benchEnd + "\n" + after, nil
}

func writeBetween(file, text string) error {
	whole, err := between(file, text)
	if err != nil || file == "" {
		return err
	}
	return os.WriteFile(file, []byte(whole), 0o644)
}

// overview has a row for each experiment: mpbond as it is, the baselines, and
// what else is worth a word.
func (b *bench) overview() table {
	t := table{head: []string{"what", "bound", "mpbond", "kernel MPTCP", "one link", "besides", "counted"}}
	for _, r := range b.reports {
		if !r.inOverview() {
			continue
		}
		value := func(s lab.Summary) string {
			if r.plan.Unchecked {
				return s.Rate.String()
			}
			return fmt.Sprintf("%.2f s", s.Seconds)
		}
		cell := func(scheme string) string {
			if s, ok := r.find(func(x string) bool { return x == scheme }); ok {
				return value(s)
			}
			return ""
		}
		ours, ok := r.find(func(x string) bool { return x == "mpbond" })
		if !ok {
			ours, ok = r.find(isBonded)
		}
		bound := ""
		if ok && !r.plan.Unchecked {
			bound = fmt.Sprintf("%.2f s", ours.Bound)
		}
		row := []string{r.Name, bound, "", cell("kibbutz"), cell("single"), strings.Join(r.besides(ours.Scheme, value), "; "), r.countedText()}
		if ok {
			row[2] = value(ours)
		}
		t.rows = append(t.rows, row)
	}
	return t
}

// inOverview leaves out most of the grid, and what the matrix and the table of
// drives tell better.
func (r benchReport) inOverview() bool {
	if _, counts := r.find(func(string) bool { return true }); !counts {
		return false
	}
	switch r.Group {
	case lab.Grid:
		return r.cell.Size == 2*unit.MB && !r.cell.Upload || r.cell.Size == 10*unit.MB && r.cell.House == "8/10/5"
	case lab.Ride, lab.Alone, lab.Dual:
		return false
	}
	return true
}

func isBonded(scheme string) bool { return strings.HasPrefix(scheme, "mpbond") }

// besides are the variants of mpbond, and what the experiment is about if that
// is not time.
func (r benchReport) besides(ours string, value func(lab.Summary) string) (all []string) {
	var gaps []string
	for _, s := range r.Summary {
		if s.N == 0 {
			continue
		}
		if s.Scheme != ours && (isBonded(s.Scheme) || strings.HasPrefix(s.Scheme, "relay") || strings.HasPrefix(s.Scheme, "kibbutz:")) {
			all = append(all, schemeTitle(s.Scheme)+" "+value(s))
		}
		gaps = append(gaps, fmt.Sprintf("%s %.2f s", schemeTitle(s.Scheme), s.MedianGap))
		if r.plan.Streams > 1 && len(s.PeakRSS) > 0 {
			all = append(all, "peak memory: "+byDevice(s.PeakRSS, unit.Bytes.String))
		}
	}
	if r.plan.Breaks() {
		all = append(all, "longest gap, median: "+strings.Join(gaps, ", "))
	}
	return all
}
