package playlist

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"mpbond/base/fault"
	"mpbond/onload/board"
	"mpbond/onload/transfer"
)

// A segment that is redirected is asked for by the own line, once: where a redirect leads
// may be meant for that line alone. The player is given the redirect as it came, since it
// alone knows who may read what is there; and it finds there what was fetched ahead.

// Tuning.
const (
	mostHops    = 3 // redirects that are followed, one after the other
	mostLookUps = 4 // of a track, at once
)

// redirected tells whether an answer leads elsewhere.
func redirected(status int) bool { return status/100 == 3 }

// mayStay tells whether a segment that was redirected to is still near to where its
// player is: the player asks for it after that which led there.
func (s *segment) mayStay(wanted map[key]int64) bool {
	if n, ok := wanted[s.of]; s.hops > 0 && ok && n == s.number {
		return true
	}
	back := s.reel.number - s.number
	return s.hops > 0 && back >= 0 && back <= 2
}

// moved takes in that a device was redirected.
func (p *shelf) moved(s *segment, now time.Time) {
	p.drop(s)
	if !s.looking {
		p.lookUp(s)
	}
	if s.hops > 0 || s.reel.moves {
		return
	}
	s.reel.moves = true
	for _, o := range p.segments { // helpers need not ask for these
		if o.reel == s.reel && o != s && o.answer == nil && o.readers == 0 && !o.looking && !o.left && !p.queue.isUnderWay(o) {
			p.forget(o)
		}
	}
	p.plan(s.reel, now)
}

// lookUp asks by the own line where a segment is.
func (p *shelf) lookUp(s *segment) {
	if p.loop.Closing() {
		return
	}
	s.looking = true
	s.reel.looking++
	p.loop.Go(func(ctx context.Context) {
		a, err := s.whereIs(ctx, p.loop.Own())
		p.loop.Lock()
		defer p.loop.Settle()
		s.looking = false
		s.reel.looking--
		switch {
		case s.left, p.segments[s.key] != s && s.readers == 0: // not wanted any more
			return
		case err != nil:
			s.reel.misfits++
			p.leave(s, err)
		case a == nil: // it is here
			s.reel.moves = false
			p.queue.add(s, s.due)
		default:
			if err := p.lead(s, a); err != nil {
				s.reel.misfits++
				p.leave(s, err)
			}
		}
		p.plan(s.reel, time.Now())
	})
}

// whereIs asks, and returns what redirects, or nil.
func (s *segment) whereIs(ctx context.Context, own *transfer.Worker) (*answer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, stall, errStalled)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return nil, err
	}
	r.Header = s.request.Clone()
	if s.to != board.Unknown {
		r.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", s.from, s.to-1))
	}
	a, err := own.Client.Do(r)
	if err != nil {
		return nil, err
	}
	defer a.Body.Close()
	if !redirected(a.StatusCode) {
		return nil, nil
	}
	_, _ = io.CopyN(io.Discard, a.Body, 4<<10) // so that the connection can be used again
	return &answer{status: a.StatusCode, header: a.Header.Clone()}, nil
}

// lead has what an answer leads to fetched ahead.
func (p *shelf) lead(s *segment, a *answer) error {
	from, err := url.Parse(s.url)
	if err != nil {
		return err
	}
	to := key{resolve(from, a.header.Get("Location")), s.from, s.to}
	u, err := url.Parse(to.url)
	switch {
	case err != nil || u.Host == "" || u.User != nil || a.header.Get("Location") == "":
		return fault.New(fault.Protocol, errors.New("it leads to where only the player may ask"), "")
	case s.hops+1 > mostHops:
		return fault.New(fault.Protocol, fmt.Errorf("over %d redirects", mostHops), "")
	case p.segments[to] != nil:
		return fault.New(fault.Protocol, errors.New("it leads to what is there already"), "")
	}
	s.answer, s.size, s.whole = a, 0, true
	s.signal()
	e := s.entry
	e.key = to
	t := p.newSegment(s.reel, e, s.due)
	t.of, t.hops = s.of, s.hops+1
	if s.hops == 0 {
		t.of = s.key
	}
	p.queue.add(t, t.due)
	return nil
}

// ledTo finds what a player was redirected to; nil if it is none.
func (p *shelf) ledTo(k key) *segment {
	for _, k := range []key{k, {k.url, 0, board.Unknown}} {
		if s := p.segments[k]; s != nil && s.hops > 0 && s.reel.misfits < misfits {
			return s
		}
	}
	return nil
}
