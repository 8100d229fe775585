// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/base/waittest"
	"mpbond/onload/board"
)

const size = 3 << 20

func TestParts(t *testing.T) {
	data := randomBytes(size, 1)
	for n := 1; n <= 3; n++ {
		for _, name := range board.Names() {
			inTime(t, fmt.Sprintf("%d/%s", n, name), func(t *testing.T) {
				url := serveOrigin(t, &origin{data: data, etag: `"v1"`})
				var last Progress
				r, file, err := runGet(t, url, testDevices(testLines(t, n, 24*unit.Mbps)...), func(c *Config) {
					c.Scheduler, _ = board.New(name)
					c.OnProgress = func(p Progress) { last = p }
				})
				if err != nil {
					t.Fatal(err)
				}
				expectContent(t, file, data)
				bytes, wasted := totalBytes(r)
				if bytes-wasted != size || r.Objects[0].SHA256 != fmt.Sprintf("%x", sha256.Sum256(data)) ||
					r.Objects[0].Bytes != size {
					t.Errorf("%d bytes, %d wasted: %+v", bytes, wasted, r)
				}
				if last.Bytes != size || last.Size != size || last.Done != 1 || len(last.Devices) != n {
					t.Errorf("the last progress is %+v", last)
				}
				if name != "auto" {
					return // the items are not split
				}
				for _, d := range r.Devices {
					if d.Bytes < size/10 {
						t.Errorf("%s brought %v only", d.Device, d.Bytes)
					}
				}
				if wasted > size/5 {
					t.Errorf("%v were wasted", wasted)
				}
			})
		}
	}
}

func TestManyObjects(t *testing.T) {
	virtual(t, func(t *testing.T) {
		data := randomBytes(200_000, 2)
		srv := &origin{data: data, etag: `"v1"`, wrong: func(w http.ResponseWriter, r *http.Request, _ int) bool {
			if strings.HasSuffix(r.URL.Path, "/7") {
				http.NotFound(w, r)
				return true
			}
			return false
		}}
		url, dir := serveOrigin(t, srv), t.TempDir()
		r, _, err := runGet(t, url, testDevices(testLines(t, 3, 40*unit.Mbps)...), func(c *Config) {
			c.Objects = nil
			for i := range 12 {
				c.Objects = append(c.Objects,
					Object{URL: fmt.Sprintf("%s/%d", url, i), File: filepath.Join(dir, fmt.Sprint(i))})
			}
		})
		if len(r.Objects) != 11 || !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "/7: ") {
			t.Fatalf("%d objects, %v", len(r.Objects), err)
		}
		for _, o := range r.Objects {
			if got, err := os.ReadFile(o.File); err != nil || string(got) != string(data) {
				t.Errorf("%s: %d bytes, %v", o.File, len(got), err)
			}
		}
		list, _ := os.ReadDir(dir)
		if len(list) != 11 {
			t.Errorf("%d files", len(list))
		}
		for _, d := range r.Devices {
			if d.Bytes < 200_000 {
				t.Errorf("%s brought %v only", d.Device, d.Bytes)
			}
		}
	})
}

// TestSizeUnknown checks that a chunked object without a size is also fetched by a faster device,
// whose copy becomes the file.
func TestSizeUnknown(t *testing.T) {
	virtual(t, func(t *testing.T) {
		data := randomBytes(1_000_000, 30)
		url := serveOrigin(t, &origin{data: data, wrong: func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			writePieces(w, data, 50_000, time.Millisecond)
			return true
		}})
		r, file, err := runGet(t, url,
			testDevices(newTestLine(t, 0, 2*unit.Mbps), newTestLine(t, 1, 80*unit.Mbps)), nil)
		if err != nil {
			t.Fatal(err)
		}
		expectContent(t, file, data)
		if r.Devices[1].Bytes < unit.Bytes(len(data)) {
			t.Errorf("%+v", r)
		}
	})
}

