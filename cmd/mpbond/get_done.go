// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"mpbond/base/fault"
	"mpbond/base/store"
	"mpbond/base/text"
	"mpbond/base/unit"
	"mpbond/base/userfile"
	"mpbond/internal/cli"
	"mpbond/onload/fetch"
)

// finishedFile is a line of the journal: a file that a download of several files has completed.
type finishedFile struct {
	URL    string `json:"url"`
	File   string `json:"file"`
	SHA256 string `json:"sha256"`
}

// finishedFiles sorts the files of a command into those that an earlier run completed and those
// that remain. It journals what this run completes. A command with one URL has no journal.
type finishedFiles struct {
	remaining []fetch.Object
	existing  []fetch.Fetched
	failed    []fetch.Failed
	err       error // the errors of failed
	complete  bool  // all files are complete, so the journal can be removed

	mu      sync.Mutex
	journal *store.Journal // nil: none
	path    string
}

// openFinished opens the journal of the command and checks which files remain.
func (t *onloadTask) openFinished() (*finishedFiles, error) {
	d := &finishedFiles{remaining: t.objects}
	if len(t.objects) < 2 {
		return d, nil
	}
	dir, err := filepath.Abs(filepath.Dir(t.objects[0].File))
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(dir + "\n" + strings.Join(t.urls, "\n")))
	if d.path, err = cli.InHome(fmt.Sprintf("get-%x.jsonl", sum[:8])); err != nil {
		return nil, err
	}
	known := map[string]finishedFile{}
	var damage error
	d.journal, damage, err = store.Open(d.path, time.Second, func(line []byte) error {
		var f finishedFile
		err := json.Unmarshal(line, &f)
		known[f.File] = f
		return err
	})
	if fault.Is(err, fault.AlreadyRunning) {
		return nil, fault.New(fault.AlreadyRunning, errors.New("another mpbond is fetching the same files"),
			"wait until it is done")
	}
	if err = errors.Join(err, damage); err != nil {
		slog.Warn("journal of finished files incomplete", "file", d.path, "err", err)
	}
	d.remaining = nil
	for _, o := range t.objects {
		d.classifyFile(o, known[o.File])
	}
	return d, nil
}

// classifyFile adds an object to remaining, existing or failed.
func (ff *finishedFiles) classifyFile(o fetch.Object, known finishedFile) {
	f, err := userfile.Open(o.File)
	if err != nil {
		ff.remaining = append(ff.remaining, o)
		return
	}
	defer f.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, f)
	if got := fmt.Sprintf("%x", sum.Sum(nil)); err == nil && known.URL == o.URL && known.SHA256 == got {
		ff.existing = append(ff.existing, fetch.Fetched{URL: o.URL, File: o.File, Bytes: unit.Bytes(n),
			Resumed: unit.Bytes(n), SHA256: got})
		return
	}
	err = fault.New(fault.Exists, fmt.Errorf("%s already exists", text.Printable(o.File)),
		"move it away, or choose another directory with --output")
	ff.failed = append(ff.failed, fetch.Failed{URL: o.URL, File: o.File, Error: err.Error(), Kind: fault.Exists})
	ff.err = errors.Join(ff.err, err)
}

// recordFinished journals that a file is complete.
func (ff *finishedFiles) recordFinished(o fetch.Fetched) {
	ff.mu.Lock()
	defer ff.mu.Unlock()
	if ff.journal == nil {
		return
	}
	if err := ff.journal.Append(finishedFile{o.URL, o.File, o.SHA256}); err != nil {
		slog.Warn("finished file not recorded", "file", o.File, "err", err)
	}
}

// mergeResult adds the files of earlier runs to the result of this one.
func (ff *finishedFiles) mergeResult(r fetch.Result) fetch.Result {
	r.Objects = append(ff.existing, r.Objects...)
	r.Failed = append(ff.failed, r.Failed...)
	return r
}

// closeJournal closes the journal and returns the errors of failed files. It removes the journal if
// all files are complete.
func (ff *finishedFiles) closeJournal() error {
	if ff.journal != nil {
		if ff.complete {
			_ = userfile.Remove(ff.path) // while it is locked
		}
		_ = ff.journal.Close() // at worst the next run finds a file that it does not know

	}
	return ff.err
}
