package lte

import (
	"math"

	"mpbond/pbe/cell"
	"mpbond/pbe/lte/tbs"
)

// Specification.
const (
	harqDelay     = 8 // subframes until a block comes again (36.213 section 8)
	harqProcesses = 8
	maxAgain      = 3 // retransmissions of one block
	// A block that HARQ has given up is sent anew by RLC in acknowledged mode,
	// after t-Reordering of 35 ms from its first transmission (36.331 section
	// 9.2.1.1) and a status report: so many subframes after its last. After
	// rlcRounds of that it is lost (maxRetxThreshold there; a real device would
	// begin its connection anew).
	rlcDelay  = 20
	rlcRounds = 4
)

// sizeless is the part of retransmissions that name no size (MCS 29 to 31):
// networks do it now and then, for the size is that of the first transmission
// (36.213 section 7.1.7.2). Ours.
const sizeless = 0.3

// meanOver is over how many subframes proportional fair averages.
const meanOver = 100

// carrier is one cell at work.
type carrier struct {
	CellConfig
	id       cell.ID
	links    []link // by user
	grants   []cell.Grant
	wants    []want
	controls []control
	none     float64 // probability that no control user comes in a subframe
	next     int     // where equal shares begin, so that the remainder goes round
}

// link is one user in one cell.
type link struct {
	processes [harqProcesses]process
	busy      uint8   // bits of the processes that hold a block which is not right yet
	again     int     // PRB of what comes again in this subframe; there is no other grant then
	mean      float64 // bits of a subframe, for proportional fair
}

// process is one HARQ process: the blocks of one grant.
type process struct {
	prb    int
	blocks [2]block
}

// block is a transport block.
type block struct {
	held   bool  // it is not right yet
	due    int64 // when it comes again
	bits   int
	mcs    uint8
	ndi    bool
	again  int // times that HARQ repeated it
	rounds int // times that RLC began it anew
	// from and to are the numbers of items of which a part is in it, without to.
	from, to int64
}

// control is a user who exchanges control traffic.
type control struct {
	rnti cell.RNTI
	prb  int
	left int
}

// want is a user who has something to send in a subframe of one cell.
type want struct {
	user int
	need int // PRB that would carry all of it, at most the width of the cell
	prb  int // PRB given
}

// room is what is free of a carrier's blocks: whole groups, and the rest of the
// width, if that is none.
type room struct{ group, whole, rest int }

// room is all of the carrier. Where single blocks are given each is a group.
func (c *carrier) room() room {
	g := 1
	if c.Groups {
		g = tbs.Group(c.PRB)
	}
	return room{group: g, whole: c.PRB / g, rest: c.PRB % g}
}

func (r room) blocks() int { return r.whole*r.group + r.rest }

// groups is how many groups hold so many blocks.
func (r room) groups(prb int) int { return (prb + r.group - 1) / r.group }

// take takes as many blocks as were once given together, or none.
func (r *room) take(prb int) bool {
	rest := prb % r.group
	if prb/r.group > r.whole || rest > 0 && rest != r.rest {
		return false
	}
	r.whole -= prb / r.group
	r.rest -= rest
	return true
}

// give gives w up to so many groups more, as far as it needs them.
func (r *room) give(w *want, groups int) {
	groups = min(groups, r.groups(w.need-w.prb), r.whole)
	w.prb += groups * r.group
	r.whole -= groups
}

// end gives w the rest of the width, if it needs more than it has.
func (r *room) end(w *want) {
	if w.prb < w.need {
		w.prb += r.rest
		r.rest = 0
	}
}

// bits is what the blocks of a grant carry.
func (c *carrier) bits(cqi, prb int) int { return size(cqi, prb) * c.Layers }

// payload is what packets have of bits.
func (n *Network) payload(bits int) int { return int(float64(bits) * (1 - n.cfg.Overhead)) }

