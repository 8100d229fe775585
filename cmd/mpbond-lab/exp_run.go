//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"mpbond/internal/cli"
	"mpbond/lab"
	"mpbond/lab/exp"
)

// expRunner runs rows, the cells of all in one pool.
type expRunner struct {
	expOptions
	rows        []exp.Row
	out, screen io.Writer

	cells    []cellOf // of each experiment
	bench    bench
	journals []*exp.Journal // of each row
}

// cellOf is a cell of a row, by its index.
type cellOf struct {
	row  int
	name string
}

// run measures what earlier runs have not, and shows what came out of each row.
func (r *expRunner) run(ctx context.Context) error {
	if err := r.prepare(); err != nil {
		return err
	}
	b := &r.bench
	b.keep = func(i int, res lab.Result) error { return r.journals[r.cells[i].row].Add(r.cells[i].name, res) }
	missing, failed := b.measure(ctx, func(i int) error {
		if text := b.reports[i].Error; text != "" && ctx.Err() == nil {
			return r.journals[r.cells[i].row].Incomplete(r.cells[i].name, text)
		}
		return nil
	})
	for _, j := range r.journals {
		failed = errors.Join(failed, j.Close())
	}
	if ctx.Err() != nil {
		if named(cli.Version) {
			fmt.Fprintln(r.screen, "the same command goes on from here; mpbond-lab exp report shows what there is")
		}
		return errors.Join(failed, ctx.Err())
	}
	fmt.Fprintln(r.screen, b.tally())
	for _, row := range r.rows {
		rec, err := exp.Load(r.dir, row.ID, false)
		if err != nil {
			return errors.Join(failed, err)
		}
		e := exp.Evaluate(row, rec)
		if r.Quick && e.Counted == 0 && e.Planned > 0 {
			fmt.Fprintf(r.screen, "warning: %s: no transfer counts, for lack of time or because all were disturbed\n", row.ID)
		}
		if r.asJSON {
			failed = errors.Join(failed, cli.PrintJSON(r.out, e))
		} else {
			failed = errors.Join(failed, printEvaluation(r.out, e))
		}
	}
	if r.Quick {
		missing = b.broken()
	}
	return errors.Join(failed, missing)
}

// prepare makes the experiments of all rows, takes over what earlier runs have,
// and opens the records. When nothing is missing, all is made anew.
func (r *expRunner) prepare() error {
	b := &r.bench
	b.benchOptions = benchOptions{quick: r.Quick, seed: r.Seed, jobs: r.jobs, limit: r.limit}
	b.out, b.screen = r.out, r.screen
	var kept []exp.Record
	var planned []int
	for i, row := range r.rows {
		all, err := row.Experiments(r.Options)
		if err != nil {
			return err
		}
		rec, err := exp.Load(r.dir, row.ID, true)
		if err != nil {
			return err
		}
		kept, planned = append(kept, rec), append(planned, 0)
		for _, e := range all {
			r.cells = append(r.cells, cellOf{i, e.Name})
			planned[i] += exp.Transfers(e)
			e.Name = row.ID + ": " + e.Name
			b.experiments = append(b.experiments, e)
		}
	}
	anew := make([]bool, len(r.rows))
	for i, rec := range kept {
		anew[i] = !named(cli.Version) || !rec.Fits(r.stamp(0))
	}
	taken := func(i int) []lab.Result {
		if c := r.cells[i]; !anew[c.row] {
			return withoutFailed(kept[c.row].Results[c.name])
		}
		return nil
	}
	if err := b.ready(taken); err != nil {
		return err
	}
	if n := b.taken(); n > 0 && b.missing() == nil {
		for i := range anew {
			anew[i] = true
		}
		b.reports = nil
		if err := b.ready(taken); err != nil {
			return err
		}
	} else if n > 0 {
		fmt.Fprintf(r.screen, "%d transfers are taken from %s\n", n, r.dir)
	}
	for i, row := range r.rows {
		j, err := exp.Append(r.dir, row.ID, r.stamp(planned[i]), anew[i])
		if err != nil {
			return err
		}
		r.journals = append(r.journals, j)
	}
	return nil
}

func withoutFailed(results []lab.Result) (some []lab.Result) {
	for _, r := range results {
		if r.Error == "" {
			some = append(some, r)
		}
	}
	return some
}

// stamp says of what this run is.
func (r *expRunner) stamp(planned int) exp.Stamp {
	var u unix.Utsname
	_ = unix.Uname(&u)
	return exp.Stamp{Version: cli.Version, Kernel: unix.ByteSliceToString(u.Release[:]), Date: time.Now().UTC().Format(time.DateOnly),
		Processors: runtime.NumCPU(), Seed: r.Seed, Quick: r.Quick, Reps: r.Reps, Traces: r.Traces, Planned: planned}
}

// tally counts the transfers of a run.
func (b *bench) tally() string {
	disturbed, failed := 0, 0
	for _, r := range b.reports {
		for _, res := range r.Results {
			switch {
			case res.Error != "":
				failed++
			case res.Disturbed:
				disturbed++
			}
		}
	}
	have, want := b.counted()
	return fmt.Sprintf("%d of %d planned transfers count; %d tries were disturbed, %d failed; it took %v", have, want, disturbed, failed, time.Since(b.begin).Round(time.Second))
}

// brokenAfter is how many failed tries show that a scheme cannot transfer. One
// may be an accident, of a machine that does other things as well.
const brokenAfter = 2

// broken is the error that schemes cannot transfer: all their tries in a cell
// have failed, though the machine kept up. That some were disturbed, or that
// there was no time for all, does not matter.
func (b *bench) broken() error {
	var all []error
	for _, r := range b.reports {
		for _, s := range r.Summary {
			failed := 0
			for _, res := range r.Results {
				if res.Scheme == s.Scheme && res.Error != "" && !res.Disturbed {
					failed++
				}
			}
			if failed >= brokenAfter && s.N+s.Discarded == 0 {
				all = append(all, fmt.Errorf("%s: %s: failed %d times: %s", r.Name, s.Scheme, s.Failed, s.Error))
			}
		}
		if r.Error != "" && len(r.Results) == 0 {
			all = append(all, fmt.Errorf("%s: %s", r.Name, r.Error))
		}
	}
	return fewer(all)
}