// TestHelperComesAndGoes checks that a device is used again after each of two interruptions.
func TestHelperComesAndGoes(t *testing.T) {
	virtual(t, func(t *testing.T) {
		data := randomBytes(8<<20, 3)
		url := serveOrigin(t, &origin{data: data, etag: `"v1"`})
		l := testLines(t, 3, 40*unit.Mbps)
		downs, back := 0, unit.Bytes(0)
		r, file, err := runGet(t, url, testDevices(l...), func(c *Config) {
			c.OnProgress = func(p Progress) {
				switch {
				case !l[2].cut.Load() && downs < 2 && p.Devices[2].Bytes > back+unit.Bytes(len(data)/16):
					l[2].down(true)
					downs, back = downs+1, p.Devices[2].Bytes
				case l[2].cut.Load() && p.Devices[2].Down != nil:
					l[2].down(false)
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		expectContent(t, file, data)
		if downs != 2 || r.Devices[2].Bytes <= back {
			t.Errorf("cut %d times; it brought %v, %v of it before", downs, r.Devices[2].Bytes, back)
		}
	})
}

func TestResume(t *testing.T) {
	data := randomBytes(size, 4)
	for _, c := range []struct {
		name    string
		between func(*origin)
		resumed bool
	}{
		{"same", func(*origin) {}, true},
		{"changed", func(o *origin) { o.data, o.etag = randomBytes(size, 5), `"v2"` }, false},
		{"changed and smaller", func(o *origin) { o.data, o.etag = randomBytes(size/8, 5), `"v2"` }, false},
		{"no ranges any more", func(o *origin) {
			o.wrong = func(w http.ResponseWriter, r *http.Request, _ int) bool { r.Header.Del("Range"); return false }
		}, false},
	} {
		inTime(t, c.name, func(t *testing.T) {
			o := &origin{data: data, etag: `"v1"`}
			url, dev := serveOrigin(t, o), testDevices(testLines(t, 2, 40*unit.Mbps)...)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			file := filepath.Join(t.TempDir(), "file.bin")
			cfg := Config{Devices: dev, Objects: []Object{{URL: url, File: file}}, times: fastTimes}
			cfg.OnProgress = func(p Progress) {
				if p.Bytes > size/2 {
					cancel()
				}
			}
			if _, err := Get(ctx, cfg); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			c.between(o)
			cfg.OnProgress = nil
			r, err := Get(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			expectContent(t, file, o.data)
			if got := r.Objects[0].Resumed; (got >= size/2) != c.resumed {
				t.Errorf("%v were there", got)
			}
		})
	}
}

// runChild fetches until it is killed.
func runChild() {
	cfg := Config{Devices: []Device{{Name: "own", Transport: &http.Transport{}}},
		Objects: []Object{{URL: os.Getenv("FETCH_CHILD"), File: os.Getenv("FETCH_FILE")}}, times: fastTimes}
	cfg.times.IdleTimeout, cfg.times.StallTimeout = time.Hour, time.Hour
	_, err := Get(context.Background(), cfg)
	fmt.Println(err)
}

// TestKilled checks that the journal of a killed process is used.
func TestKilled(t *testing.T) {
	o := &origin{data: randomBytes(size, 6), etag: `"v1"`}
	const half = size / 2
	o.wrong = func(w http.ResponseWriter, r *http.Request, _ int) bool {
		if from, to, ok := requestRange(r, size); ok && to-from > half { // half of it, then nothing
			w.Header().Set("ETag", o.etag)
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to-1, size))
			w.Header().Set("Content-Length", fmt.Sprint(to-from))
			w.WriteHeader(http.StatusPartialContent)
			writePieces(w, o.data[from:half], 64<<10, 0)
			<-r.Context().Done()
			return true
		}
		return false
	}
	s := httptest.NewServer(o)
	defer s.Close()
	file := filepath.Join(t.TempDir(), "file.bin")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "FETCH_CHILD="+s.URL, "FETCH_FILE="+file)
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	have := func() (sum unit.Bytes) {
		p := &part{name: file}
		j, err := p.readJournal()
		if err != nil {
			t.Fatal(err)
		}
		return j.Have.Size()
	}
	waittest.Until(t, "half of the object", func() bool { return have() >= half })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	asked, known := o.asked.Load(), have()
	r, err := Get(t.Context(), Config{Devices: testDevices(testLines(t, 1, 0)...),
		Objects: []Object{{URL: s.URL, File: file}}})
	if err != nil {
		t.Fatal(err)
	}
	expectContent(t, file, o.data)
	if known != half || r.Objects[0].Resumed != known || o.asked.Load() == asked {
		t.Errorf("%v resumed of %v in the journal", r.Objects[0].Resumed, known)
	}
}

// TestJournals checks that a journal that does not fit is ignored.
func TestJournals(t *testing.T) {
	data := randomBytes(100_000, 7)
	for name, text := range map[string]string{
		"no JSON":          `{`,
		"other URL":        `{"url":"http://o/","version":{"size":100000,"etag":"\"v1\""},"have":[{"from":0,"to":50000}]}`,
		"other size":       `{"url":"URL","version":{"size":99999,"etag":"\"v1\""},"have":[{"from":0,"to":50000}]}`,
		"no version":       `{"url":"URL","version":{"size":100000},"have":[{"from":0,"to":50000}]}`,
		"behind the end":   `{"url":"URL","version":{"size":100000,"etag":"\"v1\""},"have":[{"from":0,"to":500000}]}`,
		"before the start": `{"url":"URL","version":{"size":100000,"etag":"\"v1\""},"have":[{"from":-5,"to":50000}]}`,
		"backwards":        `{"url":"URL","version":{"size":100000,"etag":"\"v1\""},"have":[{"from":9000,"to":5}]}`,
	} {
		inTime(t, name, func(t *testing.T) {
			url := serveOrigin(t, &origin{data: data, etag: `"v1"`})
			text := strings.Replace(text, "URL", url, 1)
			r, file, err := runGet(t, url, testDevices(testLines(t, 1, 0)...), func(c *Config) {
				file := c.Objects[0].File
				if err := errors.Join(os.WriteFile(file+journalSuffix, []byte(text), 0o600),
					os.WriteFile(file+partSuffix, make([]byte, 100_000), 0o600)); err != nil {
					t.Fatal(err)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			expectContent(t, file, data)
			if r.Objects[0].Resumed != 0 {
				t.Error("it was used")
			}
		})
	}
}

// TestFilesOfOthers checks that links and existing files are left alone.
func TestFilesOfOthers(t *testing.T) {
	virtual(t, func(t *testing.T) {
		url, dev := serveOrigin(t, &origin{data: randomBytes(1000, 8), etag: `"v1"`}),
			testDevices(testLines(t, 1, 0)...)
		victim := filepath.Join(t.TempDir(), "victim")
		if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, suffix := range []string{partSuffix, journalSuffix} {
			_, _, err := runGet(t, url, dev, func(c *Config) {
				if err := os.Symlink(victim, c.Objects[0].File+suffix); err != nil {
					t.Fatal(err)
				}
			})
			if err == nil {
				t.Errorf("%s was followed", suffix)
			}
		}
		_, file, err := runGet(t, url, dev, func(c *Config) {
			c.Objects[0].KeepExisting = true
			if err := os.WriteFile(c.Objects[0].File, []byte("precious"), 0o600); err != nil {
				t.Fatal(err)
			}
		})
		if got, _ := os.ReadFile(file); !fault.Is(err, fault.Exists) || string(got) != "precious" {
			t.Errorf("%q, %v", got, err)
		}
		if got, _ := os.ReadFile(victim); string(got) != "precious" {
			t.Errorf("%q", got)
		}
	})
}
