// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/pbe/cc"
)

// cellPath is a path of 20 Mbit/s with an RTT of 50 ms.
var cellPath = testPath{delay: 25 * time.Millisecond, rate: 20 * unit.Mbps, mtu: 1472, queue: 100 * time.Millisecond}

// newLoadedWorld returns a world in which engine 0 sends without end, after five seconds, and the
// rate of the last two.
func newLoadedWorld(t *testing.T, ctl func() cc.Controller) (*world, unit.Rate) {
	w := newWorld(t, cellPath, 21)
	for _, e := range w.engines {
		e.controller = ctl()
	}
	w.keepSending(0)
	w.runUntil(3*time.Second, neverDone)
	return w, w.measure(2 * time.Second)
}

func neverDone() bool { return false }

// measure returns the rate of the stream to engine 1 in the next time.
func (w *world) measure(long time.Duration) unit.Rate {
	had, from := w.engines[1].receiver.readOffset, w.now
	w.runUntil(long, neverDone)
	return unit.RateOf(unit.Bytes(w.engines[1].receiver.readOffset-had), w.now-from)
}

var controllers = map[string]func() cc.Controller{
	"CUBIC": func() cc.Controller { return cc.NewCUBIC() },
	"BBR":   func() cc.Controller { return cc.NewBBR(1) },
	"PBE":   func() cc.Controller { return cc.NewPBE(1) },
}

// TestHeldBack: a handover that delays all packets of one or both directions by 700 ms loses none.
// No packet is declared lost. A second later the rate and the length of packets are as before.
func TestHeldBack(t *testing.T) {
	for name, ctl := range controllers {
		for what, held := range map[string][2]bool{"both": {true, true}, "data": {true, false},
			"acknowledgements": {false, true}} {
			w, before := newLoadedWorld(t, ctl)
			retransmitted, mtu := w.engines[0].sender.retransmittedSegments, w.engines[0].mtu.size
			until := w.now + 700*time.Millisecond
			var flying []flight // packets in flight are delayed too
			for w.packets.Len() > 0 {
				_, f := w.packets.Pop()
				flying = append(flying, f)
			}
			for _, f := range flying {
				if held[1-f.to] {
					f.at = max(f.at, until)
				}
				w.push(f)
			}
			w.drop = func(from int, f flight) bool {
				if w.now >= until || !held[from] {
					return false
				}
				f.at = until + cellPath.delay
				w.push(f)
				return true
			}
			w.runUntil(700*time.Millisecond+time.Second, neverDone)
			after := w.measure(2 * time.Second)
			e := w.engines[0]
			t.Logf("%s, %s: %v before, %v after, %d sent again", name, what, before, after,
				e.sender.retransmittedSegments-retransmitted)
			if float64(after) < 0.9*float64(before) || e.sender.retransmittedSegments != retransmitted {
				t.Errorf("%s, %s: %v, %v before; %d sent again", name, what, after, before,
					e.sender.retransmittedSegments-retransmitted)
			}
			if e.mtu.size != mtu || mtu != 1472 {
				t.Errorf("%s, %s: packets of %d, %d before", name, what, e.mtu.size, mtu)
			}
		}
	}
}

// TestOutage: after ten seconds without any packet, the first byte arrives within maxProbeTimeout
// and a round trip. Three seconds later the rate and the length of packets are as before.
func TestOutage(t *testing.T) {
	for name, ctl := range controllers {
		w, before := newLoadedWorld(t, ctl)
		mtu, end := w.engines[0].mtu.size, w.now+10*time.Second
		w.packets.Clear()
		w.drop = func(int, flight) bool { return w.now < end }
		w.runUntil(10*time.Second, neverDone)
		had, timeouts := w.engines[1].receiver.readOffset, w.engines[0].loss.ptoCount
		w.runUntil(10*time.Second, func() bool { return w.engines[1].receiver.readOffset > had })
		first := w.now - end
		w.runUntil(3*time.Second, neverDone)
		after := w.measure(2 * time.Second)
		t.Logf("%s: first byte after %v, then %v, %v before; %d probes", name, first, after, before, timeouts)
		if first > maxProbeTimeout+100*time.Millisecond || float64(after) < 0.9*float64(before) ||
			w.engines[0].mtu.size != mtu || timeouts < 8 {
			t.Errorf("%s: first byte after %v, then %v, %v before; packets of %d, %d before; %d probes", name, first,
				after, before, w.engines[0].mtu.size, mtu, timeouts)
		}
	}
}

// TestShortOutage: after an outage like a failed handoff, the first byte arrives within a probe interval
// and a round trip. No persistent congestion is reported, and in the next second the rate is as before.
func TestShortOutage(t *testing.T) {
	for name, ctl := range controllers {
		w, before := newLoadedWorld(t, func() cc.Controller { return &lossCounter{Controller: ctl()} })
		counter := w.engines[0].controller.(*lossCounter)
		reported, end := counter.losses, w.now+3*time.Second
		w.packets.Clear()
		w.drop = func(int, flight) bool { return w.now < end }
		w.runUntil(3*time.Second, neverDone)
		had := w.engines[1].receiver.readOffset
		w.runUntil(5*time.Second, func() bool { return w.engines[1].receiver.readOffset > had })
		first := w.now - end
		w.runUntil(200*time.Millisecond, neverDone)
		after := w.measure(time.Second)
		t.Logf("%s: first byte after %v, then %v, %v before; %d losses reported", name, first, after, before,
			counter.losses-reported)
		if limit := max(outageProbeInterval, w.engines[0].loss.rtt.smoothed) + 100*time.Millisecond; first > limit ||
			float64(after) < 0.9*float64(before) || counter.timeouts > 0 {
			t.Errorf("%s: first byte after %v, then %v, %v before; %d timeouts", name, first, after, before,
				counter.timeouts)
		}
	}
}

