package lte

import (
	"math/bits"

	"mpbond/pbe/cell"
	"mpbond/pbe/lte/tbs"
)

// DCI is one decoded message of the PDCCH (36.212 section 5.3.3).
type DCI struct {
	RNTI   cell.RNTI
	Format cell.Format
	// CCE is the first of Level control channel elements that carry it.
	CCE, Level int
	// Payload are its bits without CRC.
	Payload []byte
	// PRBs are the resource blocks of the first slot.
	PRBs Map
	// PRB counts them.
	PRB int
	// Distributed says that the second slot has others.
	Distributed bool
	// HARQ is the process of a grant for receiving.
	HARQ uint8
	// Blocks[:N] are the transport blocks. Format 2 and 2A say of each of two whether
	// there is one; if only the second is, it is the first here, and Second is set.
	Blocks [2]cell.Block
	N      int
	Second bool
	// Agreement is the part of the soft bits' weight that the message explains: 1 if
	// nothing was wrong.
	Agreement float64
}

// disabled is a block of formats 2 and 2A that is not there (36.213 section 7.1.7.2).
var disabled = cell.Block{MCS: 0, RV: 1}

// Grant is what pbe/cell wants to know of d. There each block has its place, as
// one that comes again is known by it.
func (d *DCI) Grant() cell.Grant {
	g := cell.Grant{RNTI: d.RNTI, Format: d.Format, PRB: uint8(d.PRB), HARQ: d.HARQ, Blocks: d.Blocks, N: uint8(d.N)}
	if d.Second {
		g.Blocks, g.N = [2]cell.Block{disabled, d.Blocks[0]}, 2
	}
	return g
}

// Map is a set of resource blocks.
type Map [2]uint64

func (m *Map) add(prb int) { m[prb>>6] |= 1 << (prb & 63) }

// Has tells whether prb, 0 to 109, is in m.
func (m Map) Has(prb int) bool { return m[prb>>6]>>(prb&63)&1 != 0 }

func (m *Map) fill(from, to int) {
	for prb := from; prb < to; prb++ {
		m.add(prb)
	}
}

func (m Map) count() int { return bits.OnesCount64(m[0]) + bits.OnesCount64(m[1]) }

// fields reads one after the other.
type fields []byte

func (f *fields) take(n int) int {
	v := 0
	for _, b := range (*f)[:n] {
		v = v<<1 | int(b)
	}
	*f = (*f)[n:]
	return v
}

// zero tells whether what is left is padding.
func (f fields) zero() bool {
	for _, b := range f {
		if b != 0 {
			return false
		}
	}
	return true
}

// parse reads the fields of d.Payload, which has a size that d.Format has. It is
// false if no such DCI is ever sent: then it was none.
func (c Cell) parse(d *DCI) bool {
	f := fields(d.Payload)
	switch d.Format {
	case cell.Format0:
		return c.parse0(d, f)
	case cell.Format1A:
		return c.parse1A(d, f)
	case cell.Format1C:
		return c.parse1C(d, f)
	}
	typeOne := c.header() == 1 && f.take(1) == 1
	if d.Format == cell.Format1 {
		if !c.allocate(d, typeOne, f.take(c.groups())) {
			return false
		}
		mcs := f.take(5)
		d.HARQ = uint8(f.take(3))
		d.Blocks[0] = block(mcs, f.take(1), f.take(2), d.PRB)
		d.N = 1
		f.take(2) // TPC
		return f.zero()
	}
	if !c.allocate(d, typeOne, f.take(c.groups())) {
		return false
	}
	f.take(2) // TPC
	d.HARQ = uint8(f.take(3))
	f.take(1) // swap: to which code word each block goes, which on two ports changes nothing here
	for k := range 2 {
		mcs, ndi, rv := f.take(5), f.take(1), f.take(2)
		if uint8(mcs) == disabled.MCS && uint8(rv) == disabled.RV {
			continue
		}
		d.Second = k > d.N
		d.Blocks[d.N] = block(mcs, ndi, rv, d.PRB)
		d.N++
	}
	if d.N == 0 {
		return false
	}
	if d.Format == cell.Format2 {
		// 36.212 table 5.3.3.1.5-4: seven values for one block, three for two.
		if p := f.take(3); d.N == 1 && p > 6 || d.N == 2 && p > 2 {
			return false
		}
	}
	return f.zero()
}

