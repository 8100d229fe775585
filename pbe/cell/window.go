package cell

import "slices"

// Specification: thresholds of section 4.2.1 of the paper, below which a user
// only exchanges control traffic: it is heard in one subframe, or is given four
// resource blocks at most.
const (
	controlSubframes = 1
	controlPRB       = 4
)

// minSharedPart is the part of the cell that data users must have for their R_w to tell
// what it gives to data. Control traffic passes the filter now and then, and is less.
const minSharedPart = 0.1

// MaxWindow is the longest window in subframes: a round trip of a second.
const MaxWindow = 1000

// share is what one user was given in one subframe, downlink.
type share struct {
	user          RNTI
	prb           uint16
	sizedPRB      uint16 // PRBs whose blocks name their sizes
	sizedBits     uint32 // of those
	blocks        uint8
	retransmitted uint8 // blocks of them that are retransmissions, of this device
}

// usageSum is what one user, or several, were given within the window.
type usageSum struct {
	subframes int
	prb       int
	sizedPRB  int
	sizedBits int64
}

func (s *usageSum) addShare(h share, sign int) {
	s.subframes += sign
	s.prb += sign * int(h.prb)
	s.sizedPRB += sign * int(h.sizedPRB)
	s.sizedBits += int64(sign) * int64(h.sizedBits)
}

// bitsPerPRB is R_w: bits of one resource block, 0 where no block named its size.
func (s usageSum) bitsPerPRB() float64 {
	if s.sizedPRB == 0 {
		return 0
	}
	return float64(s.sizedBits) / float64(s.sizedPRB)
}

// isDataUser tells whether a user counts among those who share the cell.
func (s usageSum) isDataUser() bool { return IsDataUser(s.subframes, s.prb) }

// IsDataUser is the user filter: whether who was given so many resource blocks, in so many
// subframes of a window, shares the cell, and does not only exchange control traffic.
func IsDataUser(subframes, prb int) bool {
	return subframes > controlSubframes && prb > controlPRB*subframes
}

// slot is one subframe within the window.
type slot struct {
	number int64
	shares []share
	idle   uint16
}

// Window is what is known of one cell: its last subframes and who used them.
// Subframes that were not heard count for nothing.
type Window struct {
	// Unfiltered counts every user who is heard, as the ablation "no user
	// filter" does.
	Unfiltered bool

	self  RNTI
	prb   uint8
	last  int64
	slots []slot // ring: head is the oldest of n
	head  int
	n     int
	users map[RNTI]*usageSum
	idle  int
	// others is for Facts.
	others []int
	// lastNDI has the NDI of this device's blocks, by HARQ process and block: an
	// equal one is a retransmission.
	lastNDI [maxHARQ][2]ndiRecord
}

// ndiRecord is an NDI and the subframe of it.
type ndiRecord struct {
	ndi, known bool
	number     int64
}

// NDIMemory is how many subframes an NDI is remembered: a block comes again 8
// subframes later, or a little after. An equal one that is older may be of the
// next block but one, if one was missed.
const NDIMemory = 12

// NewWindow is for the cell where this device is self.
func NewWindow(self RNTI) *Window {
	return &Window{self: self, slots: make([]slot, MaxWindow), users: map[RNTI]*usageSum{}}
}

// changeSelf changes who this device is.
func (w *Window) changeSelf(self RNTI) {
	if self != w.self {
		w.self, w.lastNDI = self, [maxHARQ][2]ndiRecord{}
	}
}

// Add takes the next subframe and lets the window be the last length of them,
// 1 to MaxWindow. With one that is not after the last the count has begun again,
// and so does the window.
func (w *Window) Add(s Subframe, length int) {
	if s.Number <= w.last {
		for w.n > 0 {
			w.dropOldest()
		}
		w.lastNDI = [maxHARQ][2]ndiRecord{}
	}
	length = min(max(length, 1), MaxWindow)
	w.last, w.prb = s.Number, s.PRB
	w.evictUntil(s.Number - int64(length))
	if w.n == len(w.slots) {
		w.dropOldest()
	}
	t := &w.slots[(w.head+w.n)%len(w.slots)]
	w.n++
	t.number, t.shares = s.Number, t.shares[:0]
	used := 0
	for _, g := range s.Grants {
		if g.IsUplink() {
			continue
		}
		h := w.newShare(s.Number, g)
		used += int(h.prb)
		t.shares = mergeShare(t.shares, h)
	}
	t.idle = uint16(max(0, int(s.PRB)-used))
	w.idle += int(t.idle)
	for _, h := range t.shares {
		u := w.users[h.user]
		if u == nil {
			u = &usageSum{}
			w.users[h.user] = u
		}
		u.addShare(h, 1)
	}
}

