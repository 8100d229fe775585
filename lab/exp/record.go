// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"mpbond/base/unit"
	"mpbond/lab"
)

// Stamp identifies the run, or runs, of a record's transfers.
type Stamp struct {
	Version    string `json:"commit"`
	Kernel     string `json:"kernel"`
	Date       string `json:"date"`
	Processors int    `json:"processors"`
	Seed       uint64 `json:"seed"`
	Quick      bool   `json:"quick"`
	Reps       int    `json:"reps,omitempty"`      // requested, of each cell
	Traces     string `json:"traces,omitempty"`    // directory of recordings
	Drives     string `json:"drives,omitempty"`    // directory of other drives
	Only       string `json:"only,omitempty"`      // cells whose names contain it
	Planned    int    `json:"planned"`             // transfers of the row
	Machine    string `json:"machine,omitempty"`   // name of a worker's machine, in what it delivers
	QueueRun   string `json:"queue_run,omitempty"` // begins the keys of the row's cells in a queue
	// Cells is the planned transfers by cell.
	Cells map[string]int `json:"cells,omitempty"`
}

// VersionText names the program's version, and says if it is old.
func (e Evaluation) VersionText() string {
	return "mpbond " + e.Version + figureAgeRemark(e.CoreCommits)
}

// Provenance describes the run for people.
func (e Evaluation) Provenance() string {
	return fmt.Sprintf("%s, seed %d, %s, %s; %s planned transfers count", e.VersionText(), e.Seed, e.machinesText(),
		e.Date, e.rowCountedText())
}

// machinesText describes the machines that made the transfers.
func (e Evaluation) machinesText() string {
	if len(e.Machines) == 0 {
		return fmt.Sprintf("Linux %s, %d processors", e.Kernel, e.Processors)
	}
	var all []string
	for _, m := range e.Machines {
		all = append(all, fmt.Sprintf("%s (Linux %s, %d processors)", m.Name, m.Kernel, m.Processors))
	}
	return strings.Join(all, ", ")
}

// kernelsText names the kernels of these machines.
func (e Evaluation) kernelsText() string {
	if len(e.Machines) == 0 {
		return e.Kernel
	}
	var all []string
	for _, m := range e.Machines {
		all = appendIfMissing(all, m.Kernel)
	}
	return strings.Join(all, ", ")
}

// machines returns the machines of the transfers, by name, if workers of a queue made some of them.
// Transfers of no worker have the machine of the stamp.
func (rec Record) machines() (all []lab.Machine) {
	byWorkers := false
	for _, results := range rec.Results {
		for _, r := range results {
			m := lab.Machine{Name: "the submitter", Kernel: rec.Kernel, Processors: rec.Processors}
			if r.Machine != nil {
				m, byWorkers = *r.Machine, true
			}
			if !slices.Contains(all, m) {
				all = append(all, m)
			}
		}
	}
	if !byWorkers {
		return nil
	}
	slices.SortFunc(all, func(a, b lab.Machine) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kernel, b.Kernel))
	})
	return all
}

// Record is a row's transfers, complete or not, of one run or of several, each of which resumed the
// one before. Its stamp is that of the last run.
type Record struct {
	Row string
	Stamp
	Results Data
	Errors  map[string]string // of cells that could not be completed
	dir     string            // that it was loaded from
}

// A record's file has a line for each run that begins, each transfer that ends, each cell that could
// not be completed, and each cell that is measured anew, so that its earlier transfers do not count.
// Whatever ends the program, only transfers in progress are lost.
type entry struct {
	Run    *Stamp      `json:"run,omitempty"`
	Cell   string      `json:"cell,omitempty"`
	Result *lab.Result `json:"result,omitempty"`
	Error  string      `json:"error,omitempty"`
	Anew   bool        `json:"anew,omitempty"`
}

// recordPath returns the file of a row's record.
func recordPath(dir, row string) string { return filepath.Join(dir, row+".jsonl") }

