package exp

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"mpbond/base/fault"
	"mpbond/lab"
)

// Run is a run of rows, the cells of all in one pool: several at once, as many as the
// machine can bear. Each transfer is kept in its row's record as it ends, and a run makes
// what the records lack. Its functions are called one at a time.
type Run struct {
	Rows    []Row
	Options Options
	Dir     string        // of records
	Jobs    int           // cells at once; 0: as many as this machine can
	Limit   time.Duration // no transfer begins that would end later; 0: no limit
	Version string        // of the program
	// Say is told lines for people; Progress is told where the run is, and whether it
	// matters, or may be left out.
	Say      func(text string)
	Progress func(text string, matters bool)
}

// pool is what becomes of a run.
type pool struct {
	Run
	cells       []cellRun
	experiments []lab.Experiment // of each cell
	journals    []*Journal       // of each row
	schedule    lab.Jobs
	begin       time.Time
	atFirst     time.Duration // how long all would take, at the beginning
	running     int
}

// cellRun is a cell of a row, with what was measured.
type cellRun struct {
	row            int
	name           string
	plan           lab.Plan
	taken, results []lab.Result // taken from earlier runs; all, with these
	err            string       // why its last round was not completed
	ended          bool
}

// Measure makes the transfers that are missing, and evaluates the records. Its error says
// why not all transfers count; in the short form, which schemes cannot transfer at all.
func (r Run) Measure(ctx context.Context) (all []Evaluation, err error) {
	p, err := r.prepare()
	if err != nil {
		return nil, err
	}
	failed := p.measure(ctx)
	for _, j := range p.journals {
		failed = errors.Join(failed, j.Close())
	}
	if ctx.Err() != nil {
		if resumable(r.Version) {
			r.Say("the same command goes on from here; mpbond-lab exp report shows what there is")
		}
		return nil, errors.Join(failed, ctx.Err())
	}
	r.Say(p.tally())
	for _, row := range p.Rows {
		rec, err := Load(r.Dir, row.ID, false)
		if err != nil {
			return all, errors.Join(failed, err)
		}
		e := Evaluate(row, rec)
		if r.Options.Quick && e.Counted == 0 && e.Planned > 0 {
			r.Say("warning: " + row.ID + ": no transfer counts, for lack of time or because all were disturbed")
		}
		all = append(all, e)
	}
	if r.Options.Quick {
		return all, errors.Join(failed, p.broken())
	}
	return all, errors.Join(failed, p.missing())
}

// resumable tells whether a version is that of one state of the code, so that a later run
// of it can go on with its records.
func resumable(version string) bool { return version != "dev" && !strings.HasSuffix(version, "-dirty") }

// prepare makes the experiments of all rows, takes over what earlier runs have, and opens
// the records. When nothing is missing, all is made anew.
func (r Run) prepare() (*pool, error) {
	p := &pool{Run: r, schedule: lab.NewJobs(r.Jobs)}
	p.Rows = nil
	var kept []Record
	for _, row := range r.Rows {
		all, err := row.Experiments(r.Options)
		if err != nil {
			return nil, err
		}
		if len(all) == 0 {
			continue
		}
		rec, err := Load(r.Dir, row.ID, true)
		if err != nil {
			return nil, err
		}
		fits := resumable(r.Version) && rec.Fits(r.stamp())
		for _, e := range all {
			c := cellRun{row: len(p.Rows), name: e.Name, plan: e.Plan}
			if fits {
				c.taken = slices.DeleteFunc(slices.Clone(rec.Results[e.Name]), func(r lab.Result) bool { return r.Error != "" })
			}
			c.results = slices.Clone(c.taken)
			e.Name = row.ID + ": " + e.Name
			if err := e.Check(); err != nil {
				return nil, fmt.Errorf("%s: %w", e.Name, err)
			}
			p.cells, p.experiments = append(p.cells, c), append(p.experiments, e)
		}
		p.Rows, kept = append(p.Rows, row), append(kept, rec)
	}
	if len(p.cells) == 0 {
		return nil, fault.New(fault.Usage, fmt.Errorf("no cell has %q in its name", r.Options.Only), "`mpbond-lab exp list ROW` lists the cells of a row")
	}
	return p, p.open(kept)
}

