package census

import (
	"cmp"
	"slices"

	"mpbond/base/unit"
	"mpbond/pbe/cell"
)

const (
	// usersOver is over how many subframes the figures of a table go.
	usersOver = 1000
	// usersKept is for how many subframes who is heard no more stays in it.
	usersKept = 10_000
)

// User is what one was given in the last second.
type User struct {
	RNTI cell.RNTI
	// Part is what it had of the resource blocks of all subframes that were heard, and
	// Uplink the same for sending.
	Part, Uplink float64
	// Rate is what the blocks carried that named their size, again and anew.
	Rate unit.Rate
	// MCS and Format are the last for receiving; without any MCS is −1.
	MCS    int
	Format cell.Format
	// Again is the part of its blocks that came again.
	Again float64
	// Data says that it passes the user filter, over this second.
	Data bool
	// Ago counts the subframes since it was heard.
	Ago int64
}

// Users is a table of who is given what in one cell.
type Users struct {
	window *window
	harq   harq
	prb    uint8
	shares []share
}

// NewUsers is empty.
func NewUsers() *Users { return &Users{window: newWindow(usersOver, usersKept)} }

// Add takes the next subframe. With one that is not after the last, or of another
// width, the table begins anew.
func (u *Users) Add(s Subframe) {
	if !s.valid() {
		return
	}
	if s.PRB != u.prb {
		u.window.reset()
	}
	u.prb = s.PRB
	u.harq.begin(s.Number)
	u.shares = u.shares[:0]
	for i := range s.DCIs {
		d := &s.DCIs[i]
		if !d.RNTI.User() {
			continue
		}
		h := shareOf(d)
		if downlink(d) {
			h.again = u.harq.add(s.Number, d, nil)
		}
		u.shares = merge(u.shares, h)
	}
	u.window.add(s.Number, u.shares)
}

// List are all who were heard in the last ten seconds, those with the most resource
// blocks first. It is appended to list.
func (u *Users) List(list []User) []User {
	w := u.window
	begin := len(list)
	all := float64(max(w.heard, 1)) * float64(max(u.prb, 1))
	for _, m := range w.users {
		x := User{RNTI: m.user, Part: float64(m.prb) / all, Uplink: float64(m.up) / all, MCS: int(m.mcs), Format: m.format, Again: part(int64(m.again), int64(m.blocks)), Data: m.data, Ago: w.last - m.heard}
		x.Rate = unit.Rate(float64(m.bits) / float64(max(w.heard, 1)) * 1000)
		if m.mcs == noMCS {
			x.MCS = -1
		}
		list = append(list, x)
	}
	slices.SortFunc(list[begin:], func(a, b User) int {
		return cmp.Or(cmp.Compare(b.Part, a.Part), cmp.Compare(b.Uplink, a.Uplink), cmp.Compare(a.Ago, b.Ago), cmp.Compare(a.RNTI, b.RNTI))
	})
	return list
}
