package bond

import (
	"math/bits"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// pageBitmap has a bit for each byte of a page.
type pageBitmap [pageSize / 64]uint64

// bitmapCost is the memory of marks.
const bitmapCost unit.Bytes = pageSize / 8

// arrivedSet is which bytes of a stream have arrived beyond a gap. What it costs depends on
// the pages that have such bytes, and not on how many gaps there are.
type arrivedSet struct {
	base    wire.DataSeq  // position of the first bit of list: a multiple of pageSize
	list    []*pageBitmap // by page; nil: nothing has arrived there
	bitmaps int           // marks in list
	count   uint64        // bytes that have arrived
	end     wire.DataSeq  // follows the last of them
}

// markArrived marks [from, to), which is not before what was released.
func (a *arrivedSet) markArrived(from, to wire.DataSeq) {
	if from >= to {
		return
	}
	a.end = max(a.end, to)
	for from < to {
		i := int((from - a.base) / pageSize)
		for i >= len(a.list) {
			a.list = append(a.list, nil)
		}
		if a.list[i] == nil {
			a.list[i] = new(pageBitmap)
			a.bitmaps++
		}
		bit := from % pageSize
		n := min(64-bit%64, to-from)
		word := &a.list[i][bit/64]
		mask := (^uint64(0) >> (64 - n)) << (bit % 64)
		a.count += uint64(bits.OnesCount64(mask &^ *word))
		*word |= mask
		from += n
	}
}

// findPosition returns the first position of [from, to) that is marked, or that is not, and to if
// there is none.
func (a *arrivedSet) findPosition(marked bool, from, to wire.DataSeq) wire.DataSeq {
	for from < to {
		i := int((from - a.base) / pageSize)
		if i >= len(a.list) || a.list[i] == nil {
			if !marked {
				return from
			}
			if i >= len(a.list) {
				return to
			}
			from += pageSize - from%pageSize
			continue
		}
		bit := from % pageSize
		word := a.list[i][bit/64]
		if !marked {
			word = ^word
		}
		if word >>= bit % 64; word != 0 {
			return min(to, from+wire.DataSeq(bits.TrailingZeros64(word)))
		}
		from += 64 - bit%64
	}
	return to
}

// eachMissing calls f for each part of [from, to) that is not marked.
func (a *arrivedSet) eachMissing(from, to wire.DataSeq, f func(from, to wire.DataSeq)) {
	for from < to {
		gap := a.findPosition(false, from, to)
		if from = a.findPosition(true, gap, to); gap < from {
			f(gap, from)
		}
	}
}

// releaseBefore forgets all before a position: the marks of [from, before), but for so many bytes
// there that had none.
func (a *arrivedSet) releaseBefore(from, before wire.DataSeq, unmarked uint64) {
	if a.count -= uint64(before-from) - unmarked; a.count == 0 {
		*a = arrivedSet{base: before - before%pageSize}
		return
	}
	n := min(int((before-a.base)/pageSize), len(a.list))
	if n == 0 {
		return
	}
	for _, m := range a.list[:n] {
		if m != nil {
			a.bitmaps--
		}
	}
	left := copy(a.list, a.list[n:])
	clear(a.list[left:]) // or they would stay in memory
	a.list = a.list[:left]
	a.base += wire.DataSeq(n * pageSize)
}
