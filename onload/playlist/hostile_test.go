// SPDX-License-Identifier: Apache-2.0

package playlist

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/unit"
)

// TestRanges checks that segments that are ranges of files are prefetched, for all ways to list
// them, except those of SegmentBase.
func TestRanges(t *testing.T) {
	const n, size, head = 8, 150_000, 700
	all := randomBytes(head+n*size, 3)
	hls := fmt.Sprintf("#EXTM3U\n#EXT-X-MAP:URI=\"all.mp4\",BYTERANGE=\"%d@0\"\n#EXTINF:4,\n#EXT-X-BYTERANGE:%d@%d\n"+
		"all.mp4\n", head, size, head)
	hls += strings.Repeat(fmt.Sprintf("#EXTINF:4,\n#EXT-X-BYTERANGE:%d\nall.mp4\n", size), n-1)
	mpd := func(by string) string {
		return `<MPD type="static" mediaPresentationDuration="PT32S"><Period><AdaptationSet><Representation id="v">` +
			`<BaseURL>all.mp4</BaseURL>` +
			by + `</Representation></AdaptationSet></Period></MPD>`
	}
	list := fmt.Sprintf(`<SegmentList duration="4"><Initialization range="0-%d"/>`, head-1)
	for i := range n {
		list += fmt.Sprintf(`<SegmentURL mediaRange="%d-%d"/>`, head+i*size, head+(i+1)*size-1)
	}
	for name, c := range map[string]struct {
		text  string
		ahead bool
	}{"a.m3u8": {hls, true}, "list.mpd": {mpd(list + "</SegmentList>"), true},
		"base.mpd": {mpd(`<SegmentBase indexRange="600-699"/>`), false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 0, 8*mbit, 8*mbit)
				r.web.put("/v/all.mp4", all)
				r.web.put("/v/"+name, []byte(c.text))
				r.get("/v/"+name, nil)
				a, _ := r.get("/v/all.mp4", all[:head], "Range", fmt.Sprintf("bytes=0-%d", head-1))
				for i := range n {
					begin, from := time.Now(), head+i*size
					got, _ := r.get("/v/all.mp4", all[from:from+size], "Range",
						fmt.Sprintf("bytes=%d-%d", from, from+size-1), "If-Range", a.Header.Get("ETag"))
					if got.StatusCode != http.StatusPartialContent ||
						got.Header.Get("Content-Range") != fmt.Sprintf("bytes %d-%d/%d", from, from+size-1, len(all)) {
						t.Error(got)
					}
					if took := time.Since(begin); i > 0 && took > 0 == c.ahead {
						t.Errorf("segment %d came within %v", i, took)
					}
					time.Sleep(4 * time.Second)
				}
				res := r.stop()
				if want := map[bool]int{true: n + 1}[c.ahead]; res.Segments != want || res.Unused > 0 {
					t.Errorf("%+v", res)
				}
			})
		})
	}
}

