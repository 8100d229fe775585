package cell

import (
	"math"
	"time"

	"mpbond/base/unit"
)

// ActiveFor is how many subframes a secondary cell counts as activated after the
// last grant there: networks deactivate one after about a second without
// (section 3 of the paper).
const ActiveFor = 1000

// SilentAfter is after how many subframes at least a cell that nothing was heard of counts
// for nothing: what it gave then says little about now.
const SilentAfter = 100

// minFitBlocks is the number of own blocks from which on p is fitted to what was
// retransmitted, minFitChange how much p must differ for a new table.
const (
	minFitBlocks = 200
	minFitChange = 0.2
)

// ownRateMemory is for how many subframes R_w of the device's own blocks is taken for what
// it would be given now, rather than what others are. Fading is over within tens of
// milliseconds; what stays is the mean, which others say nothing of. It changes with
// the shadows of buildings, every 50 m (36.814, annex A): 36 s on foot, 3.6 s in a car at
// 50 km/h.
const ownRateMemory = 4000

// fullThreshold is the part of what a device could have from which on it has all. Blocks
// that come again leave some of their subframe idle, a few percent of all.
const fullThreshold = 0.9

// Estimate is the capacity that one device has now.
type Estimate struct {
	// Number is the subframe it is of.
	Number int64
	// Fair is C_f, the fair share of the device, Physical is C_p, what it could
	// have with all that is idle now. Transport is C_t, Physical without
	// retransmissions and overhead, and FairTransport the same of Fair. All in
	// bits per second, over all cells that are active.
	Fair, Physical, Transport, FairTransport unit.Rate
	// Full says that the device was given nearly all that it could have: what waits
	// does so in the cell.
	Full bool
	// Cells counts the active cells, Activated how often one was added.
	Cells, Activated int
	// Usage are those of each active cell, Active says which are: of those only
	// that were heard in the last max(Silent, window) subframes.
	Usage  [MaxCells]Usage
	Active [MaxCells]bool
	// Age counts the subframes since the last that was heard of each cell, MaxAge if none
	// was, 0 if it is not listened to. While no cell is heard none pass: whoever adds rows
	// must know how long ago the last one was.
	Age [MaxCells]int64
}

// MaxAge is the Age of a cell that was never heard.
const MaxAge = math.MaxInt64

// cellState is one cell as one device sees it.
type cellState struct {
	window        *Window
	primary       bool
	active        bool
	received      bool
	lastReceived  int64 // the last subframe heard
	lastGrant     int64 // number of the last subframe with a grant
	hasGrant      bool
	ownRate       float64 // R_w of own blocks, the last that was known
	ownRateNumber int64   // the subframe that it is of
	table         *CapacityTable
	// Decaying counts for the fit of p: own blocks, those that came again,
	// subframes whose blocks all told their size, and the bits of those.
	blocks, retransmitted, sized, bits float64
}

// Monitor estimates the capacity of one device from the rows of a Fusion. The
// first cell that is added is the primary one, which is always active.
type Monitor struct {
	// FitErrorRate lets p follow the retransmissions seen; else it is what was given.
	FitErrorRate bool
	// Strict has estimates as the paper has them: C_p from what the device has now
	// and its part of what is idle, and no Full. Ours lets who has less than an even
	// part count on that: who asks for a little too little would else lose his part
	// to who asks for more (docs/explanation/pbe.md).
	Strict bool

	cells     [MaxCells]*cellState
	window    int
	activated int
	last      int64
}

// NewMonitor has no cells yet, and fits p.
func NewMonitor() *Monitor { return &Monitor{FitErrorRate: true, window: 40} }

// AddCell adds a cell where the device is self, with p to begin with. It is false
// if there is no such cell or it is there already.
func (m *Monitor) AddCell(c ID, self RNTI, p float64) bool {
	if c >= MaxCells || m.cells[c] != nil {
		return false
	}
	primary := true
	for _, o := range m.cells {
		primary = primary && o == nil
	}
	m.cells[c] = &cellState{window: NewWindow(self), primary: primary, active: primary, table: NewCapacityTable(p)}
	return true
}

// SetSelf says what the device is called in all cells from now on, as it is told
// with each connection (one name for all cells of a device, 36.300 section 8.1). What
// was heard of others stays.
func (m *Monitor) SetSelf(self RNTI) {
	for _, o := range m.cells {
		if o != nil {
			o.window.changeSelf(self)
		}
	}
}

// SetErrorRate sets p of all cells, as when it is known from the signal.
func (m *Monitor) SetErrorRate(p float64) {
	for _, o := range m.cells {
		if o != nil {
			o.table = NewCapacityTable(p)
		}
	}
}

