// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/core/sched"
	"mpbond/core/trace"
)

const ms = time.Millisecond

func fixedRate(r unit.Rate) []Step { return []Step{{0, r}} }

// newTriangle returns a download in the published setup, as if recorded.
func newTriangle(size unit.Bytes) *Recording {
	return &Recording{Sender: "server", Bond: "b", Streams: []Stream{{ID: 1, Size: size}}, Subflows: []Subflow{
		{ID: 1, Device: "primary", LocalHop: Hop{RTT: 50 * ms, Rates: fixedRate(8 * unit.Mbps),
			FirstWindow: 10 * segment, Window: 150_000}},
		{ID: 2, Device: "helper1", Helped: true, LocalHop: Hop{RTT: 70 * ms, Rates: fixedRate(10 * unit.Mbps),
			FirstWindow: 10 * segment, Window: 210_000},
			FarHop: Hop{RTT: 5 * ms, Rates: fixedRate(5 * unit.Mbps)}},
	}, Recorded: Result{Seconds: 10}}
}

func replayRun(t *testing.T, r *Recording, scheduler string, o Options) Result {
	t.Helper()
	s, err := sched.New(scheduler)
	if err != nil {
		t.Fatal(err)
	}
	res, err := r.Run(s, o)
	if err != nil {
		t.Fatalf("%s: %v", scheduler, err)
	}
	t.Logf("%-10s %.3f s, ended %.3f and %.3f, shares %.3f and %.3f, wasted %v", scheduler, res.Seconds,
		res.Subflows[0].Ended, res.Subflows[1].Ended, res.Subflows[0].Share, res.Subflows[1].Share, res.Wasted)
	return res
}

// recordTrace replays with a scheduler and reads the trace of that replay.
func recordTrace(t *testing.T, r *Recording, scheduler string, o Options) *Recording {
	t.Helper()
	var file bytes.Buffer
	enc := json.NewEncoder(&file)
	o.Trace = func(e trace.Event) {
		if err := enc.Encode(e); err != nil {
			t.Fatal(err)
		}
	}
	want := replayRun(t, r, scheduler, o)
	got, err := Read(trace.Read(&file))
	if err != nil {
		t.Fatal(err)
	}
	if got.Recorded.Seconds != want.Seconds || got.Recorded.EndedApart != want.EndedApart || got.Sender != r.Sender ||
		len(got.Notes) > 0 {
		t.Errorf("recorded %+v, read %+v", want, got)
	}
	return got
}

func isNear(a, b float64) bool { return a > b*0.95 && a < b*1.05 }

// TestTriangle: a trace of PAMS is enough to compute the time of PAMS and of minRTT: the published
// gap of 4.5 s at 10 MB.
func TestTriangle(t *testing.T) {
	truth := newTriangle(10 * unit.MB)
	off := Options{Eta: -1}
	recording := recordTrace(t, truth, "pams", off)
	for i, h := range []Hop{recording.Subflows[0].LocalHop, recording.Subflows[1].LocalHop,
		recording.Subflows[1].FarHop} {
		want := []unit.Rate{8 * unit.Mbps, 10 * unit.Mbps, 5 * unit.Mbps}[i]
		for _, s := range h.Rates {
			if !isNear(float64(s.Rate), float64(want)) {
				t.Errorf("hop %d, from %v: %v, want %v", i, s.At, s.Rate, want)
			}
		}
		if h.Measured < .3 {
			t.Errorf("hop %d is known for %.2f of the time", i, h.Measured)
		}
	}
	for _, name := range []string{"pams", "minrtt", "ecf", "ratio:0.3"} {
		if was, is := replayRun(t, truth, name, off), replayRun(t, recording, name, off); !isNear(is.Seconds, was.Seconds) {
			t.Errorf("%s: %.3f s over the rebuilt hops, %.3f over the true ones", name, is.Seconds, was.Seconds)
		}
	}
	if r := replayRun(t, recording, "minrtt", off); r.EndedApart < 4 || r.Subflows[1].Ended < r.Subflows[0].Ended {
		t.Errorf("minrtt ends %.3f s apart", r.EndedApart)
	}
	if r := replayRun(t, recording, "pams", off); r.EndedApart > .5 {
		t.Errorf("pams ends %.3f s apart", r.EndedApart)
	}
}