// open opens the records, anew where nothing is taken over.
func (p *pool) open(kept []Record) error {
	taken := 0
	for _, c := range p.cells {
		taken += len(c.taken)
	}
	whole := taken > 0 && p.missing() == nil
	if whole {
		for i := range p.cells {
			p.cells[i].taken, p.cells[i].results = nil, nil
		}
	} else if taken > 0 {
		p.Say(fmt.Sprintf("%d transfers are taken from %s", taken, p.Dir))
	}
	for i, row := range p.Rows {
		s := p.stamp()
		s.Cells = map[string]int{}
		for _, c := range p.cells {
			if c.row == i {
				_, s.Cells[c.name] = c.counted()
				s.Planned += s.Cells[c.name]
			}
		}
		anew := whole || !resumable(p.Version) || !kept[i].Fits(s)
		j, err := Append(p.Dir, row.ID, s, anew)
		if err != nil {
			return err
		}
		p.journals = append(p.journals, j)
	}
	return nil
}

// stamp says of what this run is.
func (r Run) stamp() Stamp {
	var u unix.Utsname
	_ = unix.Uname(&u)
	o := r.Options
	return Stamp{Version: r.Version, Kernel: unix.ByteSliceToString(u.Release[:]), Date: time.Now().UTC().Format(time.DateOnly),
		Processors: runtime.NumCPU(), Seed: o.Seed, Quick: o.Quick, Reps: o.Reps, Traces: o.Traces, Drives: o.Drives, Only: o.Only}
}

// measure makes what earlier runs have not. Its error is of what could not be written.
func (p *pool) measure(ctx context.Context) (failed error) {
	p.begin = time.Now()
	p.atFirst = p.schedule.Estimate(p.experiments, p.left)
	_, planned := p.counted()
	p.Say(fmt.Sprintf("%d experiments, %d transfers, about %v", len(p.cells), planned, p.atFirst.Round(time.Second)))
	lab.RunAll(ctx, p.experiments, p.schedule, p.skips, lab.Events{
		Began: func(int) { p.running++ },
		Result: func(i int, res lab.Result) {
			c := &p.cells[i]
			failed = errors.Join(failed, p.journals[c.row].Add(c.name, res))
			res.Traffic = nil // may be large; the record has it
			c.results = append(c.results, res)
			p.progress(fmt.Sprintf("%s: %s: %.2f s", p.experiments[i].Name, res.Scheme, res.Seconds), false)
		},
		Ended: func(i int, err error, last bool) {
			c := &p.cells[i]
			p.running--
			if c.err = ""; err != nil {
				c.err = err.Error()
			}
			if c.ended = last; !last || ctx.Err() != nil {
				return
			}
			if c.err != "" {
				failed = errors.Join(failed, p.journals[c.row].Incomplete(c.name, c.err))
			}
			p.progress(p.experiments[i].Name+" is done", true)
		},
	})
	return failed
}

// skips tells whether a transfer was made by an earlier run, or is not to be made any
// more.
func (p *pool) skips(i int, scheme string, rep int) bool {
	return p.Limit > 0 && time.Since(p.begin)+p.experiments[i].Takes(scheme) > p.Limit ||
		slices.ContainsFunc(p.cells[i].taken, func(r lab.Result) bool { return r.Scheme == scheme && r.Rep == rep && Counts(r) })
}

// left is the part of an experiment that is still to do.
func (p *pool) left(i int) float64 {
	if p.cells[i].ended {
		return 0
	}
	done, total := p.cells[i].counted()
	return 1 - float64(done)/float64(max(1, total))
}

// counted is how many transfers count, and how many are planned.
func (c cellRun) counted() (have, want int) {
	for _, s := range Schemes(c.plan.Schemes, c.results) {
		have += min(s.N, c.plan.RepsOf(s.Scheme))
		want += c.plan.RepsOf(s.Scheme)
	}
	return have, want
}

