//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"mpbond/internal/cli"
	"mpbond/lab"
)

type benchOptions struct {
	quick, asJSON, list bool
	only                string
	seed                uint64
	jobs                int
	limit               time.Duration
	markdown, summary   string
	resume, drives      string
	mixed               bool
}

// fullTime is what the full form may take: what it has to do takes two thirds of
// that on two processors, the rest is for what is disturbed.
const fullTime = 45 * time.Minute

func labBench() *cobra.Command {
	var o benchOptions
	c := &cobra.Command{
		Use: "bench", Short: "Measure what mpbond claims, beside its baselines", Args: cobra.NoArgs,
		Example: "  mpbond-lab bench --quick --only '20 MB'",
		Long: `Measure what mpbond claims, over emulated networks on this machine, each figure
beside its baselines in the same run, schemes interleaved. Nothing else should
run meanwhile. It takes no more than --for, ` + fullTime.String() + ` unless said otherwise, and
--quick about three minutes on two processors.

Everything is measured in rounds: three repetitions of each experiment, then up
to six, then all; then, while there is time, what was disturbed once more. So
what is ended early has something of everything, and says how many of the
planned transfers count. Experiments about what the machine can do run first, by
themselves; of the others several at once, each in namespaces of its own: as
many as the processors can bear, judged by how many transfers are disturbed, or
--jobs.

Transfers that are missing in the end make this fail. Claims that do not hold
do not: they are what is to be found out.`,
		RunE: func(c *cobra.Command, _ []string) error {
			experiments, err := lab.Suite(o.quick, o.seed, o.drives)
			if err != nil {
				return err
			}
			experiments = slices.DeleteFunc(experiments, func(e lab.Experiment) bool { return !strings.Contains(e.Name, o.only) })
			if len(experiments) == 0 {
				return cli.UsageError("no experiment has %q in its name", o.only)
			}
			if o.jobs < 0 {
				return cli.UsageError("--jobs %d: at least 1, or 0 for as many as this machine can", o.jobs)
			}
			b := &bench{benchOptions: o, out: c.OutOrStdout(), screen: c.ErrOrStderr(), experiments: experiments}
			if o.list {
				return b.printList()
			}
			return b.run(c.Context())
		},
	}
	f := c.Flags()
	f.BoolVar(&o.quick, "quick", false, "few repetitions: to see that all works, not for figures")
	f.BoolVar(&o.asJSON, "json", false, "print one JSON object for each experiment")
	f.BoolVar(&o.list, "list", false, "only list the experiments, and how long they will take")
	f.StringVar(&o.only, "only", "", "only experiments whose name contains `TEXT`")
	f.Uint64Var(&o.seed, "seed", 1, "of the files' content")
	f.IntVar(&o.jobs, "jobs", 0, "experiments at once (0: as many as this machine can)")
	f.DurationVar(&o.limit, "for", fullTime, "begin no transfer that would end later (0: no limit)")
	f.StringVar(&o.markdown, "markdown", "", "write all tables to `FILE`; if it is there, between its lines "+benchBegin+" and "+benchEnd)
	f.StringVar(&o.summary, "summary", "", "write one table of all experiments to `FILE`, in the same way")
	f.StringVar(&o.resume, "resume", "", "keep transfers in `FILE` as they end, and do not repeat those that it has; those of another version are left alone; it is renamed to FILE.old when none is missing")
	f.BoolVar(&o.mixed, "any-version", false, "with --resume: take over transfers of other versions too")
	f.StringVar(&o.drives, "drives", "", "take the recorded drives of `DIR`: CSV files of seconds and two carriers' Mbit/s (default: those that come with mpbond)")
	return c
}

// bench is one run of the suite.
type bench struct {
	benchOptions
	out         io.Writer // tables
	screen      io.Writer // progress
	experiments []lab.Experiment
	reports     []benchReport // of each experiment

	schedule lab.Jobs
	begin    time.Time
	atFirst  time.Duration // how long all would take, at the beginning
	running  int
	written  time.Time // the documents
	spoke    time.Time // off a terminal
	keep     func(i int, r lab.Result) error
}

// benchReport is an experiment with its outcome.
type benchReport struct {
	Name    string        `json:"experiment"`
	Group   lab.Group     `json:"group,omitempty"`
	Results []lab.Result  `json:"results"`
	Summary []lab.Summary `json:"summary"`
	Error   string        `json:"error,omitempty"` // it could not be completed
	cell    lab.Cell
	plan    lab.Plan
	taken   []lab.Result // what earlier runs have measured; they are in Results too
	ended   bool
}

// ready checks what can be checked before anything is measured, and takes over
// what has been measured before of each experiment.
func (b *bench) ready(taken func(i int) []lab.Result) error {
	for i, e := range b.experiments {
		if err := e.Check(); err != nil {
			return fmt.Errorf("%s: %w", e.Name, err)
		}
		r := benchReport{Name: e.Name, Group: e.Group, cell: e.Cell, plan: e.Plan, taken: taken(i)}
		r.Results = slices.Clone(r.taken)
		r.Summary = lab.Summarize(r.plan.Schemes, r.Results, r.plan.KeepDisturbed)
		b.reports = append(b.reports, r)
	}
	return nil
}

