// SPDX-License-Identifier: Apache-2.0

package cell

import "slices"

// Thresholds of section 4.2.1 of the paper. A user below them only exchanges control traffic: it
// appears in one subframe, or gets at most four resource blocks.
const (
	controlSubframes = 1
	controlPRB       = 4
)

// minSharedPart is the part of the cell that data users must have before their R_w represents data
// traffic. Control traffic passes the filter now and then, and is less.
const minSharedPart = 0.1

// MaxWindow is the longest window in subframes: a round trip of a second.
const MaxWindow = 1000

// share has the downlink grants of one user in one subframe.
type share struct {
	user          RNTI
	prb           uint16
	sizedPRB      uint16 // PRBs with known block sizes
	sizedBits     uint32 // in sizedPRB
	blocks        uint8
	retransmitted uint8 // how many of blocks are retransmissions; only for this device
}

// usageSum sums the shares of one or several users within the window.
type usageSum struct {
	subframes int
	prb       int
	sizedPRB  int
	sizedBits int64
}

func (s *usageSum) addSignedUsage(h share, sign int) {
	s.subframes += sign
	s.prb += sign * int(h.prb)
	s.sizedPRB += sign * int(h.sizedPRB)
	s.sizedBits += int64(sign) * int64(h.sizedBits)
}

// meanBitsPerPRB returns R_w: bits per resource block, 0 if no block had a size.
func (s usageSum) meanBitsPerPRB() float64 {
	if s.sizedPRB == 0 {
		return 0
	}
	return float64(s.sizedBits) / float64(s.sizedPRB)
}

// isDataUser reports whether the user counts as sharing the cell.
func (s usageSum) isDataUser() bool { return IsDataUser(s.subframes, s.prb) }

// IsDataUser is the user filter. It reports whether a user that got prb resource blocks in a number
// of subframes of a window shares the cell, and does not only exchange control traffic.
func IsDataUser(subframes, prb int) bool {
	return subframes > controlSubframes && prb > controlPRB*subframes
}

// slot is one subframe within the window.
type slot struct {
	number int64
	shares []share
	idle   uint16
}

// Window keeps the last subframes of one cell with the shares of their users. Subframes that were
// not received do not count.
type Window struct {
	// Unfiltered counts every user, as the ablation "no user filter" does.
	Unfiltered bool

	self  RNTI
	prb   uint8
	last  int64
	slots []slot // ring buffer: head is the oldest of n
	head  int
	n     int
	users map[RNTI]*usageSum
	idle  int
	// others is scratch space of Usage.
	others []int
	// lastNDI has the NDI of this device's blocks, by HARQ process and block: an equal NDI is a
	// retransmission.
	lastNDI [maxHARQ][2]ndiRecord
}

// ndiRecord is an NDI and the subframe in which it was received.
type ndiRecord struct {
	ndi, known bool
	number     int64
}

// NDIMemory is how many subframes an NDI is remembered: a retransmission follows 8 subframes later,
// or shortly after. An older equal NDI may belong to the block after next, if one was missed.
const NDIMemory = 12

// NewWindow returns an empty window of the cell in which this device is called self.
func NewWindow(self RNTI) *Window {
	return &Window{self: self, slots: make([]slot, MaxWindow), users: map[RNTI]*usageSum{}}
}

// changeSelf sets the RNTI of this device.
func (w *Window) changeSelf(self RNTI) {
	if self != w.self {
		w.self, w.lastNDI = self, [maxHARQ][2]ndiRecord{}
	}
}

