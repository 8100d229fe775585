// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
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

// expCommand returns "mpbond-lab exp".
func expCommand() *cobra.Command {
	f := expFlags{dir: exp.DefaultDir}
	c := &cobra.Command{
		Use:   "exp",
		Short: "reproduce published results and measure what mpbond claims",
		Long: `Reproduce tables and figures of the papers that mpbond follows, and measure what
mpbond claims, over emulated networks on this machine. Baselines are measured in the
same run. Each result is a row with an ID; "mpbond-lab exp list" lists them.`,
	}
	c.PersistentFlags().StringVar(&f.dir, "dir", f.dir, "keep results in `DIR`")
	c.PersistentFlags().StringVar(&f.set, "set", radio.Sets[0].Name,
		"compute energies with these constants of radios: "+strings.Join(radio.SetNames(), ", "))
	c.PersistentFlags().StringVar(&f.drives, "drives", "", "use the recorded drives in `DIR` for row b4: CSV "+
		"files of seconds and two carriers' Mbit/s (default: those that come with mpbond)")
	c.AddCommand(expListCommand(&f), expRunCommand(&f), expWorkerCommand(), expQueueCommand(), expReportCommand(&f),
		expAgesCommand())
	return c
}

// expFlags are the flags of all its subcommands.
type expFlags struct{ dir, set, drives string }

// resultsDir returns the directory of results. Those of the short form are separate.
func (f *expFlags) resultsDir(quick bool) string {
	if quick {
		return exp.QuickDir(f.dir)
	}
	return f.dir
}

// selectRows returns the named rows with the chosen constants and drives, or all rows.
func (f *expFlags) selectRows(ids []string) ([]exp.Row, error) {
	set, err := radio.FindSet(f.set)
	if err != nil {
		return nil, cli.UsageError("%v", err)
	}
	claims, err := exp.ClaimRows(f.drives)
	if err != nil {
		return nil, err
	}
	all := slices.Concat(exp.PublishedRows(set), claims, exp.NetworkRows())
	if len(ids) == 0 {
		return all, nil
	}
	some, err := exp.SelectRows(all, ids...)
	return some, cli.AsUsageError(err)
}

