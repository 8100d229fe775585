// Package event keeps what will happen in a simulation in the order of virtual time. It
// stands below every simulator: of links, of subflows, of whole replays.
package event

import "time"

// Queue holds events of type E until they are due. Of events at the same time the one
// that was pushed first comes first, so that a simulation repeats itself. Times count
// from wherever its user likes. The zero value is empty. It takes memory only to hold
// more events than ever before. A Queue is used by one goroutine at a time.
type Queue[E any] struct {
	heap   []entry[E] // a binary heap, the next one first
	pushed uint64
}

type entry[E any] struct {
	at    time.Duration
	order uint64 // of equal times
	event E
}

func (e *entry[E]) isBefore(o *entry[E]) bool {
	return e.at < o.at || e.at == o.at && e.order < o.order
}

// Len returns how many events are to come.
func (q *Queue[E]) Len() int { return len(q.heap) }

// Next returns when the next event is due. The queue must not be empty.
func (q *Queue[E]) Next() time.Duration { return q.heap[0].at }

// Push adds an event that is due at a time.
func (q *Queue[E]) Push(at time.Duration, e E) {
	q.pushed++
	q.heap = append(q.heap, entry[E]{})
	h, n := q.heap, entry[E]{at, q.pushed, e}
	i := len(h) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !n.isBefore(&h[up]) {
			break
		}
		h[i], i = h[up], up
	}
	h[i] = n
}

// Pop removes the next event and returns it, with the time at which it is due. The queue
// must not be empty.
func (q *Queue[E]) Pop() (at time.Duration, e E) {
	h := q.heap
	first, last := h[0], h[len(h)-1]
	h[len(h)-1] = entry[E]{} // it keeps nothing alive
	h = h[:len(h)-1]
	q.heap = h
	if len(h) == 0 {
		return first.at, first.event
	}
	i := 0
	for 2*i+1 < len(h) {
		down := 2*i + 1
		if down+1 < len(h) && h[down+1].isBefore(&h[down]) {
			down++
		}
		if !h[down].isBefore(&last) {
			break
		}
		h[i], i = h[down], down
	}
	h[i] = last
	return first.at, first.event
}

// Clear removes all events.
func (q *Queue[E]) Clear() {
	clear(q.heap)
	q.heap = q.heap[:0]
}
