// SPDX-License-Identifier: Apache-2.0

// Package lte models mobile cells for the lab: base stations, users with queues, retransmissions,
// carriers, and the control messages that PBE-CC reads. What a device gets follows from its signal or
// from a recorded rate. It advances in subframes of 1 ms. Package
// lab/virtual and the lab's emulator offer packets and take delivered ones.
//
// The package is pure: the same seed and offers give the same subframes. It shares assumptions with
// PBE-CC itself (shares of blocks, a rate per block, that idle blocks are visible); see
// docs/explanation/pbe.md.
package lte

import (
	"math"
	"math/rand/v2"

	"mpbond/base/unit"
	"mpbond/pbe/cell"
)

// Choices of the model. In section 3 of the paper, a network activates a carrier 130 ms after the
// first one is full, and deactivates it about a second after it was last needed.
const (
	carrierOnDelay  = 130
	carrierOffDelay = 1000
)

// Scheduler is the method of sharing the blocks of a subframe.
type Scheduler uint8

const (
	// EqualShare gives all users with data the same number of blocks.
	EqualShare Scheduler = iota
	// ProportionalFair serves users one after the other, each in full. First is the user with the
	// best rate relative to its recent rate (100 ms) in this cell.
	ProportionalFair
)

// Config describes a network.
type Config struct {
	Cells     []CellConfig // at most cell.MaxCells
	Users     []UserConfig // at most 40, so that the messages of a subframe have room for all
	Scheduler Scheduler
	// CarriersByUse activates another carrier of a user who has data waiting when its present ones were used to 97 %
	// over half a second, by all users, as networks do to save the devices' energy. Otherwise carrierOnDelay decides.
	// A carrier that is not needed for a second is deactivated in both cases.
	CarriersByUse bool
	// Overhead is γ of PBE-CC section 4.2.2: the share of a transport block that carries no user
	// packets. 0 selects cell.Overhead, which the estimate uses.
	Overhead float64
	Seed     uint64
}

// CellConfig describes one carrier.
type CellConfig struct {
	// PRB is its width: 6, 15, 25, 50, 75 or 100.
	PRB int
	// Layers is 1 or 2. With two, each grant has two transport blocks with independent errors. A
	// PRB then carries 1.5 Mbit/s at most.
	Layers int
	// Control is the mean number of users per subframe with control traffic only. Most take four
	// blocks in one subframe.
	Control float64
	// Groups grants whole groups of blocks (tbs.Group), as real networks do, so that a message can
	// represent each grant. Otherwise single blocks are granted.
	Groups bool
}

// UserConfig describes one device.
type UserConfig struct {
	RNTI cell.RNTI // the same in all its cells
	// Cells has indices of Config.Cells. The first is the primary cell.
	Cells []int
	// SINR returns the signal in dB at a subframe, in every cell. It is called once for each
	// subframe, in order.
	SINR func(number int64) float64
	// Rate, if set, takes the place of SINR: the rate at a subframe at which the user's first cell, the only one that
	// serves it, would send packets to it alone. All PRB are worth the same. Nothing new is sent while the rate is below
	// minRate. Adapts does not matter.
	Rate func(number int64) unit.Rate
	// ErrorRate is the probability p of a wrong bit. A block of L bits is wrong with probability
	// 1−(1−p)^L each time it is sent.
	ErrorRate float64
	// Buffer bounds the waiting bytes, 0 for no bound.
	Buffer unit.Bytes
	// Adapts makes the cell choose block sizes by a CQI that is 8 subframes old, corrected so that a tenth of the
	// blocks have errors. Errors then follow from the SINR, and retransmissions add to it. Otherwise the CQI is
	// that of the subframe, and ErrorRate decides.
	Adapts bool
	// Unacknowledged is RLC in unacknowledged mode: what HARQ gives up is lost.
	Unacknowledged bool
	// Sleeps is discontinuous reception: after sleepAfter subframes without a grant, the device is reached in the
	// first sleepOn of each sleepCycle subframes only.
	Sleeps bool
	// Weight multiplies the user's priority in ProportionalFair; 0 counts as 1. Guaranteed is a rate below which
	// the user goes first.
	Weight     float64
	Guaranteed unit.Rate
}

// Delivery is an item that has left the cell. Items of a user leave in their order.
type Delivery struct {
	User int
	Item *Item
	// Lost reports that a block with a part of the item was given up. RLC repeats what HARQ could
	// not deliver, so only users with very poor reception lose items.
	Lost bool
}

// Truth is the network's own state of a user in one subframe, to evaluate estimates.
type Truth struct {
	// Physical is the user's possible capacity beside other users' demand, and at least an equal
	// share of what control traffic leaves. Fair is an equal share of the whole cell. Both are in
	// bits over its active carriers, at the rate of a PRB in a grant of the full width.
	Physical, Fair float64
	// Waiting counts the bytes in its queue.
	Waiting unit.Bytes
	// Delivered counts the bytes delivered since the beginning.
	Delivered unit.Bytes
	// Carriers counts its active carriers.
	Carriers int
}

// Network is the running model of a Config. It is not safe for concurrent use. It allocates no
// memory once its queues have reached their maximum length.
type Network struct {
	cfg    Config
	random *rand.Rand
	users  []user
	cells  []carrier
	number int64
	truth  []Truth
}

