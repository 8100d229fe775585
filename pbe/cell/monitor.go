// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"math"
	"time"

	"mpbond/base/unit"
)

// ActiveFor is how many subframes after its last grant a secondary cell counts as activated:
// networks deactivate one after about a second without grants (section 3 of the paper).
const ActiveFor = 1000

// SilentAfter is the least number of subframes without reception after which a cell no longer
// counts: its last grants say little about now.
const SilentAfter = 100

// minFitBlocks is the number of own blocks from which on p is fitted to the observed
// retransmissions. minFitChange is the relative change of p that requires a new table.
const (
	minFitBlocks = 200
	minFitChange = 0.2
)

// ownRateMemory is how many subframes R_w of the device's own blocks is preferred to that of
// others. Fading is over within tens of milliseconds. The mean remains, of which others say
// nothing: it changes with the shadows of buildings, every 50 m (36.814, annex A), so every 36 s on
// foot and every 3.6 s in a car at 50 km/h.
const ownRateMemory = 4000

// outageSubframes is the time without a grant in any cell after which a device was out of reach, as behind a bridge, if
// the cells had room for it: half of their blocks were idle. Else it had to wait for others. What comes after an outage
// was in a queue of the cells if the device at once gets all there is.
const outageSubframes = 20

// fullThreshold is the part of the possible capacity from which on a device has all of it.
// Retransmitted blocks leave some of their subframe idle, a few percent of all.
const fullThreshold = 0.9

// maxBusyIdle is the part of a cell that is idle although others want all that the device leaves: control traffic and
// retransmissions come between.
const maxBusyIdle = 0.1

// sureErrors is by how many standard errors means differ surely.
const sureErrors = 2

// Estimate is the capacity that one device has now.
type Estimate struct {
	// Number is the subframe of the estimate.
	Number int64
	// Fair is C_f, the fair share of the device. Physical is C_p, its capacity if it also got all
	// idle resource blocks. Transport is C_t: Physical without retransmissions and overhead.
	// FairTransport is the same of Fair. All are in bits per second, summed over the active cells.
	Fair, Physical, Transport, FairTransport unit.Rate
	// Full reports that the device got nearly all that it could have, so that the queue is in the
	// cell.
	Full bool
	// Cells counts the active cells. Activated counts activations. Inactive reports that a cell is received that
	// could serve the device and does not.
	Cells, Activated int
	Inactive         bool
	// SelfStale reports that the device's RNTI is stale: its grants do not explain what arrives. The estimate
	// is wrong then. It is always false without CompareArrivals.
	SelfStale bool
	// Usage has the inputs of each active cell. Active reports which cells are active: only those
	// received in the last max(SilentAfter, window) subframes.
	Usage  [MaxCells]Usage
	Active [MaxCells]bool
	// Age counts the subframes since the last one received of each cell: MaxAge if there was none,
	// 0 if the cell is not listened to. It stands still while no cell is received: a caller that
	// adds rows must know the time of the last row.
	Age [MaxCells]int64
}

// MaxAge is the Age of a cell that was never received.
const MaxAge = math.MaxInt64

// cellState is one cell as seen by one device.
type cellState struct {
	window        *Window
	primary       bool
	active        bool
	received      bool
	lastReceived  int64 // number of the last subframe received
	lastGrant     int64 // number of the last subframe with a grant
	hasGrant      bool
	ownRate       float64 // last known R_w of own blocks
	ownRateNumber int64   // subframe of ownBitsPerPRB
	table         *CapacityTable
	// Decaying counts for the fit of p: own blocks, retransmitted ones, subframes in which all
	// blocks had sizes, and the bits of those.
	blocks, retransmitted, sized, bits float64
}

// Monitor estimates the capacity of one device from the rows of a Fusion. The first cell that is
// added is the primary one, which is always active.
type Monitor struct {
	// FitErrorRate makes p follow the observed retransmissions; otherwise it stays as given.
	FitErrorRate bool
	// Strict computes estimates as the paper does: C_p from what the device has now and its part of
	// the idle resource blocks, and no Full. Otherwise a device with less than an even part may
	// count on that part: one that asks for a little too little would lose it to one that asks for
	// more (docs/explanation/pbe.md). Strict goes with FilterByPRB.
	Strict bool
	// UserFilter selects which users share a cell. Ablations change it.
	UserFilter UserFilter

	cells     [MaxCells]*cellState
	self      RNTI
	check     *selfCheck // nil: what arrives is not compared
	window    int
	activated int
	last      int64
	pause     pause
}

