//go:build linux

package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mpbond/base/fault"
	"mpbond/internal/cli"
	"mpbond/lab"
	"mpbond/lab/exp"
	"mpbond/lab/radio"
)

// expCommand is "mpbond-lab exp": published tables and figures, and what mpbond claims.
func expCommand() *cobra.Command {
	f := expFlags{dir: exp.DefaultDir}
	c := &cobra.Command{
		Use:   "exp",
		Short: "Reproduce published tables and figures, and measure what mpbond claims",
		Long: `Reproduce tables and figures of the papers that mpbond follows, and measure what
mpbond claims, over emulated networks on this machine, beside real baselines in
the same run. Each has an ID, a row of "mpbond-lab exp list".`,
	}
	c.PersistentFlags().StringVar(&f.dir, "dir", f.dir, "keep results in `DIR`")
	c.PersistentFlags().StringVar(&f.set, "set", radio.Sets[0].Name, "constants of radios, for energies: "+strings.Join(radio.SetNames(), ", "))
	c.PersistentFlags().StringVar(&f.drives, "drives", "", "have row b4 take the recorded drives of `DIR`: CSV files of seconds and two carriers' Mbit/s (default: those that come with mpbond)")
	c.AddCommand(expList(&f), expRun(&f), expReport(&f))
	return c
}

// expFlags are those of all its subcommands.
type expFlags struct{ dir, set, drives string }

// resultsDir is where results are: those of the short form are apart from others.
func (f *expFlags) resultsDir(quick bool) string {
	if quick {
		return exp.QuickDir(f.dir)
	}
	return f.dir
}

// selectRows returns those that are named, by the chosen constants and drives; all without
// names.
func (f *expFlags) selectRows(ids []string) ([]exp.Row, error) {
	set, err := radio.FindSet(f.set)
	if err != nil {
		return nil, cli.UsageError("%v", err)
	}
	claims, err := exp.ClaimRows(f.drives)
	if err != nil {
		return nil, err
	}
	all := append(exp.PublishedRows(set), claims...)
	if len(ids) == 0 {
		return all, nil
	}
	some, err := exp.SelectRows(all, ids...)
	return some, cli.AsUsageError(err)
}

func expList(f *expFlags) *cobra.Command {
	var o exp.Options
	c := &cobra.Command{
		Use: "list [ID…]", Short: "List what can be measured, and how long it takes", ValidArgsFunction: completeRow,
		Long:    `List all rows and how long they take, or the cells of those that are named.`,
		Example: "  mpbond-lab exp list --quick\n  mpbond-lab exp list bench",
		RunE: func(c *cobra.Command, ids []string) error {
			rows, err := f.selectRows(ids)
			if err != nil {
				return err
			}
			measurable := exp.List
			if len(ids) > 0 {
				measurable = exp.ListCells
			}
			list, err := measurable(rows, o)
			if err != nil {
				return err
			}
			if cli.WantsJSON(c) {
				return cli.PrintJSON(c.OutOrStdout(), list)
			}
			return exp.ListTable(list).Print(c.OutOrStdout())
		},
	}
	c.Flags().BoolVar(&o.Quick, "quick", false, "the short form")
	c.Flags().StringVar(&o.Only, "only", "", "only cells whose names contain `TEXT`")
	c.Flags().Bool("json", false, "print JSON: a list of objects, or a table")
	return c
}

// quickTime is what the short form of all rows may take.
const quickTime = 12 * time.Minute

func expRun(f *expFlags) *cobra.Command {
	var r exp.Run
	var asJSON bool
	c := &cobra.Command{
		Use: "run ID…", Short: "Run rows", Args: cobra.MinimumNArgs(1), ValidArgsFunction: completeRow,
		Example: "  mpbond-lab exp run m3\n  mpbond-lab exp run all --quick\n  mpbond-lab exp run bench --quick --only '2 MB'",
		Long: `Run rows of "mpbond-lab exp list": all published ones with "all", and with "bench" what
mpbond claims. Show each figure beside the published one, or the claim, schemes
interleaved. Cells of all rows share the machine: several transfers run at once,
each in namespaces of its own, as many as the processors can bear, judged by how
many are disturbed, or --jobs. Cells about what the machine can do run first, by
themselves. Nothing else should run meanwhile.

All cells come to three repetitions, then up to six, then all; what was disturbed
is made once more. So what is ended early has something of everything.

Transfers are kept as they end, so that "exp report" can be asked meanwhile, and
a run that was interrupted goes on where it stopped, if it is of the same version.
When none is missing, the next run begins anew.

--quick makes one transfer of each scheme in some cells, and ends within ` + quickTime.String() + `:
to see that all works, not for figures. Its results are in DIR/quick, apart from
others. It fails only where a scheme cannot transfer at all; a run without it,
where transfers are missing. Figures and claims decide nothing: they are what is
to be found out.`,
		RunE: func(c *cobra.Command, ids []string) (err error) {
			if r.Rows, err = f.selectRows(ids); err != nil {
				return err
			}
			if r.Options.Reps < 0 || r.Jobs < 0 || r.Limit < 0 {
				return cli.UsageError("--reps, --jobs and --for are at least 0")
			}
			if r.Options.Quick && !c.Flags().Changed("for") {
				r.Limit = quickTime
			}
			if r.RunsProduct() {
				if err := lab.CheckProduct(c.Context(), cli.Version); err != nil {
					return err
				}
			}
			p := &runProgress{out: c.ErrOrStderr(), lastPrint: time.Now()}
			r.Options.Drives, r.Dir, r.Version, r.PrintLine, r.Progress = f.drives, f.resultsDir(r.Options.Quick), cli.Version, p.printLine, p.showProgress
			all, failed := r.Measure(c.Context())
			for _, e := range all {
				if asJSON {
					err = errors.Join(err, cli.PrintJSON(c.OutOrStdout(), e))
				} else {
					err = errors.Join(err, e.Print(c.OutOrStdout()))
				}
			}
			return errors.Join(err, failed)
		},
	}
	o := c.Flags()
	o.BoolVar(&r.Options.Quick, "quick", false, "few repetitions: to see that all works, not for figures")
	o.StringVar(&r.Options.Only, "only", "", "only cells whose names contain `TEXT`")
	o.IntVar(&r.Options.Reps, "reps", 0, "repetitions of each cell (0: the row's own)")
	o.Uint64Var(&r.Options.Seed, "seed", 1, "of the files' content, and of networks that vary")
	o.StringVar(&r.Options.Traces, "traces", "", "make networks that vary of recordings in `DIR` (docs/reference/experiments.md); none: by --seed")
	o.IntVar(&r.Jobs, "jobs", 0, "cells at once (0: as many as this machine can)")
	o.DurationVar(&r.Limit, "for", 0, "begin no transfer that would end later (0: no limit; with --quick "+quickTime.String()+")")
	o.BoolVar(&asJSON, "json", false, "print one JSON object for each row")
	return c
}

