// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/control/policy"
	"mpbond/core/bond"
	"mpbond/node/endpoint"
)

// TestHistoryFile checks that the history is read back from its file, which names no destination,
// that a broken file is kept aside, and that nothing is left after forgetHistory.
func TestHistoryFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "history.json")
	var m historyMemory
	if err := m.loadHistory(file); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	m.saveChanges(log)
	if _, err := os.Stat(file); err == nil {
		t.Error("an empty history is saved")
	}
	record := func(m *historyMemory, app string, n int) {
		names := m.hashNames(app, "video.example:443")
		for range n {
			m.recordMessage(time.Now(), &names, policy.Message{Size: 700_000}, m.countForgotten())
		}
	}
	record(&m, "player", 5)
	m.saveChanges(log)
	whole, err := os.ReadFile(file)
	if err != nil || bytes.Contains(whole, []byte("example")) || bytes.Contains(whole, []byte("player")) {
		t.Errorf("%s: %v", whole, err)
	}
	expectAnswer := func(what string, m *historyMemory, app string, wanted bool) {
		t.Helper()
		names := m.hashNames(app, "video.example:443")
		if more := m.expectBeyond(&names, false, 100_000); (more == 600_000) != wanted || !wanted && more > 0 {
			t.Errorf("%s: %d bytes more", what, more)
		}
		if m.expectBeyond(&names, true, 0) > 0 {
			t.Errorf("%s: an upload is expected to be like a download", what)
		}
	}
	var again historyMemory
	if err := again.loadHistory(file); err != nil {
		t.Fatal(err)
	}
	expectAnswer("read back", &again, "player", true)
	expectAnswer("an app that was not there", &again, "browser", true)
	expectAnswer("an unknown app", &again, "", true)
	other := again.hashNames("player", "other.example:443")
	if again.expectBeyond(&other, false, 0) > 0 {
		t.Error("another destination is expected to be the same")
	}
	for name, bad := range map[string][]byte{"empty": {}, "truncated": whole[:len(whole)-5], "not JSON": []byte("\x7fELF"),
		"another kind of JSON": []byte(`["home"]`), "another version": []byte(`{"version": 99}`),
		"without a key": []byte(`{"version": 1, "key": "AAAA"}`),
		"huge":          append(slices.Clone(whole), bytes.Repeat([]byte(" "), int(maxHistoryFile))...)} {
		if err := os.WriteFile(file, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		again = historyMemory{}
		if err := again.loadHistory(file); err == nil || !strings.Contains(err.Error(), file+".bad") {
			t.Errorf("%s: %v", name, err)
		}
		if kept, err := os.ReadFile(file + ".bad"); err != nil || !bytes.Equal(kept, bad) {
			t.Errorf("%s: %d bytes are kept of %d: %v", name, len(kept), len(bad), err)
		}
		expectAnswer(name, &again, "player", false)
	}
	began := m.countForgotten()
	names := m.hashNames("player", "video.example:443")
	record(&m, "player", 1)
	if err := m.forgetHistory(); err != nil {
		t.Error(err)
	}
	m.recordMessage(time.Now(), &names, policy.Message{Size: 1000}, began) // of a stream that began before
	expectAnswer("forgotten", &m, "player", false)
	m.saveChanges(log)
	if left, _ := filepath.Glob(file + "*"); len(left) > 0 {
		t.Errorf("left after forgetting: %q", left)
	}
	if err := m.forgetHistory(); err != nil {
		t.Errorf("again: %v", err)
	}
	m.file = filepath.Join(filepath.Dir(file), "missing", "history.json")
	record(&m, "player", 1)
	if m.saveChanges(log); !m.hasChanged {
		t.Error("what could not be saved is not saved later")
	}
}

// fakeStream records where messages are expected to end.
type fakeStream struct {
	app        string
	candidates []endpoint.NamedCandidate
	full       bool     // expectations are dropped
	expected   []string // "down END at AT", " in TIME"
}

func (f *fakeStream) App() string { return f.app }

func (f *fakeStream) ExpectMessage(now time.Time, up bool, e bond.Expectation) bool {
	if f.full {
		return false
	}
	text := fmt.Sprintf("%s %d at %d", map[bool]string{false: "down", true: "up"}[up], e.End, e.At)
	if !e.NeededAt.IsZero() {
		text += fmt.Sprint(" in ", e.NeededAt.Sub(now))
	}
	f.expected = append(f.expected, text)
	return true
}

