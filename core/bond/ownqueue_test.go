// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"testing"
	"time"

	"mpbond/core/sched"
	"mpbond/link/estimate"
)

// TestOwnQueueLimit checks when a queue is limited, and that there is no limit for a while where it stays long.
func TestOwnQueueLimit(t *testing.T) {
	const ms = time.Millisecond
	interrupted := append(repeatQueue(300*ms, 12), 299*ms)
	interrupted = append(interrupted, interrupted...)
	for _, c := range []struct {
		name        string
		none, blind bool
		minRTT      time.Duration
		queue       []time.Duration // each 100 ms
		want        time.Duration   // at the end
	}{
		{"short", false, false, 50 * ms, []time.Duration{149 * ms}, 0},
		{"long", false, false, 50 * ms, []time.Duration{150 * ms}, leastOwnQueue},
		{"a long round trip", false, false, 300 * ms, []time.Duration{299 * ms}, 0},
		{"a long round trip, and a long queue", false, false, 300 * ms, []time.Duration{300 * ms}, 300 * ms},
		{"not of this device alone", true, false, 50 * ms, []time.Duration{500 * ms}, 0},
		{"a hop without round trips", false, true, 50 * ms, []time.Duration{500 * ms}, 0},
		{"long for a while", false, false, 50 * ms, repeatQueue(300*ms, 14), leastOwnQueue},
		{"long for too long", false, false, 50 * ms, repeatQueue(300*ms, 16), 0},
		{"and again later", false, false, 50 * ms, repeatQueue(300*ms, 16+100), leastOwnQueue},
		{"less long in between", false, false, 50 * ms, interrupted, leastOwnQueue},
		{"never twice the limit", false, false, 50 * ms, repeatQueue(299*ms, 100), leastOwnQueue},
	} {
		q := ownQueue{isLimited: !c.none}
		got := time.Duration(0)
		for i, queue := range c.queue {
			h := estimate.Hop{MinRTT: c.minRTT, SRTT: c.minRTT + queue, Blind: c.blind}
			got = q.limitAt(h, start.Add(time.Duration(i)*100*ms))
		}
		if got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func repeatQueue(d time.Duration, n int) (list []time.Duration) {
	for range n {
		list = append(list, d)
	}
	return list
}

// TestOwnQueueIsAutos checks that only a scheduler that wants a short queue keeps it: the paper's schedulers fill any.
func TestOwnQueueIsAutos(t *testing.T) {
	for _, name := range sched.Names() {
		s, err := sched.New(name)
		if err != nil {
			t.Fatal(err)
		}
		b := New(Config{Scheduler: s})
		b.AddSubflow(1, false, start)
		b.SetOwnQueue(1)
		b.SetOwnQueue(2) // there is none
		if got := b.ListSubflows(nil, start)[0].OwnQueue; got != (name == "auto") {
			t.Errorf("%s: %v", name, got)
		}
	}
}
