// SPDX-License-Identifier: Apache-2.0

package playlist

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/unit"
)

const mbit = 1_000_000

func hlsPaths(dir string, n int) (paths []string) {
	for i := range n {
		paths = append(paths, fmt.Sprintf("%s/seg%d.ts?k=%d", dir, i, i))
	}
	return paths
}

// TestPlayer checks that a video of 500 kbit/s stalls over a device of 375 or 250 kbit/s but not
// over both, and that each byte comes once except for copies.
func TestPlayer(t *testing.T) {
	for _, c := range []struct {
		rates  []unit.Rate
		stalls bool
	}{{[]unit.Rate{.375 * mbit}, true}, {[]unit.Rate{.25 * mbit}, true},
		{[]unit.Rate{.375 * mbit, .25 * mbit}, false}} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, 0, c.rates...)
			const n, size = 20, 250_000
			data := r.vod("/v", n, size)
			r.get("/v/list.m3u8", r.web.files["/v/list.m3u8"])
			stalled := r.play(hlsPaths("/v", n), data, 4*time.Second, 12*time.Second)
			res := r.stop()
			t.Logf("%v: stood still for %v; %+v", c.rates, stalled, res)
			if c.stalls != (stalled > 4*time.Second) || !c.stalls && stalled > 0 {
				t.Errorf("%v: stalled for %v", c.rates, stalled)
			}
			var all, wasted unit.Bytes
			for _, d := range res.Devices {
				all, wasted = all+d.Bytes, wasted+d.Wasted
			}
			if all-wasted != n*size || wasted > n*size/10 || res.Segments != n || res.Bytes != n*size ||
				res.Unused != 0 || res.Passed != 0 {
				t.Errorf("%+v", res)
			}
			if len(c.rates) > 1 && res.Devices[1].Bytes < all/4 {
				t.Errorf("%+v", res.Devices)
			}
		})
	}
}

// TestLikeTheOrigin checks that prefetched responses equal those of the server: status, header and
// ranges.
func TestLikeTheOrigin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0, 8*mbit, 8*mbit)
		data := r.vod("/v", 9, 300_000)
		r.get("/v/list.m3u8", nil)
		for i, c := range []struct {
			headers []string
			status  int
			from    int
			to      int
		}{
			{nil, 200, 0, 300_000}, {[]string{"Range", "bytes=0-"}, 206, 0, 300_000},
			{[]string{"Range", "bytes=100-199"}, 206, 100, 200},
			{[]string{"Range", "bytes=299999-400000"}, 206, 299_999, 300_000},
			{[]string{"Range", "bytes=300000-"}, 416, 0, 0},
			{[]string{"If-None-Match", `"300000-` + fmt.Sprintf("%x", data[5][:8]) + `"`}, 304, 0, 0},
			{[]string{"Range", "bytes=-10"}, 206, 299_990, 300_000},
			{[]string{"Range", "bytes=0-99", "If-Range", `"300000-` + fmt.Sprintf("%x", data[7][:8]) + `"`},
				206, 0, 100},
			{[]string{"Range", "bytes=0-99", "If-Range", `"an older one"`}, 200, 0, 300_000},
		} {
			a, got := r.get(fmt.Sprintf("/v/seg%d.ts?k=%d", i, i), nil, c.headers...)
			if a == nil || a.StatusCode != c.status || c.to > 0 && string(got) != string(data[i][c.from:c.to]) {
				t.Fatalf("%v: %v, %d bytes", c.headers, a, len(got))
			}
			if c.status == 206 && a.Header.Get("Content-Range") != fmt.Sprintf("bytes %d-%d/300000", c.from, c.to-1) {
				t.Error(c.headers, a.Header)
			}
			if c.to > 0 && (a.Header.Get("ETag") == "" || a.Header.Get("X-Name") == "" ||
				a.ContentLength != int64(c.to-c.from)) {
				t.Error(c.headers, a.Header, a.ContentLength)
			}
		}
		r.stop()
	})
}

