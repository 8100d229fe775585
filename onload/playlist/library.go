package playlist

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"mpbond/base/unit"
	"mpbond/onload/board"
)

// Bounds of what is kept of playlists.
const (
	mostDocuments = 16
	mostEntries   = 150_000  // of all
	mostTexts     = 32 << 20 // bytes of their URLs
	freshList     = 500 * time.Millisecond
)

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

// library has the playlists that players have loaded, and where the players are. It is not
// safe for concurrent use.
type library struct {
	docs    []*document       // the last used one last
	playing map[string]*reel  // tracks, by id
	groups  map[string]string // of playlists that a master playlist has named
}

func newLibrary() *library { return &library{playing: map[string]*reel{}, groups: map[string]string{}} }

// parse reads a playlist; nil is that it is none.
func parse(at *url.URL, kind, text string, off time.Duration, now time.Time) (*document, list) {
	d := &document{id: identity(at), used: now}
	if kind != "dash" {
		l, ok := readHLS(at, text)
		if !ok {
			return nil, l
		}
		return d, l
	}
	m := parseMPD(at, text, off)
	if m == nil {
		return nil, list{}
	}
	if m.dynamic() {
		d.mpd = m
	}
	return d, m.list(now)
}

// add takes in a playlist, in the place of an older one of its URL.
func (y *library) add(d *document, l list, now time.Time) {
	maps.Copy(y.groups, l.groups)
	y.docs = slices.DeleteFunc(y.docs, func(old *document) bool { return old.id == d.id })
	y.docs = append(y.docs, d)
	y.relist(d, l, now)
}

// relist takes in what a playlist says now.
func (y *library) relist(d *document, l list, now time.Time) {
	d.reels, d.index, d.text, d.at = nil, map[key]place{}, l.text, now
	for _, t := range l.tracks {
		r := y.playing[t.id]
		if r == nil {
			r = &reel{}
			y.playing[t.id] = r
		}
		if r.track = t; t.group == "" {
			t.group = y.groups[t.id]
		}
		d.reels = append(d.reels, r)
		for i, e := range t.entries {
			d.index[e.key] = place{r, i}
		}
	}
}

// use notes that a player uses a playlist now.
func (y *library) use(d *document, now time.Time) {
	d.used = now
	y.docs = append(slices.DeleteFunc(y.docs, func(o *document) bool { return o == d }), d)
}

// bound forgets playlists that were not used for longest, and returns the tracks that go
// with them.
func (y *library) bound() (gone []*reel) {
	sum, text, last := 0, 0, make(map[*reel]bool)
	for i := len(y.docs) - 1; i >= 0; i-- {
		d := y.docs[i]
		sum, text = sum+len(d.index), text+d.text
		if i == len(y.docs)-1 || len(y.docs)-i <= mostDocuments && sum <= mostEntries && text <= mostTexts {
			for _, r := range d.reels {
				last[r] = true
			}
			continue
		}
		y.docs = y.docs[i+1:]
		break
	}
	maps.DeleteFunc(y.groups, func(_, group string) bool { // they begin with the playlist that names them
		by, _, _ := strings.Cut(group, " ")
		return !slices.ContainsFunc(y.docs, func(d *document) bool { return d.id == by })
	})
	for id, r := range y.playing {
		if !last[r] {
			gone = append(gone, r)
			delete(y.playing, id)
		}
	}
	return gone
}

// find finds an entry: just those bytes, or the whole that they are of.
func (y *library) find(name string, from, to unit.Bytes) (place, *document) {
	for i := len(y.docs) - 1; i >= 0; i-- {
		for _, k := range []key{{name, from, to}, {name, 0, board.Unknown}} {
			if at, ok := y.docs[i].index[k]; ok {
				return at, y.docs[i]
			}
		}
	}
	return place{}, nil
}

// redirect has a playlist that is redirected be of the group of the one that was named.
func (y *library) redirect(from *url.URL, to string) {
	u, err := url.Parse(to)
	if group := y.groups[identity(from)]; err == nil && group != "" && len(y.groups) < mostSegments {
		y.groups[identity(u)] = group
	}
}
