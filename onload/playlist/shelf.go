package playlist

import (
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"mpbond/base/span"
	"mpbond/base/unit"
	"mpbond/onload/board"
	"mpbond/onload/transfer"
)

// Bounds of what is kept of playlists.
const (
	mostDocuments = 16
	mostEntries   = 150_000  // of all
	mostTexts     = 32 << 20 // bytes of their URLs
	guess         = 512 * unit.KB
	freshList     = 500 * time.Millisecond
)

// shelf has what is fetched ahead of what players ask for. It is the task of a loop, whose
// lock guards it.
type shelf struct {
	loop    *transfer.Loop
	log     *slog.Logger
	begun   time.Time
	running sync.WaitGroup // players that are given something

	docs     []*document       // the last used one last
	playing  map[string]*reel  // tracks, by id
	groups   map[string]string // of playlists that a master playlist has named
	segments map[key]*segment
	byObject map[int]*segment // on the board
	memory   unit.Bytes       // that may be held
	held     unit.Bytes
	result   Result
}

// document is a playlist that a player has loaded.
type document struct {
	id    string
	mpd   *mpd // of one from which more segments follow with time
	at    time.Time
	used  time.Time
	reels []*reel
	index map[key]place
	text  int // bytes of its URLs
}

// place is where a segment is.
type place struct {
	reel *reel
	at   int
}

// reel is a track, and how far its player is.
type reel struct {
	*track
	asked   time.Time // when it was used last; zero: it is not
	number  int64     // that was asked for last
	request http.Header
	host    string     // that request is for
	size    unit.Bytes // of its last segment
	misfits int
	moves   bool   // its segments were redirected lately
	file    string // that its segments are ranges of, and of which version of it
	version *answer
	looking int // of how many it is asked where they are
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
	d := &document{id: identity(at), used: now, at: now}
	var l list
	if kind == "dash" {
		m := parseMPD(at, text, off)
		if m == nil {
			return
		}
		if l = m.list(now); m.dynamic() {
			d.mpd = m
		}
	} else {
		var ok bool
		if l, ok = readHLS(at, text); !ok {
			return
		}
	}
	p.loop.Lock()
	defer p.loop.Settle()
	maps.Copy(p.groups, l.groups)
	p.docs = slices.DeleteFunc(p.docs, func(old *document) bool { return old.id == d.id })
	p.docs = append(p.docs, d)
	p.relist(d, l, now)
	p.bound()
}

