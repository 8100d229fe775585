// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"math"

	"mpbond/pbe/cell"
	"mpbond/pbe/lte/tbs"
)

// Specification.
const (
	harqDelay          = 8 // subframes until a retransmission (36.213 section 8)
	harqProcesses      = 8
	maxRetransmissions = 3 // HARQ retransmissions of one block
	// RLC in acknowledged mode repeats a block that HARQ has given up. That is after t-Reordering
	// of 35 ms from the first transmission (36.331 section 9.2.1.1) and a status report: rlcDelay
	// subframes after the last transmission. After rlcRounds the block is lost (maxRetxThreshold
	// there; a real device would reconnect).
	rlcDelay  = 20
	rlcRounds = 4
)

// sizelessShare is the share of retransmissions without a size (MCS 29 to 31). Networks send them
// sometimes, because the size is that of the first transmission (36.213 section 7.1.7.2). The value
// is our choice.
const sizelessShare = 0.3

// meanSubframes is the averaging period of proportional fair.
const meanSubframes = 100

// carrier is the state of one cell.
type carrier struct {
	CellConfig
	id                   cell.ID
	links                []userLink // by user
	grants               []cell.Grant
	demands              []demand
	controls             []controlUser
	noControlProbability float64 // that no control user arrives in a subframe
	firstShare           int     // index of the first equal share, so that the remainder rotates
	use                  float64 // part of the blocks that is granted, over useSubframes
}

// userLink is the state of one user in one cell.
type userLink struct {
	processes        [harqProcesses]harqProcess
	busyProcesses    uint8   // bits of the processes with a block that is not yet correct
	retransmittedPRB int     // PRB of the retransmission in this subframe, which excludes other grants
	meanBits         float64 // mean bits a subframe, for proportional fair
}

// harqProcess has the blocks of one grant.
type harqProcess struct {
	prb    int
	blocks [2]transportBlock
}

// transportBlock is one transport block.
type transportBlock struct {
	pending         bool  // not yet correct
	due             int64 // subframe of the next retransmission
	bits            int
	mcs             uint8
	ndi             bool
	retransmissions int     // by HARQ
	rlcRepeats      int     // repetitions by RLC
	cqi             int     // by which it was made
	energy          float64 // SINR of all transmissions, as a ratio
	// from and to bound the numbers of the items with a part in the block; to is excluded.
	from, to int64
}

// controlUser is a user with control traffic.
type controlUser struct {
	rnti cell.RNTI
	prb  int
	left int
}

// demand is a user with data in a subframe of one cell.
type demand struct {
	user int
	need int // PRB for all its data, at most the width of the cell
	prb  int // PRB granted
}

// freeBlocks has the free blocks of a carrier: whole groups, and the incomplete last group (rest).
type freeBlocks struct{ groupSize, groups, rest int }

// allCarrierBlocks returns all blocks of the carrier. If single blocks are granted, each is a
// group.
func (c *carrier) allCarrierBlocks() freeBlocks {
	g := 1
	if c.Groups {
		g = tbs.RBGSize(c.PRB)
	}
	return freeBlocks{groupSize: g, groups: c.PRB / g, rest: c.PRB % g}
}

// blockCount returns the number of free blocks.
func (r freeBlocks) blockCount() int { return r.groups*r.groupSize + r.rest }

// groupsForPRB returns the number of groups that hold so many blocks.
func (r freeBlocks) groupsForPRB(prb int) int { return (prb + r.groupSize - 1) / r.groupSize }

// reserveBlocks takes the blocks of an earlier grant. It returns false and takes none if they are
// not free.
func (r *freeBlocks) reserveBlocks(prb int) bool {
	rest := prb % r.groupSize
	if prb/r.groupSize > r.groups || rest > 0 && rest != r.rest {
		return false
	}
	r.groups -= prb / r.groupSize
	r.rest -= rest
	return true
}

// assignGroups grants w up to so many more groups, as far as it needs them.
func (r *freeBlocks) assignGroups(w *demand, groups int) {
	groups = min(groups, r.groupsForPRB(w.need-w.prb), r.groups)
	w.prb += groups * r.groupSize
	r.groups -= groups
}

