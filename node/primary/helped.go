package primary

import (
	"cmp"
	"context"
	"errors"
	"time"

	"mpbond/base/backoff"
	"mpbond/base/identity"
	"mpbond/core/trace"
	"mpbond/link/pipe"
	"mpbond/link/wire"
)

// keepHelped keeps a subflow over a helper as long as pipes to it come.
func (k *subflowKeeper) keepHelped(ctx context.Context, h *helper, w *pipe.Waiting) {
	var b backoff.Backoff
	for attempt := 0; w != nil; attempt++ {
		k.awaitHelper(ctx, h, w)
		if h.isRevoked() {
			w.Close()
		}
		joined := false
		l, err := k.openHelped(ctx, h, w, attempt, h.setLink)
		if err == nil {
			h.setAttempt(attempt)
			attempt = -1
			k.troubles.set(h.currentName(), nil)
			k.troubles.forgetRefusalBy(l.peer)
			k.troubles.forgetRefusalBy(w.Peer())
			b.Reset()
			joined, err = true, k.tendHelped(ctx, h, l)
		}
		w.Close()
		h.setLink(nil)
		if ctx.Err() == nil {
			k.troubles.set(h.currentName(), err)
		}
		if !joined && !errors.Is(err, errRestarted) {
			k.demand.backOff(ctx, err, &b, h.revoked)
		}
		w = h.nextPipe(ctx.Err() != nil)
		if h.isRevoked() {
			k.troubles.forget(h.currentName())
		}
	}
}

// openHelped makes a subflow over a waiting pipe. use is told the pipe's link at once.
func (k *subflowKeeper) openHelped(ctx context.Context, h *helper, w *pipe.Waiting, attempt int, use func(*pipe.Link)) (openSubflow, error) {
	addr, err := k.server.address(attempt)
	if err != nil {
		return openSubflow{}, err
	}
	w.Tell(k.trust.ServerAddresses) // if they have changed since it came
	link, err := w.Join(ctx, addr, time.Duration(k.cfg.Resume))
	if err != nil {
		server, _ := k.server.get()
		return openSubflow{}, &identity.PeerError{Peer: w.Peer(), Err: explainJoin(h.currentName(), server.Name, addr, err)}
	}
	key := w.Peer()
	link.OnFacts(func(f wire.Facts) { k.noteFacts(key, f) })
	use(link)
	l, err := k.join(ctx, link, link, carrier{helper: h.key}, h.currentName())
	if err != nil {
		link.Close()
	}
	return l, err
}

// stallCheck is how often a pipe is looked at.
const stallCheck = 100 * time.Millisecond

// tendHelped keeps a pipe under a helped subflow until that ends, and returns why it
// did: when the pipe breaks or stalls, the subflow goes on over one in reserve,
// the newest first, or over the next that comes; and over a better one when
// there is one. Second subflows by this helper end with it.
func (k *subflowKeeper) tendHelped(ctx context.Context, h *helper, l openSubflow) error {
	tick := time.NewTicker(stallCheck)
	defer tick.Stop()
	c := newChooser(k, h, l)
	defer c.close()
	for wanted := false; ; {
		select {
		case err := <-l.down:
			return err
		case <-h.revoked:
			l.s.e.Detach(l.id)
			k.sessions.endSubflow(l.s, l.id, nil)
			return nil
		case <-ctx.Done():
			return nil
		case <-l.link.Trouble():
			if wanted = true; l.link.Broken() {
				k.rec.Add(trace.Event{Kind: trace.PipeDown, Bond: l.s.id.String(), Path: uint32(l.id), Device: h.currentName(), Reason: "it broke"})
			}
		case <-h.grown:
		case r := <-h.moves:
			r.done <- c.moveTo(ctx, r)
		case now := <-tick.C:
			wanted = wanted || l.link.Stalled(now)
			if !wanted && !l.link.Broken() {
				c.applyChoice(ctx, now)
			}
		}
		for wanted && !l.link.Ended() {
			w := h.takeNewest()
			if w == nil {
				wanted = l.link.Broken() // the request is old when the next one comes
				break
			}
			wanted = k.movePipe(ctx, h, l, w, "") != nil
		}
	}
}

// movePipe has a subflow go on over another pipe, for a reason if the one in use is
// neither broken nor stalled.
func (k *subflowKeeper) movePipe(ctx context.Context, h *helper, l openSubflow, w *pipe.Waiting, reason string) error {
	before, by := l.link.Counts(), w.RemoteAddr()
	if err := l.link.Resume(ctx, w); err != nil {
		k.log.Info("pipe not resumed", "by", h.currentName(), "path", l.id, "over", by, "err", err)
		return err
	}
	name := h.currentName()
	moved, after := trace.Event{Kind: trace.PipeMoved, Bond: l.s.id.String(), Path: uint32(l.id), Device: name,
		Text: by.String(), Reason: cmp.Or(reason, "change")}, l.link.Counts()
	if after.Resumed > before.Resumed {
		moved.Reason, moved.Gap = "break", after.Away-before.Away
	}
	k.log.Info("pipe goes on", "by", name, "path", l.id, "over", by, "reason", moved.Reason)
	k.rec.Add(moved)
	return nil
}

// awaitHelper waits until a helper with a pipe that waits may carry something.
func (k *subflowKeeper) awaitHelper(ctx context.Context, h *helper, w *pipe.Waiting) {
	h.setHeld(w)
	defer h.setHeld(nil)
	name := h.currentName()
	k.standings.awaitAllowed(ctx, carrier{helper: h.key}, func(why error) { k.troubles.set(name, why) }, w.Done(), h.revoked)
}
