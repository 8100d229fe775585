// SPDX-License-Identifier: Apache-2.0

package census

import (
	"math/bits"

	"mpbond/pbe/cell"
)

const (
	// Window is the number of subframes over which concurrent users are counted, as in the paper:
	// its round trips take 40 ms.
	Window = 40
	// maxHours bounds the hours kept; the oldest are dropped.
	maxHours = 10_000
	// maxGap is how many subframes may be missing before the numbers count as restarted. A restart
	// takes no time, since the meaning of a number far ahead is unknown.
	maxGap = hour
	// hour is in subframes.
	hour = 3_600_000
)

// rntiSet is a set of RNTIs.
type rntiSet [1 << 16 / 64]uint64

func (n *rntiSet) addRNTI(r cell.RNTI) { n[r>>6] |= 1 << (r & 63) }

func (n *rntiSet) countRNTIs() (c int) {
	for _, w := range n {
		c += bits.OnesCount64(w)
	}
	return c
}

// loadSums are sums over an hour, or over everything.
type loadSums struct {
	received, missed      int64 // subframes
	prb, down, up         int64 // resource blocks: all, and the granted ones
	blocks, retransmitted int64
	windows               int64 // complete windows
	users, dataUsers      int64 // summed over windows
}

func (l *loadSums) partOfAllPRBs(v int64) float64 {
	if l.prb == 0 {
		return 0
	}
	return float64(v) / float64(l.prb)
}

// hourTally counts one hour.
type hourTally struct {
	number int64
	loadSums
	userCount, dataUserCount int
}

// cellTally counts one cell.
type cellTally struct {
	prb         uint8
	started     bool
	now         int64 // of the last subframe, counted from the start of the first hour
	startOffset int64 // time of the first subframe
	last        int64 // number of the last subframe
	late        int64 // subframes behind later ones, or twice
	restarts    int64 // times that the count restarted

	all              loadSums
	hour             hourTally
	hours            []hourTally
	dropped          int64   // hours
	users, dataUsers rntiSet // of the current hour

	window            *userWindow
	userHistogram     histogram
	dataUserHistogram histogram
	harq              harqTracker
	activities        activityTracker

	formats [2][8]int64 // for all, for one user
	levels  [9]int64    // by level, 0: unknown
	mcs     [32]struct{ sent, again int64 }
	bits    int64
	sized   int64
	shares  []share // scratch
}

func newCellTally(prb uint8, begin int64) *cellTally {
	t := &cellTally{prb: prb, now: begin, startOffset: begin, window: newUserWindow(Window, 0),
		userHistogram:     newIntegerHistogram(cell.MaxGrants * Window),
		dataUserHistogram: newIntegerHistogram(cell.MaxGrants * Window), activities: newActivityTracker()}
	t.hour.number = begin / hour
	t.window.onDataUser = func(r cell.RNTI) {
		t.dataUsers.addRNTI(r)
		t.activities.markDataUser(r)
	}
	return t
}

// advanceToSubframe moves the time to subframe number. It returns false if that is late.
func (t *cellTally) advanceToSubframe(number int64) bool {
	step := number - t.last
	switch {
	case !t.started:
		t.started, step = true, 0
	case step <= 0 && step > -activityTimeout:
		t.late++
		return false
	case step <= 0 || step > maxGap:
		t.restarts++
		step = 1
		t.window.resetWindow()
	default:
		t.hour.missed += step - 1
	}
	t.last = number
	t.now += step
	if n := t.now / hour; n != t.hour.number {
		t.endTallyHour()
		t.hour.number = n
	}
	return true
}

// endTallyHour stores the sums of the hour, of at most maxHours, and begins the next.
func (t *cellTally) endTallyHour() {
	t.hour.userCount, t.hour.dataUserCount = t.users.countRNTIs(), t.dataUsers.countRNTIs()
	if len(t.hours) == maxHours {
		t.hours = append(t.hours[:0], t.hours[1:]...)
		t.dropped++
	}
	t.hours = append(t.hours, t.hour)
	t.all.addLoadSums(t.hour.loadSums)
	t.hour = hourTally{}
	t.users, t.dataUsers = rntiSet{}, rntiSet{}
}

// tallySubframe counts the messages of a subframe.
func (t *cellTally) tallySubframe(s Subframe) {
	if !t.advanceToSubframe(s.Number) {
		return
	}
	h := &t.hour
	h.received++
	h.prb += int64(s.PRB)
	t.harq.startSubframe(s.Number)
	t.shares = t.shares[:0]
	downlinkPRB, uplinkPRB := 0, 0
	for i := range s.DCIs {
		d := &s.DCIs[i]
		forUser := d.RNTI.IsUser()
		class := 0
		if forUser {
			class = 1
		}
		t.formats[class][d.Format&7]++
		t.levels[min(d.Level, len(t.levels)-1)]++
		one := shareFromDCI(d)
		downlinkPRB, uplinkPRB = downlinkPRB+one.prb, uplinkPRB+one.uplinkPRB
		if !forUser || !isDownlink(d) {
			continue
		}
		one.retransmitted = t.harq.addDownlinkGrant(s.Number, d, t.countBlock)
		h.blocks, h.retransmitted = h.blocks+int64(one.blocks), h.retransmitted+int64(one.retransmitted)
		t.bits, t.sized = t.bits+one.sizedBits, t.sized+int64(one.sizedPRB)
		t.shares = mergeUserShare(t.shares, one)
	}
	// False messages may exceed the width of the cell.
	h.down += int64(min(downlinkPRB, int(s.PRB)))
	h.up += int64(min(uplinkPRB, int(s.PRB)))
	for _, x := range t.shares {
		t.users.addRNTI(x.user)
		t.activities.addActivityShare(t.now, x)
	}
	t.window.addSubframeShares(s.Number, t.shares)
	for _, x := range t.shares { // data users stay so in a new hour or activity
		if t.window.users[x.user].isDataUser {
			t.dataUsers.addRNTI(x.user)
			t.activities.markDataUser(x.user)
		}
	}
	if t.window.canCountUsers() {
		n, data := len(t.window.users), t.window.dataUsers
		t.userHistogram.countValueInBin(float64(n))
		t.dataUserHistogram.countValueInBin(float64(data))
		h.windows++
		h.users, h.dataUsers = h.users+int64(n), h.dataUsers+int64(data)
	}
	t.activities.endExpired(t.now)
}

// countBlock counts one transport block.
func (t *cellTally) countBlock(mcs uint8, retransmitted bool) {
	m := &t.mcs[mcs&31]
	if retransmitted {
		m.again++
		return
	}
	m.sent++
}

// Census counts the users of up to cell.MaxCells cells.
type Census struct {
	startOffset int64
	cells       [cell.MaxCells]*cellTally
	// Invalid counts subframes that no cell sends, or of a cell that changed its width.
	Invalid int64
}

// New returns a Census that counts hours from the first subframe on. after is how many milliseconds
// after a full hour that was.
func New(after int64) *Census { return &Census{startOffset: after % hour} }

// Add adds the next subframe of a cell. Its DCIs are the caller's again when it returns.
func (c *Census) Add(s Subframe) {
	if !s.fitsTableRanges() {
		c.Invalid++
		return
	}
	t := c.cells[s.Cell]
	if t == nil {
		t = newCellTally(s.PRB, c.startOffset)
		c.cells[s.Cell] = t
	}
	if t.prb != s.PRB {
		c.Invalid++
		return
	}
	t.tallySubframe(s)
}
