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

// feedPBE passes a second of acknowledgements with feedback to a controller, one each ms.
func feedPBE(p *PBE, from time.Duration, f CellFeedback) time.Duration {
	for range 1000 {
		from += time.Millisecond
		p.OnAck(Ack{Now: from, Bytes: MSS, Packets: 1, RTT: 40 * time.Millisecond, Sent: from - 40*time.Millisecond,
			Rate: 12 * unit.Mbps, Round: from%(40*time.Millisecond) == 0, Cells: f})
	}
	return from
}

// TestInvalidFeedback: feedback that the receiver knows to be wrong ends PBE-CC at once, a missing one does not.
func TestInvalidFeedback(t *testing.T) {
	for _, invalid := range []bool{false, true} {
		p := NewPBE(1)
		now := feedPBE(p, time.Second, CellFeedback{TransportRate: 12 * unit.Mbps, FairRate: 12 * unit.Mbps})
		p.OnAck(Ack{Now: now + 1, Bytes: MSS, Packets: 1, RTT: 40 * time.Millisecond, Cells: CellFeedback{Invalid: invalid}})
		if p.Status().Fresh == invalid {
			t.Errorf("invalid %v: %+v", invalid, p.Status())
		}
	}
}

// TestLossesOfBefore: losses of packets that were sent before the first feedback say nothing about it; those of later
// packets in the start do.
func TestLossesOfBefore(t *testing.T) {
	for _, later := range []bool{false, true} {
		p := NewPBE(1)
		now := time.Second
		for range 100 { // before feedback
			now += time.Millisecond
			p.OnAck(Ack{Now: now, Bytes: MSS, Packets: 1, RTT: 40 * time.Millisecond, Rate: 6 * unit.Mbps})
		}
		begin := now
		for range 20 {
			now += time.Millisecond
			p.OnAck(Ack{Now: now, Bytes: MSS, Packets: 1, RTT: 40 * time.Millisecond, Rate: 6 * unit.Mbps,
				Cells: CellFeedback{TransportRate: 40 * unit.Mbps, FairRate: 40 * unit.Mbps}})
		}
		sent := begin - 10*time.Millisecond
		if later {
			sent = now
		}
		for range 20 {
			p.OnLoss(Loss{Now: now, Bytes: MSS, Sent: sent})
		}
		if p.Status().Doubted != later {
			t.Errorf("sent later %v: %+v", later, p.Status())
		}
	}
}

// TestCarrierProbeAgain: after a carrier was activated the next probe is due at once; none begins while the app has
// nothing more to send.
func TestCarrierProbeAgain(t *testing.T) {
	f := CellFeedback{TransportRate: 12 * unit.Mbps, FairRate: 12 * unit.Mbps, Inactive: true}
	p := NewPBE(1)
	now := feedPBE(p, time.Second, f)
	if now = feedPBE(p, now, f); p.carrier.isProbing(now) || p.carrier.wait == 0 {
		t.Fatalf("the first probe: %+v at %v", p.carrier, now)
	}
	f.Activated++
	if feedPBE(p, now, f); p.carrier.next > now+pbeCarrierWait+time.Second || p.carrier.next < now+pbeCarrierWait {
		t.Errorf("a probe is due at %v, at %v a carrier was activated", p.carrier.next, now)
	}
	idle := NewPBE(1)
	for at := time.Second; at < 3*time.Second; at += time.Millisecond {
		idle.OnAck(Ack{Now: at, Bytes: MSS, Packets: 1, RTT: 40 * time.Millisecond, Sent: at - 40*time.Millisecond,
			Rate: 12 * unit.Mbps, AppLimited: true, Cells: f})
	}
	if idle.carrier != (carrierProbe{}) {
		t.Errorf("nothing to send: %+v", idle.carrier)
	}
}
