package cell

import "slices"

// Specification: thresholds of section 4.2.1 of the paper, below which a user
// only exchanges control traffic: it is heard in one subframe, or is given four
// resource blocks at most.
const (
	controlSubframes = 1
	controlPRB       = 4
)

// sharedPart is the part of the cell that data users must have for their R_w to tell
// what it gives to data. Control traffic passes the filter now and then, and is less.
const sharedPart = 0.1

// MaxWindow is the longest window in subframes: a round trip of a second.
const MaxWindow = 1000

// share is what one user was given in one subframe, downlink.
type share struct {
	user   RNTI
	prb    uint16
	sized  uint16 // PRBs whose blocks name their sizes
	bits   uint32 // of those
	blocks uint8
	again  uint8 // blocks of them that are retransmissions, of this device
}

// sum is what one user, or several, were given within the window.
type sum struct {
	subframes int
	prb       int
	sized     int
	bits      int64
}

func (s *sum) add(h share, sign int) {
	s.subframes += sign
	s.prb += sign * int(h.prb)
	s.sized += sign * int(h.sized)
	s.bits += int64(sign) * int64(h.bits)
}

// rate is R_w: bits of one resource block, 0 where no block named its size.
func (s sum) rate() float64 {
	if s.sized == 0 {
		return 0
	}
	return float64(s.bits) / float64(s.sized)
}

// data tells whether a user counts among those who share the cell.
func (s sum) data() bool { return Data(s.subframes, s.prb) }

// Data is the user filter: whether who was given so many resource blocks, in so many
// subframes of a window, shares the cell, and does not only exchange control traffic.
func Data(subframes, prb int) bool {
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
	users map[RNTI]*sum
	idle  int
	// others is for Facts.
	others []int
	// process has the NDI of this device's blocks, by HARQ process and block: an
	// equal one is a retransmission.
	process [maxHARQ][2]heard
}

// heard is an NDI and the subframe of it.
type heard struct {
	ndi, ever bool
	at        int64
}

// ForgetNDI is how many subframes an NDI is remembered: a block comes again 8
// subframes later, or a little after. An equal one that is older may be of the
// next block but one, if one was missed.
const ForgetNDI = 12

// NewWindow is for the cell where this device is self.
func NewWindow(self RNTI) *Window {
	return &Window{self: self, slots: make([]slot, MaxWindow), users: map[RNTI]*sum{}}
}

// setSelf changes who this device is.
func (w *Window) setSelf(self RNTI) {
	if self != w.self {
		w.self, w.process = self, [maxHARQ][2]heard{}
	}
}

// Add takes the next subframe and lets the window be the last length of them,
// 1 to MaxWindow. With one that is not after the last the count has begun again,
// and so does the window.
func (w *Window) Add(s Subframe, length int) {
	if s.Number <= w.last {
		for w.n > 0 {
			w.drop()
		}
		w.process = [maxHARQ][2]heard{}
	}
	length = min(max(length, 1), MaxWindow)
	w.last, w.prb = s.Number, s.PRB
	w.evict(s.Number - int64(length))
	if w.n == len(w.slots) {
		w.drop()
	}
	t := &w.slots[(w.head+w.n)%len(w.slots)]
	w.n++
	t.number, t.shares = s.Number, t.shares[:0]
	used := 0
	for _, g := range s.Grants {
		if g.Uplink() {
			continue
		}
		h := w.share(s.Number, g)
		used += int(h.prb)
		t.shares = merge(t.shares, h)
	}
	t.idle = uint16(max(0, int(s.PRB)-used))
	w.idle += int(t.idle)
	for _, h := range t.shares {
		u := w.users[h.user]
		if u == nil {
			u = &sum{}
			w.users[h.user] = u
		}
		u.add(h, 1)
	}
}

