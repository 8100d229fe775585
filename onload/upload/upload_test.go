// SPDX-License-Identifier: Apache-2.0

package upload

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/onload/board"
	"mpbond/onload/transfer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const smallPart = 100_000

var fastTimes = times{stepTimeout: 2 * time.Second, completeTimeout: 5 * time.Second,
	minPartSize: smallPart, Times: transfer.Times{
		StallTimeout: 5 * time.Second, ResponseTimeout: 5 * time.Second, FirstBackoff: 2 * time.Millisecond,
		IdleTimeout: 10 * time.Second, TickInterval: 5 * time.Millisecond}}

// testServer records what was sent.
type testServer struct {
	mu     sync.Mutex
	files  map[string][]byte // complete files
	times  map[string]int    // how often each was sent
	bodies int               // that were started
	keys   []string
	order  []string
}

func newTestServer() *testServer {
	return &testServer{files: map[string][]byte{}, times: map[string]int{}}
}

func (s *testServer) addFile(name string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[name] = data
	s.times[name]++
	s.order = append(s.order, name)
}

// form accepts forms like the script of a web page.
func (s *testServer) form(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.bodies++
	s.keys = append(s.keys, r.Header.Get("Idempotency-Key"))
	s.mu.Unlock()
	f, h, err := r.FormFile("photo")
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil || r.FormValue("album") != "summer" {
		http.Error(w, "no", http.StatusBadRequest)
		return
	}
	s.addFile(h.Filename, data)
	w.WriteHeader(http.StatusCreated)
}

// place accepts files by PUT. It has collections if dav is true.
func (s *testServer) place(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodPut:
		data, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		s.mu.Lock()
		_, there := s.files[r.URL.Path]
		s.mu.Unlock()
		if there && r.Header.Get("If-None-Match") == "*" {
			w.WriteHeader(http.StatusPreconditionFailed)
			return
		}
		s.addFile(r.URL.Path, data)
		w.WriteHeader(http.StatusCreated)
	case http.MethodHead:
		s.mu.Lock()
		data, there := s.files[r.URL.Path]
		s.mu.Unlock()
		if !there {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
	default:
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

// faulty is a transport that calls a function first.
type faulty struct {
	http.RoundTripper
	do func(*http.Request) error
}

func (f faulty) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := f.do(r); err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, err
	}
	return f.RoundTripper.RoundTrip(r)
}

func testDevices(t *testing.T, n int) (list []Device) {
	for i := range n {
		tr := transfer.NewTransport(new(net.Dialer).DialContext)
		tr.ExpectContinueTimeout = 100 * time.Millisecond
		t.Cleanup(tr.CloseIdleConnections)
		list = append(list, Device{Name: fmt.Sprint("d", i), Transport: tr})
	}
	return list
}

// testPhotos creates files of random bytes.
func testPhotos(t *testing.T, sizes ...int) (list []File, sums map[string][32]byte) {
	dir, rng := t.TempDir(), rand.NewChaCha8([32]byte{1})
	sums = map[string][32]byte{}
	for i, n := range sizes {
		data := make([]byte, n)
		_, _ = rng.Read(data)
		f := File{filepath.Join(dir, fmt.Sprintf("p%02d.jpg", i)), fmt.Sprintf("p%02d.jpg", i)}
		if err := os.WriteFile(f.Path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		sums[f.Name] = sha256.Sum256(data)
		list = append(list, f)
	}
	return list, sums
}

func testConfig(t *testing.T, method, url string, files []File) Config {
	return Config{Devices: testDevices(t, 2), Files: files, times: fastTimes, UserAgent: "test",
		Target: Target{Method: method, URL: url, Field: "photo", Fields: []Field{{"album", "summer"}}},
		Log:    slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))}
}

func startServer(t *testing.T, h http.HandlerFunc) string {
	ctx, cancel := context.WithCancel(context.Background())
	s := httptest.NewUnstartedServer(h)
	s.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	s.Start()
	t.Cleanup(func() { cancel(); s.Close() })
	return s.URL
}

