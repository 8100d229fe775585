// SPDX-License-Identifier: Apache-2.0

package cc_test

import (
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/lab/virtual"
	"mpbond/pbe/cc"
)

// spy records the smallest window in each second.
type spy struct {
	cc.Controller
	least [40]unit.Bytes
}

func (s *spy) Limits(now time.Duration) cc.Limits {
	l := s.Controller.Limits(now)
	if w := &s.least[min(int(now/sec), 39)]; *w == 0 || l.Window < *w {
		*w = l.Window
	}
	return l
}

// TestBBRProbesRTT: every 10 s, unless a lower RTT was seen meanwhile, the window is four packets
// for 200 ms and a round, and then returns. Packets sent meanwhile do not lower the bandwidth. At a
// short RTT they take twice as many rounds as the filter remembers.
func TestBBRProbesRTT(t *testing.T) {
	for _, trip := range []time.Duration{5 * ms, 10 * ms, 20 * ms, 50 * ms} {
		for _, r := range []unit.Rate{16 * unit.Mbps, 100 * unit.Mbps} {
			s := &spy{Controller: cc.NewBBR(1)}
			res := virtual.Run(virtual.NewWire(virtual.SteadyRate(r), r.Bytes(2*trip)+2*cc.MSS), 40*sec, 1,
				virtual.Flow{Controller: s, DelayToLink: trip / 4, DelayFromLink: trip / 4, AckDelay: trip / 2})[0]
			probes := 0
			for i := 5; i < 39; i++ {
				switch w := s.least[i]; {
				case w <= 4*cc.MSS:
					probes++
					if s.least[i-1] <= 4*cc.MSS && s.least[i+1] <= 4*cc.MSS {
						t.Errorf("%v, %v: at %d s: for over a second", trip, r, i)
					}
				case w < r.Bytes(trip):
					t.Errorf("%v, %v: at %d s: window %v", trip, r, i, w)
				}
			}
			used := float64(res.Rate(10*sec, 40*sec)) / float64(r)
			t.Logf("%v, %v: %.4f, %d", trip, r, used, probes)
			if probes < 3 || probes > 6 {
				t.Errorf("%v, %v: %d seconds with a probe", trip, r, probes)
			}
			// Three probes of 200 ms and a round, in which four packets a round go.
			least := 1 - 3*(200*ms+2*trip).Seconds()/30 - 0.005
			if used < least {
				t.Errorf("%v, %v: %.4f used, want %.4f", trip, r, used, least)
			}
		}
	}
}

// TestCopaCompetes: beside CUBIC, which fills the queue, Copa changes its mode and gets more than
// its default mode would get.
func TestCopaCompetes(t *testing.T) {
	const r = 16 * unit.Mbps
	res := virtual.Run(newTestLink(virtual.SteadyRate(r), r), 60*sec, 1, defaultFlow(cc.NewCopa(0)),
		defaultFlow(cc.NewCUBIC()))
	part := float64(res[0].Rate(20*sec, 60*sec)) / float64(r)
	t.Logf("%.3f", part)
	if part < 0.2 || part > 0.8 {
		t.Errorf("%.3f of the rate", part)
	}
}

// TestCUBICGrows checks the curve of RFC 9438: after a loss at W packets the
// window is 0.7·W, and W again after K = ∛(W·0.3/0.4) seconds.
func TestCUBICGrows(t *testing.T) {
	c := cc.NewCUBIC()
	now := time.Duration(0)
	ack := func() {
		now += ms
		w := c.Limits(now).Window
		c.OnAck(cc.Ack{Now: now, Bytes: cc.MSS, Packets: 1, RTT: 100 * ms, Sent: now - 100*ms, InFlight: w - cc.MSS})
	}
	for c.Limits(now).Window < 400*cc.MSS {
		ack()
	}
	c.OnLoss(cc.Loss{Now: now, Bytes: cc.MSS, Sent: now - 100*ms})
	at := now
	if w := c.Limits(now).Window; w != 280*cc.MSS {
		t.Fatalf("after the loss: %v", w/cc.MSS)
	}
	c.OnLoss(cc.Loss{Now: now, Bytes: cc.MSS, Sent: now - 50*ms})
	if w := c.Limits(now).Window; w != 280*cc.MSS {
		t.Errorf("a second loss of the same round: %v", w/cc.MSS)
	}
	for c.Limits(now).Window < 397*cc.MSS {
		ack()
	}
	// ∛(400·0.3/0.4) = 6.69 s; the curve is flat there, and a round late.
	if took := now - at; took < 4*sec || took > 7*sec {
		t.Errorf("397 again after %v", took)
	}
	c.OnLoss(cc.Loss{Now: now, Bytes: cc.MSS, Sent: now, PersistentCongestion: true})
	if w := c.Limits(now).Window; w != cc.MSS {
		t.Errorf("after a timeout: %v", w)
	}
}

// TestCUBICAfterTimeout: after a timeout, congestion avoidance begins a new curve where slow start
// ends, not on the way to the previous window (RFC 9438 section 4.8): 280 packets, and Reno's
// growth in two seconds.
func TestCUBICAfterTimeout(t *testing.T) {
	c := cc.NewCUBIC()
	now := time.Duration(0)
	ack := func() {
		now += ms
		c.OnAck(cc.Ack{Now: now, Bytes: cc.MSS, Packets: 1, RTT: 100 * ms, Sent: now - 100*ms,
			InFlight: c.Limits(now).Window - cc.MSS})
	}
	for c.Limits(now).Window < 400*cc.MSS {
		ack()
	}
	c.OnLoss(cc.Loss{Now: now, Bytes: cc.MSS, Sent: now, PersistentCongestion: true})
	for c.Limits(now).Window < 280*cc.MSS {
		ack()
	}
	for range 2000 {
		ack()
	}
	if w := c.Limits(now).Window / cc.MSS; w < 281 || w > 292 {
		t.Errorf("two seconds after slow start: %d packets", w)
	}
}
