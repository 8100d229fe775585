package primary

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"time"

	"mpbond/fault"
	"mpbond/wire"
)

// Tuning.
const (
	// Between attempts to make a subflow. While apps want streams the server's
	// return is noticed within busyBackoff; an idle device sleeps longer, to
	// save its battery, and the first new stream ends that.
	leastBackoff = 200 * time.Millisecond
	busyBackoff  = time.Second
	idleBackoff  = 30 * time.Second
	// leastPatience is how long a new stream waits for a way to the server, if
	// there has been none for longer than streams wait: time for two attempts.
	leastPatience = 10 * time.Second
	// limitRest is the wait after somebody has said that it may carry no more: a
	// helper whose cap is used up may say so for weeks, to each try, and of an own
	// link each try that finds out by dialling costs something.
	limitRest = 10 * time.Second
)

// backoff counts failed attempts in a row.
type backoff struct{ d time.Duration }

// next is how long to wait before a further attempt.
func (b *backoff) next() time.Duration {
	b.d = min(max(b.d*2, leastBackoff), idleBackoff)
	var r [1]byte
	_, _ = rand.Read(r[:])
	// A quarter of jitter, so that devices do not call in step.
	return b.d - time.Duration(math.Round(float64(b.d)/4*float64(r[0])/255))
}

func (b *backoff) reset() { b.d = 0 }

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// demand is what apps and the keepers of subflows tell each other. Its
// variables are guarded by Primary.mu.
type demand struct {
	waiting int           // new streams that wait for a subflow
	resting int           // keepers that rest
	wanted  chan struct{} // closed and replaced when a stream is wanted
	joined  chan struct{} // closed and replaced when a subflow has joined
}

func newDemand() demand { return demand{wanted: make(chan struct{}), joined: make(chan struct{})} }

// want wakes the keepers that rest.
func (d *demand) want() {
	if d.resting > 0 {
		close(d.wanted)
		d.wanted = make(chan struct{})
	}
}

// up wakes the streams that wait.
func (d *demand) up() {
	if d.waiting > 0 {
		close(d.joined)
		d.joined = make(chan struct{})
	}
}

// restAfter waits before a further attempt to make a subflow than one that has
// failed so, or until ctx ends.
func (p *Primary) restAfter(ctx context.Context, err error, b *backoff) {
	if fault.Is(err, fault.Limit) {
		pause(ctx, limitRest)
	} else {
		p.rest(ctx, b)
	}
}

// rest waits before a further attempt to make a subflow, or until ctx ends.
func (p *Primary) rest(ctx context.Context, b *backoff) {
	began, d := time.Now(), b.next()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.demand.resting++
	defer func() { p.demand.resting-- }()
	for ctx.Err() == nil {
		left := d
		if p.demand.waiting > 0 || p.cur.e.Streams() > 0 {
			left = min(d, busyBackoff)
		}
		left -= time.Since(began)
		if left <= 0 {
			return
		}
		wanted := p.demand.wanted
		p.mu.Unlock()
		timer := time.NewTimer(left)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-wanted:
		}
		timer.Stop()
		p.mu.Lock()
	}
}

// awaitSubflow waits until the bond has a subflow. It is called with mu held,
// and holds it when it returns. A stream that is opened without one could turn
// out to be part of a bond that the server has lost meanwhile, and be reset.
func (p *Primary) awaitSubflow(ctx context.Context) error {
	gone := p.cur.e.WithoutSubflow()
	if gone == 0 {
		return nil
	}
	limit := time.Duration(p.cfg.GiveUp)
	limit = max(limit-gone, min(limit, leastPatience))
	giveUp := time.NewTimer(limit)
	defer giveUp.Stop()
	p.demand.waiting++
	defer func() { p.demand.waiting-- }()
	p.demand.want()
	for p.cur.e.WithoutSubflow() > 0 {
		joined := p.demand.joined
		p.mu.Unlock()
		var err error
		select {
		case <-joined:
		case <-ctx.Done():
			err = ctx.Err()
		case <-p.closing:
			err = wire.Reset{Code: wire.CodeClosed, Text: "mpbond is shutting down"}
		case <-giveUp.C:
			// Not CodeUnreachable, which lets apps go directly.
			err = wire.Reset{Code: wire.CodeTimeout, Text: fmt.Sprintf("no way to the server for %v", limit.Round(100*time.Millisecond))}
		}
		p.mu.Lock()
		if err != nil {
			return err
		}
	}
	return nil
}

// setError keeps and logs the last error of a device, once for each change.
func (p *Primary) setError(device string, err error) {
	t := troubleOf(err)
	p.mu.Lock()
	changed := p.errs[device] != t
	p.errs[device] = t
	p.mu.Unlock()
	if changed && err != nil {
		p.log.Warn("no subflow", "by", device, "err", err, "hint", t.Hint)
	}
	if changed {
		p.reportTrouble()
	}
}