// lossCounter counts the reports to a controller.
type lossCounter struct {
	cc.Controller
	losses, timeouts int
}

func (w *lossCounter) OnLoss(l cc.Loss) {
	w.losses++
	if l.PersistentCongestion {
		w.timeouts++
	}
	w.Controller.OnLoss(l)
}

// TestPersistent: only consecutive losses over more than three probe timeouts are reported as
// persistent congestion (RFC 9002 section 7.6), once. Round trips are longer after the losses, so that
// they are no outage.
func TestPersistent(t *testing.T) {
	for long, want := range map[time.Duration]int{50 * time.Millisecond: 0, 3 * time.Second: 1} {
		var seen lossCounter
		w, _ := newLoadedWorld(t, func() cc.Controller { return &lossCounter{Controller: cc.NewCUBIC()} })
		w.engines[0].controller, seen.Controller = &seen, w.engines[0].controller
		begun := w.now
		w.drop = func(int, flight) bool { return w.now < begun+long }
		w.path.delay *= 10
		w.runUntil(long+2*time.Second, neverDone)
		if seen.timeouts != want || seen.losses == 0 {
			t.Errorf("%v: %d timeouts of %d losses", long, seen.timeouts, seen.losses)
		}
	}
}

// TestLatest: when round trips grow, the latest one determines the time threshold (RFC 9002 section
// 6.1.2).
func TestLatest(t *testing.T) {
	e := newConnEngine(fixedWindow{cc.NewCUBIC(), unit.MB}, 28)
	e.liveness.lastReceived, e.liveness.lastSent = time.Second, time.Second
	e.sender.writeToBuffer(make([]byte, 20_000))
	e.loss.rtt.addRTTSample(time.Second, 50*time.Millisecond, 50*time.Millisecond)
	now, n := time.Second, 0
	for ok := true; ok; n++ {
		_, _, ok = e.appendPacket(now, nil)
	}
	now += 200 * time.Millisecond
	a := ackFrame{maxData: maxWindow, count: 1, ranges: [maxAckRanges]ackRange{{1, 1}}} // not 0
	if err := e.handlePacketFrames(now, 0, a.appendEncodedAck(nil)); err != nil || e.loss.lostCount != 0 {
		t.Fatalf("%d lost, %v", e.loss.lostCount, err)
	}
	if want := time.Second + 225*time.Millisecond; e.loss.lossTime != want {
		t.Errorf("packet 0 is late at %v, not %v", e.loss.lossTime, want)
	}
	if e.handleTimers(e.loss.lossTime); e.loss.lostCount != 1 {
		t.Errorf("%d are lost then", e.loss.lostCount)
	}
}

// TestBlackHole: long packets lost while short ones arrive end the use of long packets. Losses in
// an outage do not.
func TestBlackHole(t *testing.T) {
	m := mtuSearch{size: 1472}
	m.onPacketAcked(10, 1472, false)
	for n := range uint64(20) {
		m.onPacketLost(time.Second, 11+n, 1472, false)
	}
	m.onPacketAcked(40, 300, false) // later than all that was lost
	if m.size != 1472 || m.longLost != 0 {
		t.Errorf("packets of %d after an outage, %d lost", m.size, m.longLost)
	}
	for n := range uint64(blackHoleLosses) {
		if m.size != 1472 {
			t.Errorf("%d are enough", n)
		}
		m.onPacketLost(time.Second, 41+n, 1472, false)
	}
	if m.size != minPayload {
		t.Errorf("packets of %d where short ones arrive only", m.size)
	}
}

// TestProbesShowNoRate: round trips with a single small probe do not show the capacity. A long
// first round trip does not stay the minimum.
func TestProbesShowNoRate(t *testing.T) {
	for name, ctl := range controllers {
		w := newWorld(t, testPath{delay: 20 * time.Millisecond, rate: 8 * unit.Mbps, mtu: 1472,
			queue: 80 * time.Millisecond}, 1)
		w.engines[0].controller = ctl()
		w.drop = func(from int, f flight) bool { // the first answer comes late
			w.drop = func(_ int, f flight) bool {
				f.at = w.now + w.path.delay + 40*time.Millisecond
				w.push(f)
				w.drop = nil
				return true
			}
			return false
		}
		for range 6 {
			w.engines[0].pendingPing = true
			w.send(0)
			w.runUntil(50*time.Millisecond, func() bool { return w.engines[0].loss.bytesInFlight == 0 })
			for w.packets.Len() > 0 {
				w.step()
			}
		}
		if rtt := w.engines[0].loss.rtt.min; rtt > 45*time.Millisecond {
			t.Errorf("%s: the least round trip is %v, of 40 ms", name, rtt)
		}
		begun := w.now
		if took := w.transfer(2_000_000, 0) + time.Second - begun; took > 3*time.Second {
			t.Errorf("%s: 2 MB over 8 Mbit/s took %v", name, took)
		}
	}
}
