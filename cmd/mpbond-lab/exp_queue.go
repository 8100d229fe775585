// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"mpbond/base/text"
	"mpbond/internal/cli"
	"mpbond/lab/exp"
	"mpbond/lab/queue"
)

// expQueueCommand returns "mpbond-lab exp queue".
func expQueueCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "queue", Short: "list runs in a queue, and remove those that were given up",
		Long: `A queue keeps the cells of a run until the run has collected all results, or for 30 days.
Remove a run that nobody will resume, so that workers do not measure it.`,
	}
	c.AddCommand(expQueueListCommand(), expQueueDropCommand())
	return c
}

// queuedRun is a row of a run in the queue.
type queuedRun struct {
	Run      string    `json:"run"`
	Row      string    `json:"row,omitempty"` // "" if it is not known
	Open     int       `json:"open"`
	Finished int       `json:"finished"`
	Since    time.Time `json:"since"`
	Version  string    `json:"version,omitempty"`
}

func expQueueListCommand() *cobra.Command {
	var f queueFlags
	c := &cobra.Command{
		Use: "list", Short: "list the runs in a queue", Args: cobra.NoArgs,
		Example: "  mpbond-lab exp queue list --queue nats://nats.example.org",
		Long: `List the runs in a queue, oldest first, one line for each row of a run: how many cells
wait or are being measured, and how many are finished and were not collected yet.`,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.use(c, func(ctx context.Context, q *queue.Queue) error {
				batches, err := q.Batches(ctx)
				if err != nil {
					return err
				}
				list := []queuedRun{}
				table := exp.Table{Head: []string{"run", "row", "open", "finished", "since", "version"}}
				for _, b := range batches {
					r := queuedRun{Run: b.Name, Row: exp.RowOfTask(b.Task), Open: b.Open, Finished: b.Finished,
						Since: b.Since.UTC(), Version: b.Version}
					list = append(list, r)
					table.Add(text.Printable(r.Run), cmp.Or(text.Printable(r.Row), "-"), fmt.Sprint(r.Open),
						fmt.Sprint(r.Finished), b.Since.Local().Format("2006-01-02 15:04"),
						cmp.Or(text.Printable(r.Version), "-"))
				}
				switch {
				case cli.WantsJSON(c):
					return cli.PrintJSON(c.OutOrStdout(), list)
				case len(list) == 0:
					_, err = fmt.Fprintln(c.OutOrStdout(), "the queue is empty")
					return err
				}
				return table.Print(c.OutOrStdout())
			})
		},
	}
	f.add(c)
	c.Flags().Bool("json", false, "print a JSON list")
	return c
}

func expQueueDropCommand() *cobra.Command {
	var f queueFlags
	all := false
	c := &cobra.Command{
		Use: "drop RUN… | --all", Short: "remove runs from a queue, with their results",
		Example: "  mpbond-lab exp queue drop KO3CABILZDJK72DSTRACA6MJF5 --queue nats://nats.example.org",
		Long: `Remove runs of "mpbond-lab exp queue list" from a queue, with the results that nobody
has collected. Interrupt "mpbond-lab exp run" first: it adds cells again that the queue
lacks. A worker that measures a removed cell finishes it; its result is dropped.`,
		RunE: func(c *cobra.Command, names []string) error {
			if all == (len(names) > 0) {
				return cli.UsageError("name the runs, or say --all")
			}
			return f.use(c, func(ctx context.Context, q *queue.Queue) error {
				if all {
					batches, err := q.Batches(ctx)
					if err != nil {
						return err
					}
					for _, b := range batches {
						names = append(names, b.Name)
					}
				}
				for _, name := range names {
					if err := q.Drop(ctx, name); err != nil {
						return err
					}
					if _, err := fmt.Fprintln(c.OutOrStdout(), text.Printable(name)+" is removed"); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	f.add(c)
	c.Flags().BoolVar(&all, "all", false, "remove all runs")
	return c
}

// use calls do with the queue.
func (f *queueFlags) use(c *cobra.Command, do func(context.Context, *queue.Queue) error) error {
	q, err := f.open(c.Context(), &runProgress{out: c.ErrOrStderr(), lastPrint: time.Now()})
	if err != nil {
		return err
	}
	defer q.Close()
	return do(c.Context(), q)
}
