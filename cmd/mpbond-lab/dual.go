//go:build linux

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"mpbond/base/unit"
	"mpbond/internal/cli"
	"mpbond/lab"
)

func labDual() *cobra.Command {
	p := lab.DualSpec{Links: "5/5", Reps: 3, Seed: 1}
	size := "8MB"
	asJSON := false
	c := &cobra.Command{
		Use: "dual", Short: "Measure two users who lend each other their links", Args: cobra.NoArgs,
		Long: `Emulate two devices, each with a link of its own and a free link between them,
that are primary and helper at once. Each user downloads: alone over the own
link without mpbond (both at the same time, since they do not meet); with mpbond while the other one is idle; and both at once.
With --chunks each makes so many downloads with pauses of 1 to 5 s, and its time
is the mean of one.`,
		Example: `  mpbond-lab dual --links 10/3 --size 8MB
  mpbond-lab dual --links 5/5 --size 1MB --chunks 20     # the MPBond paper's dual mode`,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if p.Size, err = unit.ParseBytes(size); err != nil {
				return cli.AsUsageError(err)
			}
			if err := p.Check(); err != nil {
				return err
			}
			if err := checkProduct(c.Context(), "mpbond"); err != nil {
				return err
			}
			all := map[string][]lab.DualResult{}
			var failed error
			err = lab.RunDual(c.Context(), p, func(r lab.DualResult) {
				if r.Error != "" {
					failed = errors.Join(failed, fmt.Errorf("%s #%d: %s", r.Case, r.Rep, r.Error))
				} else if !r.Disturbed {
					all[r.Case] = append(all[r.Case], r)
				}
				if asJSON {
					_ = cli.PrintJSON(c.OutOrStdout(), r)
				}
			})
			if err = errors.Join(err, failed); err != nil || asJSON {
				return err
			}
			p.Print(c.OutOrStdout(), all)
			return nil
		},
	}
	c.Flags().StringVar(&p.Links, "links", p.Links, "rates of the two links in `Mbit/s`")
	c.Flags().StringVar(&size, "size", size, "of each download")
	c.Flags().IntVar(&p.Chunks, "chunks", 0, "downloads of each user, with pauses; 0: one without")
	c.Flags().IntVar(&p.Reps, "reps", p.Reps, "repetitions of each case")
	c.Flags().Uint64Var(&p.Seed, "seed", p.Seed, "of the file's content and the pauses")
	c.Flags().StringVar(&p.Trace, "trace", "", "keep programs' output in `DIR`")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per case and repetition")
	return c
}
