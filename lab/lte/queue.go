package lte

import "mpbond/base/unit"

// Item is a packet that waits for, or is on, the air. It is the network's from
// Offer until the Out that names it; then it may be offered again.
type Item struct {
	Size unit.Bytes
	// Tag is the caller's.
	Tag any

	bitsLeft int  // bits not yet given to a block
	blocks   int  // blocks that hold a part and are not right yet
	lost     bool // one of these was given up
}

// itemQueue holds the items of a user in order, by numbers that go on.
type itemQueue struct {
	ring        []*Item // by number; the length is a power of two
	first, next int64
}

func (q *itemQueue) at(number int64) *Item { return q.ring[number&int64(len(q.ring)-1)] }

func (q *itemQueue) isEmpty() bool { return q.first == q.next }

func (q *itemQueue) push(it *Item) {
	if int(q.next-q.first) == len(q.ring) {
		old := *q
		q.ring = make([]*Item, max(64, 2*len(old.ring)))
		for n := old.first; n < old.next; n++ {
			q.ring[n&int64(len(q.ring)-1)] = old.at(n)
		}
	}
	q.ring[q.next&int64(len(q.ring)-1)] = it
	q.next++
}

func (q *itemQueue) pop() *Item {
	it := q.at(q.first)
	q.ring[q.first&int64(len(q.ring)-1)] = nil
	q.first++
	return it
}
