// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"math"
	"slices"

	"mpbond/pbe/cell"
	"mpbond/pbe/lte/tbs"
)

// bitWriter is the reverse of bitReader.
type bitWriter []byte

func (w *bitWriter) writeBits(v, n int) {
	for i := n - 1; i >= 0; i-- {
		*w = append(*w, byte(v>>i&1))
	}
}

func (w *bitWriter) writeFlag(v bool) {
	if v {
		w.writeBits(1, 1)
	} else {
		w.writeBits(0, 1)
	}
}

// encodeDCI sets d.Payload, of size bits, so that parseDCI returns the rest of d. Fields that a DCI
// does not keep, such as power control, are zero. It returns false if there is no such message: no
// format can express the blocks, or a size does not fit the MCS.
func (c Cell) encodeDCI(d *DCI, size int) bool {
	var w bitWriter
	ok := false
	switch d.Format {
	case cell.Format0:
		ok = c.encodeFormat0(d, &w)
	case cell.Format1A:
		ok = c.encodeFormat1A(d, &w)
	case cell.Format1C:
		ok = c.encodeFormat1C(d, &w)
	default:
		ok = c.encodeGroupFormat(d, &w)
	}
	if !ok || len(w) > size {
		return false
	}
	w.writeBits(0, size-len(w))
	// Verify that the encoded message parses to the same content.
	back := DCI{RNTI: d.RNTI, Format: d.Format, CCE: d.CCE, Level: d.Level, Payload: w, Agreement: d.Agreement}
	d.Payload = w
	if !c.parseDCI(&back) {
		return false
	}
	back.Payload = nil
	same := *d
	same.Payload = nil
	return equalContent(&back, &same)
}

// equalContent reports whether a and b are equal but for their payloads.
func equalContent(a, b *DCI) bool {
	return a.RNTI == b.RNTI && a.Format == b.Format && a.PRBs == b.PRBs && a.PRB == b.PRB &&
		a.Distributed == b.Distributed && a.HARQ == b.HARQ &&
		a.N == b.N && a.Blocks == b.Blocks && a.Second == b.Second
}

// encodeRIV returns the resource indication value of n contiguous blocks of all (36.213 section
// 7.1.6.3).
func encodeRIV(first, n, all int) int {
	if n-1 <= all/2 {
		return all*(n-1) + first
	}
	return all*(all-n+1) + all - 1 - first
}

// contiguousStart returns the first block of d, if its blocks are contiguous.
func (d *DCI) contiguousStart() (first int, ok bool) {
	for first < cell.MaxPRB && !d.PRBs.Has(first) {
		first++
	}
	for prb := first; prb < first+d.PRB; prb++ {
		if prb >= cell.MaxPRB || !d.PRBs.Has(prb) {
			return 0, false
		}
	}
	return first, d.PRB > 0
}

// bitFromNDI returns an NDI as a bit.
func bitFromNDI(ndi bool) int {
	if ndi {
		return 1
	}
	return 0
}

func (c Cell) encodeFormat0(d *DCI, w *bitWriter) bool {
	first, ok := d.contiguousStart()
	if !ok || d.N != 1 {
		return false
	}
	w.writeBits(0, 2) // format 0, no hopping
	w.writeBits(encodeRIV(first, d.PRB, c.PRB), rivBitCount(c.PRB))
	w.writeBits(int(d.Blocks[0].MCS), 5)
	w.writeFlag(d.Blocks[0].NDI)
	return true
}

func (c Cell) encodeFormat1A(d *DCI, w *bitWriter) bool {
	forUser := d.RNTI.IsUser()
	bits := rivBitCount(c.PRB)
	w.writeBits(1, 1)
	w.writeFlag(d.Distributed)
	if d.N == 0 { // an order to start random access
		w.writeBits(1<<bits-1, bits)
		return forUser && !d.Distributed && d.PRB == 0
	}
	first, ok := d.contiguousStart()
	second := false
	if d.Distributed {
		first, second, ok = c.findVirtualBlocks(d, 1)
	}
	if !ok {
		return false
	}
	if d.Distributed && c.PRB >= 50 && forUser {
		w.writeFlag(second)
		bits--
	}
	w.writeBits(encodeRIV(first, d.PRB, c.PRB), bits)
	b := d.Blocks[0]
	ndi, tpc := bitFromNDI(b.NDI), 0
	if !forUser {
		ndi = bitFromNDI(second)
		if int(b.Size) == tbs.Size(int(b.MCS), 3) {
			tpc = 1
		}
	}
	w.writeBits(int(b.MCS), 5)
	w.writeBits(int(d.HARQ), 3)
	w.writeBits(ndi, 1)
	w.writeBits(int(b.RV), 2)
	w.writeBits(tpc, 2)
	return true
}