func expectFiles(t *testing.T, s *testServer, sums map[string][32]byte, prefix string) {
	t.Helper()
	for name, sum := range sums {
		if sha256.Sum256(s.files[prefix+name]) != sum {
			t.Errorf("%s: %d wrong bytes", name, len(s.files[prefix+name]))
		}
		if n := s.times[prefix+name]; n != 1 {
			t.Errorf("%s was taken %d times", name, n)
		}
	}
}

// TestAllSchedulers checks that each scheduler sends each file once, correctly, over both devices.
func TestAllSchedulers(t *testing.T) {
	for _, name := range board.Names() {
		for _, method := range []string{Post, Put} {
			s := newTestServer()
			handler, prefix, proof := s.form, "", ByResponse
			if method == Put {
				handler, prefix, proof = s.place, "/", BySize
			}
			files, sums := testPhotos(t, 300_000, 0, 1, 200_000, 70_000, 65_536, 400_000)
			cfg := testConfig(t, method, startServer(t, handler)+"/", files)
			cfg.Scheduler, _ = board.New(name)
			var last Progress
			cfg.OnProgress = func(p Progress) { last = p }
			res, err := Send(t.Context(), cfg)
			if err != nil {
				t.Fatal(name, method, err)
			}
			expectFiles(t, s, sums, prefix)
			if len(res.Files) != len(files) || res.Files[0].Proof != proof ||
				last.Done != len(files) || last.Bytes != last.Size {
				t.Errorf("%s %s: %+v, %+v", name, method, res, last)
			}
			if d := res.Devices; d[0].Bytes+d[1].Bytes != last.Size || d[0].Wasted+d[1].Wasted != 0 {
				t.Errorf("%s %s: %+v of %v", name, method, d, last.Size)
			}
		}
	}
}

