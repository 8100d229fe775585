// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/onload/board"
)

// originFault is a misbehaviour of a server. It returns false if it does not respond itself.
type originFault = func(o *origin, w http.ResponseWriter, r *http.Request, device int) bool

// writeRaw writes a raw response and closes the connection.
func writeRaw(w http.ResponseWriter, head string, body []byte) bool {
	c, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return false
	}
	defer c.Close()
	_, _ = io.WriteString(c, strings.ReplaceAll(head, "\n", "\r\n")+"\r\n\r\n")
	_, _ = c.Write(body)
	return true
}

func headerFault(name, value string) originFault {
	return func(_ *origin, w http.ResponseWriter, _ *http.Request, _ int) bool {
		w.Header().Set(name, value)
		return false
	}
}

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha-512=:AAAA:, sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
}

// rangeFault responds to a range request with another range or other header fields.
func rangeFault(change func(h http.Header, from, to int) (int, int)) originFault {
	return func(o *origin, w http.ResponseWriter, r *http.Request, _ int) bool {
		from, to, ok := requestRange(r, len(o.data))
		if !ok {
			return false
		}
		w.Header().Set("ETag", o.etag)
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to-1, len(o.data)))
		from, to = change(w.Header(), from, to)
		body := o.data[max(0, min(from, len(o.data))):max(0, min(to, len(o.data)))]
		if w.Header().Get("Content-Length") == "" {
			w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		}
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(body)
		return true
	}
}

// bodyFault responds to a range request with bytes before the range: chunked, or of another type
// and with the expected length.
func bodyFault(before, typ string) originFault {
	return func(o *origin, w http.ResponseWriter, r *http.Request, _ int) bool {
		from, to, ok := requestRange(r, len(o.data))
		if !ok {
			return false
		}
		w.Header().Set("ETag", o.etag)
		w.Header().Set("Content-Type", typ)
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to-1, len(o.data)))
		body := append([]byte(before), o.data[from:to]...)
		if typ != "" {
			body = body[:to-from]
			w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		}
		w.WriteHeader(http.StatusPartialContent)
		writePieces(w, body, readSize, 0)
		return true
	}
}

