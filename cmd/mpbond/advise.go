// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"mpbond/api"
	"mpbond/api/client"
	"mpbond/base/text"
	"mpbond/base/unit"
	"mpbond/internal/cli"
)

func adviseCommand() *cobra.Command {
	var socket, size, app string
	var up, history, forget, asJSON bool
	cmd := &cobra.Command{
		Use: "advise", Short: "show which links a transfer would use, and what others would take", Args: cobra.NoArgs,
		Long: `Show what the primary here knows of its links, and which of them transfers that begin
now would use: a message, a request, a page, a photo, a song, a video and much data, or
one of --size. With --app, links that the rules exclude for that program are left out.
For each it prints the expected time and energy, those of the other links
alone and of all together, and why these are not used. It sends nothing.

Rates marked ~ are guesses: nothing was measured at this place yet. Upload rates are
those of this device; download rates were seen at this place before.

--history lists the last answers that arrived, at most 200: how long each took after its
first 16 KB, and what was expected then. --forget removes what the primary remembers of
destinations, how much apps usually move from and to each, and that list.`,
		Example: `  mpbond advise
  mpbond advise --size 8MB
  mpbond advise --size 3MB --up
  mpbond advise --app /usr/bin/firefox
  mpbond advise --history
  mpbond advise --json | jq '.transfers[] | {name, sets: .sets[0]}'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			n, given := unit.Bytes(0), cmd.Flags().Changed
			switch {
			case forget && (history || asJSON || up || given("size") || given("app")):
				return cli.UsageError("--forget only removes: leave out the other flags")
			case history && (up || given("size") || given("app")):
				return cli.UsageError("--history lists past answers: leave out --size, --up and --app")
			}
			if given("size") {
				var err error
				if n, err = unit.ParseBytes(size); err != nil {
					return cli.UsageError("--size: %v", err)
				}
				if n <= 0 {
					return cli.UsageError("--size %q: give at least one byte", size)
				}
			} else if up {
				return cli.UsageError("--up needs --size: the usual transfers have their own direction")
			}
			c := client.New(cmp.Or(socket, api.SocketPath("primary")))
			defer c.Close()
			if forget {
				return c.ForgetHistory(cmd.Context())
			}
			if history {
				past, err := c.PastForecasts(cmd.Context())
				if err != nil {
					return err
				}
				if asJSON {
					return cli.PrintJSON(cmd.OutOrStdout(), past)
				}
				return printForecasts(cmd.OutOrStdout(), past)
			}
			a, err := c.Advice(cmd.Context(), api.AdviceRequest{Bytes: n, Upload: up, App: app})
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), a)
			}
			if err := printAdvice(cmd.OutOrStdout(), a); err != nil {
				return err
			}
			past, _ := c.PastForecasts(cmd.Context()) // older primaries have none
			return printMedianError(cmd.OutOrStdout(), past)
		},
	}
	cmd.Flags().StringVar(&socket, "socket", "", "ask the primary at this `PATH`")
	cmd.Flags().StringVar(&size, "size", "", "advise on a transfer of this `SIZE`, such as 20KB or 8MB")
	cmd.Flags().BoolVar(&up, "up", false, "advise on an upload")
	cmd.Flags().StringVar(&app, "app", "", "apply the rules for this `APP`: the path of its program")
	cmd.Flags().BoolVar(&history, "history", false, "list the last answers that arrived, with their forecasts")
	cmd.Flags().BoolVar(&forget, "forget", false, "remove what the primary remembers of destinations, and past forecasts")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	return cmd
}

// printAdvice prints advice for people: the links, then each transfer with its sets of subflows.
func printAdvice(w io.Writer, a api.Advice) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SUBFLOW\tDEVICE\tRADIO\tTIER\tDOWN\tUP\tRTT\tLOSS")
	for _, s := range a.Subflows {
		radio := cmp.Or(s.Radio, "none")
		if s.Asleep {
			radio += ", asleep"
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\t%.0f ms\t%.1f %%\n", s.ID, text.Printable(s.Device), radio,
			cmp.Or(s.Tier, "primary"), formatAdvisedRate(s.DownBps, s.DownGuessed), formatAdvisedRate(s.UpBps, s.UpGuessed),
			s.RTTms, s.LossPercent)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if a.Rule != "" {
		fmt.Fprintf(w, "\n%s\n", text.Printable(a.Rule))
	}
	for _, x := range a.Transfers {
		way := "down"
		if x.Upload {
			way = "up"
		}
		if x.EverySeconds > 0 {
			way += fmt.Sprintf(" each %g s", x.EverySeconds)
		}
		fmt.Fprintf(w, "\n%s, %v %s: %s\n", cmp.Or(x.Name, "transfer"), x.Bytes, way, text.Printable(x.Reason))
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, set := range x.Sets {
			fmt.Fprintf(t, "  subflow %s\t%s\t%.1f J\t%s\n", strings.Trim(fmt.Sprint(set.Subflows), "[]"),
				formatAdvisedTime(set.Seconds), set.Joules, cmp.Or(set.WhyNot, "used"))
		}
		if err := t.Flush(); err != nil {
			return err
		}
		if x.OtherFromBytes > 0 {
			fmt.Fprintf(w, "  from %v on another set would be used\n", x.OtherFromBytes)
		}
	}
	return nil
}

// printForecasts prints past answers with their forecasts.
func printForecasts(w io.Writer, h api.PastForecasts) error {
	if len(h.Forecasts) == 0 {
		_, err := fmt.Fprintln(w, "no forecast was checked yet: none of the answers had more than 32 KB")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TIME\tBYTES\tSUBFLOWS\tTOOK\tEXPECTED")
	for _, f := range h.Forecasts {
		fmt.Fprintf(t, "%s\t%v\t%d\t%s\t%s\n", f.At.Local().Format(time.DateTime), f.Bytes, f.Subflows,
			formatAdvisedTime(f.Seconds), formatAdvisedTime(f.ExpectedSeconds))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return printMedianError(w, h)
}

// printMedianError prints how right the forecasts were, if there were any.
func printMedianError(w io.Writer, h api.PastForecasts) error {
	var err error
	switch n := len(h.Forecasts); n {
	case 0:
	case 1:
		_, err = fmt.Fprintf(w, "\nthe last forecast was wrong by %.0f %%\n", h.MedianErrorPercent)
	default:
		_, err = fmt.Fprintf(w, "\nthe last %d forecasts were wrong by %.0f %% in the median\n", n, h.MedianErrorPercent)
	}
	return err
}

// formatAdvisedRate formats a rate; a guess is marked.
func formatAdvisedRate(r unit.Rate, guessed bool) string {
	if guessed {
		return "~" + r.String()
	}
	return r.String()
}

// formatAdvisedTime formats an expected time.
func formatAdvisedTime(seconds float64) string {
	if seconds < 1 {
		return fmt.Sprintf("%.0f ms", 1000*seconds)
	}
	return fmt.Sprintf("%.1f s", seconds)
}