// TestServers checks that misbehaviour of servers is handled or leads to a specific error, and that
// no file is reported as stored that is not.
func TestServers(t *testing.T) {
	type try struct {
		name   string
		method string
		kind   fault.Kind // "": success
		says   string
		twice  bool // may be stored twice
		there  bool // may be stored although it failed
		serve  func(s *testServer, n int) http.HandlerFunc
	}
	each := func(h func(s *testServer, n int, w http.ResponseWriter, r *http.Request)) func(*testServer,
		int) http.HandlerFunc {
		return func(s *testServer, _ int) http.HandlerFunc {
			var mu sync.Mutex
			n := 0
			return func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodHead {
					s.place(w, r)
					return
				}
				mu.Lock()
				n++
				now := n
				mu.Unlock()
				h(s, now, w, r)
			}
		}
	}
	status := func(code int, header ...string) func(*testServer, int) http.HandlerFunc {
		return each(func(_ *testServer, _ int, w http.ResponseWriter, _ *http.Request) {
			for i := 0; i+1 < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(code)
		})
	}
	cut := func(w http.ResponseWriter) {
		c, _, _ := http.NewResponseController(w).Hijack()
		c.Close()
	}
	first := func(n int, bad http.HandlerFunc) func(*testServer, int) http.HandlerFunc {
		return each(func(s *testServer, now int, w http.ResponseWriter, r *http.Request) {
			switch {
			case now <= n:
				bad(w, r)
			case r.Method == http.MethodPost:
				s.form(w, r)
			default:
				s.place(w, r)
			}
		})
	}
	read := func(r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }
	for _, c := range []try{
		{name: "storm of 503 that ends", method: Put,
			serve: first(5, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) })},
		{name: "storm of 500 that does not", method: Put, kind: fault.Other, says: "500", there: true,
			serve: each(func(_ *testServer, _ int, w http.ResponseWriter,
				r *http.Request) {
				read(r)
				w.WriteHeader(500)
			})},
		{name: "429 and Retry-After", method: Post, serve: first(2, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(429)
		})},
		{name: "Retry-After of an hour", method: Post, kind: fault.Other, says: "retry after 1h0m0s",
			serve: status(503, "Retry-After", "3600")},
		{name: "413", method: Put, kind: fault.Limit, says: "413", serve: status(413)},
		{name: "413, and closed", method: Post, kind: fault.Limit, says: "413",
			serve: status(413, "Connection", "close")},
		{name: "401", method: Put, kind: fault.Permission, says: "401", serve: status(401)},
		{name: "403 over all devices", method: Put, kind: fault.Permission, says: "403", serve: status(403)},
		{name: "404", method: Post, kind: fault.NotFound, says: "404", serve: status(404)},
		{name: "405", method: Put, kind: fault.Unsupported, says: "405", serve: status(405)},
		{name: "507", method: Put, kind: fault.Limit, says: "507", serve: status(507)},
		{name: "302 to a login", method: Post, kind: fault.Protocol, says: "/login", there: true,
			serve: each(func(_ *testServer, _ int, w http.ResponseWriter, r *http.Request) {
				read(r)
				w.Header().Set("Location", "/login")
				w.WriteHeader(302)
			})},
		{name: "308", method: Put, serve: first(1, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", r.URL.Path)
			w.WriteHeader(308)
		})},
		{name: "307 with the body read", method: Post, serve: first(1, func(w http.ResponseWriter, r *http.Request) {
			read(r)
			w.Header().Set("Location", r.URL.Path)
			w.WriteHeader(307)
		})},
		{name: "307 for ever", method: Put, kind: fault.Protocol, says: "redirects",
			serve: status(307, "Location", "/again")},
		{name: "307 to a file", method: Put, kind: fault.Protocol, says: "redirects to",
			serve: status(307, "Location", "file:///etc/passwd")},
		{name: "206", method: Put, kind: fault.Protocol, says: "does not confirm the file", serve: status(206)},
		{name: "200 before it has the file", method: Post, kind: fault.Protocol,
			says: "before it had received the file", serve: status(200, "Connection", "close")},
		{name: "broken off in the middle", method: Post, serve: first(3, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.CopyN(io.Discard, r.Body, 100_000)
			cut(w)
		})},
		{name: "an answer lost", method: Post, twice: true,
			serve: first(1, func(w http.ResponseWriter, r *http.Request) { read(r); cut(w) })},
		{name: "an answer lost, of PUT", method: Put,
			serve: first(1, func(w http.ResponseWriter, r *http.Request) { read(r); cut(w) })},
		// only the status matters
		{name: "an answer without an end", method: Post,
			serve: each(func(s *testServer, _ int, w http.ResponseWriter, r *http.Request) {
				s.form(w, r)
				// a slow trickle
				for err := error(nil); err == nil && r.Context().Err() == nil; time.Sleep(10 * time.Millisecond) {
					_, _ = w.Write([]byte("x"))
					err = http.NewResponseController(w).Flush()
				}
			})},
		{name: "takes nothing", method: Put, kind: fault.Timeout, says: "",
			serve: each(func(_ *testServer, _ int, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })},
		{name: "keeps a part only", method: Put, kind: fault.Integrity, says: "1000 bytes of the file instead of",
			serve: each(func(s *testServer, _ int, w http.ResponseWriter, r *http.Request) {
				data, _ := io.ReadAll(r.Body)
				s.addFile(r.URL.Path, data[:1000])
				w.WriteHeader(201)
			})},
		{name: "keeps nothing", method: Put, kind: fault.Integrity, says: "does not have it",
			serve: each(func(_ *testServer, _ int, w http.ResponseWriter,
				r *http.Request) {
				read(r)
				w.WriteHeader(201)
			})},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newTestServer()
			size := 300_000
			// more than systems buffer
			if c.name == "takes nothing" || strings.HasPrefix(c.name, "broken") {
				size = 15_000_000
			}
			files, sums := testPhotos(t, size)
			cfg := testConfig(t, c.method, startServer(t, c.serve(s, 1))+"/", files)
			if c.kind == fault.Timeout {
				cfg.times.StallTimeout = 100 * time.Millisecond
			}
			res, err := Send(t.Context(), cfg)
			if c.kind == "" {
				if err != nil {
					t.Fatal(err)
				}
				prefix := ""
				if c.method == Put {
					prefix = "/"
				}
				expectFiles(t, s, sums, prefix)
				if res.Files[0].MaybeDuplicate != c.twice {
					t.Errorf("%+v", res.Files)
				}
				return
			}
			if !fault.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) ||
				len(res.Files) != 0 || len(res.Failed) != 1 {
				t.Errorf("%q (%s), %+v", err, fault.KindOf(err), res)
			} else if res.Failed[0].MaybeStored != c.there {
				t.Errorf("maybe there: %v", res.Failed[0].MaybeStored)
			}
		})
	}
}

