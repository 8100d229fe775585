// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"math"
	"testing"
	"time"

	"mpbond/base/unit"
)

// sentAt returns an interval of ten packets at a rate. Round trips grow by slope, and some packets
// are lost.
func sentAt(r unit.Rate, slope float64, lost int) *monitorInterval {
	v := &intervalList{}
	v.smoothedRTT.addWeightedDelay(50*time.Millisecond, 1)
	m := v.appendInterval(time.Second, r, 1)
	for now := time.Second; now < m.end; now += r.Time(MSS) {
		v.countSentPacket(now)
	}
	for now := time.Second; now < m.end; now += r.Time(MSS) {
		if lost > 0 {
			lost--
			v.countLostPackets(Loss{Now: now + time.Second, Bytes: MSS, Sent: now})
			continue
		}
		rtt := 50*time.Millisecond + time.Duration(slope*float64(now-time.Second))
		v.countAckedPackets(Ack{Now: now + rtt, Bytes: MSS, Packets: 1, RTT: rtt, Sent: now})
	}
	if got := v.takeComplete(m.end + time.Millisecond); got != m {
		return nil // not all of it is answered for
	}
	return m
}

func TestIntervals(t *testing.T) {
	m := sentAt(12*unit.Mbps, 0.25, 5)
	if m == nil || m.sent != 50 || m.lost != 5 || m.acked != 45 || m.intervalLossRate() != 0.1 ||
		math.Abs(m.rttGradient()-0.25) > 1e-6 || math.Abs(m.sendingRate()-12) > 1e-6 {
		t.Fatalf("%+v", m)
	}
	// A few packets measure the rate as well as many.
	if m := sentAt(400*unit.Kbps, 0, 0); m.sent != pccMinPackets || math.Abs(m.sendingRate()-0.4) > 1e-6 {
		t.Errorf("%d packets, %.3f Mbit/s", m.sent, m.sendingRate())
	}
	// One that is never answered for is lost, after two round trips and a second.
	v := &intervalList{}
	v.smoothedRTT.addWeightedDelay(50*time.Millisecond, 1)
	m = v.appendInterval(0, unit.Mbps, 1)
	v.countSentPacket(0)
	v.countSentPacket(time.Millisecond)
	v.countAckedPackets(Ack{Now: 50 * time.Millisecond, Packets: 1, RTT: 50 * time.Millisecond})
	if v.takeComplete(m.end+time.Second) != nil || v.takeComplete(m.end+1100*time.Millisecond) != m || m.lost != 1 {
		t.Errorf("%+v", m)
	}
}

// TestIntervalsOfSeveral: packets acknowledged together belong to the current interval and earlier
// ones.
func TestIntervalsOfSeveral(t *testing.T) {
	v := &intervalList{}
	v.smoothedRTT.addWeightedDelay(10*time.Millisecond, 1)
	var list []*monitorInterval
	for now := time.Duration(0); now < 36*time.Millisecond; now += time.Millisecond {
		if m := v.currentInterval(); m == nil || now >= m.end {
			list = append(list, v.appendInterval(now, 12*unit.Mbps, 1.2))
		}
		v.countSentPacket(now)
	}
	v.countAckedPackets(Ack{Now: 50 * time.Millisecond, Packets: 10, RTT: 40 * time.Millisecond,
		Sent: 9 * time.Millisecond})
	v.countLostPackets(Loss{Now: 50 * time.Millisecond, Bytes: 5 * MSS, Sent: 14 * time.Millisecond})
	v.countAckedPackets(Ack{Now: 50 * time.Millisecond, Packets: 21, RTT: 15 * time.Millisecond,
		Sent: 35 * time.Millisecond})
	for i, want := range [][2]int{{10, 2}, {9, 3}, {12, 0}} {
		if m := list[i]; m.acked != want[0] || m.lost != want[1] {
			t.Errorf("interval %d: %d acknowledged, %d lost, want %v", i, m.acked, m.lost, want)
		}
	}
}