func (b *bench) run(ctx context.Context) error {
	for _, file := range []string{b.markdown, b.summary} {
		if _, err := between(file, ""); err != nil {
			return err
		}
	}
	journal, err := openJournal(b.resume, b.seed, b.mixed)
	if err != nil {
		return err
	}
	if err := b.ready(func(i int) []lab.Result { return journal.of(b.experiments[i]) }); err != nil {
		return errors.Join(err, journal.close(false))
	}
	if n := b.taken(); n > 0 {
		fmt.Fprintf(b.screen, "%d transfers are taken from %s\n", n, b.resume)
	}
	if n := journal.others(); n > 0 {
		fmt.Fprintf(b.screen, "%d transfers in %s are of other versions and are not taken (--any-version takes them)\n", n, b.resume)
	}
	b.keep = func(i int, r lab.Result) error { return journal.add(b.experiments[i], r) }
	missing, failed := b.measure(ctx, b.end)
	return errors.Join(failed, b.finish(), journal.close(missing == nil), missing)
}

// measure makes what earlier runs have not, after ready, and tells of each
// experiment when it has ended. missing says why not all transfers count;
// failed, what could not be written.
func (b *bench) measure(ctx context.Context, end func(i int) error) (missing, failed error) {
	b.begin, b.schedule = time.Now(), lab.NewJobs(b.jobs)
	b.spoke = b.begin
	b.atFirst = b.schedule.Estimate(b.experiments, b.left)
	_, planned := b.counted()
	fmt.Fprintf(b.screen, "%d experiments, %d transfers, about %v\n", len(b.experiments), planned, b.atFirst.Round(time.Second))
	lab.RunAll(ctx, b.experiments, b.schedule, b.made, lab.Events{
		Began: func(int) { b.running++ },
		Result: func(i int, res lab.Result) {
			r := &b.reports[i]
			failed = errors.Join(failed, b.keep(i, res))
			res.Traffic = nil // may be large; who asked for it has kept it
			r.Results = append(r.Results, res)
			b.progress(fmt.Sprintf(": %s: %s: %.2f s", r.Name, res.Scheme, res.Seconds), false)
		},
		Ended: func(i int, err error, last bool) {
			b.running--
			failed = errors.Join(failed, b.pause(i, err))
			if !last {
				return
			}
			b.reports[i].ended = true
			failed = errors.Join(failed, end(i))
			if ctx.Err() == nil {
				b.progress(": "+b.reports[i].Name+" is done", true)
			}
		},
	})
	b.clear()
	missing = b.missing()
	if ctx.Err() != nil {
		missing = ctx.Err()
	}
	return missing, failed
}

// pause takes in that a round of an experiment has ended, and writes what there
// is so far.
func (b *bench) pause(i int, err error) error {
	r := &b.reports[i]
	r.Error = ""
	if err != nil {
		r.Error = err.Error()
	}
	r.Summary = lab.Summarize(r.plan.Schemes, r.Results, r.plan.KeepDisturbed)
	if time.Since(b.written) < writeEvery {
		return nil
	}
	return b.write()
}

// writeEvery is how often documents are written, at most, before the end.
const writeEvery = 10 * time.Second

// end prints what an experiment came to.
func (b *bench) end(i int) error {
	r := &b.reports[i]
	switch {
	case b.asJSON:
		return cli.PrintJSON(b.out, r)
	case r.Group != lab.Grid && r.Group != lab.Ride:
		b.clear()
		return r.table().print(b.out)
	}
	return nil
}

// finish prints what is to be said about all.
func (b *bench) finish() error {
	if !b.asJSON {
		for _, t := range []table{matrix(b.reports), rides(b.reports), verdict(b.reports)} {
			if len(t.rows) > 0 {
				if err := t.print(b.out); err != nil {
					return err
				}
			}
		}
		fmt.Fprintln(b.out, "\n"+b.stamp())
	}
	return b.write()
}

