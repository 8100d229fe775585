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

// saveInterval is how often a Tally tells its file: what a killed process loses.
const saveInterval = 10 * time.Second

// Tally counts as Usage does, for a short-lived process, and adds that to a file to which
// others of its kind add at the same time: each has it for the moment of adding alone.
type Tally struct {
	*Usage
	path    string
	saved   map[policy.UsageRecord]policy.UsageRecord // by what it is of
	stop    context.CancelFunc
	running sync.WaitGroup
}

// OpenTally makes one that adds to the file at path until Close. It makes no file before
// something was counted.
func OpenTally(path string, log *slog.Logger) *Tally {
	ctx, stop := context.WithCancel(context.Background())
	t := &Tally{Usage: NewUsage(log), path: path, saved: map[policy.UsageRecord]policy.UsageRecord{}, stop: stop}
	t.running.Go(func() { t.Usage.Run(ctx) })
	t.running.Go(func() { t.runSaveLoop(ctx) })
	return t
}

func (t *Tally) runSaveLoop(ctx context.Context) {
	tick := time.NewTicker(saveInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = t.saveNew() // Close tells it, if it stays so
		}
	}
}

// saveNew adds what was counted since it last did. After an error the next one does.
func (t *Tally) saveNew() error {
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

// Close counts once more and adds that. Connections are to be closed before.
func (t *Tally) Close() error {
	t.stop()
	t.running.Wait()
	t.Usage.Close()
	return t.saveNew()
}

// ReadRecords lists what a file has, oldest first: nothing if there is none.
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