// serve makes one subframe of one cell: first what comes again, then control
// traffic, then new blocks.
func (n *Network) serve(c *carrier) {
	c.grants, c.wants = c.grants[:0], c.wants[:0]
	free := c.room()
	for i := range n.users {
		n.retransmit(c, i, &free)
	}
	n.controlUsers(c, &free)
	for i := range n.users {
		if u := &n.users[i]; u.unsent > 0 && u.cqi > 0 && u.in(c.id) {
			c.wants = append(c.wants, want{user: i, need: n.need(c, u)})
		}
	}
	n.record(c, free.blocks())
	// One grant for each user in a subframe, and a free process to put it in.
	may := c.wants[:0]
	for _, w := range c.wants {
		if l := &c.links[w.user]; l.again == 0 && l.busy != 1<<harqProcesses-1 {
			may = append(may, w)
		}
	}
	if n.cfg.Scheduler == ProportionalFair {
		n.proportional(c, may, free)
	} else {
		c.equal(may, free)
	}
	for i := range c.links {
		c.links[i].mean -= c.links[i].mean / meanOver
	}
	for _, w := range may {
		if w.prb > 0 {
			n.send(c, w)
		}
	}
}

// need is how many PRB carry what waits for u, in whole groups, at most all.
func (n *Network) need(c *carrier, u *user) int {
	all := n.payload(c.bits(u.cqi, c.PRB))
	if u.unsent >= all {
		return c.PRB
	}
	need := max(1, u.unsent*c.PRB/all)
	for need < c.PRB && n.payload(c.bits(u.cqi, need)) < u.unsent {
		need++
	}
	r := c.room()
	return min(r.groups(need)*r.group, c.PRB)
}

// equal gives all the same, and what one does not need to the others.
func (c *carrier) equal(wants []want, free room) {
	open := len(wants)
	for free.whole > 0 && open > 0 {
		share := max(1, free.whole/open)
		open = 0
		for k := range wants {
			w := &wants[(k+c.next)%len(wants)]
			if free.give(w, share); w.prb < w.need {
				open++
			}
		}
	}
	for k := range wants {
		free.end(&wants[(k+c.next)%len(wants)])
	}
	c.next++
}

// proportional gives one after the other what it needs.
func (n *Network) proportional(c *carrier, wants []want, free room) {
	worth := func(w want) float64 {
		return float64(c.bits(n.users[w.user].cqi, c.PRB)) / (1 + c.links[w.user].mean)
	}
	for free.blocks() > 0 {
		var best *want
		most := 0.0
		for j := range wants {
			if w := &wants[j]; w.prb == 0 {
				if x := worth(*w); best == nil || x > most {
					best, most = w, x
				}
			}
		}
		if best == nil {
			return
		}
		free.give(best, free.whole)
		free.end(best)
	}
}

// send makes blocks of what waits for a user.
func (n *Network) send(c *carrier, w want) {
	l := &c.links[w.user]
	h := int(n.number) % harqProcesses
	for l.busy&(1<<h) != 0 {
		h = (h + 1) % harqProcesses
	}
	l.processes[h].prb = w.prb
	n.transmit(c, w.user, h)
}

// retransmit serves what is due of user i, at most one process, if it fits into
// free. What does not fit waits.
func (n *Network) retransmit(c *carrier, i int, free *room) {
	l := &c.links[i]
	l.again = 0
	if l.busy == 0 {
		return
	}
	first := -1
	oldest := n.number + 1
	for h := range l.processes {
		fits := *free
		if p := &l.processes[h]; l.busy&(1<<h) != 0 && fits.take(p.prb) {
			for k := range p.blocks {
				if b := &p.blocks[k]; b.held && b.due < oldest {
					first, oldest = h, b.due
				}
			}
		}
	}
	if first < 0 {
		return
	}
	l.again = l.processes[first].prb
	free.take(l.again)
	n.transmit(c, i, first)
}

