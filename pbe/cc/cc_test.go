// SPDX-License-Identifier: Apache-2.0

package cc_test

import (
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/lab/virtual"
	"mpbond/pbe/cc"
)

const (
	ms  = time.Millisecond
	sec = time.Second
)

// defaultFlow returns a flow with an RTT of 50 ms.
func defaultFlow(c cc.Controller) virtual.Flow {
	return virtual.Flow{Controller: c, DelayToLink: 20 * ms, DelayFromLink: 5 * ms, AckDelay: 25 * ms}
}

const (
	rtt    = 50 * ms
	oneWay = 25 * ms
)

// controllerBounds are the results on simple links that a controller's design promises.
type controllerBounds struct {
	name string
	make func(seed uint64) cc.Controller
	// hasFeedback reports that the controller gets feedback: its share of the current rate.
	hasFeedback bool
	// most is the fastest link that it supports, 0 for any.
	most unit.Rate
	// deep is the queueing delay that the buffer must hold by design, 0 for any.
	deep time.Duration
	// fill is the minimum use of a steady link.
	fill float64
	// queue is the maximum p95 of the queueing delay there, with a buffer of twice the
	// bandwidth-delay product.
	queue func(packet time.Duration) time.Duration
	// after is the same at half the rate, after settling, in the same buffer.
	after func(packet time.Duration) time.Duration
	// lost is the maximum share of lost packets there.
	lost float64
	// settle bounds the time to reach a rate that was halved or doubled.
	settle time.Duration
	// jain is the minimum fairness of two flows from a time on, for 40 s.
	jain float64
	from time.Duration
}

var boundsByController = []controllerBounds{
	// Two cycles out of fifty are ProbeRTT; the probing phase queues a quarter of a bandwidth-delay
	// product and three quanta of two packets, and the next phase drains it; the filter forgets a
	// rate after ten rounds, and 1.25 in every eight doubles in 25 of them.
	{"bbr", func(s uint64) cc.Controller { return cc.NewBBR(s) }, false, 0, 0, 0.95,
		func(p time.Duration) time.Duration { return rtt/4 + 8*p },
		// The window of two products fills one, until ProbeRTT.
		func(p time.Duration) time.Duration { return rtt + 8*p }, 0.01, 2 * sec, 0.93, 20 * sec},
	// The buffer is never empty where it holds more than (1−β)/β of the product.
	{"cubic", func(uint64) cc.Controller { return cc.NewCUBIC() }, false, 0, 0, 0.99,
		func(p time.Duration) time.Duration { return 2*rtt + 2*p },
		func(p time.Duration) time.Duration { return 4*rtt + 4*p }, 0.01, 2 * sec, 0.9, 20 * sec},
	// The window goes up and down by 2.5/δ packets around the target (section 3).
	{"copa", func(uint64) cc.Controller { return cc.NewCopa(0) }, false, 0, 0, 0.97,
		func(p time.Duration) time.Duration { return 8 * p },
		func(p time.Duration) time.Duration { return 8 * p }, 0.001, 2 * sec, 0.95, 20 * sec},
	// Ten packets and a swing of 25 are more than the buffer of 33 at 4 Mbit/s holds.
	{"copa:0.1", func(s uint64) cc.Controller { return cc.New("copa:0.1", s) }, false, 0, 0, 0.97,
		func(p time.Duration) time.Duration { return 40 * p },
		func(p time.Duration) time.Duration { return 40 * p }, 0.002, 2 * sec, 0.95, 20 * sec},
	// It knows the rate one RTT late, and has 24 ms more in flight than RTprop holds.
	{"pbe", func(s uint64) cc.Controller { return cc.NewPBE(s) }, true, 0, 0, 0.99,
		func(p time.Duration) time.Duration { return 24*ms + 3*p },
		func(p time.Duration) time.Duration { return 24*ms + 3*p }, 0.001, 3 * rtt, 0.99, 20 * sec},
	// Its utility trades losses for rate, so it fills the buffer and exceeds it slightly, in steps
	// of 1 %. Flows become equal through different losses, which takes minutes.
	{"allegro", func(s uint64) cc.Controller { return cc.NewAllegro(s) }, false, 0, 0, 0.99,
		func(p time.Duration) time.Duration { return 2*rtt + 3*p },
		func(p time.Duration) time.Duration { return 4*rtt + 4*p }, 0.03, 5 * sec, 0.85, 60 * sec},
	// The higher rate of a pair, 5 % above, must not grow the queue: the rate stays under 0.96 of
	// the link's. An RTT gradient below a hundredth counts as none.
	// The queue of the start drains slowly, because few packets measure slopes badly.
	{"vivace", func(s uint64) cc.Controller { return cc.NewVivace(s) }, false, 0, 0, 0.9,
		func(p time.Duration) time.Duration { return 2*rtt + 3*p },
		func(p time.Duration) time.Duration { return 4*rtt + 4*p }, 0.01, 4 * sec, 0.97, 20 * sec},
	// In flight is what leaves within 100 ms with 95 % probability: at an RTT of 50 ms at most half
	// of it is queued. It assumes that no other flow is in the queue.
	{"sprout", func(uint64) cc.Controller { return cc.NewSprout() }, false, 10 * unit.Mbps, 0, 0.99,
		func(p time.Duration) time.Duration { return 100*ms - rtt },
		func(p time.Duration) time.Duration { return 100*ms - rtt }, 0.001, sec, 0, 0},
	// Delays rise to R = 6 times the minimum if the buffer has room; otherwise packets are lost.
	// The excess of a high target shows a round trip later. At half the rate the curve is still
	// that of the faster link until a window is used again.
	{"verus", func(uint64) cc.Controller { return cc.NewVerus() }, false, 0, 12 * rtt, 0.98,
		func(p time.Duration) time.Duration { return 5*rtt + rtt/2 + 2*p },
		func(p time.Duration) time.Duration { return 8*rtt + 2*p }, 0, 6 * sec, 0.9, 20 * sec},
}

