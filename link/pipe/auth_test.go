// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"mpbond/base/unit"
	"mpbond/link/estimate"
	"mpbond/link/wire"
)

// hopAuthFrame returns a HOP_AUTH frame with f, made with the given key.
func hopAuthFrame(key wire.HopKey, counter uint64, f wire.Frame) []byte {
	s := signer{tagger: newTagger(key), counter: counter - 1}
	return s.appendAuth(nil, f)
}

// oneByteData is a HOP_DATA frame with one byte.
var oneByteData = append(wire.AppendHeader(nil, wire.TypeHopData, 1), 9)

// pacedConn is a connection that records its pace.
type pacedConn struct {
	Conn
	limit unit.Rate
}

func (p *pacedConn) Pace(r unit.Rate) error { p.limit = r; return nil }

func (p *pacedConn) Probe() (estimate.Hop, error) { return estimate.Hop{PacingLimit: p.limit}, nil }

// TestForgedReports checks that frames without a valid tag, repeated ones and early ones have no
// effect, and that the subflow continues.
func TestForgedReports(t *testing.T) {
	const rate = 5 * unit.Mbps
	state := func(n uint64) wire.HopState { return wire.HopState{Received: n, Forwarded: n} }
	changed := func(at int, b []byte) []byte {
		b = slices.Clone(b)
		b[(at+len(b))%len(b)] ^= 1
		return b
	}
	limit := hopAuthFrame(hopKey, 1, wire.HopLimit{Rate: rate})
	report := hopAuthFrame(hopKey, 1, state(1))
	others := wire.HopKey{2}
	for name, c := range map[string]struct {
		early, late [][]byte // before and after the key is known
		reports     []uint64
		limit       unit.Rate
		why         []error
	}{
		"reports": {late: [][]byte{report, hopAuthFrame(hopKey, 2, state(2))},
			reports: []uint64{1, 2}},
		"one got lost": {late: [][]byte{report, hopAuthFrame(hopKey, 300, state(2))},
			reports: []uint64{1, 2}},
		"limit":             {late: [][]byte{limit}, limit: rate},
		"no limit any more": {late: [][]byte{limit, hopAuthFrame(hopKey, 2, wire.HopLimit{})}},
		"early report":      {early: [][]byte{report}},
		"early limit":       {early: [][]byte{limit}, limit: rate},
		"newest early limit": {early: [][]byte{hopAuthFrame(hopKey, 1, wire.HopLimit{}),
			hopAuthFrame(hopKey, 2, wire.HopLimit{Rate: rate})}, limit: rate},
		"early limit, forged": {early: [][]byte{hopAuthFrame(others, 1, wire.HopLimit{Rate: rate})},
			why: []error{ErrForged}},
		"early limit, again": {early: [][]byte{limit},
			late: [][]byte{hopAuthFrame(hopKey, 2, wire.HopLimit{}), limit}, why: []error{ErrRepeated}},
		"again": {late: [][]byte{report, report}, reports: []uint64{1}, why: []error{ErrRepeated}},
		"an older one": {late: [][]byte{hopAuthFrame(hopKey, 7, state(7)), hopAuthFrame(hopKey, 6,
			state(6)), hopAuthFrame(hopKey, 8, state(8))}, reports: []uint64{7, 8}, why: []error{ErrRepeated}},
		"counter 0": {late: [][]byte{hopAuthFrame(hopKey, 0, state(1))}, why: []error{ErrRepeated}},
		"of another subflow": {late: [][]byte{hopAuthFrame(others, 1, state(1)), report},
			reports: []uint64{1}, why: []error{ErrForged}},
		"another counter": {late: [][]byte{report,
			changed(wire.HeaderLen, hopAuthFrame(hopKey, 2, state(2)))}, reports: []uint64{1}, why: []error{ErrForged}},
		"another payload": {late: [][]byte{changed(wire.HeaderLen+2, report)}, why: []error{ErrForged}},
		"another tag":     {late: [][]byte{changed(-1, report)}, why: []error{ErrForged}},
		"a high counter forged": {late: [][]byte{changed(-1, hopAuthFrame(hopKey, 1<<63, state(9))), report},
			reports: []uint64{1}, why: []error{ErrForged}},
		"the highest counter": {late: [][]byte{hopAuthFrame(hopKey, 1<<64-1, state(1)), report},
			reports: []uint64{1}, why: []error{ErrRepeated}},
		"a report as a limit": {late: [][]byte{withType(report, wire.TypeHopLimit)}, why: []error{ErrForged}},
		"a limit as a report": {late: [][]byte{withType(limit, wire.TypeHopState)}, why: []error{ErrForged}},
		"forged, and out of range": {late: [][]byte{hopAuthFrame(others, 1, wire.HopLimit{Rate: 1})},
			why: []error{ErrForged}},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := MemoryPipe()
			conn := &pacedConn{Conn: b}
			go func() {
				_, _ = a.Write(wire.Append(nil, wire.Hello{Version: wire.Version, Name: "phone"}))
				for _, f := range [][][]byte{c.early, {oneByteData}, c.late, {oneByteData}} {
					_, _ = a.Write(slices.Concat(f...))
				}
				_ = a.CloseWrite()
			}()
			l, _, err := AcceptHS(t.Context(), conn)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			var reports []uint64
			var why []error
			l.OnState(func(s wire.HopState) { reports = append(reports, s.Received) })
			if _, err := io.ReadFull(l, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			if conn.limit != 0 {
				t.Errorf("before the key is known the pace is %v", conn.limit)
			}
			if err := l.Authenticate(hopKey, func(err error) { why = append(why, err) }); err != nil {
				t.Fatal(err)
			}
			if rest, err := io.ReadAll(l); len(rest) != 1 || err != nil {
				t.Errorf("then %d bytes came, %v", len(rest), err)
			}
			if !slices.Equal(reports, c.reports) || conn.limit != c.limit {
				t.Errorf("reports %v, pace %v; want %v, %v", reports, conn.limit, c.reports, c.limit)
			}
			if fmt.Sprint(why) != fmt.Sprint(c.why) || l.Rejected() != uint64(len(c.why)) {
				t.Errorf("%d rejected, for %v; want %v", l.Rejected(), why, c.why)
			}
		})
	}
}

