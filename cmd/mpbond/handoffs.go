// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"mpbond/api"
	"mpbond/api/client"
	"mpbond/base/text"
	"mpbond/internal/cli"
)

func handoffsCommand() *cobra.Command {
	var socket string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "handoffs", Short: "show handoffs of mobile links between cells, and how likely the next one is",
		Args: cobra.NoArgs,
		Long: `Show for each mobile link of the primary here which cell serves it, how often that has
changed within the last hour, how many of these handoffs were foreseen, how many alarms
were false, and how likely the next handoff is within 2 s.

A handoff counts as foreseen if its probability was at least 0.3 in the 2 s before. mpbond
reads cells from ModemManager while the bond carries something. Elsewhere programs report
them, see docs/reference/facts.md.`,
		Example: `  mpbond handoffs
  mpbond handoffs --json | jq '[.links[] | {interface, probability}]'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := client.New(cmp.Or(socket, api.SocketPath("primary")))
			defer c.Close()
			h, err := c.Handoffs(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), h)
			}
			return printHandoffs(cmd.OutOrStdout(), h, time.Now())
		},
	}
	cmd.Flags().StringVar(&socket, "socket", "", "ask the primary at this `PATH`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	return cmd
}

// printHandoffs prints handoffs for people.
func printHandoffs(w io.Writer, h api.Handoffs, now time.Time) error {
	if len(h.Links) == 0 {
		_, err := fmt.Fprintln(w, "no cell of a mobile link is known: mpbond reads ModemManager while the bond carries\n"+
			"something, and elsewhere a program has to report it (docs/reference/facts.md)")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "link\tcell\thandoffs\tforeseen\tfalse alarms\tlast\twithin 2 s")
	for _, l := range h.Links {
		last := "-"
		if !l.Last.IsZero() {
			last = fmt.Sprintf("%v ago", now.Sub(l.Last).Round(time.Second))
		}
		next := "unknown"
		if l.Evidence != "" {
			next = fmt.Sprintf("%.0f %% (%s)", 100*l.Probability, l.Evidence)
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%s\t%s\n", text.Printable(l.Interface), text.Printable(l.Cell), l.Count,
			l.Foreseen, l.FalseAlarms, last, text.Printable(next))
	}
	return t.Flush()
}
