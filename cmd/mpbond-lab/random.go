// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/core/sched"
	"mpbond/core/trace"
	"mpbond/internal/cli"
	"mpbond/lab"
	"mpbond/lab/virtual/network"
)

// randomFlags are the flags of "mpbond-lab random".
type randomFlags struct {
	networks    int
	first, seed uint64
	schedulers  []string
	limits      network.Limits
	options     network.Options
	trace       string
	asJSON      bool
}

// labRandomCommand returns "mpbond-lab random".
func labRandomCommand() *cobra.Command {
	f := &randomFlags{}
	c := &cobra.Command{
		Use: "random", Short: "compare schedulers over random networks in virtual time", Args: cobra.NoArgs,
		Long: `Compare schedulers over random networks, in virtual time. Nothing is emulated: models
of links, TCP and helpers carry two real bonds.

A network has a direct path and up to six helpers or three more own links, with
rates from 0.3 to 200 Mbit/s, round trips from 4 to 700 ms, queues from 20 ms to
2 s, random loss up to 2 % in half of them, and jitter; pipes from Bluetooth to
Ethernet. In a third of them rates step, fade or break. An app gets or sends 2 KB to
100 MB in one to eight streams: the first object of a connection, or one of the
nine after it.

Efficiency is the least time that the network allows, divided by the time taken. The
SLOW-START BOUND assumes that links are always used once TCP, which begins with ten
packets, has filled them. POOLED TCP is the time in which the same TCP connections have
carried a first object together if each carries all that it can: what remains is the
loss of the scheduler. ONE PATH is the efficiency of plain TCP over the best path, beside
the bound of that path: it shows what TCP leaves unused without a scheduler.

WORSE is the share of networks in which plain TCP over the best path is over 3 % and 5
ms faster; MUCH WORSE is the same for 10 %, WORST the largest ratio of times. Where
packets are lost or delayed at random, each scheme runs five times, and the median
counts. LUCK is the share in which the best path itself, run again, is as much slower.
SURELY is the share in which all runs but one are
slower than all of the best path but one. COPIED is the share of bytes that were given
to a second subflow, GAP the longest time between bytes at the app.

Seeds are new each time unless --first gives the first one. --seed shows one network
and what each scheme made of it.

Schedulers: ` + strings.Join(sched.Names(), ", "),
		Example: `  mpbond-lab random --networks 200
  mpbond-lab random --networks 2000 --first 1 --schedulers auto,pams,ecf
  mpbond-lab random --seed 25 --trace /tmp/t    # one network, with the decisions taken`,
		RunE: func(c *cobra.Command, _ []string) error { return f.runRandomNetworks(c) },
	}
	c.Flags().IntVar(&f.networks, "networks", 100, "draw this many networks")
	c.Flags().Uint64Var(&f.first, "first", 0, "begin with this seed, not 0 (default: a new one)")
	c.Flags().Uint64Var(&f.seed, "seed", 0, "show the network of this seed, not 0, and each result")
	c.Flags().StringSliceVar(&f.schedulers, "schedulers", []string{"auto", "pams", "ecf", "blest", "minrtt", "minpad"},
		"compare these schedulers")
	c.Flags().StringVar(&f.limits.Class, "class", "", "draw networks of one class: stable or changing")
	c.Flags().StringVar(&f.limits.Workload, "workload", "", "draw one kind of workload: "+
		strings.Join(network.WorkloadNames, ", "))
	c.Flags().StringVar(&f.options.Control, "cc", network.ChosenByHop,
		"use this congestion control for all TCP: cubic, bbr, or default: CUBIC and, in the bond, as each hop chooses")
	c.Flags().Float64Var(&f.options.Eta, "reinject", 0, "set the reinjection threshold η (0: the default; negative: off)")
	c.Flags().StringVar(&f.trace, "trace", "", "with --seed, write the events of each scheduler into `DIR`")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print one JSON object")
	return c
}

// checkRandomFlags checks the flags.
func (f *randomFlags) checkRandomFlags() error {
	for _, name := range f.schedulers {
		if _, err := sched.New(name); err != nil {
			return fault.New(fault.Usage, err, "give some of these schedulers")
		}
	}
	if c := f.limits.Class; c != "" && c != "stable" && c != "changing" {
		return cli.UsageError("--class is stable or changing, not %q", c)
	}
	if w := f.limits.Workload; w != "" && !slices.Contains(network.WorkloadNames, w) {
		return cli.UsageError("--workload is one of %s, not %q", strings.Join(network.WorkloadNames, ", "), w)
	}
	if c := f.options.Control; c != "cubic" && c != "bbr" && c != network.ChosenByHop {
		return cli.UsageError("--cc is default, cubic or bbr, not %q", c)
	}
	if f.trace != "" && f.seed == 0 {
		return cli.UsageError("--trace needs --seed")
	}
	return nil
}