// NewMonitor returns a Monitor without cells that fits p.
func NewMonitor() *Monitor { return &Monitor{FitErrorRate: true, window: 40} }

// AddCell adds a cell in which the device is called self, with the initial error rate p. It returns
// false if the ID is out of range or was added before.
func (m *Monitor) AddCell(c ID, self RNTI, p float64) bool {
	if c >= MaxCells || m.cells[c] != nil {
		return false
	}
	primary := true
	for _, o := range m.cells {
		primary = primary && o == nil
	}
	m.self = self
	m.cells[c] = &cellState{window: NewWindow(self), primary: primary, active: primary, table: NewCapacityTable(p)}
	return true
}

// SetSelf sets the device's RNTI in all cells, as each connection to the network gives a new one
// (one RNTI for all cells of a device, 36.300 section 8.1). The state of other users stays.
func (m *Monitor) SetSelf(self RNTI) {
	m.self, m.pause = self, pause{}
	m.check.startAnew()
	for _, o := range m.cells {
		if o != nil {
			o.window.changeSelf(self)
		}
	}
}

// SetErrorRate sets p of all cells, for instance when it is known from the signal.
func (m *Monitor) SetErrorRate(p float64) {
	for _, o := range m.cells {
		if o != nil {
			o.table = NewCapacityTable(p)
		}
	}
}

// SetWindow sets the averaging window from the round trip RTprop (section 4.2.1).
func (m *Monitor) SetWindow(rtprop time.Duration) {
	m.window = min(max(int(rtprop.Round(time.Millisecond)/time.Millisecond), 1), MaxWindow)
}

// Add adds one row. A row that is not after the last one restarts the count (see Fusion): windows
// are empty then, and secondary cells are inactive until their next grant.
func (m *Monitor) Add(r *Row) {
	again := r.Number <= m.last
	m.last = r.Number
	if again {
		m.pause = pause{}
	}
	granted := false
	for c, o := range m.cells {
		if o == nil {
			continue
		}
		if again {
			o.hasGrant, o.received = false, false
			o.ownRateNumber = r.Number - ownRateMemory - 1 // its age is unknown
		}
		if r.Received[c] {
			s := r.Cells[c]
			o.received, o.lastReceived = true, s.Number
			o.window.Add(s, m.window)
			granted = o.noteOwnBlocks(s, m.FitErrorRate) || granted
		}
		active := o.primary || o.hasGrant && r.Number-o.lastGrant <= ActiveFor
		if active && !o.active {
			m.activated++
		}
		o.active = active
	}
	m.noteRow(r.Number, granted)
	if m.check != nil {
		if self := m.check.compareRow(r, m.self); self != m.self {
			m.SetSelf(self)
		}
	}
}

// pause counts the rows since the last one with a grant to this device, and the blocks of the active cells in them.
type pause struct {
	lastOwn   int64 // row of that grant, 0: none
	rows      int64 // that were received
	idle, all int   // blocks
}

// noteRow notes a row. After an outage a grant begins the count since then anew.
func (m *Monitor) noteRow(number int64, granted bool) {
	p := &m.pause
	if !granted {
		received := false
		for _, o := range m.cells {
			if o != nil && o.active && o.received && o.lastReceived == number {
				received = true
				p.idle, p.all = p.idle+o.window.newestIdle(), p.all+int(o.window.prb)
			}
		}
		if received {
			p.rows++
		}
		return
	}
	length := number - p.lastOwn - 1
	if p.lastOwn > 0 && length >= outageSubframes && float64(p.rows) >= minReceived*float64(length) && 2*p.idle >= p.all {
		for _, o := range m.cells {
			if o != nil {
				o.window.outageEnd = number
			}
		}
	}
	*p = pause{lastOwn: number}
}

