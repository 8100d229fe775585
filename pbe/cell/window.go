// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"cmp"
	"math"
	"slices"
)

// UserFilter selects the users that share a cell. Others only exchange control traffic.
type UserFilter uint8

const (
	// FilterByShare counts users who got at least a quarter of what this device would get if it always had data and
	// each other user kept what it has, up to an even part: within the window, or within the last activeWindow
	// subframes. Each also got something in more than one subframe. So it holds in cells of any width, with any
	// number of users.
	FilterByShare UserFilter = iota
	// FilterByPRB is that of the paper (section 4.2.1): users who appear in more than one subframe of the
	// window, with more than four resource blocks in each, on average. Users of narrow or crowded cells get less.
	FilterByPRB
	// CountAllUsers counts everybody.
	CountAllUsers
)

// Thresholds of FilterByPRB.
const (
	controlSubframes = 1
	controlPRB       = 4
)

// activeWindow is how many subframes show who shares a cell: in a crowded one, users are not served in each
// round trip. minEvenPart is the part of an even share that counts.
const (
	activeWindow = 200
	minEvenPart  = 0.25
	// binSubframes is the time whose means are compared for their deviation: fading is over within tens of
	// milliseconds.
	binSubframes = 20
	// A device without a grant in the oldest beginBins of them has begun since, most likely.
	beginBins = 3
)

// rateSubframes is the time of Usage.RecentRate: signals change within a round trip, and one of retransmissions takes 8
// subframes.
const rateSubframes = 10

// rateChange is the relative change of R_w that shows another signal: steps of CQI are larger, and differences that
// follow from the sizes of all but the smallest grants are less (36.213 tables 7.1.7.2.1-1 and 7.2.3-1).
const rateChange = 0.05

// minSinceOutage is how many subframes since an outage say something.
const minSinceOutage = 3

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

// IsDataUser is FilterByPRB. It reports whether a user that got prb resource blocks in a number
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

// userSums are the sums of one user.
type userSums struct {
	window  usageSum // within the window
	active  usageSum // of all slots
	since   int      // PRB since the last outage, while partSinceOutage runs
	lastNum int64    // number of its last subframe
}

// Window keeps the last subframes of one cell with the shares of their users. Subframes that were
// not received do not count.
type Window struct {
	self  RNTI
	prb   uint8
	last  int64
	slots []slot // ring buffer: head is the oldest of n
	head  int
	n     int
	older int // how many of the oldest slots are before the window
	users map[RNTI]*userSums
	idle  int
	// longIdle is the same over all slots.
	longIdle int
	// outageEnd is the first subframe after the last outage of the device, 0 if there was none.
	outageEnd int64
	// others and parts are scratch space of Usage.
	others []otherUser
	parts  []int
	// lastNDI has the NDI of this device's blocks, by HARQ process and block: an equal NDI is a
	// retransmission.
	lastNDI [maxHARQ][2]ndiRecord
}

// otherUser is another user of the cell that may share it.
type otherUser struct {
	sums *userSums
	part float64 // of the cell
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
	return &Window{self: self, slots: make([]slot, MaxWindow), users: map[RNTI]*userSums{}}
}

// changeSelf sets the RNTI of this device.
func (w *Window) changeSelf(self RNTI) {
	if self != w.self {
		w.self, w.lastNDI, w.outageEnd = self, [maxHARQ][2]ndiRecord{}, 0
	}
}

