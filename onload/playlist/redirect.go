// SPDX-License-Identifier: Apache-2.0

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

// Only the local device resolves redirects of segments, once each: a redirect may be meant for this
// device alone. The player gets the redirect unchanged, since only the player knows which
// credentials may go there; and it finds the prefetched segment at the target.

// Limits of redirects.
const (
	maxHops    = 3 // in a row
	maxLookUps = 4 // at once, per track
)

// isRedirect reports whether a status is a redirect.
func isRedirect(status int) bool { return status/100 == 3 }

// isNearPlayer reports whether the target of a redirected segment is still near the position of the
// player, which requests it after the original URL.
func (s *segment) isNearPlayer(wanted map[segmentKey]int64) bool {
	if n, ok := wanted[s.listedKey]; s.hops > 0 && ok && n == s.number {
		return true
	}
	back := s.playback.lastNumber - s.number
	return s.hops > 0 && back >= 0 && back <= 2
}

// handleRedirect records that a device was redirected.
func (p *prefetcher) handleRedirect(s *segment, now time.Time) {
	p.freeSegment(s)
	if !s.lookingUp {
		p.lookUpLocation(s)
	}
	if s.hops > 0 || s.playback.isRedirected {
		return
	}
	s.playback.isRedirected = true
	for _, o := range p.segments { // helpers would be redirected too
		if o.playback == s.playback && o != s && o.response == nil && o.readers == 0 && !o.lookingUp &&
			!o.leftToPlayer && !p.queue.isUnderWay(o) {
			p.removeSegment(o)
		}
	}
	p.prefetchNext(s.playback, now)
}

// lookUpLocation asks the local device where a segment is.
func (p *prefetcher) lookUpLocation(s *segment) {
	if p.loop.IsClosing() {
		return
	}
	s.lookingUp = true
	s.playback.lookUps++
	p.loop.Go(func(ctx context.Context) {
		a, err := s.fetchRedirect(ctx, p.loop.LocalWorker())
		p.loop.Lock()
		defer p.loop.DispatchAndUnlock()
		s.lookingUp = false
		s.playback.lookUps--
		switch {
		case s.leftToPlayer, p.segments[s.segmentKey] != s && s.readers == 0: // no longer wanted
			return
		case err != nil:
			s.playback.mismatches++
			p.leaveToPlayer(s, err)
		case a == nil: // not redirected
			s.playback.isRedirected = false
			p.queue.enqueueSegment(s, s.dueTime)
		default:
			if err := p.followRedirect(s, a); err != nil {
				s.playback.mismatches++
				p.leaveToPlayer(s, err)
			}
		}
		p.prefetchNext(s.playback, time.Now())
	})
}

// fetchRedirect requests a segment and returns the redirect, or nil if there is none.
func (s *segment) fetchRedirect(ctx context.Context, own *transfer.Worker) (*response, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, stallTimeout, errStalled)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return nil, err
	}
	r.Header = s.requestHeader.Clone()
	if s.to != board.Unknown {
		r.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", s.from, s.to-1))
	}
	a, err := own.Client.Do(r)
	if err != nil {
		return nil, err
	}
	defer a.Body.Close()
	if !isRedirect(a.StatusCode) {
		return nil, nil
	}
	_, _ = io.CopyN(io.Discard, a.Body, 4<<10) // so that the connection can be reused
	return &response{status: a.StatusCode, header: a.Header.Clone()}, nil
}

// followRedirect prefetches the target of a redirect.
func (p *prefetcher) followRedirect(s *segment, a *response) error {
	from, err := url.Parse(s.url)
	if err != nil {
		return err
	}
	to := segmentKey{resolveHTTPURL(from, a.header.Get("Location")), s.from, s.to}
	u, err := url.Parse(to.url)
	switch {
	case err != nil || u.Host == "" || u.User != nil || a.header.Get("Location") == "":
		return fault.New(fault.Protocol, errors.New("only the player may follow the redirect"), "")
	case s.hops+1 > maxHops:
		return fault.New(fault.Protocol, fmt.Errorf("more than %d redirects", maxHops), "")
	case p.segments[to] != nil:
		return fault.New(fault.Protocol, errors.New("the target of the redirect is fetched already"), "")
	}
	s.response, s.size, s.complete = a, 0, true
	s.notifyReaders()
	e := s.entry
	e.segmentKey = to
	t := p.newSegment(s.playback, e, s.dueTime)
	t.listedKey, t.hops = s.listedKey, s.hops+1
	if s.hops == 0 {
		t.listedKey = s.segmentKey
	}
	p.queue.enqueueSegment(t, t.dueTime)
	return nil
}

// findRedirected returns the segment for the target of a redirect, or nil.
func (p *prefetcher) findRedirected(k segmentKey) *segment {
	for _, k := range []segmentKey{k, {k.url, 0, board.Unknown}} {
		if s := p.segments[k]; s != nil && s.hops > 0 && s.playback.mismatches < maxMismatches {
			return s
		}
	}
	return nil
}
