// SPDX-License-Identifier: Apache-2.0

package congestion_test

import (
	"fmt"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/lab/virtual"
	"mpbond/link/congestion"
	"mpbond/pbe/cc"
)

const ms = time.Millisecond

// selecting is a controller that follows a Selector, as a connection does.
type selecting struct {
	cc.Controller
	seed     uint64
	selector congestion.Selector
	sample   congestion.Sample
	sampled  uint64 // Sent of the last sample
	bbrSent  uint64
}

// samplePackets is how many packets one write has on a slow link.
const samplePackets = 4

func (c *selecting) OnSent(now time.Duration, size, inFlight unit.Bytes) {
	c.Controller.OnSent(now, size, inFlight)
	s := &c.sample
	s.At, s.InFlight, s.Window = now, int(inFlight/cc.MSS), int(c.Limits(now).Window/cc.MSS)
	cubic, _ := c.Controller.(*cc.CUBIC)
	s.SlowStart = cubic != nil && cubic.InSlowStart()
	s.Sent++
	if c.selector.Choice().Algorithm == congestion.BBR {
		c.bbrSent++
	}
	if s.Sent < c.sampled+samplePackets {
		return
	}
	c.sampled = s.Sent
	if !c.selector.Add(*s) {
		return
	}
	if c.selector.Choice().Algorithm == congestion.BBR {
		c.Controller = cc.NewBBR(c.seed)
	} else {
		c.Controller = cc.NewCUBIC()
	}
}

func (c *selecting) OnAck(a cc.Ack) {
	c.Controller.OnAck(a)
	if a.RTT == 0 {
		return
	}
	s := &c.sample
	if s.SRTT == 0 {
		s.SRTT, s.MinRTT = a.RTT, a.RTT
	}
	s.SRTT += (a.RTT - s.SRTT) / 8
	s.MinRTT = min(s.MinRTT, a.RTT)
}

func (c *selecting) OnLoss(l cc.Loss) {
	c.Controller.OnLoss(l)
	c.sample.Lost += uint64(l.Bytes / cc.MSS)
}

// newController returns the controller of that name; "default" is the one that the hop chooses.
func newController(name string, seed uint64) cc.Controller {
	if name == "default" {
		return &selecting{Controller: cc.NewCUBIC(), seed: seed}
	}
	return cc.New(name, seed)
}

// queue returns a link of that rate with a drop-tail queue of that length.
func queue(rate unit.Rate, length time.Duration) virtual.Link {
	return virtual.NewWire(virtual.SteadyRate(rate), max(3*cc.MSS, rate.Bytes(length)))
}

func flow(c cc.Controller, rtt time.Duration, loss float64) virtual.Flow {
	return virtual.Flow{Controller: c, DelayToLink: rtt / 4, DelayFromLink: rtt / 4, AckDelay: rtt / 2, Loss: loss}
}

// The tuning was chosen with seeds below 10. These are others.
const firstSeed, seeds = 1000, 20

// TestLossyHop has one flow on a link that loses packets at random. At 4 MB the default comes close
// to BBR. Without losses it stays with CUBIC.
func TestLossyHop(t *testing.T) {
	const size = 2400 * unit.KB // the part of 4 MB that 8 of 8+5 Mbit/s carry
	for _, c := range []struct {
		rtt   time.Duration
		rate  unit.Rate
		loss  float64
		ofBBR float64 // at least
	}{
		{50 * ms, 8 * unit.Mbps, 0, 0.99},
		{50 * ms, 8 * unit.Mbps, 0.005, 0.95},
		{50 * ms, 8 * unit.Mbps, 0.02, 0.90},
		{70 * ms, 8 * unit.Mbps, 0, 0.99},
		{70 * ms, 8 * unit.Mbps, 0.005, 0.93},
		{70 * ms, 8 * unit.Mbps, 0.02, 0.90},
		{5 * ms, 5 * unit.Mbps, 0.005, 0.99},
		{5 * ms, 5 * unit.Mbps, 0.02, 0.99},
	} {
		length := 20 * time.Second
		var bbrPart float64
		mean := map[string]float64{}
		for _, name := range []string{"cubic", "bbr", "default"} {
			for seed := uint64(firstSeed); seed < firstSeed+seeds; seed++ {
				controller := newController(name, seed)
				r := virtual.Run(queue(c.rate, 100*ms), length, seed, flow(controller, c.rtt, c.loss))[0]
				took := length
				for i, a := range r.Arrivals {
					if unit.Bytes(i+1)*cc.MSS >= size {
						took = a.At
						break
					}
				}
				mean[name] += c.rate.Time(size).Seconds() / took.Seconds() / seeds
				if d, ok := controller.(*selecting); ok {
					bbrPart += float64(d.bbrSent) / float64(d.sample.Sent) / seeds
				}
			}
		}
		line := fmt.Sprintf("%v, %v, loss %.1f %%: cubic %.2f, bbr %.2f, default %.2f of the rate, %.0f %% by BBR", c.rtt,
			c.rate, 100*c.loss, mean["cubic"], mean["bbr"], mean["default"], 100*bbrPart)
		t.Log(line)
		if mean["default"] < c.ofBBR*mean["bbr"] || c.loss == 0 && bbrPart > 0 {
			t.Error(line)
		}
	}
}

// TestBesideCUBIC has a flow beside one of CUBIC that began before. The default leaves it about what
// CUBIC would. With a queue of 3 packets it cannot see the queue; then at least it notices in most
// cases that BBR loses more.
func TestBesideCUBIC(t *testing.T) {
	for _, c := range []struct {
		rtt    time.Duration
		rate   unit.Rate
		queue  time.Duration
		leaves float64 // of what CUBIC leaves, at least
	}{
		{20 * ms, 10 * unit.Mbps, 2 * ms, 0.5},
		{20 * ms, 10 * unit.Mbps, 10 * ms, 0.8},
		{20 * ms, 10 * unit.Mbps, 25 * ms, 0.9},
		{20 * ms, 10 * unit.Mbps, 300 * ms, 0.9},
		{50 * ms, 10 * unit.Mbps, 2 * ms, 0.9},
		{50 * ms, 10 * unit.Mbps, 10 * ms, 0.9},
		{50 * ms, 10 * unit.Mbps, 100 * ms, 0.9},
		{50 * ms, 40 * unit.Mbps, 10 * ms, 0.9},
	} {
		const length = 23 * time.Second
		other := map[string]float64{}
		var bbrPart float64
		for _, name := range []string{"cubic", "bbr", "default"} {
			for seed := uint64(firstSeed); seed < firstSeed+seeds; seed++ {
				controller := newController(name, seed)
				f, g := flow(controller, c.rtt, 0), flow(cc.NewCUBIC(), c.rtt, 0)
				f.Start = 3*time.Second + time.Duration(seed-firstSeed)*37*ms
				r := virtual.Run(queue(c.rate, c.queue), length, seed, f, g)
				other[name] += float64(r[1].Rate(f.Start, length)) / float64(c.rate) / seeds
				if d, ok := controller.(*selecting); ok {
					bbrPart += float64(d.bbrSent) / float64(d.sample.Sent) / seeds
				}
			}
		}
		line := fmt.Sprintf("%v, %v, queue %v: cubic leaves %.2f of the rate, bbr %.2f, default %.2f, %.0f %% by BBR",
			c.rtt, c.rate, c.queue, other["cubic"], other["bbr"], other["default"], 100*bbrPart)
		t.Log(line)
		if other["default"] < c.leaves*other["cubic"] {
			t.Error(line)
		}
	}
}
