// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"mpbond/base/unit"
)

// historyOf returns the history of a destination with messages of these sizes.
func historyOf(sizes ...unit.Bytes) (h History) {
	for i, size := range sizes {
		h.Record(time.Unix(1e9+int64(i), 0), "x", size)
	}
	return h
}

// repeatSize returns n sizes.
func repeatSize(n int, size unit.Bytes) []unit.Bytes { return slices.Repeat([]unit.Bytes{size}, n) }

// TestHistoryLearnsSizes checks that the size of messages of a destination is expected after a few,
// that an old habit is expected no more as soon as it has ended, and that a new one replaces it.
func TestHistoryLearnsSizes(t *testing.T) {
	for _, c := range []struct {
		name      string
		sizes     []unit.Bytes
		sent      unit.Bytes
		low, high unit.Bytes // 0: nothing is expected
	}{
		{"nothing", nil, 0, 0, 0},
		{"one message", repeatSize(1, 512*unit.KB), 0, 0, 0},
		{"ranges of a song", repeatSize(3, 512*unit.KB), 0, 512 * unit.KB, 512 * unit.KB},
		{"within a range", repeatSize(3, 512*unit.KB), 100 * unit.KB, 412 * unit.KB, 412 * unit.KB},
		{"longer than all before", repeatSize(3, 512*unit.KB), 512 * unit.KB, 0, 0},
		{"small messages", repeatSize(3, 800), 0, 800, 800},
		{"sizes that vary by a third", []unit.Bytes{900e3, 700e3, 1200e3, 800e3, 1e6}, 0, 800e3, 1e6},
		{"much, then a small message", append(repeatSize(15, 20*unit.MB), 800), 0, 0, 0},
		{"much, then 100 KB", append(repeatSize(15, 20*unit.MB), 100*unit.KB), 0, 0, 0},
		{"small messages, then much", append(repeatSize(15, 800), 20*unit.MB), 0, 0, 0},
		{"small messages, then much, 16 times", append(repeatSize(15, 800), repeatSize(16, 20*unit.MB)...), 0,
			20 * unit.MB, 20 * unit.MB},
		{"nine small messages to one large", slices.Repeat(append(repeatSize(9, 500), 10*unit.MB), 5), 0, 500, 500},
		{"the large one of them", slices.Repeat(append(repeatSize(9, 500), 10*unit.MB), 5), unit.MB, 9 * unit.MB,
			9 * unit.MB},
	} {
		h := historyOf(c.sizes...)
		more, ok := h.Lookup("x").ExpectBeyond(c.sent)
		if ok != (c.high > 0) || more < c.low || more > c.high {
			t.Errorf("%s: after %v another %v is expected (%v), want %v to %v", c.name, c.sent, more, ok, c.low, c.high)
		}
	}
}

// TestHistoryYields checks that the plain guess stays where sizes have no habit.
func TestHistoryYields(t *testing.T) {
	var h History
	random := rand.New(rand.NewPCG(5, 6))
	expected := 0
	for range 500 { // as likely in each power of two
		h.Record(time.Unix(1e9, 0), "x", unit.Bytes(1)<<(10+random.IntN(18)))
		if _, ok := h.Lookup("x").ExpectBeyond(0); ok {
			expected++
		}
	}
	if expected > 25 {
		t.Errorf("sizes without a habit are expected %d times: %+v", expected, h.Lookup("x"))
	}
}

// TestHistoryIsBounded checks that 100,000 destinations leave the latest ones, also after the clock
// was set back, and that malformed entries of a file are dropped.
func TestHistoryIsBounded(t *testing.T) {
	var h History
	for i := range 100_000 {
		h.Record(time.Unix(int64(i), 0), fmt.Sprint(i), 1000)
	}
	if n := len(h.List); n < maxDestinations || n > maxDestinations*9/8 || h.Lookup("99999") == nil ||
		h.Lookup("0") != nil {
		t.Errorf("%d destinations", n)
	}
	data, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	var again History
	if err := json.Unmarshal(data, &again); err != nil {
		t.Fatal(err)
	}
	newest := func(d Destination) *Destination { d.Last = time.Unix(99_999, 0); return &d }
	for name, d := range map[string]*Destination{"nil": nil, "empty": newest(Destination{}),
		"long":     newest(Destination{Sizes: repeatSize(maxRemembered+1, 1)}),
		"negative": newest(Destination{Sizes: []unit.Bytes{-5}}),
		"error":    newest(Destination{Sizes: []unit.Bytes{5}, OwnError: 1e300})} {
		again.List[name] = d
	}
	again.Trim(time.Unix(50_000, 0)) // the clock was set back
	for _, name := range []string{"nil", "empty", "long", "negative", "error"} {
		if again.Lookup(name) != nil {
			t.Errorf("%q is kept", name)
		}
	}
	if len(again.List) != maxDestinations || again.Lookup("99999") == nil {
		t.Errorf("%d destinations are left", len(again.List))
	}
	for i := range 1000 { // new ones count as newer than those of the future
		again.Record(time.Unix(50_001+int64(i), 0), fmt.Sprint("new", i), 1000)
	}
	for i := range 1000 {
		if again.Lookup(fmt.Sprint("new", i)) == nil {
			t.Fatalf("destination %d after the clock was set back is dropped", i)
		}
	}
}

