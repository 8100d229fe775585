package primary

import (
	"context"
	"fmt"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/link/backoff"
	"mpbond/link/wire"
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
	early   chan struct{} // closed when what was refused is to be tried again at once; nil: nobody waits for that
}

func newDemand() demand { return demand{wanted: make(chan struct{}), joined: make(chan struct{})} }

// retryRefused has the keepers try again that wait after a refusal: this device has
// other addresses or another trust file, or a helper carries again.
func (d *demand) retryRefused() {
	if d.early != nil {
		close(d.early)
		d.early = nil
	}
}

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
// failed so, until ctx ends or gone, which may be nil, is closed.
func (p *Primary) restAfter(ctx context.Context, err error, b *backoff.Backoff, gone <-chan struct{}) {
	switch {
	case backoff.Refused(err):
		p.restRefused(ctx, b.Refused(err), gone)
	case fault.Is(err, fault.Limit):
		pause(ctx, limitRest)
	default:
		p.rest(ctx, b)
	}
}

// restRefused waits after a refusal. Apps that want streams do not end that: the
// answer would be the same.
func (p *Primary) restRefused(ctx context.Context, d time.Duration, gone <-chan struct{}) {
	p.mu.Lock()
	if p.demand.early == nil {
		p.demand.early = make(chan struct{})
	}
	early := p.demand.early
	p.mu.Unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-early:
	case <-gone:
	}
}

// rest waits before a further attempt to make a subflow, or until ctx ends.
func (p *Primary) rest(ctx context.Context, b *backoff.Backoff) {
	began, d := time.Now(), b.Next(leastBackoff, idleBackoff)
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

// Refusals returns who is refused here, or refuses this device.
func (p *Primary) Refusals() []backoff.Refusal { return p.refused.Refusals(time.Now()) }

// setError keeps and logs the last error of a device, once for each change; a refusal
// also each hour.
func (p *Primary) setError(device string, err error) {
	t, refused, logAgain := troubleOf(err), backoff.Refused(err), false
	if refused {
		r := p.refusal(err)
		t.Text, t.Hint, logAgain = "refused: "+r.Reason, r.Hint, p.refused.Note(r, time.Now())
	}
	p.mu.Lock()
	changed := p.errs[device] != t
	p.errs[device] = t
	p.mu.Unlock()
	if err != nil && (changed && !refused || logAgain) {
		p.log.Warn("no subflow", "by", device, "err", err, "hint", t.Hint)
	}
	if changed {
		p.reportTrouble()
	}
}

// refusal returns how a subflow was refused: by the helper that err names, else
// between this device and the server.
func (p *Primary) refusal(err error) backoff.Refusal {
	p.mu.Lock()
	by := p.server
	p.mu.Unlock()
	if key, ok := identity.FailedPeer(err); ok {
		by, _ = p.trust.Lookup(key)
	}
	r := backoff.Refusal{Key: by.Key.String(), Device: by.Name, Here: fault.Is(err, fault.WrongKey)}
	r.Reason, r.Hint = backoff.Explain(err, by.Name)
	return r
}

// forgetRefusal drops what was kept of a device that refused this one.
func (p *Primary) forgetRefusal(key identity.PublicKey) { p.refused.Forget(key.String(), false) }
