// Package lte is the model of mobile cells in the lab: base station, users with
// their queues, retransmissions, carriers, and the control messages that PBE-CC
// listens to, in steps of one subframe of 1 ms. Before it stands who brings
// packets, as lab/virtual does; behind it who takes them away, and whoever reads
// the messages.
//
// It is pure: the same seed and the same offers give the same subframes. It
// embodies assumptions of PBE-CC itself (a share of blocks, a rate per block,
// what is idle shows): docs/pbe.md.
package lte

import (
	"math"
	"math/rand/v2"
	"slices"

	"mpbond/pbe/cell"
	"mpbond/unit"
)

// Specification.
const (
	harqDelay     = 8 // subframes until a block comes again (36.213 section 8)
	harqProcesses = 8
	maxAgain      = 3 // retransmissions of one block
	// headers is γ of PBE-CC section 4.2.2: the part of a block that is not the
	// users' packets.
	headers = cell.Overhead
)

// Choices of the model. A network of the paper's authors turned a carrier on
// 130 ms after the first was full, and off about a second after it was not
// needed (section 3).
const (
	carrierOn  = 130
	carrierOff = 1000
)

// Scheduler shares the blocks of a subframe.
type Scheduler uint8

const (
	// EqualShare gives all who have something to send the same number of blocks.
	EqualShare Scheduler = iota
	// ProportionalFair gives what it needs to whose rate is best compared with what
	// that user had of late (100 ms), then to the next.
	ProportionalFair
)

// Config is one network.
type Config struct {
	Cells     []CellConfig // at most cell.MaxCells
	Users     []UserConfig
	Scheduler Scheduler
	Seed      uint64
}

// CellConfig is one carrier.
type CellConfig struct {
	// PRB is its width: 6, 15, 25, 50, 75 or 100.
	PRB int
	// Layers multiply the rate of a block: 1 or 2, so that one carries 1.5 Mbit/s
	// at most.
	Layers int
	// Control is the mean number of users per subframe who exchange control
	// traffic only: most of them four blocks in one subframe.
	Control float64
}

// UserConfig is one device.
type UserConfig struct {
	RNTI cell.RNTI // the same in all its cells
	// Cells are indices of Config.Cells; the first is the primary one.
	Cells []int
	// SINR is the signal in dB at a subframe, in every cell.
	SINR func(number int64) float64
	// ErrorRate is the probability that one bit is wrong; a block of L bits is
	// with 1−(1−p)^L.
	ErrorRate float64
	// Buffer bounds the bytes that wait.
	Buffer unit.Bytes
}

// Item is a packet that waits for, or is on, the air: the network's from Offer
// until it has come over, then the caller's again, who may offer it anew.
type Item struct {
	Size unit.Bytes
	// Tag is the caller's.
	Tag any

	left   float64 // bits not yet given to a block
	blocks int     // blocks on the air that hold a part
	sent   bool    // all of it is in blocks
}

// Out is an item that has come over, in the order in which the user's came.
type Out struct {
	User int
	Item *Item
	// Lost says that a block with a part of it was wrong four times.
	Lost bool
}

// block is a transport block on the air.
type block struct {
	user  int
	prb   int
	bits  float64
	ndi   bool
	harq  uint8
	mcs   uint8
	again int
	items []*Item
}

type user struct {
	UserConfig
	queue   []*Item // all that is not released; the first may be on the air
	head    int     // index of the first not wholly in blocks
	waiting unit.Bytes
	active  []bool // by index of Cells
	full    int    // subframes in turn in which the active carriers left something waiting
	spare   int    // subframes in turn in which the last carrier was not needed
	mean    float64
	ndi     [cell.MaxCells][harqProcesses]bool
	lost    map[*Item]bool
}

// Network is a Config at work. It is not safe for concurrent use.
type Network struct {
	cfg    Config
	rnd    *rand.Rand
	users  []*user
	cells  []*carrier
	number int64
	truth  []Truth
	spare  []*block // for further use
}

type carrier struct {
	CellConfig
	id       cell.ID
	air      [harqDelay][]*block // by subframe % harqDelay: due for retransmission or delivered
	grants   []cell.Grant
	wants    []want
	controls []control
	again    []int // by user: blocks of its retransmission in this subframe
	next     int   // where equal shares begin, so that the remainder goes round
}

