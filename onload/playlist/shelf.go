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

// guess is the size of a segment of which nobody knows it.
const guess = 512 * unit.KB

// shelf has what is fetched ahead of what players ask for. It is the task of a loop, whose
// lock guards it.
type shelf struct {
	loop    *transfer.Loop
	log     *slog.Logger
	running sync.WaitGroup // players that are given something

	library  *library
	segments map[key]*segment
	queue    queue
	memory   unit.Bytes // that may be held
	held     unit.Bytes
	result   Result
}

// segment is one that is fetched, or there.
type segment struct {
	entry
	reel    *reel
	object  int // on the board
	due     time.Time
	request http.Header
	of      key  // what the playlist has, if this was redirected to
	hops    int  // how often
	looking bool // it is asked where it is

	answer  *answer
	size    unit.Bytes // or board.Unknown
	split   bool       // several devices bring parts of it
	buf     []byte
	have    span.Set[unit.Bytes] // if split
	lead    *job                 // if not: who brings what the player is given
	whole   bool
	left    bool // to the player itself
	bars    transfer.Excluded
	mem     unit.Bytes // counted as held
	readers int
	wanted  bool // the player has asked for it
	changed chan struct{}
}

// unused is what was fetched of it in vain.
func (s *segment) unused() unit.Bytes {
	if s.wanted {
		return 0
	}
	return s.mem
}

// isHopeless reports whether no device can have it now: while nobody waits for it, one that
// does not work now still may.
func (s *segment) isHopeless(devices []*transfer.Worker) bool {
	for _, w := range devices {
		if s.bars[w] == nil && w.IsUp() {
			return false
		}
	}
	return len(s.bars) == len(devices) || s.readers > 0
}

func (s *segment) signal() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// view is what there is from the beginning on, and who tells of more.
func (s *segment) view() ([]byte, <-chan struct{}) {
	switch {
	case s.whole:
		return s.buf, s.changed
	case s.split && s.have.Has(0):
		return s.buf[:s.have.EndOf(0)], s.changed
	case s.lead != nil:
		return s.lead.buf, s.changed
	}
	return nil, s.changed
}

// learn takes in a playlist that a player has loaded.
func (p *shelf) learn(at *url.URL, kind, text string, off time.Duration) {
	now := time.Now()
	d, l := parse(at, kind, text, off, now)
	if d == nil {
		return
	}
	p.loop.Lock()
	defer p.loop.Settle()
	p.library.add(d, l, now)
	p.relisted(d, now)
	for _, r := range p.library.bound() {
		p.rest(r)
	}
}

// redirected notes that a playlist was redirected.
func (p *shelf) redirected(from *url.URL, to string) {
	p.loop.Lock()
	defer p.loop.Unlock()
	p.library.redirect(from, to)
}

// relisted goes on where the player of a playlist is, which has changed.
func (p *shelf) relisted(d *document, now time.Time) {
	for _, r := range d.reels {
		for _, e := range r.entries {
			if s := p.segments[e.key]; s != nil && s.reel == r && s.number != e.number && !e.init {
				p.forget(s) // the name stands for another segment now
			}
		}
		p.plan(r, now)
	}
}

// enter counts a tunnel, whose end Serve waits for; false: nothing is begun any more.
func (p *shelf) enter() bool {
	p.loop.Lock()
	defer p.loop.Unlock()
	if p.loop.Closing() {
		return false
	}
	p.result.Tunnels++
	p.running.Add(1)
	return true
}

// want finds the segment that a player asks for, and has it fetched; nil if it is none.
func (p *shelf) want(q *http.Request, from, to unit.Bytes) *segment {
	now := time.Now()
	p.loop.Lock()
	defer p.loop.Settle()
	for _, d := range p.library.docs {
		if d.mpd != nil && now.Sub(d.at) > freshList {
			p.library.relist(d, d.mpd.list(now), now)
			p.relisted(d, now)
		}
	}
	at, d := p.library.find(q.URL.String(), from, to)
	if s := p.ledTo(key{q.URL.String(), from, to}); d == nil && s != nil && !p.loop.Closing() {
		s.reel.asked = now
		return p.handOut(s, now)
	}
	if d == nil || p.loop.Closing() || at.reel.misfits >= misfits {
		return nil
	}
	p.library.use(d, now)
	r, e := at.reel, at.reel.entries[at.at]
	if r.group != "" { // the player has switched to this one
		for _, other := range p.library.playing {
			if other != r && other.group == r.group {
				p.rest(other)
			}
		}
	}
	r.request, r.host = q.Header, q.URL.Host
	if !e.init {
		if back := r.number - e.number; r.asked.IsZero() || back < 0 || back > 2 { // those asked for at once may come in any order
			r.number = e.number
		}
		r.asked = now
	}
	s := p.segments[e.key]
	if s == nil {
		s = p.fetchAhead(r, e, now)
	}
	return p.handOut(s, now)
}

