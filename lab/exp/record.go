package exp

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"mpbond/lab"
)

// Stamp says of which run, or runs, the transfers of a record are.
type Stamp struct {
	Version    string `json:"commit"`
	Kernel     string `json:"kernel"`
	Date       string `json:"date"`
	Processors int    `json:"processors"`
	Seed       uint64 `json:"seed"`
	Quick      bool   `json:"quick"`
	Reps       int    `json:"reps,omitempty"`   // asked for, of each cell
	Traces     string `json:"traces,omitempty"` // where recordings were
	Drives     string `json:"drives,omitempty"` // where other drives were
	Only       string `json:"only,omitempty"`   // cells whose names have it
	Planned    int    `json:"planned"`          // transfers of the row
	// Cells are the planned transfers by cell.
	Cells map[string]int `json:"cells,omitempty"`
}

// Provenance says of which run it is, for people.
func (e Evaluation) Provenance() string {
	return fmt.Sprintf("mpbond %s, seed %d, Linux %s, %d processors, %s; %s planned transfers count", e.Version, e.Seed, e.Kernel, e.Processors, e.Date, e.countedText())
}

// Record is a row's transfers, complete or not: of one run, or of several of
// which each went on where the one before stopped. Its stamp is the last run's.
type Record struct {
	Row string
	Stamp
	Results Data
	Errors  map[string]string // of cells that could not be completed
}

// A record's file holds a line for each run that begins, each transfer as it
// ends, and each cell that could not be completed: whatever ends the program,
// nothing is lost but the transfers that were being made.
type entry struct {
	Run    *Stamp      `json:"run,omitempty"`
	Cell   string      `json:"cell,omitempty"`
	Result *lab.Result `json:"result,omitempty"`
	Error  string      `json:"error,omitempty"`
}

// recordPath is where a row's record is kept.
func recordPath(dir, row string) string { return filepath.Join(dir, row+".jsonl") }

// LoadRecord reads a row's record from a directory; there is none, if it has no
// results. Packets, which may be most of it, are left out if light.
func LoadRecord(dir, row string, light bool) (r Record, err error) {
	r = Record{Row: row, Results: Data{}, Errors: map[string]string{}}
	f, err := os.Open(recordPath(dir, row))
	if errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	in.Buffer(nil, maxLineBytes)
	for in.Scan() {
		var e entry
		if json.Unmarshal(in.Bytes(), &e) != nil {
			continue // empty, or cut off when a run was killed
		}
		if light && e.Result != nil {
			e.Result.Traffic = nil
		}
		r.addEntry(e)
	}
	if err := in.Err(); err != nil {
		return r, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return r, nil
}

// maxLineBytes is of a file: minutes at many Mbit/s, packet by packet.
const maxLineBytes = 1 << 30

// addEntry puts a line into the record.
func (r *Record) addEntry(e entry) {
	switch {
	case e.Run != nil:
		// The run made again what had failed.
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

// CanResume tells whether a run that is stamped so can go on with the record: what it
// would make is the same. In the short form some of it may be shorter.
func (r Record) CanResume(s Stamp) bool {
	return r.Version == s.Version && r.Seed == s.Seed && r.Quick == s.Quick && r.Traces == s.Traces && r.Drives == s.Drives && r.Only == s.Only
}

// Journal adds to a record's file. Its methods are for one goroutine at a time.
type Journal struct{ file *os.File }

// QuickDir is where records of the short form are below a directory of records: they
// are no figures, and never in the place of any.
func QuickDir(dir string) string { return filepath.Join(dir, "quick") }

// OpenJournal begins a run of a row in a directory, which is made if need be: it goes
// on with the record that is there, or begins anew, and then puts that one aside
// as ROW.jsonl.old, or ROW.jsonl.old2 and so on: what was put aside before stays,
// but for that of the short form.
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

// Add keeps a transfer of a cell, but not what mpbond's processes said of it.
func (j *Journal) Add(cell string, r lab.Result) error {
	r.Notes = nil
	return j.writeEntry(entry{Cell: cell, Result: &r})
}

// AddIncomplete keeps why a cell could not be completed.
func (j *Journal) AddIncomplete(cell, why string) error {
	return j.writeEntry(entry{Cell: cell, Error: why})
}

func (j *Journal) writeEntry(e entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	// A line that was cut off before must not take this one with it.
	_, err = fmt.Fprintf(j.file, "\n%s\n", line)
	return err
}

// Close ends the journal.
func (j *Journal) Close() error { return j.file.Close() }