// TestWindow checks that prefetching is in order and limited in bytes, follows jumps of the player,
// and ends when the player is gone.
func TestWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 600_000
		r := newRig(t, 4*unit.MB, 8*mbit, 8*mbit)
		data := r.vod("/v", 62, size)
		r.get("/v/list.m3u8", nil)
		if time.Sleep(time.Minute); r.web.asked("/v/seg") != 0 {
			t.Errorf("stored before a player has started: %v", r.web.log)
		}
		r.get("/v/seg0.ts?k=0", data[0])
		time.Sleep(time.Minute)
		first := r.web.asked("/v/seg")
		if held, _ := r.held(); held > 4*unit.MB || held < 2*unit.MB {
			t.Errorf("%v held", held)
		}
		if r.web.asked("/v/seg6.ts") == 0 || r.web.asked("/v/seg20.ts") != 0 {
			t.Error(r.web.log)
		}
		if time.Sleep(time.Minute / 2); r.web.asked("/v/seg") != first {
			t.Error("prefetching continues although the player has paused")
		}
		r.get("/v/seg50.ts?k=50", data[50])
		time.Sleep(10 * time.Second)
		if r.web.asked("/v/seg51.ts") == 0 || r.web.asked("/v/seg8.ts") != 0 {
			t.Error(r.web.log)
		}
		if _, urls := r.held(); slices.ContainsFunc(urls,
			func(u string) bool { return !strings.Contains(u, "/seg5") && !strings.Contains(u, "/seg6") }) {
			t.Errorf("%v are kept", urls)
		}
		for i := 51; i < 55; i++ {
			begin := time.Now()
			r.get(fmt.Sprintf("/v/seg%d.ts?k=%d", i, i), data[i])
			if took := time.Since(begin); took > 0 {
				t.Errorf("segment %d was not prefetched: %v", i, took)
			}
		}
		if r.web.asked("/v/seg51.ts") > 2 {
			t.Error(r.web.log)
		}
		time.Sleep(playerIdleTimeout + time.Second)
		if held, urls := r.held(); held != 0 || len(urls) != 0 {
			t.Errorf("%v stored for a player that is gone", held)
		}
		if res := r.stop(); res.Unused == 0 {
			t.Errorf("%+v", res)
		}
	})
}

// TestVariants checks that only the variant that the player uses is prefetched.
func TestVariants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0, 8*mbit, 8*mbit)
		low, high, audio := r.vod("/low", 30, 100_000), r.vod("/high", 30, 400_000), r.vod("/audio", 30, 50_000)
		r.web.put("/master.m3u8", []byte(`#EXTM3U
#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="a",NAME="x,y",URI="audio/list.m3u8"
#EXT-X-STREAM-INF:BANDWIDTH=200000,CODECS="a,b"
low/list.m3u8
#EXT-X-STREAM-INF:BANDWIDTH=800000
high/list.m3u8
`))
		r.get("/master.m3u8", nil)
		r.get("/low/list.m3u8", nil)
		r.get("/audio/list.m3u8", nil)
		r.get("/low/seg0.ts?k=0", low[0])
		r.get("/audio/seg0.ts?k=0", audio[0])
		r.get("/high/list.m3u8", nil)
		r.get("/high/seg1.ts?k=1", high[1])
		lows := r.web.asked("/low/seg")
		time.Sleep(20 * time.Second)
		if r.web.asked("/low/seg") != lows || r.web.asked("/high/seg10.ts") == 0 ||
			r.web.asked("/audio/seg10.ts") == 0 {
			t.Error(r.web.log)
		}
		if _, urls := r.held(); slices.ContainsFunc(urls, func(u string) bool { return strings.Contains(u, "/low/") }) {
			t.Errorf("%v are kept", urls)
		}
		r.stop()
	})
}

// TestLive checks that new segments of a live playlist are prefetched after a reload, and that a
// reused URL is not taken for the old segment.
func TestLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0, 8*mbit, 8*mbit)
		var all [][]byte
		publish := func(first, last int) {
			text := fmt.Sprintf("#EXTM3U\n#EXT-X-MEDIA-SEQUENCE:%d\n", first)
			for i := first; i <= last; i++ {
				text += fmt.Sprintf("#EXTINF:2,\nring%d.ts\n", i%4)
				for len(all) <= i {
					all = append(all, randomBytes(200_000, len(all)))
				}
				r.web.put(fmt.Sprintf("/l/ring%d.ts", i%4), all[i])
			}
			r.web.put("/l/live.m3u8", []byte(text))
		}
		publish(0, 2)
		r.get("/l/live.m3u8?_HLS_msn=1", nil) // not supported by the server
		r.get("/l/live.m3u8", nil)
		r.get("/l/ring0.ts", all[0])
		for i := 1; i < 12; i++ {
			publish(i, i+2)
			r.get("/l/live.m3u8", nil)
			time.Sleep(time.Second)
			begin := time.Now()
			r.get(fmt.Sprintf("/l/ring%d.ts", i%4), all[i])
			if took := time.Since(begin); took > 0 {
				t.Errorf("segment %d was not prefetched: %v", i, took)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(time.Second) // 12 and 13 are available
		publish(16, 18)
		r.get("/l/live.m3u8", nil)
		r.get("/l/ring0.ts", all[16])
		if res := r.stop(); res.Segments != 13 {
			t.Errorf("%+v", res)
		}
	})
}

