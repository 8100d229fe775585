// SPDX-License-Identifier: Apache-2.0

package helper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/control/device"
	"mpbond/core/trace"
	"mpbond/link/pipe"
	"mpbond/link/wire"
)

// maxResumeTimeout bounds how long a primary may let this device keep a broken subflow.
const maxResumeTimeout = time.Minute

// errSuspended is why subflows end, and no new ones are opened, while the device is suspended.
var errSuspended = errors.New("the helper is suspended")

// errPaused is why a paused primary gets no subflow.
var errPaused = errors.New("this device is paused there")

// servePipeRequest serves the request of the primary at t: it relays a subflow or resumes one over
// o.
func (h *Helper) servePipeRequest(ctx context.Context, t *target, o *pipe.Offer, q pipe.Request) {
	if q.Resume != nil {
		h.resumeSubflow(t, o, q)
		return
	}
	h.relaySubflow(ctx, t, o, q)
}

// resumeSubflow moves the subflow that q names to o.
func (h *Helper) resumeSubflow(t *target, o *pipe.Offer, q pipe.Request) {
	log := h.log.With("primary", t.primary.Name, "pipe", t.addr)
	l := h.relays.findPipeByToken(q.Token, t.primary.Key)
	err := errors.New("no such subflow")
	if l == nil {
		_ = o.Refuse(wire.CodeClosed, err.Error())
	} else {
		err = l.AcceptResume(o, *q.Resume)
	}
	if err != nil {
		log.Info("subflow not resumed", "err", err)
		return
	}
	log.Debug("subflow moved to another pipe", "attempt", q.Resume.Attempt)
}

// relaySubflow serves one INIT_MP_JOIN from its answer to the end of the relay.
func (h *Helper) relaySubflow(ctx context.Context, t *target, o *pipe.Offer, q pipe.Request) {
	log := h.log.With("primary", t.primary.Name, "server", q.Server)
	s, code, err := h.connectSubflow(ctx, t, o, q)
	if err != nil {
		text := "the helper cannot join: " + err.Error()
		if hint := fault.HintOf(err); hint != "" {
			text += " (" + hint + ")"
		}
		_ = o.Refuse(code, text)
		log.Warn("subflow refused", "err", err, "hint", fault.HintOf(err))
		h.rec.Add(trace.Event{Kind: trace.Error, Device: t.primary.Name, Reason: "subflow refused", Text: text})
		return
	}
	began := time.Now()
	h.calls.tasks.Go(func() {
		h.calls.rescueRelay(ctx, s.relay, func() []*target { return h.targets.targetsOfPrimary(t.primary.Key) })
	})
	log.Debug("subflow relayed")
	h.rec.Add(trace.Event{Kind: trace.RelayUp, Count: s.number, Device: t.primary.Name, Text: q.Server})
	err = s.relayBothWays(h.feedback, traceReports(h.rec, s.number))
	h.servers.reportEnded(s, began, err)
	h.rec.Add(
		trace.Event{
			Kind:   trace.RelayDown,
			Count:  s.number,
			Device: t.primary.Name,
			Length: unit.Bytes(s.bytesFromBothEnds()),
			Reason: relayEndReason(err),
		},
	)
	h.relays.removeEndedSubflow(s)
	h.share.removeSharedRelay(s.share)
	h.announcer.removeFactsPipe(s.pipe)
	_, mostUp := s.up.ring.Held()
	_, mostDown := s.down.ring.Held()
	log.Debug(
		"subflow ended", "err", err, "up", s.up.bytesRead.Load(), "down", s.down.bytesRead.Load(), "most_up", mostUp,
		"most_down", mostDown,
	)
}

// traceReports returns a function that records the reports of a relay, nil without a trace.
func traceReports(rec *trace.Recorder, number uint64) func(trace.Event) {
	if !rec.Enabled() {
		return nil
	}
	return func(e trace.Event) {
		e.Count = number
		rec.Add(e)
	}
}

// connectSubflow opens the HS-path and answers INIT_MP_OK. On an error it returns the code for the
// answer and leaves only o open.
func (h *Helper) connectSubflow(
	ctx context.Context,
	t *target,
	o *pipe.Offer,
	q pipe.Request,
) (_ *subflow, _ wire.Code, err error) {
	primary := t.primary
	if !h.access.allowsServer(primary.Key, q.Server) {
		return nil, wire.CodeForbidden, fault.New(
			fault.Permission,
			fmt.Errorf("%q is not an address of a server that it trusts", q.Server),
			"pair the two devices again, or on the helper run "+
				"`mpbond trust add NAME --role server --key KEY` with this address",
		)
	}
	if err := h.refusalFor(primary); err != nil {
		return nil, wire.CodeLimit, err
	}
	if err := h.relays.reserveSlot(); err != nil {
		return nil, wire.CodeLimit, err
	}
	defer func() {
		if err != nil {
			h.relays.releaseSlot()
		}
	}()
	dial, cancel := context.WithTimeout(ctx, pipe.HandshakeTimeout)
	defer cancel()
	hs, link, code, err := h.servers.connectServer(dial, primary, q)
	if err != nil {
		return nil, code, err
	}
	p, err := o.Accept(q, min(q.ResumeTimeout, maxResumeTimeout), device.RadioOf(link))
	if err != nil {
		hs.Close()
		return nil, wire.CodeInternal, err
	}
	s := &subflow{
		relay:   newRelay(p, hs, int(h.cfg.Buffer)),
		primary: primary,
		server:  q.Server,
		since:   time.Now(),
		link:    link,
		share:   h.share.addSharedRelay(p, hs),
	}
	s.hasPipeChoice = func() bool { return h.targets.countWaitingPipes(primary.Key) > 1 }
	ending := h.relays.addRelayedSubflow(s)
	missed := h.access.checkAccess(primary.Key, q.Server) // others may have been closed for this reason meanwhile
	switch {
	case ending != nil || ctx.Err() != nil:
		missed = context.Canceled
	case missed == nil && h.Facts().RefusalReason != "":
		missed = errSuspended
	}
	if missed != nil {
		s.closeRelay(missed)
	}
	h.announcer.addFactsPipe(p, primary.Key) // facts may have changed since the pipe stopped waiting
	return s, 0, nil
}
