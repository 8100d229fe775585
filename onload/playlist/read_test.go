// SPDX-License-Identifier: Apache-2.0

package playlist

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/onload/fetch"
)

func mustParse(t testing.TB, s string) *url.URL {
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// formatEntries formats a track as "number:url from-to duration", with i for initialisation
// segments.
func formatEntries(l listing) (all []string) {
	for _, t := range l.tracks {
		for _, e := range t.entries {
			s := fmt.Sprintf("%d:%s", e.number, strings.TrimPrefix(e.url, "http://tv.test/"))
			if e.to >= 0 {
				s += fmt.Sprintf(" %d-%d", int64(e.from), int64(e.to))
			}
			if e.isInit {
				s = "i" + s
			}
			all = append(all, fmt.Sprintf("%s %v", s, e.duration))
		}
	}
	return all
}

func TestReadHLS(t *testing.T) {
	at := mustParse(t, "http://tv.test/a/list.m3u8?t=1&_HLS_msn=4&_HLS_part=1")
	for _, c := range []struct{ text, want string }{
		{"#EXTM3U\r\n#EXT-X-MEDIA-SEQUENCE:7\r\n#EXTINF:4.5,title, with\r\nx.ts?k=a/b\r\n#EXTINF:4,\r\n/y.ts\r\n",
			"7:a/x.ts?k=a/b 4.5s|8:y.ts 4s"},
		{"#EXTM3U\n#EXT-X-MAP:URI=\"i.mp4\",BYTERANGE=\"10@0\"\n#EXTINF:1,\n#EXT-X-BYTERANGE:90@10\nv.mp4\n#EXTINF:1,\n" +
			"#EXT-X-BYTERANGE:50\nv.mp4\n#EXT-X-MAP:URI=\"i.mp4\",BYTERANGE=\"10@0\"\n#EXTINF:1,\n#EXT-X-BYTERANGE:5\nw.mp4\n",
			"i0:a/i.mp4 0-10 0s|0:a/v.mp4 10-100 1s|1:a/v.mp4 100-150 1s|2:a/w.mp4 0-5 1s"},
		{"#EXTM3U\n#EXT-X-MAP:URI=\"i.mp4\",BYTERANGE=\"10\"\n#EXTINF:x,\nv.mp4", "i0:a/i.mp4 0-10 0s|0:a/v.mp4 0s"},
		{"\ufeff#EXTM3U\n#EXTINF:1,\nhttps://tv.test/s.ts\n#EXTINF:1,\n#EXT-X-BYTERANGE:x@1\nbad.ts\n" +
			"#EXT-X-PART:URI=\"p\"\n#EXTINF:1,\nhttp://o.test/z.ts#f\n", "1:a/bad.ts 1s|2:http://o.test/z.ts 1s"},
		{"#EXTM3U\n", ""},
	} {
		l, ok := parseHLSPlaylist(at, c.text)
		if got := strings.Join(formatEntries(l), "|"); !ok || got != c.want {
			t.Errorf("%q:\n got %s\nwant %s", c.text, got, c.want)
		}
		if len(l.tracks) > 0 && l.tracks[0].id != "http://tv.test/a/list.m3u8?t=1" {
			t.Error(l.tracks[0].id)
		}
	}
	if _, ok := parseHLSPlaylist(at, "<html>"); ok {
		t.Error("an HTML page was parsed as a playlist")
	}
	l, _ := parseHLSPlaylist(at,
		"#EXTM3U\n#EXT-X-MEDIA:TYPE=AUDIO,NAME=\"a,URI=x\",URI=\"b.m3u8\"\n#EXT-X-STREAM-INF:BANDWIDTH=1\nc.m3u8?_HLS_x=1\n")
	if len(l.tracks) != 0 || l.groups["http://tv.test/a/b.m3u8"] == "" ||
		l.groups["http://tv.test/a/c.m3u8"] == "" || len(l.groups) != 2 {
		t.Errorf("%+v", l)
	}
}

func TestReadDASH(t *testing.T) {
	at := mustParse(t, "http://tv.test/a/x.mpd")
	now := time.Date(2030, 1, 1, 0, 1, 0, 0, time.UTC)
	period := func(s string) string {
		return `<MPD xmlns="urn:mpeg:dash:schema:mpd:2011" mediaPresentationDuration="PT10S"><BaseURL>b/</BaseURL><Period>` +
			`<AdaptationSet>` + s + `</AdaptationSet></Period></MPD>`
	}
	for _, c := range []struct{ text, want string }{
		{period(`<SegmentTemplate timescale="10" duration="40" startNumber="0"/><Representation id="r" bandwidth="9">` +
			`<SegmentTemplate media="$RepresentationID$-$Number%02d$-$Bandwidth$$$.m4s"/></Representation>`),
			"0:a/b/r-00-9$.m4s 4s|1:a/b/r-01-9$.m4s 4s|2:a/b/r-02-9$.m4s 4s"},
		{period(`<Representation id="r"><BaseURL>c/</BaseURL>` +
			`<SegmentTemplate timescale="2" presentationTimeOffset="100" initialization="i" media="$Time$"><SegmentTimeline>` +
			`<S t="100" d="4" r="1"/><S d="6" r="-1"/></SegmentTimeline></SegmentTemplate></Representation>`),
			"i0:a/b/c/i 0s|100:a/b/c/100 2s|104:a/b/c/104 2s|108:a/b/c/108 3s|114:a/b/c/114 3s"},
		{period(`<SegmentList duration="5"><Initialization sourceURL="v" range="0-9"/>` +
			`<SegmentURL media="v" mediaRange="10-19"/><SegmentURL media="w"/></SegmentList><Representation id="r"/>`),
			"i0:a/b/v 0-10 0s|1:a/b/v 10-20 5s|2:a/b/w 5s"},
		{period(`<Representation id="r"><BaseURL>v.mp4</BaseURL><SegmentBase indexRange="0-9"/></Representation>`), ""},
		{`<MPD type="dynamic" availabilityStartTime="2030-01-01T00:00:00" timeShiftBufferDepth="PT12S">` +
			`<Period start="PT10S"><AdaptationSet><Representation id="r"><SegmentTemplate duration="4" media="$Number$"/>` +
			`</Representation></AdaptationSet></Period></MPD>`,
			"10:a/10 4s|11:a/11 4s|12:a/12 4s"}, // 50 s of the period have passed
		{`<MPD mediaPresentationDuration="PT6S"><Period duration="PT2S"><AdaptationSet><Representation id="r">` +
			`<SegmentTemplate duration="2" media="p$Number$"/></Representation></AdaptationSet></Period><Period>` +
			`<AdaptationSet><Representation id="r"><SegmentTemplate duration="2" media="q$Number$"/></Representation>` +
			`</AdaptationSet></Period></MPD>`,
			"1:a/p1 2s|1:a/q1 2s|2:a/q2 2s"},
	} {
		m := parseMPD(at, c.text, 0)
		if m == nil {
			t.Fatalf("%s is not read", c.text)
		}
		if got := strings.Join(formatEntries(m.listSegments(now)), "|"); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.text, got, c.want)
		}
	}
	if parseMPD(at, "<html/>", 0) != nil || parseMPD(at, "<MPD", 0) != nil {
		t.Error("an invalid MPD was parsed")
	}
	for s, want := range map[string]time.Duration{"PT1H2M3.5S": time.Hour + 2*time.Minute + 3500*time.Millisecond,
		"P1DT1S": 24*time.Hour + time.Second, "": -1, "P": -1, "1": -1} {
		if d, ok := parseDuration(s); ok != (want >= 0) || ok && d != want {
			t.Errorf("%q: %v, %v", s, d, ok)
		}
	}
}

