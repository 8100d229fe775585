// Package lte is the model of mobile cells in the lab: base station, users with
// their queues, retransmissions, carriers, and the control messages that PBE-CC
// listens to, in steps of one subframe of 1 ms. Before it stands who brings
// packets, as lab/virtual does; behind it who takes them away, and whoever reads
// the messages.
//
// It is pure: the same seed and the same offers give the same subframes. It
// embodies assumptions of PBE-CC itself (a share of blocks, a rate per block,
// what is idle shows): docs/explanation/pbe.md.
package lte

import (
	"math"
	"math/rand/v2"

	"mpbond/base/unit"
	"mpbond/pbe/cell"
)

// Choices of the model. A network of the paper's authors turned a carrier on
// 130 ms after the first was full, and off about a second after it was not
// needed (section 3).
const (
	carrierOnDelay  = 130
	carrierOffDelay = 1000
)

// Scheduler shares the blocks of a subframe.
type Scheduler uint8

const (
	// EqualShare gives all who have something to send the same number of blocks.
	EqualShare Scheduler = iota
	// ProportionalFair gives what it needs to whose rate is best compared with what
	// that user had of late (100 ms) in this cell, then to the next.
	ProportionalFair
)

// Config is one network.
type Config struct {
	Cells     []CellConfig // at most cell.MaxCells
	Users     []UserConfig // at most 40, so that all find room among the messages of a subframe
	Scheduler Scheduler
	// Overhead is γ of PBE-CC section 4.2.2: the part of a transport block that is
	// not the users' packets, in parts of 1. 0 stands for cell.Overhead, what the
	// estimate takes.
	Overhead float64
	Seed     uint64
}

// CellConfig is one carrier.
type CellConfig struct {
	// PRB is its width: 6, 15, 25, 50, 75 or 100.
	PRB int
	// Layers are 1 or 2. With two each grant is of two transport blocks, which are
	// right or wrong by themselves; a PRB then carries 1.5 Mbit/s at most.
	Layers int
	// Control is the mean number of users per subframe who exchange control
	// traffic only: most of them four blocks in one subframe.
	Control float64
	// Groups gives users whole groups of blocks (tbs.RBGSize), as networks do, so that
	// each grant is one that a message can tell. Else they are given single ones.
	Groups bool
}

// UserConfig is one device.
type UserConfig struct {
	RNTI cell.RNTI // the same in all its cells
	// Cells are indices of Config.Cells; the first is the primary one.
	Cells []int
	// SINR is the signal in dB at a subframe, in every cell. It is asked once for
	// each, in order.
	SINR func(number int64) float64
	// ErrorRate is the probability that one bit is wrong; a block of L bits is
	// with 1−(1−p)^L, each time it is sent.
	ErrorRate float64
	// Buffer bounds the bytes that wait, 0 for no bound.
	Buffer unit.Bytes
}

// Delivery is an item that has come over, in the order in which the user's came.
type Delivery struct {
	User int
	Item *Item
	// Lost says that a block with a part of it was given up. RLC repeats what HARQ
	// could not bring over, so that only who hears hardly anything loses.
	Lost bool
}

// Truth is what the network knows of a user in one subframe, to compare estimates
// with.
type Truth struct {
	// Physical is what the user could have beside what others want, and at least
	// an equal part of what control traffic leaves; Fair is an equal part of the
	// whole. In bits, over its active carriers, at the rate of a PRB when all of the
	// width is one grant.
	Physical, Fair float64
	// Waiting are bytes in its queue.
	Waiting unit.Bytes
	// Delivered is what has come over since the beginning.
	Delivered unit.Bytes
	// Carriers are active.
	Carriers int
}

// Network is a Config at work. It is not safe for concurrent use. Once queues
// have been as long as they get it takes no memory.
type Network struct {
	cfg    Config
	random *rand.Rand
	users  []user
	cells  []carrier
	number int64
	truth  []Truth
}

type user struct {
	UserConfig
	queue          itemQueue // all that is not released
	firstUnsent    int64     // the first of it that is not wholly in blocks
	unsentBits     int       // bits that are not in blocks
	waiting        unit.Bytes
	delivered      unit.Bytes // has come over, not lost
	active         []bool     // by index of Cells
	fullSubframes  int        // subframes in turn in which the active carriers left something waiting
	spareSubframes int        // subframes in turn in which the last carrier was not needed
	cqi            int        // in this subframe
	logBitRight    float64    // log of the probability that a bit is right
}

