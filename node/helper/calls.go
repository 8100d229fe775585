package helper

import (
	"context"
	"errors"
	"sync"
	"time"

	"mpbond/base/backoff"
	"mpbond/base/fault"
	"mpbond/node/refusal"
)

// keep keeps a target until ctx ends or its stop is called.
func (h *Helper) keep(ctx context.Context, t *target, all *sync.WaitGroup) {
	ctx, t.stop = context.WithCancel(ctx)
	all.Go(func() {
		defer t.stop()
		h.keepOffering(ctx, t, all)
	})
}

// keepOffering keeps one pipe ready at t. A pipe that a subflow takes is
// followed by a fresh one at once.
func (h *Helper) keepOffering(ctx context.Context, t *target, all *sync.WaitGroup) {
	log := h.log.With("primary", t.primary.Name, "pipe", t.addr)
	var wait backoff.Backoff
	var logged lastLog
	good := time.Now()
	for {
		began, early := time.Now(), h.callEarly()
		o, q, err := h.offer(ctx, t, nil)
		if ctx.Err() != nil {
			if err == nil {
				o.Close()
			}
			return
		}
		if err == nil {
			h.refused.Forget(t.primary.Key.String(), false)
			wait.Reset()
			logged, good = lastLog{}, time.Now()
			all.Go(func() { h.serve(ctx, all, t, o, q) })
			continue
		}
		if t.waited(began) >= steadyPipe && !refusal.Is(err) {
			h.refused.Forget(t.primary.Key.String(), false)
			wait.Reset()
			logged, good = lastLog{}, time.Now()
		}
		var rest time.Duration
		switch {
		case fault.Is(err, fault.Exists): // no trouble: the one that the subflow uses
			logged, good = lastLog{}, time.Now()
			t.set(busy, nil)
			rest = wait.Next(backoffSoon, backoffSoon)
		case refusal.Is(err):
			h.noteRefusal(t, began, err)
			rest = refusal.Wait(&wait, err)
		default:
			t.fail(began, err)
			if logged.due(err.Error(), time.Now()) {
				log.Warn("no pipe", "err", err, "hint", fault.HintOf(err))
			}
			rest = wait.Next(backoffMin, longestWait(time.Since(good)))
		}
		timer := time.NewTimer(rest)
		select {
		case <-timer.C:
		case <-early:
			if !refusal.Is(err) { // else it may be refused again at once
				wait.Reset()
				good = time.Now()
			}
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// lastLog is the trouble that was logged last, so that each is logged once, and
// again each hour.
type lastLog struct {
	text string
	at   time.Time
}

// due reports whether a trouble is to be logged now, and takes that it is.
func (l *lastLog) due(text string, now time.Time) bool {
	if text == l.text && now.Sub(l.at) < refusal.LogAgain {
		return false
	}
	*l = lastLog{text, now}
	return true
}

// noteRefusal keeps that the primary at t refuses this device, or is another one.
// The refusal is logged once for all addresses of the primary.
func (h *Helper) noteRefusal(t *target, began time.Time, err error) {
	name := h.nameOf(t.primary)
	r := refusal.Record{Key: t.primary.Key.String(), Device: name, Address: t.addr, Here: fault.Is(err, fault.WrongKey)}
	r.Reason, r.Hint = refusal.Explain(err, name)
	if r.Here { // it says nothing of the primary itself, which may answer at another address
		r.Key += " " + t.addr
	}
	t.fail(began, fault.New(fault.KindOf(err), errors.New("refused: "+r.Reason), r.Hint))
	if h.refused.Note(r, time.Now()) {
		h.log.Warn("no pipe: refused", "primary", name, "pipe", t.addr, "reason", r.Reason, "hint", r.Hint)
	}
}

// Refusals returns the primaries with which no pipe can be made since one of the two
// ends refuses the other.
func (h *Helper) Refusals() []refusal.Record { return h.refused.Refusals(time.Now()) }

// callEarly returns a channel closed when primaries are to be called again without
// waiting: this device has slept, or has other addresses or another trust file.
func (h *Helper) callEarly() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.early
}

// endWaits has primaries called again at once. mu must be held.
func (h *Helper) endWaits() {
	close(h.early)
	h.early = make(chan struct{})
}
