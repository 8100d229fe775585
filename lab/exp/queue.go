// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"mpbond/base/fault"
	"mpbond/base/text"
	"mpbond/lab"
)

// Queue hands cells to workers of a version, and their results back. A cell is a task with a key.
// Package lab/queue implements it.
type Queue interface {
	// State returns the keys of the tasks that have no result yet and of those that have one, and how many
	// are being worked on.
	State(ctx context.Context, version string) (open, finished map[string]bool, running int, err error)
	// Submit adds a task, unless there is one with this key.
	Submit(ctx context.Context, version, key string, task []byte) error
	// Result returns the result of a task, or a fault of kind Limit if the task was given up.
	Result(ctx context.Context, key string) ([]byte, error)
	// Remove removes tasks and their results.
	Remove(ctx context.Context, version string, keys []string) error
}

// cellTask is a cell to measure. Its result is the record of the cell, compressed.
type cellTask struct {
	Row   string `json:"row"`
	Cell  string `json:"cell"`
	Seed  uint64 `json:"seed"`
	Quick bool   `json:"quick,omitempty"`
	Reps  int    `json:"reps,omitempty"`
}

// RowOfTask returns the ID of the row that a task of a queue is of, "" if it is none.
func RowOfTask(task []byte) string {
	var c cellTask
	if json.Unmarshal(task, &c) != nil {
		return ""
	}
	return c.Row
}

// newTask returns the task of a cell, and its key.
func (p *pool) newTask(i int) (key string, task []byte) {
	c, o := p.cells[i], p.Options
	// This cannot fail for these types.
	task, _ = json.Marshal(cellTask{Row: p.Rows[c.row].ID, Cell: c.name, Seed: o.Seed, Quick: o.Quick, Reps: o.Reps})
	return fmt.Sprintf("%s.%x", p.queueRuns[c.row], sha256.Sum256(task)), task
}

// queuePollInterval is how often a run asks the queue for results.
const queuePollInterval = time.Second

// measureByWorkers hands the cells that lack transfers to workers, and adds what they deliver to the
// records. Each pass submits what the queue lacks. So an interrupted run resumes, and a queue that has
// lost cells gets them again.
func (p *pool) measureByWorkers(ctx context.Context) error {
	p.begin = time.Now()
	for i := range p.cells {
		have, want := p.cells[i].cellProgress()
		p.cells[i].ended = have >= want
	}
	have, want := p.overallProgress()
	missing := p.missingCells()
	p.PrintLine(fmt.Sprintf("%d experiments, %d transfers for workers: mpbond-lab exp worker", len(missing), want-have))
	for len(missing) > 0 {
		open, finished, running, err := p.Queue.State(ctx, p.Version)
		if err != nil {
			return err
		}
		changed := false
		for _, i := range missing {
			switch key, task := p.newTask(i); {
			case finished[key]:
				changed, err = true, p.collectCell(ctx, i, key)
			case !open[key]:
				changed, err = true, p.Queue.Submit(ctx, p.Version, key, task)
			}
			if err != nil {
				return err
			}
		}
		missing = p.missingCells()
		if changed {
			continue
		}
		p.reportQueueProgress(running, "", false)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(queuePollInterval):
		}
	}
	keys := make([]string, len(p.cells))
	for i := range keys {
		keys[i], _ = p.newTask(i)
	}
	return p.Queue.Remove(ctx, p.Version, keys)
}

// missingCells returns the cells that have not ended, in the order in which to begin them: those with
// StartFirst, then the longest, so that the last ones end at about the same time.
func (p *pool) missingCells() (order []int) {
	for i, c := range p.cells {
		if !c.ended {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := p.experiments[a], p.experiments[b]
		if x.StartFirst != y.StartFirst {
			return map[bool]int{true: -1, false: 1}[x.StartFirst]
		}
		return cmp.Compare(y.Expected, x.Expected)
	})
	return order
}

// collectCell adds the record of a cell, which a worker has delivered, to that of its row; or why there is none.
func (p *pool) collectCell(ctx context.Context, i int, key string) error {
	c, name := &p.cells[i], p.experiments[i].Name
	j := p.journals[c.row]
	data, err := p.Queue.Result(ctx, key)
	if fault.Is(err, fault.Limit) {
		c.err, c.ended = err.Error(), true
		p.reportQueueProgress(-1, name+" is "+c.err, true)
		return j.AddIncomplete(c.name, c.err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	from, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return fault.New(fault.Integrity, fmt.Errorf("%s: the delivered record: %w", name, err), "")
	}
	var m lab.Machine
	err = readEntries(from, func(e entry) error {
		switch {
		case e.Run != nil:
			m = lab.Machine{Name: text.Short(e.Run.Machine, maxMachineName), Kernel: text.Short(e.Run.Kernel,
				maxMachineName),
				Processors: e.Run.Processors}
		case e.Result != nil:
			r := *e.Result
			r.Machine = &m
			err := j.Add(c.name, r)
			r.Traffic = nil // may be large; the record has it
			c.results = append(c.results, r)
			return err
		case e.Error != "":
			c.err = text.Short(e.Error, maxCellError)
			return j.AddIncomplete(c.name, c.err)
		}
		return nil
	})
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", name, err), j.AddAnew(c.name))
	}
	c.ended = true
	p.reportQueueProgress(-1, name+" is done by "+m.Name, true)
	return nil
}

// Limits of what is taken over from workers.
const (
	maxMachineName = 64
	maxCellError   = 4096
)

// reportQueueProgress reports the state of the run, with the number of cells that run if it is not
// negative, and the remaining time, estimated by the pace so far.
func (p *pool) reportQueueProgress(running int, last string, matters bool) {
	have, want := p.overallProgress()
	line := fmt.Sprintf("%d/%d", have, want)
	if running >= 0 {
		line += fmt.Sprintf(", %d cells running", running)
	}
	var done, left time.Duration // if cells ran one after the other
	for i, c := range p.cells {
		switch {
		case !c.ended:
			left += p.experiments[i].Expected
		case len(c.kept) == 0:
			done += p.experiments[i].Expected
		}
	}
	if took := time.Since(p.begin); took > minPaceTime && done > 0 {
		left = time.Duration(float64(left) * float64(took) / float64(done))
		line += fmt.Sprintf(", about %v left", left.Round(time.Second))
	}
	if last != "" {
		line += ": " + last
	}
	p.Progress(line, matters)
}

// unknownCodeError is the error of a version that may stand for different code on different machines.
func unknownCodeError(version string) error {
	return fault.New(fault.Usage, fmt.Errorf("a queue needs the same code on all machines, and version %.64q does not "+
		"identify it", version), "commit all changes and build again: make build")
}