// DisableUserFilter switches the user filter of all cells off (an ablation).
func (m *Monitor) DisableUserFilter() {
	for _, o := range m.cells {
		if o != nil {
			o.window.Unfiltered = true
		}
	}
}

// SetWindow says over how many subframes is averaged from now on: RTprop
// (section 4.2.1).
func (m *Monitor) SetWindow(rtprop time.Duration) {
	m.window = min(max(int(rtprop.Round(time.Millisecond)/time.Millisecond), 1), MaxWindow)
}

// Add takes one row. With one that is not after the last the count has begun
// again (see Fusion): windows are empty then, and secondary cells inactive until
// a grant is heard there.
func (m *Monitor) Add(r *Row) {
	again := r.Number <= m.last
	m.last = r.Number
	for c, o := range m.cells {
		if o == nil {
			continue
		}
		if again {
			o.hasGrant, o.received = false, false
			o.ownRateNumber = r.Number - ownRateMemory - 1 // how long ago nobody knows
		}
		if r.Received[c] {
			s := r.Cells[c]
			o.received, o.lastReceived = true, s.Number
			o.window.Add(s, m.window)
			o.noteOwnBlocks(s, m.FitErrorRate)
		}
		active := o.primary || o.hasGrant && r.Number-o.lastGrant <= ActiveFor
		if active && !o.active {
			m.activated++
		}
		o.active = active
	}
}

// noteOwnBlocks notes what the subframe says about the device itself.
func (o *cellState) noteOwnBlocks(s Subframe, fit bool) {
	t := o.window.newestShares()
	for _, h := range t {
		if h.user != o.window.self {
			continue
		}
		o.lastGrant, o.hasGrant = s.Number, true
		// Halved every 2·minFitBlocks blocks, so that p follows the signal.
		decay := 1 - float64(h.blocks)/(2.885*minFitBlocks)
		o.blocks = o.blocks*decay + float64(h.blocks)
		o.retransmitted = o.retransmitted*decay + float64(h.retransmitted)
		if h.sizedPRB > 0 {
			o.sized = o.sized*decay + 1
			o.bits = o.bits*decay + float64(h.sizedBits)
			o.ownRate, o.ownRateNumber = o.window.ownRate(), s.Number
		}
	}
	if fit && o.blocks >= minFitBlocks && o.sized > 0 {
		// Of blocks sent, new and again, a part was wrong: those that came again.
		// The table takes the bits of a subframe for one block; so does the fit.
		p := bitErrorRate(o.retransmitted/o.blocks, o.bits/o.sized)
		if math.Abs(p-o.table.p) > minFitChange*max(o.table.p, 1e-8) {
			o.table = NewCapacityTable(p)
		}
	}
}

// bitsPerPRB is R_w: of own blocks, in the window or not long before; else of others who
// share the cell; else the last of own blocks; 0 if nothing is known.
func (o *cellState) bitsPerPRB(f Usage, now int64) float64 {
	if f.Rate > 0 {
		return f.Rate
	}
	if o.ownRate > 0 && (now-o.ownRateNumber <= ownRateMemory || f.OthersRate == 0) {
		return o.ownRate
	}
	return f.OthersRate
}

// Estimate is the capacity as of the last row.
func (m *Monitor) Estimate() Estimate {
	e := Estimate{Number: m.last, Activated: m.activated}
	var fair, physical, transport, fairTransport, had, could float64
	for c, o := range m.cells {
		if o == nil {
			continue
		}
		e.Age[c] = MaxAge
		if o.received {
			e.Age[c] = m.last - o.lastReceived
		}
		if !o.active || e.Age[c] > int64(max(SilentAfter, m.window)) {
			continue
		}
		f := o.window.Usage()
		f.Rate = o.bitsPerPRB(f, m.last)
		e.Active[c], e.Usage[c] = true, f
		e.Cells++
		n := float64(f.Users)
		cf := f.Rate * f.PRB / n
		even := max(f.OwnPRB, f.EvenPRB)
		cp := f.Rate * (even + f.IdlePRB/n)
		had += f.Rate * f.OwnPRB
		could += cp
		if m.Strict {
			cp = f.Rate * (f.OwnPRB + f.IdlePRB/n)
		}
		fair += cf
		physical += cp
		transport += o.table.Transport(cp)
		fairTransport += o.table.Transport(cf)
	}
	e.Full = had > fullThreshold*could && !m.Strict
	e.Fair, e.Physical, e.Transport, e.FairTransport = perSecond(fair), perSecond(physical), perSecond(transport), perSecond(fairTransport)
	return e
}

// perSecond turns bits per subframe into bits per second.
func perSecond(bits float64) unit.Rate { return unit.Rate(math.Round(bits * 1000)) }
