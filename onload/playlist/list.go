package playlist

import (
	"net/url"
	"strings"
	"time"

	"mpbond/base/unit"
	"mpbond/onload/board"
)

// Bounds of what a playlist may have us keep.
const (
	maxPlaylist  = 4 << 20 // bytes; of larger ones nothing is fetched ahead
	maxSegments  = 50_000  // of a playlist
	maxURLBytes  = 8 << 20 // bytes of their URLs
	maxURLLength = 2 << 10 // of one, and of what stands for many
	maxTracks    = 256     // of a playlist
	maxAhead     = 64      // segments of a track, however short they are
)

// segmentKey is what a player asks for: a URL, and which bytes of it; To is board.Unknown for
// all that there is.
type segmentKey struct {
	url      string
	from, to unit.Bytes
}

// entry is a segment as a playlist has it.
type entry struct {
	segmentKey
	duration time.Duration
	number   int64 // names it among those of its track, also when the playlist was loaded anew
	isInit   bool  // it initialises a decoder, and has no place in time
}

// track is one sequence of segments.
type track struct {
	id string // of a track that is loaded again the same
	// group is shared by those of which a player plays one at a time; "" is none.
	group   string
	entries []entry
}

// listing is what a playlist says.
type listing struct {
	tracks   []*track
	groups   map[string]string // of other playlists: URL to group
	urlBytes int               // bytes of URLs in it
}

// collector collects the segments of a playlist.
type collector struct {
	base      *url.URL
	remaining int // how many more there may be
	urlBytes  int // bytes of URLs so far
}

// reserveURL takes room for a URL, if there is some.
func (a *collector) reserveURL(u string) bool {
	if a.remaining <= 0 || a.urlBytes+len(u) > maxURLBytes {
		a.remaining = 0
		return false
	}
	a.remaining--
	a.urlBytes += len(u)
	return true
}

// resolveURL makes a whole URL of what a playlist has; "" if it is none that is fetched ahead.
func (a *collector) resolveURL(ref string) string { return resolveURL(a.base, ref) }

func resolveURL(base *url.URL, ref string) string {
	if len(ref) > maxURLLength || len(base.Path) > maxURLLength {
		return ""
	}
	u, err := base.Parse(strings.TrimSpace(ref))
	if err != nil || u.Host == "" || u.Scheme != "http" {
		return "" // by https the player asks where nobody looks in
	}
	u.Fragment = ""
	return u.String()
}

// addEntry adds a segment to a track, if it is one.
func (a *collector) addEntry(t *track, e entry) bool {
	if !a.reserveURL(e.url) {
		return false
	}
	if e.url != "" && e.from >= 0 && (e.to == board.Unknown && e.from == 0 || e.from < e.to) {
		t.entries = append(t.entries, e)
	}
	return true
}

// secondsToDuration is a length that a playlist tells; nonsense is none.
func secondsToDuration(s float64) time.Duration {
	if !(s > 0 && s < 1e6) {
		return 0
	}
	return time.Duration(s * float64(time.Second))
}

// entriesAfter lists which entries are to be fetched after that of a number: as many as last
// for so long.
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