// TestHostile checks that the player gets the response of the server or a broken connection, but
// never a wrong segment.
func TestHostile(t *testing.T) {
	is := func(r *http.Request, i int) bool { return strings.HasPrefix(r.URL.Path, fmt.Sprintf("/v/seg%d.", i)) }
	for _, c := range []struct {
		name   string
		wrong  func(w http.ResponseWriter, r *http.Request) bool
		status []int // of segments 0 to 3; 0 is aborted
	}{
		{"404", func(w http.ResponseWriter, r *http.Request) bool {
			if is(r, 2) {
				w.WriteHeader(404)
			}
			return is(r, 2)
		}, []int{200, 200, 404, 200}},
		{"503", func(w http.ResponseWriter, r *http.Request) bool {
			if is(r, 1) {
				w.WriteHeader(503)
			}
			return is(r, 1)
		}, []int{200, 503, 200, 200}},
		{"redirect", func(w http.ResponseWriter, r *http.Request) bool {
			if is(r, 2) {
				http.Redirect(w, r, "http://192.168.1.1/", http.StatusFound)
			}
			return is(r, 2)
		}, []int{200, 200, 302, 200}},
		{"no ranges, no length", func(w http.ResponseWriter, r *http.Request) bool {
			if is(r, 2) {
				_ = http.NewResponseController(w).Flush()
				_, _ = w.Write(randomBytes(300_000, 2))
			}
			return is(r, 2)
		}, []int{200, 200, 200, 200}},
		{"cut", func(w http.ResponseWriter, r *http.Request) bool {
			if is(r, 2) {
				w.Header().Set("Content-Length", "300000")
				_, _ = w.Write(randomBytes(300_000, 2)[:1000])
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			}
			return is(r, 2)
		}, []int{200, 200, 0, 200}},
		{"another each time", func(w http.ResponseWriter, r *http.Request) bool {
			part := is(r, 3) && r.Header.Get("Range") != ""
			if part {
				r.Header.Del("If-Range")
				w.Header().Set("ETag", `"other"`)
				http.ServeContent(w, r, "x.ts", time.Time{}, bytes.NewReader(randomBytes(300_000, 99)))
			}
			return part
		}, []int{200, 200, 200, 200}},
		{"varies", func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Vary", "X-Token")
			return false
		}, []int{200, 200, 200, 200}},
		{"encoded", func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Content-Encoding", "br")
			return false
		}, []int{200, 200, 200, 200}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 0, 8*mbit, 4*mbit)
				data := r.vod("/v", 4, 300_000)
				r.web.wrong = c.wrong
				get := func(i int) {
					q, _ := http.NewRequest(http.MethodGet, fmt.Sprintf("http://tv.test/v/seg%d.ts?k=%d", i, i), nil)
					q.Header.Set("X-Token", fmt.Sprint(i))
					a, err := r.player.Do(q)
					if err != nil {
						t.Fatal(err)
					}
					defer a.Body.Close()
					got, err := io.ReadAll(a.Body)
					if whole := err == nil && string(got) == string(data[i]); whole != (c.status[i] == 200) ||
						c.status[i] != 0 && a.StatusCode != c.status[i] || c.status[i] == 0 && err == nil {
						t.Errorf("segment %d: %s, %d bytes, %v", i, a.Status, len(got), err)
					}
				}
				r.get("/v/list.m3u8", nil)
				for i := range 4 {
					get(i)
					time.Sleep(3 * time.Second)
				}
				res := r.stop()
				t.Logf("%+v", res)
			})
		})
	}
}

// TestLineFails checks that segments come over the devices that work.
func TestLineFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0, 4*mbit, 4*mbit)
		data := r.vod("/v", 12, 500_000)
		r.get("/v/list.m3u8", nil)
		for i := range data {
			l := r.lines[1]
			l.mu.Lock()
			l.down = i%4 > 1
			l.mu.Unlock()
			if l.down {
				l.CloseIdleConnections()
			}
			r.get(hlsPaths("/v", 12)[i], data[i])
			time.Sleep(2 * time.Second)
		}
		if res := r.stop(); res.Segments != 12 || res.Devices[1].Bytes == 0 {
			t.Errorf("%+v", res)
		}
	})
}