// TestChangesAreRebuilt: a hop that becomes slow, a hop with a short outage, and a subflow that
// leaves.
func TestChangesAreRebuilt(t *testing.T) {
	for name, change := range map[string]func(*Recording){
		"pipe slow from 1 s": func(r *Recording) {
			r.Subflows[1].FarHop.Rates = []Step{{0, 5 * unit.Mbps}, {time.Second, unit.Mbps}}
		},
		"PS-path dead for 0.8 s": func(r *Recording) {
			r.Subflows[0].LocalHop.Rates = []Step{{0, 8 * unit.Mbps}, {time.Second, 0}, {1800 * ms, 8 * unit.Mbps}}
		},
		"helper leaves": func(r *Recording) { r.Subflows[1].Down = time.Second },
	} {
		truth := newTriangle(4 * unit.MB)
		change(truth)
		recording := recordTrace(t, truth, "pams", Options{})
		if is := replayRun(t, recording, "pams", Options{}); is.Seconds < recording.Recorded.Seconds*.9 ||
			is.Seconds > recording.Recorded.Seconds*1.1 {
			t.Errorf("%s: %.3f s, recorded %.3f", name, is.Seconds, recording.Recorded.Seconds)
		}
	}
}

// TestRealRecording: a download of 2 MB in the lab (8/10/5, PAMS) with real TCP is replayed in
// about the recorded time.
func TestRealRecording(t *testing.T) {
	r := realRecording(t)
	if len(r.Subflows) != 2 || r.Subflows[0].Helped || !r.Subflows[1].Helped || r.Streams[0].Size < 2*unit.MB ||
		len(r.Notes) > 0 {
		t.Fatalf("%+v", r)
	}
	if is := replayRun(t, r, "pams", Options{}); !isNear(is.Seconds, r.Recorded.Seconds) {
		t.Errorf("replayed in %.3f s, recorded %.3f", is.Seconds, r.Recorded.Seconds)
	}
}