// Add adds the next subframe and limits the window to the last length subframes, 1 to MaxWindow. A
// subframe that is not after the last one restarts the count and the window.
func (w *Window) Add(s Subframe, length int) {
	if s.Number <= w.last {
		for w.n > 0 {
			w.dropOldestSubframe()
		}
		w.lastNDI = [maxHARQ][2]ndiRecord{}
	}
	length = min(max(length, 1), MaxWindow)
	w.last, w.prb = s.Number, s.PRB
	w.evictUntil(s.Number - int64(length))
	if w.n == len(w.slots) {
		w.dropOldestSubframe()
	}
	t := &w.slots[(w.head+w.n)%len(w.slots)]
	w.n++
	t.number, t.shares = s.Number, t.shares[:0]
	used := 0
	for _, g := range s.Grants {
		if g.IsUplink() {
			continue
		}
		h := w.shareFromGrant(s.Number, g)
		used += int(h.prb)
		t.shares = mergeGrantShare(t.shares, h)
	}
	t.idle = uint16(max(0, int(s.PRB)-used))
	w.idle += int(t.idle)
	for _, h := range t.shares {
		u := w.users[h.user]
		if u == nil {
			u = &usageSum{}
			w.users[h.user] = u
		}
		u.addSignedUsage(h, 1)
	}
}

// shareFromGrant converts a grant into a share, and detects retransmissions to this device.
func (w *Window) shareFromGrant(now int64, g Grant) share {
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

// mergeGrantShare adds a grant to the share of the same user in one subframe.
func mergeGrantShare(list []share, h share) []share {
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

// evictUntil drops all subframes up to number.
func (w *Window) evictUntil(number int64) {
	for w.n > 0 && w.slots[w.head].number <= number {
		w.dropOldestSubframe()
	}
}

// dropOldestSubframe removes the oldest subframe from the sums of the window.
func (w *Window) dropOldestSubframe() {
	t := &w.slots[w.head]
	for _, h := range t.shares {
		u := w.users[h.user]
		u.addSignedUsage(h, -1)
		if u.subframes == 0 {
			delete(w.users, h.user)
		}
	}
	w.idle -= int(t.idle)
	w.head = (w.head + 1) % len(w.slots)
	w.n--
}

// Usage has the inputs for the capacity of one cell, each a mean over the received subframes of the
// window.
type Usage struct {
	// Received counts those subframes.
	Received int
	// PRB is the width of the cell, OwnPRB the part granted to this device (P_a), IdlePRB the free
	// part (P_idle).
	PRB, OwnPRB, IdlePRB float64
	// EvenPRB is the device's part if all users of the cell shared alike (max-min: users with less
	// than an even part keep theirs).
	EvenPRB float64
	// Users counts the users that share the cell, including this device (N, at least 1).
	Users int
	// AllUsers counts all users with a downlink grant.
	AllUsers int
	// Rate is R_w in bits per PRB, of own grants, 0 if there were none. In an Estimate it is the
	// R_w that was used.
	Rate float64
	// OthersRate is the R_w of the other users that share the cell, 0 while they have less than a
	// tenth of it: control users, with few bits per block, do not represent data.
	OthersRate float64
}

// Usage returns the means over the current window.
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
		f.Rate = own.meanBitsPerPRB()
		left = own.prb
	}
	f.EvenPRB = evenShareLevel(left, others) / float64(w.n)
	if float64(data.prb) >= minSharedPart*f.PRB*float64(w.n) {
		f.OthersRate = data.meanBitsPerPRB()
	}
	return f
}

// evenShareLevel returns the level to which own rises if all is shared alike. It sorts others.
func evenShareLevel(own int, others []int) float64 {
	slices.Sort(others)
	remaining := own
	for _, x := range others {
		remaining += x
	}
	for i, x := range others {
		if n := len(others) - i + 1; x*n > remaining {
			return float64(remaining) / float64(n)
		}
		remaining -= x
	}
	return float64(remaining)
}

// newestShares returns the shares of the last subframe.
func (w *Window) newestShares() []share {
	if w.n == 0 {
		return nil
	}
	return w.slots[(w.head+w.n-1)%len(w.slots)].shares
}

// ownBitsPerPRB returns R_w of the device's own blocks within the window, 0 if none had a size.
func (w *Window) ownBitsPerPRB() float64 {
	if own := w.users[w.self]; own != nil {
		return own.meanBitsPerPRB()
	}
	return 0
}
