// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"mpbond/base/fault"
	"mpbond/lab"
)

// Run is a run of rows. The cells of all rows are in one pool; several run at once, as many as the
// machine allows. Each transfer is added to its row's record as it ends. A run makes the transfers
// that the records lack. The functions are called one at a time.
type Run struct {
	Rows    []Row
	Options Options
	Dir     string        // of records
	Jobs    int           // cells at once; 0: as many as this machine allows
	Limit   time.Duration // no transfer begins that would end later; 0: no limit
	Version string        // of the program
	// Queue hands cells to workers on other machines, which measure them instead of this one. It needs
	// a version that identifies the code; Jobs and Limit have no effect.
	Queue Queue
	// PrintLine gets lines for people. Progress gets the state of the run, and whether it is
	// important.
	PrintLine func(text string)
	Progress  func(text string, matters bool)

	cell        string                  // the only cell, of a worker
	machine     string                  // its machine's name
	checkScheme func(name string) error // replaces lab.CheckScheme in tests
}

// pool is the state of a run.
type pool struct {
	Run
	cells           []cellRun
	experiments     []lab.Experiment // by cell
	journals        []*Journal       // by row
	queueRuns       []string         // by row: begins the keys of its cells in the queue
	recounting      []Row            // rows that evaluate the transfers of others
	schedule        lab.Jobs
	begin           time.Time
	initialEstimate time.Duration // time of everything, at the beginning
	running         int
}

// cellRun is a cell of a row with its results.
type cellRun struct {
	row           int
	name          string
	spec          lab.RunSpec
	kept, results []lab.Result // from earlier runs; all results including these
	anew          bool         // transfers from earlier runs do not count
	err           string       // why its last round was not completed
	ended         bool
}

// Measure makes the missing transfers and evaluates the records. Its error says why not all
// transfers count; in the short form, which schemes cannot transfer at all.
func (r Run) Measure(ctx context.Context) (all []Evaluation, err error) {
	if r.Queue != nil && !isResumableVersion(r.Version) {
		return nil, unknownCodeError(r.Version)
	}
	p, err := r.newExperimentPool()
	if err != nil {
		return nil, err
	}
	measure := p.runMissing
	if r.Queue != nil {
		measure = p.measureByWorkers
	}
	failed := errors.Join(measure(ctx), p.closeJournals())
	if ctx.Err() != nil {
		if r.Queue != nil {
			r.PrintLine("workers go on with the cells in the queue; mpbond-lab exp queue drop removes them")
		}
		if isResumableVersion(r.Version) {
			r.PrintLine("run the same command to resume; mpbond-lab exp report shows the results so far")
		}
		return nil, errors.Join(failed, ctx.Err())
	}
	r.PrintLine(p.summaryText())
	for _, row := range slices.Concat(p.Rows, p.recounting) {
		rec, err := row.LoadRowRecord(r.Dir)
		if err != nil {
			return all, errors.Join(failed, err)
		}
		if row.recounts != nil && len(rec.Results) == 0 {
			failed = errors.Join(failed, fault.New(fault.NotFound, fmt.Errorf("%s makes no transfers of its own",
				row.ID),
				fmt.Sprintf("run %s before, or with it", strings.Join(row.recounts, " "))))
			continue
		}
		e := Evaluate(row, rec)
		if r.Options.Quick && e.Counted == 0 && e.Planned > 0 {
			r.PrintLine("warning: " + row.ID + ": no transfer counts, for lack of time or because all were disturbed")
		}
		all = append(all, e)
	}
	if r.Options.Quick {
		return all, errors.Join(failed, p.brokenSchemes())
	}
	return all, errors.Join(failed, p.missingTransfers())
}

// closeJournals closes the records.
func (p *pool) closeJournals() (err error) {
	for _, j := range p.journals {
		err = errors.Join(err, j.Close())
	}
	return err
}

// isResumableVersion reports whether a version identifies one state of the code, so that a later
// run of it can resume its records.
func isResumableVersion(version string) bool {
	return version != "dev" && !strings.HasSuffix(version, "-dirty")
}