// noteOwnBlocks updates the state from the device's own grants in the subframe, and reports whether there were any.
func (o *cellState) noteOwnBlocks(s Subframe, fit bool) (granted bool) {
	t := o.window.newestShares()
	for _, h := range t {
		if h.user != o.window.self {
			continue
		}
		granted = true
		o.lastGrant, o.hasGrant = s.Number, true
		// Counts halve every 2·minFitBlocks blocks, so that p follows the signal.
		decay := 1 - float64(h.blocks)/(2.885*minFitBlocks)
		o.blocks = o.blocks*decay + float64(h.blocks)
		o.retransmitted = o.retransmitted*decay + float64(h.retransmitted)
		if h.sizedPRB > 0 {
			o.sized = o.sized*decay + 1
			o.bits = o.bits*decay + float64(h.sizedBits)
			o.ownRate, o.ownRateNumber = o.window.ownBitsPerPRB(), s.Number
		}
	}
	if fit && o.blocks >= minFitBlocks && o.sized > 0 {
		// The retransmitted part of all blocks had errors. The table treats the bits of a subframe
		// as one block; so does the fit.
		p := bitErrorRate(o.retransmitted/o.blocks, o.bits/o.sized)
		if math.Abs(p-o.table.p) > minFitChange*max(o.table.p, 1e-8) {
			o.table = NewCapacityTable(p)
		}
	}
	return granted
}

// estimateBitsPerPRB returns R_w: of own blocks, in the window or shortly before; else of other
// users that share the cell; else the last one of own blocks; 0 if nothing is known.
func (o *cellState) estimateBitsPerPRB(f Usage, now int64) float64 {
	if f.Rate > 0 {
		return f.Rate
	}
	if o.ownRate > 0 && (now-o.ownRateNumber <= ownRateMemory || f.OthersRate == 0) {
		return o.ownRate
	}
	return f.OthersRate
}

// Estimate returns the capacity as of the last row.
func (m *Monitor) Estimate() Estimate {
	e := Estimate{Number: m.last, Activated: m.activated, SelfStale: m.check.isStale()}
	var fair, physical, transport, fairTransport float64
	var long, since fullness
	for c, o := range m.cells {
		if o == nil {
			continue
		}
		e.Age[c] = MaxAge
		if o.received {
			e.Age[c] = m.last - o.lastReceived
		}
		isReceived := e.Age[c] <= int64(max(SilentAfter, m.window))
		if !o.active || !isReceived {
			e.Inactive = e.Inactive || isReceived
			continue
		}
		f := o.window.Usage(m.UserFilter)
		if f.RecentRate > 0 && !m.Strict {
			f.Rate = f.RecentRate
		}
		f.Rate = o.estimateBitsPerPRB(f, m.last)
		e.Active[c], e.Usage[c] = true, f
		e.Cells++
		n := float64(f.Users)
		cf := f.Rate * f.PRB / n
		even := max(f.OwnPRB, f.EvenPRB)
		if f.Users > 1 && f.IdlePRB < maxBusyIdle*f.PRB && f.OwnPRB <= f.EvenPRB+sureErrors*f.OwnError {
			even = min(f.EvenPRB, f.Long.Even+f.Long.Idle/n) // what it got above is chance
		}
		cp := f.Rate * (even + f.IdlePRB/n)
		long.addPart(f.Rate, f.Long, n)
		since.addPart(f.Rate, f.SinceOutage, n)
		if m.Strict {
			cp = f.Rate * (f.OwnPRB + f.IdlePRB/n)
		}
		fair += cf
		physical += cp
		transport += o.table.Transport(cp)
		fairTransport += o.table.Transport(cf)
	}
	e.Full = (long.isFull() || since.isFull()) && !m.Strict
	e.Fair, e.Physical, e.Transport, e.FairTransport = rateFromSubframe(fair), rateFromSubframe(physical),
		rateFromSubframe(transport),
		rateFromSubframe(fairTransport)
	return e
}

// fullness compares what a device had with what it could have had, in bits a subframe of all its cells.
type fullness struct{ had, could float64 }

// addPart adds its part of a cell with n users at a rate. What it had may be as much more as is sure.
func (x *fullness) addPart(rate float64, p PartOfCell, n float64) {
	x.had += rate * (p.Own + sureErrors*p.Error)
	x.could += rate * (max(p.Own, p.Even) + p.Idle/n)
}

// isFull reports whether it had nearly all.
func (x *fullness) isFull() bool { return x.had > fullThreshold*x.could }

// rateFromSubframe converts bits per subframe into bits per second.
func rateFromSubframe(bits float64) unit.Rate { return unit.Rate(math.Round(bits * 1000)) }
