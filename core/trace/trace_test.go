// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"mpbond/base/unit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

// memory is a file in memory that may be stuck.
type memory struct {
	mu      sync.Mutex
	data    bytes.Buffer
	unblock chan struct{} // if set, each Write waits for it to be closed
	fail    error
}

func (m *memory) Write(p []byte) (int, error) {
	if m.unblock != nil {
		<-m.unblock
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return 0, m.fail
	}
	return m.data.Write(p)
}

func (m *memory) Close() error { return nil }

func (m *memory) text() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.data.String()
}

func all(t *testing.T, r io.Reader) (events []Event) {
	t.Helper()
	for e, err := range Read(r) {
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	return events
}

func TestEventIsCompactAndComplete(t *testing.T) {
	j, err := json.Marshal(Event{T: 5, Who: "primary", Kind: Segment, Subflow: 2, Length: 1400})
	if want := `{"t":5,"who":"primary","kind":"segment","subflow":2,"len":1400}`; err != nil || string(j) != want {
		t.Errorf("%s, %v; want %s", j, err, want)
	}
	full := Event{1, "w", Decision, "b", 2, "d", 3, 15, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, "r", "t"}
	if j, err = json.Marshal(full); err != nil {
		t.Fatal(err)
	}
	if got := all(t, bytes.NewReader(append(j, '\n'))); len(got) != 1 || got[0] != full {
		t.Errorf("%s read as %+v", j, got)
	}
	seen := map[Kind]bool{}
	for _, k := range Kinds() {
		if seen[k] || strings.ToLower(string(k)) != string(k) {
			t.Errorf("kind %q", k)
		}
		seen[k] = true
	}
}

func TestRecorder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.jsonl")
	r, err := Open(path, "primary", quiet)
	if err != nil {
		t.Fatal(err)
	}
	before := time.Now().UnixNano()
	var wg sync.WaitGroup
	for p := range 4 {
		wg.Go(func() {
			for i := range 1000 {
				r.Add(Event{Kind: Segment, Subflow: uint32(p + 1), Offset: uint64(i)})
			}
		})
	}
	wg.Wait()
	r.Add(Event{T: 7, Who: "other", Kind: Mark})
	r.Close()
	r.Close()
	r.Add(Event{Kind: Mark})
	if r.Enabled() {
		t.Error("on after Close")
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	events := all(t, f)
	next := map[uint32]uint64{}
	for _, e := range events[:len(events)-1] {
		if e.Kind != Segment || e.Who != "primary" || e.T < before || e.Offset != next[e.Subflow] {
			t.Fatalf("%+v, want offset %d", e, next[e.Subflow])
		}
		next[e.Subflow]++
	}
	if last := events[len(events)-1]; len(events) != 4001 || last != (Event{T: 7, Who: "other", Kind: Mark}) {
		t.Errorf("%d events, the last %+v", len(events), last)
	}
	if st, err := f.Stat(); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
}

func TestNilRecorder(t *testing.T) {
	r, err := Open("", "x", quiet)
	if r != nil || err != nil {
		t.Fatal(r, err)
	}
	r.Add(Event{Kind: Mark})
	r.Close()
	if r.Enabled() {
		t.Error("a nil Recorder is on")
	}
	if n := testing.AllocsPerRun(100, func() { r.Add(Event{Kind: Segment}) }); n > 0 {
		t.Errorf("%v allocations when off", n)
	}
}

// TestStuckDisk: Add returns while nothing can be written, memory is bounded, and lost events are
// counted.
func TestStuckDisk(t *testing.T) {
	m := &memory{unblock: make(chan struct{})}
	r := New(m, "p", quiet)
	const n = 4 * queueLen
	for i := range n {
		r.Add(Event{T: int64(i + 1), Kind: Segment})
	}
	close(m.unblock)
	r.Close()
	written, lost := 0, uint64(0)
	for _, e := range all(t, strings.NewReader(m.text())) {
		if e.Kind == Dropped {
			lost += e.Count
		} else {
			written++
		}
	}
	if lost == 0 || written < queueLen || uint64(written)+lost != n {
		t.Errorf("%d written, %d lost of %d", written, lost, n)
	}
}

// TestFlush: a reader sees events soon, not only when a buffer is full.
func TestFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		r := New(m, "p", quiet)
		defer r.Close()
		for i := range 3 {
			time.Sleep(time.Second)
			r.Add(Event{Kind: Mark})
			r.Add(Event{Kind: Mark})
			time.Sleep(flushEvery)
			synctest.Wait()
			if n := strings.Count(m.text(), "\n"); n != 2*(i+1) {
				t.Errorf("%d lines after %d events", n, 2*(i+1))
			}
		}
	})
}

func TestFullDisk(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("needs /dev/full:", err)
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, w := range map[string]io.WriteCloser{"device": full, "memory": &memory{fail: errors.New("no space left")}} {
		var log memory
		r := New(w, "p", slog.New(slog.NewTextHandler(&log, nil)))
		for r.Enabled() {
			r.Add(Event{Kind: Segment, Reason: strings.Repeat("x", 1000)})
		}
		for range 2 * queueLen {
			r.Add(Event{Kind: Segment})
		}
		r.Close()
		if n := strings.Count(log.text(), "level=ERROR"); n != 1 || !strings.Contains(log.text(), "no space left") {
			t.Errorf("%s: logged %d times: %s", name, n, log.text())
		}
	}
}