// newExperimentPool makes the experiments of all rows, takes over results of earlier runs, and
// opens the records. If nothing is missing, everything is measured again.
func (r Run) newExperimentPool() (*pool, error) {
	p := &pool{Run: r, schedule: lab.NewJobs(r.Jobs)}
	p.Rows = nil
	var kept []Record
	var omitted []string // schemes that cannot run here
	for _, row := range r.Rows {
		if row.recounts != nil {
			p.recounting = append(p.recounting, row)
			continue
		}
		all, err := row.Experiments(r.Options)
		if err != nil {
			return nil, err
		}
		if len(all) == 0 {
			continue
		}
		rec, err := LoadRecord(r.Dir, row.ID, true)
		if err != nil {
			return nil, err
		}
		fits := isResumableVersion(r.Version) && rec.CanResume(r.newRunStamp())
		for _, e := range all {
			if r.cell != "" && r.cell != e.Name {
				continue
			}
			if r.Queue == nil {
				e.Spec.Schemes, omitted = r.omitRefused(e.Spec.Schemes, omitted)
			}
			c := cellRun{row: len(p.Rows), name: e.Name, spec: e.Spec}
			if fits {
				c.takeOver(rec.Results[e.Name], r.Queue == nil)
			}
			e.Name = row.ID + ": " + e.Name
			if r.Queue == nil {
				if err := e.Check(); err != nil {
					return nil, fmt.Errorf("%s: %w", e.Name, err)
				}
			}
			p.cells, p.experiments = append(p.cells, c), append(p.experiments, e)
		}
		p.Rows, kept = append(p.Rows, row), append(kept, rec)
	}
	if len(p.cells) == 0 && len(p.recounting) > 0 {
		return p, nil
	}
	if len(p.cells) == 0 {
		return nil, fault.New(fault.Usage, fmt.Errorf("no cell has %q in its name", r.Options.Only),
			"`mpbond-lab exp list ROW` lists the cells of a row")
	}
	return p, p.openJournals(kept)
}

// omitRefused returns the schemes that can run here. It warns of each other one once: omitted are those
// of which it has warned.
func (r Run) omitRefused(schemes, omitted []string) (some, nowOmitted []string) {
	some = slices.DeleteFunc(slices.Clone(schemes), func(scheme string) bool {
		err := r.whyRefused(scheme)
		if err != nil && !slices.Contains(omitted, scheme) {
			omitted = append(omitted, scheme)
			r.PrintLine(fmt.Sprintf("warning: %s is omitted: %v", scheme, err))
		}
		return err != nil
	})
	return some, omitted
}

// takeOver keeps the transfers of earlier runs. Ratios within a cell must come from one machine: so a
// cell that lacks transfers is measured anew if another machine made some of them, or makes the rest.
func (c *cellRun) takeOver(results []lab.Result, here bool) {
	c.kept = slices.DeleteFunc(slices.Clone(results), func(r lab.Result) bool { return r.Error != "" })
	c.results = slices.Clone(c.kept)
	have, want := c.cellProgress()
	if have < want && len(results) > 0 &&
		(!here || slices.ContainsFunc(results, func(r lab.Result) bool { return r.Machine != nil })) {
		c.kept, c.results, c.anew = nil, nil, true
	}
}

// whyRefused reports why a scheme cannot run here, or nil.
func (r Run) whyRefused(scheme string) error {
	if r.checkScheme != nil {
		return r.checkScheme(scheme)
	}
	return lab.CheckScheme(scheme)
}

// openJournals opens the records, new ones where nothing is taken over.
func (p *pool) openJournals(kept []Record) error {
	taken := 0
	for _, c := range p.cells {
		taken += len(c.kept)
	}
	whole := taken > 0 && p.missingTransfers() == nil
	if whole {
		for i := range p.cells {
			p.cells[i].kept, p.cells[i].results = nil, nil
		}
	} else if taken > 0 {
		p.PrintLine(fmt.Sprintf("%d transfers are taken from %s", taken, p.Dir))
	}
	for i, row := range p.Rows {
		s := p.newRunStamp()
		s.Cells = map[string]int{}
		for _, c := range p.cells {
			if c.row == i {
				_, s.Cells[c.name] = c.cellProgress()
				s.Planned += s.Cells[c.name]
			}
		}
		anew := whole || !isResumableVersion(p.Version) || !kept[i].CanResume(s)
		if !anew {
			s.QueueRun = kept[i].QueueRun
		}
		if p.Queue != nil && s.QueueRun == "" {
			s.QueueRun = rand.Text()
		}
		j, err := OpenJournal(p.Dir, row.ID, s, anew)
		if err != nil {
			return err
		}
		p.journals, p.queueRuns = append(p.journals, j), append(p.queueRuns, s.QueueRun)
	}
	for _, c := range p.cells {
		if c.anew {
			if err := p.journals[c.row].AddAnew(c.name); err != nil {
				return err
			}
		}
	}
	return nil
}

