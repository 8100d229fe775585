package playlist

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"mpbond/onload/board"
	"mpbond/onload/transfer"
)

// take has a library take in a playlist of HLS.
func take(t *testing.T, y *library, at, text string) *document {
	t.Helper()
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	d, l := parse(u, "hls", text, 0, now)
	if d == nil {
		t.Fatalf("%q is no playlist", text)
	}
	y.add(d, l, now)
	return d
}

// TestGroupsGo: what a playlist has named is forgotten with it.
func TestGroupsGo(t *testing.T) {
	y := newLibrary()
	for i := range 10 * mostDocuments {
		take(t, y, fmt.Sprintf("http://tv.test/%d.m3u8", i), fmt.Sprintf("#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\n%d-low.m3u8\n#EXT-X-STREAM-INF:BANDWIDTH=2\n%d-high.m3u8\n", i, i))
		y.bound()
	}
	if len(y.docs) != mostDocuments || len(y.groups) != 2*mostDocuments || y.groups[fmt.Sprintf("http://tv.test/%d-low.m3u8", 10*mostDocuments-1)] == "" {
		t.Errorf("%d documents, %d named", len(y.docs), len(y.groups))
	}
	at := "http://tv.test/" + strings.Repeat("a", 1900)
	for range 6 { // and by the bytes of their URLs
		at += "b"
		take(t, y, at, "#EXTM3U\n"+strings.Repeat("#EXTINF:1,\ns.ts\n", 4_500))
		y.bound()
	}
	sum := 0
	for _, d := range y.docs {
		sum += d.text
	}
	if sum > mostTexts {
		t.Errorf("%d bytes of URLs", sum)
	}
}

// TestLibrary: an entry is found by its URL in the playlist that was used last; a track goes
// on when its playlist is loaded anew, and goes with it when that is forgotten; a redirect
// keeps the group.
func TestLibrary(t *testing.T) {
	y := newLibrary()
	take(t, y, "http://tv.test/master.m3u8", "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\nlow.m3u8\n")
	from, _ := url.Parse("http://tv.test/low.m3u8")
	if y.redirect(from, "http://cdn.test/low.m3u8"); y.groups["http://cdn.test/low.m3u8"] == "" {
		t.Errorf("%v", y.groups)
	}
	const text = "#EXTM3U\n#EXTINF:4,\n/1.ts\n#EXTINF:4,\n/2.ts\n"
	a := take(t, y, "http://tv.test/low.m3u8", text)
	r := a.reels[0]
	if again := take(t, y, "http://tv.test/low.m3u8", text+"#EXTINF:4,\n/3.ts\n"); again.reels[0] != r || len(r.entries) != 3 || r.group == "" {
		t.Errorf("%+v", r)
	}
	b := take(t, y, "http://tv.test/high.m3u8", text)
	for _, d := range []*document{b, y.docs[1], b} {
		y.use(d, time.Now())
		if at, found := y.find("http://tv.test/2.ts", 0, board.Unknown); found != d || at.at != 1 {
			t.Errorf("%+v in %+v", at, found)
		}
	}
	if _, found := y.find("http://tv.test/4.ts", 0, board.Unknown); found != nil {
		t.Error("found what is not there")
	}
	y.docs = y.docs[2:] // all but that used last
	if gone := y.bound(); len(gone) != 1 || gone[0] != r || len(y.playing) != 1 {
		t.Errorf("%d tracks go, %d stay", len(gone), len(y.playing))
	}
}

// TestQueue: segments are on the board in the order of their times, under numbers of their
// own, until they are removed.
func TestQueue(t *testing.T) {
	p, err := New(Config{Devices: []transfer.Device{{Name: "own"}}})
	if err != nil {
		t.Fatal(err)
	}
	q := p.shelf.queue
	one, two, later := &segment{size: board.Unknown}, &segment{size: 100}, &segment{size: 100}
	q.add(one, q.begun.Add(time.Minute))
	q.add(two, q.begun.Add(time.Minute))
	q.add(later, q.begun.Add(time.Minute+time.Second))
	if !(one.object < two.object && two.object < later.object) || !q.has(two) || q.isUnderWay(two) {
		t.Errorf("%d, %d, %d", one.object, two.object, later.object)
	}
	old := *one
	for _, s := range []*segment{one, two, later} {
		q.remove(s)
		q.remove(&old) // another one of that number is not there
	}
	if len(q.segments) > 0 || !q.loop.Board.Done() {
		t.Errorf("%d are there still", len(q.segments))
	}
}