// withType returns a HOP_AUTH frame with another type and the same tag.
func withType(frame []byte, typ wire.Type) []byte {
	f, err := wire.ParseHopAuth(frame[wire.HeaderLen:])
	if err != nil {
		panic(err)
	}
	f.Of = typ
	return wire.Append(nil, f)
}

// TestHopAuthOutOfPlace checks that only a server accepts HOP_AUTH, on an HS-path.
func TestHopAuthOutOfPlace(t *testing.T) {
	a, b := MemoryPipe()
	h, s := hsPathPair(t, a, b)
	go func() { _, _ = b.Write(hopAuthFrame(hopKey, 1, wire.HopState{})) }()
	if _, err := h.Read(make([]byte, 1)); !errors.Is(err, wire.ErrMalformed) {
		t.Errorf("a helper took a report: %v", err)
	}
	s.Close()
	a, b = connectPair(t, new(Memory), "")
	l, p := linkPair(t, a, b)
	l.buf = (&signer{tagger: newTagger(hopKey)}).appendAuth(l.buf, wire.HopState{})
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Read(make([]byte, 1)); !errors.Is(err, wire.ErrMalformed) {
		t.Errorf("a pipe took a HOP_AUTH: %v", err)
	}
}

// BenchmarkReport measures the cost of a report to helper and server, and its size.
func BenchmarkReport(b *testing.B) {
	state := wire.HopState{Received: 1 << 30, Forwarded: 1<<30 - 1<<17, Rate: 5 * unit.Mbps, RTT: 5e6}
	b.Run("bare", func(b *testing.B) {
		var buf []byte
		for b.Loop() {
			buf = wire.Append(buf[:0], state)
			if _, err := wire.ParseHopState(buf[wire.HeaderLen:]); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(len(buf)), "B/report")
	})
	s := signer{tagger: newTagger(hopKey)}
	v := verifier{tagger: newTagger(hopKey), hasKey: true}
	var buf []byte
	b.Run("helper", func(b *testing.B) {
		for b.Loop() {
			buf = s.appendAuth(buf[:0], state)
		}
		b.ReportMetric(float64(len(buf)), "B/report")
	})
	b.Run("server", func(b *testing.B) {
		for b.Loop() {
			v.maxCounter = 0
			f, ok, err := v.verifyHopAuth(buf[wire.HeaderLen:])
			if !ok || err != nil {
				b.Fatal(ok, err)
			}
			if _, err := wire.ParseHopState(f.Payload); err != nil {
				b.Fatal(err)
			}
		}
	})
	forged := slices.Clone(buf)
	forged[len(forged)-1] ^= 1
	b.Run("forged", func(b *testing.B) {
		for b.Loop() {
			if _, ok, err := v.verifyHopAuth(forged[wire.HeaderLen:]); ok || err != nil {
				b.Fatal(ok, err)
			}
		}
	})
}
