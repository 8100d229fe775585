// SPDX-License-Identifier: Apache-2.0

package census

import (
	"mpbond/pbe/cell"
	"mpbond/pbe/lte"
)

// sentGrant is a past grant of one user and process.
type sentGrant struct {
	user   cell.RNTI
	harq   uint8
	n      int
	blocks [2]cell.Block // MCS is that of the first transmission, or 29 to 31 if that was missed
}

// harqTracker distinguishes retransmissions from new blocks: their NDI equals that of the last
// grant of the same user and process.
type harqTracker struct {
	ring    [cell.NDIMemory + 1][]sentGrant
	numbers [cell.NDIMemory + 1]int64
}

// startSubframe makes room for subframe number.
func (h *harqTracker) startSubframe(number int64) {
	i := number % int64(len(h.ring))
	h.ring[i], h.numbers[i] = h.ring[i][:0], number
}

// addDownlinkGrant adds a downlink grant of subframe number and returns the number of
// retransmissions. It calls each for every block with the MCS of its first transmission, 29 to 31
// if unknown.
func (h *harqTracker) addDownlinkGrant(number int64, d *lte.DCI,
	each func(mcs uint8, retransmissions bool)) (retransmissions int) {
	previous := h.lastHARQGrant(number, d)
	now := sentGrant{user: d.RNTI, harq: d.HARQ, n: d.N, blocks: d.Blocks}
	for k := range d.N {
		b := &now.blocks[k]
		if b.IsDisabled() {
			if previous != nil && previous.n == d.N {
				*b = previous.blocks[k] // it may be retransmitted later
			}
			continue
		}
		repeat := false
		if before := previous.matchBlock(k, d.N, *b); before != nil && !before.IsDisabled() && before.NDI == b.NDI {
			repeat = true
			retransmissions++
			if !b.HasSize() {
				b.MCS, b.Size = before.MCS, before.Size
			}
		}
		if each != nil {
			each(b.MCS, repeat)
		}
	}
	i := number % int64(len(h.ring))
	h.ring[i] = append(h.ring[i], now)
	return retransmissions
}

// lastHARQGrant returns the last grant of the same user and process, if it is recent.
func (h *harqTracker) lastHARQGrant(number int64, d *lte.DCI) *sentGrant {
	for back := int64(1); back <= cell.NDIMemory && back <= number; back++ {
		i := (number - back) % int64(len(h.ring))
		if h.numbers[i] != number-back {
			continue
		}
		for k := range h.ring[i] {
			if s := &h.ring[i][k]; s.user == d.RNTI && s.harq == d.HARQ {
				return s
			}
		}
	}
	return nil
}

// matchBlock returns the block of s that block b, the k-th of n, may retransmit. A grant for one of
// two blocks does not always say for which.
func (s *sentGrant) matchBlock(k, n int, b cell.Block) *cell.Block {
	if s == nil {
		return nil
	}
	if s.n == n {
		return &s.blocks[k]
	}
	for i := range s.blocks[:s.n] {
		if x := &s.blocks[i]; !b.HasSize() || x.Size == b.Size {
			return x
		}
	}
	return nil
}
