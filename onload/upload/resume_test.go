// SPDX-License-Identifier: Apache-2.0

package upload

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/fault"
	"mpbond/base/store"
	"mpbond/base/unit"
)

// TestChanging checks that a file that changes during the upload is sent again in its new version,
// and that one that keeps changing is an error.
func TestChanging(t *testing.T) {
	for _, method := range []string{Post, Put} {
		for _, often := range []int{1, 1000} {
			s := newTestServer()
			files, _ := testPhotos(t, 2_000_000)
			var mu sync.Mutex
			n := 0
			wrote := make(chan bool, 100) // one per attempt
			cfg := testConfig(t, method, startServer(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodHead {
					s.place(w, r)
					return
				}
				b := make([]byte, 100)
				_, _ = io.ReadFull(r.Body, b)
				mu.Lock()
				if n++; n <= often {
					f, _ := os.OpenFile(files[0].Path, os.O_APPEND|os.O_WRONLY, 0)
					_, _ = f.Write([]byte{1})
					f.Close()
				}
				mu.Unlock()
				wrote <- true
				r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(b), r.Body))
				if method == Post {
					s.form(w, r)
				} else {
					s.place(w, r)
				}
			})+"/", files)
			cfg.Devices = cfg.Devices[:1]
			cfg.Devices[0].Transport = slowTransport{cfg.Devices[0].Transport, wrote}
			_, err := Send(t.Context(), cfg)
			if often > 1 {
				if !fault.Is(err, fault.Integrity) || len(s.files) != 0 {
					t.Errorf("%s: %v, %d files", method, err, len(s.files))
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			want, _ := os.ReadFile(files[0].Path)
			for name, data := range s.files {
				if len(want) != 2_000_001 || !bytes.Equal(data, want) {
					t.Errorf("%s %s has %d bytes", method, name, len(data))
				}
			}
		}
	}
}

// slowTransport delays the second half of a body until the server has written to the file.
type slowTransport struct {
	http.RoundTripper
	wrote <-chan bool
}

func (s slowTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		r.Body = &slowBody{r.Body, r.Context(), s.wrote, 0}
	}
	return s.RoundTripper.RoundTrip(r)
}

type slowBody struct {
	io.ReadCloser
	ctx   context.Context
	wrote <-chan bool
	n     int
}

func (b *slowBody) Read(p []byte) (int, error) {
	if b.n > 1_000_000 && b.wrote != nil {
		select {
		case <-b.wrote:
			b.wrote = nil
		case <-b.ctx.Done():
		}
	}
	n, err := b.ReadCloser.Read(p)
	b.n += n
	return n, err
}

func openJournal(t *testing.T, path string) (*store.Journal, *KnownUploads) {
	k := NewKnownUploads()
	j, damage, err := store.Open(path, time.Second, k.LoadEntry)
	if err != nil || damage != nil {
		t.Fatal(err, damage)
	}
	return j, k
}

// TestGoesOn checks that items confirmed before an interruption are not sent again, and that
// nothing is left when all is done.
func TestGoesOn(t *testing.T) {
	for _, method := range []string{Post, Put} {
		s := newTestServer()
		files, sums := testPhotos(t, 1000, 2000, 3000, 4000, 5000)
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		var mu sync.Mutex
		some, once := make(chan bool), sync.Once{}
		handler := func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			if r.Method != http.MethodHead {
				n++
			}
			third := n == 3
			mu.Unlock()
			if third && ctx.Err() == nil && r.Method != http.MethodHead {
				_, _ = io.Copy(io.Discard, r.Body)
				<-some
				cancel()
				<-r.Context().Done()
				return
			}
			if method == Post {
				s.form(w, r)
			} else {
				s.place(w, r)
			}
		}
		url := startServer(t, handler) + "/"
		path := filepath.Join(t.TempDir(), "put.jsonl")
		cfg := testConfig(t, method, url, files)
		cfg.Devices = cfg.Devices[:1]
		cfg.Journal, cfg.Known = openJournal(t, path)
		cfg.OnProgress = func(p Progress) {
			if p.Done > 0 {
				once.Do(func() { close(some) })
			}
		}
		res, err := Send(ctx, cfg)
		if !errors.Is(err, context.Canceled) || len(res.Files) < 1 {
			t.Fatal(err, res)
		}
		cfg.Journal.Close()
		cfg.Journal, cfg.Known = openJournal(t, path)
		res, err = Send(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		prefix := map[string]string{Post: "", Put: "/"}[method]
		earlier, twice := 0, 0
		for _, f := range res.Files {
			name := filepath.Base(f.File)
			if sha256.Sum256(s.files[prefix+name]) != sums[name] {
				t.Errorf("%s is another", name)
			}
			if f.Earlier {
				earlier++
			}
			if n := s.times[prefix+name]; n != 1 && (f.Earlier || method == Post) {
				t.Errorf("%s %s was taken %d times", method, name, n)
			}
			if f.MaybeDuplicate {
				twice++
			}
		}
		if earlier < 1 || method == Post && twice != 1 {
			t.Errorf("%s: %+v", method, res.Files)
		}
		cfg.Journal.Close()
		if _, k := openJournal(t, path); !k.IsEmpty() {
			t.Errorf("%s: the journal is not empty", method)
		}
	}
}

// TestSlowDevice checks that a file of a slow device moves to a fast idle one, and is stored once.
func TestSlowDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer()
		files, sums := testPhotos(t, 900_000, 300_000, 300_000)
		cfg := testConfig(t, Post, "http://photos.test/", files)
		cfg.times = defaultTimes
		cfg.Devices = []Device{{Name: "slow", Transport: directTransport{s.form, unit.Mbps * 8 / 10}},
			{Name: "fast", Transport: directTransport{s.form, 50 * unit.Mbps}}}
		res, err := Send(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		expectFiles(t, s, sums, "")
		// the slow device alone would need nine
		if d := res.Devices; d[0].Wasted == 0 || d[0].Bytes != d[0].Wasted || d[1].Bytes != 1_500_000 ||
			res.Duration > 8*time.Second {
			t.Errorf("%+v in %v", d, res.Duration)
		}
	})
}

func TestRefusals(t *testing.T) {
	files, _ := testPhotos(t, 1, 2)
	same := []File{files[0], {files[1].Path, files[0].Name}}
	for _, c := range []struct {
		method, url string
		files       []File
	}{
		{Put, "ftp://x/", files}, {Put, "http://x/one", files},
		{Put, "http://x/?q", files[:1]}, {Put, "http://x/", same},
		{S3, "http://x/", files}, {"fax", "http://x/", files}, {Put, "http://x/", []File{{files[0].Path, "../p"}}},
		{Put, "http://x/", []File{{t.TempDir(), "dir"}}},
	} {
		if _, err := Send(t.Context(), testConfig(t, c.method, c.url, c.files)); !fault.Is(err, fault.Usage) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestFormerJournal checks that a field with its former name is read.
func TestFormerJournal(t *testing.T) {
	for _, field := range []string{"maybe_duplicate", "twice"} {
		k := NewKnownUploads()
		if err := k.LoadEntry([]byte(`{"path":"/a","url":"u","` + field + `":true}`)); err != nil {
			t.Fatal(err)
		}
		if e := k.entries[entryKey{"", "/a", "u"}]; !e.MaybeDuplicate || e.OldDuplicate {
			t.Errorf("%s: %+v", field, e)
		}
	}
}