func (c Cell) encodeFormat1C(d *DCI, w *bitWriter) bool {
	first, second, ok := c.findVirtualBlocks(d, c.format1CStep())
	if !ok || d.N != 1 {
		return false
	}
	if c.PRB >= 50 {
		w.writeFlag(second)
	}
	step := c.format1CStep()
	w.writeBits(encodeRIV(first/step, d.PRB/step, c.virtualBlockCount(second)/step),
		rivBitCount(c.virtualBlockCount(false)/step))
	w.writeBits(int(d.Blocks[0].MCS), 5)
	return true
}

// findVirtualBlocks finds the distributed virtual blocks, starting at a multiple of step, that map
// to the blocks of d.
func (c Cell) findVirtualBlocks(d *DCI, step int) (first int, second, ok bool) {
	for _, second := range []bool{false, true} {
		if second && c.PRB < 50 {
			break
		}
		for first := 0; d.PRB > 0 && first+d.PRB <= c.virtualBlockCount(second); first += step {
			var is DCI
			if c.setDistributed(&is, first, d.PRB, second); is.PRBs == d.PRBs {
				return first, second, true
			}
		}
	}
	return 0, false, false
}

// encodeGroupFormat encodes formats 1, 2 and 2A.
func (c Cell) encodeGroupFormat(d *DCI, w *bitWriter) bool {
	bits, typeOne, ok := c.allocationBits(d.PRBs)
	if !ok {
		return false
	}
	if c.headerBits() == 1 {
		w.writeFlag(typeOne)
	}
	w.writeBits(bits, c.rbgCount())
	if d.Format == cell.Format1 {
		b := d.Blocks[0]
		w.writeBits(int(b.MCS), 5)
		w.writeBits(int(d.HARQ), 3)
		w.writeFlag(b.NDI)
		w.writeBits(int(b.RV), 2)
		w.writeBits(0, 2) // TPC
		return d.N == 1
	}
	w.writeBits(0, 2)
	w.writeBits(int(d.HARQ), 3)
	w.writeBits(0, 1)
	g := d.Grant()
	for k, b := range g.Blocks {
		if k >= int(g.N) {
			b = disabledBlock
		}
		w.writeBits(int(b.MCS), 5)
		w.writeFlag(b.NDI)
		w.writeBits(int(b.RV), 2)
	}
	if d.Format == cell.Format2 {
		w.writeBits(0, 3) // precoding
	}
	return d.N > 0
}

// allocationBits returns the bits of an allocation, in whole groups if possible.
func (c Cell) allocationBits(m PRBSet) (bits int, typeOne, ok bool) {
	p, n := c.rbgSize(), c.rbgCount()
	for g := range n {
		if m.Has(g * p) {
			bits |= 1 << (n - 1 - g)
		}
	}
	var d DCI
	if c.setAllocation(&d, false, bits); d.PRBs == m {
		return bits, false, true
	}
	if c.headerBits() == 0 {
		return 0, false, false
	}
	shift := bitsForValues(p)
	size := n - shift - 1
	for subset := range p {
		for shifted := range 2 {
			bits = subset<<(size+1) | shifted<<size
			for i := range size {
				if prb := c.subsetBlock(subset, shifted == 1, i); prb < c.PRB && m.Has(prb) {
					bits |= 1 << (size - 1 - i)
				}
			}
			d = DCI{}
			if c.setAllocation(&d, true, bits) && d.PRBs == m {
				return bits, true, true
			}
		}
	}
	return 0, false, false
}