// TestStorms checks that the player gets each segment correctly, or the response of the server,
// whatever happens to requests over the second device, or over all for a while.
func TestStorms(t *testing.T) {
	second := func(r *http.Request) bool {
		return r.Header.Get("X-Line") == "line1" && strings.HasPrefix(r.URL.Path, "/v/seg")
	}
	raw := func(w http.ResponseWriter, text string, body []byte) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 "+text+"\r\n\r\n")
		_, _ = c.Write(body)
	}
	const size = 300_000
	for name, c := range map[string]struct {
		wrong func(w http.ResponseWriter, r *http.Request, n int) bool
		least int // how many of ten must succeed
	}{
		"another range": {func(w http.ResponseWriter, r *http.Request, _ int) bool {
			if second(r) {
				raw(w, "206 OK\r\nContent-Length: 1000\r\nContent-Range: bytes 5-1004/300000\r\nETag: \"x\"",
					randomBytes(1000, 99))
			}
			return second(r)
		}, 10},
		"less than it says": {func(w http.ResponseWriter, r *http.Request, _ int) bool {
			if second(r) {
				raw(w, "200 OK\r\nContent-Length: 300000", nil)
			}
			return second(r)
		}, 10},
		"a byte now and then": {func(w http.ResponseWriter, r *http.Request, _ int) bool {
			if !second(r) {
				return false
			}
			w.Header().Set("Content-Length", fmt.Sprint(size))
			for i := range 30 { // never silent for long enough to be given up
				_, _ = w.Write([]byte{byte(i)})
				_ = http.NewResponseController(w).Flush()
				select {
				case <-r.Context().Done():
					return true
				case <-time.After(9 * time.Second):
				}
			}
			return true
		}, 9},
		"nothing": {func(w http.ResponseWriter, r *http.Request, _ int) bool {
			if second(r) {
				<-r.Context().Done()
			}
			return second(r)
		}, 10},
		"5xx": {func(w http.ResponseWriter, r *http.Request, n int) bool {
			bad := strings.HasPrefix(r.URL.Path, "/v/seg") && n%3 > 0 && n < 40
			if bad {
				w.WriteHeader([]int{500, 502, 503, 504}[n%4])
			}
			return bad
		}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 0, 8*mbit, 8*mbit)
				data := r.vod("/v", 10, size)
				n := 0
				r.web.wrong = func(w http.ResponseWriter, q *http.Request) bool {
					r.web.mu.Lock()
					n++
					now := n
					r.web.mu.Unlock()
					return c.wrong(w, q, now)
				}
				r.get("/v/list.m3u8", nil)
				whole, began := 0, time.Now()
				for i, path := range hlsPaths("/v", 10) {
					a, err := r.player.Get("http://tv.test" + path)
					if err != nil {
						t.Fatal(err)
					}
					got, err := io.ReadAll(a.Body)
					a.Body.Close()
					switch right := bytes.Equal(got, data[i]); {
					case a.StatusCode == http.StatusOK && err == nil && right:
						whole++
					case a.StatusCode == http.StatusOK && err == nil:
						t.Errorf("segment %d: %d wrong bytes", i, len(got))
					}
					time.Sleep(2 * time.Second)
				}
				took := time.Since(began)
				res := r.stop()
				t.Logf("%d whole within %v: %+v", whole, took, res)
				if whole < c.least || took > 2*time.Minute {
					t.Errorf("%d segments complete within %v: %+v", whole, took, res)
				}
			})
		})
	}
}

// TestEndless checks that too long playlists are forwarded unchanged and not stored.
func TestEndless(t *testing.T) {
	line := "#EXTINF:4,\nseg.ts\n"
	for name, size := range map[string]unit.Bytes{"too long": maxPlaylist + 100_000, "no end": 1 << 40} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 0, 1000*mbit, 8*mbit)
				r.web.wrong = func(w http.ResponseWriter, q *http.Request) bool {
					piece, sent := []byte(strings.Repeat(line, 1000)), unit.Bytes(0)
					_, _ = io.WriteString(w, "#EXTM3U\n")
					for sent < size {
						k, err := w.Write(piece[:min(len(piece), int(min(1<<30, size-sent)))])
						if sent += unit.Bytes(k); err != nil {
							break
						}
					}
					return true
				}
				a, err := r.player.Get("http://tv.test/list.m3u8")
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(io.LimitReader(a.Body, maxPlaylist+500_000))
				a.Body.Close()
				want := "#EXTM3U\n" + strings.Repeat(line, len(got)/len(line)+1)
				if most := min(maxPlaylist+500_000, int(min(size, 1<<30))+8); err != nil || len(got) != most ||
					string(got) != want[:len(got)] {
					t.Errorf("%d bytes, %v", len(got), err)
				}
				r.proxy.prefetcher.loop.Lock()
				if len(r.proxy.prefetcher.library.documents) > 0 {
					t.Error("it was read")
				}
				r.proxy.prefetcher.loop.Unlock()
				r.stop()
			})
		})
	}
}
