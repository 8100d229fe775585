// SPDX-License-Identifier: Apache-2.0

package upload

import (
	"crypto/sha256"
	"net/http"
	"path"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/unit"
)

// replyBusy responds with 503 and a Retry-After over one device.
func replyBusy(seconds string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if seconds != "" {
			w.Header().Set("Retry-After", seconds)
		}
		w.WriteHeader(http.StatusTooManyRequests)
	}
}

// expectRetries sends two files over devices in virtual time and expects them to be stored soon.
func expectRetries(t *testing.T, soon time.Duration, change func(*Config, *testServer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, begun := newTestServer(), time.Now()
		files, sums := testPhotos(t, 125_000, 125_000)
		cfg := testConfig(t, Put, "http://photos.test/", files)
		cfg.times = defaultTimes
		change(&cfg, s)
		if _, err := Send(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took > soon {
			t.Errorf("it took %v", took)
		}
		for _, f := range cfg.Files {
			for name, n := range s.times {
				if path.Base(name) == path.Base(f.Name) &&
					(n != 1 || sha256.Sum256(s.files[name]) != sums[path.Base(f.Name)]) {
					t.Errorf("%s is there %d times, or is another one", name, n)
				}
			}
		}
		if len(s.times) != len(cfg.Files) {
			t.Errorf("there are %v", s.times)
		}
	})
}

// TestRetryAfter checks that a Retry-After for one device delays no other device: no file, no
// confirmation and no search for helpers.
func TestRetryAfter(t *testing.T) {
	for _, seconds := range []string{"", "100", "600"} {
		for _, keep := range []bool{false, true} {
			expectRetries(t, 3*time.Second, func(cfg *Config, s *testServer) {
				cfg.Target.KeepExisting = keep
				cfg.Devices = []Device{{Name: "own", Transport: directTransport{replyBusy(seconds), unit.Mbps}},
					{Name: "helper", Transport: directTransport{s.place, 4 * unit.Mbps}}}
			})
		}
		expectRetries(t, 5*time.Second, func(cfg *Config, s *testServer) {
			cfg.Devices = []Device{{Name: "own", Transport: directTransport{replyBusy(seconds), unit.Mbps}}}
			found := make(chan Device)
			cfg.NewDevices = found
			go func() {
				defer close(found)
				time.Sleep(time.Second)
				found <- Device{Name: "late", Transport: directTransport{s.place, 4 * unit.Mbps}}
			}()
		})
	}
}

// TestSilentLine checks that a device without responses does not delay files for long.
func TestSilentLine(t *testing.T) {
	expectRetries(t, 3*defaultTimes.stepTimeout, func(cfg *Config, s *testServer) {
		silent := roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.Body != nil {
				defer r.Body.Close()
			}
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		for i := range cfg.Files {
			cfg.Files[i].Name = "dir/" + cfg.Files[i].Name
		}
		cfg.Devices = []Device{{Name: "silent", Transport: silent},
			{Name: "good", Transport: directTransport{func(w http.ResponseWriter, r *http.Request) {
				if r.Method == "MKCOL" {
					w.WriteHeader(http.StatusCreated)
					return
				}
				s.place(w, r)
			}, 4 * unit.Mbps}}}
	})
}

// TestPrefersDeviceThatAnswered checks that steps prefer a device that has had a response over an
// idle one that never had.
func TestPrefersDeviceThatAnswered(t *testing.T) {
	cfg := testConfig(t, Post, "http://photos.test/", nil)
	cfg.Devices = []Device{{Name: "a"}, {Name: "b"}}
	e, err := newUploadTask(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w := e.loop.Workers()
	e.runningSteps[w[1]] = 1
	w[1].NoteResponse()
	if d, more := e.pickDevice(&file{}, time.Now()); d != w[1] || !more {
		t.Error("a step uses a device without any response")
	}
	w[0].BackOff(time.Hour, errNoResponse)
	if d, more := e.pickDevice(&file{}, time.Now()); d != w[1] || more {
		t.Error("a step uses a device during its back-off")
	}
	e.loop.NoteRecovery(w[0])
	if !w[0].HasResponded() {
		t.Error("a response was not recorded")
	}
}

type roundTrip func(r *http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestMore checks that files added during the upload go over free devices, and that unreadable
// files fail alone.
func TestMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, begun := newTestServer(), time.Now()
		files, _ := testPhotos(t, 1_250_000, 1_250_000, 125_000, 125_000) // 10 s, 10 s, 1 s, 1 s
		later := [][]File{files[1:2], files[2:], {{Path: files[0].Path + ".gone", Name: "gone"}}}
		cfg := testConfig(t, Put, "http://photos.test/", files[:1])
		cfg.times = defaultTimes
		cfg.Devices = []Device{{Name: "a", Transport: directTransport{s.place, unit.Mbps}},
			{Name: "b", Transport: directTransport{s.place, unit.Mbps}}}
		cfg.MoreFiles = func() (list []File) {
			if len(later) > 0 && time.Since(begun) > time.Duration(4-len(later))*time.Second {
				list, later = later[0], later[1:]
			}
			return list
		}
		res, err := Send(t.Context(), cfg)
		if err == nil || len(res.Files) != 4 || len(res.Failed) != 1 || len(s.times) != 4 {
			t.Fatalf("%v: %+v; there are %v", err, res, s.times)
		}
		if took := time.Since(begun); took > 13*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}
