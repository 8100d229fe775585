// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/core/sched"
	"mpbond/link/estimate"
	"mpbond/link/wire"
)

// TestBytesAreNotPassedToAndFro: two slow subflows beside a quick one, and a
// scheduler that does not follow the estimates: it gives what was recalled from
// one slow subflow to the other. From there it is not recalled once more while
// the first one still carries it.
func TestBytesAreNotPassedToAndFro(t *testing.T) {
	const size = 1000
	for _, name := range sched.Names() {
		s, err := sched.New(name)
		if err != nil {
			t.Fatal(err)
		}
		b := New(Config{OpensStreams: true, Scheduler: s})
		for i, rtt := range []time.Duration{60, 50, 1} {
			id := wire.SubflowID(i + 1)
			b.AddSubflow(id, false, start)
			b.ObserveLocalHop(id, start, estimate.Hop{SRTT: rtt * time.Millisecond, MinRTT: rtt * time.Millisecond,
				Cwnd: 100_000, MSS: 1448})
		}
		st, err := b.OpenStream("a:1")
		if err != nil {
			t.Fatal(err)
		}
		st.Write(make([]byte, size))
		segments := 0
		for ; segments < 100; segments++ {
			for id := range wire.SubflowID(3) {
				b.MarkIdle(id + 1)
			}
			id, _ := b.NextSegment(start, nil)
			if id == 0 {
				break
			}
			b.BeginSegment(id)
		}
		t.Logf("%s: %d segments, recalled %v", name, segments, b.Stats().ReinjectedTail)
		if again := b.Stats().ReinjectedTail; segments == 100 || again > size {
			t.Errorf("%s: after %d segments %v of %v were sent again", name, segments, again, unit.Bytes(size))
		}
	}
}
