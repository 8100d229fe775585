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
	mostSegments = 50_000  // of a playlist
	mostText     = 8 << 20 // bytes of their URLs
	mostURL      = 2 << 10 // of one, and of what stands for many
	mostTracks   = 256     // of a playlist
	mostAhead    = 64      // segments of a track, however short they are
)

// key is what a player asks for: a URL, and which bytes of it; To is board.Unknown for
// all that there is.
type key struct {
	url      string
	from, to unit.Bytes
}

// entry is a segment as a playlist has it.
type entry struct {
	key
	length time.Duration
	number int64 // names it among those of its track, also when the playlist was loaded anew
	init   bool  // it initialises a decoder, and has no place in time
}

// track is one sequence of segments.
type track struct {
	id string // of a track that is loaded again the same
	// group is shared by those of which a player plays one at a time; "" is none.
	group   string
	entries []entry
}

// list is what a playlist says.
type list struct {
	tracks []*track
	groups map[string]string // of other playlists: URL to group
	text   int               // bytes of URLs in it
}

// adder collects the segments of a playlist.
type adder struct {
	base *url.URL
	left int // how many more there may be
	text int // bytes of URLs so far
}

// room takes room for a URL, if there is some.
func (a *adder) room(u string) bool {
	if a.left <= 0 || a.text+len(u) > mostText {
		a.left = 0
		return false
	}
	a.left--
	a.text += len(u)
	return true
}

// resolve makes a whole URL of what a playlist has; "" if it is none that is fetched ahead.
func (a *adder) resolve(ref string) string { return resolve(a.base, ref) }

func resolve(base *url.URL, ref string) string {
	if len(ref) > mostURL || len(base.Path) > mostURL {
		return ""
	}
	u, err := base.Parse(strings.TrimSpace(ref))
	if err != nil || u.Host == "" || u.Scheme != "http" {
		return "" // by https the player asks where nobody looks in
	}
	u.Fragment = ""
	return u.String()
}

// add adds a segment to a track, if it is one.
func (a *adder) add(t *track, e entry) bool {
	if !a.room(e.url) {
		return false
	}
	if e.url != "" && e.from >= 0 && (e.to == board.Unknown && e.from == 0 || e.from < e.to) {
		t.entries = append(t.entries, e)
	}
	return true
}

// seconds is a length that a playlist tells; nonsense is none.
func seconds(s float64) time.Duration {
	if !(s > 0 && s < 1e6) {
		return 0
	}
	return time.Duration(s * float64(time.Second))
}

// after lists which entries are to be fetched after that of a number: as many as last
// for so long.
func (t *track) after(number int64, window time.Duration) []entry {
	from := 0
	for i, e := range t.entries {
		if !e.init && e.number <= number {
			from = i + 1
		}
	}
	to, sum := from, time.Duration(0)
	for to < len(t.entries) && sum < window && to-from < mostAhead {
		sum += t.entries[to].length
		to++
	}
	return t.entries[from:to]
}
