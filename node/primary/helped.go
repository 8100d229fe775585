// SPDX-License-Identifier: Apache-2.0

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

// superviseHelped keeps a subflow by a helper open as long as pipes to it arrive.
func (sup *subflowSupervisor) superviseHelped(ctx context.Context, h *helper, w *pipe.Waiting) {
	var b backoff.Backoff
	for attempt := 0; w != nil; attempt++ {
		sup.awaitHelperAllowed(ctx, h, w)
		if h.isRevoked() {
			w.Close()
		}
		joined := false
		h.setJoiningPipe(w)
		before, _ := sup.server.currentServer()
		l, err := sup.openHelped(ctx, h, w, attempt, h.setCarryingLink)
		h.setJoiningPipe(nil)
		if err != nil && sup.fleet.switchServer(ctx, failedAttempt{before.Key, err, "", true}) {
			b.Reset() // the next pipe goes to another server
		}
		if err == nil {
			sup.fleet.serverWorked(l.peer)
			h.setAttempt(attempt)
			attempt = -1
			sup.troubles.setDeviceTrouble(h.currentHelperName(), nil)
			sup.troubles.forgetRefusalBy(l.peer)
			sup.troubles.forgetRefusalBy(w.Peer())
			b.Reset()
			joined, err = true, sup.runHelpedSubflow(ctx, h, l)
		}
		w.Close()
		h.setCarryingLink(nil)
		if ctx.Err() == nil {
			sup.troubles.setDeviceTrouble(h.currentHelperName(), err)
		}
		if !joined && !errors.Is(err, errRestarted) {
			sup.demand.waitBeforeRetry(ctx, err, &b, h.revoked)
		}
		w = h.takeNextPipe(ctx.Err() != nil)
		if h.isRevoked() {
			sup.troubles.forgetDevice(h.currentHelperName())
		}
	}
}

// openHelped joins a subflow over a waiting pipe. It passes the pipe's link to use as soon as there
// is one.
func (sup *subflowSupervisor) openHelped(
	ctx context.Context,
	h *helper,
	w *pipe.Waiting,
	attempt int,
	use func(*pipe.Link),
) (liveSubflow, error) {
	addr, err := sup.server.addressFor(attempt)
	if err != nil {
		return liveSubflow{}, err
	}
	w.SendServers(sup.trust.ServerAddresses) // they may have changed since the pipe came
	link, err := w.Join(ctx, addr, time.Duration(sup.cfg.Resume))
	if err != nil {
		server, _ := sup.server.currentServer()
		return liveSubflow{}, &identity.PeerError{
			Peer: w.Peer(),
			Err:  explainJoinError(h.currentHelperName(), server.Name, addr, err),
		}
	}
	key := w.Peer()
	link.OnFacts(func(f wire.Facts) { sup.updateFacts(key, f) })
	use(link)
	l, err := sup.joinSubflow(ctx, link, link, deviceRef{helper: h.key}, h.currentHelperName())
	if err != nil {
		link.Close()
	}
	return l, err
}

// stallCheckInterval is how often a pipe is checked for stalls.
const stallCheckInterval = 100 * time.Millisecond

// runHelpedSubflow supervises the pipe of a helped subflow until the subflow ends, and returns why
// it ended. When the pipe breaks or stalls, the subflow moves to the newest reserve pipe or to the
// next one that arrives. It also moves to a better pipe when there is one. Second subflows by this
// helper end with it.
func (sup *subflowSupervisor) runHelpedSubflow(ctx context.Context, h *helper, l liveSubflow) error {
	tick := sup.cfg.Clock.NewTicker(stallCheckInterval)
	defer tick.Stop()
	c := newPipeChooser(sup, h, l)
	defer c.endSeconds()
	for wanted := false; ; {
		select {
		case err := <-l.ended:
			return err
		case <-h.revoked:
			l.session.endpoint.Detach(l.id)
			sup.bond.endSubflow(l.session, l.id, nil)
			return nil
		case <-ctx.Done():
			return nil
		case <-l.link.ConnNeeded():
			if wanted = true; l.link.IsBroken() {
				sup.rec.Add(
					trace.Event{
						Kind:    trace.PipeDown,
						Bond:    l.session.id.String(),
						Subflow: uint32(l.id),
						Device:  h.currentHelperName(),
						Reason:  "it broke",
					},
				)
			}
		case <-h.reserveGrown:
		case r := <-h.moveRequests:
			r.done <- c.applyMoveRequest(ctx, r)
		case <-tick.C:
			now := time.Now()
			wanted = wanted || l.link.CheckStalled(now)
			if !wanted && !l.link.IsBroken() {
				c.applyPipeDecision(ctx, now)
			}
		}
		for wanted && !l.link.HasEnded() {
			w := h.takeNewest()
			if w == nil {
				wanted = l.link.IsBroken() // the next pipe comes later than this request
				break
			}
			wanted = sup.moveSubflowToPipe(ctx, h, l, w, "") != nil
		}
	}
}

// moveSubflowToPipe moves a subflow to another pipe. reason is empty if the current pipe is broken
// or stalled.
func (sup *subflowSupervisor) moveSubflowToPipe(
	ctx context.Context,
	h *helper,
	l liveSubflow,
	w *pipe.Waiting,
	reason string,
) error {
	before, by := l.link.Counts(), w.RemoteAddr()
	if err := l.link.Resume(ctx, w); err != nil {
		sup.log.Info("pipe not resumed", "by", h.currentHelperName(), "subflow", l.id, "over", by, "err", err)
		return err
	}
	name := h.currentHelperName()
	moved, after := trace.Event{Kind: trace.PipeMoved, Bond: l.session.id.String(), Subflow: uint32(l.id), Device: name,
		Text: by.String(), Reason: cmp.Or(reason, "change")}, l.link.Counts()
	if after.Resumed > before.Resumed {
		moved.Reason, moved.Gap = "break", after.Downtime-before.Downtime
	}
	sup.log.Info("subflow moved to another pipe", "by", name, "subflow", l.id, "over", by, "reason", moved.Reason)
	sup.rec.Add(moved)
	return nil
}

// awaitHelperAllowed waits until a helper with a waiting pipe is allowed to carry traffic.
func (sup *subflowSupervisor) awaitHelperAllowed(ctx context.Context, h *helper, w *pipe.Waiting) {
	h.setHeldPipe(w)
	defer h.setHeldPipe(nil)
	name := h.currentHelperName()
	sup.states.awaitAllowed(
		ctx,
		deviceRef{helper: h.key},
		func(why error) { sup.troubles.setDeviceTrouble(name, why) },
		w.Done(),
		h.revoked,
	)
}
