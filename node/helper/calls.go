// SPDX-License-Identifier: Apache-2.0

package helper

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"mpbond/base/backoff"
	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/core/trace"
	"mpbond/link/pipe"
	"mpbond/link/wire"
	"mpbond/node/refusal"
)

// Tuning of calls.
const (
	// Bounds of the back-off between calls to a primary that does not answer. The first retries are
	// quick, since most breaks are a restart or a roaming device. Later the wait is a tenth of the
	// primary's absence, so that its return is noticed soon and a long absence costs little. After
	// a refusal, package refusal sets the wait.
	minCallBackoff  = 200 * time.Millisecond
	soonCallBackoff = time.Second
	maxCallBackoff  = 15 * time.Second
	// steadyPipeTime is how long a pipe must wait to count as working: a primary refuses after the
	// handshake.
	steadyPipeTime = 10 * time.Second
	// callTimeout bounds one call for a broken subflow. A link that comes back must be found before
	// TCP's next retry.
	callTimeout  = time.Second
	callInterval = 250 * time.Millisecond
	// maxRefusedWait is the longest wait after a refusal. Refusals are not about the subflow:
	// another version of mpbond, a limit, or another device at the address may be gone before the
	// search ends.
	maxRefusedWait = time.Second
	// resumeCheckInterval is how often awaitResumed checks whether the search can end.
	resumeCheckInterval = 50 * time.Millisecond
)

// pipeCaller calls primaries. It keeps one pipe waiting at each target, backs off from those that
// do not answer or refuse this device, and looks for another pipe for a subflow whose pipe broke.
// When a primary takes a pipe, onTaken gets it in its own goroutine and owns it; all others are
// closed. pipeCaller owns the waiting pipes, the refusals and its goroutines, which end with their
// contexts and are counted in tasks. onServers gets the servers that a primary announces; its
// errors end the pipe. announcer sends the facts of this device. Safe for concurrent use.
type pipeCaller struct {
	carrier   pipe.Carrier // a fake in tests
	key       *identity.Key
	name      string // of this device, for display
	trust     *identity.Trust
	log       *slog.Logger
	rec       *trace.Recorder
	announcer *announcer
	onServers func(primary identity.Peer, remote net.Addr, servers []string, now time.Time) error
	onTaken   func(ctx context.Context, t *target, o *pipe.Offer, q pipe.Request)

	waiting waitingPipes
	callNow wakeSignal   // fires to call all primaries again at once
	refused refusal.List // primaries that refuse this device or have an unexpected key
	tasks   sync.WaitGroup
}

// startOffering keeps a pipe waiting at t until ctx ends or t is stopped.
func (c *pipeCaller) startOffering(ctx context.Context, t *target) {
	ctx, t.stop = context.WithCancel(ctx)
	c.tasks.Go(func() {
		defer t.stop()
		c.runOfferLoop(ctx, t)
	})
}