// LoadRecord reads a row's record from a directory. A missing file gives an empty record. light
// omits packets, which may be most of the data.
func LoadRecord(dir, row string, light bool) (r Record, err error) {
	r = Record{Row: row, Results: Data{}, Errors: map[string]string{}, dir: dir}
	f, err := os.Open(recordPath(dir, row))
	if errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	defer f.Close()
	if err := readEntries(f, func(e entry) error {
		if e.Result != nil && light {
			e.Result.Traffic = nil
		}
		r.addJournalEntry(e)
		return nil
	}); err != nil {
		return r, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return r, nil
}

// readEntries passes the lines of a record to f, until f returns an error.
func readEntries(from io.Reader, f func(entry) error) error {
	in := bufio.NewScanner(from)
	in.Buffer(nil, maxLineBytes)
	for in.Scan() {
		var e entry
		if json.Unmarshal(in.Bytes(), &e) != nil {
			continue // empty, or cut off when a run was killed
		}
		if e.Result != nil {
			e.Result.Scheme = lab.CanonicalScheme(e.Result.Scheme)
			readOldFields(in.Bytes(), e.Result)
		}
		if err := f(e); err != nil {
			return err
		}
	}
	return in.Err()
}

// LoadRowRecord reads the record that the row evaluates. Of a row that recounts others it consists
// of the transfers of these, under the names of recountedCell, and has the stamp of the last one.
func (r Row) LoadRowRecord(dir string) (Record, error) {
	if r.recounts == nil {
		return LoadRecord(dir, r.ID, false)
	}
	all := Record{Row: r.ID, Results: Data{}, Errors: map[string]string{}, dir: dir}
	planned, cells := 0, map[string]int{}
	for _, id := range r.recounts {
		rec, err := LoadRecord(dir, id, false)
		if err != nil {
			return all, err
		}
		for cell, results := range rec.Results {
			all.Results[recountedCell(id, cell)] = results
		}
		for cell, n := range rec.Cells {
			cells[recountedCell(id, cell)] = n
		}
		if rec.Version == "" {
			continue
		}
		if planned += rec.Planned; all.Version != "" && all.Version != rec.Version {
			all.Errors[id] = fmt.Sprintf("its transfers are of version %s, others of %s", rec.Version, all.Version)
		}
		all.Stamp = rec.Stamp
	}
	all.Planned, all.Cells = planned, cells
	return all, nil
}

// recountedCell returns the name of a row's cell in the record of a row that recounts it.
func recountedCell(row, cell string) string { return row + " " + cell }

// isRecountedFrom reports whether a cell of such a record is one of a row.
func isRecountedFrom(cell, row string) bool { return strings.HasPrefix(cell, recountedCell(row, "")) }

// readOldFields reads the fields of a result that earlier versions named differently.
func readOldFields(line []byte, r *lab.Result) {
	if !bytes.Contains(line, []byte(`"path_end_spread_seconds"`)) && !bytes.Contains(line, []byte(`"resent_bytes"`)) {
		return
	}
	var old struct {
		Result struct {
			EndSpread  float64               `json:"path_end_spread_seconds"`
			Reinjected map[string]unit.Bytes `json:"resent_bytes"`
		} `json:"result"`
	}
	if json.Unmarshal(line, &old) != nil {
		return // the line was read before: cannot fail
	}
	r.EndSpread = cmp.Or(r.EndSpread, old.Result.EndSpread)
	if r.Reinjected == nil {
		r.Reinjected = old.Result.Reinjected
	}
}

// maxLineBytes is the longest line of a file: minutes at many Mbit/s, packet by packet.
const maxLineBytes = 1 << 30

// addJournalEntry adds a line to the record.
func (r *Record) addJournalEntry(e entry) {
	switch {
	case e.Anew:
		delete(r.Results, e.Cell)
		delete(r.Errors, e.Cell)
	case e.Run != nil:
		// The run repeats failed transfers.
		r.Stamp, r.Errors = *e.Run, map[string]string{}
		for cell, results := range r.Results {
			r.Results[cell] = slices.DeleteFunc(results, func(x lab.Result) bool { return x.Error != "" })
		}
	case e.Result != nil:
		r.Results[e.Cell] = append(r.Results[e.Cell], *e.Result)
	case e.Error != "":
		r.Errors[e.Cell] = e.Error
	}
}

// CanResume reports whether a run with that stamp would make the same transfers as the record, and
// so can resume it. The number of repetitions may differ. The short form makes shorter transfers,
// so it resumes only its own records.
func (r Record) CanResume(s Stamp) bool {
	return r.Version == s.Version && r.Seed == s.Seed && r.Quick == s.Quick && r.Traces == s.Traces &&
		r.Drives == s.Drives && r.Only == s.Only
}

// Journal appends to a record's file. It is not safe for concurrent use.
type Journal struct{ file *os.File }

// DefaultDir is the default directory of records.
const DefaultDir = "exp-results"

// QuickDir returns the directory of records of the short form below a directory of records. They
// never replace full results.
func QuickDir(dir string) string { return filepath.Join(dir, "quick") }

// OpenJournal begins a run of a row in a directory, which it makes if necessary. It resumes the
// existing record. With anew it renames that to ROW.jsonl.old, or ROW.jsonl.old2 and so on. It
// never overwrites renamed records, except those of the short form.
func OpenJournal(dir, row string, s Stamp, anew bool) (*Journal, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	name := recordPath(dir, row)
	if anew {
		old := name + ".old"
		for n := 2; !s.Quick; n++ {
			if _, err := os.Lstat(old); errors.Is(err, os.ErrNotExist) {
				break
			} else if err != nil {
				return nil, err
			}
			old = fmt.Sprintf("%s.old%d", name, n)
		}
		if err := os.Rename(name, old); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	j := &Journal{f}
	if err := j.writeEntry(entry{Run: &s}); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return j, nil
}

// Add appends a transfer of a cell, without the notes of mpbond's processes.
func (j *Journal) Add(cell string, r lab.Result) error {
	r.Notes = nil
	return j.writeEntry(entry{Cell: cell, Result: &r})
}

// AddIncomplete appends why a cell could not be completed.
func (j *Journal) AddIncomplete(cell, why string) error {
	return j.writeEntry(entry{Cell: cell, Error: why})
}

// AddAnew says that the earlier transfers of a cell do not count.
func (j *Journal) AddAnew(cell string) error { return j.writeEntry(entry{Cell: cell, Anew: true}) }

func (j *Journal) writeEntry(e entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	// A line that was cut off before must not spoil this one.
	_, err = fmt.Fprintf(j.file, "\n%s\n", line)
	return err
}

// Close closes the file.
func (j *Journal) Close() error { return j.file.Close() }