// TestUtilities compares utilities with values worked out by hand.
func TestUtilities(t *testing.T) {
	a, v := NewAllegro(1), NewVivace(1)
	v.state = pccProbing
	for _, c := range []struct {
		m               *monitorInterval
		allegro, vivace float64
	}{
		{sentAt(12*unit.Mbps, 0, 0), 12 / (1 + math.Exp(-5)), math.Pow(12, 0.9)},
		{sentAt(12*unit.Mbps, 0.009, 0), 12 / (1 + math.Exp(-5)), math.Pow(12, 0.9)},
		{sentAt(12*unit.Mbps, 0.02, 0), 12 / (1 + math.Exp(-5)), math.Pow(12, 0.9) - 900*12*0.02},
		{sentAt(12*unit.Mbps, -0.02, 0), 12 / (1 + math.Exp(-5)), math.Pow(12, 0.9) + 900*12*0.02},
		{sentAt(12*unit.Mbps, 0, 5), 12*0.9/(1+math.Exp(5)) - 1.2, math.Pow(12, 0.9) - 11.35*1.2},
	} {
		if got := a.utility(c.m); math.Abs(got-c.allegro) > 1e-3 {
			t.Errorf("Allegro: %.4f, want %.4f", got, c.allegro)
		}
		if got := v.utility(c.m); math.Abs(got-c.vivace) > 1e-3 {
			t.Errorf("Vivace: %.4f, want %.4f", got, c.vivace)
		}
	}
}

// probeIntervals returns outcomes of pairs whose utility has a gradient.
func probeIntervals(rate float64, gradients ...float64) (list []intervalOutcome) {
	for _, g := range gradients {
		list = append(list, intervalOutcome{true, rate * 1.05, g * rate * 0.05},
			intervalOutcome{false, rate * 0.95, -g * rate * 0.05})
	}
	return list
}

// TestAllegroSteps: both pairs must agree, steps grow by 1 %, and the last one is reverted.
func TestAllegroSteps(t *testing.T) {
	c := NewAllegro(1)
	c.state, c.rate = pccProbing, 100*unit.Mbps
	c.stepSendingRate(probeIntervals(100, 1, -1))
	if c.state != pccProbing || c.rate != 100*unit.Mbps || c.epsilon != 0.02 {
		t.Errorf("pairs disagree: %v, ε %v", c.rate, c.epsilon)
	}
	c.stepSendingRate(probeIntervals(100, 1, 1))
	want := 100 * 1.02 * 1.01
	for n := 2; n < 5; n++ {
		if c.state != pccMoving || math.Abs(float64(c.rate)/1e6-want) > 1e-3 {
			t.Errorf("step %d: %v, want %.3f", n, c.rate, want)
		}
		c.stepSendingRate([]intervalOutcome{{rate: want, utility: 100 + want}})
		want *= 1 + 0.01*float64(n)
	}
	c.stepSendingRate([]intervalOutcome{{rate: want, utility: 0}})
	if want /= 1.04; c.state != pccProbing || math.Abs(float64(c.rate)/1e6-want) > 1e-3 || c.epsilon != 0.01 {
		t.Errorf("after a fall: %v, want %.3f", c.rate, want)
	}
}

// TestVivaceSteps: the step is the gradient times 1, 2, 3, 5, 7 …, and at most
// 5 % of the rate, then 15, 25 …
func TestVivaceSteps(t *testing.T) {
	c := NewVivace(1)
	c.state, c.rate = pccProbing, 100*unit.Mbps
	want := 100.0
	for _, by := range []float64{0.5, 1, 1.5, 2.5, 3.5} {
		c.climbGradient(probeIntervals(float64(c.rate)/1e6, 0.5, 0.5, 0.5))
		if want += by; math.Abs(float64(c.rate)/1e6-want) > 1e-3 {
			t.Fatalf("%v, want %.3f", c.rate, want)
		}
	}
	for _, part := range []float64{0.05, 0.15, 0.25, 0.35} {
		c.climbGradient(probeIntervals(float64(c.rate)/1e6, -1e3, -1e3, -1e3))
		if want *= 1 - part; math.Abs(float64(c.rate)/1e6-want) > 1e-3 {
			t.Fatalf("down: %v, want %.3f", c.rate, want)
		}
	}
	at := c.rate
	c.climbGradient(probeIntervals(float64(c.rate)/1e6, 1, -1, -1))
	if c.rate != at {
		t.Errorf("one of three for more, two for less: %v after %v", c.rate, at)
	}
	c.climbGradient(probeIntervals(float64(c.rate)/1e6, 1, 1, -1))
	if c.rate <= at {
		t.Errorf("two of three for more: %v after %v", c.rate, at)
	}
}
