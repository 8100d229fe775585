// SPDX-License-Identifier: Apache-2.0

package playlist

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// TestFalseRangesAreRefused checks that a helper whose network claims a wrong range or version delivers no byte to
// the player, which gets each segment over the other device: once with a split segment, once with
// segments that are ranges of a file.
func TestFalseRangesAreRefused(t *testing.T) {
	type response struct{ head, body string }
	// The Content-Range is a-b/of, and body is what should come.
	for name, falsify := range map[string]func(a, b, of int, body string) response{
		"in chunks, with something before": func(a, b, of int, body string) response {
			body = "WARNING: quota" + body
			return response{fmt.Sprintf("Content-Range: bytes %d-%d/%d\r\nTransfer-Encoding: chunked", a, b, of),
				fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)}
		},
		"in chunks, too short": func(a, b, of int, body string) response {
			body = body[:len(body)/2]
			return response{fmt.Sprintf("Content-Range: bytes %d-%d/%d\r\nTransfer-Encoding: chunked", a, b, of),
				fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)}
		},
		"to the end of the connection": func(a, b, of int, body string) response {
			return response{fmt.Sprintf("Content-Range: bytes %d-%d/%d", a, b, of), "WARNING: quota" + body}
		},
		"longer": func(a, b, of int, body string) response {
			body = "WARNING: quota" + body
			return response{fmt.Sprintf("Content-Range: bytes %d-%d/%d\r\nContent-Length: %d", a, b, of, len(body)), body}
		},
		"shorter": func(a, b, of int, body string) response {
			body = body[10:]
			return response{fmt.Sprintf("Content-Range: bytes %d-%d/%d\r\nContent-Length: %d", a, b, of, len(body)), body}
		},
		"a part of it": func(a, b, of int, body string) response {
			return response{fmt.Sprintf("Content-Range: bytes %d-%d/%d\r\nContent-Length: %d", a, b-10, of,
				len(body)-10), body[:len(body)-10]}
		},
		"more than it": func(a, b, of int, body string) response {
			return response{fmt.Sprintf("Content-Range: bytes %d-%d/%d\r\nContent-Length: %d", a, b+10, of+10,
				len(body)+10), "0123456789" + body}
		},
		"another range": func(a, b, of int, body string) response {
			return response{fmt.Sprintf("Content-Range: bytes %d-%d/%d\r\nContent-Length: %d", a+1, b+1, of+1,
				len(body)), body[1:] + "x"}
		},
		"of another size": func(a, b, of int, body string) response {
			return response{fmt.Sprintf("Content-Range: bytes %d-%d/%d\r\nContent-Length: %d", a, b, of+7,
				len(body)), "x" + body[1:]}
		},
		"of no size": func(a, b, _ int, body string) response {
			return response{fmt.Sprintf("Content-Range: bytes %d-%d/*\r\nContent-Length: %d", a, b,
				len(body)), body[1:] + "x"}
		},
		"two ranges": func(a, b, of int, body string) response {
			return response{fmt.Sprintf("Content-Range: bytes %d-%d/%d\r\nContent-Range: bytes 0-1/2\r\nContent-Length: %d",
				a, b, of, len(body)), body[1:] + "x"}
		},
		"several parts": func(a, b, of int, body string) response {
			body = ("--x\r\nContent-Range: bytes 0-9/10\r\n\r\n" + body)[:len(body)]
			return response{fmt.Sprintf(
				"Content-Range: bytes %d-%d/%d\r\nContent-Type: multipart/byteranges; boundary=x\r\nContent-Length: %d",
				a, b, of, len(body)), body}
		},
		"no word of which": func(_, _, _ int, body string) response {
			return response{fmt.Sprintf("Content-Length: %d", len(body)), body[1:] + "x"}
		},
	} {
		for _, oneFile := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, one file %v", name, oneFile), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					n, size := 1, 2_000_000
					if oneFile {
						n, size = 6, 400_000
					}
					r := newRig(t, 0, 4*mbit, 8*mbit)
					data, paths, list := r.vod("/v", n, size), hlsPaths("/v", n), "/v/list.m3u8"
					if oneFile {
						all, text := randomBytes(n*size, 7), "#EXTM3U\n"
						for i := range n {
							text += fmt.Sprintf("#EXTINF:4,\n#EXT-X-BYTERANGE:%d@%d\nall.ts\n", size, i*size)
							data[i], paths[i] = all[i*size:(i+1)*size], "/v/all.ts"
						}
						list = "/v/one.m3u8"
						r.web.put("/v/all.ts", all)
						r.web.put(list, []byte(text))
					}
					falseCount := 0
					r.web.wrong = func(w http.ResponseWriter, q *http.Request) bool {
						all, a, b := r.web.files[q.URL.RequestURI()], 0, 0
						if k, _ := fmt.Sscanf(q.Header.Get("Range"), "bytes=%d-%d", &a, &b); k < 2 || b >= len(all) ||
							q.Header.Get("X-Line") != "line1" {
							return false
						}
						if !oneFile && q.Header.Get("If-Range") != fmt.Sprintf("\"%d-%x\"", len(all), all[:8]) {
							t.Errorf("a range request without If-Range: %v", q.Header)
						}
						c, _, err := http.NewResponseController(w).Hijack()
						if err != nil {
							return false
						}
						defer c.Close()
						r.web.mu.Lock()
						falseCount++
						r.web.mu.Unlock()
						it := falsify(a, b, len(all), string(all[a:b+1]))
						_, _ = io.WriteString(c, fmt.Sprintf("HTTP/1.1 206 OK\r\nETag: \"%d-%x\"\r\n%s\r\n\r\n%s",
							len(all), all[:8], it.head, it.body))
						return true
					}
					r.get(list, nil)
					for i, path := range paths {
						var headers []string
						if oneFile {
							headers = []string{"Range", fmt.Sprintf("bytes=%d-%d", i*size, (i+1)*size-1)}
						}
						r.get(path, data[i], headers...)
						time.Sleep(time.Second)
					}
					res := r.stop()
					if falseCount < 2 && oneFile || falseCount < 1 || int(res.Devices[1].Bytes) > size/8 ||
						res.Segments+res.Passed != n {
						t.Errorf("%d false responses: %+v", falseCount, res)
					}
				})
			})
		}
	}
}

// TestFileEach checks that segments are prefetched although browsers send If-Range with the
// validator of the previous file.
func TestFileEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0, 8*mbit, 8*mbit)
		const n, size = 4, 100_000
		data, text := make([][]byte, n), "#EXTM3U\n"
		for i := range n {
			data[i] = r.web.put(fmt.Sprintf("/v/%d.mp4", i), randomBytes(size, i))
			text += fmt.Sprintf("#EXTINF:4,\n#EXT-X-BYTERANGE:%d@0\n%d.mp4\n", size/2, i)
		}
		r.web.put("/v/list.m3u8", []byte(text))
		r.get("/v/list.m3u8", nil)
		for i := range n {
			r.get(fmt.Sprintf("/v/%d.mp4", i), data[i][:size/2], "Range", fmt.Sprintf("bytes=0-%d", size/2-1),
				"If-Range", fmt.Sprintf("\"%d-%x\"", size, data[i][:8]))
			time.Sleep(4 * time.Second)
		}
		if res := r.stop(); res.Segments != n || res.Passed > 0 || r.web.asked("/v/3.mp4") != 1 {
			t.Errorf("%+v; %q", res, r.web.log)
		}
	})
}