// block is a transport block of a grant for receiving.
func block(mcs, ndi, rv, prb int) cell.Block {
	return cell.Block{MCS: uint8(mcs), NDI: ndi == 1, RV: uint8(rv), Size: cell.Bits(tbs.Size(tbs.Downlink(mcs).Index, prb))}
}

func (c Cell) parse0(d *DCI, f fields) bool {
	if f.take(1) != 0 {
		return false
	}
	riv := rivBits(c.PRB)
	if f[len(f)-1] == 1 {
		return c.clusters(d, f.take(1+riv), f)
	}
	if f.take(1) == 1 { // hopping: where to (36.213 table 8.4-1)
		hop := 1
		if c.PRB >= 50 {
			hop = 2
		}
		f.take(hop)
		riv -= hop
	}
	first, n, ok := contiguous(f.take(riv), c.PRB)
	if !ok {
		return false
	}
	d.local(first, n)
	d.uplink(f)
	return true
}

// uplink reads what follows the blocks in format 0.
func (d *DCI) uplink(f fields) {
	mcs, ndi := f.take(5), f.take(1)
	d.Blocks[0] = cell.Block{MCS: uint8(mcs), NDI: ndi == 1, Size: cell.Bits(tbs.Size(tbs.Uplink(mcs).Index, d.PRB))}
	if mcs >= tbs.Sized {
		d.Blocks[0].RV = uint8(mcs - tbs.Sized + 1)
	}
	d.N = 1
}

// clusters reads format 0 with two stretches of groups, which its last bit tells (type
// 1 of 36.213 section 8.1.2): r is the index of their ends among all choices of four.
func (c Cell) clusters(d *DCI, r int, rest fields) bool {
	choose := func(n, k int) int {
		v := 1
		for i := range k {
			v = v * (n - i) / (i + 1)
		}
		return v
	}
	p, n := c.groupSize(), c.groups()+1
	if r >= choose(n, 4) {
		return false
	}
	var ends [4]int
	s := 1
	for i := range ends {
		for ; choose(n-s, 4-i) > r; s++ {
		}
		r -= choose(n-s, 4-i)
		ends[i] = s - 1
		s++
	}
	d.PRBs.fill(ends[0]*p, ends[1]*p)
	d.PRBs.fill(ends[2]*p, min(ends[3]*p, c.PRB))
	d.PRB = d.PRBs.count()
	d.uplink(rest)
	return transformable(d.PRB)
}

// transformable tells whether an uplink can have n blocks: the factors 2, 3 and 5 alone,
// as its transform takes them (36.211 section 5.3.3).
func transformable(n int) bool {
	for _, f := range [...]int{2, 3, 5} {
		for n > 0 && n%f == 0 {
			n /= f
		}
	}
	return n == 1
}

// mostSpread is how many distributed blocks one user of a cell from 50 PRB on is given
// by format 1A (36.213 section 7.1.6.3).
const mostSpread = 16

func (c Cell) parse1A(d *DCI, f fields) bool {
	if f.take(1) != 1 {
		return false
	}
	d.Distributed = f.take(1) == 1
	own := d.RNTI.User()
	riv, second := rivBits(c.PRB), false
	order := !d.Distributed
	if d.Distributed && c.PRB >= 50 && own {
		// The gap is the first bit; of others than users it stands in the NDI.
		second = f.take(1) == 1
		riv--
	}
	v := f.take(riv)
	if order && own && v == 1<<riv-1 {
		// An order to begin random access (36.212 section 5.3.3.1.3) grants nothing.
		f.take(6 + 4)
		return f.zero()
	}
	first, n, ok := contiguous(v, c.PRB)
	if !ok {
		return false
	}
	mcs := f.take(5)
	d.HARQ = uint8(f.take(3))
	ndi, rv, tpc := f.take(1), f.take(2), f.take(2)
	d.N = 1
	if own {
		d.Blocks[0] = block(mcs, ndi, rv, n)
	} else {
		// MCS is I_TBS, the last bit of TPC says two or three columns (36.213 section
		// 7.1.7, 36.212 section 5.3.3.1.3).
		if mcs > 26 {
			return false
		}
		second = ndi == 1 && c.PRB >= 50
		d.HARQ = 0
		d.Blocks[0] = cell.Block{MCS: uint8(mcs), RV: uint8(rv), Size: cell.Bits(tbs.Size(mcs, 2+tpc&1))}
	}
	if d.Distributed {
		if first+n > c.virtual(second) || own && c.PRB >= 50 && n > mostSpread {
			return false
		}
		c.spread(d, first, n, second)
	} else {
		d.local(first, n)
	}
	return f.zero()
}

