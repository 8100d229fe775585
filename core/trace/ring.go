// SPDX-License-Identifier: Apache-2.0

package trace

// Ring keeps the last values added to it, for `status --why`. The zero Ring keeps none. Not safe
// for concurrent use; its owner locks.
type Ring[T any] struct {
	values []T
	next   int // position of the next value once values is full
}

// NewRing returns a Ring that keeps n values. It allocates the memory at once.
func NewRing[T any](n int) *Ring[T] { return &Ring[T]{values: make([]T, 0, n)} }

// Add adds v. It replaces the oldest value if the Ring is full.
func (r *Ring[T]) Add(v T) {
	switch {
	case len(r.values) < cap(r.values):
		r.values = append(r.values, v)
	case len(r.values) > 0:
		r.values[r.next] = v
		r.next = (r.next + 1) % len(r.values)
	}
}

// All returns a copy of the values, oldest first.
func (r *Ring[T]) All() []T {
	all := make([]T, 0, len(r.values))
	return append(append(all, r.values[r.next:]...), r.values[:r.next]...)
}
