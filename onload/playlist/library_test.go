// SPDX-License-Identifier: Apache-2.0

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

// addTestDocument adds an HLS playlist to a library.
func addTestDocument(t *testing.T, y *library, at, text string) *document {
	t.Helper()
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	d, l := parsePlaylist(u, "hls", text, 0, now)
	if d == nil {
		t.Fatalf("%q is no playlist", text)
	}
	y.addDocument(d, l, now)
	return d
}

// TestGroupsGo checks that the groups of a playlist are removed with it.
func TestGroupsGo(t *testing.T) {
	y := newLibrary()
	for i := range 10 * maxDocuments {
		addTestDocument(t, y, fmt.Sprintf("http://tv.test/%d.m3u8", i),
			fmt.Sprintf("#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\n%d-low.m3u8\n#EXT-X-STREAM-INF:BANDWIDTH=2\n%d-high.m3u8\n", i,
				i))
		y.evictOldPlaylists()
	}
	if len(y.documents) != maxDocuments || len(y.groups) != 2*maxDocuments ||
		y.groups[fmt.Sprintf("http://tv.test/%d-low.m3u8", 10*maxDocuments-1)] == "" {
		t.Errorf("%d documents, %d named", len(y.documents), len(y.groups))
	}
	at := "http://tv.test/" + strings.Repeat("a", 1900)
	for range 6 { // also limited by the bytes of their URLs
		at += "b"
		addTestDocument(t, y, at, "#EXTM3U\n"+strings.Repeat("#EXTINF:1,\ns.ts\n", 4_500))
		y.evictOldPlaylists()
	}
	sum := 0
	for _, d := range y.documents {
		sum += d.urlBytes
	}
	if sum > maxAllURLBytes {
		t.Errorf("%d bytes of URLs", sum)
	}
}

// TestLibrary checks that an entry is found in the most recently used playlist, that a track
// continues when its playlist is reloaded and ends with it, and that a redirect keeps the group.
func TestLibrary(t *testing.T) {
	y := newLibrary()
	addTestDocument(t, y, "http://tv.test/master.m3u8", "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\nlow.m3u8\n")
	from, _ := url.Parse("http://tv.test/low.m3u8")
	if y.copyRedirectGroup(from, "http://cdn.test/low.m3u8"); y.groups["http://cdn.test/low.m3u8"] == "" {
		t.Errorf("%v", y.groups)
	}
	const text = "#EXTM3U\n#EXTINF:4,\n/1.ts\n#EXTINF:4,\n/2.ts\n"
	a := addTestDocument(t, y, "http://tv.test/low.m3u8", text)
	r := a.playbacks[0]
	if again := addTestDocument(t, y, "http://tv.test/low.m3u8", text+"#EXTINF:4,\n/3.ts\n"); again.playbacks[0] != r ||
		len(r.entries) != 3 || r.group == "" {
		t.Errorf("%+v", r)
	}
	b := addTestDocument(t, y, "http://tv.test/high.m3u8", text)
	for _, d := range []*document{b, y.documents[1], b} {
		y.markPlaylistUsed(d, time.Now())
		if at, found := y.findSegmentEntry("http://tv.test/2.ts", 0, board.Unknown); found != d || at.index != 1 {
			t.Errorf("%+v in %+v", at, found)
		}
	}
	if _, found := y.findSegmentEntry("http://tv.test/4.ts", 0, board.Unknown); found != nil {
		t.Error("found a missing entry")
	}
	y.documents = y.documents[2:] // all but the most recently used
	if gone := y.evictOldPlaylists(); len(gone) != 1 || gone[0] != r || len(y.playbacks) != 1 {
		t.Errorf("%d tracks go, %d stay", len(gone), len(y.playbacks))
	}
}

// TestQueue checks that segments are on the board in the order of their due times, under unique
// numbers, until they are removed.
func TestQueue(t *testing.T) {
	p, err := New(Config{Devices: []transfer.Device{{Name: "own"}}})
	if err != nil {
		t.Fatal(err)
	}
	q := p.prefetcher.queue
	one, two, later := &segment{size: board.Unknown}, &segment{size: 100}, &segment{size: 100}
	q.enqueueSegment(one, q.startTime.Add(time.Minute))
	q.enqueueSegment(two, q.startTime.Add(time.Minute))
	q.enqueueSegment(later, q.startTime.Add(time.Minute+time.Second))
	if !(one.object < two.object && two.object < later.object) || !q.hasSegment(two) || q.isUnderWay(two) {
		t.Errorf("%d, %d, %d", one.object, two.object, later.object)
	}
	old := *one
	for _, s := range []*segment{one, two, later} {
		q.dequeueSegment(s)
		q.dequeueSegment(&old) // another segment with that number is not on the board
	}
	if len(q.segments) > 0 || !q.loop.Board.IsDone() {
		t.Errorf("%d documents remain", len(q.segments))
	}
}
