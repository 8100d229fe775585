// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mpbond/internal/cli"
	"mpbond/lab"
	"mpbond/pbe/cc"
	"mpbond/pbe/flow"
)

func labFlowCommand(f *labFlags) *cobra.Command {
	p := lab.FlowSpec{Length: 20 * time.Second, Marks: []time.Duration{3 * time.Second}}
	c := &cobra.Command{
		Use: "flow [FILE]", Short: "measure congestion controllers over an emulated link", Args: cobra.MaximumNArgs(1),
		Example: `  mpbond-lab flow --links 30 --over bbr,kernel:bbr,cubic,kernel:cubic
  mpbond-lab flow --links 30 --over bbr+bbr,kernel:bbr+kernel:bbr,bbr+kernel:bbr --length 60s
  mpbond-lab flow --links 30 --over bbr --at 10s:ps.rate=15Mbit/s --phases 3s,10s,13s`,
		Long: `Bring up a network, send bulk flows over one of its links, from its second end to
its first, and take it down again. Controllers joined with + share the link; the
others run one after the other.

Controllers: ` + strings.Join(cc.Names, ", ") + ` over UDP (package
pbe/transport); kernel:NAME for the kernel's TCP with its controller NAME; and tcp
for the kernel's TCP as mpbond's subflows use it, with cubic or bbr by the losses
of the link. If the link is a device of a mobile network, flows over UDP get feedback from its
cells: their control messages; or, with "samples:" before the controllers, what
cellwatch watch decodes from their samples. Elsewhere pbe works like bbr.

Print for the link: the rate of IP bytes and its share of the link's capacity, the
one-way delay of packets, and packets dropped by its queue and at random. Rates of
flows are of payload. A run in which the emulator was late is marked disturbed,
discarded and repeated.`,
		RunE: func(c *cobra.Command, args []string) (err error) {
			if p.Topology, err = f.loadTopology(args); err != nil {
				return err
			}
			if p.Link == "" {
				p.Link = defaultLink(p.Topology)
			}
			for _, set := range p.Sets {
				for _, name := range strings.Split(strings.TrimPrefix(set, lab.SamplesPrefix), "+") {
					if err := flow.CheckController(name); err != nil {
						return cli.AsUsageError(err)
					}
				}
			}
			return runFlowSpec(c, p, f.asJSON)
		},
	}
	f.addLinksFlag(c)
	c.Flags().StringSliceVar(&p.Sets, "over", []string{"bbr", "kernel:bbr", "cubic", "kernel:cubic"},
		"compare these controllers, `NAME[+NAME…],…`")
	c.Flags().StringVar(&p.Link, "link", "", "send flows over this `LINK` (default: ps, or the only one)")
	c.Flags().DurationVar(&p.Length, "length", p.Length, "send for this `TIME`")
	c.Flags().DurationSliceVar(&p.Marks, "phases", p.Marks, "end phases at these `TIMES`; each is reported separately")
	c.Flags().IntVar(&p.Reps, "reps", 1, "run each this `NUMBER` of times")
	c.Flags().Uint64Var(&p.Seed, "seed", 1, "seed mpbond's controllers with this `NUMBER`")
	c.Flags().StringArrayVar(&p.At, "at", nil, "change a link at a time, `TIME:LINK.PROPERTY=VALUE`; repeatable")
	c.Flags().BoolVar(&p.Together, "together", false, "run all at once, each over its own copy of the link")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print one JSON object per run")
	cli.GroupFlags(c, "Network", "links", "link", "at")
	cli.GroupFlags(c, "Flows", "over", "together", "length", "reps", "seed")
	cli.GroupFlags(c, "Output", "json", "phases")
	return c
}

// defaultLink returns the only link, or ps.
func defaultLink(t *lab.Topology) string {
	if links := t.Links(); len(links) == 1 {
		return links[0]
	}
	return "ps"
}

// runFlowSpec runs the flows and prints each result. It returns an error if a run failed or too
// many were disturbed.
func runFlowSpec(c *cobra.Command, p lab.FlowSpec, asJSON bool) error {
	out := c.OutOrStdout()
	var failed error
	counted := map[string]int{}
	err := lab.RunFlows(c.Context(), p, func(r lab.FlowResult) {
		switch {
		case r.Error != "":
			failed = errors.Join(failed, fmt.Errorf("%s #%d: %s", r.Set, r.Rep, r.Error))
		case !r.Disturbed:
			counted[r.Set]++
		}
		if asJSON {
			_ = cli.PrintJSON(out, r)
		} else {
			r.Print(out)
		}
	})
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	for _, set := range p.Sets {
		if n := counted[set]; n < p.Reps {
			return fmt.Errorf("%d runs of %s stayed disturbed: the machine is too busy to measure", p.Reps-n, set)
		}
	}
	return nil
}

func labFlowSinkCommand() *cobra.Command {
	var hear flow.CellListener
	c := &cobra.Command{
		Use: "flow-sink", Hidden: true, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return flow.Sink(c.Context(), hear) },
	}
	c.Flags().StringVar(&hear.Source, "cells", "", "read control messages from here")
	c.Flags().Uint16Var(&hear.RNTI, "rnti", 0, "RNTI of the device in them")
	return c
}

func labFlowSourceCommand() *cobra.Command {
	var job flow.Job
	var seed uint64
	c := &cobra.Command{
		Use: "flow-source CONTROLLER@ADDRESS…", Hidden: true, Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := job.ParseFlows(seed, args); err != nil {
				return cli.AsUsageError(err)
			}
			return flow.Source(c.Context(), job, os.Stdin, c.OutOrStdout())
		},
	}
	c.Flags().DurationVar(&job.Length, "length", 0, "how long flows send")
	c.Flags().Uint64Var(&seed, "seed", 0, "seed the controllers")
	return c
}
