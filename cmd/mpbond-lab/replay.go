// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"mpbond/base/fault"
	"mpbond/base/text"
	"mpbond/base/unit"
	"mpbond/core/sched"
	"mpbond/core/trace"
	"mpbond/internal/cli"
	"mpbond/lab/replay"
)

// replayReport is the output of --json.
type replayReport struct {
	*replay.Recording
	Replayed []replay.Result `json:"replayed"`
}

// labReplayCommand returns "mpbond-lab replay".
func labReplayCommand() *cobra.Command {
	var schedulers []string
	var eta float64
	var asJSON bool
	c := &cobra.Command{
		Use: "replay TRACE", Short: "replay a recorded transfer with other schedulers, offline",
		Args: cobra.ExactArgs(1),
		Long: `Replay a recorded transfer with other schedulers, offline, in virtual time.

TRACE is a file of events that "mpbond-lab run --trace DIR" left in DIR
(events.jsonl, or the trace of the sending end), or that a role wrote with --trace.
The rates of all hops over time are rebuilt from it. mpbond's core then sends the
same bytes over these rates, which takes about a second.

Columns: SECONDS until the sender knew that everything had arrived; the share of
each device and when its last new bytes arrived; APART, the time between these
ends; REINJECTED, the bytes sent more than once. The rate of a hop that was never
at its limit in the recording is an estimate, which is noted.

Schedulers: ` + strings.Join(sched.Names(), ", ") + `
(ratio:0.6 sets the direct subflow's share).`,
		Example: `  mpbond-lab run --links 8/10/5 --scheme mpbond:pams --get 10MB --trace /tmp/t
  mpbond-lab replay /tmp/t/mpbond-pams-0/events.jsonl --scheduler pams,minrtt,ecf`,
		RunE: func(c *cobra.Command, args []string) error {
			f, err := os.Open(args[0])
			if err != nil {
				return fault.New(fault.NotFound, err, "give a file that `mpbond-lab run --trace DIR` left in DIR")
			}
			defer f.Close()
			rec, err := replay.Read(trace.Read(f))
			if err != nil {
				return fault.New(fault.KindOf(err), fmt.Errorf("%s: %w", args[0], err), fault.HintOf(err))
			}
			report := replayReport{Recording: rec}
			for _, name := range schedulers {
				s, err := sched.New(name)
				if err != nil {
					return fault.New(fault.Usage, err, "give one of these schedulers")
				}
				res, err := rec.Run(s, replay.Options{Eta: eta})
				if err != nil {
					return err
				}
				report.Replayed = append(report.Replayed, res)
			}
			if asJSON {
				return cli.PrintJSON(c.OutOrStdout(), report)
			}
			return report.printReplayReport(c.OutOrStdout())
		},
	}
	c.Flags().StringSliceVar(&schedulers, "scheduler", []string{sched.Default}, "replay with these schedulers "+
		"(repeatable, or with commas)")
	c.Flags().Float64Var(&eta, "reinject", 0.2, "set the reinjection threshold η, not 0 (negative: off)")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// printReplayReport prints the report for people.
func (r replayReport) printReplayReport(out io.Writer) error {
	var size unit.Bytes
	for _, s := range r.Streams {
		size += s.Size
	}
	fmt.Fprintf(out, "%s sent %v, streams: %d\n", text.Printable(r.Sender), size, len(r.Streams))
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, p := range r.Subflows {
		if !p.Helped {
			fmt.Fprintf(t, "  %s\tdirect\t%s\n", text.Printable(p.Device), formatHopRate(p.LocalHop))
			continue
		}
		fmt.Fprintf(t, "  %s\tlocal hop\t%s\n  \tfar hop\t%s\n", text.Printable(p.Device), formatHopRate(p.LocalHop),
			formatHopRate(p.FarHop))
	}
	for _, n := range r.Notes {
		fmt.Fprintln(t, "  note:", text.Printable(n))
	}
	head := []string{"SCHEDULER", "SECONDS"}
	for _, p := range r.Recorded.Subflows {
		head = append(head, strings.ToUpper(text.Printable(p.Device)))
	}
	fmt.Fprintln(t, "\n"+strings.Join(append(head, "APART", "REINJECTED"), "\t"))
	all := append([]replay.Result{r.Recorded}, r.Replayed...)
	for _, res := range all {
		fmt.Fprintf(t, "%s\t%.3f", res.Scheduler, res.Seconds)
		for _, p := range res.Subflows {
			end := "-"
			if p.Ended > 0 {
				end = fmt.Sprintf("%.3f", p.Ended)
			}
			fmt.Fprintf(t, "\t%.0f %% to %s", 100*p.Share, end)
		}
		fmt.Fprintf(t, "\t%.3f\t%s\n", res.EndedApart, formatWaste(res.Wasted))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out, "\nDecisions by reason:")
	for _, res := range all {
		reasons := slices.SortedFunc(maps.Keys(res.Decisions), func(a, b string) int {
			return res.Decisions[b] - res.Decisions[a]
		})
		for i, reason := range reasons {
			name := ""
			if i == 0 {
				name = res.Scheduler
			}
			fmt.Fprintf(out, "  %-15s %6d  %s\n", name, res.Decisions[reason], text.Printable(reason))
		}
	}
	return nil
}

// formatWaste lists reinjected bytes by cause.
func formatWaste(by map[string]unit.Bytes) string {
	var parts []string
	for _, cause := range slices.Sorted(maps.Keys(by)) {
		if by[cause] > 0 {
			parts = append(parts, fmt.Sprintf("%v %s", by[cause], text.Printable(cause)))
		}
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, ", ")
}

// formatHopRate describes a hop's rate and how well it is known.
func formatHopRate(h replay.Hop) string {
	rates := make([]unit.Rate, len(h.Rates))
	for i, s := range h.Rates {
		rates[i] = s.Rate
	}
	slices.Sort(rates)
	trip := cli.FormatMilliseconds(float64(h.RTT.Microseconds()) / 1000)
	if h.Measured == 0 {
		return fmt.Sprintf("round trip %s, never at its limit: at least %v", trip, rates[len(rates)-1])
	}
	return fmt.Sprintf("round trip %s, median %v (%v to %v), known for %.0f %% of the time", trip, rates[len(rates)/2],
		rates[0], rates[len(rates)-1], 100*h.Measured)
}
