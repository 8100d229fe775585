// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"mpbond/base/text"
	"mpbond/internal/cli"
	"mpbond/pbe/census"
)

// printStats prints the statistics in the requested format.
func printStats(w io.Writer, all []cellStats, o statsOptions) error {
	if o.asCSV {
		return printHours(w, all)
	}
	for i := range all {
		if o.asJSON {
			if err := cli.PrintJSON(w, &all[i]); err != nil {
				return err
			}
			continue
		}
		if i > 0 {
			fmt.Fprintln(w)
		}
		if err := printCellStats(w, &all[i]); err != nil {
			return err
		}
	}
	return nil
}

// printHours prints a CSV line for each hour of each cell.
func printHours(w io.Writer, all []cellStats) error {
	t := csv.NewWriter(w)
	_ = t.Write([]string{"source", "cell", "hour", "subframes", "users", "data_users", "mean_users_40ms",
		"mean_data_users_40ms", "used", "idle", "uplink", "blocks", "retransmitted"})
	number := func(v float64) string { return strconv.FormatFloat(v, 'f', 4, 64) }
	for i := range all {
		s := &all[i]
		for _, h := range s.Hours {
			hour := strconv.FormatInt(h.Number, 10)
			if s.Start != nil {
				hour = s.formatHourLabel(h)
			}
			_ = t.Write([]string{s.Source, strconv.Itoa(int(s.Cell)), hour, strconv.FormatInt(h.Subframes, 10),
				strconv.Itoa(h.Users), strconv.Itoa(h.DataUsers),
				formatOptional(h.MeanUsers, "%.4f", ""), formatOptional(h.MeanDataUsers, "%.4f", ""), number(h.Used),
				number(h.Idle), number(h.Uplink), strconv.FormatInt(h.Blocks, 10), number(h.Retransmitted)})
		}
	}
	t.Flush()
	return t.Error()
}

func formatPartPercent(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }

// formatDistribution describes a distribution in words.
func formatDistribution(d census.Distribution, format, unit string) string {
	if d.Count == 0 {
		return "unknown"
	}
	return fmt.Sprintf(strings.ReplaceAll("mean %F, median %F, 95th percentile %F, maximum %F", "%F", format)+unit,
		d.Mean, d.P50, d.P95, d.Max)
}

func formatWidth(prb int) string {
	if mhz, ok := cellMHz[prb]; ok {
		return fmt.Sprintf("%g MHz, %d PRB", mhz, prb)
	}
	return fmt.Sprintf("%d PRB", prb)
}

// printCellStats prints the statistics of a cell for people.
func printCellStats(out io.Writer, s *cellStats) error {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	printRow := func(what, format string, args ...any) {
		fmt.Fprintf(w, "  %s\t"+format+"\n", append([]any{what}, args...)...)
	}
	received := time.Duration(s.Subframes) * time.Millisecond
	fmt.Fprintf(&b, "%s, cell %d (%s): %v received, %d subframes missed%s\n", text.Printable(s.Source), s.Cell,
		formatWidth(int(s.PRB)), received, s.Missed, strings.Join(irregularities(s), ""))
	printRow("resource blocks", "used %s, idle %s; uplink %s", formatPartPercent(s.Used), formatPartPercent(s.Idle),
		formatPartPercent(s.Uplink))
	printRow("transport blocks", "%d, %s of them retransmissions; %.2f Mbit/s per PRB", s.Blocks,
		formatPartPercent(s.Retransmitted), s.PerPRB)
	printRow("users in 40 ms", "%s", formatDistribution(s.Users, "%.4g", ""))
	printRow("  data users only", "%s", formatDistribution(s.DataUsers, "%.4g", ""))
	a := s.Activity
	printRow("activities", "%d: %s in one subframe, %s with 4 PRB, %s both", a.Subframes.Count,
		formatPartPercent(a.OneSubframe), formatPartPercent(a.FourPRB), formatPartPercent(a.Both))
	printRow("  subframes", "%s", formatDistribution(a.Subframes, "%.5g", ""))
	printRow("  duration", "%s", formatDistribution(a.Span, "%.6g", " ms"))
	printRow("  PRB per subframe", "%s", formatDistribution(a.PRB, "%.4g", ""))
	printRow("rate, data users", "%s", formatDistribution(a.PerPRB, "%.2f", " Mbit/s per PRB"))
	printRow("", "%s", formatDistribution(a.Rate, "%.3g", " Mbit/s"))
	printRow("messages", "%s", formatCounts(s.Formats, "formats "))
	if len(s.Levels) > 0 {
		printRow("  control elements", "%s", formatCounts(s.Levels, ""))
	}
	_ = w.Flush() // to a builder
	printMCSTable(w, s.MCS)
	fmt.Fprintln(w, "  HOUR\tUSERS\tDATA USERS\tIN 40 MS\tDATA\tUSED\tUPLINK\tRETX\tRECEIVED")
	for _, h := range s.Hours {
		fmt.Fprintf(w, "  %s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%v\n", s.formatHourLabel(h), h.Users, h.DataUsers,
			formatOptional(h.MeanUsers, "%.1f", "-"), formatOptional(h.MeanDataUsers, "%.1f", "-"),
			formatPartPercent(h.Used), formatPartPercent(h.Uplink), formatPartPercent(h.Retransmitted),
			roundDuration(time.Duration(h.Subframes)*time.Millisecond))
	}
	_ = w.Flush()
	if s.DroppedHours > 0 {
		fmt.Fprintf(&b, "  %d older hours were dropped\n", s.DroppedHours)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// formatOptional formats a value, or returns none if it is unknown.
func formatOptional(v *float64, format, none string) string {
	if v == nil {
		return none
	}
	return fmt.Sprintf(format, *v)
}

// roundDuration rounds times above a second to a tenth of a second.
func roundDuration(d time.Duration) time.Duration {
	if d < time.Second {
		return d
	}
	return d.Round(time.Second / 10)
}

// irregularities describes late subframes and restarts.
func irregularities(s *cellStats) (list []string) {
	if s.Late > 0 {
		list = append(list, fmt.Sprintf(", %d late or duplicate", s.Late))
	}
	if s.Restarts > 0 {
		list = append(list, fmt.Sprintf(", %d restarts of the count", s.Restarts))
	}
	return list
}

// formatCounts describes the frequencies of things.
func formatCounts(list []census.Count, what string) string {
	all, words := int64(0), []string{}
	for _, c := range list {
		all += c.Count
	}
	for _, c := range list {
		words = append(words, fmt.Sprintf("%s: %s", c.Name, formatPartPercent(float64(c.Count)/float64(all))))
	}
	if all == 0 {
		return "none"
	}
	return what + strings.Join(words, ", ")
}

// printMCSTable prints the retransmissions of each MCS.
func printMCSTable(w *tabwriter.Writer, list []census.MCS) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintln(w, "  MCS\tBLOCKS\tRETX\t")
	for _, m := range list {
		name := strconv.Itoa(m.MCS)
		if m.MCS > 28 {
			name += " (unknown)"
		}
		fmt.Fprintf(w, "  %s\t%d\t%d\t%s\n", name, m.Sent, m.Retransmissions, formatPartPercent(m.Retransmitted))
	}
	_ = w.Flush()
}