// Add adds the next subframe and limits the window to the last length subframes, 1 to MaxWindow. A
// subframe that is not after the last one restarts the count and the window.
func (w *Window) Add(s Subframe, length int) {
	if s.Number <= w.last {
		for w.n > 0 {
			w.dropOldestSubframe()
		}
		w.lastNDI, w.outageEnd = [maxHARQ][2]ndiRecord{}, 0
	}
	length = min(max(length, 1), MaxWindow)
	w.last, w.prb = s.Number, s.PRB
	w.limitTo(s.Number - int64(length))
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
	w.longIdle += int(t.idle)
	for _, h := range t.shares {
		u := w.users[h.user]
		if u == nil {
			u = &userSums{}
			w.users[h.user] = u
		}
		u.window.addSignedUsage(h, 1)
		u.active.addSignedUsage(h, 1)
		u.lastNum = s.Number
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

// limitTo removes the subframes up to number from the window, and drops those that are not among the last
// activeWindow either.
func (w *Window) limitTo(number int64) {
	for w.older < w.n && w.slots[(w.head+w.older)%len(w.slots)].number <= number {
		w.leaveOldestSubframe()
	}
	for w.older > 0 && w.slots[w.head].number <= w.last-activeWindow {
		w.dropOldestSubframe()
	}
}

// leaveOldestSubframe removes the oldest subframe of the window from its sums.
func (w *Window) leaveOldestSubframe() {
	t := &w.slots[(w.head+w.older)%len(w.slots)]
	for _, h := range t.shares {
		w.users[h.user].window.addSignedUsage(h, -1)
	}
	w.idle -= int(t.idle)
	w.older++
}

// dropOldestSubframe forgets the oldest subframe.
func (w *Window) dropOldestSubframe() {
	if w.older == 0 {
		w.leaveOldestSubframe()
	}
	for _, h := range w.slots[w.head].shares {
		u := w.users[h.user]
		u.active.addSignedUsage(h, -1)
		if u.active.subframes == 0 {
			delete(w.users, h.user)
		}
	}
	w.longIdle -= int(w.slots[w.head].idle)
	w.head = (w.head + 1) % len(w.slots)
	w.n, w.older = w.n-1, w.older-1
}

// received returns the number of subframes of the window.
func (w *Window) received() int { return w.n - w.older }

// PartOfCell is what a device had of a cell, and could have had, in PRB a subframe.
type PartOfCell struct {
	Own, Even, Idle float64 // as in Usage
	Error           float64 // standard error of Own
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
	// OwnError is the standard error of OwnPRB as a mean of a longer time: schedulers that prefer users while their
	// signal is good serve them by fits and starts.
	OwnError float64
	// Long has the means over the last activeWindow subframes, or the window if that is longer. Until the device has had
	// grants for so long they are those of the window. SinceOutage has those since the last outage of the device if that
	// was within them; else it is the same as Long.
	Long, SinceOutage PartOfCell
	// Users counts the users that share the cell, including this device (N, at least 1).
	Users int
	// AllUsers counts all users with a downlink grant.
	AllUsers int
	// Rate is R_w in bits per PRB, of own grants, 0 if there were none. RecentRate is that of the last rateSubframes if
	// it shows another signal, else 0. In an Estimate, Rate is the R_w that was used.
	Rate, RecentRate float64
	// OthersRate is the R_w of the other users that share the cell, 0 while they have less than a
	// tenth of it: control users, with few bits per block, do not represent data.
	OthersRate float64
}

// Usage returns the means over the current window. filter selects the users who share the cell.
func (w *Window) Usage(filter UserFilter) Usage {
	received := w.received()
	f := Usage{Received: received, PRB: float64(w.prb), Users: 1}
	if received == 0 {
		return f
	}
	f.IdlePRB = float64(w.idle) / float64(received)
	for r, u := range w.users {
		if r.IsUser() && u.window.subframes > 0 {
			f.AllUsers++
		}
	}
	others := w.filterUsers(filter)
	parts := w.parts[:0]
	var data usageSum
	for _, o := range others {
		u := o.sums.window
		parts = append(parts, u.prb)
		data.prb += u.prb
		data.sizedPRB += u.sizedPRB
		data.sizedBits += u.sizedBits
	}
	w.parts = parts
	f.Users += len(others)
	left := 0
	if own := w.users[w.self]; own != nil && own.window.subframes > 0 {
		f.OwnPRB = float64(own.window.prb) / float64(received)
		f.Rate, f.RecentRate = own.window.meanBitsPerPRB(), w.recentBitsPerPRB()
		left = own.window.prb
	}
	f.EvenPRB = evenShareLevel(left, parts) / float64(received)
	w.addLongMeans(&f, others)
	if float64(data.prb) >= minSharedPart*f.PRB*float64(received) {
		f.OthersRate = data.meanBitsPerPRB()
	}
	return f
}

// addLongMeans sets the means over all slots, and the errors of means.
func (w *Window) addLongMeans(f *Usage, others []otherUser) {
	all := float64(w.n)
	parts, left := w.parts[:0], 0
	for _, o := range others {
		parts = append(parts, o.sums.active.prb)
	}
	if own := w.users[w.self]; own != nil {
		left = own.active.prb
	}
	w.parts = parts
	deviation, bins := w.deviationOfOwn(f.OwnPRB)
	f.OwnError = deviation / math.Sqrt(max(float64(w.received())/binSubframes, 1))
	f.Long = PartOfCell{float64(left) / all, evenShareLevel(left, parts) / all, float64(w.longIdle) / all,
		deviation / math.Sqrt(max(bins, 1))}
	if w.firstOwnSlot() >= beginBins*binSubframes {
		f.Long = PartOfCell{f.OwnPRB, f.EvenPRB, f.IdlePRB, f.OwnError}
	}
	f.SinceOutage = f.Long
	if w.outageEnd > w.slots[w.head].number {
		f.SinceOutage = w.partSinceOutage(others)
	}
}

// deviationOfOwn returns the standard deviation of the device's part in bins of binSubframes since its first grant, and
// the number of bins. Without two of them it returns own: nothing is known.
func (w *Window) deviationOfOwn(own float64) (deviation, bins float64) {
	var sum, squares float64
	for from := w.firstOwnSlot(); from+binSubframes <= w.n; from += binSubframes {
		prb := 0.0
		for i := range binSubframes {
			prb += float64(w.ownPRBIn(from + i))
		}
		prb /= binSubframes
		sum, squares, bins = sum+prb, squares+prb*prb, bins+1
	}
	if bins < 2 {
		return own, bins
	}
	return math.Sqrt(max(squares-sum*sum/bins, 0) / (bins - 1)), bins
}

// partSinceOutage returns the means since the last outage, at first as if all was idle. The error counts as 0: what
// comes then must fill the cell.
func (w *Window) partSinceOutage(others []otherUser) PartOfCell {
	for _, u := range w.users {
		u.since = 0
	}
	idle, n := 0, 0.0
	for i := w.n - 1; i >= 0; i-- {
		t := &w.slots[(w.head+i)%len(w.slots)]
		if t.number < w.outageEnd {
			break
		}
		idle, n = idle+int(t.idle), n+1
		for _, h := range t.shares {
			w.users[h.user].since += int(h.prb)
		}
	}
	if n < minSinceOutage {
		return PartOfCell{Idle: float64(w.prb)}
	}
	parts, left := w.parts[:0], 0
	for _, o := range others {
		parts = append(parts, o.sums.since)
	}
	if own := w.users[w.self]; own != nil {
		left = own.since
	}
	w.parts = parts
	return PartOfCell{Own: float64(left) / n, Even: evenShareLevel(left, parts) / n, Idle: float64(idle) / n}
}

// ownPRBIn returns the blocks of this device in a slot, counted from the oldest.
func (w *Window) ownPRBIn(slot int) uint16 {
	for _, h := range w.slots[(w.head+slot)%len(w.slots)].shares {
		if h.user == w.self {
			return h.prb
		}
	}
	return 0
}

// firstOwnSlot returns the first slot with a grant to this device, counted from the oldest, or the number of slots.
func (w *Window) firstOwnSlot() int {
	for i := range w.n {
		if w.ownPRBIn(i) > 0 {
			return i
		}
	}
	return w.n
}

// filterUsers returns the other users that share the cell. The list is valid until the next call.
func (w *Window) filterUsers(filter UserFilter) []otherUser {
	list := w.others[:0]
	for r, u := range w.users {
		if r == w.self || !r.IsUser() {
			continue
		}
		switch filter {
		case FilterByPRB:
			if !IsDataUser(u.window.subframes, u.window.prb) {
				continue
			}
		case CountAllUsers:
			if u.window.subframes == 0 {
				continue
			}
		default:
			if !w.isActive(u) {
				continue
			}
		}
		list = append(list, otherUser{u, w.partOfCell(u)})
	}
	w.others = list
	if filter != FilterByShare {
		return list
	}
	slices.SortFunc(list, func(a, b otherUser) int { return cmp.Compare(b.part, a.part) })
	least := minEvenPart * backloggedPart(list)
	count := 0
	for count < len(list) && list[count].part >= least {
		count++
	}
	return list[:count]
}

// backloggedPart returns the part of the cell that a device with more data than it is given gets beside others, who
// keep what they have up to an even part. The list is sorted, the largest first.
func backloggedPart(list []otherUser) float64 {
	remaining := 1.0
	for i := len(list) - 1; i >= 0; i-- {
		if x, n := list[i].part, float64(i+2); x*n > remaining {
			return remaining / n
		}
		remaining -= list[i].part
	}
	return remaining
}

// isActive reports whether a user gets something from time to time, and is not gone: it waits at most twice
// as long as before for the next time.
func (w *Window) isActive(u *userSums) bool {
	n := u.active.subframes
	return n > controlSubframes &&
		(u.window.subframes > 0 || (w.last-u.lastNum)*int64(n) <= 2*int64(w.n))
}

// partOfCell returns the part of the cell that a user has: within the window, since it may be new, or within
// all slots, since its turn may come rarely.
func (w *Window) partOfCell(u *userSums) float64 {
	return max(float64(u.window.prb)/float64(w.received()), float64(u.active.prb)/float64(w.n)) / float64(w.prb)
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

// newestIdle returns the idle blocks of the last subframe.
func (w *Window) newestIdle() int {
	if w.n == 0 {
		return 0
	}
	return int(w.slots[(w.head+w.n-1)%len(w.slots)].idle)
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
		return own.window.meanBitsPerPRB()
	}
	return 0
}

// recentBitsPerPRB returns R_w of the device's own blocks within rateSubframes if it shows another signal than the
// whole window, else 0. It shows none unless blocks with a size were at least half as many a subframe as in the window,
// because those of small grants have fewer bits.
func (w *Window) recentBitsPerPRB() float64 {
	all := w.users[w.self].window
	own := w.sumNewBlocks(w.last - rateSubframes)
	recent := own.meanBitsPerPRB()
	if own.sizedPRB*w.received()*2 < all.sizedPRB*rateSubframes || !isOtherRate(recent, all.meanBitsPerPRB()) {
		return 0
	}
	all = w.sumNewBlocks(math.MinInt64)
	if !isOtherRate(recent, all.meanBitsPerPRB()) {
		return 0
	}
	return recent
}

// isOtherRate reports whether R_w differs so much that the signal has changed.
func isOtherRate(a, b float64) bool { return math.Abs(a-b) > rateChange*b }

// sumNewBlocks sums the device's own grants in the window after a subframe. Grants with a retransmission do not count:
// they have fewer bits where the other block is missing.
func (w *Window) sumNewBlocks(after int64) (own usageSum) {
	for i := w.n - 1; i >= w.older; i-- {
		t := &w.slots[(w.head+i)%len(w.slots)]
		if t.number <= after {
			break
		}
		for _, h := range t.shares {
			if h.user == w.self && h.retransmitted == 0 {
				own.addSignedUsage(h, 1)
			}
		}
	}
	return own
}
