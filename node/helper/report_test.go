// SPDX-License-Identifier: Apache-2.0

package helper

import (
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/unit"
	"mpbond/link/estimate"
	"mpbond/link/pipe"
	"mpbond/link/wire"
)

// reportSink collects the reports on a link.
type reportSink struct {
	ofPipe bool // keep only reports about a pipe

	mu  sync.Mutex
	all []wire.HopState
	at  []time.Time
}

func (r *reportSink) recordFrom(l interface{ OnState(func(wire.HopState)) }) {
	l.OnState(func(s wire.HopState) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.ofPipe && !s.AboutPipe {
			return
		}
		r.all, r.at = append(r.all, s), append(r.at, time.Now())
	})
}

// takeReports returns the reports since the last call. It checks that they are in order and, if
// read as they came, not too frequent.
func (r *reportSink) takeReports(t *testing.T, asItCame bool) (all []wire.HopState, at []time.Time) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := 1; i < len(r.all); i++ {
		if r.all[i].Received < r.all[i-1].Received || r.all[i].Forwarded < r.all[i-1].Forwarded {
			t.Errorf("counts go back: %+v after %+v", r.all[i], r.all[i-1])
		}
		if d := r.at[i].Sub(r.at[i-1]); asItCame && d < reportFast {
			t.Errorf("two reports within %v", d)
		}
	}
	all, at, r.all, r.at = r.all, r.at, nil, nil
	return all, at
}

// readSlowly reads n bytes at rate r.
func readSlowly(t *testing.T, l pipe.Hop, n int, r unit.Rate) {
	t.Helper()
	const sip = 8 << 10
	for buf := make([]byte, sip); n > 0; n -= sip {
		if _, err := io.ReadFull(l, buf); err != nil {
			t.Fatal(err)
		}
		time.Sleep(r.Time(sip))
	}
}

// TestReportsOfPipe: the pipe drains a burst from the server slowly. Its state goes over the
// HS-path while that receives data, then over the pipe, although the primary's ACKs go on, and
// stops when all is delivered.
func TestReportsOfPipe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, rate = 1 << 20, 4 * unit.Mbps
		w := newTestWorld(t, inMemory, "x:1", Config{})
		p, s, _ := w.joinSubflow()
		atServer, atPrimary := reportSink{}, reportSink{ofPipe: true}
		atServer.recordFrom(s)
		atPrimary.recordFrom(p)
		go func() { _, _ = io.Copy(io.Discard, s) }()
		go func() { _, _ = io.Copy(struct{ io.Writer }{s}, newNoise(n, 1)) }()
		began := time.Now()
		go func() {
			for range 20 {
				time.Sleep(activeLeast / 2)
				_, _ = p.Write([]byte("an ACK"))
			}
		}()
		readSlowly(t, p, n, rate)
		took := time.Since(began)
		go func() { _, _ = io.Copy(io.Discard, p) }() // keeps reading
		time.Sleep(time.Second)

		hs, hsAt := atServer.takeReports(t, true)
		onPipe, pipeAt := atPrimary.takeReports(t, false)
		if len(hs) == 0 || len(onPipe) == 0 {
			t.Fatalf("%d reports on the HS-path, %d on the pipe", len(hs), len(onPipe))
		}
		if last := hsAt[len(hs)-1]; last.Sub(began) > awakeTime+reportFast || pipeAt[0].Before(last) {
			t.Errorf("the HS-path was idle from the start, and got a report after %v", last.Sub(began))
		}
		for _, r := range hs {
			if r.AboutPipe {
				t.Error("a report to the server says that it is of the pipe")
			}
		}
		last := onPipe[len(onPipe)-1]
		if last.Received != n || last.Forwarded != n {
			t.Errorf("the last report is %+v", last)
		}
		if last.AppLimited || last.Rate < rate*8/10 || last.Rate > rate*12/10 {
			t.Errorf("rate %v, app-limited %v; the pipe took %v", last.Rate, last.AppLimited, rate)
		}
		// In bytes: a report, its frame header and TLS record.
		if cost := (len(hs) + len(onPipe)) * (20 + wire.HeaderLen + 22); cost > n/100 {
			t.Errorf("%d reports in %v cost %d bytes for %d", len(hs)+len(onPipe), took, cost, n)
		}

		time.Sleep(time.Hour)
		hs, _ = atServer.takeReports(t, true)
		onPipe, _ = atPrimary.takeReports(t, false)
		if len(hs)+len(onPipe) > 0 {
			t.Error("an idle subflow got reports")
		}
		p.Close()
		s.Close()
		w.stop()
	})
}

// TestReportsHaveTheirKey: each subflow's reports have tags of its own key and are invalid with
// another key.
func TestReportsHaveTheirKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 256 << 10
		w := newTestWorld(t, inMemory, "x:1", Config{})
		p1, s1, _ := w.joinSubflow()
		p2, s2, _ := w.joinSubflow()
		if err := s2.Authenticate(p1.HopKey(), nil); err != nil {
			t.Fatal(err)
		}
		for i, c := range []struct {
			p *pipe.Link
			s *pipe.HSPath
		}{{p1, s1}, {p2, s2}} {
			var atServer reportSink
			atServer.recordFrom(c.s)
			go func() { _, _ = io.Copy(io.Discard, c.s) }()
			go func() { _, _ = io.Copy(struct{ io.Writer }{c.s}, newNoise(n, 1)) }()
			readSlowly(t, c.p, n, 4*unit.Mbps)
			time.Sleep(time.Second)
			got, _ := atServer.takeReports(t, true)
			if own := i == 0; (len(got) > 0) != own || (c.s.Rejected() == 0) != own {
				t.Errorf("subflow %d: %d reports, %d rejected", i+1, len(got), c.s.Rejected())
			}
			c.p.Close()
			c.s.Close()
		}
		w.stop()
	})
}

