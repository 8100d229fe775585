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
	maxDocuments   = 16
	maxEntries     = 150_000  // of all
	maxAllURLBytes = 32 << 20 // bytes of their URLs
	relistInterval = 500 * time.Millisecond
)

// document is a playlist that a player has loaded.
type document struct {
	id        string
	mpd       *mpd // of one from which more segments follow with time
	listedAt  time.Time
	usedAt    time.Time
	playbacks []*playback
	index     map[segmentKey]location
	urlBytes  int // bytes of its URLs
}

// location is where a segment is.
type location struct {
	playback *playback
	index    int
}

// playback is a track, and how far its player is.
type playback struct {
	*track
	lastRequest   time.Time // when it was used last; zero: it is not
	lastNumber    int64     // that was asked for last
	requestHeader http.Header
	requestHost   string     // that request is for
	lastSize      unit.Bytes // of its last segment
	mismatches    int
	isRedirected  bool   // its segments were redirected lately
	rangeFile     string // that its segments are ranges of, and of which version of it
	fileVersion   *response
	lookUps       int // of how many it is asked where they are
}

// library has the playlists that players have loaded, and where the players are. It is not
// safe for concurrent use.
type library struct {
	documents []*document          // the last used one last
	playbacks map[string]*playback // tracks, by id
	groups    map[string]string    // of playlists that a master playlist has named
}

func newLibrary() *library {
	return &library{playbacks: map[string]*playback{}, groups: map[string]string{}}
}

// parsePlaylist reads a playlist; nil is that it is none.
func parsePlaylist(at *url.URL, kind, text string, off time.Duration, now time.Time) (*document, listing) {
	d := &document{id: playlistID(at), usedAt: now}
	if kind != "dash" {
		l, ok := parseHLS(at, text)
		if !ok {
			return nil, l
		}
		return d, l
	}
	m := parseMPD(at, text, off)
	if m == nil {
		return nil, listing{}
	}
	if m.isDynamic() {
		d.mpd = m
	}
	return d, m.listSegments(now)
}

// addDocument takes in a playlist, in the place of an older one of its URL.
func (y *library) addDocument(d *document, l listing, now time.Time) {
	maps.Copy(y.groups, l.groups)
	y.documents = slices.DeleteFunc(y.documents, func(old *document) bool { return old.id == d.id })
	y.documents = append(y.documents, d)
	y.updateDocument(d, l, now)
}

// updateDocument takes in what a playlist says now.
func (y *library) updateDocument(d *document, l listing, now time.Time) {
	d.playbacks, d.index, d.urlBytes, d.listedAt = nil, map[segmentKey]location{}, l.urlBytes, now
	for _, t := range l.tracks {
		r := y.playbacks[t.id]
		if r == nil {
			r = &playback{}
			y.playbacks[t.id] = r
		}
		if r.track = t; t.group == "" {
			t.group = y.groups[t.id]
		}
		d.playbacks = append(d.playbacks, r)
		for i, e := range t.entries {
			d.index[e.segmentKey] = location{r, i}
		}
	}
}

// markUsed notes that a player uses a playlist now.
func (y *library) markUsed(d *document, now time.Time) {
	d.usedAt = now
	y.documents = append(slices.DeleteFunc(y.documents, func(o *document) bool { return o == d }), d)
}

// evictOld forgets playlists that were not used for longest, and returns the tracks that go
// with them.
func (y *library) evictOld() (gone []*playback) {
	sum, text, last := 0, 0, make(map[*playback]bool)
	for i := len(y.documents) - 1; i >= 0; i-- {
		d := y.documents[i]
		sum, text = sum+len(d.index), text+d.urlBytes
		if i == len(y.documents)-1 || len(y.documents)-i <= maxDocuments && sum <= maxEntries && text <= maxAllURLBytes {
			for _, r := range d.playbacks {
				last[r] = true
			}
			continue
		}
		y.documents = y.documents[i+1:]
		break
	}
	maps.DeleteFunc(y.groups, func(_, group string) bool { // they begin with the playlist that names them
		by, _, _ := strings.Cut(group, " ")
		return !slices.ContainsFunc(y.documents, func(d *document) bool { return d.id == by })
	})
	for id, r := range y.playbacks {
		if !last[r] {
			gone = append(gone, r)
			delete(y.playbacks, id)
		}
	}
	return gone
}

// findEntry finds an entry: just those bytes, or the whole that they are of.
func (y *library) findEntry(name string, from, to unit.Bytes) (location, *document) {
	for i := len(y.documents) - 1; i >= 0; i-- {
		for _, k := range []segmentKey{{name, from, to}, {name, 0, board.Unknown}} {
			if at, ok := y.documents[i].index[k]; ok {
				return at, y.documents[i]
			}
		}
	}
	return location{}, nil
}

// noteRedirect has a playlist that is redirected be of the group of the one that was named.
func (y *library) noteRedirect(from *url.URL, to string) {
	u, err := url.Parse(to)
	if group := y.groups[playlistID(from)]; err == nil && group != "" && len(y.groups) < maxSegments {
		y.groups[playlistID(u)] = group
	}
}