// user is the state of one device.
type user struct {
	UserConfig
	queue          itemQueue // items not yet delivered
	firstUnsent    int64     // first item not entirely in blocks
	unsentBits     int       // bits not in blocks
	waiting        unit.Bytes
	delivered      unit.Bytes // without lost items
	active         []bool     // by index of Cells
	fullSubframes  int        // consecutive subframes in which the active carriers left data waiting
	spareSubframes int        // consecutive subframes in which the last carrier was not needed
	cqi            int        // by which blocks are made in this subframe
	recordedBits   float64    // bits of one layer of a block of full width in this subframe, of a user with Rate
	logBitRight    float64    // log of the probability that a bit is right
	link           adaptation // of a user that Adapts
	busySubframes  int        // since the last change of carriers or cells
	lastGrant      int64      // subframe of the last grant
	awayUntil      int64      // subframe in which a handover ends
}

// New returns a network at subframe 0 with empty queues.
func New(cfg Config) *Network {
	if cfg.Overhead == 0 {
		cfg.Overhead = cell.Overhead
	}
	n := &Network{cfg: cfg, random: rand.New(rand.NewPCG(cfg.Seed, 77)), truth: make([]Truth, len(cfg.Users))}
	for i, c := range cfg.Cells {
		n.cells = append(n.cells, carrier{
			CellConfig:           c,
			id:                   cell.ID(i),
			noControlProbability: math.Exp(-c.Control),
			links:                make([]userLink, len(cfg.Users)),
		})
	}
	for _, u := range cfg.Users {
		if u.Rate != nil {
			u.Adapts, u.Cells = false, u.Cells[:1]
		}
		x := user{UserConfig: u, active: make([]bool, len(u.Cells)), logBitRight: math.Log1p(-u.ErrorRate)}
		x.active[0] = true
		n.users = append(n.users, x)
	}
	return n
}

// Offer adds an item to a user's queue. It returns false if the buffer is full.
func (n *Network) Offer(u int, it *Item) bool {
	x := &n.users[u]
	if x.Buffer > 0 && x.waiting+it.Size > x.Buffer {
		return false
	}
	it.bitsLeft, it.blocks, it.lost = max(1, int(it.Size)*8), 0, false
	x.queue.pushItem(it)
	x.unsentBits += it.bitsLeft
	x.waiting += it.Size
	return true
}

// Rename gives user u another RNTI, as a network does with each connection of a device.
func (n *Network) Rename(u int, rnti cell.RNTI) { n.users[u].RNTI = rnti }

// Waiting returns the bytes of user u that are waiting or on the air.
func (n *Network) Waiting(u int) unit.Bytes { return n.users[u].waiting }

// Busy reports whether any item is waiting or on the air.
func (n *Network) Busy() bool {
	for i := range n.users {
		if !n.users[i].queue.hasNoItems() {
			return true
		}
	}
	return false
}

// Truth returns the state of user u in the last subframe.
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

// Number returns the number of the next subframe.
func (n *Network) Number() int64 { return n.number }

// Step runs the next subframe. It appends delivered items to out. onSubframe, if not nil, is called
// with the control messages of each cell, which are valid until it returns. A correct block is
// delivered in its own subframe. Decoding (some 3 ms) counts as delay behind the cell.
func (n *Network) Step(out []Delivery, onSubframe func(cell.Subframe)) []Delivery {
	clear(n.truth)
	for i := range n.users {
		if u := &n.users[i]; u.Rate != nil {
			n.followRate(u)
		} else {
			u.chooseCQI(n.number)
		}
	}
	for i := range n.cells {
		c := &n.cells[i]
		n.serveCellSubframe(c)
		if onSubframe != nil {
			onSubframe(cell.Subframe{Cell: c.id, Number: n.number, PRB: uint8(c.PRB), Grants: c.grants})
		}
	}
	for i := range n.users {
		u := &n.users[i]
		n.updateCarriers(u)
		for !u.queue.hasNoItems() {
			it := u.queue.itemByNumber(u.queue.first)
			if it.bitsLeft > 0 || it.blocks > 0 {
				break
			}
			u.queue.popItem()
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

// isServedBy reports whether cell c is an active carrier of the user.
func (u *user) isServedBy(c cell.ID) bool {
	for i, x := range u.Cells {
		if cell.ID(x) == c {
			return u.active[i]
		}
	}
	return false
}

// updateCarriers activates and deactivates secondary carriers of a user.
func (n *Network) updateCarriers(u *user) {
	if n.number < u.awayUntil {
		return
	}
	active, used := 0, true
	for i, a := range u.active {
		if a {
			active++
			used = used && n.cells[u.Cells[i]].use > fullUse
		}
	}
	if u.unsentBits > 0 {
		u.fullSubframes, u.spareSubframes = u.fullSubframes+1, 0
	} else {
		u.fullSubframes = 0
		u.spareSubframes++
	}
	isFull := u.fullSubframes >= carrierOnDelay
	if n.cfg.CarriersByUse {
		u.busySubframes++
		isFull = used && u.unsentBits > 0 && u.busySubframes >= useSubframes
	}
	switch {
	case isFull && active < len(u.active):
		u.active[active], u.fullSubframes, u.busySubframes = true, 0, 0
	case u.spareSubframes >= carrierOffDelay && active > 1:
		u.active[active-1], u.spareSubframes = false, 0
	}
}