func TestOpenFails(t *testing.T) {
	if r, err := Open(filepath.Join(t.TempDir(), "none", "t"), "p", quiet); err == nil || r != nil {
		t.Errorf("%v, %v", r, err)
	}
}

func TestMerge(t *testing.T) {
	files := []string{
		"{\"t\":1,\"who\":\"a\"}\n{\"t\":5,\"who\":\"a\"}\n{\"t\":4,\"who\":\"a\"}\n",
		"",
		"{\"t\":0,\"who\":\"b\",\"new\":[1]}\n\n{\"t\":5,\"who\":\"b\"}\n{\"t\":9,\"who\":\"b\"}\n{\"t\":10,\"wh",
	}
	var in []io.Reader
	for _, f := range files {
		in = append(in, strings.NewReader(f))
	}
	var out strings.Builder
	if err := Merge(&out, in...); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range all(t, strings.NewReader(out.String())) {
		got = append(got, fmt.Sprint(e.Who, e.T))
	}
	if want := []string{"b0", "a1", "a5", "a4", "b5", "b9"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if !strings.Contains(out.String(), `"new":[1]`) {
		t.Error("a field of a later version was lost")
	}
}

func TestBadTraces(t *testing.T) {
	for _, in := range []string{"x\n", "{}\n", "[]\n", "{\"t\":\"1\"}\n", strings.Repeat("x", 2*maxLine) + "\n"} {
		good := "{\"t\":1,\"who\":\"a\"}\n"
		if err := Merge(io.Discard, strings.NewReader(good), strings.NewReader(good+in)); err == nil ||
			!strings.Contains(err.Error(), "file 2: trace, line 2") {
			t.Errorf("Merge of %.20q: %v", in, err)
		}
		var last error
		for _, err := range Read(strings.NewReader(good + in)) {
			last = err
		}
		if last == nil {
			t.Errorf("Read of %.20q gave no error", in)
		}
	}
	if err := Merge(&memory{fail: io.ErrShortWrite}, strings.NewReader("{\"t\":1}\n")); err == nil {
		t.Error("a failing writer was not noticed")
	}
}

func TestRing(t *testing.T) {
	for n := range 4 {
		r := NewRing[int](n)
		for i := range 10 {
			r.Add(i)
			want := []int{}
			for j := max(0, i+1-n); j <= i; j++ {
				want = append(want, j)
			}
			if got := r.All(); !slices.Equal(got, want) {
				t.Errorf("ring of %d after %d: %v, want %v", n, i, got, want)
			}
		}
	}
	var zero Ring[int]
	if zero.Add(1); len(zero.All()) != 0 {
		t.Error("a zero Ring keeps something")
	}
}

func FuzzRead(f *testing.F) {
	f.Add("{\"t\":1,\"who\":\"a\",\"rate\":5}\n")
	f.Add("{\"t\":1,\"rate\":\"5Mbit/s\"}\n{")
	f.Fuzz(func(t *testing.T, in string) {
		for e, err := range Read(strings.NewReader(in)) {
			if _, bad := json.Marshal(e); bad != nil && err == nil {
				t.Error(bad)
			}
		}
		_ = Merge(io.Discard, strings.NewReader(in), strings.NewReader(in))
	})
}

func BenchmarkAdd(b *testing.B) {
	r := New(&memory{}, "p", quiet)
	defer r.Close()
	e := Event{T: 1, Kind: Segment, Subflow: 1, Stream: 1, Length: 64 * unit.KB}
	b.ReportAllocs()
	for b.Loop() {
		r.Add(e)
	}
}

// TestNotifyChanges: a listener gets changes, with a file and without, and nothing else; a file
// gets everything.
func TestNotifyChanges(t *testing.T) {
	file := &memory{}
	for _, c := range []struct {
		r  *Recorder
		on bool
	}{{nil, false}, {New(file, "primary", quiet), true}} {
		var notified []Event
		r := c.r.NotifyChanges("primary", func(e Event) { notified = append(notified, e) })
		if r.Enabled() != c.on {
			t.Errorf("on: %v", r.Enabled())
		}
		add := r.AddFunc("b")
		changes := 0
		for _, k := range Kinds() {
			add(Event{Kind: k, Subflow: 1})
			if k.IsChange() {
				changes++
			}
		}
		r.Close()
		for _, e := range notified {
			if !e.Kind.IsChange() || e.Bond != "b" || e.Who != "primary" || e.T == 0 {
				t.Errorf("notified of %+v", e)
			}
		}
		if len(notified) != changes || changes == 0 {
			t.Errorf("notified of %d kinds of %d", len(notified), changes)
		}
	}
	if got := all(t, strings.NewReader(file.text())); len(got) != len(Kinds()) {
		t.Errorf("the file has %d of %d", len(got), len(Kinds()))
	}
	for _, k := range []Kind{Segment, Ack, Deliver, Decision, SubflowState, Duplicate, PipeState, HopReport} {
		if k.IsChange() {
			t.Errorf("%s is for each segment, or nearly so", k)
		}
	}
	var none *Recorder
	none.Add(Event{Kind: SubflowUp})
	none.Close()
}
