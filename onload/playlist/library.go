// SPDX-License-Identifier: Apache-2.0

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

// Limits of stored playlists.
const (
	maxDocuments   = 16
	maxEntries     = 150_000                // segments of all playlists
	maxAllURLBytes = 32 << 20               // bytes of their URLs
	relistInterval = 500 * time.Millisecond // age after which a dynamic MPD is evaluated again
)

// document is a playlist that a player has loaded.
type document struct {
	id        string
	mpd       *mpd // of a dynamic MPD
	listedAt  time.Time
	usedAt    time.Time
	playbacks []*playback
	index     map[segmentKey]location
	urlBytes  int // size of its URLs
}

// location identifies an entry of a playback.
type location struct {
	playback *playback
	index    int
}

// playback is a track with the position of its player.
type playback struct {
	*track
	lastRequest   time.Time   // zero: not playing
	lastNumber    int64       // number of the last requested entry
	requestHeader http.Header // of the last request
	requestHost   string      // host of that request
	lastSize      unit.Bytes  // size of the last segment
	mismatches    int
	isRedirected  bool   // segments were redirected recently
	rangeFile     string // file and version of which the segments are ranges
	fileVersion   *response
	lookUps       int // running look-ups of redirects
}

// library holds the playlists that players have loaded, and the positions of the players. It is not
// safe for concurrent use.
type library struct {
	documents []*document          // most recently used last
	playbacks map[string]*playback // by track ID
	groups    map[string]string    // of playlists, from multivariant playlists
}

// newLibrary returns an empty library.
func newLibrary() *library {
	return &library{playbacks: map[string]*playback{}, groups: map[string]string{}}
}

// parsePlaylist parses a playlist of a kind, "hls" or "dash". It returns nil if it is invalid.
func parsePlaylist(at *url.URL, kind, text string, off time.Duration, now time.Time) (*document, listing) {
	d := &document{id: playlistID(at), usedAt: now}
	if kind != "dash" {
		l, ok := parseHLSPlaylist(at, text)
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

// addDocument adds a playlist, or replaces the one of the same URL.
func (y *library) addDocument(d *document, l listing, now time.Time) {
	maps.Copy(y.groups, l.groups)
	y.documents = slices.DeleteFunc(y.documents, func(old *document) bool { return old.id == d.id })
	y.documents = append(y.documents, d)
	y.updateDocument(d, l, now)
}

// updateDocument replaces the content of a playlist.
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

// markPlaylistUsed records that a player uses a playlist now.
func (y *library) markPlaylistUsed(d *document, now time.Time) {
	d.usedAt = now
	y.documents = append(slices.DeleteFunc(y.documents, func(o *document) bool { return o == d }), d)
}

// evictOldPlaylists removes the least recently used playlists beyond the limits and returns the
// playbacks that end with them.
func (y *library) evictOldPlaylists() (gone []*playback) {
	sum, text, last := 0, 0, make(map[*playback]bool)
	for i := len(y.documents) - 1; i >= 0; i-- {
		d := y.documents[i]
		sum, text = sum+len(d.index), text+d.urlBytes
		if i == len(y.documents)-1 || len(y.documents)-i <= maxDocuments &&
			sum <= maxEntries && text <= maxAllURLBytes {
			for _, r := range d.playbacks {
				last[r] = true
			}
			continue
		}
		y.documents = y.documents[i+1:]
		break
	}
	maps.DeleteFunc(y.groups, func(_, group string) bool { // groups begin with the ID of their playlist
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

// findSegmentEntry returns the entry for a byte range of a URL, or else for the whole URL.
func (y *library) findSegmentEntry(name string, from, to unit.Bytes) (location, *document) {
	for i := len(y.documents) - 1; i >= 0; i-- {
		for _, k := range []segmentKey{{name, from, to}, {name, 0, board.Unknown}} {
			if at, ok := y.documents[i].index[k]; ok {
				return at, y.documents[i]
			}
		}
	}
	return location{}, nil
}

// copyRedirectGroup gives the target of a redirected playlist the group of its original URL.
func (y *library) copyRedirectGroup(from *url.URL, to string) {
	u, err := url.Parse(to)
	if group := y.groups[playlistID(from)]; err == nil && group != "" && len(y.groups) < maxSegments {
		y.groups[playlistID(u)] = group
	}
}
