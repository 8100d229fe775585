// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"testing"
	"time"

	"mpbond/base/unit"
)

// TestAckBurst: acknowledgements that come at the capacity are no burst; those after a pause are, by what the capacity
// delivers in it. It is forgotten later, and a capacity that is reported a little too small is no burst that grows.
func TestAckBurst(t *testing.T) {
	const ms, capacity, rtprop = time.Millisecond, 12 * unit.Mbps, 50 * time.Millisecond // a packet each ms
	for _, reported := range []unit.Rate{capacity, capacity * 95 / 100} {
		var b ackBurst
		now := time.Second
		for range 1000 {
			now += ms
			b.addAck(Ack{Now: now, Bytes: MSS}, reported, rtprop)
		}
		if b.largestBurst() > 5*MSS {
			t.Errorf("%v: steady: %v", reported, b.largestBurst())
		}
		now += 30 * ms
		b.addAck(Ack{Now: now, Bytes: 30 * MSS}, reported, rtprop)
		if got := b.largestBurst(); got < 27*MSS || got > 36*MSS {
			t.Errorf("%v: after a pause of 30 ms: %v, want about %v", reported, got, 30*MSS)
		}
		for range 400 {
			now += ms
			b.addAck(Ack{Now: now, Bytes: MSS}, reported, rtprop)
		}
		if b.largestBurst() > 5*MSS {
			t.Errorf("%v: later: %v", reported, b.largestBurst())
		}
	}
}

// TestCarrierProbe: a probe begins when another cell could serve the device, ends in time, and is repeated less and
// less often. It ends at once when the cells do not set the rate.
func TestCarrierProbe(t *testing.T) {
	var c carrierProbe
	var begun []time.Duration
	was := false
	for now := time.Duration(0); now < 2*time.Minute; now += 10 * time.Millisecond {
		c.beginIfDue(now, true)
		if is := c.isProbing(now); is && !was {
			begun = append(begun, now)
		}
		was = c.isProbing(now)
	}
	want := []time.Duration{0, 10 * time.Second, 30 * time.Second, 70 * time.Second}
	if len(begun) != len(want) {
		t.Fatalf("begun at %v, want %v", begun, want)
	}
	for i, at := range begun {
		if at != want[i] {
			t.Errorf("begun at %v, want %v", begun, want)
		}
	}
	c = carrierProbe{}
	if c.beginIfDue(time.Second, true); !c.isProbing(time.Second) || c.isProbing(time.Second+pbeCarrierProbe) {
		t.Error("a probe does not begin, or does not end")
	}
	if c.beginIfDue(time.Second+1, false); c.isProbing(time.Second + 1) {
		t.Error("a probe goes on although it is of no use")
	}
}
