// SPDX-License-Identifier: Apache-2.0

package playlist

import (
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"mpbond/base/span"
	"mpbond/base/unit"
	"mpbond/onload/board"
	"mpbond/onload/transfer"
)

// defaultSegmentSize is assumed for segments of unknown size.
const defaultSegmentSize = 512 * unit.KB

// prefetcher prefetches segments for players. It is the task of a loop; the lock of the loop guards
// it.
type prefetcher struct {
	loop          *transfer.Loop
	log           *slog.Logger
	activeReplies sync.WaitGroup // replies and tunnels

	library     *library
	segments    map[segmentKey]*segment
	queue       queue
	memoryLimit unit.Bytes // for stored segments
	heldBytes   unit.Bytes
	result      Result
}

// segment is a segment that is being fetched or stored.
type segment struct {
	entry
	playback      *playback
	object        int // on the board
	dueTime       time.Time
	requestHeader http.Header
	listedKey     segmentKey // listed by the playlist, if this is the target of a redirect
	hops          int        // redirects so far
	lookingUp     bool       // its location is being looked up

	response     *response
	size         unit.Bytes // or board.Unknown
	split        bool       // several devices fetch parts
	buf          []byte
	received     span.Set[unit.Bytes] // if split
	leadJob      *job                 // if not split: the job that feeds the player
	complete     bool
	leftToPlayer bool // the player fetches it itself
	excluded     transfer.Excluded
	heldBytes    unit.Bytes // counted by the prefetcher
	readers      int
	wanted       bool // the player has requested it
	changed      chan struct{}
}

// unusedBytes returns how many stored bytes were not requested.
func (s *segment) unusedBytes() unit.Bytes {
	if s.wanted {
		return 0
	}
	return s.heldBytes
}

// isHopeless reports whether no device can fetch the segment now. Until a player waits for it,
// suspended devices count as usable.
func (s *segment) isHopeless(devices []*transfer.Worker) bool {
	for _, w := range devices {
		if s.excluded[w] == nil && w.IsUp() {
			return false
		}
	}
	return len(s.excluded) == len(devices) || s.readers > 0
}

// notifyReaders wakes the players that wait for the segment.
func (s *segment) notifyReaders() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// receivedPrefix returns the bytes received so far from the beginning, and a channel that is closed
// when more arrive.
func (s *segment) receivedPrefix() ([]byte, <-chan struct{}) {
	switch {
	case s.complete:
		return s.buf, s.changed
	case s.split && s.received.Has(0):
		return s.buf[:s.received.EndOf(0)], s.changed
	case s.leadJob != nil:
		return s.leadJob.buf, s.changed
	}
	return nil, s.changed
}

// addPlaylist adds a playlist that a player has loaded.
func (p *prefetcher) addPlaylist(at *url.URL, kind, text string, off time.Duration) {
	now := time.Now()
	d, l := parsePlaylist(at, kind, text, off, now)
	if d == nil {
		return
	}
	p.loop.Lock()
	defer p.loop.DispatchAndUnlock()
	p.library.addDocument(d, l, now)
	p.updateSegments(d, now)
	for _, r := range p.library.evictOldPlaylists() {
		p.stopPlayback(r)
	}
}

// copyRedirectGroup records that a playlist was redirected.
func (p *prefetcher) noteRedirect(from *url.URL, to string) {
	p.loop.Lock()
	defer p.loop.Unlock()
	p.library.copyRedirectGroup(from, to)
}

// updateSegments continues prefetching after a playlist has changed.
func (p *prefetcher) updateSegments(d *document, now time.Time) {
	for _, r := range d.playbacks {
		for _, e := range r.entries {
			if s := p.segments[e.segmentKey]; s != nil && s.playback == r && s.number != e.number && !e.isInit {
				p.removeSegment(s) // the URL now stands for another segment
			}
		}
		p.prefetchNext(r, now)
	}
}

// startTunnel counts a tunnel, for which Serve waits. It reports false if the loop is closing.
func (p *prefetcher) startTunnel() bool {
	p.loop.Lock()
	defer p.loop.Unlock()
	if p.loop.IsClosing() {
		return false
	}
	p.result.Tunnels++
	p.activeReplies.Add(1)
	return true
}