// newRunStamp returns the stamp of this run.
func (r Run) newRunStamp() Stamp {
	m, o := lab.ThisMachine(), r.Options
	return Stamp{Version: r.Version, Kernel: m.Kernel, Machine: r.machine,
		Date:       time.Now().UTC().Format(time.DateOnly),
		Processors: m.Processors, Seed: o.Seed, Quick: o.Quick, Reps: o.Reps, Traces: o.Traces, Drives: o.Drives,
		Only: o.Only}
}

// runMissing makes the missing transfers. Its error is that of writing records.
func (p *pool) runMissing(ctx context.Context) (failed error) {
	p.begin = time.Now()
	p.initialEstimate = p.schedule.Estimate(p.experiments, p.shareStillToDo)
	_, planned := p.overallProgress()
	p.PrintLine(fmt.Sprintf("%d experiments, %d transfers, about %v", len(p.cells), planned,
		p.initialEstimate.Round(time.Second)))
	lab.RunAll(ctx, p.experiments, p.schedule, p.shouldSkipTransfer, lab.Events{
		RoundBegan: func(int) { p.running++ },
		Result: func(i int, res lab.Result) {
			c := &p.cells[i]
			failed = errors.Join(failed, p.journals[c.row].Add(c.name, res))
			res.Traffic = nil // may be large; the record has it
			c.results = append(c.results, res)
			p.reportRunProgress(fmt.Sprintf("%s: %s: %.2f s", p.experiments[i].Name, res.Scheme, res.Seconds), false)
		},
		RoundEnded: func(i int, err error, last bool) {
			c := &p.cells[i]
			p.running--
			if c.err = ""; err != nil {
				c.err = err.Error()
			}
			if c.ended = last; !last || ctx.Err() != nil {
				return
			}
			if c.err != "" {
				failed = errors.Join(failed, p.journals[c.row].AddIncomplete(c.name, c.err))
			}
			p.reportRunProgress(p.experiments[i].Name+" is done", true)
		},
	})
	return failed
}

// shouldSkipTransfer reports whether an earlier run made a transfer, or whether it would end too
// late.
func (p *pool) shouldSkipTransfer(i int, scheme string, rep int) bool {
	return p.Limit > 0 && time.Since(p.begin)+p.experiments[i].TransferTime(scheme) > p.Limit ||
		slices.ContainsFunc(p.cells[i].kept, func(r lab.Result) bool {
			return r.Scheme == scheme && r.Rep == rep && IsCounted(r)
		})
}

// shareStillToDo returns the part of an experiment that is still to do.
func (p *pool) shareStillToDo(i int) float64 {
	if p.cells[i].ended {
		return 0
	}
	done, total := p.cells[i].cellProgress()
	return 1 - float64(done)/float64(max(1, total))
}

// cellProgress returns how many transfers count, and how many are planned.
func (c cellRun) cellProgress() (have, want int) {
	for _, s := range SummarizeSchemes(c.spec.Schemes, c.results) {
		have += min(s.N, c.spec.RepsOf(s.Scheme))
		want += c.spec.RepsOf(s.Scheme)
	}
	return have, want
}

// overallProgress returns the same for all cells.
func (p *pool) overallProgress() (have, want int) {
	for _, c := range p.cells {
		n, all := c.cellProgress()
		have, want = have+n, want+all
	}
	return have, want
}

// minPaceTime is how long a run must have lasted for its pace to be known.
const minPaceTime = 2 * time.Minute