// share is what grant g gives to its user, and, of this device, whether again.
func (w *Window) share(now int64, g Grant) share {
	h := share{user: g.RNTI, prb: uint16(g.PRB)}
	sized := g.N > 0
	for i, b := range g.Blocks[:g.N] {
		if b.Disabled() {
			continue
		}
		h.blocks++
		if g.RNTI == w.self {
			p := &w.process[g.HARQ][i]
			if p.ever && p.ndi == b.NDI && now-p.at <= ForgetNDI {
				h.again++
			}
			*p = heard{b.NDI, true, now}
		}
		if !b.Sized() {
			sized = false
		}
		h.bits += uint32(b.Size)
	}
	if sized && h.blocks > 0 {
		h.sized = h.prb
	} else {
		h.bits = 0
	}
	return h
}

// merge joins grants of one user in one subframe.
func merge(list []share, h share) []share {
	for i := range list {
		if list[i].user == h.user {
			l := &list[i]
			l.prb, l.sized, l.bits = l.prb+h.prb, l.sized+h.sized, l.bits+h.bits
			l.blocks, l.again = l.blocks+h.blocks, l.again+h.again
			return list
		}
	}
	return append(list, h)
}

// evict drops what is not after number.
func (w *Window) evict(number int64) {
	for w.n > 0 && w.slots[w.head].number <= number {
		w.drop()
	}
}

func (w *Window) drop() {
	t := &w.slots[w.head]
	for _, h := range t.shares {
		u := w.users[h.user]
		u.add(h, -1)
		if u.subframes == 0 {
			delete(w.users, h.user)
		}
	}
	w.idle -= int(t.idle)
	w.head = (w.head + 1) % len(w.slots)
	w.n--
}

// Facts are the inputs of the capacity of one cell, each a mean over the
// subframes of the window that were heard.
type Facts struct {
	// Heard counts those subframes.
	Heard int
	// PRB is the width of the cell, Own what this device was given (P_a), Idle
	// what nobody was given (P_idle).
	PRB, Own, Idle float64
	// Even is what the device would have of what those who share the cell have, if
	// it were shared alike (max-min: who has less than that keeps what he has).
	Even float64
	// Users counts those who share the cell, this device among them (N, at least 1).
	Users int
	// All counts everybody who was given anything downlink.
	All int
	// Rate is R_w in bits per PRB, of own grants: 0 if there were none. In an Estimate
	// it is the one that counted.
	Rate float64
	// Shared is the same of the others who share the cell, 0 while they have less than
	// a tenth of it: control users, who send few bits a block, say nothing of data.
	Shared float64
}

// Facts looks at the window as it is now.
func (w *Window) Facts() Facts {
	f := Facts{Heard: w.n, PRB: float64(w.prb), Users: 1}
	if w.n == 0 {
		return f
	}
	f.Idle = float64(w.idle) / float64(w.n)
	others := w.others[:0]
	var data sum
	for r, u := range w.users {
		if !r.User() {
			continue
		}
		f.All++
		if r != w.self && (w.Unfiltered || u.data()) {
			f.Users++
			others = append(others, u.prb)
			data.prb += u.prb
			data.sized += u.sized
			data.bits += u.bits
		}
	}
	w.others = others
	left := 0
	if own := w.users[w.self]; own != nil {
		f.Own = float64(own.prb) / float64(w.n)
		f.Rate = own.rate()
		left = own.prb
	}
	f.Even = even(left, others) / float64(w.n)
	if float64(data.prb) >= sharedPart*f.PRB*float64(w.n) {
		f.Shared = data.rate()
	}
	return f
}

// even is the level to which own rises if all is shared alike. It sorts others.
func even(own int, others []int) float64 {
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

// newest is what was given in the last subframe.
func (w *Window) newest() []share {
	if w.n == 0 {
		return nil
	}
	return w.slots[(w.head+w.n-1)%len(w.slots)].shares
}

// ownRate is R_w of the device's own blocks within the window, 0 if none told its
// size.
func (w *Window) ownRate() float64 {
	if own := w.users[w.self]; own != nil {
		return own.rate()
	}
	return 0
}