// control is a user who exchanges control traffic.
type control struct {
	rnti cell.RNTI
	prb  int
	left int
}

// Truth is what the network knows of a user in one subframe, to compare estimates
// with.
type Truth struct {
	// Physical is what the user could have beside what others want, and at least
	// an equal part of what control traffic leaves; Fair is an equal part of the
	// whole. In bits, over its active carriers.
	Physical, Fair float64
	// Waiting are bytes in its queue.
	Waiting unit.Bytes
	// Carriers are active.
	Carriers int
}

// New begins at subframe 0 with empty queues.
func New(cfg Config) *Network {
	n := &Network{cfg: cfg, rnd: rand.New(rand.NewPCG(cfg.Seed, 77))}
	for i, c := range cfg.Cells {
		n.cells = append(n.cells, &carrier{CellConfig: c, id: cell.ID(i), again: make([]int, len(cfg.Users))})
	}
	for _, u := range cfg.Users {
		x := &user{UserConfig: u, active: make([]bool, len(u.Cells)), lost: map[*Item]bool{}}
		x.active[0] = true
		n.users = append(n.users, x)
	}
	n.truth = make([]Truth, len(n.users))
	return n
}

// Offer brings an item for a user. False says that its buffer is full.
func (n *Network) Offer(u int, it *Item) bool {
	x := n.users[u]
	if x.Buffer > 0 && x.waiting+it.Size > x.Buffer {
		return false
	}
	it.left, it.blocks, it.sent = float64(it.Size)*8, 0, false
	x.queue = append(x.queue, it)
	x.waiting += it.Size
	return true
}

// Waiting is what waits for user u, or is on the air.
func (n *Network) Waiting(u int) unit.Bytes { return n.users[u].waiting }

// Busy tells whether anything waits or is on the air for anybody.
func (n *Network) Busy() bool {
	for _, u := range n.users {
		if len(u.queue) > 0 {
			return true
		}
	}
	return false
}

// Truth is of user u as of the last subframe.
func (n *Network) Truth(u int) Truth {
	t := n.truth[u]
	t.Waiting = n.users[u].waiting
	t.Carriers = 0
	for _, a := range n.users[u].active {
		if a {
			t.Carriers++
		}
	}
	return t
}

// Step makes the next subframe. What has come over is appended to out; the
// control messages of each cell are told to hear, if that is not nil, and hold
// until it returns.
func (n *Network) Step(out []Out, hear func(cell.Subframe)) []Out {
	clear(n.truth)
	for _, c := range n.cells {
		n.serve(c)
		if hear != nil {
			hear(cell.Subframe{Cell: c.id, Number: n.number, PRB: uint8(c.PRB), Grants: c.grants})
		}
	}
	for i, u := range n.users {
		n.carriers(u)
		gone := 0
		for gone < len(u.queue) && u.queue[gone].sent && u.queue[gone].blocks == 0 {
			it := u.queue[gone]
			gone++
			u.waiting -= it.Size
			out = append(out, Out{i, it, u.lost[it]})
			delete(u.lost, it)
		}
		u.queue = slices.Delete(u.queue, 0, gone) // in place: a queue is some hundred packets
		u.head -= gone
	}
	n.number++
	return out
}

// Number is that of the next subframe.
func (n *Network) Number() int64 { return n.number }

// perPRB is how many bits one block carries at a CQI.
func (c *carrier) perPRB(cqi int) float64 { return efficiency[cqi] * elements * float64(c.Layers) }

// want is a user who has something to send in a subframe of one cell.
type want struct {
	user int
	need int     // blocks that would carry all of it, at most the width of the cell
	prb  int     // blocks given
	bits float64 // of one block
	cqi  int
}

