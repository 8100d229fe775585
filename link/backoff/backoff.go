// Package backoff bounds how often a device calls again another one that does
// not answer, or that refuses it, and keeps who was refused, for logs and status.
// It stands beside the data path: all roles use it.
//
//	backoff.go  how long to wait before the next attempt
//	refused.go  which errors are refusals, and how they read
//	list.go     the refusals that this device has seen lately
package backoff

import (
	"math/rand/v2"
	"time"
)

// Waits after a refusal. What the refusing device says does not change by itself
// within seconds: its owner has to upgrade, pair or resume a device. A limit may.
const (
	FirstRefused   = time.Second
	LongestRefused = 5 * time.Minute
	LongestLimited = time.Minute
)

// Backoff is the wait between failed attempts in a row. The zero value has seen none.
type Backoff struct{ wait time.Duration }

// Next returns the wait before the next attempt: twice the last one, at least
// least and at most most, and then less up to a quarter at random, so that
// devices do not call in step.
func (b *Backoff) Next(least, most time.Duration) time.Duration {
	b.wait = min(max(2*b.wait, least), most)
	if b.wait < 4 {
		return b.wait
	}
	return b.wait - rand.N(b.wait/4)
}

// Refused returns the wait after err, which Refused reports as a refusal.
func (b *Backoff) Refused(err error) time.Duration {
	if isLimit(err) {
		return b.Next(FirstRefused, LongestLimited)
	}
	return b.Next(FirstRefused, LongestRefused)
}

// Reset forgets failed attempts.
func (b *Backoff) Reset() { b.wait = 0 }
