// SPDX-License-Identifier: Apache-2.0

package playlist

import (
	"net/url"
	"strings"
	"time"

	"mpbond/base/unit"
	"mpbond/onload/board"
)

// Limits of playlists.
const (
	maxPlaylist  = 4 << 20 // bytes; larger playlists are not prefetched
	maxSegments  = 50_000  // per playlist
	maxURLBytes  = 8 << 20 // of all URLs of a playlist
	maxURLLength = 2 << 10 // of a URL or template
	maxTracks    = 256     // per playlist
	maxAhead     = 64      // segments prefetched per track
)

// segmentKey identifies what a player requests: a URL and a byte range. to is board.Unknown for the
// whole URL.
type segmentKey struct {
	url      string
	from, to unit.Bytes
}

// entry is a segment of a playlist.
type entry struct {
	segmentKey
	duration time.Duration
	number   int64 // identifies it in its track, also after a reload
	isInit   bool  // initialises a decoder, and has no duration
}

// track is a sequence of segments.
type track struct {
	id string // stable when the playlist is reloaded
	// group is shared by tracks of which a player plays one at a time; "" is none.
	group   string
	entries []entry
}

// listing is the content of a playlist.
type listing struct {
	tracks   []*track
	groups   map[string]string // other playlists: ID to group
	urlBytes int               // size of its URLs
}

// collector collects the segments of a playlist within the limits.
type collector struct {
	base      *url.URL
	remaining int // entries that may be added
	urlBytes  int // size of the URLs so far
}

// reserveURL counts a URL. It reports false at a limit.
func (a *collector) reserveURL(u string) bool {
	if a.remaining <= 0 || a.urlBytes+len(u) > maxURLBytes {
		a.remaining = 0
		return false
	}
	a.remaining--
	a.urlBytes += len(u)
	return true
}

// resolveHTTPURL resolves a reference of the playlist. It returns "" for URLs that are not
// prefetched.
func (a *collector) resolveReference(ref string) string { return resolveHTTPURL(a.base, ref) }

// resolveHTTPURL resolves a reference relative to base. It returns "" unless the result is a valid
// http URL.
func resolveHTTPURL(base *url.URL, ref string) string {
	if len(ref) > maxURLLength || len(base.Path) > maxURLLength {
		return ""
	}
	u, err := base.Parse(strings.TrimSpace(ref))
	if err != nil || u.Host == "" || u.Scheme != "http" {
		return "" // requests for https URLs are encrypted, and cannot be served
	}
	u.Fragment = ""
	return u.String()
}

// addTrackEntry adds a valid segment to a track. It returns false at a limit.
func (a *collector) addTrackEntry(t *track, e entry) bool {
	if !a.reserveURL(e.url) {
		return false
	}
	if e.url != "" && e.from >= 0 && (e.to == board.Unknown && e.from == 0 || e.from < e.to) {
		t.entries = append(t.entries, e)
	}
	return true
}

// secondsToDuration converts seconds of a playlist; implausible values become 0.
func secondsToDuration(s float64) time.Duration {
	if !(s > 0 && s < 1e6) {
		return 0
	}
	return time.Duration(s * float64(time.Second))
}

// entriesAfter returns the entries after the one of a number, as many as last for the window.
func (t *track) entriesAfter(number int64, window time.Duration) []entry {
	from := 0
	for i, e := range t.entries {
		if !e.isInit && e.number <= number {
			from = i + 1
		}
	}
	to, sum := from, time.Duration(0)
	for to < len(t.entries) && sum < window && to-from < maxAhead {
		sum += t.entries[to].duration
		to++
	}
	return t.entries[from:to]
}
