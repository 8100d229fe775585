// SPDX-License-Identifier: Apache-2.0

// Package dataplan records how many bytes the link of a mobile data plan carries each day,
// for all its users, so that package onload/allowance can estimate what the plan usually
// leaves unused. It reads the counters of the interface periodically and stores the days
// in a file.
//
// Bytes carried while mpbond was not running count for the day of the next reading, if
// the counters were not reset. Bytes between the last reading and a restart of the device
// are lost.
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
	// lockTimeout bounds the wait for another process that has locked the file.
	lockTimeout = time.Second
)

// dayRecord is the record of a link and day: a line of the file. Rx and Tx are the counters at the
// last reading.
type dayRecord struct {
	Day  string     `json:"day"`
	Link string     `json:"link"`
	All  unit.Bytes `json:"all"`
	Boot string     `json:"boot"` // boot ID of the system, at which counters start
	Rx   uint64     `json:"rx"`
	Tx   uint64     `json:"tx"`
}

// Keeper records the days of one link. It is safe for concurrent use.
type Keeper struct {
	link string
	log  *slog.Logger
	// replaced in tests
	counters func() (map[string]device.Counters, error)
	bootID   func() string

	mu         sync.Mutex
	journal    *store.Journal
	days       map[[2]string]dayRecord // by link and day
	lastRecord dayRecord               // latest one of the link; without a day before the first
	problem    string                  // last problem that was logged
}

// Open opens or creates the file. Errors are faults.
func Open(path, link string, log *slog.Logger) (*Keeper, error) {
	k := &Keeper{link: link, log: log, counters: device.ReadCounters, bootID: currentBootID,
		days: map[[2]string]dayRecord{}}
	j, damage, err := store.Open(path, lockTimeout, func(line []byte) error {
		var r dayRecord
		if err := json.Unmarshal(line, &r); err != nil {
			return err
		}
		if _, err := time.Parse(time.DateOnly, r.Day); err != nil || r.Link == "" || r.All < 0 {
			return errors.Join(err, errors.New("invalid record"))
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
		log.Error("data plan file damaged, the link may have carried more than known", "err", damage)
	}
	k.journal = j
	return k, nil
}

// currentBootID returns an identifier of the current start of the system, or "" if unknown.
func currentBootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
}

// Run reads the counters periodically until ctx ends, then closes the file.
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
			k.logProblemOnce(k.journal.Close())
			return
		case now := <-t.C:
			k.Update(now)
		}
	}
}

// Update reads the counters and records what was carried since the last reading. A missing link
// carries nothing. If the counters cannot be read, nothing is recorded.
func (k *Keeper) Update(now time.Time) {
	all, err := k.counters()
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		k.logProblemOnce(fault.New(fault.Unsupported, err, "this system has no traffic counters of interfaces"))
		return
	}
	r := dayRecord{Day: policy.DayOf(now, k.lastRecord.Day), Link: k.link, Boot: k.bootID()}
	r.All = k.days[[2]string{r.Link, r.Day}].All
	switch c, exists := all[k.link]; {
	case !exists: // a returning interface counts from 0
		r.Rx, r.Tx = 0, 0
	case k.lastRecord.Day == "": // the start of the counters is unknown
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
	k.logProblemOnce(err)
}

// keptRecords returns the newest records, the latest one of the link last. mu must be held.
func (k *Keeper) keptRecords() (lines []any) {
	rows := slices.SortedFunc(maps.Values(k.days),
		func(a, b dayRecord) int { return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(a.Link, b.Link)) })
	for _, r := range rows[max(len(rows)-keepDays, 0):] {
		if r != k.lastRecord {
			lines = append(lines, r)
		}
	}
	return append(lines, k.lastRecord)
}

// logProblemOnce logs a problem once. mu must be held.
func (k *Keeper) logProblemOnce(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != k.problem && text != "" {
		k.log.Error("data plan usage not stored", "err", err, "hint", fault.HintOf(err))
	}
	k.problem = text
}

// Days returns what the link carried on each day.
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
