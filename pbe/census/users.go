package census

import (
	"cmp"
	"slices"

	"mpbond/base/unit"
	"mpbond/pbe/cell"
)

const (
	// userTableWindow is over how many subframes the figures of a table go.
	userTableWindow = 1000
	// userTableMemory is for how many subframes who is heard no more stays in it.
	userTableMemory = 10_000
)

// User is what one was given in the last second.
type User struct {
	RNTI cell.RNTI
	// PRBPart is what it had of the resource blocks of all subframes that were heard, and
	// Uplink the same for sending.
	PRBPart, UplinkPart float64
	// Rate is what the blocks carried that named their size, again and anew.
	Rate unit.Rate
	// MCS and Format are the last for receiving; without any MCS is −1.
	MCS    int
	Format cell.Format
	// Retransmitted is the part of its blocks that came again.
	Retransmitted float64
	// IsDataUser says that it passes the user filter, over this second.
	IsDataUser bool
	// SinceHeard counts the subframes since it was heard.
	SinceHeard int64
}

// Users is a table of who is given what in one cell.
type Users struct {
	window *userWindow
	harq   harqTracker
	prb    uint8
	shares []share
}

// NewUsers is empty.
func NewUsers() *Users { return &Users{window: newUserWindow(userTableWindow, userTableMemory)} }

// Add takes the next subframe. With one that is not after the last, or of another
// width, the table begins anew.
func (u *Users) Add(s Subframe) {
	if !s.isValid() {
		return
	}
	if s.PRB != u.prb {
		u.window.resetWindow()
	}
	u.prb = s.PRB
	u.harq.startSubframe(s.Number)
	u.shares = u.shares[:0]
	for i := range s.DCIs {
		d := &s.DCIs[i]
		if !d.RNTI.IsUser() {
			continue
		}
		h := newShare(d)
		if isDownlink(d) {
			h.retransmitted = u.harq.addGrant(s.Number, d, nil)
		}
		u.shares = mergeShare(u.shares, h)
	}
	u.window.addShares(s.Number, u.shares)
}

// List are all who were heard in the last ten seconds, those with the most resource
// blocks first. It is appended to list.
func (u *Users) List(list []User) []User {
	w := u.window
	begin := len(list)
	all := float64(max(w.receivedCount, 1)) * float64(max(u.prb, 1))
	for _, m := range w.users {
		x := User{RNTI: m.user, PRBPart: float64(m.prb) / all, UplinkPart: float64(m.uplinkPRB) / all, MCS: int(m.mcs), Format: m.format, Retransmitted: ratio(int64(m.retransmitted), int64(m.blocks)), IsDataUser: m.isDataUser, SinceHeard: w.last - m.lastHeard}
		x.Rate = unit.Rate(float64(m.sizedBits) / float64(max(w.receivedCount, 1)) * 1000)
		if m.mcs == noMCS {
			x.MCS = -1
		}
		list = append(list, x)
	}
	slices.SortFunc(list[begin:], func(a, b User) int {
		return cmp.Or(cmp.Compare(b.PRBPart, a.PRBPart), cmp.Compare(b.UplinkPart, a.UplinkPart), cmp.Compare(a.SinceHeard, b.SinceHeard), cmp.Compare(a.RNTI, b.RNTI))
	})
	return list
}