// handOut has a segment given to the player who asks for it; nil if it is left to the
// player.
func (p *shelf) handOut(s *segment, now time.Time) *segment {
	if s.left {
		p.forget(s)
		p.result.Passed++
		return nil
	}
	if len(s.have) == 0 && s.answer == nil && !s.looking && !p.queue.isUnderWay(s) { // before all that can wait
		p.queue.remove(s)
		p.queue.add(s, now)
	}
	s.readers++
	p.running.Add(1)
	s.wanted = true
	p.queue.note(s)
	if s.isHopeless(p.loop.Workers()) {
		p.leave(s, s.bars.Reasons(p.loop.Workers()))
	}
	p.plan(s.reel, now)
	return s
}

// misfit tells that what was fetched is no answer to what the player has asked.
func (p *shelf) misfit(s *segment) {
	p.loop.Lock()
	defer p.loop.Settle()
	s.reel.misfits++
	p.forget(s)
}

// release tells that a player has a segment, or has gone away.
func (p *shelf) release(s *segment, served bool) {
	p.loop.Lock()
	defer p.running.Done()
	defer p.loop.Settle()
	s.readers--
	p.queue.note(s)
	if served && !redirected(s.answer.status) {
		p.result.Segments++
		p.result.Bytes += unit.Bytes(len(s.buf))
	}
	if s.readers == 0 && (served || s.left || p.segments[s.key] != s) { // a segment is served once: this is no cache
		if s.left && !served {
			p.result.Passed++
		}
		p.forget(s)
	}
}

// fetchAhead has a segment fetched, to be there at a time.
func (p *shelf) fetchAhead(r *reel, e entry, due time.Time) *segment {
	s := p.newSegment(r, e, due)
	if r.moves {
		p.lookUp(s)
	} else {
		p.queue.add(s, due)
	}
	return s
}

// newSegment puts a segment on the shelf.
func (p *shelf) newSegment(r *reel, e entry, due time.Time) *segment {
	same := false
	if u, err := url.Parse(e.url); err == nil {
		same = u.Host == r.host
	}
	s := &segment{entry: e, reel: r, due: due, request: requestFor(r.request, same), size: board.Unknown, bars: transfer.Excluded{}, changed: make(chan struct{})}
	if e.to != board.Unknown {
		s.size = e.to - e.from
	}
	p.segments[e.key] = s
	return s
}

// plan has the next segments of a track fetched, and forgets others: those that a player
// has left behind, or jumped away from.
func (p *shelf) plan(r *reel, now time.Time) {
	if r.asked.IsZero() || r.misfits >= misfits {
		return
	}
	next := r.after(r.number, window)
	wanted := make(map[key]int64, len(next))
	for _, e := range next {
		wanted[e.key] = e.number
	}
	room := p.memory - p.held
	for _, s := range p.segments {
		if _, ok := wanted[s.key]; s.reel == r && s.readers == 0 && !ok && !s.mayStay(wanted) {
			room += s.mem
			p.forget(s)
		} else if !s.whole && !s.left {
			room -= max(0, s.expected()-s.mem)
		}
	}
	due := now
	for _, e := range next {
		if p.segments[e.key] == nil {
			if room -= max(r.size, guess); room < 0 || r.moves && r.looking >= mostLookUps {
				return
			}
			p.fetchAhead(r, e, due)
		}
		due = due.Add(e.length)
	}
}

// expected is how large it is, or may be.
func (s *segment) expected() unit.Bytes {
	if s.size != board.Unknown {
		return s.size
	}
	return max(s.reel.size, guess)
}

// rest forgets what was fetched of a track whose player is gone.
func (p *shelf) rest(r *reel) {
	r.asked = time.Time{}
	for _, s := range p.segments {
		if s.reel == r && s.readers == 0 {
			p.forget(s)
		}
	}
}

// forget takes a segment from the shelf. Who is served with it goes on.
func (p *shelf) forget(s *segment) {
	if p.segments[s.key] == s {
		delete(p.segments, s.key)
	}
	if s.readers > 0 {
		return
	}
	p.result.Unused += s.unused()
	p.drop(s)
}

// drop frees what there is of a segment.
func (p *shelf) drop(s *segment) {
	p.queue.remove(s)
	p.held -= s.mem
	s.mem = 0
}

// leave leaves a segment to the player itself.
func (p *shelf) leave(s *segment, why error) {
	if s.left || s.whole {
		return
	}
	p.log.Debug("a segment is left to the player", "url", s.url, "err", why)
	p.drop(s)
	s.left, s.split, s.buf, s.have, s.lead = true, false, nil, nil, nil
	s.signal()
}

// reserve counts memory for a segment; segments that nobody waits for yet make room for
// one that somebody does.
func (p *shelf) reserve(s *segment, n unit.Bytes) bool {
	for p.held+n > p.memory && s.readers > 0 {
		var last *segment
		for _, o := range p.segments {
			if o.readers == 0 && o.mem > 0 && (last == nil || o.object > last.object) {
				last = o
			}
		}
		if last == nil {
			break
		}
		p.forget(last)
	}
	if p.held+n > p.memory {
		return false
	}
	p.held += n
	s.mem += n
	return true
}
