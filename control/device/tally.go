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

// tallyEvery is how often a Tally tells its file: what a killed process loses.
const tallyEvery = 10 * time.Second

// Tally counts as Usage does, for a short-lived process, and adds that to a file to which
// others of its kind add at the same time: each has it for the moment of adding alone.
type Tally struct {
	*Usage
	path string
	told map[policy.Used]policy.Used // by what it is of
	stop context.CancelFunc
	over sync.WaitGroup
}

// OpenTally makes one that adds to the file at path until Close. It makes no file before
// something was counted.
func OpenTally(path string, log *slog.Logger) *Tally {
	ctx, stop := context.WithCancel(context.Background())
	t := &Tally{Usage: NewUsage(log), path: path, told: map[policy.Used]policy.Used{}, stop: stop}
	t.over.Go(func() { t.Usage.Run(ctx) })
	t.over.Go(func() { t.run(ctx) })
	return t
}

func (t *Tally) run(ctx context.Context) {
	tick := time.NewTicker(tallyEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = t.add() // Close tells it, if it stays so
		}
	}
}

// add adds what was counted since it last did. After an error the next one does.
func (t *Tally) add() error {
	list, _ := t.List()
	var news []policy.Used
	for _, row := range list {
		before := t.told[none(row)]
		row.Down, row.Up, row.Joules = row.Down-before.Down, row.Up-before.Up, row.Joules-before.Joules
		if row.Down != 0 || row.Up != 0 || row.Joules != 0 {
			news = append(news, row)
		}
	}
	if len(news) == 0 {
		return nil
	}
	if err := AddUsed(t.path, news); err != nil {
		return err
	}
	for _, row := range list {
		t.told[none(row)] = row
	}
	return nil
}

// Close counts once more and adds that. Connections are to be closed before.
func (t *Tally) Close() error {
	t.stop()
	t.over.Wait()
	t.Usage.Close()
	return t.add()
}

// ReadUsed lists what a file has, oldest first: nothing if there is none.
func ReadUsed(path string) (list []policy.Used, err error) {
	if _, err := userfile.Lstat(path); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	j, rows, _, err := readUsed(path, fileWait)
	if err != nil {
		return nil, err
	}
	return slices.SortedFunc(maps.Values(rows), older), j.Close()
}
