package helper

import (
	"context"
	"errors"
	"sync"
	"time"

	"mpbond/base/backoff"
	"mpbond/link/pipe"
	"mpbond/link/wire"
	"mpbond/node/refusal"
)

// Tuning of the search for another pipe.
const (
	// callTimeout bounds one attempt to reach the primary: a link that comes
	// back is to be found at once, not at TCP's next try.
	callTimeout = time.Second
	callAgain   = 250 * time.Millisecond
	// callRefused is the longest wait after a refusal. None is about the subflow: an
	// older or newer mpbond that answers for a while, a limit, or another device at
	// the primary's address may all be gone before the search ends, which is soon.
	callRefused = time.Second
	// lookAgain is how often it is asked whether the search can end.
	lookAgain = 50 * time.Millisecond
	// mostWindow bounds how long a primary may have us keep a broken subflow.
	mostWindow = time.Minute
)

// serve does what the primary asks of a pipe.
func (h *Helper) serve(ctx context.Context, all *sync.WaitGroup, t *target, o *pipe.Offer, q pipe.Request) {
	if q.Resume != nil {
		h.resume(t, o, q)
		return
	}
	h.relaySubflow(ctx, all, t, o, q)
}

// resume moves the subflow that q names to o.
func (h *Helper) resume(t *target, o *pipe.Offer, q pipe.Request) {
	log := h.log.With("primary", t.primary.Name, "pipe", t.addr)
	l := h.relays.find(q.Token, t.primary.Key)
	err := errors.New("no such subflow here, or no longer")
	if l == nil {
		_ = o.Refuse(wire.CodeClosed, err.Error())
	} else {
		err = l.Continue(o, *q.Resume)
	}
	if err != nil {
		log.Info("subflow not resumed", "err", err)
		return
	}
	log.Debug("subflow goes on over another connection", "attempt", q.Resume.Attempt)
}

// rescue calls the primary, at all addresses at once, whenever the pipe of r
// breaks or stalls, and offers what it gets to resume r, until r ends.
func (h *Helper) rescue(ctx context.Context, all *sync.WaitGroup, r *subflow, t *target) {
	for {
		select {
		case <-r.done:
			return
		case <-r.pipe.Trouble():
		}
		if r.pipe.Ended() {
			continue // that was the trouble: r is about to end
		}
		search, cancel := context.WithCancel(ctx)
		var calls sync.WaitGroup
		h.mu.Lock()
		for _, u := range h.targets {
			if u.primary.Key == t.primary.Key {
				calls.Go(func() { h.call(ctx, search, all, u, r.pipe.Token()) })
			}
		}
		h.mu.Unlock()
		before, tick := r.pipe.Counts(), time.NewTicker(lookAgain)
		for over := false; !over; {
			select {
			case <-r.done:
				over = true
			case <-ctx.Done():
				over = true
			case now := <-tick.C:
				after := r.pipe.Counts()
				moved := after.Resumed+after.Migrated > before.Resumed+before.Migrated
				over = r.pipe.Ended() || moved || !r.pipe.Broken() && !r.pipe.Stalled(now)
			}
		}
		tick.Stop()
		cancel()
		calls.Wait()
		if ctx.Err() != nil {
			return
		}
	}
}

// call offers pipes to the primary at t for the subflow of that token, one
// after the other, until search ends.
func (h *Helper) call(ctx, search context.Context, all *sync.WaitGroup, t *target, token wire.Token) {
	var wait backoff.Backoff
	for search.Err() == nil {
		o, q, err := h.offer(search, t, &token)
		rest := callAgain
		switch {
		case err == nil:
			all.Go(func() { h.serve(ctx, all, t, o, q) })
		case refusal.Is(err):
			rest = wait.Next(callAgain, callRefused)
		}
		select {
		case <-search.Done():
		case <-time.After(rest):
		}
	}
}
