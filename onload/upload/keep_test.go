// SPDX-License-Identifier: Apache-2.0

package upload

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"mpbond/base/fault"
	"mpbond/onload/board"
)

// dropResponse drops the first response to a PUT after the server has stored the file.
func dropResponse(h http.HandlerFunc) http.HandlerFunc {
	var once sync.Once
	return func(w http.ResponseWriter, r *http.Request) {
		lost := false
		if r.Method == http.MethodPut {
			once.Do(func() { lost = true })
		}
		if !lost {
			h(w, r)
			return
		}
		h(discardWriter{http.Header{}}, r)
		c, _, _ := http.NewResponseController(w).Hijack()
		c.Close()
	}
}

// TestKeepFight checks that objects that must not be replaced are sent once at a time, so that none
// conflicts with itself, and that concurrent writes of others are no reason to give up.
func TestKeepFight(t *testing.T) {
	b := newBucket(t)
	var once sync.Once
	files, sums := testPhotos(t, 3000, 2000, 1000)
	cfg := s3Config(t, startServer(t, func(w http.ResponseWriter, r *http.Request) {
		conflict := false
		if r.Method == http.MethodPut {
			once.Do(func() { conflict = true })
		}
		if conflict {
			b.fail(w, http.StatusConflict, "ConditionalRequestConflict")
			return
		}
		a := httptest.NewRecorder()
		b.ServeHTTP(a, r)
		if r.Method == http.MethodPut && a.Code == http.StatusOK {
			time.Sleep(50 * time.Millisecond) // its response is late, and the other device is idle
		}
		w.Header().Set("ETag", a.Header().Get("ETag"))
		if n := a.Header().Get("Content-Length"); n != "" {
			w.Header().Set("Content-Length", n)
		}
		w.WriteHeader(a.Code)
		_, _ = w.Write(a.Body.Bytes())
	})+"/bucket/", files)
	cfg.Target.KeepExisting = true
	cfg.Scheduler, _ = board.New("grd") // copies whatever is allowed
	if _, err := Send(t.Context(), cfg); err != nil || b.taken != 3 {
		t.Errorf("%v, %d taken", err, b.taken)
	}
	for name, sum := range sums {
		if sha256.Sum256(b.storedObject("/bucket/"+name)) != sum {
			t.Errorf("%s is another", name)
		}
	}
}

// TestKeepLost checks that a file whose response was lost is recognised, and that files of others
// are never replaced or taken for it.
func TestKeepLost(t *testing.T) {
	for _, method := range []string{Put, S3} {
		for _, other := range []string{"", "shorter", "as long"} {
			b, s := newBucket(t), newTestServer()
			files, sums := testPhotos(t, 1000)
			theirs := map[string][]byte{"shorter": []byte("theirs"), "as long": make([]byte, 1000)}[other]
			inner := map[string]http.HandlerFunc{Put: s.place, S3: b.ServeHTTP}[method]
			get := func() []byte {
				if method == S3 {
					return b.objects["/bucket/p00.jpg"]
				}
				return s.files["/bucket/p00.jpg"]
			}
			cfg := testConfig(t, method, startServer(t, dropResponse(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodPut || theirs == nil {
					inner(w, r)
					return
				}
				_, _ = io.Copy(io.Discard, r.Body) // another client was faster
				b.objects["/bucket/p00.jpg"], b.etags["/bucket/p00.jpg"],
					s.files["/bucket/p00.jpg"] = theirs, etag(theirs), theirs
				w.WriteHeader(http.StatusPreconditionFailed)
			}))+"/bucket/", files)
			cfg.Target.Region, cfg.Target.Key, cfg.Target.Secret,
				cfg.Target.KeepExisting = "eu-test-1", "key", "secret", true
			res, err := Send(t.Context(), cfg)
			switch {
			case other == "" || other == "as long" && method == Put: // which cannot be told apart
				if err != nil || other == "" && sha256.Sum256(get()) != sums["p00.jpg"] {
					t.Errorf("%s: %v", method, err)
				}
			case !fault.Is(err, fault.Exists) || res.Failed[0].MaybeStored || string(get()) != string(theirs):
				t.Errorf("%s, another one that is %s: %v, %+v", method, other, err, res)
			}
		}
	}
}

