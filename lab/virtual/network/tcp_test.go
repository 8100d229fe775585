// SPDX-License-Identifier: Apache-2.0

package network

import (
	"testing"
	"time"

	"mpbond/base/unit"
)

const ms = time.Millisecond

func steady(r unit.Rate) []RateStep { return []RateStep{{0, r}} }

// transferTime returns how long n bytes take over one open connection, and its sender.
func transferTime(t *testing.T, l Link, n int, control string) (time.Duration, *endpoint) {
	t.Helper()
	s := newSim(1)
	back := l
	back.Loss = 0
	a, b := connect(s, []*line{newLine(s, l)}, []*line{newLine(s, back)}, control, 1)
	done := never
	b.onData = func() {
		b.consume(b.receiver.next)
		if b.receiver.next == uint64(n) {
			done = s.now
		}
	}
	a.onData = func() {}
	a.write(n)
	for done == never && s.step(10*time.Minute) {
	}
	if done == never {
		t.Fatalf("%d of %d bytes arrived; %+v", b.receiver.next, n, a.info())
	}
	return done, a
}

// TestFullLink checks that TCP fills a link with a queue of a round trip within 2 %.
func TestFullLink(t *testing.T) {
	for _, rate := range []unit.Rate{unit.Mbps, 10 * unit.Mbps, 50 * unit.Mbps} {
		l := Link{Rates: steady(rate), Delay: 10 * ms, Queue: max(minQueue, rate.Bytes(60*ms))}
		n := int(rate.Bytes(10*time.Second) * mss / 1500)
		d, a := transferTime(t, l, n, "cubic")
		if d < 10*time.Second || d > 10200*ms {
			t.Errorf("%v: 10 s of data took %v; resent %d of %d", rate, d, a.resent, a.sentPackets)
		}
	}
}