// runOfferLoop keeps one pipe waiting at t. When a subflow takes it, a new one follows at once.
func (c *pipeCaller) runOfferLoop(ctx context.Context, t *target) {
	pace := callPace{lastSeen: time.Now()}
	for {
		began, early := time.Now(), c.callNow.nextSignal()
		o, q, err := c.offerWaitingPipe(ctx, t, nil)
		if ctx.Err() != nil {
			if err == nil {
				o.Close()
			}
			return
		}
		if err == nil || t.waitedSince(began) >= steadyPipeTime && !refusal.Is(err) {
			c.refused.Forget(t.primary.Key.String(), false)
			pace.backoff.Reset()
			pace.recordSuccess(time.Now())
		}
		if err == nil {
			c.tasks.Go(func() { c.onTaken(ctx, t, o, q) })
			continue
		}
		timer := time.NewTimer(c.recordFailure(t, began, err, &pace))
		select {
		case <-timer.C:
		case <-early:
			if !refusal.Is(err) { // else it may be refused again at once
				pace.backoff.Reset()
				pace.lastSeen = time.Now()
			}
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// callPace is the pace of calls to one target.
type callPace struct {
	backoff  backoff.Backoff
	logged   lastLog
	lastSeen time.Time // when the primary was last reachable
}

// recordSuccess records that the primary is reachable.
func (p *callPace) recordSuccess(now time.Time) { p.logged, p.lastSeen = lastLog{}, now }

// recordFailure stores why a call to t, started at began, made no pipe. It returns the wait before
// the next call.
func (c *pipeCaller) recordFailure(t *target, began time.Time, err error, pace *callPace) time.Duration {
	now := time.Now()
	switch {
	case fault.Is(err, fault.Exists): // no failure: the subflow uses the only pipe
		pace.recordSuccess(now)
		t.setTargetState(stateBusy, nil)
		return pace.backoff.Next(soonCallBackoff, soonCallBackoff)
	case refusal.Is(err):
		c.recordRefusal(t, began, err)
		return refusal.Wait(&pace.backoff, err)
	}
	t.setAttemptFailed(began, err)
	if pace.logged.shouldLogTrouble(err.Error(), now) {
		c.log.Warn("no pipe", "primary", t.primary.Name, "pipe", t.addr, "err", err, "hint", fault.HintOf(err))
	}
	return pace.backoff.Next(minCallBackoff, maxCallWait(now.Sub(pace.lastSeen)))
}

// maxCallWait returns the longest wait for a primary that has been away for the given time.
func maxCallWait(away time.Duration) time.Duration {
	return min(max(away/10, soonCallBackoff), maxCallBackoff)
}

// lastLog is the last logged trouble. Each is logged once, and again every hour.
type lastLog struct {
	text string
	at   time.Time
}

// shouldLogTrouble reports whether a trouble must be logged now, and then counts it as logged.
func (l *lastLog) shouldLogTrouble(text string, now time.Time) bool {
	if text == l.text && now.Sub(l.at) < refusal.LogAgain {
		return false
	}
	*l = lastLog{text, now}
	return true
}

// recordRefusal stores that the primary at t refuses this device or has another key. It logs once
// for all addresses of the primary.
func (c *pipeCaller) recordRefusal(t *target, began time.Time, err error) {
	name := currentPrimaryName(c.trust, t.primary)
	r := refusal.Record{Key: t.primary.Key.String(), Device: name, Address: t.addr, Here: fault.Is(err, fault.WrongKey)}
	r.Reason, r.Hint = refusal.Explain(err, name)
	if r.Here { // another device answers at this address; the primary may answer at another one
		r.Key += " " + t.addr
	}
	t.setAttemptFailed(began, fault.New(fault.KindOf(err), errors.New("refused: "+r.Reason), r.Hint))
	if c.refused.Note(r, time.Now()) {
		c.log.Warn("no pipe: refused", "primary", name, "pipe", t.addr, "reason", r.Reason, "hint", r.Hint)
	}
}

// offerWaitingPipe opens one pipe and waits until the primary requests something. stalled, if not
// nil, names the subflow that needs the pipe.
func (c *pipeCaller) offerWaitingPipe(
	ctx context.Context,
	t *target,
	stalled *wire.Token,
) (o *pipe.Offer, q pipe.Request, err error) {
	limit := pipe.HandshakeTimeout
	if stalled != nil {
		limit = callTimeout
	}
	dial, cancel := context.WithTimeout(ctx, limit)
	conn, err := c.carrier.Dial(dial, t.addr)
	cancel()
	if err != nil {
		return nil, q, err
	}
	countForPrimary(conn, t.primary)
	o, err = pipe.NewOffer(ctx, conn, c.key.ClientConfig(t.primary.Key, wire.PipeALPN), c.name)
	if err != nil {
		return nil, q, err
	}
	t.primaryTrouble.setPeerTrouble(wire.Trouble{})
	o.OnTrouble = t.primaryTrouble.setPeerTrouble
	o.OnServers = func(servers []string) error {
		return c.onServers(t.primary, conn.RemoteAddr(), servers, time.Now())
	}
	if stalled == nil {
		t.setTargetState(stateWaiting, nil)
	} else if err := o.SendStalled(*stalled); err != nil {
		o.Close()
		return nil, q, err
	}
	c.rec.Add(trace.Event{Kind: trace.PipeUp, Device: t.primary.Name, Text: t.String()})
	if q, err = c.awaitPipeRequest(ctx, o, conn.LocalAddr(), t.primary.Key); err != nil {
		c.rec.Add(trace.Event{Kind: trace.PipeDown, Device: t.primary.Name, Reason: err.Error()})
	}
	return o, q, err
}

// awaitPipeRequest waits until the primary requests something or the pipe, which has the address
// local, is dropped.
func (c *pipeCaller) awaitPipeRequest(
	ctx context.Context,
	o *pipe.Offer,
	local net.Addr,
	primary identity.PublicKey,
) (pipe.Request, error) {
	ctx, done := c.waiting.trackPipe(ctx, local)
	defer done()
	c.announcer.addFactsPipe(o, primary)
	defer c.announcer.removeFactsPipe(o)
	q, err := o.Wait(ctx)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return q, err
}

// callAfterSleep drops waiting pipes and calls all primaries after this device slept. Timers notice
// no sleep: CLOCK_MONOTONIC and the kernel's keep-alive timers stand still meanwhile
// (clock_gettime(2)), and the far ends of waiting pipes may be gone. Subflows are left to the
// primary, which resumes them or has given them up.
func (c *pipeCaller) callAfterSleep() {
	c.waiting.dropPipesWhere(errSlept, func(net.Addr) bool { return true })
	c.callNow.fireSignal()
}

// rescueRelay calls the primary of r at all its targets whenever the pipe of r breaks or stalls, so
// that the primary can resume r over another pipe. It returns when r or ctx ends.
func (c *pipeCaller) rescueRelay(ctx context.Context, r *relay, targets func() []*target) {
	for ctx.Err() == nil {
		select {
		case <-r.done:
			return
		case <-r.pipe.ConnNeeded():
		}
		if r.pipe.HasEnded() {
			continue // r is about to end
		}
		search, cancel := context.WithCancel(ctx)
		var calls sync.WaitGroup
		for _, t := range targets() {
			calls.Go(func() { c.offerResume(ctx, search, t, r.pipe.Token()) })
		}
		awaitResumed(ctx, r)
		cancel()
		calls.Wait()
	}
}

// awaitResumed waits until the pipe of r works again, or r or ctx ends.
func awaitResumed(ctx context.Context, r *relay) {
	before, tick := r.pipe.Counts(), time.NewTicker(resumeCheckInterval)
	defer tick.Stop()
	for {
		select {
		case <-r.done:
			return
		case <-ctx.Done():
			return
		case now := <-tick.C:
			after := r.pipe.Counts()
			moved := after.Resumed+after.Migrated > before.Resumed+before.Migrated
			if r.pipe.HasEnded() || moved || !r.pipe.IsBroken() && !r.pipe.CheckStalled(now) {
				return
			}
		}
	}
}

// offerResume offers pipes to the primary at t for the subflow with that token, one after the
// other, until search ends.
func (c *pipeCaller) offerResume(ctx, search context.Context, t *target, token wire.Token) {
	var wait backoff.Backoff
	for search.Err() == nil {
		o, q, err := c.offerWaitingPipe(search, t, &token)
		rest := callInterval
		switch {
		case err == nil:
			c.tasks.Go(func() { c.onTaken(ctx, t, o, q) })
		case refusal.Is(err):
			rest = wait.Next(callInterval, maxRefusedWait)
		}
		select {
		case <-search.Done():
		case <-time.After(rest):
		}
	}
}
