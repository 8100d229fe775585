// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"math/bits"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// pageBitmap has a bit for each byte of a page.
type pageBitmap [pageSize / 64]uint64

// bitmapCost is the memory of a pageBitmap.
const bitmapCost unit.Bytes = pageSize / 8

// arrivedSet holds which bytes of a stream have arrived beyond a gap. Its memory depends on the
// number of pages with such bytes, not on the number of gaps.
type arrivedSet struct {
	base    wire.DataSeq  // position of the first bit of list: a multiple of pageSize
	list    []*pageBitmap // by page; nil: no byte of it has arrived
	bitmaps int           // bitmaps in list
	count   uint64        // bytes in the set
	end     wire.DataSeq  // after the last byte in the set
}

// markArrived adds [from, to), which must not precede released bytes.
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

// findPosition returns the first position of [from, to) that is in the set or, if marked is false,
// is not in it; to if there is none.
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

// eachMissing calls f for each part of [from, to) that is not in the set.
func (a *arrivedSet) eachMissing(from, to wire.DataSeq, f func(from, to wire.DataSeq)) {
	for from < to {
		gap := a.findPosition(false, from, to)
		if from = a.findPosition(true, gap, to); gap < from {
			f(gap, from)
		}
	}
}

// removeArrived removes the bytes of [from, to) from the set and frees the pages before to. The
// caller says how many bytes of [from, to) were not in the set.
func (a *arrivedSet) removeArrived(from, to wire.DataSeq, notInSet uint64) {
	if a.count -= uint64(to-from) - notInSet; a.count == 0 {
		*a = arrivedSet{base: to - to%pageSize}
		return
	}
	n := min(int((to-a.base)/pageSize), len(a.list))
	if n == 0 {
		return
	}
	for _, m := range a.list[:n] {
		if m != nil {
			a.bitmaps--
		}
	}
	left := copy(a.list, a.list[n:])
	clear(a.list[left:]) // so that their memory can be freed
	a.list = a.list[:left]
	a.base += wire.DataSeq(n * pageSize)
}
