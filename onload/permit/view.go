// SPDX-License-Identifier: Apache-2.0

package permit

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"mpbond/base/text"
)

// Print writes the report as text for users.
func (r Report) Print(w io.Writer, now time.Time) error {
	fmt.Fprintf(w, "no permits from a load of %.0f %% on; a permit is valid for %v\n", 100*r.Threshold,
		durationFromWire(r.LifeSeconds))
	if r.NotKept != "" {
		fmt.Fprintln(w, "a restart would lose the permits:", text.Printable(r.NotKept))
	}
	notTrusted := " (not trusted any more)"
	if r.Engine != "" {
		fmt.Fprintln(w, "permits and loads are shared with other services in", text.Printable(r.Engine))
		notTrusted = " (not trusted here)"
	}
	for _, p := range r.Problems {
		fmt.Fprintln(w, text.Printable(p))
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CELL\tLOAD\tPERMITS\tGRANTS")
	held := 0
	for _, c := range r.Cells {
		load, grants := "-", "yes"
		if c.Load != nil {
			load = fmt.Sprintf("%.0f %%", 100**c.Load)
		}
		switch {
		case c.Why != "":
			grants = "no: " + text.Printable(c.Why)
		case len(c.Permits) >= r.MaxPermits:
			grants = "renewals only: all are taken"
		}
		held += len(c.Permits)
		fmt.Fprintf(t, "%s\t%s\t%d of %d\t%s\n", text.Printable(c.Name), load, len(c.Permits), r.MaxPermits, grants)
	}
	if held > 0 {
		_ = t.Flush() // the next table has other columns
		fmt.Fprintln(t, "\nDEVICE\tCELL\tSINCE\tUNTIL")
	}
	for _, c := range r.Cells {
		for _, p := range c.Permits {
			name := text.Printable(p.Device)
			if name == "" {
				name = text.Printable(p.DeviceID) + notTrusted
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", name, text.Printable(c.Name),
				formatClockTime(now.Add(-durationFromWire(p.HeldSeconds)), now),
				formatClockTime(now.Add(durationFromWire(p.LeftSeconds)), now))
		}
	}
	return t.Flush()
}

// formatClockTime formats a time of day, with the date if that is not the date of now.
func formatClockTime(t, now time.Time) string {
	if t.Format(time.DateOnly) != now.Format(time.DateOnly) {
		return t.Format("2006-01-02 15:04:05")
	}
	return t.Format(time.TimeOnly)
}
