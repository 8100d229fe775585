// SPDX-License-Identifier: Apache-2.0

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
	// Payload has its bits without CRC.
	Payload []byte
	// PRBs are the resource blocks in the first slot.
	PRBs PRBSet
	// PRB counts them.
	PRB int
	// Distributed reports that the second slot has other blocks.
	Distributed bool
	// HARQ is the process of a downlink grant.
	HARQ uint8
	// Blocks[:N] are the transport blocks. Formats 2 and 2A may enable either of two blocks. If
	// only the second one is enabled, it comes first here and Second is set.
	Blocks [2]cell.Block
	N      int
	Second bool
	// Agreement is the part of the soft bits' weight that the message explains: 1 without errors.
	Agreement float64
}

// disabledBlock marks an absent block of formats 2 and 2A (36.213 section 7.1.7.2).
var disabledBlock = cell.Block{MCS: 0, RV: 1}

// Grant converts d for pbe/cell. There each block keeps its position, which identifies
// retransmissions.
func (d *DCI) Grant() cell.Grant {
	g := cell.Grant{RNTI: d.RNTI, Format: d.Format, PRB: uint8(d.PRB), HARQ: d.HARQ, Blocks: d.Blocks, N: uint8(d.N)}
	if d.Second {
		g.Blocks, g.N = [2]cell.Block{disabledBlock, d.Blocks[0]}, 2
	}
	return g
}

// PRBSet is a set of resource blocks.
type PRBSet [2]uint64

func (m *PRBSet) addPRB(prb int) { m[prb>>6] |= 1 << (prb & 63) }

// Has reports whether prb, 0 to 109, is in m.
func (m PRBSet) Has(prb int) bool { return m[prb>>6]>>(prb&63)&1 != 0 }

// AddAll adds all blocks of another set.
func (m *PRBSet) AddAll(o PRBSet) { m[0], m[1] = m[0]|o[0], m[1]|o[1] }

// Intersects reports whether the sets have a block in common.
func (m PRBSet) Intersects(o PRBSet) bool { return m[0]&o[0] != 0 || m[1]&o[1] != 0 }

func (m *PRBSet) addPRBRange(from, to int) {
	for prb := from; prb < to; prb++ {
		m.addPRB(prb)
	}
}

// Len returns the number of blocks.
func (m PRBSet) Len() int { return bits.OnesCount64(m[0]) + bits.OnesCount64(m[1]) }

// bitReader reads consecutive fields.
type bitReader []byte

func (f *bitReader) readBits(n int) int {
	v := 0
	for _, b := range (*f)[:n] {
		v = v<<1 | int(b)
	}
	*f = (*f)[n:]
	return v
}

// hasOnlyPadding reports whether all remaining bits are zero.
func (f bitReader) hasOnlyPadding() bool {
	for _, b := range f {
		if b != 0 {
			return false
		}
	}
	return true
}

// parseDCI parses d.Payload. Its size must fit d.Format. It returns false if no such DCI is ever
// sent.
func (c Cell) parseDCI(d *DCI) bool {
	f := bitReader(d.Payload)
	switch d.Format {
	case cell.Format0:
		return c.parseFormat0(d, f)
	case cell.Format1A:
		return c.parseFormat1A(d, f)
	case cell.Format1C:
		return c.parseFormat1C(d, f)
	}
	typeOne := c.headerBits() == 1 && f.readBits(1) == 1
	if d.Format == cell.Format1 {
		if !c.setAllocation(d, typeOne, f.readBits(c.rbgCount())) {
			return false
		}
		mcs := f.readBits(5)
		d.HARQ = uint8(f.readBits(3))
		d.Blocks[0] = newDownlinkBlock(mcs, f.readBits(1), f.readBits(2), d.PRB)
		d.N = 1
		f.readBits(2) // TPC
		return f.hasOnlyPadding()
	}
	if !c.setAllocation(d, typeOne, f.readBits(c.rbgCount())) {
		return false
	}
	f.readBits(2) // TPC
	d.HARQ = uint8(f.readBits(3))
	f.readBits(1) // swap of blocks and code words: irrelevant here with two ports
	for k := range 2 {
		mcs, ndi, rv := f.readBits(5), f.readBits(1), f.readBits(2)
		if uint8(mcs) == disabledBlock.MCS && uint8(rv) == disabledBlock.RV {
			continue
		}
		d.Second = k > d.N
		d.Blocks[d.N] = newDownlinkBlock(mcs, ndi, rv, d.PRB)
		d.N++
	}
	if d.N == 0 {
		return false
	}
	if d.Format == cell.Format2 {
		// 36.212 table 5.3.3.1.5-4: seven values for one block, three for two.
		if p := f.readBits(3); d.N == 1 && p > 6 || d.N == 2 && p > 2 {
			return false
		}
	}
	return f.hasOnlyPadding()
}

