package census

import (
	"math/bits"

	"mpbond/pbe/cell"
)

const (
	// Window is over how many subframes the users at a time are counted, as in the
	// paper: its round trips are of 40 ms.
	Window = 40
	// mostHours are kept; of a longer stream the oldest are dropped.
	mostHours = 10_000
	// longestGap is how many subframes may be missing before the numbers count as begun
	// again, which takes no time: what a number far ahead means nobody knows.
	longestGap = hour
	// hour in subframes.
	hour = 3_600_000
)

// names is a set of RNTIs.
type names [1 << 16 / 64]uint64

func (n *names) add(r cell.RNTI) { n[r>>6] |= 1 << (r & 63) }

func (n *names) count() (c int) {
	for _, w := range n {
		c += bits.OnesCount64(w)
	}
	return c
}

// load is what counts of an hour, or of all.
type load struct {
	heard, missed    int64 // subframes
	prb, down, up    int64 // resource blocks: that there were, that were given
	blocks, again    int64
	windows          int64 // with all that follows
	users, dataUsers int64 // summed over windows
}

func (l *load) part(v int64) float64 {
	if l.prb == 0 {
		return 0
	}
	return float64(v) / float64(l.prb)
}

// period is one hour.
type period struct {
	number int64
	load
	names, dataNames int
}

// tally is what is counted of one cell.
type tally struct {
	prb   uint8
	begun bool
	now   int64 // of the last subframe, counted from the begin of the first hour
	begin int64 // where the first was
	last  int64 // number of the last
	late  int64 // subframes that came behind later ones, or twice
	again int64 // times that the count began again

	all       load
	hour      period
	hours     []period
	dropped   int64 // hours
	was, data names // of this hour

	window       *window
	windowed     spread
	windowedData spread
	harq         harq
	activities   activities

	formats [2][8]int64 // by what they are for: all, one user
	levels  [9]int64    // by level, 0: not known
	mcs     [32]struct{ sent, again int64 }
	bits    int64
	sized   int64
	shares  []share // scratch
}

func newTally(prb uint8, begin int64) *tally {
	t := &tally{prb: prb, now: begin, begin: begin, window: newWindow(Window, 0), windowed: numbers(cell.MaxGrants * Window), windowedData: numbers(cell.MaxGrants * Window), activities: newActivities()}
	t.hour.number = begin / hour
	t.window.passed = func(r cell.RNTI) {
		t.data.add(r)
		t.activities.passed(r)
	}
	return t
}

// clock moves the time to subframe number, and is false if that is behind.
func (t *tally) clock(number int64) bool {
	step := number - t.last
	switch {
	case !t.begun:
		t.begun, step = true, 0
	case step <= 0 && step > -quiet:
		t.late++
		return false
	case step <= 0 || step > longestGap:
		t.again++
		step = 1
		t.window.reset()
	default:
		t.hour.missed += step - 1
	}
	t.last = number
	t.now += step
	if n := t.now / hour; n != t.hour.number {
		t.endHour()
		t.hour.number = n
	}
	return true
}

func (t *tally) endHour() {
	t.hour.names, t.hour.dataNames = t.was.count(), t.data.count()
	if len(t.hours) == mostHours {
		t.hours = append(t.hours[:0], t.hours[1:]...)
		t.dropped++
	}
	t.hours = append(t.hours, t.hour)
	t.all.plus(t.hour.load)
	t.hour = period{}
	t.was, t.data = names{}, names{}
}

func (t *tally) add(s Subframe) {
	if !t.clock(s.Number) {
		return
	}
	h := &t.hour
	h.heard++
	h.prb += int64(s.PRB)
	t.harq.begin(s.Number)
	t.shares = t.shares[:0]
	given, up := 0, 0
	for i := range s.DCIs {
		d := &s.DCIs[i]
		mine := d.RNTI.User()
		who := 0
		if mine {
			who = 1
		}
		t.formats[who][d.Format&7]++
		t.levels[min(d.Level, len(t.levels)-1)]++
		one := shareOf(d)
		given, up = given+one.prb, up+one.up
		if !mine || !downlink(d) {
			continue
		}
		one.again = t.harq.add(s.Number, d, t.block)
		h.blocks, h.again = h.blocks+int64(one.blocks), h.again+int64(one.again)
		t.bits, t.sized = t.bits+one.bits, t.sized+int64(one.sized)
		t.shares = merge(t.shares, one)
	}
	// What a decoder took for messages may be more than there is.
	h.down += int64(min(given, int(s.PRB)))
	h.up += int64(min(up, int(s.PRB)))
	for _, x := range t.shares {
		t.was.add(x.user)
		t.activities.add(t.now, x)
	}
	t.window.add(s.Number, t.shares)
	for _, x := range t.shares { // who passes still does, in a new hour or activity too
		if t.window.users[x.user].data {
			t.data.add(x.user)
			t.activities.passed(x.user)
		}
	}
	if t.window.whole() {
		n, data := len(t.window.users), t.window.data
		t.windowed.add(float64(n))
		t.windowedData.add(float64(data))
		h.windows++
		h.users, h.dataUsers = h.users+int64(n), h.dataUsers+int64(data)
	}
	t.activities.sweep(t.now)
}

// block counts one transport block.
func (t *tally) block(mcs uint8, again bool) {
	m := &t.mcs[mcs&31]
	if again {
		m.again++
		return
	}
	m.sent++
}

// Census counts what was heard of up to cell.MaxCells cells.
type Census struct {
	begin int64
	cells [cell.MaxCells]*tally
	// Invalid counts subframes that no cell sends, or with another width than before.
	Invalid int64
}

// New counts hours from the first subframe on, which was so many milliseconds after a
// full hour.
func New(after int64) *Census { return &Census{begin: after % hour} }

// Add takes the next subframe of a cell. Its DCIs are the caller's again when it
// returns.
func (c *Census) Add(s Subframe) {
	if !s.valid() {
		c.Invalid++
		return
	}
	t := c.cells[s.Cell]
	if t == nil {
		t = newTally(s.PRB, c.begin)
		c.cells[s.Cell] = t
	}
	if t.prb != s.PRB {
		c.Invalid++
		return
	}
	t.add(s)
}