// reportRunProgress reports the state of the run and the remaining time, estimated by its pace so
// far.
func (p *pool) reportRunProgress(last string, matters bool) {
	left := p.schedule.Estimate(p.experiments, p.shareStillToDo)
	if took := time.Since(p.begin); took > minPaceTime && p.initialEstimate > left {
		left = time.Duration(float64(left) * max(1, float64(took)/float64(p.initialEstimate-left)))
	}
	have, want := p.overallProgress()
	p.Progress(fmt.Sprintf("%d/%d, %d running, about %v left: %s", have, want, p.running, left.Round(time.Second),
		last), matters)
}

// summaryText summarises the transfers of a run.
func (p *pool) summaryText() string {
	disturbed, failed := 0, 0
	for _, c := range p.cells {
		for _, s := range SummarizeSchemes(c.spec.Schemes, c.results) {
			disturbed, failed = disturbed+s.Discarded, failed+s.Failed
		}
	}
	have, want := p.overallProgress()
	return fmt.Sprintf("%d of %d planned transfers count; %d tries were disturbed, %d failed; duration %v", have, want,
		disturbed, failed, time.Since(p.begin).Round(time.Second))
}

// missingTransfers returns an error if not all transfers count.
func (p *pool) missingTransfers() error {
	var all []error
	for i, c := range p.cells {
		name := p.experiments[i].Name
		if c.err != "" {
			all = append(all, fmt.Errorf("%s: %s", name, c.err))
		}
		for _, s := range SummarizeSchemes(c.spec.Schemes, c.results) {
			if want := c.spec.RepsOf(s.Scheme); s.N < want {
				all = append(all, fmt.Errorf("%s: %s: %d of %d transfers count (%s)", name, s.Scheme, s.N, want,
					s.schemeFailureText()))
			}
		}
	}
	return joinFirstErrors(all)
}

// minBrokenTries is how many failed tries show that a scheme cannot transfer. A single one may be
// an accident on a busy machine.
const minBrokenTries = 2

// brokenSchemes returns an error for schemes that cannot transfer: all tries in a cell failed
// although the machine kept up. Disturbed or missing transfers do not matter.
func (p *pool) brokenSchemes() error {
	var all []error
	for i, c := range p.cells {
		for _, s := range SummarizeSchemes(c.spec.Schemes, c.results) {
			failed := 0
			for _, r := range c.results {
				if r.Scheme == s.Scheme && r.Error != "" && !r.Disturbed {
					failed++
				}
			}
			if failed >= minBrokenTries && s.N+s.Discarded == 0 {
				all = append(all, fmt.Errorf("%s: %s: %s", p.experiments[i].Name, s.Scheme, s.schemeFailureText()))
			}
		}
		if c.err != "" && len(c.results) == 0 {
			all = append(all, fmt.Errorf("%s: %s", p.experiments[i].Name, c.err))
		}
	}
	return joinFirstErrors(all)
}

// schemeFailureText returns how many transfers failed, and the last error.
func (s Summary) schemeFailureText() string {
	if s.Error == "" {
		return fmt.Sprintf("%d failed", s.Failed)
	}
	return fmt.Sprintf("%d failed: %s", s.Failed, s.Error)
}

// maxNamedErrors is the largest number of listed errors.
const maxNamedErrors = 10

// joinFirstErrors joins errors, up to maxNamedErrors of them.
func joinFirstErrors(all []error) error {
	if n := len(all) - maxNamedErrors; n > 0 {
		all = append(all[:maxNamedErrors], fmt.Errorf("and %d more", n))
	}
	return errors.Join(all...)
}

// RunsProduct reports whether the chosen cells run the program mpbond. Others are computed in
// virtual time, or compare transports alone.
func (r Run) RunsProduct() bool {
	for _, row := range r.Rows {
		if row.IsNetwork {
			return true
		}
		for _, c := range row.withCellsForSeed(r.Options.Seed).Cells {
			real := c.Model == nil && !c.VirtualTime && c.Flows == nil && strings.Contains(c.Name, r.Options.Only)
			if real && (c.Dual != nil || slices.ContainsFunc(c.Schemes, lab.RunsProduct)) {
				return true
			}
		}
	}
	return false
}