// FuzzRead checks that any playlist leads to limited and valid entries.
func FuzzRead(f *testing.F) {
	f.Add("#EXTM3U\n#EXT-X-MAP:URI=\"i\",BYTERANGE=\"1@2\"\n#EXTINF:4,\n#EXT-X-BYTERANGE:3\ns\n#EXT-X-STREAM-INF:\nv\n")
	f.Add(`<MPD type="dynamic" availabilityStartTime="2030-01-01T00:00:00Z"><Period start="PT1S"><AdaptationSet>` +
		`<SegmentTemplate duration="1" media="$Number%05d$"/><Representation id="1"/></AdaptationSet></Period></MPD>`)
	f.Add(`<MPD mediaPresentationDuration="P9D"><Period><AdaptationSet><Representation><SegmentTemplate media="$Time$">` +
		`<SegmentTimeline><S t="18446744073709551615" d="1" r="-1"/><S d="1" r="9223372036854775807"/></SegmentTimeline>` +
		`</SegmentTemplate></Representation></AdaptationSet></Period></MPD>`)
	at := mustParse(f, "http://tv.test/a/x")
	now := time.Date(2030, 1, 1, 0, 1, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text string) {
		l, _ := parseHLSPlaylist(at, text)
		if m := parseMPD(at, text, 0); m != nil {
			l = m.listSegments(now)
		}
		n := 0
		for _, tr := range l.tracks {
			n += len(tr.entries)
			for _, e := range tr.entries {
				if e.from < 0 || e.to >= 0 && e.to <= e.from || e.duration < 0 || !strings.HasPrefix(e.url, "http://") {
					t.Errorf("%+v", e)
				}
			}
			if len(tr.entriesAfter(0, prefetchWindow)) > maxAhead {
				t.Error("too many entries to prefetch")
			}
		}
		if n > maxSegments {
			t.Errorf("%d segments", n)
		}
	})
}

