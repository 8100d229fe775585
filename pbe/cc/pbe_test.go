// SPDX-License-Identifier: Apache-2.0

package cc_test

import (
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/lab/virtual"
	"mpbond/pbe/cc"
)

// ackSequence passes acknowledgements to a PBE, one each millisecond.
type ackSequence struct {
	*cc.PBE
	now   time.Duration
	radio cc.CellFeedback
	rate  unit.Rate
	rtt   time.Duration
	round time.Duration
}

func (a *ackSequence) run(length time.Duration) cc.Limits {
	for end := a.now + length; a.now < end; {
		a.now += ms
		x := cc.Ack{Now: a.now, Bytes: cc.MSS, Packets: 1, RTT: a.rtt, Sent: a.now - a.rtt, Rate: a.rate,
			InFlight: a.rate.Bytes(a.rtt), Cells: a.radio}
		if a.now >= a.round {
			x.Round, a.round = true, a.now+a.rtt
		}
		a.OnAck(x)
	}
	return a.Limits(a.now)
}

func (a *ackSequence) expectState(t *testing.T, want cc.PBEState) {
	t.Helper()
	if s, _ := a.State(); s != want {
		t.Errorf("at %v: %v, want %v", a.now, s, want)
	}
}

func expectRate(t *testing.T, what string, got, low, high unit.Rate) {
	t.Helper()
	if got < low || got > high {
		t.Errorf("%s: %v, want %v to %v", what, got, low, high)
	}
}

const mbps = unit.Mbps

// TestPBEStates visits all states.
func TestPBEStates(t *testing.T) {
	a := &ackSequence{PBE: cc.NewPBE(1), rtt: 100 * ms, rate: mbps,
		radio: cc.CellFeedback{TransportRate: 30 * mbps, FairRate: 20 * mbps}}
	// To the fair share linearly in three round trips, then to all that is free.
	expectRate(t, "after half of the approach", a.run(150*ms).Rate, 9*mbps, 12*mbps)
	a.expectState(t, cc.Approach)
	expectRate(t, "at the end of the approach", a.run(140*ms).Rate, 18*mbps, 20*mbps)
	l := a.run(20 * ms)
	a.expectState(t, cc.Wireless)
	expectRate(t, "wireless", l.Rate, 30*mbps, 30*mbps)
	if w := unit.RateOf(l.Window, 124*ms); w < 29*mbps || w > 31*mbps {
		t.Errorf("window %v", l.Window)
	}
	a.rate, a.radio.TransportRate = 30*mbps, 15*mbps
	expectRate(t, "at once, the rate of the feedback", a.run(ms).Rate, 15*mbps, 15*mbps)
	// Another carrier: to its fair share in three round trips again.
	a.radio = cc.CellFeedback{TransportRate: 45 * mbps, FairRate: 40 * mbps, Activated: 1}
	a.run(ms)
	a.expectState(t, cc.Approach)
	expectRate(t, "half way to the new share", a.run(150*ms).Rate, 36*mbps, 44*mbps)
	a.run(200 * ms)
	a.expectState(t, cc.Wireless)
	// The bottleneck is elsewhere, at 12 Mbit/s: half of what BBR has measured for
	// a round trip, then its cycle, which asks for no more than the fair share.
	a.radio.Internet, a.radio.FairRate, a.rate = true, 14*mbps, 12*mbps
	a.run(3 * sec) // of BBR's filter, in Drain and Internet
	a.expectState(t, cc.Internet)
	most := unit.Rate(0)
	for range 2000 {
		most = max(most, a.run(ms).Rate)
	}
	expectRate(t, "probing", most, 14*mbps, 14*mbps)
	// No queue any more, but less than the fair share: not yet.
	a.radio.Internet = false
	a.run(sec)
	a.expectState(t, cc.Internet)
	a.rate = 14 * mbps
	a.run(sec)
	a.expectState(t, cc.Wireless)
	a.radio.Internet = true
	l = a.run(ms)
	a.expectState(t, cc.Drain)
	expectRate(t, "drain", l.Rate, 7*mbps, 7*mbps)
	a.run(101 * ms)
	a.expectState(t, cc.Internet)
}

