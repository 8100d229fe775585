// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"context"
	"sync"
	"time"

	"mpbond/base/backoff"
	"mpbond/base/fault"
	"mpbond/base/pace"
	"mpbond/node/refusal"
)

// Tuning.
const (
	// Bounds of the back-off between attempts to open a subflow. While apps want streams, the
	// server's return is noticed within maxBusyBackoff. An idle device waits longer to save its
	// battery; the first new stream ends that wait.
	minBackoff     = 200 * time.Millisecond
	maxBusyBackoff = time.Second
	maxIdleBackoff = 30 * time.Second
	// limitBackoff is the wait after a cap was reached. A helper may report its used-up cap for
	// weeks, at each attempt; on a local link, each attempt that dials to find out costs bytes.
	limitBackoff = 10 * time.Second
)

// demand connects apps that wait for a subflow with supervisors that back off before opening one. A
// wanted stream ends their back-off; a joined subflow ends the wait of streams. Waiters are
// notified and do not poll. Safe for concurrent use; no other lock is taken while mu is held.
type demand struct {
	isBusy func() bool // streams are open, so that back-offs are short
	clock  *pace.Clock

	mu             sync.Mutex
	waitingStreams int           // new streams that wait for a subflow
	backingOff     int           // supervisors that back off
	wanted         chan struct{} // closed and replaced when a stream is wanted
	joined         chan struct{} // closed and replaced when a subflow has joined
	retryNow       chan struct{} // closed to retry refused subflows at once; nil while none waits for that
}

func newDemand(busy func() bool, clock *pace.Clock) *demand {
	return &demand{isBusy: busy, clock: clock, wanted: make(chan struct{}), joined: make(chan struct{})}
}

// retryRefused wakes supervisors that wait after a refusal. It is called when the addresses or the
// trust file of this device changed, or when a helper carries again.
func (d *demand) retryRefused() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.retryNow != nil {
		close(d.retryNow)
		d.retryNow = nil
	}
}

// notifyWanted ends the back-off of supervisors, and wakes what is idle. Call it after opening a
// stream, so that they find the bond busy.
func (d *demand) notifyWanted() {
	d.clock.Wake()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.backingOff > 0 {
		close(d.wanted)
		d.wanted = make(chan struct{})
	}
}

// beginStreamWait counts a stream that waits for a subflow, until end is called.
func (d *demand) beginStreamWait() (end func()) {
	d.addToCounter(&d.waitingStreams, 1)
	return func() { d.addToCounter(&d.waitingStreams, -1) }
}

func (d *demand) addToCounter(n *int, by int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	*n += by
}

// nextJoined returns a channel that is closed when the next subflow joins. Get it before checking
// whether there is a subflow.
func (d *demand) nextJoined() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.joined
}

// notifyJoined wakes the streams that wait for a subflow.
func (d *demand) notifyJoined() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.waitingStreams > 0 {
		close(d.joined)
		d.joined = make(chan struct{})
	}
}

// waitBeforeRetry waits before the next attempt, after one that failed with err, until ctx ends.
// After a refusal it also ends when gone, which may be nil, is closed.
func (d *demand) waitBeforeRetry(ctx context.Context, err error, b *backoff.Backoff, gone <-chan struct{}) {
	switch {
	case refusal.Is(err):
		d.awaitRetry(ctx, refusal.Wait(b, err), gone)
	case fault.Is(err, fault.Limit):
		sleepWithContext(ctx, limitBackoff)
	default:
		d.backOffUntilWanted(ctx, b)
	}
}

// sleepWithContext waits for d or until ctx ends.
func sleepWithContext(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// awaitRetry waits after a refusal. Wanted streams do not end the wait, since the answer would be
// the same.
func (d *demand) awaitRetry(ctx context.Context, limit time.Duration, gone <-chan struct{}) {
	d.mu.Lock()
	if d.retryNow == nil {
		d.retryNow = make(chan struct{})
	}
	early := d.retryNow
	d.mu.Unlock()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-early:
	case <-gone:
	}
}

// backOffUntilWanted waits for the next back-off of b. While streams wait or are open it waits for
// at most maxBusyBackoff.
func (d *demand) backOffUntilWanted(ctx context.Context, b *backoff.Backoff) {
	began, limit := time.Now(), b.Next(minBackoff, maxIdleBackoff)
	d.addToCounter(&d.backingOff, 1)
	defer d.addToCounter(&d.backingOff, -1)
	for ctx.Err() == nil {
		d.mu.Lock()
		wanted, waits := d.wanted, d.waitingStreams > 0
		d.mu.Unlock()
		left := limit
		if waits || d.isBusy() {
			left = min(limit, maxBusyBackoff)
		}
		left -= time.Since(began)
		if left <= 0 {
			return
		}
		timer := time.NewTimer(left)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-wanted:
		}
		timer.Stop()
	}
}
