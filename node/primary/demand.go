package primary

import (
	"context"
	"sync"
	"time"

	"mpbond/base/backoff"
	"mpbond/base/fault"
	"mpbond/node/refusal"
)

// Tuning.
const (
	// Between attempts to make a subflow. While apps want streams the server's
	// return is noticed within maxBusyBackoff; an idle device sleeps longer, to
	// save its battery, and the first new stream ends that.
	minBackoff     = 200 * time.Millisecond
	maxBusyBackoff = time.Second
	maxIdleBackoff = 30 * time.Second
	// limitBackoff is the wait after somebody has said that it may carry no more: a
	// helper whose cap is used up may say so for weeks, to each try, and of an own
	// link each try that finds out by dialling costs something.
	limitBackoff = 10 * time.Second
)

// demand connects apps that wait for a subflow with the keepers that wait before they try
// to make one: a stream that is wanted ends their back-off, a subflow that has joined ends
// the wait of streams. Waits end early by news alone, never by looking again and again.
// Safe for concurrent use; no other lock is taken while its own is held.
type demand struct {
	isBusy func() bool // streams are open, so that back-offs are short

	mu             sync.Mutex
	waitingStreams int           // new streams that wait for a subflow
	backingOff     int           // keepers that back off
	wanted         chan struct{} // closed and replaced when a stream is wanted
	joined         chan struct{} // closed and replaced when a subflow has joined
	retryNow       chan struct{} // closed when what was refused is to be tried again at once; nil: nobody waits for that
}

func newDemand(busy func() bool) *demand {
	return &demand{isBusy: busy, wanted: make(chan struct{}), joined: make(chan struct{})}
}

// retryRefused has the keepers try again that wait after a refusal: this device has
// other addresses or another trust file, or a helper carries again.
func (d *demand) retryRefused() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.retryNow != nil {
		close(d.retryNow)
		d.retryNow = nil
	}
}

// notifyWanted ends the back-off of the keepers. Who opens a stream calls it afterwards, so that
// they find the bond busy.
func (d *demand) notifyWanted() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.backingOff > 0 {
		close(d.wanted)
		d.wanted = make(chan struct{})
	}
}

// beginWait counts a stream that waits for a subflow, until end is called.
func (d *demand) beginWait() (end func()) {
	d.addTo(&d.waitingStreams, 1)
	return func() { d.addTo(&d.waitingStreams, -1) }
}

func (d *demand) addTo(n *int, by int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	*n += by
}

// nextJoined returns a channel that is closed when the next subflow has joined. Take it
// before you look whether there is one.
func (d *demand) nextJoined() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.joined
}

// notifyJoined wakes the streams that wait: a subflow has joined.
func (d *demand) notifyJoined() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.waitingStreams > 0 {
		close(d.joined)
		d.joined = make(chan struct{})
	}
}

// backOff waits before a further attempt to make a subflow than one that has failed with
// err, until ctx ends. After a refusal gone, which may be nil, ends it too.
func (d *demand) backOff(ctx context.Context, err error, b *backoff.Backoff, gone <-chan struct{}) {
	switch {
	case refusal.Is(err):
		d.awaitRetry(ctx, refusal.Wait(b, err), gone)
	case fault.Is(err, fault.Limit):
		sleepFor(ctx, limitBackoff)
	default:
		d.backOffUntilWanted(ctx, b)
	}
}

// sleepFor waits, or until ctx ends.
func sleepFor(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// awaitRetry waits after a refusal. Apps that want streams do not end that: the
// answer would be the same.
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

// backOffUntilWanted waits as b says, for maxBusyBackoff at most while apps want streams or have some.
func (d *demand) backOffUntilWanted(ctx context.Context, b *backoff.Backoff) {
	began, limit := time.Now(), b.Next(minBackoff, maxIdleBackoff)
	d.addTo(&d.backingOff, 1)
	defer d.addTo(&d.backingOff, -1)
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