// TestReportsOfHS: an upload that the server takes slowly is reported to the primary while the pipe
// carries it.
func TestReportsOfHS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, rate = 1 << 20, 4 * unit.Mbps
		w := newTestWorld(t, inMemory, "x:1", Config{Buffer: 128 << 10})
		p, s, _ := w.joinSubflow()
		var atServer, atPrimary reportSink
		atServer.recordFrom(s)
		atPrimary.recordFrom(p)
		go func() { _, _ = io.Copy(io.Discard, p) }()
		go func() { _, _ = io.Copy(struct{ io.Writer }{p}, newNoise(n, 1)) }()
		readSlowly(t, s, n, rate)
		all, _ := atPrimary.takeReports(t, false)
		if len(all) < 10 {
			t.Fatalf("%d reports", len(all))
		}
		var most uint64
		for _, r := range all {
			if r.AboutPipe {
				t.Error("a report of the HS-path says that it is of the pipe")
			}
			most = max(most, r.Received-r.Forwarded)
		}
		if most < 128<<10 || most > 256<<10 {
			t.Errorf("backlog of at most %d reported; the ring holds 128 KB, the carrier 64 KB", most)
		}
		// The server's end reads all that the carrier holds at once, so the rate over a short span
		// is no better than this.
		if last := all[len(all)-1]; last.AppLimited || last.Rate < rate/2 || last.Rate > 2*rate {
			t.Errorf("rate %v, app-limited %v", last.Rate, last.AppLimited)
		}
		if got, _ := atServer.takeReports(t, true); len(got) > 0 {
			t.Error("the server got a report about a pipe that carried nothing to the primary")
		}
		p.Close()
		s.Close()
		w.stop()
	})
}

// TestReportsAfterSleep: data after a long silence wakes the reporter at once.
func TestReportsAfterSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorld(t, inMemory, "x:1", Config{})
		p, s, _ := w.joinSubflow()
		var atServer reportSink
		atServer.recordFrom(s)
		go func() { _, _ = io.Copy(io.Discard, s) }()
		go func() { _, _ = io.Copy(io.Discard, p) }()
		for range 3 {
			time.Sleep(time.Hour)
			began := time.Now()
			_, _ = s.Write([]byte("x"))
			time.Sleep(time.Second)
			_, at := atServer.takeReports(t, true)
			if len(at) == 0 || at[0].Sub(began) > 2*reportFast || len(at) > 2 {
				t.Errorf("reports %v after the data", at)
			}
		}
		p.Close()
		s.Close()
		w.stop()
	})
}

func TestDue(t *testing.T) {
	now := time.Now()
	last := wire.HopState{Received: 100_000, Forwarded: 50_000}
	for name, c := range map[string]struct {
		read, forwarded uint64
		since           time.Duration
		want            bool
	}{
		"nothing moved":       {100_000, 50_000, time.Hour, false},
		"slow":                {100_001, 50_000, reportSlow, true},
		"too few bytes":       {110_000, 50_000, reportFast, false},
		"too soon":            {200_000, 50_000, reportFast - 1, false},
		"backlog grew":        {120_000, 50_000, reportFast, true},
		"backlog is the same": {120_000, 70_000, reportFast, false},
		"drained":             {100_000, 100_000, reportFast, true},
	} {
		d := &direction{}
		d.bytesRead.Store(c.read)
		r := hopReport{direction: d, last: last, sentAt: now.Add(-c.since)}
		r.last.AppLimited = true // as with an empty meter
		if _, ok := r.dueHopReport(&hopWatch{forwardedBytes: c.forwarded}, now); ok != c.want {
			t.Errorf("%s: %v", name, ok)
		}
	}
}

func TestFeedbackModes(t *testing.T) {
	// In use: both, HS-path, pipe, neither.
	for name, want := range map[string][4]reportRoute{
		"":                {routeHS, routeHS, routePipe, routeNone},
		"flexible":        {routeHS, routeHS, routePipe, routeNone},
		"fixed-always":    {routeHS, routeHS, routeHS, routeHS},
		"fixed-on-demand": {routeHS, routeHS, routeNone, routeNone},
	} {
		mode := feedbackModes[name]
		if got := [4]reportRoute{mode(true, true), mode(true, false), mode(false, true), mode(false, false)}; got != want {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
	for _, name := range FeedbackModes() {
		if feedbackModes[name] == nil {
			t.Errorf("there is no %s", name)
		}
	}
	if len(FeedbackModes())+1 != len(feedbackModes) {
		t.Error("not every mode is named")
	}
}

func TestInUse(t *testing.T) {
	now := time.Now()
	h := hopWatch{lastUsed: now.Add(-time.Second), state: estimate.Hop{SRTT: 400 * time.Millisecond}}
	if !h.wasUsedRecently(now) || h.wasUsedRecently(now.Add(time.Second)) {
		t.Error("three round trips are not what counts")
	}
	if (&hopWatch{}).wasUsedRecently(now) || (&hopWatch{}).radioAwake(now) {
		t.Error("a hop that never carried anything is in use")
	}
}
