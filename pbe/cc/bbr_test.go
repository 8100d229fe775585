// SPDX-License-Identifier: Apache-2.0

package cc_test

import (
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/pbe/cc"
)

// feedbackSequence passes acknowledgements to a BBR, a packet each millisecond: 12 Mbit/s with 40
// packets in flight.
type feedbackSequence struct {
	*cc.BBR
	now, round time.Duration
	delivered  unit.Bytes
	rate       unit.Rate
	limited    bool
	queue      time.Duration // of all but the first packets
}

func (b *feedbackSequence) run(acks int) cc.Limits {
	const trip = 40 * ms
	for range acks {
		b.now += ms
		b.delivered += cc.MSS
		b.OnSent(b.now, cc.MSS, 41*cc.MSS)
		a := cc.Ack{Now: b.now, Bytes: cc.MSS, Packets: 1, RTT: trip + ms + b.queue, Sent: b.now - trip - ms - b.queue,
			Rate: b.rate, AppLimited: b.limited, InFlight: 40 * cc.MSS, Delivered: b.delivered}
		if b.now >= trip+ms && b.now < trip+2*ms {
			a.RTT = trip // the least
		}
		if b.now >= b.round {
			a.Round, b.round = true, b.now+trip
		}
		b.OnAck(a)
	}
	return b.Limits(b.now)
}

// TestBBRStartupPace: before the pipe is full the pacing rate never falls. It is first the initial
// window in an assumed millisecond, then in the measured RTT, then the samples if they are higher.
func TestBBRStartupPace(t *testing.T) {
	b := &feedbackSequence{BBR: cc.NewBBR(1), rate: mbps}
	expectRate(t, "nothing known", b.Limits(0).Rate, 342*mbps, 343*mbps)
	// 0.99 · 2.885 · 10 packets in 41 ms
	expectRate(t, "a low first sample", b.run(1).Rate, 8350*unit.Kbps, 8370*unit.Kbps)
	b.rate = 2 * mbps
	expectRate(t, "still lower than at first", b.run(41).Rate, 8350*unit.Kbps, 8370*unit.Kbps)
	b.rate = 4 * mbps
	expectRate(t, "higher", b.run(1).Rate, 11420*unit.Kbps, 11430*unit.Kbps)
}

// TestBBRAppLimited: app-limited samples neither lower the bandwidth nor let it expire.
func TestBBRAppLimited(t *testing.T) {
	b := &feedbackSequence{BBR: cc.NewBBR(1), rate: 12 * mbps}
	b.run(1000)
	b.rate, b.limited = mbps, true
	b.run(1000) // 25 rounds
	slowest := b.run(1).Rate
	for range 400 { // all phases
		slowest = min(slowest, b.run(1).Rate)
	}
	expectRate(t, "app-limited", slowest, 8910*unit.Kbps, 15*mbps)
	b.limited = false
	b.run(1000)
	expectRate(t, "not app-limited", b.run(1).Rate, 740*unit.Kbps, 1250*unit.Kbps)
}

// TestBBRIdle: after a pause of over ten seconds there is no ProbeRTT, and the first packets use
// the known rate. Without the pause, if the RTT was longer for as long, there is one.
func TestBBRIdle(t *testing.T) {
	for _, pause := range []bool{true, false} {
		b := &feedbackSequence{BBR: cc.NewBBR(1), rate: 12 * mbps}
		b.run(1000)
		b.OnSent(b.now, cc.MSS, 2*cc.MSS)
		b.now += 10 * sec
		if pause {
			b.OnSent(b.now, cc.MSS, cc.MSS)
			expectRate(t, "after the pause", b.Limits(b.now).Rate, 11880*unit.Kbps, 11880*unit.Kbps)
		} else {
			b.OnSent(b.now, cc.MSS, 2*cc.MSS)
		}
		if w := b.run(1).Window; (w > 4*cc.MSS) != pause {
			t.Errorf("pause %v: window %v", pause, w)
		}
		// The next one comes when it is due.
		b.queue = ms
		probes := 0
		for range 12_000 {
			if b.run(1).Window <= 4*cc.MSS {
				probes++
			}
		}
		if probes == 0 {
			t.Errorf("pause %v: no ProbeRTT in 12 s", pause)
		}
	}
}

// TestBBRRecovers: a loss limits the window to what is delivered until a packet sent later is
// acknowledged. A timeout reduces the window to one packet. It grows until as much has arrived as
// was lost.
func TestBBRRecovers(t *testing.T) {
	b := &feedbackSequence{BBR: cc.NewBBR(1), rate: 12 * mbps}
	before := b.run(1000).Window
	b.OnLoss(cc.Loss{Now: b.now, Bytes: cc.MSS, Sent: b.now - 40*ms, InFlight: 39 * cc.MSS})
	if w := b.Limits(b.now).Window; w != 40*cc.MSS {
		t.Errorf("at the loss: %v", w)
	}
	if w := b.run(40).Window; w > 41*cc.MSS {
		t.Errorf("a round: %v", w)
	}
	if w := b.run(3).Window; w < before {
		t.Errorf("after the round: %v, before %v", w, before)
	}
	b.OnLoss(cc.Loss{Now: b.now, Bytes: 60 * cc.MSS, PersistentCongestion: true})
	if w := b.Limits(b.now).Window; w != cc.MSS {
		t.Errorf("after a timeout: %v", w)
	}
	b.now += 50 * ms
	if w := b.run(10).Window; w < 10*cc.MSS || w > 20*cc.MSS {
		t.Errorf("ten packets after a timeout: %v", w)
	}
	if w := b.run(51).Window; w < before {
		t.Errorf("all again: %v", w)
	}
}