// newDownlinkBlock returns a transport block of a downlink grant.
func newDownlinkBlock(mcs, ndi, rv, prb int) cell.Block {
	return cell.Block{MCS: uint8(mcs), NDI: ndi == 1, RV: uint8(rv),
		Size: cell.Bits(tbs.Size(tbs.Downlink(mcs).Index, prb))}
}

// parseFormat0 parses the fields of an uplink grant. It reports whether they are valid.
func (c Cell) parseFormat0(d *DCI, f bitReader) bool {
	if f.readBits(1) != 0 {
		return false
	}
	riv := rivBitCount(c.PRB)
	if f[len(f)-1] == 1 {
		return c.parseClusters(d, f.readBits(1+riv), f)
	}
	if f.readBits(1) == 1 { // hopping target (36.213 table 8.4-1)
		hop := 1
		if c.PRB >= 50 {
			hop = 2
		}
		f.readBits(hop)
		riv -= hop
	}
	first, n, ok := decodeRIV(f.readBits(riv), c.PRB)
	if !ok {
		return false
	}
	d.setLocalized(first, n)
	d.parseUplinkBlock(f)
	return true
}

// parseUplinkBlock parses the fields after the resource allocation of format 0.
func (d *DCI) parseUplinkBlock(f bitReader) {
	mcs, ndi := f.readBits(5), f.readBits(1)
	d.Blocks[0] = cell.Block{MCS: uint8(mcs), NDI: ndi == 1, Size: cell.Bits(tbs.Size(tbs.Uplink(mcs).Index, d.PRB))}
	if mcs >= tbs.SizedMCS {
		d.Blocks[0].RV = uint8(mcs - tbs.SizedMCS + 1)
	}
	d.N = 1
}

// parseClusters parses format 0 with two clusters of groups, which its last bit selects (type 1 of
// 36.213 section 8.1.2). r is the index of the cluster ends among all choices of four.
func (c Cell) parseClusters(d *DCI, r int, rest bitReader) bool {
	choose := func(n, k int) int {
		v := 1
		for i := range k {
			v = v * (n - i) / (i + 1)
		}
		return v
	}
	p, n := c.rbgSize(), c.rbgCount()+1
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
	d.PRBs.addPRBRange(ends[0]*p, ends[1]*p)
	d.PRBs.addPRBRange(ends[2]*p, min(ends[3]*p, c.PRB))
	d.PRB = d.PRBs.Len()
	d.parseUplinkBlock(rest)
	return isUplinkSize(d.PRB)
}

// isUplinkSize reports whether an uplink grant can have n blocks: only the factors 2, 3 and 5,
// because of its transform (36.211 section 5.3.3).
func isUplinkSize(n int) bool {
	for _, f := range [...]int{2, 3, 5} {
		for n > 0 && n%f == 0 {
			n /= f
		}
	}
	return n == 1
}

// maxDistributedPRB is the largest number of distributed blocks that format 1A grants one user in
// cells from 50 PRB on (36.213 section 7.1.6.3).
const maxDistributedPRB = 16

// parseFormat1A parses the fields of a compact downlink grant. It reports whether they are valid.
func (c Cell) parseFormat1A(d *DCI, f bitReader) bool {
	if f.readBits(1) != 1 {
		return false
	}
	d.Distributed = f.readBits(1) == 1
	forUser := d.RNTI.IsUser()
	riv, second := rivBitCount(c.PRB), false
	order := !d.Distributed
	if d.Distributed && c.PRB >= 50 && forUser {
		// The first bit selects the gap; for RNTIs of no single user the NDI does.
		second = f.readBits(1) == 1
		riv--
	}
	v := f.readBits(riv)
	if order && forUser && v == 1<<riv-1 {
		// An order to start random access (36.212 section 5.3.3.1.3) grants nothing.
		f.readBits(6 + 4)
		return f.hasOnlyPadding()
	}
	first, n, ok := decodeRIV(v, c.PRB)
	if !ok {
		return false
	}
	mcs := f.readBits(5)
	d.HARQ = uint8(f.readBits(3))
	ndi, rv, tpc := f.readBits(1), f.readBits(2), f.readBits(2)
	d.N = 1
	if forUser {
		d.Blocks[0] = newDownlinkBlock(mcs, ndi, rv, n)
	} else {
		// MCS is I_TBS; the last bit of TPC selects two or three columns (36.213 section 7.1.7,
		// 36.212 section 5.3.3.1.3).
		if mcs > 26 {
			return false
		}
		second = ndi == 1 && c.PRB >= 50
		d.HARQ = 0
		d.Blocks[0] = cell.Block{MCS: uint8(mcs), RV: uint8(rv), Size: cell.Bits(tbs.Size(mcs, 2+tpc&1))}
	}
	if d.Distributed {
		if first+n > c.virtualBlockCount(second) || forUser && c.PRB >= 50 && n > maxDistributedPRB {
			return false
		}
		c.setDistributed(d, first, n, second)
	} else {
		d.setLocalized(first, n)
	}
	return f.hasOnlyPadding()
}