func (f *randomFlags) runRandomNetworks(c *cobra.Command) error {
	if err := f.checkRandomFlags(); err != nil {
		return err
	}
	if err := f.loadDrives(); err != nil {
		return err
	}
	if f.seed != 0 {
		return f.replayRandomSeed(c.OutOrStdout())
	}
	if f.first == 0 {
		f.first = rand.Uint64N(1e9) + 1
	}
	began := time.Now()
	all, err := f.compareSchemes(c.Context())
	if err != nil {
		return err
	}
	report := randomReport{First: f.first, Networks: f.networks, Seconds: time.Since(began).Seconds(),
		Replay: f.replayCommand("SEED"), Summaries: network.Summarize(all)}
	if f.asJSON {
		report.Outcomes = all
		return cli.PrintJSON(c.OutOrStdout(), report)
	}
	return report.printRandomReport(c.OutOrStdout())
}

// loadDrives reads the drives that come with the program.
func (f *randomFlags) loadDrives() error {
	all, err := lab.LoadDrives("")
	if err != nil {
		return err
	}
	for _, d := range all {
		var rates network.Drive
		for i := range rates.Rates {
			d.EachRate(i, func(at time.Duration, r unit.Rate) {
				rates.Rates[i] = append(rates.Rates[i], network.RateStep{At: at, Rate: r})
			})
		}
		f.limits.Drives = append(f.limits.Drives, rates)
	}
	return nil
}