// TestPlaylistBounds checks the memory limits for playlists that expand: by long URLs, templates,
// widths or many representations.
func TestPlaylistBounds(t *testing.T) {
	long := "http://tv.test/" + strings.Repeat("a", 8<<10) + "/x"
	short := "http://tv.test/x"
	many := strings.Repeat("#EXTINF:1,\ns.ts\n", 6_000)
	mpdOf := func(media, set string) string {
		return `<MPD mediaPresentationDuration="PT9000S"><Period><AdaptationSet><SegmentTemplate duration="1" media="` +
			media + `"/>` + set + `</AdaptationSet></Period></MPD>`
	}
	one := `<Representation id="a"/>`
	for _, c := range []struct {
		name, at, text string
		tracks         int
	}{
		{"HLS below a long URL", long, "#EXTM3U\n" + many, 0},
		{"HLS", strings.Replace(long, strings.Repeat("a", 8<<10), strings.Repeat("a", 1900), 1), "#EXTM3U\n" + many, 1},
		{"long template", short, mpdOf(strings.Repeat("b", 8<<10)+"$Number$", one), 0},
		{"wide template", short, mpdOf(strings.Repeat("$Number%099d$", 100), one), 0},
		{"template below a long URL", strings.Replace(long, strings.Repeat("a", 8<<10), strings.Repeat("a", 1900), 1),
			mpdOf("$Number$", one), 1},
		{"many representations", short, mpdOf("$RepresentationID$-$Number$", strings.Repeat(one, 1_000)), 1},
		{"long names", short,
			mpdOf("$RepresentationID$-$Number$", `<Representation id="`+strings.Repeat("c", 3<<10)+`"/>`), 0},
	} {
		u, err := url.Parse(c.at)
		if err != nil {
			t.Fatal(err)
		}
		var l listing
		if strings.HasPrefix(c.text, "#") {
			l, _ = parseHLSPlaylist(u, c.text)
		} else {
			l = parseMPD(u, c.text, 0).listSegments(time.Now())
		}
		sum := 0
		for _, tr := range l.tracks {
			for _, e := range tr.entries {
				sum += len(e.url)
			}
		}
		if sum > maxURLBytes || sum != l.urlBytes || len(l.tracks) < min(c.tracks, 1) || len(l.tracks) > maxTracks ||
			c.tracks == 0 && sum > 0 {
			t.Errorf("%s: %d tracks, %d bytes of URLs, counted as %d", c.name, len(l.tracks), sum, l.urlBytes)
		}
	}
}

// realServer returns the address of a proxy at a real socket.
func realServer(t *testing.T) (address string) {
	t.Helper()
	own := &http.Transport{}
	p, err := New(Config{Devices: []fetch.Device{{Name: "own", Transport: own}},
		Dial: (&net.Dialer{}).DialContext, memory: unit.MB})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan Result, 1)
	go func() { r, _ := p.Serve(ctx, l); ended <- r }()
	t.Cleanup(func() {
		cancel()
		if r := <-ended; r.Tunnels != 1 {
			t.Errorf("%+v", r)
		}
	})
	return l.Addr().String()
}

// TestTunnel checks that encrypted data passes unchanged.
func TestTunnel(t *testing.T) {
	site := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		_, _ = io.WriteString(w, "#EXTM3U\n")
	}))
	defer site.Close()
	address := realServer(t)
	through := site.Client().Transport.(*http.Transport).Clone()
	through.Proxy = http.ProxyURL(mustParse(t, "http://"+address))
	defer through.CloseIdleConnections()
	a, err := (&http.Client{Transport: through}).Get(site.URL + "/x.m3u8")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(a.Body)
	a.Body.Close()
	if err != nil || string(text) != "#EXTM3U\n" {
		t.Errorf("%q, %v", text, err)
	}
	for _, line := range []string{"GET /x HTTP/1.1\r\nHost: evil.test", "GET https://x.test/ HTTP/1.1\r\nHost: x.test",
		"CONNECT " + address + " HTTP/1.1\r\nHost: " + address} {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "%s\r\n\r\n", line)
		a, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || a.StatusCode != 400 && a.StatusCode != http.StatusLoopDetected {
			t.Errorf("%q: %v, %v", line, a, err)
		}
		c.Close()
	}
}

// TestNotOpen checks that other devices cannot use the proxy.
func TestNotOpen(t *testing.T) {
	p, err := New(Config{Devices: []fetch.Device{{Name: "own", Transport: &http.Transport{}}}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Serve(t.Context(), l); !fault.Is(err, fault.Usage) {
		t.Error(err)
	}
}
