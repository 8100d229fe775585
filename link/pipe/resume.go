// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// Tuning.
const (
	// oldConnLinger is how long a helper keeps the old connection open, so that the primary can
	// read from it until it has changed too.
	oldConnLinger = 2 * time.Second
	// resumeTimeout bounds the wait for RESUMED.
	resumeTimeout = 2 * time.Second
)

// Resume moves the Link of a subflow to w, at the primary: after a break, or because w is better.
// One goroutine may call it at a time. When it fails w is closed. The Link then continues as
// before, unless the helper refused.
func (l *Link) Resume(ctx context.Context, w *Waiting) error {
	l.slot.mu.Lock()
	err := l.slot.endErr
	if err == nil && l.readEnded {
		err = errEnding
	}
	l.lastAttempt++
	f := wire.Resume{Token: l.token, Attempt: l.lastAttempt, Received: l.receivedSender.received}
	l.slot.mu.Unlock()
	if err != nil {
		w.Close()
		return err
	}
	payload, err := w.exchangeRequest(ctx, resumeTimeout, f, wire.TypeResumed)
	if err != nil {
		if refused := (wire.Refuse{}); errors.As(err, &refused) {
			l.endLinkWith(fmt.Errorf("resuming: %w", err))
		}
		return err
	}
	r, err := wire.ParseResumed(payload)
	if err == nil {
		c := w.newWaitingLinkConn()
		err = l.switchConn(c, func() (uint64, wire.Frame, error) {
			sent, confirmed, received := l.replay.written.Load(), l.replay.confirmed, l.receivedSender.received
			if r.Received < confirmed || r.Received > sent || r.From > received {
				return 0, nil, fmt.Errorf("%w: %v: the helper has %d bytes, of %d sent and %d confirmed, "+
					"and sends from %d, of %d received",
					wire.ErrMalformed, wire.TypeResumed, r.Received, sent, confirmed, r.From, received)
			}
			c.skipBytes = received - r.From
			l.receivedSender.resumeConfirmedAt(f.Received)
			return r.Received, nil, nil
		})
	}
	if errors.Is(err, wire.ErrMalformed) {
		l.endLinkWith(err)
	}
	if err != nil {
		w.raw.Close()
	}
	return err
}

// AcceptResume is the helper's side of Resume. f, which came over o, asks for l. The caller must
// have checked that both have the same primary. Errors were answered with REFUSE.
func (l *Link) AcceptResume(o *Offer, f wire.Resume) error {
	refuse := func(code wire.Code, text string) error {
		_ = o.Refuse(code, text)
		return errors.New(text)
	}
	l.slot.mu.Lock()
	ended := l.slot.endErr != nil || l.readEnded
	stale := f.Attempt <= l.lastAttempt
	wrong := f.Received > l.replay.written.Load()
	if !ended && !stale && !wrong {
		l.lastAttempt = f.Attempt
	}
	l.slot.mu.Unlock()
	switch {
	case ended:
		return refuse(wire.CodeClosed, "the subflow has ended")
	case stale:
		return refuse(wire.CodeMalformed, "a newer attempt exists")
	case wrong:
		return refuse(wire.CodeMalformed, "the peer claims more data than was sent")
	}
	err := l.switchConn(o.newOfferLinkConn(), func() (uint64, wire.Frame, error) {
		if f.Attempt != l.lastAttempt {
			return 0, nil, errors.New("a newer attempt exists")
		}
		// The primary may have confirmed more over the old pipe after its request.
		from := max(f.Received, l.replay.confirmed)
		l.receivedSender.resumeConfirmedAt(l.receivedSender.received)
		return from, wire.Resumed{Received: l.receivedSender.received, From: from}, nil
	})
	if err != nil {
		return refuse(wire.CodeClosed, err.Error())
	}
	return nil
}

var errEnding = errors.New("the subflow is ending")

// switchConn makes the Link continue over c. agreeStart returns the position to continue from, and
// a first frame or nil. It is called with wmu and slot.mu held; its error leaves everything
// unchanged.
func (l *Link) switchConn(c *linkConn, agreeStart func() (from uint64, first wire.Frame, err error)) error {
	_ = l.slot.currentConn().raw.SetWriteDeadline(time.Now().Add(handOverTimeout)) // makes a blocked writer release wmu
	l.wmu.Lock()
	defer l.wmu.Unlock()
	l.slot.mu.Lock()
	err := l.slot.endErr
	if err == nil && l.readEnded { // ended meanwhile: the kept bytes were dropped
		err = errEnding
	}
	var from uint64
	var first wire.Frame
	if err == nil {
		from, first, err = agreeStart()
	}
	if err != nil {
		_ = l.slot.conn.raw.SetWriteDeadline(time.Time{})
		l.slot.mu.Unlock()
		return err
	}
	old, end := l.slot.conn, l.replay.written.Load()
	l.replaceConn(c, from, end)
	l.slot.mu.Unlock()
	if l.replay.ownsRing || old.breakErr != nil {
		old.raw.Close()
	} else {
		_ = old.raw.SetReadDeadline(time.Now()) // moves the reader to the new connection
		time.AfterFunc(oldConnLinger, func() { old.raw.Close() })
	}
	l.retransmitRange(c, from, end, first)
	return nil
}

// replaceConn makes c the current connection. Bytes from position from to end will be sent again.
// wmu and slot.mu must be held.
func (l *Link) replaceConn(c *linkConn, from, end uint64) {
	if l.slot.conn.breakErr != nil {
		l.expiryTimer.Stop()
		l.counts.Resumed++
		l.counts.Downtime += time.Since(l.brokenSince)
	} else {
		l.counts.Migrated++
	}
	l.slot.conn = c
	l.counts.LastChange = time.Now()
	l.counts.Retransmitted += unit.Bytes(end - from)
	l.ackedBefore, l.acked, l.stallDetector = l.ackedBefore+l.acked, 0, stallDetector{}
	l.replay.restartReplayAt(from)
	l.roundTrips = rttEstimator{} // c is another hop
	select {
	case <-l.connNeeded: // it concerned the old connection
	default:
	}
	l.slot.cond.Broadcast()
}

// retransmitRange sends the bytes from position from to end over c, after the frame first unless
// that is nil, and HOP_END if it was sent before. Gathered data is part of these bytes. If c
// breaks, the next connection retransmits. wmu must be held.
func (l *Link) retransmitRange(c *linkConn, from, end uint64, first wire.Frame) {
	l.discardGathered()
	l.sent.Store(from)
	if first != nil {
		l.appendFrame(first)
	}
	for at := from; at < end; {
		n := min(int(end-at), maxDataPayload)
		l.buf = l.replay.appendDataFrame(l.buf, at, n)
		l.gatheredBytes += uint64(n)
		at += uint64(n)
		if err := l.flushLinkLocked(); err != nil {
			return // the Link has ended; the reader gets the error
		}
		if l.slot.usableConn() != c {
			break // the next connection starts over
		}
	}
	if l.endSent {
		l.appendFrame(wire.HopEnd{})
	}
	_ = l.flushLinkLocked()
	l.slot.mu.Lock()
	defer l.slot.mu.Unlock()
	l.replay.releaseConfirmed()
}