// serve makes one subframe of one cell: first what comes again, then control
// traffic, then new blocks.
func (n *Network) serve(c *carrier) {
	c.grants = c.grants[:0]
	free := c.PRB
	free -= n.retransmit(c, free)
	free -= n.controlUsers(c, free)
	c.wants = c.wants[:0]
	for i, u := range n.users {
		if !u.in(c.id) || u.head >= len(u.queue) {
			continue
		}
		cqi := CQI(u.SINR(n.number))
		bits := c.perPRB(cqi)
		if bits == 0 {
			continue // out of reach
		}
		left := 0.0
		for _, it := range u.queue[u.head:] {
			if left += it.left; left > bits*float64(c.PRB) {
				break
			}
		}
		need := int(math.Ceil(left / (bits * (1 - headers))))
		c.wants = append(c.wants, want{user: i, need: min(need, c.PRB), bits: bits, cqi: cqi})
	}
	n.record(c, free)
	// One block for each user in a subframe, and a free process to put it in.
	wants := slices.DeleteFunc(c.wants, func(w want) bool { return c.again[w.user] > 0 || n.freeProcess(c, w.user) < 0 })
	if n.cfg.Scheduler == ProportionalFair {
		n.proportional(wants, free)
	} else {
		c.equal(wants, free)
	}
	for _, w := range wants {
		u := n.users[w.user]
		if w.prb > 0 {
			n.send(c, w)
		}
		u.mean += (w.bits*float64(w.prb) - u.mean) / 100
	}
}

// equal gives all the same, and what one does not need to the others.
func (c *carrier) equal(wants []want, free int) {
	open := len(wants)
	for free > 0 && open > 0 {
		share := max(1, free/open)
		open = 0
		for k := range wants {
			w := &wants[(k+c.next)%len(wants)]
			give := min(share, w.need-w.prb, free)
			w.prb += give
			free -= give
			if w.prb < w.need {
				open++
			}
		}
	}
	c.next++
}

// proportional gives one after the other what it needs.
func (n *Network) proportional(wants []want, free int) {
	worth := func(w want) float64 { return w.bits / (1 + n.users[w.user].mean) }
	for free > 0 {
		var best *want
		for j := range wants {
			if w := &wants[j]; w.prb == 0 && (best == nil || worth(*w) > worth(*best)) {
				best = w
			}
		}
		if best == nil {
			return
		}
		best.prb = min(best.need, free)
		free -= best.prb
	}
}

// in tells whether the user is served by cell c now.
func (u *user) in(c cell.ID) bool {
	for i, x := range u.Cells {
		if cell.ID(x) == c {
			return u.active[i]
		}
	}
	return false
}

// freeProcess is a HARQ process of user i that has nothing on the air, or −1.
func (n *Network) freeProcess(c *carrier, i int) int {
	used := 0
	for _, due := range c.air {
		for _, b := range due {
			if b.user == i {
				used |= 1 << b.harq
			}
		}
	}
	for k := range harqProcesses {
		if h := (int(n.number) + k) % harqProcesses; used&(1<<h) == 0 {
			return h
		}
	}
	return -1
}

// send makes a block of what waits for a user.
func (n *Network) send(c *carrier, w want) {
	u := n.users[w.user]
	bits := w.bits * float64(w.prb)
	room := bits * (1 - headers)
	harq := n.freeProcess(c, w.user)
	b := n.block()
	*b = block{user: w.user, prb: w.prb, bits: bits, harq: uint8(harq), mcs: mcsOf(w.cqi), items: b.items[:0]}
	u.ndi[c.id][harq] = !u.ndi[c.id][harq]
	b.ndi = u.ndi[c.id][harq]
	for room > 0 && u.head < len(u.queue) {
		it := u.queue[u.head]
		part := min(room, it.left)
		it.left -= part
		room -= part
		it.blocks++
		b.items = append(b.items, it)
		if it.left <= 0 {
			it.sent = true
			u.head++
		}
	}
	n.transmit(c, b)
}

// block is one that nobody uses.
func (n *Network) block() *block {
	if len(n.spare) == 0 {
		return &block{}
	}
	b := n.spare[len(n.spare)-1]
	n.spare = n.spare[:len(n.spare)-1]
	return b
}

