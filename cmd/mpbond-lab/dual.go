// SPDX-License-Identifier: Apache-2.0

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

func labDualCommand() *cobra.Command {
	p := lab.DualSpec{Links: "5/5", Reps: 3, Seed: 1}
	size := "8MB"
	asJSON := false
	c := &cobra.Command{
		Use: "dual", Short: "measure two users who share their links", Args: cobra.NoArgs,
		Long: `Emulate two devices that are primary and helper at once, each with a link to the
server and an unlimited link between them. Measure downloads of each user: alone
over the own link without mpbond (both at the same time, over separate links);
with mpbond while the other user is idle; and both at once. With --chunks each
user makes that many downloads with pauses of 1 to 5 s, and the reported time is
the mean of one.`,
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
	c.Flags().StringVar(&p.Links, "links", p.Links, "set the rates of the two links in `Mbit/s`")
	c.Flags().StringVar(&size, "size", size, "set the size of each download")
	c.Flags().IntVar(&p.Chunks, "chunks", 0, "make that many downloads for each user, with pauses (0: one without "+
		"a pause)")
	c.Flags().IntVar(&p.Reps, "reps", p.Reps, "repeat each case that many times")
	c.Flags().Uint64Var(&p.Seed, "seed", p.Seed, "seed the file's content and the pauses")
	c.Flags().StringVar(&p.Trace, "trace", "", "keep the output of programs in `DIR`")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per case and repetition")
	return c
}
