//go:build linux

package main

import (
	"bytes"
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

// expCommand is "mpbond-lab exp": published tables and figures, and ours.
func expCommand() *cobra.Command {
	f := expFlags{dir: "exp-results"}
	c := &cobra.Command{
		Use:   "exp",
		Short: "Reproduce published tables and figures",
		Long: `Reproduce tables and figures of the papers that mpbond follows, over emulated
networks on this machine, beside real baselines in the same run. Each has an ID,
a row of "mpbond-lab exp list".`,
	}
	c.PersistentFlags().StringVar(&f.dir, "dir", f.dir, "keep results in `DIR`")
	c.PersistentFlags().StringVar(&f.set, "set", radio.Sets[0].Name, "constants of radios, for energies: "+strings.Join(radio.SetNames(), ", "))
	c.AddCommand(expList(), expRun(&f), expReport(&f))
	return c
}

// expFlags are those of all its subcommands.
type expFlags struct{ dir, set string }

// kept is where results are: those of the short form are apart from others.
func (f *expFlags) kept(quick bool) string {
	if quick {
		return exp.Short(f.dir)
	}
	return f.dir
}

// rows are all, by the chosen constants.
func (f *expFlags) rows() ([]exp.Row, error) {
	set, err := radio.Find(f.set)
	if err != nil {
		return nil, cli.UsageError("%v", err)
	}
	return exp.Rows(set), nil
}

func expList() *cobra.Command {
	quick := false
	c := &cobra.Command{
		Use: "list", Short: "List what can be reproduced, and how long it takes", Args: cobra.NoArgs,
		Example: "  mpbond-lab exp list --quick",
		RunE: func(c *cobra.Command, _ []string) error {
			t := table{head: []string{"row", "what", "from", "cells", "transfers", "time"}}
			type listed struct {
				Row       string  `json:"row"`
				What      string  `json:"what"`
				From      string  `json:"from,omitempty"`
				Cells     int     `json:"cells"`
				Transfers int     `json:"transfers"`
				Seconds   float64 `json:"seconds"` // that it takes
			}
			var list []listed
			add := func(id, title, source string, all []lab.Experiment) {
				n := 0
				for _, e := range all {
					n += exp.Transfers(e)
				}
				took := lab.NewJobs(0).Estimate(all, func(int) float64 { return 1 })
				list = append(list, listed{id, title, source, len(all), n, took.Seconds()})
				t.rows = append(t.rows, []string{id, title, source, fmt.Sprint(len(all)), fmt.Sprint(n), took.Round(time.Second).String()})
			}
			var pool []lab.Experiment
			for _, row := range exp.Rows(radio.Sets[0]) {
				all, err := row.Experiments(exp.Options{Quick: quick})
				if err != nil {
					return err
				}
				add(row.ID, row.Title, row.Source, all)
				pool = append(pool, all...)
			}
			add("all", "all of them together", "", pool)
			if cli.WantsJSON(c) {
				return cli.PrintJSON(c.OutOrStdout(), list)
			}
			return t.print(c.OutOrStdout())
		},
	}
	c.Flags().BoolVar(&quick, "quick", false, "the short form")
	c.Flags().Bool("json", false, "print JSON: a list of objects")
	return c
}

// expOptions are those of "exp run".
type expOptions struct {
	exp.Options
	dir    string
	jobs   int
	limit  time.Duration
	asJSON bool
}

// quickTime is what the short form of all rows may take.
const quickTime = 12 * time.Minute

func expRun(shared *expFlags) *cobra.Command {
	o := expOptions{}
	c := &cobra.Command{
		Use: "run ID…", Short: "Run rows, all with \"all\"", Args: cobra.MinimumNArgs(1), ValidArgsFunction: completeRow,
		Example: "  mpbond-lab exp run m3\n  mpbond-lab exp run all --quick",
		Long: `Run rows of "mpbond-lab exp list", and show each figure beside the published one.
Cells of all rows share the machine: several transfers run at once, as many as
the processors can bear. Nothing else should run meanwhile.

Transfers are kept as they end, so that "exp report" can be asked meanwhile, and
a run that was interrupted goes on where it stopped, if it is of the same version.
When none is missing, the next run begins anew.

--quick makes one transfer of each scheme in some cells, and ends within ` + quickTime.String() + `:
to see that all works, not for figures. Its results are in DIR/quick, apart from
others. It fails only where a scheme cannot transfer at all; a run without it,
where transfers are missing.`,
		RunE: func(c *cobra.Command, args []string) error {
			rows, err := shared.rows()
			if err != nil {
				return err
			}
			if len(args) != 1 || args[0] != "all" {
				if rows, err = chosenRows(rows, args); err != nil {
					return cli.UsageError("%v", err)
				}
			}
			if o.Reps < 0 || o.jobs < 0 || o.limit < 0 {
				return cli.UsageError("--reps, --jobs and --for are at least 0")
			}
			if o.Quick && !c.Flags().Changed("for") {
				o.limit = quickTime
			}
			o.dir = shared.kept(o.Quick)
			return (&expRunner{expOptions: o, rows: rows, out: c.OutOrStdout(), screen: c.ErrOrStderr()}).run(c.Context())
		},
	}
	f := c.Flags()
	f.BoolVar(&o.Quick, "quick", false, "few repetitions: to see that all works, not for figures")
	f.IntVar(&o.Reps, "reps", 0, "repetitions of each cell (0: the row's own)")
	f.Uint64Var(&o.Seed, "seed", 1, "of the files' content, and of networks that vary")
	f.StringVar(&o.Traces, "traces", "", "make networks that vary of recordings in `DIR` (docs/exp.md); none: by --seed")
	f.IntVar(&o.jobs, "jobs", 0, "cells at once (0: as many as this machine can)")
	f.DurationVar(&o.limit, "for", 0, "begin no transfer that would end later (0: no limit; with --quick "+quickTime.String()+")")
	f.BoolVar(&o.asJSON, "json", false, "print one JSON object for each row")
	return c
}

// chosenRows are rows by their IDs, each once.
func chosenRows(all []exp.Row, ids []string) (rows []exp.Row, err error) {
	for _, id := range ids {
		row, err := exp.Find(all, id)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(rows, func(r exp.Row) bool { return r.ID == id }) {
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// printEvaluation shows what came out of a row, the worse first.
func printEvaluation(out io.Writer, e exp.Evaluation) error {
	fmt.Fprintf(out, "\n%s: %s (%s)\n", e.Row, e.Title, e.Source)
	for _, w := range e.Behind {
		fmt.Fprintln(out, "WORSE", w)
	}
	for _, w := range e.Errors {
		fmt.Fprintln(out, "INCOMPLETE", w)
	}
	for _, w := range e.Unsure {
		fmt.Fprintln(out, "not surely faster:", w)
	}
	fmt.Fprintf(out, "verdict: %s%s\n%s\n", e.Line, e.Caution(), e.Setup)
	points := table{head: []string{"figure", "published", "here", "n", "verdict"}}
	for _, p := range e.Points {
		points.rows = append(points.rows, []string{p.What, p.Published, p.Text(p.Unit), fmt.Sprint(p.N), string(p.Verdict)})
	}
	lines := table{head: []string{"cell", "scheme", "metric", "n", "mean ± 95 %", "σ", "fluid bound", "discarded", "failed"}}
	for _, l := range e.Tabled() {
		bound := ""
		if l.Bound > 0 && l.N > 0 {
			bound = fmt.Sprintf("%.3f s (%.1f %%)", l.Bound, 100*l.Bound/l.Mean)
		}
		lines.rows = append(lines.rows, []string{l.Cell, l.Scheme, l.Metric, fmt.Sprint(l.N), l.Text(l.Unit), fmt.Sprintf("%.3f", l.Sigma), bound, some(l.Discarded), some(l.Failed)})
	}
	for _, t := range []table{points, lines} {
		if len(t.rows) > 0 {
			if err := t.print(out); err != nil {
				return err
			}
		}
	}
	if e.Search != "" {
		fmt.Fprintln(out, "\n"+e.Search)
	}
	if e.Lacks != "" {
		fmt.Fprintln(out, "\nnot in it yet:", e.Lacks)
	}
	_, err := fmt.Fprintf(out, "\nmpbond %s, seed %d, Linux %s, %d processors, %s; again: %s\n", e.Version, e.Seed, e.Kernel, e.Cores, e.Date, e.Rerun)
	return err
}

func expReport(shared *expFlags) *cobra.Command {
	asJSON, quick, markdown := false, false, ""
	c := &cobra.Command{
		Use: "report", Short: "Write what was measured as one HTML page, and as CSV", Args: cobra.NoArgs,
		Example: "  mpbond-lab exp report --markdown results.md",
		Long: `Write report.html, a page that needs nothing else, and report.csv into the
directory of results, of all that was measured so far. What is worse than a
baseline, or than published, comes first.`,
		RunE: func(c *cobra.Command, _ []string) error {
			rows, err := shared.rows()
			if err != nil {
				return err
			}
			dir, again := shared.kept(quick), "mpbond-lab exp run all"
			if quick {
				again += " --quick"
			}
			var all []exp.Evaluation
			for _, row := range rows {
				rec, err := exp.Load(dir, row.ID, false)
				if err != nil {
					return err
				}
				if len(rec.Results) > 0 {
					all = append(all, exp.Evaluate(row, rec))
				}
			}
			if len(all) == 0 {
				return fault.New(fault.NotFound, fmt.Errorf("there are no results in %s", dir), again+" makes some")
			}
			if asJSON {
				return cli.PrintJSON(c.OutOrStdout(), all)
			}
			for name, write := range map[string]func(io.Writer, []exp.Evaluation) error{"report.html": exp.WriteHTML, "report.csv": exp.WriteCSV} {
				var text bytes.Buffer
				if err := write(&text, all); err != nil {
					return err
				}
				if err := os.WriteFile(filepath.Join(dir, name), text.Bytes(), 0o644); err != nil {
					return err
				}
			}
			var text bytes.Buffer
			if err := errors.Join(exp.WriteMarkdown(&text, all), writeBetween(markdown, text.String())); err != nil {
				return err
			}
			for _, e := range all {
				fmt.Fprintf(c.OutOrStdout(), "%-4s %s%s\n", e.Row, e.Verdict, e.Caution())
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), filepath.Join(dir, "report.html"))
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON instead of writing files")
	c.Flags().BoolVar(&quick, "quick", false, "of the short form, whose results are apart: to see that all works, not for figures")
	c.Flags().StringVar(&markdown, "markdown", "", "write tables to `FILE` too; if it is there, between its lines "+benchBegin+" and "+benchEnd)
	return c
}

// some is a count, empty where it is none.
func some(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// completeRow completes IDs of rows of published figures.
func completeRow(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	ids := []string{"all"}
	for _, row := range exp.Rows(radio.Sets[0]) {
		ids = append(ids, row.ID)
	}
	return slices.DeleteFunc(ids, func(id string) bool { return slices.Contains(args, id) }), cobra.ShellCompDirectiveNoFileComp
}