// TestHostile checks that any misbehaviour of a server leads to the right file, or to an error and
// no file. text is part of the error; "" stands for the right file.
func TestHostile(t *testing.T) {
	data := randomBytes(600_000, 9)
	size := len(data)
	for _, c := range []struct {
		name    string
		devices int
		wrong   originFault
		text    string
		kind    fault.Kind
	}{
		{"no ranges", 3, func(_ *origin, _ http.ResponseWriter, r *http.Request, _ int) bool {
			r.Header.Del("Range")
			return false
		}, "", ""},
		{"no HEAD", 2, func(_ *origin, w http.ResponseWriter, r *http.Request, _ int) bool {
			if r.Method == http.MethodHead {
				w.WriteHeader(http.StatusMethodNotAllowed)
				return true
			}
			return false
		}, "", ""},
		{"no ranges, no length", 2, func(o *origin, w http.ResponseWriter, _ *http.Request, _ int) bool {
			writePieces(w, o.data, 100_000, time.Millisecond)
			return true
		}, "", ""},
		{"neither length nor end", 2, func(o *origin, w http.ResponseWriter, _ *http.Request, _ int) bool {
			return writeRaw(w, "HTTP/1.0 200 OK", o.data[:size/2])
		}, "no length and no", fault.Protocol},
		{"another range", 2, rangeFault(func(h http.Header, from, to int) (int, int) {
			h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from+1, to-1, size))
			return from + 1, to
		}), "", ""},
		{"a longer range", 2, rangeFault(func(h http.Header, from, to int) (int, int) {
			h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", max(0, from-10), size-1, size))
			return max(0, from-10), size
		}), "", ""},
		{"another total", 3, rangeFault(func(h http.Header, from, to int) (int, int) {
			if from > 0 {
				h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to-1, size+1))
			}
			return from, to
		}), "", ""},
		{"a total that is not known", 2, rangeFault(func(h http.Header, from, to int) (int, int) {
			h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/*", from, to-1))
			return from, to
		}), "", ""},
		{"no range given", 2, rangeFault(func(h http.Header, from, to int) (int,
			int) {
			h.Del("Content-Range")
			return from, to
		}), "", ""},
		{"several parts", 2, rangeFault(func(h http.Header, from, to int) (int, int) {
			h.Del("Content-Range")
			h.Set("Content-Type", "multipart/byteranges; boundary=x")
			return from, to
		}), "", ""},
		{"parts of the parts", 2, rangeFault(func(h http.Header, from, to int) (int, int) {
			to = min(to, from+70_000)
			h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to-1, size))
			return from, to
		}), "", ""},
		{"more than the part", 2,
			rangeFault(func(h http.Header, from, to int) (int, int) { return from, to + 5000 }), "", ""},
		{"more than the part, in chunks", 2, bodyFault("WARNING: quota exceeded", ""), "", ""},
		{"several parts sent as one", 2, bodyFault("--x\r\nContent-Type: text/plain\r\n\r\n",
			"multipart/byteranges; boundary=x"), "", ""},
		{"a length that is no part's", 2, rangeFault(func(h http.Header, from, to int) (int, int) {
			h.Set("Content-Length", fmt.Sprint(to-from-1))
			return from, to - 1
		}), "", ""},
		{"cut parts", 2, func(o *origin, w http.ResponseWriter, r *http.Request, _ int) bool {
			from, to, _ := requestRange(r, size)
			return writeRaw(w, fmt.Sprintf(
				"HTTP/1.1 206 Part\nETag: %s\nContent-Length: %d\nContent-Range: bytes %d-%d/%d", o.etag,
				to-from, from, to-1, size),
				o.data[from:min(to, from+100_000)])
		}, "", ""},
		{"cut, no ranges", 2, func(o *origin, w http.ResponseWriter, r *http.Request, _ int) bool {
			return writeRaw(w, fmt.Sprintf("HTTP/1.1 200 OK\nContent-Length: %d", size), o.data[:size-1])
		}, "truncated", fault.Integrity},
		{"length beyond the end", 1, func(o *origin, w http.ResponseWriter, r *http.Request, _ int) bool {
			return writeRaw(w, fmt.Sprintf("HTTP/1.1 200 OK\nContent-Length: %d", size+1), o.data)
		}, "truncated", fault.Integrity},
		{"cut chunks", 1, func(o *origin, w http.ResponseWriter, r *http.Request, _ int) bool {
			return writeRaw(w, "HTTP/1.1 200 OK\nTransfer-Encoding: chunked",
				append([]byte("ffff\r\n"), o.data[:0x8000]...))
		}, "truncated", fault.Integrity},
		{"416", 2, func(o *origin, w http.ResponseWriter, r *http.Request, _ int) bool {
			if _, _, ok := requestRange(r, size); ok {
				w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
				return true
			}
			return false
		}, "", ""},
		{"all instead of a part, after the first", 2,
			func(o *origin, w http.ResponseWriter, r *http.Request, _ int) bool {
				if o.calls.Add(1) > 2 {
					r.Header.Del("Range")
				}
				return false
			}, "", ""},
		{"If-Range not heeded", 3, func(o *origin, w http.ResponseWriter, r *http.Request, _ int) bool {
			r.Header.Del("If-Range")
			return false
		}, "", ""},
		{"no versions", 3, func(o *origin, w http.ResponseWriter, r *http.Request, _ int) bool {
			from, to, _ := requestRange(r, size)
			sendPart(noLengthWriter{w}, o, from, to)
			return true
		}, "", ""},
		{"weak versions", 3, func(o *origin, w http.ResponseWriter, r *http.Request, _ int) bool {
			from, to, _ := requestRange(r, size)
			sendPart(w, &origin{data: o.data, etag: `W/"v1"`}, from, to)
			return true
		}, "", ""},
		{"gzip", 2, func(o *origin, w http.ResponseWriter, r *http.Request, _ int) bool {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = z.Write(o.data)
			_ = z.Close()
			return true
		}, "gzip", fault.Protocol},
		{"a storm that ends", 2, func(o *origin, w http.ResponseWriter, r *http.Request, _ int) bool {
			if o.calls.Add(1) < 9 {
				w.WriteHeader(http.StatusServiceUnavailable)
				return true
			}
			return false
		}, "", ""},
		{"a storm that does not end", 2, func(o *origin, w http.ResponseWriter, r *http.Request, _ int) bool {
			w.WriteHeader(http.StatusBadGateway)
			return true
		}, "502", ""},
		{"Retry-After, soon", 1, func(o *origin, w http.ResponseWriter, r *http.Request, _ int) bool {
			if o.calls.Add(1) == 1 {
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusTooManyRequests)
				return true
			}
			return false
		}, "", ""},
		{"Retry-After, late", 1, func(o *origin, w http.ResponseWriter, r *http.Request, _ int) bool {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		}, "retry after 1h0m0s", ""},
		{"not there", 3, func(o *origin, w http.ResponseWriter, r *http.Request, _ int) bool {
			http.NotFound(w, r)
			return true
		}, "404", fault.NotFound},
		{"forbidden over one", 2, func(o *origin, w http.ResponseWriter, r *http.Request, device int) bool {
			if device == 0 {
				w.WriteHeader(http.StatusForbidden)
			}
			return device == 0
		}, "", ""},
		{"hangs up", 2, func(o *origin, w http.ResponseWriter, r *http.Request,
			_ int) bool {
			return writeRaw(w, "", nil)
		}, "", fault.Other},
		{"no answer over one", 2, func(o *origin, w http.ResponseWriter, r *http.Request, device int) bool {
			if device == 0 {
				<-r.Context().Done()
			}
			return device == 0
		}, "", ""},
		{"drips over one", 2, func(o *origin, w http.ResponseWriter, r *http.Request, device int) bool {
			if device == 1 {
				return false
			}
			from, to, _ := requestRange(r, size)
			w.Header().Set("ETag", o.etag)
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to-1, size))
			w.Header().Set("Content-Length", fmt.Sprint(to-from))
			w.WriteHeader(http.StatusPartialContent)
			writePieces(w, o.data[from:from+300], 1, 10*time.Millisecond)
			return true
		}, "", ""},
		{"stops over all", 2, func(o *origin, w http.ResponseWriter, r *http.Request, device int) bool {
			from, to, _ := requestRange(r, size)
			w.Header().Set("ETag", o.etag)
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to-1, size))
			w.Header().Set("Content-Length", fmt.Sprint(to-from))
			w.WriteHeader(http.StatusPartialContent)
			if r.Method == http.MethodHead {
				return true
			}
			if from < 1000 {
				writePieces(w, o.data[from:1000], 1000, 0)
			}
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return true
		}, "no data received", fault.Timeout},
		{"another object over one", 3, func(o *origin, w http.ResponseWriter, r *http.Request, device int) bool {
			if device == 1 {
				(&origin{data: randomBytes(size, 77), etag: `"portal"`}).serve(w, r)
			}
			return device == 1
		}, "", ""},
		{"another object over one, If-Range not heeded", 3,
			func(o *origin, w http.ResponseWriter, r *http.Request, device int) bool {
				r.Header.Del("If-Range")
				if device == 1 {
					(&origin{data: randomBytes(size, 77), etag: `"portal"`}).serve(w, r)
				}
				return device == 1
			}, "", ""},
		{"changes always", 2, func(o *origin, w http.ResponseWriter, r *http.Request, _ int) bool {
			(&origin{data: o.data, etag: fmt.Sprintf(`"%d"`, o.calls.Add(1))}).serve(w, r)
			return true
		}, "", ""},
		{"Content-Digest", 1, func(o *origin, w http.ResponseWriter, r *http.Request, _ int) bool {
			w.Header().Set("Content-Digest", digestOf(o.data))
			return false
		}, "", ""},
		{"wrong Content-Digest", 1, headerFault("Content-Digest", digestOf([]byte("x"))),
			"Content-Digest", fault.Integrity},
		{"Repr-Digest", 3, headerFault("Repr-Digest", digestOf(data)), "", ""},
		{"wrong Repr-Digest", 3, headerFault("Repr-Digest", digestOf([]byte("x"))), "Repr-Digest", fault.Integrity},
		{"digests that make no sense", 2,
			headerFault("Repr-Digest", "sha-256=:x:, md5=:AAAA:, sha-256, =, sha-512=::"), "", ""},
		{"turns in circles", 2, func(o *origin, w http.ResponseWriter, r *http.Request, _ int) bool {
			http.Redirect(w, r, r.URL.Path+"x", http.StatusFound)
			return true
		}, "more than 10 redirects", fault.Protocol},
		{"another place for each device", 3, func(o *origin, w http.ResponseWriter, r *http.Request, device int) bool {
			if strings.Count(r.URL.Path, "/") > 1 {
				return false
			}
			http.Redirect(w, r, fmt.Sprintf("/mirror/%d", device), http.StatusTemporaryRedirect)
			return true
		}, "", ""},
		{"places that are overloaded soon", 2,
			func(o *origin, w http.ResponseWriter, r *http.Request, device int) bool {
				n := o.calls.Add(1)
				if at := r.URL.Query().Get("at"); at == "" {
					http.Redirect(w, r, fmt.Sprintf("?at=%d", n), http.StatusFound)
					return true
				} else if at != fmt.Sprint(n-1) {
					w.WriteHeader(http.StatusServiceUnavailable)
					return true
				}
				from, to, _ := requestRange(r, size)
				sendPart(w, o, from, min(to, from+200_000))
				return true
			}, "", ""},
		{"places that expire", 2, func(o *origin, w http.ResponseWriter, r *http.Request, device int) bool {
			n := o.calls.Add(1)
			if at := r.URL.Query().Get("at"); at == "" {
				http.Redirect(w, r, fmt.Sprintf("?at=%d", n), http.StatusFound)
				return true
			} else if at != fmt.Sprint(n-1) {
				w.WriteHeader(http.StatusForbidden)
				return true
			}
			rangeFault(func(h http.Header, from, to int) (int, int) {
				to = min(to, from+70_000)
				h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to-1, size))
				return from, to
			})(o, w, r, device)
			return true
		}, "?", ""},
	} {
		inTime(t, c.name, func(t *testing.T) {
			o := &origin{data: data, etag: `"v1"`}
			o.wrong = func(w http.ResponseWriter, r *http.Request, device int) bool { return c.wrong(o, w, r, device) }
			r, file, err := runGet(t, serveOrigin(t, o), testDevices(testLines(t, c.devices, 80*unit.Mbps)...), nil)
			_, none := os.Stat(file)
			switch {
			case c.text == "?" && err != nil && none != nil: // either outcome is fine
			case c.text == "" && c.kind == "" || c.text == "?":
				if err != nil {
					t.Fatal(err)
				}
				expectContent(t, file, data)
				if got, wasted := totalBytes(r); got-wasted != unit.Bytes(size) {
					t.Errorf("%v brought, %v wasted: %+v", got, wasted, r.Devices)
				}
			case err == nil || !strings.Contains(err.Error(), c.text):
				t.Errorf("error %v, want %q", err, c.text)
			case none == nil:
				t.Errorf("there is a file after %v", err)
			case c.kind != "" && c.kind != fault.Other && !fault.Is(err, c.kind):
				t.Errorf("%v is of the kind %s", err, fault.KindOf(err))
			}
		})
	}
}

// noLengthWriter removes the validators of a response.
type noLengthWriter struct{ http.ResponseWriter }

func (b noLengthWriter) WriteHeader(code int) {
	b.Header().Del("ETag")
	b.ResponseWriter.WriteHeader(code)
}

// TestSmall checks objects of no byte, of one byte, and of one byte more than a read.
func TestSmall(t *testing.T) {
	virtual(t, func(t *testing.T) {
		for _, n := range []int{0, 1, readSize + 1} {
			o := &origin{data: randomBytes(n, 10), etag: `"v1"`}
			_, file, err := runGet(t, serveOrigin(t, o), testDevices(testLines(t, 2, 0)...), nil)
			if err != nil {
				t.Fatalf("%d bytes: %v", n, err)
			}
			expectContent(t, file, o.data)
		}
	})
}

// TestChanges checks that an object that changes during the download is fetched in its new version.
func TestChanges(t *testing.T) {
	virtual(t, func(t *testing.T) {
		o := &origin{data: randomBytes(size, 11), etag: `"v1"`}
		next := &origin{data: randomBytes(size+1000, 12), etag: `"v2"`}
		var changed atomic.Bool
		o.wrong = func(w http.ResponseWriter, r *http.Request, _ int) bool {
			if changed.Load() {
				next.serve(w, r)
				return true
			}
			from, to, ok := requestRange(r, size)
			if !ok {
				return false
			}
			sendPart(w, o, from, min(to, from+300_000)) // so that there are many requests
			return true
		}
		_, file, err := runGet(t, serveOrigin(t, o), testDevices(testLines(t, 2, 80*unit.Mbps)...), func(c *Config) {
			c.OnProgress = func(p Progress) {
				if p.Bytes > size/3 {
					changed.Store(true)
				}
			}
		})
		if err != nil || !changed.Load() {
			t.Fatal(err)
		}
		expectContent(t, file, next.data)
	})
}

// TestSHA256 checks that a file with a wrong digest is rejected, and that ranges with an expected
// digest need no validator.
func TestSHA256(t *testing.T) {
	virtual(t, func(t *testing.T) {
		data := randomBytes(size, 13)
		o := &origin{data: data}
		o.wrong = func(w http.ResponseWriter, r *http.Request, _ int) bool {
			from, to, _ := requestRange(r, size)
			sendPart(noLengthWriter{w}, o, from, to)
			return true
		}
		url := serveOrigin(t, o)
		sum := sha256.Sum256(data)
		r, file, err := runGet(t, url, testDevices(testLines(t, 2, 80*unit.Mbps)...),
			func(c *Config) { c.Objects[0].SHA256 = sum[:] })
		if err != nil {
			t.Fatal(err)
		}
		expectContent(t, file, data)
		if r.Devices[1].Bytes == 0 {
			t.Error("one device fetched all")
		}
		sum[0]++
		_, file, err = runGet(t, url, testDevices(testLines(t, 2, 0)...),
			func(c *Config) { c.Objects[0].SHA256 = sum[:] })
		if !fault.Is(err, fault.Integrity) || !strings.Contains(err.Error(), "SHA-256") {
			t.Error(err)
		}
		if _, err := os.Stat(file); err == nil {
			t.Error("there is a file")
		}
		expectOnlyFile(t, file)
	})
}

// TestNobody checks that the download is given up soon if all devices are gone, with the reasons.
func TestNobody(t *testing.T) {
	virtual(t, func(t *testing.T) {
		l := testLines(t, 2, 0)
		l[0].down(true)
		l[1].down(true)
		begun := time.Now()
		_, file, err := runGet(t, "http://127.0.0.1:1/x", testDevices(l...), nil)
		if !fault.Is(err, fault.Unreachable) || !strings.Contains(err.Error(), "no such helper") ||
			time.Since(begun) > 10*time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		expectOnlyFile(t, file)
	})
}

// TestDowngrade checks that redirects from https to http are refused.
func TestDowngrade(t *testing.T) {
	plain := httptest.NewServer(&origin{data: randomBytes(1000, 14), etag: `"v1"`})
	defer plain.Close()
	s := httptest.NewTLSServer(http.RedirectHandler(plain.URL, http.StatusFound))
	defer s.Close()
	_, _, err := runGet(t, s.URL, []Device{{Name: "own", Transport: s.Client().Transport}}, nil)
	if !fault.Is(err, fault.Protocol) || !strings.Contains(err.Error(), "from https to http") {
		t.Error(err)
	}
}

func TestContentRange(t *testing.T) {
	for _, s := range []string{"", "bytes", "bytes 0-9", "bytes 0-9/*", "bytes */10", "bytes 9-0/10", "bytes 0-10/10",
		"bytes -1-9/10", "bytes 0-9/-1",
		"octets 0-9/10", "bytes 0-9/99999999999999999999", "bytes  0-9/10", "bytes 0-9 /10", "bytes +0-9/10",
		"bytes 0-9/10, bytes 0-9/10"} {
		if _, _, _, ok := parseContentRange(s); ok {
			t.Errorf("%q was believed", s)
		}
	}
	if a, b, n, ok := parseContentRange("bytes 5-9/10"); !ok || a != 5 || b != 10 || n != 10 {
		t.Error(a, b, n, ok)
	}
	if board.Unknown >= 0 {
		t.Error("a size could be mistaken for Unknown")
	}
}