// newShare is what grant g gives to its user, and, of this device, whether again.
func (w *Window) newShare(now int64, g Grant) share {
	h := share{user: g.RNTI, prb: uint16(g.PRB)}
	sized := g.N > 0
	for i, b := range g.Blocks[:g.N] {
		if b.IsDisabled() {
			continue
		}
		h.blocks++
		if g.RNTI == w.self {
			p := &w.lastNDI[g.HARQ][i]
			if p.known && p.ndi == b.NDI && now-p.number <= NDIMemory {
				h.retransmitted++
			}
			*p = ndiRecord{b.NDI, true, now}
		}
		if !b.HasSize() {
			sized = false
		}
		h.sizedBits += uint32(b.Size)
	}
	if sized && h.blocks > 0 {
		h.sizedPRB = h.prb
	} else {
		h.sizedBits = 0
	}
	return h
}

// mergeShare joins grants of one user in one subframe.
func mergeShare(list []share, h share) []share {
	for i := range list {
		if list[i].user == h.user {
			l := &list[i]
			l.prb, l.sizedPRB, l.sizedBits = l.prb+h.prb, l.sizedPRB+h.sizedPRB, l.sizedBits+h.sizedBits
			l.blocks, l.retransmitted = l.blocks+h.blocks, l.retransmitted+h.retransmitted
			return list
		}
	}
	return append(list, h)
}

// evictUntil drops what is not after number.
func (w *Window) evictUntil(number int64) {
	for w.n > 0 && w.slots[w.head].number <= number {
		w.dropOldest()
	}
}

func (w *Window) dropOldest() {
	t := &w.slots[w.head]
	for _, h := range t.shares {
		u := w.users[h.user]
		u.addShare(h, -1)
		if u.subframes == 0 {
			delete(w.users, h.user)
		}
	}
	w.idle -= int(t.idle)
	w.head = (w.head + 1) % len(w.slots)
	w.n--
}

// Usage are the inputs of the capacity of one cell, each a mean over the
// subframes of the window that were heard.
type Usage struct {
	// Received counts those subframes.
	Received int
	// PRB is the width of the cell, Own what this device was given (P_a), Idle
	// what nobody was given (P_idle).
	PRB, OwnPRB, IdlePRB float64
	// EvenPRB is what the device would have of what those who share the cell have, if
	// it were shared alike (max-min: who has less than that keeps what he has).
	EvenPRB float64
	// Users counts those who share the cell, this device among them (N, at least 1).
	Users int
	// AllUsers counts everybody who was given anything downlink.
	AllUsers int
	// Rate is R_w in bits per PRB, of own grants: 0 if there were none. In an Estimate
	// it is the one that counted.
	Rate float64
	// OthersRate is the same of the others who share the cell, 0 while they have less than
	// a tenth of it: control users, who send few bits a block, say nothing of data.
	OthersRate float64
}

// Usage looks at the window as it is now.
func (w *Window) Usage() Usage {
	f := Usage{Received: w.n, PRB: float64(w.prb), Users: 1}
	if w.n == 0 {
		return f
	}
	f.IdlePRB = float64(w.idle) / float64(w.n)
	others := w.others[:0]
	var data usageSum
	for r, u := range w.users {
		if !r.IsUser() {
			continue
		}
		f.AllUsers++
		if r != w.self && (w.Unfiltered || u.isDataUser()) {
			f.Users++
			others = append(others, u.prb)
			data.prb += u.prb
			data.sizedPRB += u.sizedPRB
			data.sizedBits += u.sizedBits
		}
	}
	w.others = others
	left := 0
	if own := w.users[w.self]; own != nil {
		f.OwnPRB = float64(own.prb) / float64(w.n)
		f.Rate = own.bitsPerPRB()
		left = own.prb
	}
	f.EvenPRB = evenShare(left, others) / float64(w.n)
	if float64(data.prb) >= minSharedPart*f.PRB*float64(w.n) {
		f.OthersRate = data.bitsPerPRB()
	}
	return f
}

// evenShare is the level to which own rises if all is shared alike. It sorts others.
func evenShare(own int, others []int) float64 {
	slices.Sort(others)
	all := own
	for _, x := range others {
		all += x
	}
	for i, x := range others {
		if n := len(others) - i + 1; x*n > all {
			return float64(all) / float64(n)
		}
		all -= x
	}
	return float64(all)
}

// newestShares is what was given in the last subframe.
func (w *Window) newestShares() []share {
	if w.n == 0 {
		return nil
	}
	return w.slots[(w.head+w.n-1)%len(w.slots)].shares
}

// ownRate is R_w of the device's own blocks within the window, 0 if none told its
// size.
func (w *Window) ownRate() float64 {
	if own := w.users[w.self]; own != nil {
		return own.bitsPerPRB()
	}
	return 0
}