// assignRest grants w the incomplete last group if w needs more blocks.
func (r *freeBlocks) assignRest(w *demand) {
	if w.prb < w.need {
		w.prb += r.rest
		r.rest = 0
	}
}

// blockBits returns the bits of one block of a grant to u.
func (c *carrier) blockBits(u *user, prb int) int {
	if u.Rate != nil {
		return int(u.recordedBits * float64(prb) / float64(c.PRB))
	}
	return transportBlockBits(u.cqi, prb)
}

// grantBits returns the bits of a grant to u.
func (c *carrier) grantBits(u *user, prb int) int { return c.blockBits(u, prb) * c.Layers }

// payloadBits returns the part of bits that carries packets.
func (n *Network) payloadBits(bits int) int { return int(float64(bits) * (1 - n.cfg.Overhead)) }

// serveCellSubframe runs one subframe of one cell: retransmissions, then control traffic, then new
// blocks.
func (n *Network) serveCellSubframe(c *carrier) {
	c.grants, c.demands = c.grants[:0], c.demands[:0]
	free := c.allCarrierBlocks()
	for i := range n.users {
		n.retransmitDue(c, i, &free)
	}
	n.serveControlUsers(c, &free)
	for i := range n.users {
		if u := &n.users[i]; u.unsentBits > 0 && u.cqi > 0 && u.isServedBy(c.id) && u.isReachable(n.number) {
			c.demands = append(c.demands, demand{user: i, need: n.countNeededPRB(c, u)})
		}
	}
	n.recordTruth(c, free.blockCount())
	// A user gets one grant in a subframe and needs a free process.
	eligible := c.demands[:0]
	for _, w := range c.demands {
		if l := &c.links[w.user]; l.retransmittedPRB == 0 && l.busyProcesses != 1<<harqProcesses-1 {
			eligible = append(eligible, w)
		}
	}
	if n.cfg.Scheduler == ProportionalFair {
		n.shareProportionally(c, eligible, free)
	} else {
		c.shareEqually(eligible, free)
	}
	for i := range c.links {
		c.links[i].meanBits -= c.links[i].meanBits / meanSubframes
	}
	for _, w := range eligible {
		if w.prb > 0 {
			n.sendNewBlocks(c, w)
		}
	}
	granted := 0
	for _, g := range c.grants {
		granted += int(g.PRB)
	}
	c.use += (float64(granted)/float64(c.PRB) - c.use) / useSubframes
}

// countNeededPRB returns how many PRB carry the data of u: whole groups, at most the whole width.
func (n *Network) countNeededPRB(c *carrier, u *user) int {
	all := n.payloadBits(c.grantBits(u, c.PRB))
	if u.unsentBits >= all {
		return c.PRB
	}
	need := max(1, u.unsentBits*c.PRB/all)
	for need < c.PRB && n.payloadBits(c.grantBits(u, need)) < u.unsentBits {
		need++
	}
	r := c.allCarrierBlocks()
	return min(r.groupsForPRB(need)*r.groupSize, c.PRB)
}

// shareEqually gives all users the same share. What one does not need goes to the others.
func (c *carrier) shareEqually(wants []demand, free freeBlocks) {
	open := len(wants)
	for free.groups > 0 && open > 0 {
		share := max(1, free.groups/open)
		open = 0
		for k := range wants {
			w := &wants[(k+c.firstShare)%len(wants)]
			if free.assignGroups(w, share); w.prb < w.need {
				open++
			}
		}
	}
	for k := range wants {
		free.assignRest(&wants[(k+c.firstShare)%len(wants)])
	}
	c.firstShare++
}

// shareProportionally gives users what they need, in the order of priority.
func (n *Network) shareProportionally(c *carrier, wants []demand, free freeBlocks) {
	priority := func(w demand) float64 {
		u, mean := &n.users[w.user], c.links[w.user].meanBits
		p := float64(c.grantBits(u, c.PRB)) / (1 + mean)
		if u.Weight > 0 {
			p *= u.Weight
		}
		if mean < float64(u.Guaranteed)/1000 {
			p += guaranteedFirst
		}
		return p
	}
	for free.blockCount() > 0 {
		var best *demand
		most := 0.0
		for j := range wants {
			if w := &wants[j]; w.prb == 0 {
				if x := priority(*w); best == nil || x > most {
					best, most = w, x
				}
			}
		}
		if best == nil {
			return
		}
		free.assignGroups(best, free.groups)
		free.assignRest(best)
	}
}

