//go:build linux

package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"mpbond/base/unit"
	"mpbond/lab"
)

// table is what is printed for people, and written to documents. Columns
// without any cell are left out.
type table struct {
	title string
	head  []string
	rows  [][]string
}

func (t table) columns() (keep []int) {
	for i := range t.head {
		if slices.ContainsFunc(t.rows, func(r []string) bool { return r[i] != "" }) {
			keep = append(keep, i)
		}
	}
	return keep
}

func (t table) print(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w)
	if t.title != "" {
		fmt.Fprintln(w, t.title)
	}
	for _, row := range append([][]string{t.head}, t.rows...) {
		for _, i := range t.columns() {
			fmt.Fprintf(tw, "%s\t", cmp.Or(row[i], "-"))
		}
		fmt.Fprintln(tw)
	}
	return tw.Flush()
}

func (t table) markdown() string {
	var s strings.Builder
	if t.title != "" {
		fmt.Fprintf(&s, "**%s**\n\n", t.title)
	}
	row := func(cell func(i int) string) {
		for _, i := range t.columns() {
			fmt.Fprintf(&s, "| %s ", cell(i))
		}
		s.WriteString("|\n")
	}
	row(func(i int) string { return t.head[i] })
	row(func(int) string { return "---" })
	for _, r := range t.rows {
		row(func(i int) string { return cmp.Or(r[i], "–") })
	}
	return s.String()
}

// schemeTitles are what the baselines are called for people, in order.
var schemeTitles = []struct{ scheme, title string }{
	{"single", "one link"}, {"single:helper1", "the helper's link"}, {"kibbutz", "kernel MPTCP"}, {"kibbutz:direct", "kernel MPTCP, direct"},
	{"kibbutz:direct:subflows=2", "kernel MPTCP, two direct"}, {"relay", "Go relay"}, {"relay:copy", "Go relay, copying"},
}

func schemeTitle(scheme string) string {
	for _, t := range schemeTitles {
		if t.scheme == scheme {
			return t.title
		}
	}
	return scheme
}

// table has a row for each scheme.
func (r benchReport) table() table {
	t := table{title: r.Name, head: []string{"scheme", "counted", "median", "min–max", "rate", "of bound"}}
	for _, base := range schemeTitles {
		t.head = append(t.head, "× "+base.title)
	}
	t.head = append(t.head, "longest gap", "its median", "ends apart", "sent twice", "shares", "peak memory", "remarks")
	for _, s := range r.Summary {
		row := []string{schemeTitle(s.Scheme), fmt.Sprintf("%d/%d", min(s.N, r.plan.RepsOf(s.Scheme)), r.plan.RepsOf(s.Scheme))}
		if s.N == 0 {
			row = append(row, make([]string, len(t.head)-3)...)
			t.rows = append(t.rows, append(row, r.remarks(s)))
			continue
		}
		row = append(row, fmt.Sprintf("%.3f s", s.Seconds), fmt.Sprintf("%.3f–%.3f s", s.Min, s.Max), s.Rate.String(), r.ofBound(s))
		for _, base := range schemeTitles {
			row = append(row, r.ratio(s, base.scheme))
		}
		row = append(row, inSeconds(s.Gap), inSeconds(s.MedianGap), inSeconds(s.EndSpread), sharePercent(s.Twice), byDevice(s.Shares, sharePercent),
			byDevice(s.PeakRSS, unit.Bytes.String), r.remarks(s))
		t.rows = append(t.rows, row)
	}
	return t
}

// ofBound is the part of the fluid bound's rate; empty where links have none.
func (r benchReport) ofBound(s lab.Summary) string {
	if s.Bound <= 0 || r.plan.Unchecked {
		return ""
	}
	return fmt.Sprintf("%.0f %% of %.2f s", 100*s.Bound/s.Seconds, s.Bound)
}

// ratio is how many times the baseline's rate s has.
func (r benchReport) ratio(s lab.Summary, baseline string) string {
	b, ok := r.find(func(scheme string) bool { return scheme == baseline })
	if !ok || s.Scheme == baseline {
		return ""
	}
	return fmt.Sprintf("%.2f", b.Seconds/s.Seconds)
}

// find returns the first scheme that counts and fits.
func (r benchReport) find(fits func(scheme string) bool) (lab.Summary, bool) {
	i := slices.IndexFunc(r.Summary, func(s lab.Summary) bool { return s.N > 0 && fits(s.Scheme) })
	if i < 0 {
		return lab.Summary{}, false
	}
	return r.Summary[i], true
}

func (r benchReport) remarks(s lab.Summary) string {
	var all []string
	if s.Unchecked {
		all = append(all, "size checked")
	} else if s.N > 0 {
		all = append(all, "SHA-256 right")
	}
	if s.Discarded > 0 {
		all = append(all, fmt.Sprintf("%d disturbed, discarded", s.Discarded))
	}
	if s.Failed > 0 {
		all = append(all, fmt.Sprintf("%d failed: %s", s.Failed, s.Error))
	}
	return strings.Join(all, "; ")
}

func inSeconds(v float64) string {
	if v < 0.005 {
		return ""
	}
	return fmt.Sprintf("%.2f s", v)
}

func sharePercent(v float64) string {
	if v == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f %%", 100*v)
}

// byDevice lists what each device has, if anything.
func byDevice[T any](m map[string]T, text func(T) string) string {
	var all []string
	for _, d := range slices.Sorted(maps.Keys(m)) {
		if s := text(m[d]); s != "" {
			all = append(all, d+" "+s)
		}
	}
	return strings.Join(all, ", ")
}