// follow has a playlist that is redirected be of the group of the one that was named.
func (p *shelf) follow(from *url.URL, to string) {
	u, err := url.Parse(to)
	p.loop.Lock()
	defer p.loop.Unlock()
	if group := p.groups[identity(from)]; err == nil && group != "" && len(p.groups) < mostSegments {
		p.groups[identity(u)] = group
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

// relist takes in what a playlist says now, and goes on where its player is.
func (p *shelf) relist(d *document, l list, now time.Time) {
	d.reels, d.index, d.text, d.at = nil, map[key]place{}, l.text, now
	for _, t := range l.tracks {
		r := p.playing[t.id]
		if r == nil {
			r = &reel{}
			p.playing[t.id] = r
		}
		if r.track = t; t.group == "" {
			t.group = p.groups[t.id]
		}
		d.reels = append(d.reels, r)
		for i, e := range t.entries {
			d.index[e.key] = place{r, i}
			if s := p.segments[e.key]; s != nil && s.reel == r && s.number != e.number && !e.init {
				p.forget(s) // the name stands for another segment now
			}
		}
		p.plan(r, now)
	}
}

// bound forgets playlists that were not used for longest.
func (p *shelf) bound() {
	sum, text, last := 0, 0, make(map[*reel]bool)
	for i := len(p.docs) - 1; i >= 0; i-- {
		d := p.docs[i]
		sum, text = sum+len(d.index), text+d.text
		if i == len(p.docs)-1 || len(p.docs)-i <= mostDocuments && sum <= mostEntries && text <= mostTexts {
			for _, r := range d.reels {
				last[r] = true
			}
			continue
		}
		p.docs = p.docs[i+1:]
		break
	}
	maps.DeleteFunc(p.groups, func(_, group string) bool { // they begin with the playlist that names them
		by, _, _ := strings.Cut(group, " ")
		return !slices.ContainsFunc(p.docs, func(d *document) bool { return d.id == by })
	})
	for id, r := range p.playing {
		if !last[r] {
			p.rest(r)
			delete(p.playing, id)
		}
	}
}

// want finds the segment that a player asks for, and has it fetched; nil if it is none.
func (p *shelf) want(q *http.Request, from, to unit.Bytes) *segment {
	now := time.Now()
	p.loop.Lock()
	defer p.loop.Settle()
	for _, d := range p.docs {
		if d.mpd != nil && now.Sub(d.at) > freshList {
			p.relist(d, d.mpd.list(now), now)
		}
	}
	at, d := p.where(q.URL.String(), from, to)
	if s := p.ledTo(key{q.URL.String(), from, to}); d == nil && s != nil && !p.loop.Closing() {
		s.reel.asked = now
		return p.handOut(s, now)
	}
	if d == nil || p.loop.Closing() || at.reel.misfits >= misfits {
		return nil
	}
	d.used = now
	p.docs = append(slices.DeleteFunc(p.docs, func(o *document) bool { return o == d }), d)
	r, e := at.reel, at.reel.entries[at.at]
	if r.group != "" { // the player has switched to this one
		for _, other := range p.playing {
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
	if len(s.have) == 0 && s.answer == nil && !s.looking && !p.isUnderWay(s) { // before all that can wait
		p.withdraw(s)
		p.queue(s, now)
	}
	s.readers++
	p.running.Add(1)
	s.wanted = true
	p.noteReaders(s)
	p.judge(s)
	p.plan(s.reel, now)
	return s
}

// noteReaders tells the board whether a player waits for a segment.
func (p *shelf) noteReaders(s *segment) {
	if p.byObject[s.object] == s {
		p.loop.Board.SetWanted(s.object, s.readers > 0)
	}
}

// misfit tells that what was fetched is no answer to what the player has asked.
func (p *shelf) misfit(s *segment) {
	p.loop.Lock()
	defer p.loop.Settle()
	s.reel.misfits++
	p.forget(s)
}

// where finds an entry: just those bytes, or the whole that they are of.
func (p *shelf) where(name string, from, to unit.Bytes) (place, *document) {
	for i := len(p.docs) - 1; i >= 0; i-- {
		for _, k := range []key{{name, from, to}, {name, 0, board.Unknown}} {
			if at, ok := p.docs[i].index[k]; ok {
				return at, p.docs[i]
			}
		}
	}
	return place{}, nil
}

// isUnderWay reports whether a device brings something of a segment now.
func (p *shelf) isUnderWay(s *segment) bool {
	return p.byObject[s.object] == s && p.loop.IsUnderWay(s.object)
}

// release tells that a player has a segment, or has gone away.
func (p *shelf) release(s *segment, served bool) {
	p.loop.Lock()
	defer p.running.Done()
	defer p.loop.Settle()
	s.readers--
	p.noteReaders(s)
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
		p.queue(s, due)
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

// queue gives a segment to the board. Objects are wanted in the order of their numbers,
// so these are times.
func (p *shelf) queue(s *segment, due time.Time) {
	s.object = int(due.Sub(p.begun)/(time.Second/4)) * 64
	for p.byObject[s.object] != nil {
		s.object++
	}
	p.byObject[s.object] = s
	p.noteReaders(s)
	p.loop.Board.Add(board.Item{Object: s.object, To: s.size})
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
	p.countUnused(s)
	p.drop(s)
}

// withdraw has nobody bring any more of a segment.
func (p *shelf) withdraw(s *segment) {
	if p.byObject[s.object] == s {
		p.loop.Withdraw(s.object)
		delete(p.byObject, s.object)
	}
}

// drop frees what there is of a segment.
func (p *shelf) drop(s *segment) {
	p.withdraw(s)
	p.held -= s.mem
	s.mem = 0
}

// total returns what came of it all.
func (p *shelf) total() Result {
	p.loop.Lock()
	defer p.loop.Unlock()
	for _, s := range p.segments {
		p.countUnused(s)
	}
	p.result.Devices = p.loop.Shares(time.Now())
	return p.result
}

func (p *shelf) countUnused(s *segment) {
	if !s.wanted {
		p.result.Unused += s.mem
	}
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