// sendNewBlocks fills a free process with a user's data and sends it.
func (n *Network) sendNewBlocks(c *carrier, w demand) {
	l := &c.links[w.user]
	h := int(n.number) % harqProcesses
	for l.busyProcesses&(1<<h) != 0 {
		h = (h + 1) % harqProcesses
	}
	l.processes[h].prb = w.prb
	n.transmitBlocks(c, w.user, h)
}

// retransmitDue sends one due process of user i if it fits into free. Other due processes wait.
func (n *Network) retransmitDue(c *carrier, i int, free *freeBlocks) {
	l := &c.links[i]
	l.retransmittedPRB = 0
	if l.busyProcesses == 0 {
		return
	}
	first := -1
	oldest := n.number + 1
	for h := range l.processes {
		fits := *free
		if p := &l.processes[h]; l.busyProcesses&(1<<h) != 0 && fits.reserveBlocks(p.prb) {
			for k := range p.blocks {
				if b := &p.blocks[k]; b.pending && b.due < oldest {
					first, oldest = h, b.due
				}
			}
		}
	}
	if first < 0 {
		return
	}
	l.retransmittedPRB = l.processes[first].prb
	free.reserveBlocks(l.retransmittedPRB)
	n.transmitBlocks(c, i, first)
}

// transmitBlocks sends the due blocks of process h, and fills and sends its free blocks. It draws
// which of them arrive correctly.
func (n *Network) transmitBlocks(c *carrier, i, h int) {
	u, l := &n.users[i], &c.links[i]
	p := &l.processes[h]
	g := cell.Grant{RNTI: u.RNTI, Format: cell.Format1, PRB: uint8(p.prb), HARQ: uint8(h), N: uint8(c.Layers)}
	if c.Layers == 2 {
		g.Format = cell.Format2
	}
	l.busyProcesses &^= 1 << h
	for k := range p.blocks[:c.Layers] {
		b := &p.blocks[k]
		switch {
		case b.pending && b.due > n.number, !b.pending && (u.unsentBits == 0 || u.cqi == 0):
			g.Blocks[k] = cell.Block{RV: 1} // disabled (36.212 section 5.3.3.1.5)
		default:
			if !b.pending {
				n.fillTransportBlock(c, u, b, p.prb)
			}
			g.Blocks[k] = n.describeBlock(b)
			l.meanBits += float64(b.bits) / meanSubframes
			n.drawOutcome(u, b)
		}
		if b.pending {
			l.busyProcesses |= 1 << h
		}
	}
	u.lastGrant = n.number
	c.grants = append(c.grants, g)
}

// fillTransportBlock makes b a new block of a user's data.
func (n *Network) fillTransportBlock(c *carrier, u *user, b *transportBlock, prb int) {
	bits := c.blockBits(u, prb)
	*b = transportBlock{bits: bits, mcs: cqiMCS[u.cqi], cqi: u.cqi, ndi: b.ndi, from: u.firstUnsent, to: u.firstUnsent}
	room := n.payloadBits(bits)
	for room > 0 && u.firstUnsent < u.queue.next {
		it := u.queue.itemByNumber(u.firstUnsent)
		part := min(room, it.bitsLeft)
		it.bitsLeft -= part
		room -= part
		u.unsentBits -= part
		it.blocks++
		b.to = u.firstUnsent + 1
		if it.bitsLeft == 0 {
			u.firstUnsent++
		}
	}
}

// describeBlock returns b as its grant describes it this time.
func (n *Network) describeBlock(b *transportBlock) cell.Block {
	if b.retransmissions == 0 {
		b.ndi = !b.ndi
	}
	t := cell.Block{MCS: b.mcs, NDI: b.ndi, RV: [...]uint8{0, 2, 3, 1}[b.retransmissions], Size: cell.Bits(b.bits)}
	if b.retransmissions > 0 && n.random.Float64() < sizelessShare {
		t.MCS, t.Size = retransmissionMCS(b.mcs), 0
	}
	return t
}