// transmit sends the blocks of process h that are due, and fills those that are
// free; it decides which are right: these have come over.
func (n *Network) transmit(c *carrier, i, h int) {
	u, l := &n.users[i], &c.links[i]
	p := &l.processes[h]
	g := cell.Grant{RNTI: u.RNTI, Format: cell.Format1, PRB: uint8(p.prb), HARQ: uint8(h), N: uint8(c.Layers)}
	if c.Layers == 2 {
		g.Format = cell.Format2
	}
	l.busy &^= 1 << h
	for k := range p.blocks[:c.Layers] {
		b := &p.blocks[k]
		switch {
		case b.held && b.due > n.number, !b.held && (u.unsent == 0 || u.cqi == 0):
			g.Blocks[k] = cell.Block{RV: 1} // disabled (36.212 section 5.3.3.1.5)
		default:
			if !b.held {
				n.fill(u, b, p.prb)
			}
			g.Blocks[k] = n.told(b)
			l.mean += float64(b.bits) / meanOver
			n.judge(u, b)
		}
		if b.held {
			l.busy |= 1 << h
		}
	}
	c.grants = append(c.grants, g)
}

// fill makes b a new block of what waits for u.
func (n *Network) fill(u *user, b *block, prb int) {
	bits := size(u.cqi, prb)
	*b = block{bits: bits, mcs: codings[u.cqi], ndi: b.ndi, from: u.head, to: u.head}
	room := n.payload(bits)
	for room > 0 && u.head < u.queue.next {
		it := u.queue.at(u.head)
		part := min(room, it.left)
		it.left -= part
		room -= part
		u.unsent -= part
		it.blocks++
		b.to = u.head + 1
		if it.left == 0 {
			u.head++
		}
	}
}

// told is b as its grant tells it, this time.
func (n *Network) told(b *block) cell.Block {
	if b.again == 0 {
		b.ndi = !b.ndi
	}
	t := cell.Block{MCS: b.mcs, NDI: b.ndi, RV: [...]uint8{0, 2, 3, 1}[b.again], Size: cell.Bits(b.bits)}
	if b.again > 0 && n.rnd.Float64() < sizeless {
		t.MCS, t.Size = again(b.mcs), 0
	}
	return t
}

// judge decides whether b is right this time; if not, when it comes again.
func (n *Network) judge(u *user, b *block) {
	wrong := n.rnd.Float64() < -math.Expm1(float64(b.bits)*u.right)
	if wrong {
		b.held, b.due = true, n.number+harqDelay
		if b.again++; b.again <= maxAgain {
			return
		}
		b.again, b.due = 0, n.number+rlcDelay
		if b.rounds++; b.rounds < rlcRounds {
			return
		}
	}
	b.held = false
	for k := b.from; k < b.to; k++ {
		it := u.queue.at(k)
		it.blocks--
		it.lost = it.lost || wrong
	}
}

// controlUsers come and go, and take their blocks, one after the other. 68 % of them
// are given four, the others one to eight, and one in ten stays for a
// second subframe: with 0.4 a subframe about 16 are seen in 40 ms, and one after
// the filter (figure 7 of the paper).
func (n *Network) controlUsers(c *carrier, free *room) {
	for k := n.poisson(c.none); k > 0; k-- {
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
		if free.groups(used+x.prb) > free.whole || len(c.grants) >= cell.MaxGrants/2 {
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
	free.whole -= free.groups(used)
}

// poisson draws a count, of which none is the probability of 0.
func (n *Network) poisson(none float64) int {
	k, p := 0, 1.0
	for {
		p *= n.rnd.Float64()
		if p <= none || k > 50 {
			return k
		}
		k++
	}
}

// record keeps the truth of this subframe: free is what control traffic and
// retransmissions left.
func (n *Network) record(c *carrier, free int) {
	all := 0
	for _, w := range c.wants {
		all += w.need
	}
	k := 0 // c.wants[k] is of user i, or of one after
	for i := range n.users {
		u := &n.users[i]
		others, with := all, len(c.wants)+1
		if k < len(c.wants) && c.wants[k].user == i {
			others, with = others-c.wants[k].need, with-1
			k++
		}
		if !u.in(c.id) {
			continue
		}
		bits := float64(c.bits(u.cqi, c.PRB)) / float64(c.PRB)
		mine := float64(free + c.links[i].again)
		n.truth[i].Physical += max(mine-float64(others), mine/float64(with)) * bits
		n.truth[i].Fair += float64(c.PRB) / float64(with) * bits
	}
}