// TestNoAnswer checks that a server that takes a file and does not respond is given up, and that the
// file counts as possibly stored.
func TestNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files, _ := testPhotos(t, 300_000)
		cfg := testConfig(t, Post, "http://photos.test/", files)
		cfg.times = defaultTimes
		cfg.Devices = []Device{{Name: "own", Transport: directTransport{func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		}, unit.Mbps}}}
		res, err := Send(t.Context(), cfg)
		if !fault.Is(err, fault.Timeout) || !strings.Contains(err.Error(), "does not respond") ||
			len(res.Files) != 0 || len(res.Failed) != 1 || !res.Failed[0].MaybeStored {
			t.Errorf("%q (%s), %+v", err, fault.KindOf(err), res)
		}
	})
}

// TestKeepsSecrets checks that targets of redirects get no credentials, and that messages contain
// no passwords.
func TestKeepsSecrets(t *testing.T) {
	s := newTestServer()
	leaked := make(chan string, 9)
	other := startServer(t, func(w http.ResponseWriter, r *http.Request) {
		leaked <- r.Header.Get("Authorization") + r.Header.Get("X-Token")
		s.place(w, r)
	})
	var got string
	files, sums := testPhotos(t, 1000)
	here := startServer(t, func(w http.ResponseWriter, r *http.Request) {
		user, pass, _ := r.BasicAuth()
		got = user + pass + r.Header.Get("X-Token")
		w.Header().Set("Location", other+r.URL.Path)
		w.WriteHeader(307)
	})
	cfg := testConfig(t, Put, strings.Replace(here, "//", "//me:hidden@", 1)+"/", files)
	cfg.Target.Header = http.Header{"X-Token": {"tok"}}
	if _, err := Send(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	expectFiles(t, s, sums, "/")
	if got != "mehiddentok" || <-leaked != "" {
		t.Errorf("%q here", got)
	}
	cfg.Target.URL = "http://me:hidden@127.0.0.1:1/"
	_, err := Send(t.Context(), cfg)
	if err == nil || strings.Contains(err.Error(), "hidden") || !fault.Is(err, fault.Unreachable) {
		t.Error(err)
	}
}

// TestAnotherDevice checks that another device sends what one device cannot.
func TestAnotherDevice(t *testing.T) {
	for _, how := range []string{"fails", "forbidden", "dies"} {
		s := newTestServer()
		files, sums := testPhotos(t, 100_000, 200_000, 300_000)
		cfg := testConfig(t, Put, startServer(t, func(w http.ResponseWriter, r *http.Request) {
			if how == "forbidden" && r.Method == http.MethodPut && r.Header.Get("X-Device") == "0" {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			s.place(w, r)
		})+"/", files)
		var n atomic.Int32
		cfg.Devices[0].Transport = faulty{cfg.Devices[0].Transport, func(r *http.Request) error {
			r.Header.Set("X-Device", "0")
			if how == "fails" || how == "dies" && n.Add(1) > 1 {
				return errors.New("no line")
			}
			return nil
		}}
		res, err := Send(t.Context(), cfg)
		if err != nil {
			t.Fatal(how, err)
		}
		expectFiles(t, s, sums, "/")
		if len(res.Files) != 3 {
			t.Errorf("%s: %+v", how, res)
		}
	}
}

// TestKeep checks that KeepExisting prevents replacing files.
func TestKeep(t *testing.T) {
	s := newTestServer()
	s.files["/p00.jpg"] = []byte("mine")
	files, sums := testPhotos(t, 1000, 2000)
	cfg := testConfig(t, Put, startServer(t, s.place)+"/", files)
	cfg.Target.KeepExisting = true
	res, err := Send(t.Context(), cfg)
	if !fault.Is(err, fault.Exists) || len(res.Files) != 1 || string(s.files["/p00.jpg"]) != "mine" {
		t.Errorf("%v, %+v", err, res)
	}
	cfg.Target.KeepExisting = false
	if _, err := Send(t.Context(), cfg); err != nil || sha256.Sum256(s.files["/p00.jpg"]) != sums["p00.jpg"] {
		t.Error(err)
	}
}