// counted is the same of all cells.
func (p *pool) counted() (have, want int) {
	for _, c := range p.cells {
		n, all := c.counted()
		have, want = have+n, want+all
	}
	return have, want
}

// slowStart is how long a run must have gone on for its pace to be known.
const slowStart = 2 * time.Minute

// progress says where the run is and how long the rest will take, judging by how long all
// before took.
func (p *pool) progress(last string, matters bool) {
	left := p.schedule.Estimate(p.experiments, p.left)
	if took := time.Since(p.begin); took > slowStart && p.atFirst > left {
		left = time.Duration(float64(left) * max(1, float64(took)/float64(p.atFirst-left)))
	}
	have, want := p.counted()
	p.Progress(fmt.Sprintf("%d/%d, %d running, about %v left: %s", have, want, p.running, left.Round(time.Second), last), matters)
}

// tally counts the transfers of a run.
func (p *pool) tally() string {
	disturbed, failed := 0, 0
	for _, c := range p.cells {
		for _, s := range Schemes(c.plan.Schemes, c.results) {
			disturbed, failed = disturbed+s.Discarded, failed+s.Failed
		}
	}
	have, want := p.counted()
	return fmt.Sprintf("%d of %d planned transfers count; %d tries were disturbed, %d failed; it took %v", have, want, disturbed, failed, time.Since(p.begin).Round(time.Second))
}

// missing is the error that not all transfers count.
func (p *pool) missing() error {
	var all []error
	for i, c := range p.cells {
		name := p.experiments[i].Name
		if c.err != "" {
			all = append(all, fmt.Errorf("%s: %s", name, c.err))
		}
		for _, s := range Schemes(c.plan.Schemes, c.results) {
			if want := c.plan.RepsOf(s.Scheme); s.N < want {
				all = append(all, fmt.Errorf("%s: %s: %d of %d transfers count (%s)", name, s.Scheme, s.N, want, s.failures()))
			}
		}
	}
	return fewer(all)
}

// brokenAfter is how many failed tries show that a scheme cannot transfer. One may be an
// accident, of a machine that does other things as well.
const brokenAfter = 2

// broken is the error that schemes cannot transfer: all their tries in a cell have failed,
// though the machine kept up. That some were disturbed, or that there was no time for all,
// does not matter.
func (p *pool) broken() error {
	var all []error
	for i, c := range p.cells {
		for _, s := range Schemes(c.plan.Schemes, c.results) {
			failed := 0
			for _, r := range c.results {
				if r.Scheme == s.Scheme && r.Error != "" && !r.Disturbed {
					failed++
				}
			}
			if failed >= brokenAfter && s.N+s.Discarded == 0 {
				all = append(all, fmt.Errorf("%s: %s: %s", p.experiments[i].Name, s.Scheme, s.failures()))
			}
		}
		if c.err != "" && len(c.results) == 0 {
			all = append(all, fmt.Errorf("%s: %s", p.experiments[i].Name, c.err))
		}
	}
	return fewer(all)
}

// failures says how many transfers failed, and why the last one did.
func (s Summary) failures() string {
	if s.Error == "" {
		return fmt.Sprintf("%d failed", s.Failed)
	}
	return fmt.Sprintf("%d failed: %s", s.Failed, s.Error)
}

// mostNamed is how many errors are named at most.
const mostNamed = 10

// fewer joins errors, but not too many.
func fewer(all []error) error {
	if n := len(all) - mostNamed; n > 0 {
		all = append(all[:mostNamed], fmt.Errorf("and %d more", n))
	}
	return errors.Join(all...)
}

// RunsProduct reports whether the chosen cells run the program mpbond: others are computed in
// virtual time, or compare transports alone.
func (r Run) RunsProduct() bool {
	for _, row := range r.Rows {
		for _, c := range row.Cells {
			real := c.Model == nil && !c.Virtual && c.Flows == nil && strings.Contains(c.Name, r.Options.Only)
			if real && (c.Dual != nil || slices.ContainsFunc(c.Schemes, lab.RunsProduct)) {
				return true
			}
		}
	}
	return false
}
