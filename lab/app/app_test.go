// SPDX-License-Identifier: Apache-2.0

package app

import (
	"math"
	"reflect"
	"testing"
	"time"

	"mpbond/base/unit"
)

// allScripts returns the scripts of all apps for a seed.
func allScripts(seed uint64) []Script {
	return []Script{SpeedTest(), Dropbox(40 * unit.MB), Spotify(), YouTube(time.Minute), LargeSite(seed),
		SmallSite(seed), Facebook(seed), Messenger(seed)}
}

func TestScriptsAreValid(t *testing.T) {
	for seed := range uint64(200) {
		for i, s := range allScripts(seed) {
			if err := s.Check(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if again := allScripts(seed)[i]; !reflect.DeepEqual(s, again) {
				t.Fatalf("seed %d: %s differs at the second call", seed, s.App)
			}
		}
	}
}

func TestSeedsDiffer(t *testing.T) {
	for _, draw := range []func(uint64) Script{LargeSite, SmallSite, Facebook, Messenger} {
		if a, b := draw(1), draw(2); reflect.DeepEqual(a, b) {
			t.Errorf("%s: seeds 1 and 2 give the same script", a.App)
		}
	}
}

// TestSizes checks what the study publishes, or the issue demands, of each app.
func TestSizes(t *testing.T) {
	if up, down := Dropbox(40 * unit.MB).Bytes(); up != 40*unit.MB || down != 0 {
		t.Errorf("Dropbox sends %d and fetches %d bytes", up, down)
	}
	if n := len(Dropbox(10 * unit.MB).Requests); n != 3 {
		t.Errorf("Dropbox sends 10 MB in %d requests, want 3", n)
	}
	if _, down := Spotify().Bytes(); down != 88*unit.MB/10 {
		t.Errorf("Spotify fetches %d bytes", down)
	}
	if n := len(YouTube(time.Minute).Requests); n != 5+11 {
		t.Errorf("YouTube fetches %d segments, want 16", n)
	}
	for seed := range uint64(100) {
		for _, c := range []struct {
			page                    Script
			least, most             unit.Bytes
			fewest, objects         int
			fewestHosts, hosts      int
			fewestStages, mostStyle int
		}{
			{LargeSite(seed), 6 * unit.MB, 15 * unit.MB, 100, 250, 15, 25, 5, 15},
			{SmallSite(seed), 300 * unit.KB, 5 * unit.MB, 20, 100, 3, 12, 5, 15},
		} {
			_, down := c.page.Bytes()
			n, styles := len(c.page.Requests), len(c.page.StageOf(1))
			if down < c.least*99/100 || down > c.most*101/100 || n < c.fewest || n > c.objects ||
				c.page.HostCount() < c.fewestHosts || c.page.HostCount() > c.hosts ||
				styles < c.fewestStages || styles > c.mostStyle || len(c.page.StageOf(0)) != 1 {
				t.Errorf("seed %d: %s: %d bytes, %d objects, %d hosts, %d scripts and styles", seed, c.page.App, down, n,
					c.page.HostCount(), styles)
			}
		}
	}
}

func TestCheckRejects(t *testing.T) {
	for name, spoil := range map[string]func(*Script){
		"no requests":         func(s *Script) { s.Requests = nil },
		"no connections":      func(s *Script) { s.Connections = 0 },
		"a negative size":     func(s *Script) { s.Requests[0].Down = -1 },
		"a huge size":         func(s *Script) { s.Requests[0].Up = maxObject + 1 },
		"an unknown host":     func(s *Script) { s.Requests[0].Host = maxHosts },
		"a first stage of 1":  func(s *Script) { s.Requests[0].Stage = 1 },
		"a skipped stage":     func(s *Script) { s.Requests[1].Stage = 2 },
		"a negative pause":    func(s *Script) { s.Requests[0].Pause = -1 },
		"a start after hours": func(s *Script) { s.Requests[0].At = 2 * time.Hour },
		"media of no length":  func(s *Script) { s.Media = &Media{StartBuffer: 1} },
	} {
		s := Spotify()
		spoil(&s)
		if s.Check() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestBrowserScripts checks which scripts a browser loads.
func TestBrowserScripts(t *testing.T) {
	for name, spoil := range map[string]func(*Script){
		"":                        func(*Script) {},
		"no TLS":                  func(s *Script) { s.TLS = false },
		"one connection":          func(s *Script) { s.Connections = 1 },
		"a length":                func(s *Script) { s.Length = time.Second },
		"media":                   func(s *Script) { s.Media = &Media{Segment: time.Second, StartBuffer: time.Second} },
		"an upload":               func(s *Script) { s.Requests[1].Up = 5 },
		"a pause":                 func(s *Script) { s.Requests[1].Pause = time.Second },
		"two roots":               func(s *Script) { s.Requests[1].Stage = 0 },
		"a fourth stage":          func(s *Script) { s.Requests[len(s.Requests)-1].Stage = 3 },
		"an object without bytes": func(s *Script) { s.Requests[1].Down = 0 },
	} {
		s := SmallSite(1)
		s.Browser = BrowserHTTP2
		if spoil(&s); (s.Check() == nil) != (name == "") {
			t.Errorf("with %q: %v", name, s.Check())
		}
	}
}

func TestExpectedTime(t *testing.T) {
	s := Script{Requests: []Request{{Pause: time.Second}, {At: 3 * time.Second}, {Stage: 1, Pause: 2 * time.Second}}}
	if got := s.ExpectedTime(time.Second); got != 6*time.Second {
		t.Errorf("expected %v, want 6 s", got)
	}
	if got := SpeedTest().ExpectedTime(time.Hour); got != 15*time.Second {
		t.Errorf("a script of 15 s: %v", got)
	}
}

func TestGoodput(t *testing.T) {
	l := Log{Seconds: 10, Requests: []Outcome{
		{Start: 0, FirstByte: 1, End: 2, Down: 100},
		{Start: 1, FirstByte: 2, End: 3, Down: 100},
		{Start: 5, FirstByte: 6, End: 6, Up: 100},
		{Start: 8, Down: 100}, // not complete
	}}
	if got := l.Goodput(); math.Abs(got-8*400/6.0) > 1e-9 {
		t.Errorf("goodput %g bit/s, want %g", got, 8*400/6.0)
	}
	if (Log{}).Goodput() != 0 {
		t.Error("the goodput of nothing is not 0")
	}
}

func TestPlay(t *testing.T) {
	media := Media{Segment: 5 * time.Second, StartBuffer: 5 * time.Second}
	for _, c := range []struct {
		name    string
		ends    []float64 // of the requests; 0: not complete
		seconds float64
		want    Playback
	}{
		{"all in time", []float64{1, 2, 3, 4}, 20, Playback{StartUp: 1}},
		{"out of order", []float64{2, 1, 3, 4}, 20, Playback{StartUp: 2}},
		{"the second one is late", []float64{1, 8, 9, 10}, 20, Playback{StartUp: 1, Stalls: 1, Stalled: 2}},
		{"the last one is missing", []float64{1, 2, 3, 0}, 20, Playback{StartUp: 1, Stalls: 1, Stalled: 4}},
		{"nothing arrives", []float64{0, 0}, 20, Playback{StartUp: 20}},
	} {
		l := Log{Seconds: c.seconds}
		for _, end := range c.ends {
			l.Requests = append(l.Requests, Outcome{FirstByte: end, End: end})
		}
		if got := l.Play(media); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestLogCheck(t *testing.T) {
	s := Script{App: "test", Connections: 1, Requests: []Request{{Down: 10}, {Up: 5}}}
	good := func() Log {
		return Log{Seconds: 3, Requests: []Outcome{{Start: 0, FirstByte: 1, End: 1, Down: 10},
			{Start: 1, FirstByte: 2, End: 3, Up: 5}}}
	}
	if err := good().Check(s); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Log){
		"an outcome is missing":    func(l *Log) { l.Requests = l.Requests[:1] },
		"a byte is missing":        func(l *Log) { l.Requests[0].Down-- },
		"a request is incomplete":  func(l *Log) { l.Requests[1].End = 0 },
		"it ends before it begins": func(l *Log) { l.Requests[1].Start = 4 },
		"it ends after the script": func(l *Log) { l.Seconds = 2 },
	} {
		l := good()
		spoil(&l)
		if l.Check(s) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