// EncodeGrants appends the messages of grants to out and chooses their resource blocks: format 1A
// from the first block up, other formats whole groups from the last one down. unencodable counts
// the grants that no message can express: they have a partial group, or a size that does not fit
// the MCS.
func (c Cell) EncodeGrants(grants []cell.Grant, out []DCI) (messages []DCI, unencodable int) {
	p := c.rbgSize()
	partialGroup, low, uplink := c.PRB%p, 0, 0
	freeGroups := c.PRB / p // groups from this one on are taken
	out = slices.Grow(out, len(grants))[:len(grants)]
	for i, g := range grants {
		d := &out[i]
		*d = DCI{RNTI: g.RNTI, Format: g.Format, HARQ: g.HARQ, Blocks: g.Blocks, N: int(g.N), PRB: int(g.PRB)}
		switch {
		case g.Format == cell.Format0 && uplink+d.PRB <= c.PRB:
			d.setLocalized(uplink, d.PRB)
			uplink += d.PRB
		case g.Format == cell.Format1A && low+d.PRB <= c.PRB:
			d.setLocalized(low, d.PRB)
			low += d.PRB
		}
	}
	low = (low + p - 1) / p
	encoded := out[:0]
	for _, d := range out {
		if d.Format == cell.Format1 || d.Format == cell.Format2 || d.Format == cell.Format2A {
			if last := d.PRB % p; last > 0 && last == partialGroup {
				d.PRBs.addPRBRange(c.PRB-partialGroup, c.PRB)
				partialGroup = 0
			}
			n := d.PRB / p
			freeGroups -= n
			if freeGroups >= low {
				d.PRBs.addPRBRange(freeGroups*p, (freeGroups+n)*p)
			}
			d.compactBlocks()
		}
		if d.PRBs.Len() != d.PRB || !c.encodeDCI(&d, c.dciFormatSizes(false)[d.Format]) {
			unencodable++
			continue
		}
		encoded = append(encoded, d)
	}
	return encoded, unencodable
}

// compactBlocks moves a single enabled block to the front, as parseDCI does.
func (d *DCI) compactBlocks() {
	if d.N == 2 && d.Blocks[1] == disabledBlock {
		d.N, d.Blocks[1] = 1, cell.Block{}
	} else if d.N == 2 && d.Blocks[0] == disabledBlock {
		d.N, d.Blocks[0], d.Blocks[1], d.Second = 1, d.Blocks[1], cell.Block{}, true
	}
}

// maxCodeRate is the highest ratio of message bits to sent bits.
const maxCodeRate = 0.75

// codeRateForSNR returns the highest code rate for an SNR: the capacity of the PDCCH's two bits per
// element with a margin of 9 dB, of which a decoder needs some three and fading the others.
func codeRateForSNR(snr float64) float64 {
	return min(maxCodeRate, math.Log2(1+math.Pow(10, (snr-9)/10))/2)
}

// placeMessages chooses CCEs for the messages, each in the search space of its RNTI, at the lowest
// level with that code rate, or a lower one if there is no room, the largest first. It returns the
// messages that fit.
func (c Cell) placeMessages(messages []DCI, subframe, cces int, rate float64) []DCI {
	used := make([]bool, cces)
	out := make([]DCI, 0, len(messages))
	for _, wanted := range aggregationLevels { // the largest first
		for _, d := range messages {
			bits := float64(len(d.Payload) + crcBits)
			fits := func(level int, rate float64) bool { return bits <= rate*float64(level*bitsPerCCE) }
			if wanted < 8 && !fits(wanted, rate) || wanted > 1 && fits(wanted/2, rate) {
				continue
			}
			for level := wanted; level > 0 && fits(level, maxCodeRate); level /= 2 {
				if first, ok := reserveCCEs(d.RNTI, subframe, level, used); ok {
					d.CCE, d.Level = first, level
					out = append(out, d)
					break
				}
			}
		}
	}
	return out
}

// reserveCCEs takes unused CCEs in r's search space.
func reserveCCEs(r cell.RNTI, subframe, level int, used []bool) (first int, ok bool) {
	taken := func(first int) bool {
		for _, u := range used[first : first+level] {
			if u {
				return true
			}
		}
		return false
	}
	for first = 0; first+level <= len(used); first += level {
		if (r.IsUser() && inUserSpace(r, subframe, level, first, len(used)) || !r.IsUser() &&
			inCommonSpace(level, first, len(used))) && !taken(first) {
			for i := range level {
				used[first+i] = true
			}
			return first, true
		}
	}
	return 0, false
}
