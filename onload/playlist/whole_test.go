// SPDX-License-Identifier: Apache-2.0

package playlist

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestWholeAsRange checks that a playlist in a 206 response is read if the range is complete, as
// for libavformat, which requests "bytes=0-", and not otherwise.
func TestWholeAsRange(t *testing.T) {
	list := strings.Repeat("x", 1000)
	for name, c := range map[string]struct {
		asked   string
		given   string // Content-Range, "" for that of the server
		chunked bool
		ahead   bool
	}{
		"libavformat":    {asked: "bytes=0-", ahead: true},
		"beyond its end": {asked: "bytes=0-99999", ahead: true},
		"its beginning":  {asked: "bytes=0-200"},
		"its end":        {asked: "bytes=1-"},
		"in chunks":      {asked: "bytes=0-", chunked: true, ahead: true},
		"no size":        {asked: "bytes=0-", given: "bytes 0-%d/*"},
		"another size":   {asked: "bytes=0-", given: "bytes 0-%d/" + fmt.Sprint(len(list))},
		"no range":       {asked: "bytes=0-", given: "-"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 0, 8*mbit, 8*mbit)
				data := r.vod("/v", 9, 100_000)
				text := r.web.files["/v/list.m3u8"]
				r.web.wrong = func(w http.ResponseWriter, q *http.Request) bool {
					if q.URL.Path != "/v/list.m3u8" || c.given == "" && !c.chunked {
						return false
					}
					given := fmt.Sprintf("bytes 0-%d/%d", len(text)-1, len(text))
					if c.given != "" {
						given = strings.ReplaceAll(c.given, "%d", fmt.Sprint(len(text)-1))
					}
					w.Header().Set("Content-Range", given)
					w.WriteHeader(http.StatusPartialContent)
					if c.chunked {
						_ = http.NewResponseController(w).Flush()
					}
					_, _ = w.Write(text)
					return true
				}
				a, _ := r.get("/v/list.m3u8", nil, "Range", c.asked)
				if a == nil || a.StatusCode != http.StatusPartialContent {
					t.Fatal(a)
				}
				a, _ = r.get("/v/seg0.ts?k=0", data[0], "Range", "bytes=0-", "Icy-MetaData", "1")
				if a.StatusCode != http.StatusPartialContent ||
					a.Header.Get("Content-Range") != "bytes 0-99999/100000" {
					t.Error(a.Status, a.Header)
				}
				time.Sleep(5 * time.Second)
				if ahead := r.web.asked("/v/seg3.ts") > 0; ahead != c.ahead {
					t.Errorf("ahead of the player: %v; %v", ahead, r.web.log)
				}
				r.stop()
			})
		})
	}
}

// TestCodings checks that a playlist is requested in a coding that can be decoded, and only in one
// that the player accepts.
func TestCodings(t *testing.T) {
	for accepted, want := range map[string]string{
		"": "identity", "br": "identity", "gzip, deflate, br, zstd": "gzip", "GZIP;q=0.5": "gzip",
		"gzip; q=0.0": "identity", "*": "identity",
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, 0, 8*mbit, 8*mbit)
			data := r.vod("/v", 9, 100_000)
			text := r.web.files["/v/list.m3u8"]
			coding := ""
			r.web.wrong = func(w http.ResponseWriter, q *http.Request) bool {
				if q.URL.Path != "/v/list.m3u8" {
					return false
				}
				if coding = q.Header.Get("Accept-Encoding"); coding != "gzip" {
					return false
				}
				w.Header().Set("Content-Encoding", "gzip")
				var packed bytes.Buffer
				z := gzip.NewWriter(&packed)
				_, _ = z.Write(text)
				z.Close()
				_, _ = w.Write(packed.Bytes())
				return true
			}
			var headers []string
			if accepted != "" {
				headers = []string{"Accept-Encoding", accepted}
			}
			r.get("/v/list.m3u8", nil, headers...)
			if coding != want {
				t.Errorf("%q: asked for %q", accepted, coding)
			}
			r.get("/v/seg0.ts?k=0", data[0])
			time.Sleep(5 * time.Second)
			if r.web.asked("/v/seg3.ts") == 0 {
				t.Errorf("%q: nothing was prefetched", accepted)
			}
			r.stop()
		})
	}
}