func (f *fakeStream) Candidates(bool) []endpoint.NamedCandidate { return f.candidates }

// playedStream is a stream that a test plays.
type playedStream struct {
	fake *fakeStream
	*streamHistory
	now time.Time
}

// openStream opens a stream of an app with one subflow.
func openStream(m *historyMemory) *playedStream {
	f := &fakeStream{app: "player", candidates: make([]endpoint.NamedCandidate, 1)}
	f.candidates[0].Allowed, f.candidates[0].MinRTT, f.candidates[0].RTT = true, 40*time.Millisecond, time.Second
	return &playedStream{f, newStreamHistory(m, &placeRates{}, "video.example:443", f), time.Unix(1e9, 0)}
}

// fetchAnswer makes a request, and reads the answer in pieces of 10 KB, 10 ms apart.
func (p *playedStream) fetchAnswer(size unit.Bytes) {
	p.RecordMovedBytes(p.now, true, 300)
	p.now = p.now.Add(50 * time.Millisecond)
	for left := size; left > 0; left -= min(left, 10_000) {
		p.RecordMovedBytes(p.now, false, min(left, 10_000))
		p.now = p.now.Add(10 * time.Millisecond)
	}
	p.now = p.now.Add(-9 * time.Millisecond) // the next request is made 1 ms after the last bytes
}

// teachSizes makes streams with one answer each.
func (m *historyMemory) teachSizes(sizes ...unit.Bytes) {
	for _, size := range sizes {
		s := openStream(m)
		s.fetchAnswer(size)
		s.RecordEnd(s.now, true)
	}
}

// TestStreamHistory checks where messages are expected to end.
func TestStreamHistory(t *testing.T) {
	for _, c := range []struct {
		name   string
		known  []unit.Bytes
		play   func(*playedStream)
		wanted []string
	}{
		{"an unknown destination", nil, func(s *playedStream) { s.fetchAnswer(700_000) }, nil},
		{"one answer", []unit.Bytes{7e5, 7e5, 7e5}, func(s *playedStream) { s.fetchAnswer(700_000) },
			[]string{"down 700000 at 0"}},
		{"three, one after the other", []unit.Bytes{7e5, 7e5, 7e5}, func(s *playedStream) {
			for range 3 {
				s.fetchAnswer(700_000)
			}
		}, []string{"down 700000 at 0", "down 1400000 at 700000", "down 2100000 at 1400000"}},
		{"a shorter one", []unit.Bytes{7e5, 7e5, 7e5}, func(s *playedStream) {
			s.fetchAnswer(400_000)
			s.fetchAnswer(700_000)
		}, []string{"down 700000 at 0", "down 1100000 at 410000"}},
		{"a longer one", []unit.Bytes{7e5, 7e5, 7e5}, func(s *playedStream) { s.fetchAnswer(900_000) },
			[]string{"down 700000 at 0", "down 0 at 710000"}},
		{"a pause", []unit.Bytes{7e5, 7e5, 7e5}, func(s *playedStream) {
			s.fetchAnswer(700_000)
			s.now = s.now.Add(time.Minute)
			s.fetchAnswer(700_000)
		}, []string{"down 700000 at 0", "down 1400000 at 700000"}},
		{"a request while an answer pauses, and goes on", []unit.Bytes{7e5, 7e5, 7e5}, func(s *playedStream) {
			s.fetchAnswer(100_000)
			s.now = s.now.Add(40 * time.Millisecond)
			s.RecordMovedBytes(s.now, true, 300)
			s.RecordMovedBytes(s.now.Add(10*time.Millisecond), false, 10_000)
		}, []string{"down 700000 at 0", "down 800000 at 100000", "down 700000 at 110000"}},
		{"a dropped expectation", []unit.Bytes{7e5, 7e5, 7e5}, func(s *playedStream) {
			s.fake.full = true
			s.RecordMovedBytes(s.now, true, 300)
			s.fake.full = false
			s.now = s.now.Add(50 * time.Millisecond)
			s.RecordMovedBytes(s.now, false, 10_000)
		}, []string{"down 700000 at 10000"}},
	} {
		var m historyMemory
		m.teachSizes(c.known...)
		s := openStream(&m)
		c.play(s)
		for _, want := range c.wanted {
			if !slices.Contains(s.fake.expected, want) {
				t.Errorf("%s: %q is not in %q", c.name, want, s.fake.expected)
			}
		}
		if n := len(s.fake.expected); c.wanted == nil && n > 0 || n > 2*max(len(c.wanted), 1)+1 {
			t.Errorf("%s: %d expectations: %q", c.name, n, s.fake.expected)
		}
	}
}

