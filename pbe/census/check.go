// SPDX-License-Identifier: Apache-2.0

package census

import (
	"mpbond/pbe/cell"
	"mpbond/pbe/lte"
)

// Check counts what contradicts itself in the messages of one cell, so that a capture can be judged without knowing
// what the cell sent. Its fields only grow.
type Check struct {
	// Subframes and Messages count what was decoded, Gaps the missing subframes between.
	Subframes, Messages, Gaps int64
	// Users counts the RNTIs of devices, Once those with a single message. Falsely decoded messages are mostly of such
	// RNTIs, and so are phones at the ends of the capture.
	Users, Once int
	// Shared counts subframes with several messages in one direction, Conflicts those in which two of them name one
	// resource block. A cell does not send such messages, except to pairs of users with MU-MIMO.
	Shared, Conflicts int64
	// Blocks counts downlink transport blocks, Repeats those with the NDI of the block before. Orphans repeat a block
	// whose first transmission was not received: its message was missed, or this one is false.
	Blocks, Repeats, Orphans int64
	// PRB sums the granted resource blocks, AllPRB those of the cell; downlink and uplink.
	PRB, AllPRB [2]int64
	// Agreement sums what each message explains of its soft bits.
	Agreement float64
}

// Checker makes the Check of one cell. It is not safe for concurrent use.
type Checker struct {
	check   Check
	last    int64
	started bool
	times   map[cell.RNTI]int
	harq    harqTracker
}

// NewChecker returns a Checker.
func NewChecker() *Checker { return &Checker{times: map[cell.RNTI]int{}} }

// Add adds a subframe that was decoded from samples: only then messages name their blocks. A number that is not after
// the last one restarts the count.
func (k *Checker) Add(s Subframe) {
	if !s.fitsTableRanges() {
		return
	}
	c := &k.check
	if k.started && s.Number > k.last {
		c.Gaps += s.Number - k.last - 1
	} else if k.started {
		k.harq = harqTracker{}
	}
	k.started, k.last = true, s.Number
	c.Subframes++
	c.Messages += int64(len(s.DCIs))
	k.harq.startSubframe(s.Number)
	var named [2]lte.PRBSet
	var count [2]int
	conflict := false
	for i := range s.DCIs {
		d := &s.DCIs[i]
		c.Agreement += d.Agreement
		direction := 1
		if isDownlink(d) {
			direction = 0
		}
		count[direction]++
		conflict = conflict || named[direction].Intersects(d.PRBs)
		named[direction].AddAll(d.PRBs)
		if d.RNTI.IsUser() {
			k.times[d.RNTI]++
			if direction == 0 {
				k.addBlocks(s.Number, d)
			}
		}
	}
	for direction := range named {
		c.PRB[direction] += int64(named[direction].Len())
		c.AllPRB[direction] += int64(s.PRB)
	}
	if count[0] > 1 || count[1] > 1 {
		if c.Shared++; conflict {
			c.Conflicts++
		}
	}
}

// addBlocks counts the blocks of a user's downlink grant.
func (k *Checker) addBlocks(number int64, d *lte.DCI) {
	k.harq.addDownlinkGrant(number, d, func(mcs uint8, repeats bool) {
		k.check.Blocks++
		switch {
		case repeats:
			k.check.Repeats++
		case !(cell.Block{MCS: mcs, Size: 1}).HasSize():
			k.check.Orphans++
		}
	})
}

// Check returns the counts.
func (k *Checker) Check() Check {
	c := k.check
	c.Users, c.Once = len(k.times), 0
	for _, n := range k.times {
		if n == 1 {
			c.Once++
		}
	}
	return c
}

// maxConflicts is the part of shared subframes with conflicts up to which messages count as consistent.
const maxConflicts = 0.01

// IsConsistent reports whether the messages agree: hardly any two of them name one resource block.
func (c Check) IsConsistent() bool { return float64(c.Conflicts) <= maxConflicts*float64(c.Shared) }
