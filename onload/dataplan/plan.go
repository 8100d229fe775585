// Package dataplan keeps what the link of a mobile plan carried on each day, whoever used it,
// so that package onload/allowance can tell what the plan usually leaves over. It stands
// beside the data path: it reads the counters of the interface now and then, and keeps
// days in a file.
//
// What was carried while mpbond did not run counts too, as far as the counters go on: to
// the day on which they are looked at. What is lost is what came between the last look and
// a restart of the device.
package dataplan

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"mpbond/base/fault"
	"mpbond/base/store"
	"mpbond/base/unit"
	"mpbond/control/device"
	"mpbond/control/policy"
)

const (
	readInterval = time.Minute
	keepDays     = 400
	// lockTimeout is how long another process that has the file is waited for.
	lockTimeout = time.Second
)

// dayRecord is a day of a link: a line of the file. Counters are as they were looked at last.
type dayRecord struct {
	Day  string     `json:"day"`
	Link string     `json:"link"`
	All  unit.Bytes `json:"all"`
	Boot string     `json:"boot"` // of the system, since which counters count
	Rx   uint64     `json:"rx"`
	Tx   uint64     `json:"tx"`
}

// Keeper keeps the days of one link. Safe for concurrent use.
type Keeper struct {
	link string
	log  *slog.Logger
	// fakes in tests
	counters func() (map[string]device.Counters, error)
	bootID   func() string

	mu         sync.Mutex
	journal    *store.Journal
	days       map[[2]string]dayRecord // by link and day
	lastRecord dayRecord               // of the link, the latest; without a day before the first
	problem    string                  // the last one that was logged
}

// Open opens the file, or makes one. Errors are faults.
func Open(path, link string, log *slog.Logger) (*Keeper, error) {
	k := &Keeper{link: link, log: log, counters: device.ReadCounters, bootID: bootID, days: map[[2]string]dayRecord{}}
	j, damage, err := store.Open(path, lockTimeout, func(line []byte) error {
		var r dayRecord
		if err := json.Unmarshal(line, &r); err != nil {
			return err
		}
		if _, err := time.Parse(time.DateOnly, r.Day); err != nil || r.Link == "" || r.All < 0 {
			return errors.Join(err, errors.New("it says what cannot be"))
		}
		k.days[[2]string{r.Link, r.Day}] = r
		if r.Link == link {
			k.lastRecord = r
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if damage != nil {
		log.Error("what the plan's link carried may be more than is known", "err", damage)
	}
	k.journal = j
	return k, nil
}

// bootID tells one start of the system from another, "" where that is not told.
func bootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
}

// Run looks until ctx ends, and closes the file.
func (k *Keeper) Run(ctx context.Context) {
	t := time.NewTicker(readInterval)
	defer t.Stop()
	k.Update(time.Now())
	for {
		select {
		case <-ctx.Done():
			k.Update(time.Now())
			k.mu.Lock()
			defer k.mu.Unlock()
			k.logProblem(k.journal.Close())
			return
		case now := <-t.C:
			k.Update(now)
		}
	}
}

// Update reads the counters, and keeps what has been carried since the last look. A link
// that is not there carries nothing; counters that cannot be read tell nothing.
func (k *Keeper) Update(now time.Time) {
	all, err := k.counters()
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		k.logProblem(fault.New(fault.Unsupported, err, "this system does not tell what links carry"))
		return
	}
	r := dayRecord{Day: policy.DayOf(now, k.lastRecord.Day), Link: k.link, Boot: k.bootID()}
	r.All = k.days[[2]string{r.Link, r.Day}].All
	switch c, here := all[k.link]; {
	case !here: // when it comes back it counts from 0
		r.Rx, r.Tx = 0, 0
	case k.lastRecord.Day == "": // since when it counts is not known
		r.Rx, r.Tx = c.Rx, c.Tx
	default:
		before := k.lastRecord
		if before.Boot != r.Boot || c.Rx < before.Rx || c.Tx < before.Tx {
			before.Rx, before.Tx = 0, 0
		}
		r.Rx, r.Tx = c.Rx, c.Tx
		r.All += unit.Bytes(r.Rx - before.Rx + r.Tx - before.Tx)
	}
	if r == k.lastRecord {
		return
	}
	err = k.journal.Append(r)
	k.days[[2]string{r.Link, r.Day}], k.lastRecord = r, r
	if err == nil && k.journal.NeedsRewrite() {
		err = k.journal.Rewrite(k.keptRecords()...)
	}
	k.logProblem(err)
}

// keptRecords are the lines that hold, the latest day of the link last, and the newest days
// alone; mu is held.
func (k *Keeper) keptRecords() (lines []any) {
	rows := slices.SortedFunc(maps.Values(k.days), func(a, b dayRecord) int { return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(a.Link, b.Link)) })
	for _, r := range rows[max(len(rows)-keepDays, 0):] {
		if r != k.lastRecord {
			lines = append(lines, r)
		}
	}
	return append(lines, k.lastRecord)
}

// logProblem logs a problem once; mu is held.
func (k *Keeper) logProblem(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != k.problem && text != "" {
		k.log.Error("what the plan's link carries is not kept", "err", err, "hint", fault.HintOf(err))
	}
	k.problem = text
}

// Days are what the link carried on each day.
func (k *Keeper) Days() map[string]unit.Bytes {
	k.mu.Lock()
	defer k.mu.Unlock()
	days := map[string]unit.Bytes{}
	for _, r := range k.days {
		if r.Link == k.link {
			days[r.Day] = r.All
		}
	}
	return days
}