// compareSchemes runs all networks on all processors.
func (f *randomFlags) compareSchemes(ctx context.Context) ([]*network.Outcome, error) {
	all := make([]*network.Outcome, f.networks)
	next := make(chan int)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := range next {
				n, w := network.Generate(f.first+uint64(i), f.limits)
				all[i] = network.CompareSchemes(n, w, f.schedulers, f.options)
			}
		})
	}
	defer workers.Wait()
	defer close(next)
	for i := range all {
		select {
		case next <- i:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return all, nil
}

// replayCommand returns the command that shows the network of a seed.
func (f *randomFlags) replayCommand(seed string) string {
	s := "mpbond-lab random --seed " + seed
	if f.limits.Class != "" {
		s += " --class " + f.limits.Class
	}
	if f.limits.Workload != "" {
		s += " --workload " + f.limits.Workload
	}
	if f.options.Control != network.ChosenByHop {
		s += " --cc " + f.options.Control
	}
	if f.options.Eta != 0 {
		s += fmt.Sprintf(" --reinject %g", f.options.Eta)
	}
	return s + " --schedulers " + strings.Join(f.schedulers, ",")
}

// replayRandomSeed shows the network of one seed, and each result.
func (f *randomFlags) replayRandomSeed(out io.Writer) error {
	n, w := network.Generate(f.seed, f.limits)
	o := network.CompareSchemes(n, w, nil, f.options)
	for _, name := range f.schedulers {
		r, err := f.runTracedScheduler(n, w, name)
		if err != nil {
			return err
		}
		o.Schemes = append(o.Schemes, r)
	}
	if f.asJSON {
		return cli.PrintJSON(out, o)
	}
	return printOutcome(out, o)
}

// runTracedScheduler runs one scheduler, and with --trace writes its events.
func (f *randomFlags) runTracedScheduler(n *network.Network, w *network.Workload, name string) (r network.Result,
	err error) {
	options := f.options
	r = network.RunMedianBond(n, name, w, options)
	if f.trace == "" {
		return r, nil
	}
	options.DrawSeed = r.DrawSeed
	if err := os.MkdirAll(f.trace, 0o755); err != nil {
		return r, err
	}
	file, err := os.Create(f.trace + "/" + strings.ReplaceAll(name, ":", "-") + ".jsonl")
	if err != nil {
		return r, err
	}
	defer file.Close()
	encoder := json.NewEncoder(file)
	options.Trace = func(e trace.Event) {
		if err == nil {
			err = encoder.Encode(e)
		}
	}
	return network.RunBond(n, name, w, options), err
}

// randomReport is the output of the command.
type randomReport struct {
	First     uint64             `json:"first"`
	Networks  int                `json:"networks"`
	Seconds   float64            `json:"seconds"`
	Replay    string             `json:"replay"`
	Summaries []network.Summary  `json:"summaries"`
	Outcomes  []*network.Outcome `json:"outcomes,omitempty"`
}

// printRandomReport prints the report for people.
func (r randomReport) printRandomReport(out io.Writer) error {
	fmt.Fprintf(out, "%d networks from seed %d in %.1f s\n", r.Networks, r.First, r.Seconds)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	class := ""
	for _, s := range r.Summaries {
		if s.Class != class {
			class = s.Class
			fmt.Fprintf(t, "\n%s (%d)\tSLOW-START BOUND\tPOOLED TCP\tONE PATH\tWORSE\tLUCK\tSURELY\t"+
				"MUCH WORSE\tWORST\tCOPIED\tGAP\tFAILED\tWORST SEEDS\n",
				class, s.Count)
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.2f\t%s %s\t%.2f s\t%d\t%v %v\n", s.Scheme,
			formatQuantiles(s.SlowStart), formatQuantiles(s.Pooled), formatQuantiles(s.Single), formatSharePercent(s.Worse),
			formatSharePercent(s.WorseByChance), formatSharePercent(s.SurelyWorse), formatSharePercent(s.MuchWorse), s.Worst,
			formatSharePercent(s.CopiedMean), formatSharePercent(s.Copied95), s.Gap95, s.Failed, s.WorstSeeds, s.WorstRatioSeeds)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, `
Efficiency: median, 5th and 1st percentile; ONE PATH: of the best path alone, of its own bound.
COPIED: mean and 95th percentile; GAP: 95th percentile.
Seeds: of the least efficiency, and slowest beside the best path alone. To see one:
  %s
`, r.Replay)
	return nil
}

func formatSharePercent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

// formatQuantiles formats efficiencies.
func formatQuantiles(q network.Quantiles) string {
	return fmt.Sprintf("%.3f %.3f %.3f", q.Median, q.P5, q.P1)
}

// printOutcome prints a network and its results for people.
func printOutcome(out io.Writer, o *network.Outcome) error {
	w := o.Workload
	fmt.Fprintf(out, "seed %d: %v of %v in %d streams, object %d of its connections\n", o.Seed, w.Direction, w.Size,
		w.Streams, w.Objects)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "PATH\tLINK\tUP\tDOWN\tROUND TRIP\tQUEUE UP\tQUEUE DOWN\tLOSS\tJITTER\tCHANGES")
	for _, p := range o.Network.Paths {
		for _, h := range p.Hops {
			reorders := ""
			if h.Down.Reorders {
				reorders = ", reorders"
			}
			fmt.Fprintf(t, "%s\t%s\t%v\t%v\t%s\t%v\t%v\t%.2f %%\t%s%s\t%d\n", p.Name, h.Name, h.Up.Rates[0].Rate,
				h.Down.Rates[0].Rate, formatDelayMillis(h.Up.Delay+h.Down.Delay), h.Up.Queue, h.Down.Queue, 100*h.Down.Loss,
				formatDelayMillis(h.Down.Jitter), reorders, len(h.Down.Rates)-1)
		}
	}
	fmt.Fprintln(t, "\nSCHEME\tSECONDS\tOF SLOW-START BOUND\tOF FLUID\tGAP\tCOPIED\tDUPLICATE")
	fmt.Fprintf(t, "bound that pays slow start\t%.4f\nfluid bound\t%.4f\n", o.Bound.SlowStart.Seconds(),
		o.Bound.Fluid.Seconds())
	if o.Pooled > 0 {
		fmt.Fprintf(t, "pooled TCP\t%.4f\n", o.Pooled.Seconds())
	}
	for _, r := range slices.Concat(o.Singles, []network.Result{o.BestPathRerun}, o.Schemes) {
		if r.Err != "" {
			fmt.Fprintf(t, "%s\t%s\n", r.Scheme, r.Err)
			continue
		}
		fmt.Fprintf(t, "%s\t%.4f\t%.3f\t%.3f\t%.3f\t%v\t%v\n", r.Scheme, r.Time.Seconds(),
			float64(o.Bound.SlowStart)/float64(r.Time), float64(o.Bound.Fluid)/float64(r.Time), r.Gap.Seconds(),
			unit.Bytes(r.Copied), r.Duplicate)
	}
	return t.Flush()
}

func formatDelayMillis(d time.Duration) string {
	return cli.FormatMilliseconds(float64(d.Microseconds()) / 1000)
}