// New begins at subframe 0 with empty queues.
func New(cfg Config) *Network {
	if cfg.Overhead == 0 {
		cfg.Overhead = cell.Overhead
	}
	n := &Network{cfg: cfg, random: rand.New(rand.NewPCG(cfg.Seed, 77)), truth: make([]Truth, len(cfg.Users))}
	for i, c := range cfg.Cells {
		n.cells = append(n.cells, carrier{CellConfig: c, id: cell.ID(i), noControlProbability: math.Exp(-c.Control), links: make([]userLink, len(cfg.Users))})
	}
	for _, u := range cfg.Users {
		x := user{UserConfig: u, active: make([]bool, len(u.Cells)), logBitRight: math.Log1p(-u.ErrorRate)}
		x.active[0] = true
		n.users = append(n.users, x)
	}
	return n
}

// Offer brings an item for a user. False says that its buffer is full.
func (n *Network) Offer(u int, it *Item) bool {
	x := &n.users[u]
	if x.Buffer > 0 && x.waiting+it.Size > x.Buffer {
		return false
	}
	it.bitsLeft, it.blocks, it.lost = max(1, int(it.Size)*8), 0, false
	x.queue.push(it)
	x.unsentBits += it.bitsLeft
	x.waiting += it.Size
	return true
}

// Waiting is what waits for user u, or is on the air.
func (n *Network) Waiting(u int) unit.Bytes { return n.users[u].waiting }

// Busy tells whether anything waits or is on the air for anybody.
func (n *Network) Busy() bool {
	for i := range n.users {
		if !n.users[i].queue.isEmpty() {
			return true
		}
	}
	return false
}

// Truth is of user u as of the last subframe.
func (n *Network) Truth(u int) Truth {
	t := n.truth[u]
	t.Waiting, t.Delivered = n.users[u].waiting, n.users[u].delivered
	for _, a := range n.users[u].active {
		if a {
			t.Carriers++
		}
	}
	return t
}

// Number is that of the next subframe.
func (n *Network) Number() int64 { return n.number }

// Step makes the next subframe. What has come over is appended to out; the
// control messages of each cell are told to hear, if that is not nil, and hold
// until it returns. A block that is right comes over in its own subframe: what
// decoding takes (some 3 ms) is part of the delay behind the cell.
func (n *Network) Step(out []Delivery, onSubframe func(cell.Subframe)) []Delivery {
	clear(n.truth)
	for i := range n.users {
		n.users[i].cqi = CQI(n.users[i].SINR(n.number))
	}
	for i := range n.cells {
		c := &n.cells[i]
		n.serveCell(c)
		if onSubframe != nil {
			onSubframe(cell.Subframe{Cell: c.id, Number: n.number, PRB: uint8(c.PRB), Grants: c.grants})
		}
	}
	for i := range n.users {
		u := &n.users[i]
		u.updateCarriers()
		for !u.queue.isEmpty() {
			it := u.queue.at(u.queue.first)
			if it.bitsLeft > 0 || it.blocks > 0 {
				break
			}
			u.queue.pop()
			u.waiting -= it.Size
			if !it.lost {
				u.delivered += it.Size
			}
			out = append(out, Delivery{i, it, it.lost})
		}
	}
	n.number++
	return out
}

// isServedBy tells whether the user is served by cell c now.
func (u *user) isServedBy(c cell.ID) bool {
	for i, x := range u.Cells {
		if cell.ID(x) == c {
			return u.active[i]
		}
	}
	return false
}

// updateCarriers turns secondary carriers of a user on and off.
func (u *user) updateCarriers() {
	active := 0
	for _, a := range u.active {
		if a {
			active++
		}
	}
	if u.unsentBits > 0 {
		u.fullSubframes, u.spareSubframes = u.fullSubframes+1, 0
	} else {
		u.fullSubframes = 0
		u.spareSubframes++
	}
	switch {
	case u.fullSubframes >= carrierOnDelay && active < len(u.active):
		u.active[active], u.fullSubframes = true, 0
	case u.spareSubframes >= carrierOffDelay && active > 1:
		u.active[active-1], u.spareSubframes = false, 0
	}
}