// TestHistoryClone checks that a copy shares nothing.
func TestHistoryClone(t *testing.T) {
	h := historyOf(1000, 1000)
	h.RecordBegin(time.Unix(1e9, 0), "x")
	h.RecordBegin(time.Unix(1e9+1, 0), "x")
	c := h.Clone()
	h.Lookup("x").Sizes[0], h.Lookup("x").Intervals[0] = 5, 5
	if d := c.Lookup("x"); d.Sizes[0] != 1000 || d.Intervals[0] != time.Second || len(c.List) != 1 {
		t.Errorf("%+v", d)
	}
}

// TestRhythm checks which times between requests are a rhythm.
func TestRhythm(t *testing.T) {
	const s = time.Second
	repeat := func(n int, d ...time.Duration) []time.Duration { return slices.Repeat(d, n) }
	for _, c := range []struct {
		name  string
		times []time.Duration // between the beginnings of requests
		want  time.Duration
	}{
		{"nothing", nil, 0},
		{"two intervals", repeat(2, 5*s), 0},
		{"three", repeat(3, 5*s), 5 * s},
		{"three that vary a little", []time.Duration{50 * s, 55 * s, 48 * s}, 48 * s},
		{"three that vary", []time.Duration{5 * s, 8 * s, 5 * s}, 0},
		{"at once, then three", []time.Duration{0, 0, 5 * s, 5 * s, 5 * s}, 5 * s},
		{"with a handshake each", repeat(3, 5*s, s/20), 5*s + s/20},
		{"sound and subtitles too", repeat(3, 5*s, s/100, s/100), 5*s + s/50},
		{"a request much later", append(repeat(3, 5*s), time.Hour), 0},
		{"the buffer is filled again", append(repeat(10, 5*s), s/10, s/10, s/10), 0},
		{"the second video", append(repeat(10, 5*s), time.Hour, s/10, s/10, s/10, s/10, 5*s), 5*s + s/10},
		{"one after the other", repeat(15, s*3/4), 0},
		{"each day", repeat(10, 24*time.Hour), 0},
		{"a person", []time.Duration{3 * s, 9 * s, 2 * s, 5 * s, 14 * s, 4 * s, 7 * s}, 0},
		{"by chance", []time.Duration{4 * s, 9 * s, 4 * s, 20 * s, 2 * s, 4500 * time.Millisecond}, 0},
	} {
		h := historyOf(1000)
		now := time.Unix(1e9, 0)
		h.RecordBegin(now, "x")
		for _, x := range c.times {
			now = now.Add(x)
			h.RecordBegin(now, "x")
		}
		d := h.Lookup("x")
		if got := d.Rhythm(); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		if at := d.NeededAt(1000); at.IsZero() != (c.want == 0) || !at.IsZero() && at != d.BurstBegin.Add(c.want/3) {
			t.Errorf("%s: needed at %v, the burst began at %v", c.name, at, d.BurstBegin)
		}
		if at := d.NeededAt(2001); !at.IsZero() {
			t.Errorf("%s: twice the longest message is needed at %v", c.name, at)
		}
	}
	if d := (*Destination)(nil); d.Rhythm() != 0 || !d.NeededAt(0).IsZero() {
		t.Error("an unknown destination has a rhythm")
	}
}

// TestIntervalsAreBounded checks that intervals are bounded and never negative, that beginnings alone
// make no destination, and that malformed ones of a file are dropped.
func TestIntervalsAreBounded(t *testing.T) {
	h := historyOf(1000)
	if h.RecordBegin(time.Unix(1e9, 0), "unknown") {
		t.Error("the beginning of an unknown message is recorded")
	}
	for i := range 100 {
		if !h.RecordBegin(time.Unix(1e9+int64(i), 0), "x") {
			t.Fatal("a beginning is not recorded")
		}
	}
	d := h.Lookup("x")
	if len(h.List) != 1 || len(d.Intervals) != maxRemembered || d.Rhythm() != time.Second {
		t.Errorf("%d destinations; %+v", len(h.List), d)
	}
	h.RecordBegin(time.Unix(5, 0), "x") // the clock was set back
	if len(d.Intervals) > 0 || d.BurstBegin.Unix() != 5 || d.Rhythm() != 0 {
		t.Errorf("after the clock was set back: %+v", d)
	}
	for name, bad := range map[string][]time.Duration{"negative": {-1},
		"too many": make([]time.Duration, maxRemembered+1)} {
		h.List[name] = &Destination{Sizes: repeatSize(1, 5), Intervals: bad}
	}
	h.List["ahead"] = &Destination{Sizes: repeatSize(1, 5), BurstBegin: time.Unix(2e9, 0)}
	h.Trim(time.Unix(1e9, 0))
	if len(h.List) != 2 || h.Lookup("ahead") == nil || h.Lookup("ahead").BurstBegin.Unix() != 1e9 {
		t.Errorf("%d are left: %+v", len(h.List), h.Lookup("ahead"))
	}
}
