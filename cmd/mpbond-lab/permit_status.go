package main

import (
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"mpbond/base/identity"
	"mpbond/internal/cli"
	"mpbond/onload/permit"
)

func permitStatusCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "status [HOST:PORT]", Short: "show loads, what is granted, and who has permits until when", Args: cobra.MaximumNArgs(1),
		Long: `Show what the service that runs on this machine, or at HOST:PORT, grants now: the
load of each cell, whether there are permits for it or why not, and who has one
until when. It tells that only to who has its own key: run this as the same user
as mpbond-lab permit serve, with the same $MPBOND_HOME.`,
		Example: `  mpbond-lab permit status
  mpbond-lab permit status --json | jq '.cells[] | {name, load, held: (.permits | length)}'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := cli.KeyPath()
			if err != nil {
				return err
			}
			key, err := identity.LoadKey(path) // none is made: it would not be the service's
			if err != nil {
				return err
			}
			at := "127.0.0.1:" + strconv.Itoa(permit.Port)
			if len(args) > 0 {
				at = args[0]
			}
			r, err := permit.Asker{Key: key, Address: at, Service: key.Public()}.Report(cmd.Context())
			switch {
			case err != nil:
				return err
			case asJSON:
				return cli.PrintJSON(cmd.OutOrStdout(), r)
			}
			return printPermits(cmd.OutOrStdout(), r, time.Now())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// printPermits tells people what a service grants.
func printPermits(w io.Writer, r permit.Report, now time.Time) error {
	fmt.Fprintf(w, "nothing is granted from a load of %.0f %% on; a permit holds for %v\n", 100*r.Threshold, seconds(r.LifeSeconds))
	if r.NotKept != "" {
		fmt.Fprintln(w, "a restart would forget who has permits:", cli.Printable(r.NotKept))
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
			grants = "no: " + cli.Printable(c.Why)
		case len(c.Permits) >= r.Most:
			grants = "to who has one: all are taken"
		}
		held += len(c.Permits)
		fmt.Fprintf(t, "%s\t%s\t%d of %d\t%s\n", cli.Printable(c.Name), load, len(c.Permits), r.Most, grants)
	}
	if held > 0 {
		_ = t.Flush() // its columns are its own
		fmt.Fprintln(t, "\nDEVICE\tCELL\tSINCE\tUNTIL")
	}
	for _, c := range r.Cells {
		for _, p := range c.Permits {
			name := cli.Printable(p.Device)
			if name == "" {
				name = cli.Printable(p.DeviceID) + " (not trusted any more)"
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", name, cli.Printable(c.Name), clockTime(now.Add(-seconds(p.HeldSeconds)), now), clockTime(now.Add(seconds(p.LeftSeconds)), now))
		}
	}
	return t.Flush()
}

// seconds is so long.
func seconds(v float64) time.Duration { return time.Duration(v * float64(time.Second)) }

// clockTime is a time of day, with the day if that is not now's.
func clockTime(t, now time.Time) string {
	if t.Format(time.DateOnly) != now.Format(time.DateOnly) {
		return t.Format("2006-01-02 15:04:05")
	}
	return t.Format(time.TimeOnly)
}