// write writes the documents.
func (b *bench) write() error {
	b.written = time.Now()
	for _, file := range []struct {
		name string
		text func() string
	}{{b.markdown, b.tables}, {b.summary, func() string { return b.overview().markdown() }}} {
		if file.name == "" {
			continue
		}
		if err := writeBetween(file.name, strings.TrimSpace(file.text())+"\n\n"+b.stamp()+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// made tells whether a transfer has been made in an earlier run, or is not to be
// made any more.
func (b *bench) made(i int, scheme string, rep int) bool {
	return b.limit > 0 && time.Since(b.begin)+b.experiments[i].Takes(scheme) > b.limit ||
		slices.ContainsFunc(b.reports[i].taken, func(r lab.Result) bool { return r.Scheme == scheme && r.Rep == rep && !r.Disturbed && r.Error == "" })
}

// left is the part of an experiment that is still to do.
func (b *bench) left(i int) float64 {
	r := &b.reports[i]
	if r.ended {
		return 0
	}
	done, total := r.counted()
	return 1 - float64(done)/float64(max(1, total))
}

// counted is how many transfers count, and how many are planned.
func (r benchReport) counted() (have, want int) {
	n := map[string]int{}
	for _, res := range r.Results {
		if res.Error == "" && (!res.Disturbed || r.plan.KeepDisturbed) {
			n[res.Scheme]++
		}
	}
	for _, s := range r.plan.Schemes {
		have += min(n[s], r.plan.RepsOf(s))
		want += r.plan.RepsOf(s)
	}
	return have, want
}

// counted is the same of all experiments.
func (b *bench) counted() (have, want int) {
	for _, r := range b.reports {
		n, all := r.counted()
		have, want = have+n, want+all
	}
	return have, want
}

// countedText is the same for people.
func (r benchReport) countedText() string {
	have, want := r.counted()
	return fmt.Sprintf("%d/%d", have, want)
}

// taken is how many transfers were made by earlier runs.
func (b *bench) taken() (n int) {
	for _, r := range b.reports {
		n += len(r.taken)
	}
	return n
}

// mostMissing is how many schemes are named that lack transfers, at most.
const mostMissing = 10

// missing is the error that not all transfers count.
func (b *bench) missing() error {
	var all []error
	for _, r := range b.reports {
		if r.Error != "" {
			all = append(all, fmt.Errorf("%s: %s", r.Name, r.Error))
		}
		for _, s := range r.Summary {
			if want := r.plan.RepsOf(s.Scheme); s.N < want {
				all = append(all, fmt.Errorf("%s: %s: %d of %d transfers count (%d failed%s)", r.Name, s.Scheme, s.N, want, s.Failed, prefixed(": ", s.Error)))
			}
		}
	}
	return fewer(all)
}

// fewer joins errors, but not too many.
func fewer(all []error) error {
	if n := len(all) - mostMissing; n > 0 {
		all = append(all[:mostMissing], fmt.Errorf("and %d more", n))
	}
	return errors.Join(all...)
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

// speakEvery is how often progress is told off a terminal, at least.
const speakEvery = time.Minute

// slowStart is how long a run must have gone on for its pace to be known.
const slowStart = 2 * time.Minute

// progress says where the bench is and how long the rest will take, judging by
// how long all before took. Off a terminal it speaks of what matters, and now and
// then.
func (b *bench) progress(last string, matters bool) {
	left := b.schedule.Estimate(b.experiments, b.left)
	if took := time.Since(b.begin); took > slowStart && b.atFirst > left {
		left = time.Duration(float64(left) * max(1, float64(took)/float64(b.atFirst-left)))
	}
	have, want := b.counted()
	text := fmt.Sprintf("%d/%d, %d running, about %v left%s", have, want, b.running, left.Round(time.Second), last)
	switch {
	case cli.IsTerminal(b.screen):
		cli.NewSteps(b.screen).Show(text)
	case matters || time.Since(b.spoke) > speakEvery:
		b.spoke = time.Now()
		fmt.Fprintln(b.screen, text)
	}
}

// clear makes room for other text.
func (b *bench) clear() { cli.NewSteps(b.screen).Clear() }

// stamp says what was measured where, and when.
func (b *bench) stamp() string {
	var u unix.Utsname
	_ = unix.Uname(&u)
	form := "full"
	if b.quick {
		form = "quick"
	}
	have, want := b.counted()
	form += fmt.Sprintf(" form, %d of %d planned transfers count", have, want)
	return fmt.Sprintf("mpbond %s, %s, seed %d, %s, Linux %s, %d processors, took %v.", cli.Version, form, b.seed,
		time.Now().UTC().Format(time.DateOnly), unix.ByteSliceToString(u.Release[:]), runtime.NumCPU(), time.Since(b.begin).Round(time.Second))
}

// tables are all of them, in Markdown.
func (b *bench) tables() string {
	all := []table{verdict(b.reports), matrix(b.reports), rides(b.reports)}
	for _, r := range b.reports {
		if r.Group != lab.Grid && r.Group != lab.Ride && len(r.Results) > 0 {
			all = append(all, r.table())
		}
	}
	var s strings.Builder
	for _, t := range all {
		if len(t.rows) > 0 {
			s.WriteString(t.markdown() + "\n")
		}
	}
	return s.String()
}

// printList prints what would be measured.
func (b *bench) printList() error {
	t := table{head: []string{"experiment", "schemes", "transfers", "time by itself"}}
	all := func(int) float64 { return 1 }
	var sum time.Duration
	for _, e := range b.experiments {
		n := 0
		for _, s := range e.Plan.Schemes {
			n += e.Plan.RepsOf(s)
		}
		sum += e.Expected
		t.rows = append(t.rows, []string{e.Name, strings.Join(e.Plan.Schemes, ", "), fmt.Sprint(n), e.Expected.Round(time.Second).String()})
	}
	if err := t.print(b.out); err != nil {
		return err
	}
	jobs := lab.NewJobs(b.jobs)
	_, err := fmt.Fprintf(b.out, "\n%d experiments, %v one after the other, about %v on this machine.\n", len(b.experiments), sum.Round(time.Minute),
		jobs.Estimate(b.experiments, all).Round(time.Second))
	return err
}