// TestPBEWithoutFeedback: the controller is BBR before the first feedback, half a second after the
// last, and after a timeout. New feedback starts an approach from BBR's rate.
func TestPBEWithoutFeedback(t *testing.T) {
	const r = 16 * mbps
	a := virtual.Run(newTestLink(virtual.SteadyRate(r), r), 5*sec, 1, defaultFlow(cc.NewBBR(1)))[0]
	b := virtual.Run(newTestLink(virtual.SteadyRate(r), r), 5*sec, 1, defaultFlow(cc.NewPBE(1)))[0]
	if a.Delivered != b.Delivered || a.Delay(0, 5*sec, 0.9) != b.Delay(0, 5*sec, 0.9) {
		t.Errorf("%v and %v", a.Delivered, b.Delivered)
	}
	x := &ackSequence{PBE: cc.NewPBE(1), rtt: 100 * ms, rate: 10 * mbps,
		radio: cc.CellFeedback{TransportRate: 90 * mbps, FairRate: 90 * mbps}}
	expectRate(t, "with feedback", x.run(sec).Rate, 90*mbps, 90*mbps)
	radio := x.radio
	x.radio = cc.CellFeedback{}
	expectRate(t, "soon after the last feedback", x.run(400*ms).Rate, 90*mbps, 90*mbps)
	expectRate(t, "without feedback", x.run(200*ms).Rate, 5*mbps, 30*mbps)
	x.radio = radio
	expectRate(t, "with feedback again", x.run(ms).Rate, 10*mbps, 11*mbps)
	x.run(sec)
	x.OnLoss(cc.Loss{Now: x.now, Bytes: cc.MSS, PersistentCongestion: true})
	if w := x.Limits(x.now).Window; w != cc.MSS {
		t.Errorf("after a timeout: window %v", w)
	}
}

// TestPBEDoubts: a receiver that reports three times what is delivered, and never a queue
// elsewhere, gets the rate and the queue of BBR.
func TestPBEDoubts(t *testing.T) {
	const r = 16 * mbps
	for _, trip := range []time.Duration{20 * ms, 50 * ms} {
		for _, lie := range []unit.Rate{1, 2, 3, 10} {
			p := cc.NewPBE(1)
			f := virtual.Flow{Controller: p, DelayToLink: trip / 4, DelayFromLink: trip / 4, AckDelay: trip / 2}
			f.Feedback = func(time.Duration, *virtual.Packet) cc.CellFeedback {
				return cc.CellFeedback{TransportRate: lie * r, FairRate: lie * r}
			}
			res := virtual.Run(virtual.NewWire(virtual.SteadyRate(r), r.Bytes(6*rtt)), 30*sec, 1, f)[0]
			queue := res.Delay(5*sec, 30*sec, 0.5) - trip/2
			t.Logf("%v, %d×: %v, queue %v, doubted %v", trip, lie, res.Rate(5*sec, 30*sec), queue, p.Doubted())
			if p.Doubted() != (lie > 1) || queue > trip || res.Rate(5*sec, 30*sec) < r*9/10 {
				t.Errorf("%v, %d×: %v, queue %v, doubted %v", trip, lie, res.Rate(5*sec, 30*sec), queue, p.Doubted())
			}
		}
	}
}

// TestPBELossy: where the excess is dropped instead of queued, a receiver that reports too much
// gets the rate and the loss of BBR.
func TestPBELossy(t *testing.T) {
	const r = 16 * mbps
	for _, trip := range []time.Duration{20 * ms, 50 * ms} {
		for _, lie := range []unit.Rate{1, 2, 3, 10} {
			p := cc.NewPBE(1)
			f := virtual.Flow{Controller: p, DelayToLink: trip / 4, DelayFromLink: trip / 4, AckDelay: trip / 2}
			f.Feedback = func(time.Duration, *virtual.Packet) cc.CellFeedback {
				return cc.CellFeedback{TransportRate: lie * r, FairRate: lie * r}
			}
			res := virtual.Run(virtual.NewWire(virtual.SteadyRate(r), r.Bytes(10*ms)), 30*sec, 1, f)[0]
			rate, lost, start := res.Rate(5*sec, 30*sec), res.Loss(5*sec, 30*sec), res.Loss(0, 2*sec)
			t.Logf("%v, %d×: %v, %.1f %% lost, %.0f %% in the first 2 s, doubted %v", trip, lie, rate, 100*lost,
				100*start, p.Doubted())
			// BBR asks for 1.25 of what there is in one of eight round trips.
			if p.Doubted() != (lie > 1) || lost > 0.04 || rate < r*85/100 {
				t.Errorf("%v, %d×: %v, %.1f %% lost, doubted %v", trip, lie, rate, 100*lost, p.Doubted())
			}
		}
	}
}

