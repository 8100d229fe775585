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

// busy is a server that wants to be left alone for so many seconds, by one line.
func busy(seconds string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if seconds != "" {
			w.Header().Set("Retry-After", seconds)
		}
		w.WriteHeader(http.StatusTooManyRequests)
	}
}

// sends sends two files over lines in virtual time, and expects them to be there soon.
func sends(t *testing.T, soon time.Duration, change func(*Config, *seen)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, begun := newSeen(), time.Now()
		files, sums := photos(t, 125_000, 125_000)
		cfg := config(t, Put, "http://photos.test/", files)
		cfg.times = usual
		change(&cfg, s)
		if _, err := Send(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took > soon {
			t.Errorf("it took %v", took)
		}
		for _, f := range cfg.Files {
			for name, n := range s.times {
				if path.Base(name) == path.Base(f.Name) && (n != 1 || sha256.Sum256(s.files[name]) != sums[path.Base(f.Name)]) {
					t.Errorf("%s is there %d times, or is another one", name, n)
				}
			}
		}
		if len(s.times) != len(cfg.Files) {
			t.Errorf("there are %v", s.times)
		}
	})
}

// TestRetryAfter: what one line was told holds up no other: neither a file, nor the
// question whether it is there, nor the search for helpers.
func TestRetryAfter(t *testing.T) {
	for _, seconds := range []string{"", "100", "600"} {
		for _, keep := range []bool{false, true} {
			sends(t, 3*time.Second, func(cfg *Config, s *seen) {
				cfg.Target.Keep = keep
				cfg.Devices = []Device{{Name: "own", Transport: direct{busy(seconds), unit.Mbps}}, {Name: "helper", Transport: direct{s.place, 4 * unit.Mbps}}}
			})
		}
		sends(t, 5*time.Second, func(cfg *Config, s *seen) {
			cfg.Devices = []Device{{Name: "own", Transport: direct{busy(seconds), unit.Mbps}}}
			found := make(chan Device)
			cfg.Joins = found
			go func() {
				defer close(found)
				time.Sleep(time.Second)
				found <- Device{Name: "late", Transport: direct{s.place, 4 * unit.Mbps}}
			}()
		})
	}
}

// TestSilentLine: a line that never answers holds up no file for long.
func TestSilentLine(t *testing.T) {
	sends(t, 3*usual.ask, func(cfg *Config, s *seen) {
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
		cfg.Devices = []Device{{Name: "silent", Transport: silent}, {Name: "good", Transport: direct{func(w http.ResponseWriter, r *http.Request) {
			if r.Method == "MKCOL" {
				w.WriteHeader(http.StatusCreated)
				return
			}
			s.place(w, r)
		}, 4 * unit.Mbps}}}
	})
}

// TestAsksWhoAnswered: what is asked goes over a line that was answered before, however
// often one that never was is idle.
func TestAsksWhoAnswered(t *testing.T) {
	cfg := config(t, Post, "http://photos.test/", nil)
	cfg.Devices = []Device{{Name: "a"}, {Name: "b"}}
	e, err := newEngine(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w := e.loop.Workers()
	e.under[w[1]] = 1
	w[1].NoteAnswer()
	if d, more := e.idle(&file{}, time.Now()); d != w[1] || !more {
		t.Error("asks who never answered")
	}
	w[0].Delay(time.Hour, errNoAnswer)
	if d, more := e.idle(&file{}, time.Now()); d != w[1] || more {
		t.Error("asks who is to be left alone")
	}
	e.loop.Recovered(w[0])
	if !w[0].HasAnswered() {
		t.Error("it is not noted who answered")
	}
}

type roundTrip func(r *http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestMore: what comes while others are sent goes over lines that are free then; what
// cannot be read fails alone.
func TestMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, begun := newSeen(), time.Now()
		files, _ := photos(t, 1_250_000, 1_250_000, 125_000, 125_000) // 10 s, 10 s, 1 s, 1 s
		later := [][]File{files[1:2], files[2:], {{Path: files[0].Path + ".gone", Name: "gone"}}}
		cfg := config(t, Put, "http://photos.test/", files[:1])
		cfg.times = usual
		cfg.Devices = []Device{{Name: "a", Transport: direct{s.place, unit.Mbps}}, {Name: "b", Transport: direct{s.place, unit.Mbps}}}
		cfg.More = func() (list []File) {
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
