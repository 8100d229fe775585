// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"slices"
	"testing"
	"time"

	"mpbond/core/sched"
	"mpbond/link/estimate"
	"mpbond/link/wire"
)

// TestOpenGoesWithFirstByte: the first byte of a stream goes with OPEN, also over another subflow
// than the first OPEN. Later bytes do not.
func TestOpenGoesWithFirstByte(t *testing.T) {
	minpad, err := sched.New("minpad") // it never waits
	if err != nil {
		t.Fatal(err)
	}
	b := New(Config{OpensStreams: true, Scheduler: minpad})
	for id := wire.SubflowID(1); id <= 2; id++ {
		b.AddSubflow(id, false, start)
		b.ObserveLocalHop(id, start, estimate.Hop{SRTT: 50 * time.Millisecond, MinRTT: 50 * time.Millisecond,
			Cwnd: 100_000, MSS: 1448})
	}
	s, err := b.OpenStream("a:1")
	if err != nil {
		t.Fatal(err)
	}
	want := func(on wire.SubflowID, types ...wire.Type) {
		t.Helper()
		b.MarkIdle(on)
		id, seg := b.NextSegment(start, nil)
		var got []wire.Type
		if err := eachFrame(seg, func(t wire.Type, _ []byte) error { got = append(got, t); return nil }); err != nil {
			t.Fatal(err)
		}
		if id != on || !slices.Equal(got, types) {
			t.Errorf("frames %v on subflow %d, want %v on %d", got, id, types, on)
		}
		b.BeginSegment(id)
	}
	want(1, wire.TypeOpen, wire.TypeWindow)
	s.Write(make([]byte, 100))
	want(2, wire.TypeOpen, wire.TypeData)
	s.Write(make([]byte, 100))
	want(1, wire.TypeData)
}