// TestPBERandomLoss: losses independent of the rate do not change it.
func TestPBERandomLoss(t *testing.T) {
	const r = 16 * mbps
	for seed := range uint64(3) {
		p := cc.NewPBE(seed)
		f := defaultFlow(p)
		f.Loss = 0.02
		f.Feedback = feedback(func(time.Duration) cc.CellRates { return cc.CellRates{Transport: r, Fair: r} })
		res := virtual.Run(virtual.NewWire(virtual.SteadyRate(r), r.Bytes(10*ms)), 20*sec, seed, f)[0]
		if got := res.Rate(sec, 20*sec); p.Doubted() || got < r*97/100 {
			t.Errorf("seed %d: %v of %v, doubted %v", seed, got, r, p.Doubted())
		}
	}
}

// TestPBELossByHand: a loss of a fiftieth is no reason to doubt feedback. Neither is more loss for
// less than five rounds, nor of too few packets. Five times two hundred packets of which more than
// a twentieth is lost are, in each state, and fewer if much more is lost. Twenty good rounds end the doubt.
func TestPBELossByHand(t *testing.T) {
	for _, x := range []struct {
		acks, lost int // of each round trip of 100 ms
		rounds     int
		want       bool
	}{{98, 2, 100, false}, {96, 3, 100, false}, {95, 6, 8, false}, {95, 6, 14, true}, {90, 12, 4, false},
		{90, 12, 8, true}, {70, 30, 1, false}, {70, 30, 4, true}, {10, 1, 40, false}, {10, 1, 120, true},
		{10, 3, 3, false}, {10, 3, 6, true}} {
		p, now := cc.NewPBE(1), time.Duration(0)
		round := func(lost int) {
			for i := range x.acks {
				now += 100 * ms / time.Duration(x.acks)
				if i < lost {
					p.OnLoss(cc.Loss{Now: now, Bytes: cc.MSS, Sent: now - 100*ms})
				}
				p.OnAck(cc.Ack{Now: now, Bytes: cc.MSS, Packets: 1, RTT: 100 * ms, Sent: now - 100*ms, Rate: 10 * mbps,
					Round: i == 0,
					Cells: cc.CellFeedback{TransportRate: 11 * mbps, FairRate: 11 * mbps}})
			}
		}
		for range 5 {
			round(0)
		}
		for range x.rounds {
			round(x.lost)
		}
		if got := p.Status().Doubted; got != x.want {
			t.Errorf("%d lost of %d for %d rounds: doubted %v", x.lost, x.acks+x.lost, x.rounds, got)
		}
		for range 50 {
			round(0)
		}
		if s := p.Status(); s.Doubted || p.Doubted() != x.want {
			t.Errorf("%d lost of %d for %d rounds: doubted %v after 50 good ones", x.lost, x.acks+x.lost, x.rounds,
				s.Doubted)
		}
	}
}

// TestReceiver: the state changes after as many packets over the threshold of 27 ms as six
// subframes hold, and back after as many under it. One packet on the other side restarts the count.
func TestReceiver(t *testing.T) {
	c := cc.CellRates{Transport: 24 * mbps, Fair: 20 * mbps, Activated: 3} // two packets a subframe
	var r cc.Receiver
	now := time.Duration(0)
	tell := func(delay time.Duration, n int) (last cc.CellFeedback) {
		for range n {
			now += ms
			last = r.OnPacket(now, -sec+delay, c)
		}
		return last
	}
	want := cc.CellFeedback{TransportRate: 24 * mbps, FairRate: 20 * mbps, Activated: 3}
	if got := tell(40*ms, 1); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	for _, x := range []struct {
		delay time.Duration
		n     int
		want  bool
	}{{67 * ms, 50, false}, {68 * ms, 11, false}, {67 * ms, 1, false}, {68 * ms, 11, false}, {68 * ms, 1, true},
		{41 * ms, 11, true}, {80 * ms, 1, true}, {41 * ms, 12, false}} {
		if got := tell(x.delay, x.n); got.Internet != x.want {
			t.Errorf("%d packets at %v: %v", x.n, x.delay, got.Internet)
		}
	}
	// Where the cells give all they have, the queue is theirs.
	c.Full = true
	if tell(90*ms, 50).Internet {
		t.Error("a full cell is no bottleneck elsewhere")
	}
	c.Full = false
	if !tell(90*ms, 12).Internet || tell(41*ms, 12).Internet {
		t.Error("not full: by delays")
	}
	// The least delay is forgotten after 12 s.
	if tell(90*ms, 11_000); !tell(110*ms, 50).Internet || tell(41*ms, 12).Internet {
		t.Error("a minimum delay of 11 s ago does not count")
	}
	tell(90*ms, 12_100)
	if tell(110*ms, 50).Internet {
		t.Error("an expired minimum delay still counts")
	}
}
