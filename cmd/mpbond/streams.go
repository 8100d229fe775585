// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"mpbond/api"
	"mpbond/api/client"
	"mpbond/base/fault"
	"mpbond/base/text"
	"mpbond/base/unit"
	"mpbond/internal/cli"
)

func streamsCommand() *cobra.Command {
	var socket, mode, priority string
	var weight int
	var asJSON, reset bool
	cmd := &cobra.Command{
		Use: "streams [NUMBER]", Short: "list connections of apps, or change how one is carried",
		Args: cobra.MaximumNArgs(1),
		Long: `List the connections of apps that the primary here carries, or show the one with that
number. Flags change how it is carried from now on, in both directions: --mode bond,
single, latency or redundant; --priority high, normal or low; --weight 1 to 100, as in
policy.toml. A single stream is listed as bond over one subflow. The rule under which
it was opened still decides which devices may carry it.`,
		Example: `  mpbond streams
  mpbond streams 17 --mode latency
  mpbond streams 17 --priority low
  mpbond streams 17 --reset`,
		RunE: func(cmd *cobra.Command, args []string) error {
			to := api.StreamChange{}
			for name, f := range map[string]func(){"mode": func() { to.Mode = &mode },
				"priority": func() { to.Priority = &priority }, "weight": func() { to.Weight = &weight }} {
				if cmd.Flags().Changed(name) {
					f()
				}
			}
			changes := to != api.StreamChange{}
			if len(args) == 0 && (changes || reset) {
				return cli.UsageError("NUMBER of the stream is missing: `mpbond streams` lists them")
			}
			if changes && reset {
				return cli.UsageError("--reset ends the stream: leave out the other flags")
			}
			n := uint64(0)
			if len(args) > 0 {
				var err error
				if n, err = strconv.ParseUint(args[0], 10, 64); err != nil {
					return cli.UsageError("%q is not the number of a stream", args[0])
				}
			}
			c := client.New(cmp.Or(socket, api.SocketPath("primary")))
			defer c.Close()
			list, err := c.Streams(cmd.Context())
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return printStreams(cmd.OutOrStdout(), list, asJSON)
			}
			is := func(s api.BondStream) bool { return s.ID == n }
			i := slices.IndexFunc(list, is)
			if i < 0 {
				return fault.New(fault.NotFound, fmt.Errorf("there is no stream %d", n),
					"`mpbond streams` lists the streams")
			}
			s := list[i]
			switch {
			case reset:
				if err := c.ResetStream(cmd.Context(), s.Bond, s.ID); err != nil {
					return err
				}
				cmd.PrintErrf("stream %d to %s is reset\n", s.ID, text.Printable(s.Dest))
				return nil
			case changes:
				if err := c.ChangeStream(cmd.Context(), s.Bond, s.ID, to); err != nil {
					return err
				}
				if list, err = c.Streams(cmd.Context()); err != nil {
					return err
				}
				if i = slices.IndexFunc(list, is); i < 0 { // the stream has ended meanwhile
					return nil
				}
			}
			return printStreams(cmd.OutOrStdout(), list[i:i+1], asJSON)
		},
	}
	cmd.Flags().StringVar(&socket, "socket", "", "ask the primary at this `PATH`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON list")
	cmd.Flags().StringVar(&mode, "mode", "", "carry the stream in this `MODE` from now on")
	cmd.Flags().StringVar(&priority, "priority", "", "give the stream this `PRIORITY` over others")
	cmd.Flags().IntVar(&weight, "weight", 0, "give the stream this `WEIGHT` among those of its priority, 1 to 100")
	cmd.Flags().BoolVar(&reset, "reset", false, "end the stream by resetting the app's connection")
	cli.CompleteWith(cmd, "mode", "bond", "single", "latency", "redundant")
	cli.CompleteWith(cmd, "priority", "high", "normal", "low")
	return cmd
}

// printStreams prints streams and the subflows that each may use.
func printStreams(w io.Writer, list []api.BondStream, asJSON bool) error {
	if asJSON {
		return cli.PrintJSON(w, list)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "STREAM\tTO\tMODE\tPRIORITY\tWEIGHT\tDOWN\tUP\tSUBFLOWS")
	for _, s := range list {
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%d\t%v\t%v\t%s\n", s.ID, text.Printable(s.Dest), s.Mode, s.Priority, s.Weight,
			unit.Bytes(s.DownBytes), unit.Bytes(s.UpBytes), text.Printable(formatStreamSubflows(s.Stream)))
	}
	return t.Flush()
}

// formatStreamSubflows formats the subflows that a stream may use in each direction.
func formatStreamSubflows(s api.Stream) string {
	words := func(c api.StreamChoice) string {
		if len(c.Subflows) == 0 && c.Reason == "" {
			return "any"
		}
		return strings.Trim(fmt.Sprint(c.Subflows), "[]") + " (" + c.Reason + ")"
	}
	down, up := words(s.Down), words(s.Up)
	if down == up {
		return down
	}
	return "down " + down + ", up " + up
}
