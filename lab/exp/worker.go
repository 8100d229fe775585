// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"mpbond/base/fault"
	"mpbond/lab"
)

// Task is a task of a queue that this worker has.
type Task interface {
	Data() []byte
	// Deliver stores the result and ends the task. It reports whether the result counts: not if another
	// worker has delivered one. After an error the worker still has the task.
	Deliver(ctx context.Context, result []byte) (counted bool, err error)
	// Return gives the task back: another worker gets it at once.
	Return()
}

// Worker measures cells of a queue, one after the other, each as a run on this machine would. So ratios
// within a cell come from one machine. The functions are called one at a time.
type Worker struct {
	Take      func(ctx context.Context) (Task, error) // waits for a task
	Rows      []Row                                   // of this program
	Version   string                                  // of this program
	Machine   string                                  // name of this machine, for the records
	Idle      time.Duration                           // Work ends when there was no task for so long; 0: never
	PrintLine func(text string)
	Progress  func(text string)

	isAccurate bool // this machine is known to be
	// These replace those of package lab in tests.
	checkScheme   func(name string) error
	checkAccuracy func(ctx context.Context) error
}

// Work measures cells until ctx ends, or as Idle says. It gives back a cell that it cannot complete. An
// error says why this machine cannot measure a cell.
func (w *Worker) Work(ctx context.Context) error {
	if !isResumableVersion(w.Version) {
		return unknownCodeError(w.Version)
	}
	for {
		t, err := w.takeTask(ctx)
		switch {
		case err == nil:
			err = w.measureTask(ctx, t)
		case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
			w.PrintLine(fmt.Sprintf("no cell for %v", w.Idle))
			return nil
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
	}
}

// takeTask waits for a task, at most for Idle.
func (w *Worker) takeTask(ctx context.Context) (Task, error) {
	if w.Idle > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.Idle)
		defer cancel()
	}
	return w.Take(ctx)
}

// measureTask measures a cell and delivers its record. After an error it has given the cell back.
func (w *Worker) measureTask(ctx context.Context, t Task) error {
	r, e, err := w.newCellRun(t.Data())
	if err != nil {
		t.Return()
		return err
	}
	w.PrintLine(e.Name)
	begin := time.Now()
	counted, err := w.measureCell(ctx, t, r, e)
	if err != nil {
		t.Return()
		w.PrintLine(e.Name + " goes back to the queue")
		return fmt.Errorf("%s: %w", e.Name, err)
	}
	line := fmt.Sprintf("%s is done: %v", e.Name, time.Since(begin).Round(time.Second))
	if !counted {
		line += "; another worker was faster, whose results count"
	}
	w.PrintLine(line)
	return nil
}

// newCellRun returns the run of a cell, and its experiment.
func (w *Worker) newCellRun(data []byte) (r Run, e lab.Experiment, err error) {
	var c cellTask
	if err := json.Unmarshal(data, &c); err != nil {
		return r, e, fault.New(fault.Integrity, fmt.Errorf("a task of the queue: %w", err), "")
	}
	r = Run{Options: Options{Seed: c.Seed, Quick: c.Quick, Reps: c.Reps, Only: c.Cell}, cell: c.Cell, Jobs: 1,
		Version: w.Version, machine: w.Machine, checkScheme: w.checkScheme, PrintLine: func(string) {},
		Progress: func(text string, _ bool) { w.Progress(text) }}
	if i := slices.IndexFunc(w.Rows, func(row Row) bool { return row.ID == c.Row }); i >= 0 {
		r.Rows = w.Rows[i : i+1]
		all, err := r.Rows[0].Experiments(r.Options)
		if err != nil {
			return r, e, err
		}
		if i := slices.IndexFunc(all, func(e lab.Experiment) bool { return e.Name == c.Cell }); i >= 0 {
			e = all[i]
			e.Name = c.Row + ": " + c.Cell
			return r, e, nil
		}
	}
	return r, e, fault.New(fault.Integrity, fmt.Errorf("this program has no cell %.200q of row %.20q", c.Cell, c.Row),
		"install the program that submitted the run: it has the same version, but other code")
}

// measureCell measures a cell when nothing else on this machine disturbs it, and delivers its record.
func (w *Worker) measureCell(ctx context.Context, t Task, r Run, e lab.Experiment) (counted bool, err error) {
	unlock, err := lab.LockMachine(ctx, !e.IsVirtual())
	if err != nil {
		return false, err
	}
	defer unlock()
	if err := w.checkMachine(ctx, r, e); err != nil {
		return false, err
	}
	record, err := r.recordCell(ctx)
	if err != nil {
		return false, err
	}
	return t.Deliver(ctx, record)
}

// checkMachine returns an error if this machine cannot measure a cell with all its schemes.
func (w *Worker) checkMachine(ctx context.Context, r Run, e lab.Experiment) error {
	for _, s := range e.Spec.Schemes {
		if err := r.whyRefused(s); err != nil {
			return fault.New(fault.Unsupported, fmt.Errorf("this machine cannot run the scheme %s: %w", s, err),
				"use another machine, or run the row without a queue: then the scheme is omitted")
		}
	}
	if err := e.Check(); err != nil {
		return err
	}
	if r.RunsProduct() {
		if err := lab.CheckProduct(ctx, w.Version); err != nil {
			return err
		}
	}
	if e.IsVirtual() || w.isAccurate {
		return nil
	}
	w.PrintLine("calibrating this machine")
	check := lab.CheckAccuracy
	if w.checkAccuracy != nil {
		check = w.checkAccuracy
	}
	err := check(ctx)
	w.isAccurate = err == nil
	return err
}

// recordCell makes the transfers of the run's cell and returns their record, compressed.
func (r Run) recordCell(ctx context.Context) (record []byte, err error) {
	if r.Dir, err = os.MkdirTemp("", "mpbond-lab-cell-"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(r.Dir)
	p, err := r.newExperimentPool()
	if err != nil {
		return nil, err
	}
	failed := errors.Join(p.runMissing(ctx), p.closeJournals())
	if err := cmp.Or(ctx.Err(), failed); err != nil {
		return nil, err
	}
	f, err := os.Open(recordPath(r.Dir, r.Rows[0].ID))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var b bytes.Buffer
	out := gzip.NewWriter(&b)
	if _, err := io.Copy(out, f); err != nil {
		return nil, err
	}
	if err := out.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