func expListCommand(f *expFlags) *cobra.Command {
	var o exp.Options
	c := &cobra.Command{
		Use: "list [ID…]", Short: "list what can be measured and how long it takes", ValidArgsFunction: completeRow,
		Long:    `List all rows and how long they take, or the cells of the named rows.`,
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
	c.Flags().BoolVar(&o.Quick, "quick", false, "list the short form")
	c.Flags().StringVar(&o.Only, "only", "", "list only cells whose names contain `TEXT`")
	c.Flags().Bool("json", false, "print a JSON list of rows; named rows have their cells in cell_list")
	return c
}

// quickTime is the time limit of the short form.
const quickTime = 12 * time.Minute

func expRunCommand(f *expFlags) *cobra.Command {
	var r exp.Run
	var asJSON bool
	var workers queueFlags
	c := &cobra.Command{
		Use: "run ID…", Short: "measure rows", Args: cobra.MinimumNArgs(1), ValidArgsFunction: completeRow,
		Example: "  mpbond-lab exp run m3\n  mpbond-lab exp run all --quick\n  mpbond-lab exp run bench --quick " +
			"--only '2 MB'\n  mpbond-lab exp run all --queue nats://nats.example.org",
		Long: `Measure rows of "mpbond-lab exp list": "all" stands for all published rows,
"bench" for what mpbond claims, "networks" for random networks, "phones" for the
study of smartphones, with places that nothing was tuned on, "rails" for that of
high-speed rails, and "cells" for PBE-CC in cells as they are. Print each result
beside the published one or the claim. Schemes are interleaved. Several transfers run at once, each in its
own namespaces: as many as the processors allow, judged by how many are
disturbed, or --jobs. Cells that measure the machine run first and alone. Do not
run anything else meanwhile.

All cells reach three repetitions, then up to six, then all; disturbed transfers
are repeated once per round. So a run that ends early has some results of each row.

Each transfer is saved when it ends. "exp report" works meanwhile, and an
interrupted run resumes where it stopped if the version is the same. When no
transfer is missing, the next run starts again.

With --queue other machines make the transfers: those that run "mpbond-lab exp worker".
Each cell is measured by one of them. An interrupted run leaves its cells in the queue:
the same command resumes, "mpbond-lab exp queue drop" removes them. A cell that ends
three workers is given up, and the run fails.

--quick makes one transfer of each scheme in some cells and ends within ` + quickTime.String() + `.
It shows that everything works; its values are no results, and are kept in
DIR/quick. A run fails if transfers are missing; with --quick only if a scheme
cannot transfer at all. Results and claims do not change the exit code.`,
		RunE: func(c *cobra.Command, ids []string) (err error) {
			if r.Rows, err = f.selectRows(ids); err != nil {
				return err
			}
			if r.Options.Reps < 0 || r.Jobs < 0 || r.Limit < 0 {
				return cli.UsageError("--reps, --jobs and --for must be at least 0")
			}
			p := &runProgress{out: c.ErrOrStderr(), lastPrint: time.Now()}
			if workers.isSet() {
				for _, name := range []string{"jobs", "for", "traces", "drives"} {
					if c.Flags().Changed(name) {
						return cli.UsageError("--queue and --%s exclude each other", name)
					}
				}
				q, err := workers.open(c.Context(), p)
				if err != nil {
					return err
				}
				defer q.Close()
				r.Queue = q
			} else if err := prepareLocalRun(c, &r); err != nil {
				return err
			}
			r.Options.Drives, r.Dir, r.Version, r.PrintLine, r.Progress = f.drives, f.resultsDir(r.Options.Quick),
				cli.Version, p.printProgressLine, p.showProgress
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
	o.BoolVar(&r.Options.Quick, "quick", false, "make few repetitions, to see that everything works")
	o.StringVar(&r.Options.Only, "only", "", "run only cells whose names contain `TEXT`")
	o.IntVar(&r.Options.Reps, "reps", 0, "repeat each cell that many times (0: the row's own number)")
	o.Uint64Var(&r.Options.Seed, "seed", 1, "seed the files' content and networks that vary")
	o.StringVar(&r.Options.Traces, "traces", "", "use recordings in `DIR` for networks that vary "+
		"(docs/reference/experiments.md; "+
		"default: generate them from --seed)")
	o.IntVar(&r.Jobs, "jobs", 0, "run that many cells at once (0: as many as this machine allows)")
	o.DurationVar(&r.Limit, "for", 0,
		"start no transfer that would end later (0: no limit; with --quick "+quickTime.String()+")")
	o.BoolVar(&asJSON, "json", false, "print one JSON object for each row")
	workers.add(c)
	cli.GroupFlags(c, "Transfers", "quick", "only", "reps", "seed", "traces")
	cli.GroupFlags(c, "This machine", "jobs", "for")
	cli.GroupFlags(c, "Other machines", "queue", "creds", "ca")
	return c
}

// prepareLocalRun prepares a run on this machine.
func prepareLocalRun(c *cobra.Command, r *exp.Run) error {
	if r.Options.Quick && !c.Flags().Changed("for") {
		r.Limit = quickTime
	}
	if r.RunsProduct() {
		return lab.CheckProduct(c.Context(), cli.Version)
	}
	return nil
}

// runProgress shows the progress of a run: in one line of a terminal; elsewhere it prints what
// matters, and something now and then.
type runProgress struct {
	out       io.Writer
	lastPrint time.Time
}

// progressInterval is the longest time without progress output where there is no terminal.
const progressInterval = time.Minute

// printProgressLine prints a line.
func (p *runProgress) printProgressLine(text string) {
	cli.NewSteps(p.out).Clear()
	fmt.Fprintln(p.out, text)
}

// showProgress shows the state of the run.
func (p *runProgress) showProgress(text string, matters bool) {
	switch {
	case cli.IsTerminal(p.out):
		cli.NewSteps(p.out).Show(text)
	case matters || time.Since(p.lastPrint) > progressInterval:
		p.lastPrint = time.Now()
		fmt.Fprintln(p.out, text)
	}
}

func expReportCommand(f *expFlags) *cobra.Command {
	asJSON, quick, markdown, overview := false, false, "", ""
	c := &cobra.Command{
		Use: "report [ID…]", Short: "write the results as one HTML page and as CSV", ValidArgsFunction: completeRow,
		Example: "  mpbond-lab exp report --markdown results.md\n  mpbond-lab exp report bench --markdown " +
			"docs/evidence/performance.md --overview README.md",
		Long: `Write report.html, a self-contained page, and report.csv into the directory of
results. They cover everything measured so far, or the named rows. The page begins
with what was measured and a picture of all rows. Then come the results that are worse
than a baseline, than published or than claimed, by cause, and then each row. Tables
for an existing document must be of the rows that it has.`,
		RunE: func(c *cobra.Command, ids []string) error {
			rows, err := f.selectRows(ids)
			if err != nil {
				return err
			}
			dir, rerun := f.resultsDir(quick), "mpbond-lab exp run "+cmp.Or(strings.Join(ids, " "), "all")
			if quick {
				rerun += " --quick"
			}
			all, err := exp.EvaluateAll(dir, rows)
			if err != nil {
				return err
			}
			if len(all) == 0 {
				return fault.New(fault.NotFound, fmt.Errorf("no results in %s", dir), "run "+rerun+" first")
			}
			exp.AddAges(all, coreCommits(c.Context()))
			if asJSON {
				return cli.PrintJSON(c.OutOrStdout(), all)
			}
			if err := checkSameRows(markdown, all); err != nil {
				return err
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
				fmt.Fprintf(c.OutOrStdout(), "%-4s %s%s, %s\n", e.Row, e.Verdict, e.Caution(), e.VersionText())
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), page)
			return err
		},
	}
	between := "; in an existing file between its lines " + exp.DocumentBegin + " and " + exp.DocumentEnd
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON instead of writing files")
	c.Flags().BoolVar(&quick, "quick", false, "report the short form, whose results are separate")
	c.Flags().StringVar(&markdown, "markdown", "", "also write tables to `FILE`"+between)
	c.Flags().StringVar(&overview, "overview", "",
		"also write one table of the bench's rows to `FILE`, in the same way")
	return c
}

// rowHeading matches the heading of a row in the tables of a document.
var rowHeading = regexp.MustCompile(`(?m)^## ([a-z]+[0-9]+[a-z]?)$`)

// checkSameRows returns an error if the tables of an existing document have only other rows, or
// only some of these: the document would become one of all rows.
func checkSameRows(file string, all []exp.Evaluation) error {
	if file == "" {
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil // exp.WriteDocument creates a missing file, and reports other errors
	}
	_, tables, _ := strings.Cut(string(text), exp.DocumentBegin)
	tables, _, _ = strings.Cut(tables, exp.DocumentEnd)
	var old, added []string
	for _, m := range rowHeading.FindAllStringSubmatch(tables, -1) {
		old = append(old, m[1])
	}
	for _, e := range all {
		if !slices.Contains(old, e.Row) {
			added = append(added, e.Row)
		}
	}
	if len(old) == 0 || len(added) == 0 {
		return nil
	}
	return fault.New(fault.Exists, fmt.Errorf("the tables of %s do not have %s", file, strings.Join(added, ", ")),
		fmt.Sprintf("name the rows: report %s --markdown %s. To add rows, first empty the text between its lines %s and %s",
			strings.Join(old, " "), file, exp.DocumentBegin, exp.DocumentEnd))
}

// coreCommits returns a function that counts the commits of the core since a version, each once.
func coreCommits(ctx context.Context) func(version string) (n int, ok bool) {
	type count struct {
		n  int
		ok bool
	}
	known := map[string]count{}
	return func(version string) (int, bool) {
		c, found := known[version]
		if !found {
			c.n, c.ok = exp.CoreCommits(ctx, version)
			known[version] = c
		}
		return c.n, c.ok
	}
}

func expAgesCommand() *cobra.Command {
	var update bool
	c := &cobra.Command{
		Use: "ages FILE…", Short: "find pages whose figures are old", Args: cobra.MinimumNArgs(1),
		Example: "  mpbond-lab exp ages README.md docs/evidence/*.md",
		Long: `Compare the commits that pages name below their tables with the repository of the
current directory. A page whose oldest figures are older than 50 commits of the core
(scheduler, bond, estimates) must say so in a line of its own. Print pages whose line
is missing or wrong. Old figures do not change the exit code.`,
		RunE: func(c *cobra.Command, files []string) error {
			count := coreCommits(c.Context())
			for _, name := range files {
				old, err := os.ReadFile(name)
				if err != nil {
					return err
				}
				marked := exp.MarkAge(string(old), count)
				switch {
				case marked == string(old):
					continue
				case update:
					err = os.WriteFile(name, []byte(marked), 0o644)
				default:
					_, err = fmt.Fprintf(c.OutOrStdout(), "warning: %s does not say whether its figures are old: run "+
						"mpbond-lab exp ages --update %s\n", name, name)
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&update, "update", false, "write the lines into the pages")
	return c
}

// writeReport writes one form of the report to a file, unless its name is empty.
func writeReport(
	file string,
	form func(io.Writer, []exp.Evaluation) error,
	all []exp.Evaluation,
	write func(string, []byte, os.FileMode) error,
) error {
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
	return slices.DeleteFunc(exp.RowIDs(rows), func(id string) bool {
		return slices.Contains(args, id)
	}), cobra.ShellCompDirectiveNoFileComp
}