// requestSegment returns the segment that a player requests and starts fetching it. It returns nil
// if the request is not for a known segment.
func (p *prefetcher) requestSegment(q *http.Request, from, to unit.Bytes) *segment {
	now := time.Now()
	p.loop.Lock()
	defer p.loop.DispatchAndUnlock()
	for _, d := range p.library.documents {
		if d.mpd != nil && now.Sub(d.listedAt) > relistInterval {
			p.library.updateDocument(d, d.mpd.listSegments(now), now)
			p.updateSegments(d, now)
		}
	}
	at, d := p.library.findSegmentEntry(q.URL.String(), from, to)
	if s := p.findRedirected(segmentKey{q.URL.String(), from, to}); d == nil && s != nil && !p.loop.IsClosing() {
		s.playback.lastRequest = now
		return p.giveToPlayer(s, now)
	}
	if d == nil || p.loop.IsClosing() || at.playback.mismatches >= maxMismatches {
		return nil
	}
	p.library.markPlaylistUsed(d, now)
	r, e := at.playback, at.playback.entries[at.index]
	if r.group != "" { // the player has switched to this track
		for _, other := range p.library.playbacks {
			if other != r && other.group == r.group {
				p.stopPlayback(other)
			}
		}
	}
	r.requestHeader, r.requestHost = q.Header, q.URL.Host
	if !e.isInit {
		// concurrent requests may arrive in any order
		if back := r.lastNumber - e.number; r.lastRequest.IsZero() || back < 0 || back > 2 {
			r.lastNumber = e.number
		}
		r.lastRequest = now
	}
	s := p.segments[e.segmentKey]
	if s == nil {
		s = p.fetchAhead(r, e, now)
	}
	return p.giveToPlayer(s, now)
}

// giveToPlayer prepares a segment for the requesting player. It returns nil if the segment is left
// to the player.
func (p *prefetcher) giveToPlayer(s *segment, now time.Time) *segment {
	if s.leftToPlayer {
		p.removeSegment(s)
		p.result.Passed++
		return nil
	}
	// before the segments that are not requested yet
	if len(s.received) == 0 && s.response == nil && !s.lookingUp && !p.queue.isUnderWay(s) {
		p.queue.dequeueSegment(s)
		p.queue.enqueueSegment(s, now)
	}
	s.readers++
	p.activeReplies.Add(1)
	s.wanted = true
	p.queue.updateWanted(s)
	if s.isHopeless(p.loop.Workers()) {
		p.leaveToPlayer(s, s.excluded.Reasons(p.loop.Workers()))
	}
	p.prefetchNext(s.playback, now)
	return s
}

// noteMismatch records that a prefetched response does not fit the request of the player.
func (p *prefetcher) noteMismatch(s *segment) {
	p.loop.Lock()
	defer p.loop.DispatchAndUnlock()
	s.playback.mismatches++
	p.removeSegment(s)
}

// releaseSegment records that a player has received a segment or has gone.
func (p *prefetcher) releaseSegment(s *segment, served bool) {
	p.loop.Lock()
	defer p.activeReplies.Done()
	defer p.loop.DispatchAndUnlock()
	s.readers--
	p.queue.updateWanted(s)
	if served && !isRedirect(s.response.status) {
		p.result.Segments++
		p.result.Bytes += unit.Bytes(len(s.buf))
	}
	// a segment is served once, not cached
	if s.readers == 0 && (served || s.leftToPlayer || p.segments[s.segmentKey] != s) {
		if s.leftToPlayer && !served {
			p.result.Passed++
		}
		p.removeSegment(s)
	}
}

// fetchAhead starts to fetch a segment that is due at a time.
func (p *prefetcher) fetchAhead(r *playback, e entry, due time.Time) *segment {
	s := p.newSegment(r, e, due)
	if r.isRedirected {
		p.lookUpLocation(s)
	} else {
		p.queue.enqueueSegment(s, due)
	}
	return s
}

