// SPDX-License-Identifier: Apache-2.0

package census

import (
	"cmp"
	"slices"

	"mpbond/base/unit"
	"mpbond/pbe/cell"
)

const (
	// userTableWindow is the number of subframes over which the table averages.
	userTableWindow = 1000
	// userTableMemory is how many subframes a silent user stays in the table.
	userTableMemory = 10_000
)

// User has the figures of one user in the last second.
type User struct {
	RNTI cell.RNTI
	// PRBPart is the user's part of the resource blocks of all received subframes. UplinkPart is
	// the same for sending.
	PRBPart, UplinkPart float64
	// Rate is what blocks with known sizes carried, including retransmissions.
	Rate unit.Rate
	// MCS and Format are those of the last downlink grant; MCS is −1 without one.
	MCS    int
	Format cell.Format
	// Retransmitted is the part of the user's blocks that were retransmissions.
	Retransmitted float64
	// IsDataUser reports whether the user passes the user filter over this second.
	IsDataUser bool
	// SinceMessage is the number of subframes since the last message.
	SinceMessage int64
}

// Users is a table of the users of one cell.
type Users struct {
	window *userWindow
	harq   harqTracker
	prb    uint8
	shares []share
}

// NewUsers returns an empty table.
func NewUsers() *Users { return &Users{window: newUserWindow(userTableWindow, userTableMemory)} }

// Add adds the next subframe. A subframe that is not after the last one, or has another width,
// restarts the table.
func (u *Users) Add(s Subframe) {
	if !s.fitsTableRanges() {
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
		h := shareFromDCI(d)
		if isDownlink(d) {
			h.retransmitted = u.harq.addDownlinkGrant(s.Number, d, nil)
		}
		u.shares = mergeUserShare(u.shares, h)
	}
	u.window.addSubframeShares(s.Number, u.shares)
}

// List appends all users of the last ten seconds to list, those with the most resource blocks
// first.
func (u *Users) List(list []User) []User {
	w := u.window
	begin := len(list)
	all := float64(max(w.receivedCount, 1)) * float64(max(u.prb, 1))
	for _, m := range w.users {
		x := User{RNTI: m.user, PRBPart: float64(m.prb) / all, UplinkPart: float64(m.uplinkPRB) / all,
			MCS: int(m.mcs), Format: m.format, Retransmitted: quotientOrZero(int64(m.retransmitted), int64(m.blocks)),
			IsDataUser: m.isDataUser, SinceMessage: w.last - m.lastHeard}
		x.Rate = unit.Rate(float64(m.sizedBits) / float64(max(w.receivedCount, 1)) * 1000)
		if m.mcs == noMCS {
			x.MCS = -1
		}
		list = append(list, x)
	}
	slices.SortFunc(list[begin:], func(a, b User) int {
		return cmp.Or(cmp.Compare(b.PRBPart, a.PRBPart), cmp.Compare(b.UplinkPart, a.UplinkPart),
			cmp.Compare(a.SinceMessage, b.SinceMessage), cmp.Compare(a.RNTI, b.RNTI))
	})
	return list
}
