// SPDX-License-Identifier: Apache-2.0

// Package backoff computes the wait between attempts of something that failed.
package backoff

import (
	"math/rand/v2"
	"time"
)

// Backoff is the wait between consecutive failed attempts. The zero value has seen none. A Backoff
// is not safe for concurrent use; the bounds may differ from call to call.
type Backoff struct{ wait time.Duration }

// Double returns the wait before the next attempt: twice the last one, within [shortest, longest].
func (b *Backoff) Double(shortest, longest time.Duration) time.Duration {
	b.wait = min(max(2*b.wait, shortest), longest)
	return b.wait
}

// Next returns Double less up to a quarter at random, so that devices do not retry in step.
func (b *Backoff) Next(shortest, longest time.Duration) time.Duration {
	wait := b.Double(shortest, longest)
	if wait < 4 {
		return wait
	}
	return wait - rand.N(wait/4)
}

// After returns what Double returns for the last of a number of consecutive failures, for callers
// who count them; shortest for none.
func After(failures int, shortest, longest time.Duration) time.Duration {
	wait := min(shortest, longest)
	for ; failures > 1 && wait > 0 && wait < longest; failures-- {
		wait = min(2*wait, longest)
	}
	return wait
}

// Reset forgets failed attempts.
func (b *Backoff) Reset() { b.wait = 0 }
