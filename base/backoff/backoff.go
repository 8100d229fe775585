// Package backoff bounds how often something that failed is tried again. It stands beside
// the data path: whoever calls, dials or opens anew waits by it.
package backoff

import (
	"math/rand/v2"
	"time"
)

// Backoff is the wait between failed attempts in a row. The zero value has seen none. A
// Backoff is used by one goroutine at a time; the bounds may differ from call to call.
type Backoff struct{ wait time.Duration }

// Double returns the wait before the next attempt: twice the last one, at least least
// and at most most.
func (b *Backoff) Double(least, most time.Duration) time.Duration {
	b.wait = min(max(2*b.wait, least), most)
	return b.wait
}

// Next returns Double less up to a quarter at random, so that devices do not call in
// step.
func (b *Backoff) Next(least, most time.Duration) time.Duration {
	wait := b.Double(least, most)
	if wait < 4 {
		return wait
	}
	return wait - rand.N(wait/4)
}

// After returns the wait that Double returns for the last of so many failures in a row, for
// those who count them anyway; least for none.
func After(failures int, least, most time.Duration) time.Duration {
	wait := min(least, most)
	for ; failures > 1 && wait > 0 && wait < most; failures-- {
		wait = min(2*wait, most)
	}
	return wait
}

// Reset forgets failed attempts.
func (b *Backoff) Reset() { b.wait = 0 }
