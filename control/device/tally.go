// SPDX-License-Identifier: Apache-2.0

package device

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"mpbond/base/userfile"
	"mpbond/control/policy"
)

// saveInterval is how often a Tally saves, and so what a killed process loses.
const saveInterval = 10 * time.Second

// Tally counts as Usage does, for a short-lived process. It adds its counts to a file that several
// such processes share. Each of them locks the file only while it adds.
type Tally struct {
	*Usage
	path    string
	saved   map[policy.UsageRecord]policy.UsageRecord // by record key
	stop    context.CancelFunc
	running sync.WaitGroup
}

// OpenTally returns a Tally that adds to the file at path until Close. It creates the file with the
// first count.
func OpenTally(path string, log *slog.Logger) *Tally {
	ctx, stop := context.WithCancel(context.Background())
	t := &Tally{Usage: NewUsage(log), path: path, saved: map[policy.UsageRecord]policy.UsageRecord{}, stop: stop}
	t.running.Go(func() { t.Usage.Run(ctx) })
	t.running.Go(func() { t.runSaveLoop(ctx) })
	return t
}

// runSaveLoop saves at intervals until ctx ends.
func (t *Tally) runSaveLoop(ctx context.Context) {
	tick := time.NewTicker(saveInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = t.saveNewCounts() // Close returns an error that persists
		}
	}
}

// saveNewCounts adds the counts since its last success to the file.
func (t *Tally) saveNewCounts() error {
	list, _ := t.List()
	var news []policy.UsageRecord
	for _, row := range list {
		before := t.saved[recordKey(row)]
		row.Down, row.Up, row.Joules = row.Down-before.Down, row.Up-before.Up, row.Joules-before.Joules
		if row.Down != 0 || row.Up != 0 || row.Joules != 0 {
			news = append(news, row)
		}
	}
	if len(news) == 0 {
		return nil
	}
	if err := AddRecords(t.path, news); err != nil {
		return err
	}
	for _, row := range list {
		t.saved[recordKey(row)] = row
	}
	return nil
}

// Close counts once more and saves. Close all connections before.
func (t *Tally) Close() error {
	t.stop()
	t.running.Wait()
	t.Usage.Close()
	return t.saveNewCounts()
}

// ReadRecords returns the records of a file, oldest first, none if there is no file.
func ReadRecords(path string) (list []policy.UsageRecord, err error) {
	if _, err := userfile.Lstat(path); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	j, rows, _, err := openRecords(path, lockTimeout)
	if err != nil {
		return nil, err
	}
	return slices.SortedFunc(maps.Values(rows), compareRecords), j.Close()
}