// parseFormat1C parses the fields of format 1C. It returns false if they are impossible.
func (c Cell) parseFormat1C(d *DCI, f bitReader) bool {
	second := c.PRB >= 50 && f.readBits(1) == 1
	rows := c.virtualBlockCount(false) / c.format1CStep()
	riv := f.readBits(rivBitCount(rows))
	first, n, ok := decodeRIV(riv, c.virtualBlockCount(second)/c.format1CStep())
	if !ok {
		return false
	}
	d.Distributed, d.N = true, 1
	c.setDistributed(d, first*c.format1CStep(), n*c.format1CStep(), second)
	index := f.readBits(5)
	d.Blocks[0] = cell.Block{MCS: uint8(index), Size: cell.Bits(tbs.Compact(index))}
	return true
}

// decodeRIV returns the first block and the number of blocks of a resource indication value, with
// all blocks in total (36.213 section 7.1.6.3).
func decodeRIV(riv, all int) (first, n int, ok bool) {
	n, first = riv/all+1, riv%all
	if first+n > all {
		n, first = all-n+2, all-1-first
	}
	return first, n, riv < all*(all+1)/2 && n >= 1 && first+n <= all
}

func (d *DCI) setLocalized(first, n int) {
	d.PRBs.addPRBRange(first, first+n)
	d.PRB = n
}

// setDistributed sets the blocks of n distributed virtual blocks from first on (36.211 section
// 6.2.3.2).
func (c Cell) setDistributed(d *DCI, first, n int, second bool) {
	gap, p := c.virtualBlockGap(second), c.rbgSize()
	unit := c.virtualBlockCount(false)
	if second {
		unit = 2 * gap
	}
	rows := (unit + 4*p - 1) / (4 * p) * p
	null := 4*rows - unit
	for v := first; v < first+n; v++ {
		i, base := v%unit, v/unit*unit
		prb := rows*(i%4) + i/4 + base
		switch afterNull := i >= unit-null; {
		case null == 0:
		case afterNull:
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
		d.PRBs.addPRB(prb)
	}
	d.PRB = n
}

// setAllocation sets the blocks of a map of groups (type 0) or of single blocks of a subset of
// groups (type 1; 36.213 sections 7.1.6.1 and 7.1.6.2).
func (c Cell) setAllocation(d *DCI, typeOne bool, bits int) bool {
	p, n := c.rbgSize(), c.rbgCount()
	if !typeOne {
		for g := range n {
			if bits>>(n-1-g)&1 == 0 {
				continue
			}
			for prb := g * p; prb < min((g+1)*p, c.PRB); prb++ {
				d.PRBs.addPRB(prb)
				d.PRB++
			}
		}
		return d.PRB > 0
	}
	subsetBits := bitsForValues(p)
	size := n - subsetBits - 1
	subset := bits >> (n - subsetBits)
	if subset >= p {
		return false
	}
	shifted := bits>>size&1 == 1
	for i := range size {
		if bits>>(size-1-i)&1 == 1 {
			prb := c.subsetBlock(subset, shifted, i)
			if prb >= c.PRB {
				return false
			}
			d.PRBs.addPRB(prb)
			d.PRB++
		}
	}
	return d.PRB > 0
}

// subsetBlock returns block i of a subset in a type 1 map; shifted selects the shifted map, which
// ends with the last block of the subset (36.213 section 7.1.6.2).
func (c Cell) subsetBlock(subset int, shifted bool, i int) int {
	p := c.rbgSize()
	if shifted {
		whole, rest := (c.PRB-1)/(p*p)*p, (c.PRB-1)/p%p
		of := whole
		switch {
		case subset < rest:
			of += p
		case subset == rest:
			of += (c.PRB-1)%p + 1
		}
		i += of - (c.rbgCount() - bitsForValues(p) - 1)
	}
	return i/p*p*p + subset*p + i%p
}
