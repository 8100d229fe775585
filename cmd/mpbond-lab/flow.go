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

func labFlow(f *labFlags) *cobra.Command {
	p := lab.FlowSpec{Length: 20 * time.Second, Marks: []time.Duration{3 * time.Second}}
	c := &cobra.Command{
		Use: "flow [FILE]", Short: "Measure congestion controllers over an emulated link", Args: cobra.MaximumNArgs(1),
		Example: `  mpbond-lab flow --links 30 --over bbr,kernel:bbr,cubic,kernel:cubic
  mpbond-lab flow --links 30 --over bbr+bbr,kernel:bbr+kernel:bbr,bbr+kernel:bbr --length 60s
  mpbond-lab flow --links 30 --over bbr --at 10s:ps.rate=15Mbit/s --phases 3s,10s,13s`,
		Long: `Bring a network up, send bulk flows over one of its links, from its second end to
its first, and take it down again. Controllers that are joined with + meet on the
link; the others follow one after the other.

Controllers: ` + strings.Join(cc.Names, ", ") + ` over UDP (package
pbe/transport), and kernel:NAME for the kernel's TCP with its controller of that name.
Where the link is a device of a mobile network flows over UDP have feedback of its
cells, by what these tell; or, with "samples:" before the controllers, by cellwatch
watch, of what they sound like. Elsewhere pbe is bbr.

What is printed is of the link: the rate of IP bytes and its part of what the link
can carry, the one-way delay of packets, packets dropped by its queue and at
random. The rate of each flow is of payload. A run in which the emulator was late
is marked disturbed, discarded and repeated.`,
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
			return runFlows(c, p, f.asJSON)
		},
	}
	f.linksFlag(c)
	c.Flags().StringSliceVar(&p.Sets, "over", []string{"bbr", "kernel:bbr", "cubic", "kernel:cubic"}, "controllers to compare, `NAME[+NAME…],…`")
	c.Flags().StringVar(&p.Link, "link", "", "the link that flows go over (default: ps, or the only one)")
	c.Flags().DurationVar(&p.Length, "length", p.Length, "how long flows send")
	c.Flags().DurationSliceVar(&p.Marks, "phases", p.Marks, "ends of phases, each with figures of its own")
	c.Flags().IntVar(&p.Reps, "reps", 1, "runs of each")
	c.Flags().Uint64Var(&p.Seed, "seed", 1, "of what our controllers draw")
	c.Flags().StringArrayVar(&p.At, "at", nil, "change of a link at a `TIME:LINK.PROPERTY=VALUE` (repeatable)")
	c.Flags().BoolVar(&p.Together, "together", false, "run all at once, each over a link of its own that is like this one")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print one JSON object per run")
	return c
}

// defaultLink is ps of a house, or the only link that there is.
func defaultLink(t *lab.Topology) string {
	if links := t.Links(); len(links) == 1 {
		return links[0]
	}
	return "ps"
}

func runFlows(c *cobra.Command, p lab.FlowSpec, asJSON bool) error {
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

func labFlowSink() *cobra.Command {
	var hear flow.CellListener
	c := &cobra.Command{
		Use: "flow-sink", Hidden: true, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return flow.Sink(c.Context(), hear) },
	}
	c.Flags().StringVar(&hear.Source, "cells", "", "where control messages come from")
	c.Flags().Uint16Var(&hear.RNTI, "rnti", 0, "what the device is called in them")
	return c
}

func labFlowSource() *cobra.Command {
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
	c.Flags().Uint64Var(&seed, "seed", 0, "of what controllers draw")
	return c
}