// realRecording reads that recording.
func realRecording(t *testing.T) *Recording {
	t.Helper()
	f, err := os.Open("testdata/triangle-8-10-5-2MB-pams.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Read(trace.Read(z))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestEveryScheduler: each scheduler, by name, replays a real recording with its own reasons, and
// the same way each time.
func TestEveryScheduler(t *testing.T) {
	r := realRecording(t)
	size := unit.Bytes(0)
	for _, s := range r.Streams {
		size += s.Size
	}
	own := map[string]sched.Reason{"auto": sched.BudgetSpent, "blest": sched.FastestIdle, "ecf": sched.FasterIsSoon,
		"minpad": sched.FastestIdle,
		"minrtt": sched.LeastRTT, "minrtt-windows": sched.WindowFull, "pams": sched.FasterIsSoon,
		"ratio":     sched.BehindShare,
		"redundant": sched.OnEverySubflow, "roundrobin": sched.NextInTurn}
	if len(r.Recorded.Decisions) == 0 {
		t.Error("the recording has no decisions")
	}
	for _, name := range append(sched.Names(), "ratio:0.3") {
		one, two := replayRun(t, r, name, Options{}), replayRun(t, r, name, Options{})
		if !reflect.DeepEqual(one, two) {
			t.Errorf("%s: two replays differ: %+v, %+v", name, one, two)
		}
		if one.Scheduler != name {
			t.Errorf("%s calls itself %s", name, one.Scheduler)
		}
		base, _, _ := strings.Cut(name, ":")
		if one.Decisions[own[base].String()] == 0 {
			t.Errorf("%s never decides because %q: %v", name, own[base], one.Decisions)
		}
		for other, reason := range own {
			foreign := reason == sched.LeastRTT || reason == sched.BehindShare || reason == sched.OnEverySubflow ||
				reason == sched.NextInTurn || reason == sched.WindowFull
			if foreign && other != base && !(reason == sched.LeastRTT && base == "minrtt-windows") &&
				one.Decisions[reason.String()] > 0 {
				t.Errorf("%s decides as %s: %v", name, other, one.Decisions)
			}
		}
		given := unit.Bytes(0)
		for _, p := range one.Subflows {
			given += p.Bytes
		}
		again := unit.Bytes(0)
		for _, n := range one.Wasted {
			again += n
		}
		if given < size || given > size+again {
			t.Errorf("%s gave %v of %v, %v of it again", name, given, size, again)
		}
	}
	if once := replayRun(t, r, "ratio:0.3", Options{Eta: -1}); !isNear(once.Subflows[0].Share, .3) {
		t.Errorf("ratio:0.3 gave the direct subflow %.3f", once.Subflows[0].Share)
	}
}

// TestBadTraces: each error has its reason and a hint.
func TestBadTraces(t *testing.T) {
	const seg = `{"t":1,"who":"server","kind":"segment","bond":"b","subflow":1,"stream":1,"len":1000,"count":1010}` + "\n"
	for _, c := range []struct {
		name, in, says string
		kind           fault.Kind
	}{
		{"empty", "", "not a trace", fault.Integrity},
		{"text", "hello\nworld\n", "line 1", fault.Integrity},
		{"other JSON", `{"t":1,"name":"x"}` + "\n", "not a trace", fault.Integrity},
		{"a line cut in the middle", seg[:40] + "\n" + seg, "line 1", fault.Integrity},
		{"no sender", `{"t":1,"who":"primary","kind":"deliver","bond":"b","stream":1,"len":5}` + "\n",
			"no sent segments", fault.NotFound},
		{"of an earlier version", strings.Replace(seg, `,"count":1010`, "", 1), "earlier", fault.Unsupported},
		{"too little", seg, "rate", fault.NotFound},
	} {
		_, err := Read(trace.Read(strings.NewReader(c.in)))
		if err == nil || !strings.Contains(err.Error(), c.says) || !fault.Is(err, c.kind) || fault.HintOf(err) == "" {
			t.Errorf("%s: %v (hint %q)", c.name, err, fault.HintOf(err))
		}
	}
}

// TestCutAnywhere: a trace without its end is read as far as possible. No cut does harm.
func TestCutAnywhere(t *testing.T) {
	var file bytes.Buffer
	enc := json.NewEncoder(&file)
	replayRun(t, newTriangle(256*unit.KB), "pams", Options{Trace: func(e trace.Event) { _ = enc.Encode(e) }})
	whole := file.Bytes()
	for n := 0; n < len(whole); n += 4999 {
		r, err := Read(trace.Read(bytes.NewReader(whole[:n])))
		if err == nil && r.Recorded.Seconds > 0 {
			if _, err := r.Run(sched.Redundant, Options{}); err != nil {
				t.Errorf("cut at %d: %v", n, err)
			}
		}
	}
}

// TestParts compares byteRanges with a model.
func TestParts(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var p byteRanges
		var model [64]bool
		for range 30 {
			from := rng.Uint64N(64)
			to := from + rng.Uint64N(64-from)
			want := unit.Bytes(0)
			for i := from; i < to; i++ {
				if !model[i] {
					model[i] = true
					want++
				}
			}
			if got := p.addArrivedRange(from, to); got != want {
				t.Fatalf("%d to %d: %d new, want %d", from, to, got, want)
			}
		}
		for i := 1; i < len(p.ranges); i++ {
			if p.ranges[i-1][1] >= p.ranges[i][0] {
				t.Fatalf("not apart: %v", p.ranges)
			}
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"t":1,"who":"s","kind":"segment","subflow":1,"stream":1,"len":1000,"count":1010}`))
	f.Add([]byte(`{"t":1,"kind":"subflow_state","subflow":1,"len":-5,"count":18446744073709551615,"srtt":-1}`))
	f.Fuzz(func(_ *testing.T, b []byte) {
		_, _ = Read(trace.Read(io.MultiReader(bytes.NewReader(b), strings.NewReader("\n"))))
	})
}

// makeSamples returns samples each 10 ms of a hop of 8 Mbit/s and 50 ms that carries at a rate with
// some bytes in flight.
func makeSamples(pieces ...struct {
	took  time.Duration
	rate  unit.Rate
	queue unit.Bytes
}) (list []hopSample) {
	at, done := time.Duration(0), uint64(0)
	for _, p := range pieces {
		for end := at + p.took; at < end; at += 10 * ms {
			list = append(list, hopSample{at, done, p.queue})
			done += uint64(p.rate.Bytes(10 * ms))
		}
	}
	return list
}

// TestMeasure: only what a hop carried at its limit determines its rate.
func TestMeasure(t *testing.T) {
	type piece = struct {
		took  time.Duration
		rate  unit.Rate
		queue unit.Bytes
	}
	m := unit.Mbps
	for _, c := range []struct {
		name        string
		pieces      []piece
		least, most unit.Rate
		measured    float64
	}{
		{"steady", []piece{{time.Second, 8 * m, 100_000}}, 8 * m, 8 * m, 1},
		{"slow source in the middle", []piece{{time.Second, 8 * m, 100_000}, {time.Second, m, 6_000},
			{time.Second, 8 * m, 100_000}}, 8 * m, 8 * m, .67},
		{"slow link in the middle", []piece{{time.Second, 8 * m, 100_000}, {time.Second, m, 100_000},
			{time.Second, 8 * m, 100_000}}, m, 8 * m, 1},
		{"dead in the middle", []piece{{time.Second, 8 * m, 100_000}, {time.Second, 0, 100_000},
			{time.Second, 8 * m, 100_000}}, 0, 8 * m, 1},
		{"slow start", []piece{{100 * ms, m, 30_000}, {100 * ms, 2 * m, 60_000}, {100 * ms, 4 * m, 120_000},
			{time.Second, 8 * m, 120_000}}, 8 * m, 8 * m, .75},
		{"never at its limit", []piece{{time.Second, 3 * m, 18_000}}, 3 * m, 3 * m, 0},
	} {
		h := Hop{RTT: 50 * ms}
		h.estimateRates(makeSamples(c.pieces...), 0)
		least, most := h.Rates[0].Rate, h.Rates[0].Rate
		for _, s := range h.Rates {
			least, most = min(least, s.Rate), max(most, s.Rate)
		}
		// A bin may span a change.
		if least > c.least+c.least/50 || least < c.least-c.least/50 || most > c.most+c.most/50 ||
			most < c.most-c.most/50 ||
			h.Measured > c.measured+.12 || h.Measured < c.measured-.12 {
			t.Errorf("%s: %v to %v, known for %.2f; want %v to %v, %.2f: %+v", c.name, least, most, h.Measured, c.least,
				c.most, c.measured, h.Rates)
		}
	}
}

// TestHelperPushesBack: no more than its buffer waits at a helper.
func TestHelperPushesBack(t *testing.T) {
	r := newTriangle(16 * unit.MB)
	r.Subflows[0].LocalHop.Rates, r.Subflows[1].LocalHop.Rates, r.Subflows[1].FarHop.Rates = fixedRate(2*unit.Mbps),
		fixedRate(50*unit.Mbps), fixedRate(2*unit.Mbps)
	r.Recorded.Seconds = 40
	most := unit.Bytes(0)
	replayRun(t, r, "minrtt", Options{Eta: -1, Trace: func(e trace.Event) {
		if e.Kind == trace.PipeState {
			most = max(most, e.FarBacklog)
		}
	}})
	if most > helperBuffer+256*unit.KB || most < helperBuffer/2 {
		t.Errorf("%v waited at the helper, which takes %v", most, helperBuffer)
	}
}