// TestDash plays an MPD with audio and video.
func TestDash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0, 8*mbit, 8*mbit)
		r.web.put("/d/a.mpd",
			[]byte(`<MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static" mediaPresentationDuration="PT40S"><Period>
<AdaptationSet>
<SegmentTemplate timescale="10" duration="40" initialization="$RepresentationID$/i.mp4"
media="$RepresentationID$/$Number%03d$.m4s"/>
<Representation id="v1" bandwidth="1"/><Representation id="v2" bandwidth="2"/></AdaptationSet>
<AdaptationSet><Representation id="s"><SegmentTemplate timescale="1" media="t$Time$.m4s">
<SegmentTimeline><S t="7" d="4" r="9"/></SegmentTimeline></SegmentTemplate></Representation></AdaptationSet>
</Period></MPD>`))
		var v1, v2, s [][]byte
		for i := range 10 {
			v1 = append(v1, r.web.put(fmt.Sprintf("/d/v1/%03d.m4s", i+1), randomBytes(100_000, i)))
			v2 = append(v2, r.web.put(fmt.Sprintf("/d/v2/%03d.m4s", i+1), randomBytes(200_000, i+100)))
			s = append(s, r.web.put(fmt.Sprintf("/d/t%d.m4s", 7+4*i), randomBytes(50_000, i+200)))
		}
		r.get("/d/a.mpd", nil)
		r.get("/d/v1/i.mp4", nil)
		if time.Sleep(time.Second); r.web.asked("/d/v1/0") != 0 {
			t.Error(r.web.log)
		}
		for i := range 10 {
			if i < 4 {
				r.get(fmt.Sprintf("/d/v1/%03d.m4s", i+1), v1[i])
			} else {
				r.get(fmt.Sprintf("/d/v2/%03d.m4s", i+1), v2[i])
			}
			r.get(fmt.Sprintf("/d/t%d.m4s", 7+4*i), s[i])
			time.Sleep(4 * time.Second)
		}
		n := r.web.asked("/d/v2/010.m4s")
		if res := r.stop(); res.Segments != 20 || n != 1 || res.Passed != 1 {
			t.Errorf("%+v, %v", res, r.web.log)
		}
	})
}

// TestDashLive checks that segments of a dynamic MPD are prefetched as they become available,
// without a reload.
func TestDashLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0, 8*mbit, 8*mbit)
		r.web.put("/d/a.mpd",
			[]byte(`<MPD type="dynamic" availabilityStartTime="`+time.Now().UTC().Format(time.RFC3339)+`"><Period>
<AdaptationSet><Representation id="v"><SegmentTemplate duration="4" media="$Number$"/></Representation>
</AdaptationSet></Period></MPD>`))
		var data [][]byte
		for i := range 20 {
			data = append(data, randomBytes(200_000, i))
			r.web.put(fmt.Sprintf("/d/%d", i+1), data[i])
		}
		time.Sleep(25 * time.Second) // six are available
		r.get("/d/a.mpd", nil)
		for i := 2; i < 10; i++ { // three behind
			begin := time.Now()
			r.get(fmt.Sprintf("/d/%d", i+1), data[i])
			if took := time.Since(begin); i > 2 && took > 0 {
				t.Errorf("segment %d was not prefetched: %v", i+1, took)
			}
			if ahead := r.web.asked(fmt.Sprintf("/d/%d", i+5)); ahead != 0 {
				t.Error("a segment was requested before it is available", r.web.log)
			}
			time.Sleep(4 * time.Second)
		}
		if res := r.stop(); res.Segments != 8 {
			t.Errorf("%+v", res)
		}
	})
}

// TestBadRequests checks that the proxy refuses requests to itself and requests that are not for a
// proxy.
func TestBadRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0, 8*mbit)
		for _, c := range []struct {
			url    string
			status int
		}{{"http://memory/x", http.StatusLoopDetected}, {"http://tv.test/none", http.StatusNotFound}} {
			a, err := r.player.Get(c.url)
			if err != nil {
				t.Fatal(err)
			}
			a.Body.Close()
			if a.StatusCode != c.status {
				t.Errorf("%s: %s", c.url, a.Status)
			}
		}
		r.stop()
	})
}
