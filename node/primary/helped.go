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
		l, err := k.helped(ctx, h, w, attempt, h.use)
		if err == nil {
			h.setAttempt(attempt)
			attempt = -1
			k.troubles.set(h.called(), nil)
			k.troubles.joined(l.peer)
			k.troubles.joined(w.Peer())
			b.Reset()
			joined, err = true, k.tend(ctx, h, l)
		}
		w.Close()
		h.use(nil)
		if ctx.Err() == nil {
			k.troubles.set(h.called(), err)
		}
		if !joined && !errors.Is(err, errRestarted) {
			k.demand.backOff(ctx, err, &b, h.revoked)
		}
		w = h.next(ctx.Err() != nil)
		if h.isRevoked() {
			k.troubles.forget(h.called())
		}
	}
}

// helped makes a subflow over a waiting pipe. use is told the pipe's link at once.
func (k *subflowKeeper) helped(ctx context.Context, h *helper, w *pipe.Waiting, attempt int, use func(*pipe.Link)) (openSubflow, error) {
	addr, err := k.server.address(attempt)
	if err != nil {
		return openSubflow{}, err
	}
	w.Tell(k.trust.ServerAddresses) // if they have changed since it came
	link, err := w.Join(ctx, addr, time.Duration(k.cfg.Resume))
	if err != nil {
		server, _ := k.server.get()
		return openSubflow{}, &identity.PeerError{Peer: w.Peer(), Err: explainJoin(h.called(), server.Name, addr, err)}
	}
	key := w.Peer()
	link.OnFacts(func(f wire.Facts) { k.noteFacts(key, f) })
	use(link)
	l, err := k.join(ctx, link, link, carrier{helper: h.key}, h.called())
	if err != nil {
		link.Close()
	}
	return l, err
}

// stallCheck is how often a pipe is looked at.
const stallCheck = 100 * time.Millisecond

// tend keeps a pipe under a helped subflow until that ends, and returns why it
// did: when the pipe breaks or stalls, the subflow goes on over one in reserve,
// the newest first, or over the next that comes; and over a better one when
// there is one. Second subflows by this helper end with it.
func (k *subflowKeeper) tend(ctx context.Context, h *helper, l openSubflow) error {
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
			k.sessions.end(l.s, l.id, nil)
			return nil
		case <-ctx.Done():
			return nil
		case <-l.link.Trouble():
			if wanted = true; l.link.Broken() {
				k.rec.Add(trace.Event{Kind: trace.PipeDown, Bond: l.s.id.String(), Path: uint32(l.id), Device: h.called(), Reason: "it broke"})
			}
		case <-h.grown:
		case r := <-h.moves:
			r.done <- c.move(ctx, r)
		case now := <-tick.C:
			wanted = wanted || l.link.Stalled(now)
			if !wanted && !l.link.Broken() {
				c.choose(ctx, now)
			}
		}
		for wanted && !l.link.Ended() {
			w := h.takeNewest()
			if w == nil {
				wanted = l.link.Broken() // the request is old when the next one comes
				break
			}
			wanted = k.move(ctx, h, l, w, "") != nil
		}
	}
}

// move has a subflow go on over another pipe, for a reason if the one in use is
// neither broken nor stalled.
func (k *subflowKeeper) move(ctx context.Context, h *helper, l openSubflow, w *pipe.Waiting, reason string) error {
	before, by := l.link.Counts(), w.RemoteAddr()
	if err := l.link.Resume(ctx, w); err != nil {
		k.log.Info("pipe not resumed", "by", h.called(), "path", l.id, "over", by, "err", err)
		return err
	}
	name := h.called()
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
	h.hold(w)
	defer h.hold(nil)
	name := h.called()
	k.standings.await(ctx, carrier{helper: h.key}, func(why error) { k.troubles.set(name, why) }, w.Done(), h.revoked)
}