func (c Cell) parse1C(d *DCI, f fields) bool {
	second := c.PRB >= 50 && f.take(1) == 1
	rows := c.virtual(false) / c.step()
	riv := f.take(rivBits(rows))
	first, n, ok := contiguous(riv, c.virtual(second)/c.step())
	if !ok {
		return false
	}
	d.Distributed, d.N = true, 1
	c.spread(d, first*c.step(), n*c.step(), second)
	index := f.take(5)
	d.Blocks[0] = cell.Block{MCS: uint8(index), Size: cell.Bits(tbs.Compact(index))}
	return true
}

// contiguous are the first block and the number that a resource indication value
// stands for, of all (36.213 section 7.1.6.3).
func contiguous(riv, all int) (first, n int, ok bool) {
	n, first = riv/all+1, riv%all
	if first+n > all {
		n, first = all-n+2, all-1-first
	}
	return first, n, riv < all*(all+1)/2 && n >= 1 && first+n <= all
}

func (d *DCI) local(first, n int) {
	d.PRBs.fill(first, first+n)
	d.PRB = n
}

// spread sets the blocks of n distributed virtual ones from first on (36.211
// section 6.2.3.2).
func (c Cell) spread(d *DCI, first, n int, second bool) {
	gap, p := c.gap(second), c.groupSize()
	unit := c.virtual(false)
	if second {
		unit = 2 * gap
	}
	rows := (unit + 4*p - 1) / (4 * p) * p
	null := 4*rows - unit
	for v := first; v < first+n; v++ {
		i, base := v%unit, v/unit*unit
		prb := rows*(i%4) + i/4 + base
		switch late := i >= unit-null; {
		case null == 0:
		case late:
			prb = 2*rows*(i%2) + i/2 + base - rows
			if i%2 == 0 {
				prb += null / 2
			}
		case i%4 >= 2:
			prb -= null / 2
		}
		if prb >= unit/2 {
			prb += gap - unit/2
		}
		d.PRBs.add(prb)
	}
	d.PRB = n
}

// allocate sets the blocks of a map of groups (type 0) or of single blocks of a
// subset of groups (type 1; 36.213 sections 7.1.6.1 and 7.1.6.2).
func (c Cell) allocate(d *DCI, typeOne bool, bits int) bool {
	p, n := c.groupSize(), c.groups()
	if !typeOne {
		for g := range n {
			if bits>>(n-1-g)&1 == 0 {
				continue
			}
			for prb := g * p; prb < min((g+1)*p, c.PRB); prb++ {
				d.PRBs.add(prb)
				d.PRB++
			}
		}
		return d.PRB > 0
	}
	subsetBits := log2(p)
	size := n - subsetBits - 1
	subset := bits >> (n - subsetBits)
	if subset >= p {
		return false
	}
	late := bits>>size&1 == 1
	for i := range size {
		if bits>>(size-1-i)&1 == 1 {
			prb := c.ofSubset(subset, late, i)
			if prb >= c.PRB {
				return false
			}
			d.PRBs.add(prb)
			d.PRB++
		}
	}
	return d.PRB > 0
}

// ofSubset is block i of those of a subset that a map of type 1 tells, the first of
// them or the last (36.213 section 7.1.6.2).
func (c Cell) ofSubset(subset int, late bool, i int) int {
	p := c.groupSize()
	if late {
		whole, rest := (c.PRB-1)/(p*p)*p, (c.PRB-1)/p%p
		of := whole
		switch {
		case subset < rest:
			of += p
		case subset == rest:
			of += (c.PRB-1)%p + 1
		}
		i += of - (c.groups() - log2(p) - 1)
	}
	return i/p*p*p + subset*p + i%p
}
