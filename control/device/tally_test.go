// SPDX-License-Identifier: Apache-2.0

package device

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"mpbond/base/fault"
	"mpbond/control/policy"
)

// TestTally: several processes add to one file at once, each its own counts, none of them twice. If
// the file is locked, the next time adds them.
func TestTally(t *testing.T) {
	path := filepath.Join(t.TempDir(), "usage.jsonl")
	if list, err := ReadRecords(path); len(list) != 0 || err != nil {
		t.Fatal(list, err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			u, _, _ := newUsage(t)
			tally := &Tally{Usage: u, path: path, saved: map[policy.UsageRecord]policy.UsageRecord{}, stop: func() {}}
			c := &fakeConn{local: "10.0.0.1:1", device: "wlan0", peer: "p"}
			c.open(u, policy.ForPipe)
			for range 5 {
				c.in, c.out = c.in+100, c.out+10
				if err := tally.saveNewCounts(); err != nil {
					t.Error(err)
				}
			}
			c.in += 1000
			u.removeCountedConn(c)
			if err := tally.Close(); err != nil {
				t.Error(err)
			}
			if err := tally.saveNewCounts(); err != nil { // there is nothing more
				t.Error(err)
			}
		})
	}
	all.Wait()
	if list, err := ReadRecords(path); lines(list) != "11-21 wlan0 pipe p 12000/400" || err != nil {
		t.Error(lines(list), err)
	}
	u, _, _ := newUsage(t)
	tally := &Tally{Usage: u, path: path, saved: map[policy.UsageRecord]policy.UsageRecord{}, stop: func() {}}
	c := &fakeConn{local: "10.0.0.1:1", in: 1, peer: "p"}
	c.open(u, policy.ForDirect)
	busy, _, _, err := openRecords(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := tally.saveNewCounts(); !fault.Is(err, fault.AlreadyRunning) {
		t.Error(err)
	}
	if err := busy.Close(); err != nil {
		t.Fatal(err)
	}
	c.in = 3
	if err := tally.Close(); err != nil {
		t.Error(err)
	}
	if list, err := ReadRecords(path); lines(list) != "11-21 wlan0 pipe p 12000/400; 11-21 wwan0 direct p 3/0" ||
		err != nil {
		t.Error(lines(list), err)
	}
}

// TestTallyLong: the file does not grow for ever.
func TestTallyLong(t *testing.T) {
	path := filepath.Join(t.TempDir(), "usage.jsonl")
	row := policy.UsageRecord{Day: "2026-11-21", Link: "wlan0", Purpose: policy.ForPipe, Peer: strings.Repeat("p", 100),
		Down: 1}
	text, err := json.Marshal(row)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, bytes.Repeat(append(text, '\n'), 1<<20/len(text)+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := AddRecords(path, []policy.UsageRecord{row}); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Size() > 1000 {
		t.Error(st, err)
	}
	if list, err := ReadRecords(path); len(list) != 1 || list[0].Down != 2 || err != nil {
		t.Error(list, err)
	}
}