// TestKeepGoesOn checks that a file that was being sent when a run was interrupted is recognised by
// the next run.
func TestKeepGoesOn(t *testing.T) {
	for _, size := range []int{1000, large} {
		b := newBucket(t)
		files, sums := testPhotos(t, size)
		ctx, cancel := context.WithCancel(t.Context())
		cfg := s3Config(t, startServer(t, func(w http.ResponseWriter, r *http.Request) {
			if q := r.URL.Query(); ctx.Err() != nil || r.Method == http.MethodGet || r.Method == http.MethodHead ||
				q.Has("partNumber") || q.Has("uploads") {
				b.ServeHTTP(w, r)
				return
			}
			b.ServeHTTP(discardWriter{http.Header{}}, r) // stored, but not confirmed
			cancel()
			<-r.Context().Done()
		})+"/bucket/", files)
		cfg.Target.KeepExisting = true
		path := filepath.Join(t.TempDir(), "put.jsonl")
		cfg.Journal, cfg.Known = openJournal(t, path)
		if res, err := Send(ctx, cfg); !errors.Is(err, context.Canceled) || len(res.Files) != 0 {
			t.Fatal(err, res)
		}
		cfg.Journal.Close()
		parts := b.parts
		cfg.Journal, cfg.Known = openJournal(t, path)
		res, err := Send(t.Context(), cfg)
		cfg.Journal.Close()
		if err != nil || b.taken > 1 || b.parts != parts ||
			sha256.Sum256(b.storedObject("/bucket/p00.jpg")) != sums["p00.jpg"] {
			t.Errorf("%d bytes: %v, %+v; %d, %d parts taken", size, err, res, b.taken, b.parts-parts)
		}
	}
}

// TestETags checks that ETags with and without quotes identify parts.
func TestETags(t *testing.T) {
	for _, how := range []string{"unquoted", "another object", "another object, and parts forgotten"} {
		b := newBucket(t)
		files, sums := testPhotos(t, large)
		cfg := s3Config(t, startServer(t, func(w http.ResponseWriter, r *http.Request) {
			done := r.Method == http.MethodPost && r.URL.Query().Has("uploadId")
			switch {
			case how == "unquoted" && done:
				body, _ := io.ReadAll(r.Body)
				b.mu.Lock()
				b.complete(discardWriter{http.Header{}}, r.URL.Path, r.URL.Query().Get("uploadId"), body)
				b.mu.Unlock()
				fmt.Fprintf(w, "<CompleteMultipartUploadResult><ETag>%s</ETag></CompleteMultipartUploadResult>",
					trimQuotes(b.etags[r.URL.Path]))
			case how == "another object, and parts forgotten" && done:
				b.objects[r.URL.Path], b.etags[r.URL.Path] = make([]byte, large), `"another-3"`
				b.fail(w, http.StatusNotFound, "NoSuchUpload")
			case how == "another object" && r.Method == http.MethodHead:
				w.Header().Set("ETag", `"another-3"`)
				w.Header().Set("Content-Length", fmt.Sprint(large))
			default:
				b.ServeHTTP(w, r)
			}
		})+"/bucket/", files)
		res, err := Send(t.Context(), cfg)
		if how != "unquoted" {
			if !fault.Is(err, fault.Integrity) || len(res.Files) != 0 {
				t.Errorf("%s: %v, %+v", how, err, res)
			}
			continue
		}
		if err != nil || b.begun != 1 || sha256.Sum256(b.storedObject("/bucket/p00.jpg")) != sums["p00.jpg"] {
			t.Errorf("%s: %v, %d uploads", how, err, b.begun)
		}
	}
}
