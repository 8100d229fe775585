// SPDX-License-Identifier: Apache-2.0

package upload

import (
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/onload/board"
	"mpbond/onload/transfer"
)

// TestDowngrade checks that redirects from https to http are refused.
func TestDowngrade(t *testing.T) {
	s := newTestServer()
	plain := startServer(t, s.place)
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", plain+r.URL.Path)
		w.WriteHeader(http.StatusTemporaryRedirect)
	}))
	defer secure.Close()
	files, _ := testPhotos(t, 1000)
	cfg := testConfig(t, Put, secure.URL+"/", files)
	cfg.Devices = []Device{{Name: "d", Transport: secure.Client().Transport}}
	if _, err := Send(t.Context(), cfg); !fault.Is(err, fault.Protocol) || len(s.files) != 0 {
		t.Errorf("%v, %d files", err, len(s.files))
	}
}

// TestKnown checks that a journal applies only to unchanged files and to its target.
func TestKnown(t *testing.T) {
	files, _ := testPhotos(t, 1000)
	cfg := testConfig(t, Post, "http://localhost/", files)
	cfg.Known = NewKnownUploads()
	look := func() (*task, *file) {
		e, err := newUploadTask(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return e, e.files[0]
	}
	e, f := look()
	x := e.journaled.newJournalEntry(f)
	x.Done = ByResponse
	e.journaled.saveJournalEntry(x)
	if _, f := look(); f.state != done || !f.earlier {
		t.Error("forgotten")
	}
	before := cfg.Target
	for _, change := range []func(*Target){
		func(t *Target) { t.Fields = []Field{{"album", "winter"}} },
		func(t *Target) { t.Field = "file" },
		func(t *Target) { t.Header = http.Header{"Authorization": {"Bearer other"}} },
	} {
		change(&cfg.Target)
		if _, f := look(); f.state != unprepared {
			t.Errorf("there, with %+v", cfg.Target)
		}
		cfg.Target = before
	}
	if err := os.Chtimes(files[0].Path, time.Time{}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, f := look(); f.state != unprepared {
		t.Error("the entry of another file applies")
	}
}

// TestDropped checks that a form that moved to another device after it was sent completely is
// reported as a possible duplicate, even if that is found out late.
func TestDropped(t *testing.T) {
	files, _ := testPhotos(t, 10, 10)
	cfg := testConfig(t, Post, "http://localhost/", files)
	cfg.Known = NewKnownUploads()
	e, err := newUploadTask(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for i, late := range []bool{false, true} {
		j := &job{Job: &transfer.Job{Worker: e.loop.Workers()[0]}, task: e, file: e.files[i]}
		j.SetAwaitingResponse(!late)
		j.OnDrop()
		if f := e.files[i]; f.maybeDuplicate == late {
			t.Errorf("late %v: %v", late, f.maybeDuplicate)
		}
		j.SetAwaitingResponse(true)
		j.OnEnd(transfer.ErrDropped)
		if f := e.files[i]; !f.maybeDuplicate || !f.maybeStored {
			t.Errorf("late %v: maybeDuplicate or maybeStored is not set", late)
		}
	}
}

// TestFlaps checks that an occasionally failing device is suspended briefly each time.
func TestFlaps(t *testing.T) {
	s := newTestServer()
	files, sums := testPhotos(t, make([]int, 14)...)
	cfg := testConfig(t, Put, startServer(t, s.place)+"/", files)
	var n atomic.Int32
	cfg.Devices[0].Transport = faulty{cfg.Devices[0].Transport, func(r *http.Request) error {
		if r.Method == http.MethodPut && n.Add(1)%2 == 1 {
			return errors.New("no line")
		}
		return nil
	}}
	cfg.Devices = cfg.Devices[:1]
	res, err := Send(t.Context(), cfg)
	if err != nil || res.Duration > 5*time.Second {
		t.Errorf("%v in %v", err, res.Duration)
	}
	expectFiles(t, s, sums, "/")
}

// TestStaysExcluded checks that an excluded device stays excluded from a restarted file.
func TestStaysExcluded(t *testing.T) {
	s := newTestServer()
	var refused, n atomic.Int32
	files, sums := testPhotos(t, 1000)
	cfg := testConfig(t, Put, startServer(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPut && r.Header.Get("X-Device") == "0":
			refused.Add(1)
			w.WriteHeader(http.StatusForbidden)
		case r.Method == http.MethodPut && n.Add(1) == 1:
			data, _ := io.ReadAll(r.Body)
			s.addFile(r.URL.Path, data[:10])
			s.times[r.URL.Path] = 0
			w.WriteHeader(http.StatusCreated)
		default:
			s.place(w, r)
		}
	})+"/", files)
	cfg.Scheduler, _ = board.New("grd")
	cfg.Devices[0].Transport = faulty{cfg.Devices[0].Transport,
		func(r *http.Request) error { r.Header.Set("X-Device", "0"); return nil }}
	if _, err := Send(t.Context(), cfg); err != nil || refused.Load() != 1 {
		t.Errorf("%v, refused %d times", err, refused.Load())
	}
	expectFiles(t, s, sums, "/")
}

// TestJoinTakesLong checks that S3 may take longer to complete a multipart upload than to respond
// otherwise.
func TestJoinTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(t)
		joins := 0
		files, sums := testPhotos(t, large)
		cfg := s3Config(t, "http://photos.test/bucket/", files)
		cfg.times = defaultTimes
		cfg.times.minPartSize = smallPart
		cfg.Devices = []Device{{Name: "own", Transport: directTransport{func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost && strings.Contains(r.URL.RawQuery, "uploadId") {
				joins++
				time.Sleep(cfg.times.ResponseTimeout + cfg.times.IdleTimeout)
			}
			b.ServeHTTP(w, r)
		}, 8 * unit.Mbps}}}
		if _, err := Send(t.Context(), cfg); err != nil || joins != 1 ||
			sha256.Sum256(b.storedObject("/bucket/p00.jpg")) != sums["p00.jpg"] {
			t.Errorf("%v, %d times", err, joins)
		}
	})
}
