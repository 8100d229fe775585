package census

import (
	"mpbond/pbe/cell"
	"mpbond/pbe/lte"
)

// sent is what one grant named, for one user and process.
type sent struct {
	user   cell.RNTI
	harq   uint8
	n      int
	blocks [2]cell.Block // MCS is that of the first time, or 29 to 31 if that was missed
}

// harq tells blocks that come again from new ones: the NDI is as it was in the last
// grant of the same user and process.
type harq struct {
	ring [cell.ForgetNDI + 1][]sent
	at   [cell.ForgetNDI + 1]int64
}

// begin makes room for subframe number.
func (h *harq) begin(number int64) {
	i := number % int64(len(h.ring))
	h.ring[i], h.at[i] = h.ring[i][:0], number
}

// add takes a downlink grant of subframe number, and tells of each block whether it
// came again and the MCS with which it came first, 29 to 31 if that is not known.
func (h *harq) add(number int64, d *lte.DCI, each func(mcs uint8, again bool)) (again int) {
	was := h.last(number, d)
	now := sent{user: d.RNTI, harq: d.HARQ, n: d.N, blocks: d.Blocks}
	for k := range d.N {
		b := &now.blocks[k]
		if b.Disabled() {
			if was != nil && was.n == d.N {
				*b = was.blocks[k] // it may come again later
			}
			continue
		}
		repeat := false
		if before := was.match(k, d.N, *b); before != nil && !before.Disabled() && before.NDI == b.NDI {
			repeat = true
			again++
			if !b.Sized() {
				b.MCS, b.Size = before.MCS, before.Size
			}
		}
		if each != nil {
			each(b.MCS, repeat)
		}
	}
	i := number % int64(len(h.ring))
	h.ring[i] = append(h.ring[i], now)
	return again
}

// last is the last grant of the same user and process, if it is not too old.
func (h *harq) last(number int64, d *lte.DCI) *sent {
	for back := int64(1); back <= cell.ForgetNDI && back <= number; back++ {
		i := (number - back) % int64(len(h.ring))
		if h.at[i] != number-back {
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

// match is the block of s that block b, the k-th of n, may be again. A grant for one
// of two blocks does not always say which.
func (s *sent) match(k, n int, b cell.Block) *cell.Block {
	if s == nil {
		return nil
	}
	if s.n == n {
		return &s.blocks[k]
	}
	for i := range s.blocks[:s.n] {
		if x := &s.blocks[i]; !b.Sized() || x.Size == b.Size {
			return x
		}
	}
	return nil
}