// drawOutcome draws whether b is correct this time. If not, it sets the next transmission.
func (n *Network) drawOutcome(u *user, b *transportBlock) {
	p := -math.Expm1(float64(b.bits) * u.logBitRight)
	if u.Adapts {
		p = u.link.combineTransmission(b)
	}
	wrong := n.random.Float64() < p
	if u.Adapts && b.retransmissions == 0 && b.rlcRepeats == 0 {
		u.link.correctOffset(wrong)
	}
	if wrong {
		b.pending, b.due = true, n.number+harqDelay
		if b.retransmissions++; b.retransmissions <= maxRetransmissions {
			return
		}
		b.retransmissions, b.due, b.energy = 0, n.number+rlcDelay, 0
		if b.rlcRepeats++; b.rlcRepeats < rlcRounds && !u.Unacknowledged {
			return
		}
	}
	u.endBlock(b, wrong)
}

// endBlock ends a block, which was delivered or lost.
func (u *user) endBlock(b *transportBlock, lost bool) {
	b.pending = false
	for k := b.from; k < b.to; k++ {
		it := u.queue.itemByNumber(k)
		it.blocks--
		it.lost = it.lost || lost
	}
}

// serveControlUsers adds control users and grants them blocks. 68 % of them get four blocks and the
// others one to eight. One in ten stays for a second subframe. With 0.4 a subframe about 16 are
// seen in 40 ms, and one after the filter (figure 7 of the paper).
func (n *Network) serveControlUsers(c *carrier, free *freeBlocks) {
	for k := n.drawPoisson(c.noControlProbability); k > 0; k-- {
		x := controlUser{rnti: cell.RNTI(0x100 + n.random.IntN(0xF000)), prb: 4, left: 1}
		if n.random.Float64() > 0.68 {
			x.prb = 1 + n.random.IntN(8)
		}
		if n.random.Float64() < 0.1 {
			x.left = 2
		}
		c.controls = append(c.controls, x)
	}
	used, keep := 0, c.controls[:0]
	for _, x := range c.controls {
		if free.groupsForPRB(used+x.prb) > free.groups || len(c.grants) >= cell.MaxGrants/2 {
			continue
		}
		used += x.prb
		g := cell.Grant{RNTI: x.rnti, Format: cell.Format1A, PRB: uint8(x.prb), HARQ: uint8(x.left), N: 1}
		g.Blocks[0] = cell.Block{MCS: 4, NDI: x.left == 1, Size: cell.Bits(tbs.Size(4, x.prb))}
		c.grants = append(c.grants, g)
		if x.left--; x.left > 0 {
			keep = append(keep, x)
		}
	}
	c.controls = keep
	free.groups -= free.groupsForPRB(used)
}

// drawPoisson draws a Poisson count. none is the probability of 0.
func (n *Network) drawPoisson(none float64) int {
	k, p := 0, 1.0
	for {
		p *= n.random.Float64()
		if p <= none || k > 50 {
			return k
		}
		k++
	}
}

// recordTruth records the truth of this subframe. free counts the blocks left by control traffic
// and retransmissions.
func (n *Network) recordTruth(c *carrier, free int) {
	all := 0
	for _, w := range c.demands {
		all += w.need
	}
	k := 0 // c.demands[k] belongs to user i or a later one
	for i := range n.users {
		u := &n.users[i]
		others, with := all, len(c.demands)+1
		if k < len(c.demands) && c.demands[k].user == i {
			others, with = others-c.demands[k].need, with-1
			k++
		}
		if !u.isServedBy(c.id) {
			continue
		}
		bits := float64(c.grantBits(u, c.PRB)) / float64(c.PRB)
		mine := float64(free + c.links[i].retransmittedPRB)
		n.truth[i].Physical += max(mine-float64(others), mine/float64(with)) * bits
		n.truth[i].Fair += float64(c.PRB) / float64(with) * bits
	}
}
