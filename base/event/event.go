// SPDX-License-Identifier: Apache-2.0

// Package event has a queue of future events in virtual time. All simulators use it: of links,
// subflows and whole replays.
package event

import "time"

// Queue holds events of type E until they are due. Events at the same time keep the order in which
// they were pushed, so that a simulation is reproducible. The origin of times is up to the user.
// The zero value is empty. It allocates only to hold more events than ever before. A Queue is not
// safe for concurrent use.
type Queue[E any] struct {
	heap   []entry[E] // binary heap, the next event first
	pushed uint64
}

type entry[E any] struct {
	at    time.Duration
	order uint64 // among equal times
	event E
}

func (e *entry[E]) isDueBefore(o *entry[E]) bool {
	return e.at < o.at || e.at == o.at && e.order < o.order
}

// Len returns the number of events.
func (q *Queue[E]) Len() int { return len(q.heap) }

// Next returns the time of the next event. The queue must not be empty.
func (q *Queue[E]) Next() time.Duration { return q.heap[0].at }

// Push adds an event due at time at.
func (q *Queue[E]) Push(at time.Duration, e E) {
	q.pushed++
	q.heap = append(q.heap, entry[E]{})
	h, n := q.heap, entry[E]{at, q.pushed, e}
	i := len(h) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !n.isDueBefore(&h[up]) {
			break
		}
		h[i], i = h[up], up
	}
	h[i] = n
}

// Pop removes and returns the next event and its time. The queue must not be empty.
func (q *Queue[E]) Pop() (at time.Duration, e E) {
	h := q.heap
	first, last := h[0], h[len(h)-1]
	h[len(h)-1] = entry[E]{} // releases its memory
	h = h[:len(h)-1]
	q.heap = h
	if len(h) == 0 {
		return first.at, first.event
	}
	i := 0
	for 2*i+1 < len(h) {
		down := 2*i + 1
		if down+1 < len(h) && h[down+1].isDueBefore(&h[down]) {
			down++
		}
		if !h[down].isDueBefore(&last) {
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
