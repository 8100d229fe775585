package pipe

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// Resume moves the session of a subflow to w, at the primary: after a break,
// or because w is better. One goroutine calls it at a time. When it fails w is
// closed, and the session goes on as it was, unless the helper refused.
func (l *Link) Resume(ctx context.Context, w *Waiting) error {
	l.mu.Lock()
	s, err := l.s, l.err
	if err == nil && s.readEnded {
		err = errors.New("the subflow is ending")
	}
	s.attempt++
	f := wire.Resume{Token: s.token, Attempt: s.attempt, Received: s.got}
	l.mu.Unlock()
	if err != nil {
		w.Close()
		return err
	}
	payload, err := w.ask(ctx, resumeTimeout, f, wire.TypeResumed)
	if err != nil {
		if refused := (wire.Refuse{}); errors.As(err, &refused) {
			l.fail(fmt.Errorf("resuming: %w", err))
		}
		return err
	}
	r, err := wire.ParseResumed(payload)
	if err == nil {
		c := w.carried()
		err = l.change(c, func() (uint64, wire.Frame, error) {
			if r.Received < s.confirmed || r.Received > s.pos.Load() || r.From > s.got {
				return 0, nil, fmt.Errorf("%w: %v: the helper has %d bytes, of %d sent and %d confirmed, and sends from %d, of %d received",
					wire.ErrMalformed, wire.TypeResumed, r.Received, s.pos.Load(), s.confirmed, r.From, s.got)
			}
			c.skip, s.told = s.got-r.From, f.Received
			if s.got > s.told && !s.telling { // it came over the old pipe since, and nothing more may come
				s.telling = true
				s.tell.Reset(confirmAfter)
			}
			return r.Received, nil, nil
		})
	}
	if errors.Is(err, wire.ErrMalformed) {
		l.fail(err)
	}
	if err != nil {
		w.hop.Close()
	}
	return err
}

// Continue is the helper's part of Resume: what o asked for, f, is the session
// of l. Who called checks that it is the same primary. An error was answered
// with REFUSE.
func (l *Link) Continue(o *Offer, f wire.Resume) error {
	refuse := func(code wire.Code, text string) error {
		_ = o.Refuse(code, text)
		return errors.New(text)
	}
	l.mu.Lock()
	s, ended := l.s, l.err != nil || l.s.readEnded
	stale := f.Attempt <= s.attempt
	wrong := f.Received > s.pos.Load()
	if !ended && !stale && !wrong {
		s.attempt = f.Attempt
	}
	l.mu.Unlock()
	switch {
	case ended:
		return refuse(wire.CodeClosed, "the subflow has ended")
	case stale:
		return refuse(wire.CodeMalformed, "an attempt that comes after a later one")
	case wrong:
		return refuse(wire.CodeMalformed, "it has more than was sent")
	}
	err := l.change(o.carried(), func() (uint64, wire.Frame, error) {
		if f.Attempt != s.attempt {
			return 0, nil, errors.New("a later attempt came")
		}
		// The primary may have confirmed more over the old pipe since it asked.
		from := max(f.Received, s.confirmed)
		s.told = s.got
		return from, wire.Resumed{Received: s.got, From: from}, nil
	})
	if err != nil {
		return refuse(wire.CodeClosed, err.Error())
	}
	return nil
}

// change has the session go on over c, from the position that agree returns,
// after a first frame if it is not nil. Agree is called with wmu and mu held;
// its error leaves everything as it was.
func (l *Link) change(c *carried, agree func() (from uint64, first wire.Frame, err error)) error {
	_ = l.carrier().hop.SetWriteDeadline(time.Now().Add(handOver)) // who writes there lets us in
	l.wmu.Lock()
	defer l.wmu.Unlock()
	l.mu.Lock()
	s, err := l.s, l.err
	if err == nil && s.readEnded { // meanwhile: what was kept is let go
		err = errors.New("the subflow is ending")
	}
	var from uint64
	var first wire.Frame
	if err == nil {
		from, first, err = agree()
	}
	if err != nil {
		_ = l.at.hop.SetWriteDeadline(time.Time{})
		l.mu.Unlock()
		return err
	}
	old := l.at
	l.at = c
	if old.broken != nil {
		s.over.Stop()
		s.counts.Resumed++
		s.counts.Away += time.Since(s.brokenAt)
	} else {
		s.counts.Migrated++
	}
	s.counts.Since = time.Now()
	end := s.pos.Load()
	s.counts.Again += unit.Bytes(end - from)
	s.ackedBefore, s.acked, s.stall = s.ackedBefore+s.acked, 0, stall{}
	s.confirmed, s.pinned, s.timedAt = from, true, time.Time{}
	s.srtt, s.minRTT = 0, 0 // another hop
	select {
	case <-s.upset: // about the old one
	default:
	}
	l.cond.Broadcast()
	l.mu.Unlock()
	if s.own || old.broken != nil {
		old.hop.Close()
	} else {
		_ = old.hop.SetReadDeadline(time.Now()) // who reads there comes over
		time.AfterFunc(afterwards, func() { old.hop.Close() })
	}

	// What was gathered is kept, and is part of what is sent again.
	l.buf, l.frame, l.held = l.buf[:0], -1, 0
	l.sent.Store(from)
	if first != nil {
		l.buf = wire.Append(l.buf, first)
	}
	for at := from; at < end; {
		n := min(int(end-at), maxData)
		l.buf = s.keep.AppendAt(wire.AppendHeader(l.buf, wire.TypeHopData, n), at, n)
		l.held += uint64(n)
		at += uint64(n)
		if err := l.flush(); err != nil {
			return nil // it has ended: who reads learns
		}
		if l.usable() != c {
			break // the next one begins again
		}
	}
	if s.ended {
		l.buf = wire.Append(l.buf, wire.HopEnd{})
	}
	_ = l.flush()
	l.mu.Lock()
	defer l.mu.Unlock()
	s.pinned = false
	s.keep.Confirm(s.confirmed)
	return nil
}