// newSegment adds a segment to the prefetcher.
func (p *prefetcher) newSegment(r *playback, e entry, due time.Time) *segment {
	sameHost := false
	if u, err := url.Parse(e.url); err == nil {
		sameHost = u.Host == r.requestHost
	}
	s := &segment{entry: e, playback: r, dueTime: due, requestHeader: prefetchHeader(r.requestHeader, sameHost),
		size: board.Unknown, excluded: transfer.Excluded{}, changed: make(chan struct{})}
	if e.to != board.Unknown {
		s.size = e.to - e.from
	}
	p.segments[e.segmentKey] = s
	return s
}

// prefetchNext starts to fetch the next segments of a track. It removes segments that the player
// has passed or jumped away from.
func (p *prefetcher) prefetchNext(r *playback, now time.Time) {
	if r.lastRequest.IsZero() || r.mismatches >= maxMismatches {
		return
	}
	next := r.entriesAfter(r.lastNumber, prefetchWindow)
	wanted := make(map[segmentKey]int64, len(next))
	for _, e := range next {
		wanted[e.segmentKey] = e.number
	}
	room := p.memoryLimit - p.heldBytes
	for _, s := range p.segments {
		if _, ok := wanted[s.segmentKey]; s.playback == r && s.readers == 0 && !ok && !s.isNearPlayer(wanted) {
			room += s.heldBytes
			p.removeSegment(s)
		} else if !s.complete && !s.leftToPlayer {
			room -= max(0, s.expectedSize()-s.heldBytes)
		}
	}
	due := now
	for _, e := range next {
		if p.segments[e.segmentKey] == nil {
			if room -= max(r.lastSize, defaultSegmentSize); room < 0 || r.isRedirected && r.lookUps >= maxLookUps {
				return
			}
			p.fetchAhead(r, e, due)
		}
		due = due.Add(e.duration)
	}
}

// expectedSize returns the size of the segment, or an estimate.
func (s *segment) expectedSize() unit.Bytes {
	if s.size != board.Unknown {
		return s.size
	}
	return max(s.playback.lastSize, defaultSegmentSize)
}

// stopPlayback removes the segments of a track after its player has gone.
func (p *prefetcher) stopPlayback(r *playback) {
	r.lastRequest = time.Time{}
	for _, s := range p.segments {
		if s.playback == r && s.readers == 0 {
			p.removeSegment(s)
		}
	}
}

// dequeueSegment removes a segment. Replies that use it continue.
func (p *prefetcher) removeSegment(s *segment) {
	if p.segments[s.segmentKey] == s {
		delete(p.segments, s.segmentKey)
	}
	if s.readers > 0 {
		return
	}
	p.result.Unused += s.unusedBytes()
	p.freeSegment(s)
}

// freeSegment stops fetching a segment and frees its memory.
func (p *prefetcher) freeSegment(s *segment) {
	p.queue.dequeueSegment(s)
	p.heldBytes -= s.heldBytes
	s.heldBytes = 0
}

// leaveToPlayer leaves a segment to the player itself.
func (p *prefetcher) leaveToPlayer(s *segment, why error) {
	if s.leftToPlayer || s.complete {
		return
	}
	p.log.Debug("segment left to the player", "url", s.url, "err", why)
	p.freeSegment(s)
	s.leftToPlayer, s.split, s.buf, s.received, s.leadJob = true, false, nil, nil, nil
	s.notifyReaders()
}

// reserveMemory counts memory for a segment. If a player waits for the segment, other segments
// without a player are removed to make room. It reports false at the limit.
func (p *prefetcher) reserveMemory(s *segment, n unit.Bytes) bool {
	for p.heldBytes+n > p.memoryLimit && s.readers > 0 {
		var last *segment
		for _, o := range p.segments {
			if o.readers == 0 && o.heldBytes > 0 && (last == nil || o.object > last.object) {
				last = o
			}
		}
		if last == nil {
			break
		}
		p.removeSegment(last)
	}
	if p.heldBytes+n > p.memoryLimit {
		return false
	}
	p.heldBytes += n
	s.heldBytes += n
	return true
}