// runProgress shows where a run is: in one line of a terminal. Off one it prints what
// matters, and something now and then.
type runProgress struct {
	out       io.Writer
	lastPrint time.Time
}

// progressInterval is how often progress is told off a terminal, at least.
const progressInterval = time.Minute

func (p *runProgress) printLine(text string) {
	cli.NewSteps(p.out).Clear()
	fmt.Fprintln(p.out, text)
}

func (p *runProgress) showProgress(text string, matters bool) {
	switch {
	case cli.IsTerminal(p.out):
		cli.NewSteps(p.out).Show(text)
	case matters || time.Since(p.lastPrint) > progressInterval:
		p.lastPrint = time.Now()
		fmt.Fprintln(p.out, text)
	}
}

func expReport(f *expFlags) *cobra.Command {
	asJSON, quick, markdown, overview := false, false, "", ""
	c := &cobra.Command{
		Use: "report [ID…]", Short: "Write what was measured as one HTML page, and as CSV", ValidArgsFunction: completeRow,
		Example: "  mpbond-lab exp report --markdown results.md\n  mpbond-lab exp report bench --markdown performance.md --overview README.md",
		Long: `Write report.html, a page that needs nothing else, and report.csv into the
directory of results, of all that was measured so far, or of the rows named. What
is worse than a baseline, or than published or claimed, comes first.`,
		RunE: func(c *cobra.Command, ids []string) error {
			rows, err := f.selectRows(ids)
			if err != nil {
				return err
			}
			dir, again := f.resultsDir(quick), "mpbond-lab exp run "+cmp.Or(strings.Join(ids, " "), "all")
			if quick {
				again += " --quick"
			}
			all, err := exp.EvaluateAll(dir, rows)
			if err != nil {
				return err
			}
			if len(all) == 0 {
				return fault.New(fault.NotFound, fmt.Errorf("there are no results in %s", dir), again+" makes some")
			}
			if asJSON {
				return cli.PrintJSON(c.OutOrStdout(), all)
			}
			page := filepath.Join(dir, "report.html")
			if err := errors.Join(
				writeReport(page, exp.WriteHTML, all, os.WriteFile),
				writeReport(filepath.Join(dir, "report.csv"), exp.WriteCSV, all, os.WriteFile),
				writeReport(markdown, exp.WriteMarkdown, all, exp.WriteDocument),
				writeReport(overview, exp.WriteOverview, all, exp.WriteDocument)); err != nil {
				return err
			}
			for _, e := range all {
				fmt.Fprintf(c.OutOrStdout(), "%-4s %s%s\n", e.Row, e.Verdict, e.Caution())
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), page)
			return err
		},
	}
	between := "; if it is there, between its lines " + exp.DocumentBegin + " and " + exp.DocumentEnd
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON instead of writing files")
	c.Flags().BoolVar(&quick, "quick", false, "of the short form, whose results are apart: to see that all works, not for figures")
	c.Flags().StringVar(&markdown, "markdown", "", "write tables to `FILE` too"+between)
	c.Flags().StringVar(&overview, "overview", "", "write one table of the bench's rows to `FILE`, in the same way")
	return c
}

// writeReport writes one form of the report to a file, if that has a name.
func writeReport(file string, form func(io.Writer, []exp.Evaluation) error, all []exp.Evaluation, write func(string, []byte, os.FileMode) error) error {
	if file == "" {
		return nil
	}
	var text bytes.Buffer
	if err := form(&text, all); err != nil {
		return err
	}
	return write(file, text.Bytes(), 0o644)
}

// completeRow completes IDs of rows.
func completeRow(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	rows, err := (&expFlags{set: radio.Sets[0].Name}).selectRows(nil)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return slices.DeleteFunc(exp.RowIDs(rows), func(id string) bool { return slices.Contains(args, id) }), cobra.ShellCompDirectiveNoFileComp
}