// TestUploadsAreExpected checks that each upload of a stream is expected, and passed on once.
func TestUploadsAreExpected(t *testing.T) {
	var m historyMemory
	upload := func(s *playedStream) {
		for range 70 {
			s.RecordMovedBytes(s.now, true, 10_000)
			s.now = s.now.Add(10 * time.Millisecond)
		}
		s.RecordMovedBytes(s.now.Add(50*time.Millisecond), false, 200)
		s.now = s.now.Add(60 * time.Millisecond)
	}
	for range 3 {
		s := openStream(&m)
		upload(s)
		s.RecordEnd(s.now, true)
	}
	s := openStream(&m)
	upload(s)
	upload(s)
	want := []string{"up 700000 at 10000", "down 200 at 0", "up 1400000 at 710000", "down 400 at 200"}
	if !slices.Equal(s.fake.expected, want) {
		t.Errorf("%q, want %q", s.fake.expected, want)
	}
}

// TestCutStreams checks that a stream that was cut teaches nothing but the messages before.
func TestCutStreams(t *testing.T) {
	var m historyMemory
	s := openStream(&m)
	s.fetchAnswer(700_000)
	s.fetchAnswer(100_000)
	s.RecordEnd(s.now, false)
	names := m.hashNames("player", "video.example:443")
	if d := m.state.Lookup(names.ofApp[0]); d == nil || !slices.Equal(d.Sizes, []unit.Bytes{700_000}) {
		t.Errorf("learnt %+v", d)
	}
}

// TestAnswerForecasts checks that the times of answers are compared with forecasts.
func TestAnswerForecasts(t *testing.T) {
	var m historyMemory
	m.teachSizes(700_000, 20_000)
	list, _ := m.listForecasts()
	if len(list) != 1 || list[0].Took != 680*time.Millisecond || list[0].Bytes != 680_000 || list[0].Subflows != 1 {
		t.Errorf("%d forecasts: %+v", len(list), list)
	}
}

// TestRhythmOfSegments checks that a player's segments are needed later once it has fetched some at
// regular intervals over several connections, at once again after a seek and where one is much longer,
// and that sound is needed when the video is.
func TestRhythmOfSegments(t *testing.T) {
	var m historyMemory
	m.teachSizes(750_000, 750_000, 750_000)
	streams := []*playedStream{openStream(&m), openStream(&m)}
	start := streams[0].now
	// fetch plays a request and returns the last expectation of its answer.
	fetch := func(i int, at time.Duration, size unit.Bytes) (last string) {
		s := streams[i%2]
		s.now, s.fake.expected = start.Add(at), nil
		s.fetchAnswer(size)
		for _, text := range s.fake.expected {
			if strings.HasPrefix(text, "down") {
				last = text
			}
		}
		return last
	}
	const s = time.Second
	for i := range 5 {
		fetch(i, time.Duration(i)*10*time.Millisecond, 750_000)
	}
	for i, c := range []struct {
		name string
		at   time.Duration
		size unit.Bytes
		want string
	}{
		{"first", 5 * s, 750_000, ""},
		{"second", 10 * s, 750_000, ""},
		{"third", 15 * s, 750_000, " in 1.666666666s"},
		{"fourth", 20 * s, 750_000, " in 1.666666666s"},
		{"sound", 20*s + 200*time.Millisecond, 750_000, " in 1.466666666s"},
		{"after a seek", 21 * s, 750_000, ""},
		{"5 s later", 26 * s, 750_000, " in 1.666666666s"},
		{"a long one", 31 * s, 2_000_000, ""},
	} {
		text := fetch(i, c.at, c.size)
		if _, in, _ := strings.Cut(text, " in "); text == "" || in != strings.TrimPrefix(c.want, " in ") {
			t.Errorf("%s: %q, want %q", c.name, text, c.want)
		}
	}
}