// upTo limits a rate to the fastest link that the controller supports.
func (p controllerBounds) upTo(r unit.Rate) unit.Rate {
	if p.most > 0 {
		return min(r, p.most)
	}
	return r
}

// flow returns one of n flows on a link.
func (p controllerBounds) flow(seed uint64, rate func(time.Duration) unit.Rate, n unit.Rate) virtual.Flow {
	f := defaultFlow(p.make(seed))
	if p.hasFeedback {
		f.Feedback = feedback(func(now time.Duration) cc.CellRates {
			return cc.CellRates{Transport: rate(now) / n, Fair: rate(now) / n}
		})
	}
	return f
}

// feedback returns the feedback of a receiver that knows the capacity.
func feedback(c func(now time.Duration) cc.CellRates) func(time.Duration, *virtual.Packet) cc.CellFeedback {
	var r cc.Receiver
	return func(now time.Duration, p *virtual.Packet) cc.CellFeedback { return r.OnPacket(now, now-p.Sent, c(now)) }
}

// newTestLink returns a link with a buffer of twice the bandwidth-delay product.
func newTestLink(rate func(time.Duration) unit.Rate, r unit.Rate) *virtual.Wire {
	return virtual.NewWire(rate, r.Bytes(2*rtt)+2*cc.MSS)
}

// link returns a link with the buffer that the controller needs, or else with that of a delay.
func (p controllerBounds) link(rate func(time.Duration) unit.Rate, r unit.Rate, delay time.Duration) *virtual.Wire {
	return virtual.NewWire(rate, r.Bytes(max(delay, p.deep))+2*cc.MSS)
}

// TestConverge: alone on a steady link each controller meets its bounds.
func TestConverge(t *testing.T) {
	for _, p := range boundsByController {
		for _, r := range []unit.Rate{4 * unit.Mbps, p.upTo(30 * unit.Mbps)} {
			res := virtual.Run(p.link(virtual.SteadyRate(r), r, 2*rtt), 20*sec, 1,
				p.flow(1, virtual.SteadyRate(r), 1))[0]
			fill := float64(res.Rate(3*sec, 20*sec)) / float64(r)
			queue := res.Delay(3*sec, 20*sec, 0.95) - oneWay
			lost := res.Loss(10*sec, 20*sec)
			t.Logf("%s at %v: %.3f, queue %v, lost %.4f", p.name, r, fill, queue, lost)
			if fill < p.fill {
				t.Errorf("%s at %v: %.3f of the rate, want %.2f", p.name, r, fill, p.fill)
			}
			if most := p.queue(r.Time(cc.MSS)); queue > most {
				t.Errorf("%s at %v: p95 of the queue %v, at most %v", p.name, r, queue, most)
			}
			if lost > p.lost {
				t.Errorf("%s at %v: lost %.4f, at most %.4f", p.name, r, lost, p.lost)
			}
		}
	}
}

// TestFollow: controllers follow a rate that is halved after 10 s and doubled after 20 s.
func TestFollow(t *testing.T) {
	for _, p := range boundsByController {
		r := p.upTo(16 * unit.Mbps)
		rate := func(now time.Duration) unit.Rate {
			if now >= 10*sec && now < 20*sec {
				return r / 2
			}
			return r
		}
		res := virtual.Run(p.link(rate, r, 2*rtt), 30*sec, 1, p.flow(1, rate, 1))[0]
		half := float64(res.Rate(10*sec+p.settle, 20*sec)) / float64(r/2)
		again := float64(res.Rate(20*sec+p.settle, 30*sec)) / float64(r)
		queue := res.Delay(10*sec+p.settle, 20*sec, 0.95) - oneWay
		t.Logf("%s: %.3f of half, %.3f of all, queue at half %v", p.name, half, again, queue)
		if half < p.fill-0.03 || again < p.fill-0.05 {
			t.Errorf("%s: %.3f of the halved rate, %.3f of the doubled one", p.name, half, again)
		}
		if most := p.after((r / 2).Time(cc.MSS)); queue > most {
			t.Errorf("%s: p95 of the queue at half the rate %v, at most %v", p.name, queue, most)
		}
	}
}

// TestFair: a second flow that starts 3 s later gets half of the rate. The buffer is shorter than
// in other tests, so that a loss-based flow has enough losses.
func TestFair(t *testing.T) {
	for _, p := range boundsByController {
		if p.jain == 0 {
			continue // its design promises no fairness
		}
		const r = 12 * unit.Mbps
		a, b := p.flow(1, virtual.SteadyRate(r), 2), p.flow(2, virtual.SteadyRate(r), 2)
		b.Start = 3 * sec
		res := virtual.Run(p.link(virtual.SteadyRate(r), r, rtt*2/3), p.from+40*sec, 1, a, b)
		x, y := float64(res[0].Rate(p.from, p.from+40*sec)), float64(res[1].Rate(p.from, p.from+40*sec))
		jain := (x + y) * (x + y) / (2 * (x*x + y*y))
		t.Logf("%s: %.2f and %.2f Mbit/s, Jain %.4f", p.name, x/1e6, y/1e6, jain)
		if jain < p.jain || (x+y)/float64(r) < p.fill-0.02 {
			t.Errorf("%s: %.2f and %.2f Mbit/s, Jain %.4f, want %.2f", p.name, x/1e6, y/1e6, jain, p.jain)
		}
	}
}
