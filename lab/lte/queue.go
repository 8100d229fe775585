// SPDX-License-Identifier: Apache-2.0

package lte

import "mpbond/base/unit"

// Item is a packet. The network owns it from Offer until the Delivery that names it. Then it may be
// offered again.
type Item struct {
	Size unit.Bytes
	// Tag belongs to the caller.
	Tag any

	bitsLeft int  // not yet in a block
	blocks   int  // blocks with a part of it that are not yet correct
	lost     bool // one of its blocks was given up
}

// itemQueue holds the items of a user in order, by consecutive numbers.
type itemQueue struct {
	ring        []*Item // by number; its length is a power of two
	first, next int64
}

// itemByNumber returns the item with that number.
func (q *itemQueue) itemByNumber(number int64) *Item { return q.ring[number&int64(len(q.ring)-1)] }

func (q *itemQueue) hasNoItems() bool { return q.first == q.next }

func (q *itemQueue) pushItem(it *Item) {
	if int(q.next-q.first) == len(q.ring) {
		old := *q
		q.ring = make([]*Item, max(64, 2*len(old.ring)))
		for n := old.first; n < old.next; n++ {
			q.ring[n&int64(len(q.ring)-1)] = old.itemByNumber(n)
		}
	}
	q.ring[q.next&int64(len(q.ring)-1)] = it
	q.next++
}

func (q *itemQueue) popItem() *Item {
	it := q.itemByNumber(q.first)
	q.ring[q.first&int64(len(q.ring)-1)] = nil
	q.first++
	return it
}
