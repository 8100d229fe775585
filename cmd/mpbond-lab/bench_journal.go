//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"mpbond/internal/cli"
	"mpbond/lab"
)

// journal keeps transfers in a file as they end, one JSON object a line, so
// that a run that was interrupted can be resumed. A nil journal keeps nothing.
type journal struct {
	file *os.File
	seed uint64
	old  map[string][]lab.Result // by key
	rest int                     // transfers of other versions
}

// journalLine is one transfer.
type journalLine struct {
	Version string     `json:"version"`
	Key     string     `json:"experiment"`
	Result  lab.Result `json:"result"`
}

// openJournal opens the file and reads what it has of this version, if that has
// a name of its own, or with mixed of any. Transfers that failed are not taken
// over.
func openJournal(name string, seed uint64, mixed bool) (*journal, error) {
	if name == "" {
		return nil, nil
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	j := &journal{file: f, seed: seed, old: map[string][]lab.Result{}}
	in := bufio.NewReader(f)
	for {
		line, err := in.ReadBytes('\n')
		var l journalLine
		// The last line may have been cut off.
		if json.Unmarshal(line, &l) == nil && l.Result.Error == "" {
			if mixed || l.Version == cli.Version && named(cli.Version) {
				j.old[l.Key] = append(j.old[l.Key], l.Result)
			} else {
				j.rest++
			}
		}
		if err != nil {
			break
		}
	}
	return j, nil
}

// named tells whether a version is that of one state of the code.
func named(version string) bool {
	return version != "dev" && !strings.HasSuffix(version, "-dirty")
}

// key names what is measured in an experiment.
func (j *journal) key(e lab.Experiment) string {
	return fmt.Sprintf("%s, %v %v %v, seed %d", e.Name, e.Plan.Size, e.Plan.Length, e.Plan.At, j.seed)
}

// of returns what the file had of an experiment.
func (j *journal) of(e lab.Experiment) []lab.Result {
	if j == nil {
		return nil
	}
	return j.old[j.key(e)]
}

// others is how many transfers of other versions the file has, which are not
// taken over.
func (j *journal) others() int {
	if j == nil {
		return 0
	}
	return j.rest
}

func (j *journal) add(e lab.Experiment, r lab.Result) error {
	if j == nil {
		return nil
	}
	r.Notes = nil // long, and in no table
	line, err := json.Marshal(journalLine{cli.Version, j.key(e), r})
	if err != nil {
		return err
	}
	// A line that was cut off before must not take this one with it.
	_, err = fmt.Fprintf(j.file, "\n%s\n", line)
	return err
}

// close ends the journal. When all is done, the next run begins anew.
func (j *journal) close(done bool) error {
	if j == nil {
		return nil
	}
	err := j.file.Close()
	if done {
		err = errors.Join(err, os.Rename(j.file.Name(), j.file.Name()+".old"))
	}
	return err
}