// transmit puts a block on the air and decides whether it is right there: then
// it has come over in this subframe, else it comes again 8 subframes later.
func (n *Network) transmit(c *carrier, b *block) {
	u := n.users[b.user]
	g := cell.Grant{RNTI: u.RNTI, Format: cell.Format1, PRB: uint8(b.prb), HARQ: b.harq, N: 1}
	g.Blocks[0] = cell.Block{MCS: b.mcs, NDI: b.ndi, RV: [4]uint8{0, 2, 3, 1}[b.again], Size: cell.Bits(b.bits)}
	if b.again > 0 && n.rnd.Float64() < 0.3 {
		// The size is then that of the first transmission (36.213 section 7.1.7.2).
		g.Blocks[0].MCS, g.Blocks[0].Size = 29, 0
	}
	c.grants = append(c.grants, g)
	wrong := n.rnd.Float64() < -math.Expm1(b.bits*math.Log1p(-u.ErrorRate))
	if wrong && b.again < maxAgain {
		b.again++
		due := (n.number + harqDelay) % harqDelay
		c.air[due] = append(c.air[due], b)
		return
	}
	for _, it := range b.items {
		it.blocks--
		if wrong {
			u.lost[it] = true
		}
	}
	n.spare = append(n.spare, b)
}

// retransmit serves first what was wrong 8 subframes ago, and returns the blocks
// used.
func (n *Network) retransmit(c *carrier, free int) int {
	due := n.number % harqDelay
	list := c.air[due]
	// transmit adds to the same list what comes once more, never before it was read.
	c.air[due] = list[:0]
	clear(c.again)
	used := 0
	for _, b := range list {
		if used+b.prb > free {
			c.air[(due+1)%harqDelay] = append(c.air[(due+1)%harqDelay], b) // later
			continue
		}
		used += b.prb
		c.again[b.user] += b.prb
		n.transmit(c, b)
	}
	return used
}

// controlUsers come and go; it returns the blocks that they take. 68 % of them
// are given four blocks, the others one to eight, and one in ten stays for a
// second subframe: with 0.4 a subframe about 16 are seen in 40 ms, and one after
// the filter (figure 7 of the paper).
func (n *Network) controlUsers(c *carrier, free int) int {
	for k := n.poisson(c.Control); k > 0; k-- {
		x := control{rnti: cell.RNTI(0x100 + n.rnd.IntN(0xF000)), prb: 4, left: 1}
		if n.rnd.Float64() > 0.68 {
			x.prb = 1 + n.rnd.IntN(8)
		}
		if n.rnd.Float64() < 0.1 {
			x.left = 2
		}
		c.controls = append(c.controls, x)
	}
	used, keep := 0, c.controls[:0]
	for _, x := range c.controls {
		if used+x.prb > free || len(c.grants) >= cell.MaxGrants/2 {
			continue
		}
		used += x.prb
		g := cell.Grant{RNTI: x.rnti, Format: cell.Format1A, PRB: uint8(x.prb), HARQ: uint8(x.left), N: 1}
		g.Blocks[0] = cell.Block{MCS: 4, NDI: x.left == 1, Size: cell.Bits(x.prb * 70)}
		c.grants = append(c.grants, g)
		if x.left--; x.left > 0 {
			keep = append(keep, x)
		}
	}
	c.controls = keep
	return used
}

// poisson draws a count by its mean, which is small.
func (n *Network) poisson(mean float64) int {
	limit, k, p := math.Exp(-mean), 0, 1.0
	for {
		p *= n.rnd.Float64()
		if p <= limit || k > 50 {
			return k
		}
		k++
	}
}

// carriers turns secondary carriers of a user on and off.
func (n *Network) carriers(u *user) {
	active := 0
	for _, a := range u.active {
		if a {
			active++
		}
	}
	if u.head < len(u.queue) {
		u.full, u.spare = u.full+1, 0
	} else {
		u.full = 0
		u.spare++
	}
	switch {
	case u.full >= carrierOn && active < len(u.active):
		u.active[active], u.full = true, 0
	case u.spare >= carrierOff && active > 1:
		u.active[active-1], u.spare = false, 0
	}
}

// record keeps the truth of this subframe: free is what control traffic and
// retransmissions left.
func (n *Network) record(c *carrier, free int) {
	for i, u := range n.users {
		if !u.in(c.id) {
			continue
		}
		with, others := 1, 0
		for _, w := range c.wants {
			if w.user != i {
				with, others = with+1, others+w.need
			}
		}
		bits := c.perPRB(CQI(u.SINR(n.number)))
		mine := float64(free + c.again[i])
		n.truth[i].Physical += max(mine-float64(others), mine/float64(with)) * bits
		n.truth[i].Fair += float64(c.PRB) / float64(with) * bits
	}
}
