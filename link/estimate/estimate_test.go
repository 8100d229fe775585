// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

const ms = time.Millisecond

var t0 = time.Unix(1e9, 0)

// nearlyEqual reports whether two durations differ by at most 1 %.
func nearlyEqual(a, b time.Duration) bool { return (a - b).Abs() <= b/100+time.Microsecond }

func TestDirectPAD(t *testing.T) {
	for _, c := range []struct {
		name string
		h    Hop
		want time.Duration
	}{
		{"empty", Hop{SRTT: 50 * ms, MinRTT: 50 * ms, Rate: 8 * unit.Mbps}, 25 * ms},
		{"what is in flight does not wait", Hop{SRTT: 50 * ms, MinRTT: 50 * ms, Rate: 8 * unit.Mbps,
			Queue: 50_000}, 25 * ms},
		{"100 KB wait", Hop{SRTT: 90 * ms, MinRTT: 50 * ms, Rate: 8 * unit.Mbps, Queue: 150_000}, 125 * ms},
		{"before any measurement, window over round trip", Hop{SRTT: 50 * ms, MinRTT: 50 * ms, Cwnd: 14_480,
			Queue: 28_960}, 75 * ms},
	} {
		var p Subflow
		p.AddLocalSample(t0, c.h)
		p.localMeter.rate, p.localMeter.limitSeen = c.h.Rate, c.h.Rate > 0
		if got := p.EstimateAt(t0).PAD; !nearlyEqual(got, c.want) {
			t.Errorf("%s: PAD %v, want %v", c.name, got, c.want)
		}
	}
}

// TestJoinRTT checks that the handshake's round trip is used for the far hop until a shorter one is
// seen end to end, whatever is reported.
func TestJoinRTT(t *testing.T) {
	p := Subflow{Helped: true, JoinRTT: 75 * ms}
	p.AddLocalSample(t0, Hop{SRTT: 5 * ms, MinRTT: 5 * ms})
	if n := p.EstimateAt(t0); !nearlyEqual(n.OWD, 37500*time.Microsecond) || !nearlyEqual(n.SRTT, 75*ms) {
		t.Errorf("before a report: %+v", n)
	}
	p.AddHelperReport(t0, wire.HopState{RTT: 45 * ms})
	if n := p.EstimateAt(t0); !nearlyEqual(n.OWD, 37500*time.Microsecond) {
		t.Errorf("after one: %+v", n)
	}
	p.OnSent(t0, 1000)
	p.OnAcked(1000, t0.Add(25*ms), 25*ms)
	if n := p.EstimateAt(t0.Add(50 * ms)); !nearlyEqual(n.OWD, 25*ms) {
		t.Errorf("after 50 ms end to end: %+v", n)
	}
}

// TestHelpedPAD checks both cases of the paper: a new byte waits for the pipe, or for the HS-path.
func TestHelpedPAD(t *testing.T) {
	p := Subflow{Helped: true}
	p.localMeter.rate, p.localMeter.limitSeen = 10*unit.Mbps, true
	p.arrivals.rate = 100 * unit.Mbps
	p.AddLocalSample(t0, Hop{SRTT: 70 * ms, MinRTT: 70 * ms})
	p.AddHelperReport(t0, wire.HopState{Rate: 5 * unit.Mbps, RTT: 5 * ms})
	if n := p.EstimateAt(t0); !nearlyEqual(n.PAD, 37500*time.Microsecond) || n.Th != 5*unit.Mbps {
		t.Errorf("empty: %+v", n)
	}
	// 500 KB were sent, and the first of them arrive now; our own queue is empty.
	p.OnSent(t0.Add(-37500*time.Microsecond), 500_000)
	p.OnAcked(0, t0, 0)
	n := p.EstimateAt(t0)
	if want := n.OWD + (5 * unit.Mbps).Time(n.B2); !nearlyEqual(n.PAD, want) || n.B2 < 497_500 || n.B2 > 500_000 {
		t.Errorf("helper holds 500 KB: %+v", n)
	}
	// 100 ms later the pipe has carried 62.5 KB, although no report has come.
	if got := n.B2 - p.EstimateAt(t0.Add(100*ms)).B2; got < 62_000 || got > 63_000 {
		t.Errorf("the pipe is estimated to have carried %d bytes in 100 ms", got)
	}
	// The estimate of a silent subflow gets worse over time.
	if a, b := p.EstimateAt(t0.Add(time.Second)), p.EstimateAt(t0.Add(time.Minute)); a.PAD >= b.PAD ||
		a.B2 == 0 || a.B2 != b.B2 {
		t.Errorf("silent: %v after a second, %v after a minute", a.PAD, b.PAD)
	}
	// Now the HS-path is slow and has a queue, which determines PAD.
	p.AddHelperReport(t0, wire.HopState{Rate: 50 * unit.Mbps, RTT: 5 * ms})
	p.OnAcked(500_000, t0, 0)
	p.OnSent(t0, 1_000_000)
	p.AddLocalSample(t0, Hop{SRTT: 70 * ms, MinRTT: 70 * ms, Queue: 1_000_000})
	if n := p.EstimateAt(t0); !nearlyEqual(n.PAD, n.OWD+(10*unit.Mbps).Time(1_000_000-87_500)) || n.Th != 10*unit.Mbps ||
		n.FarQueueTime > 5*ms {
		t.Errorf("HS-path backlogged: %+v", n)
	}
}

// TestNothingArrivesAtOnce checks that bytes sent after an idle time do not count as received before
// they can have arrived.
func TestNothingArrivesAtOnce(t *testing.T) {
	p := Subflow{Helped: true}
	p.localMeter.rate, p.localMeter.limitSeen = 100*unit.Mbps, true
	p.arrivals.rate = 100 * unit.Mbps
	p.AddLocalSample(t0, Hop{SRTT: 20 * ms, MinRTT: 20 * ms})
	p.AddHelperReport(t0, wire.HopState{Rate: 8 * unit.Mbps, RTT: 60 * ms}) // OWD 40 ms
	p.OnSent(t0, 1000)
	p.OnAcked(1000, t0.Add(40*ms), 40*ms)
	start := t0.Add(time.Minute)
	p.OnSent(start, 100_000)
	for _, c := range []struct {
		after time.Duration
		want  unit.Bytes
	}{{0, 0}, {40 * ms, 0}, {50 * ms, 10_000}, {time.Second, 100_000}} {
		now := start.Add(c.after)
		if got := unit.Bytes(p.estimateReceived(now, 40*ms, 8*unit.Mbps)) - 1000; got != c.want {
			t.Errorf("after %v: %d bytes received, want %d", c.after, got, c.want)
		}
	}
	p.OnAcked(1000, start.Add(20*ms), 40*ms) // of another subflow: still nothing has arrived
	if got := p.estimateReceived(start.Add(40*ms), 40*ms, 8*unit.Mbps); got != 1000 {
		t.Errorf("after the acknowledgement of another subflow: %d bytes received", got)
	}
}

// TestFarQueueTime checks that bytes in flight on a fast hop 1 count as the queue before hop 2 that
// they will be when a new byte gets there.
func TestFarQueueTime(t *testing.T) {
	p := Subflow{Helped: true}
	p.localMeter.rate, p.localMeter.limitSeen = 100*unit.Mbps, true
	p.arrivals.rate = 100 * unit.Mbps
	p.OnSent(t0, 100_000)
	p.AddLocalSample(t0, Hop{SRTT: 20 * ms, MinRTT: 20 * ms, Queue: 100_000})
	p.AddHelperReport(t0, wire.HopState{Rate: 5 * unit.Mbps, RTT: 5 * ms})
	if n := p.EstimateAt(t0); n.FarQueueTime < 150*ms || n.FarQueueTime > 155*ms { // 160 ms less 8 ms
		t.Errorf("100 KB on hop 1: %v", n.FarQueueTime)
	}
	p.localMeter.rate = 4 * unit.Mbps
	p.OnAcked(50_000, t0.Add(60*ms), 10*ms)
	if n := p.EstimateAt(t0.Add(60 * ms)); n.FarQueueTime != 0 {
		t.Errorf("50 KB on a hop 1 that is slower than hop 2: %v", n.FarQueueTime)
	}
}

func TestThroughputOfTheFarHop(t *testing.T) {
	p := Subflow{Helped: true}
	p.AddHelperReport(t0, wire.HopState{Rate: 5 * unit.Mbps})
	p.AddHelperReport(t0, wire.HopState{Rate: unit.Mbps, AppLimited: true})
	if th := p.EstimateAt(t0).Th2; th != 5*unit.Mbps {
		t.Errorf("a helper with little to send lowers the pipe to %v", th)
	}
	p.AddHelperReport(t0, wire.HopState{Rate: 9 * unit.Mbps, AppLimited: true})
	if th := p.EstimateAt(t0).Th2; th != 9*unit.Mbps {
		t.Errorf("a lower bound of 9 Mbit/s is taken as %v", th)
	}
	p.AddHelperReport(t0, wire.HopState{Rate: unit.Mbps})
	if th := p.EstimateAt(t0).Th2; th != unit.Mbps {
		t.Errorf("a true drop is taken as %v", th)
	}
}

// TestFarHopBegins checks that a far hop never seen at its limit is estimated by TCP's window: ten
// segments per round trip, plus what it has carried, and at most the rate of hop 1.
func TestFarHopBegins(t *testing.T) {
	for _, c := range []struct {
		acked uint64
		want  unit.Rate
	}{{0, unit.RateOf(14_480, 70*ms)}, {14_480, unit.RateOf(28_960, 70*ms)}, {1_000_000, 5 * unit.Mbps}} {
		p := Subflow{Helped: true}
		for i := range 50 { // the pipe is at its limit
			p.AddLocalSample(t0.Add(time.Duration(i)*5*ms), Hop{SRTT: 5 * ms, MinRTT: 5 * ms, MSS: 1448,
				Cwnd: 50_000, Queue: 60_000, Unsent: 1,
				Acked: uint64((5 * unit.Mbps).Bytes(time.Duration(i) * 5 * ms))})
		}
		p.AddHelperReport(t0, wire.HopState{Rate: 100 * unit.Kbps, RTT: 70 * ms, AppLimited: true})
		p.OnSent(t0, 1_000_000)
		p.OnAcked(c.acked, t0, 0)
		if th := p.EstimateAt(t0).Th; !withinPercent(th, c.want, 1) {
			t.Errorf("with %d bytes carried: %v, want %v", c.acked, th, c.want)
		}
		p.AddHelperReport(t0, wire.HopState{Rate: 2 * unit.Mbps, RTT: 70 * ms})
		if th := p.EstimateAt(t0).Th; th != 2*unit.Mbps {
			t.Errorf("measured at its limit: %v", th)
		}
	}
}

// linkSim feeds a meter with a simulated link.
type linkSim struct {
	m     Meter
	now   time.Time
	h     Hop
	queue float64
}

func (w *linkSim) runFor(d time.Duration, link, offered unit.Rate) {
	const step = 5 * ms
	for range d / step {
		w.now = w.now.Add(step)
		w.queue += float64(offered.Bytes(step))
		// Bytes in flight for less than a round trip cannot be acknowledged.
		out := min(float64(link.Bytes(step)), max(0, w.queue-float64(min(link, offered).Bytes(w.h.MinRTT))))
		w.queue -= out
		w.h.Acked += uint64(out)
		w.h.Queue = unit.Bytes(w.queue)
		w.m.Add(w.now, w.h)
	}
}

func withinPercent(r, want unit.Rate, percent int64) bool {
	return int64(r) > int64(want)*(100-percent)/100 && int64(r) < int64(want)*(100+percent)/100
}

// TestMeter checks that a hop at its limit is measured, and that another one yields a bound, which
// never hides a limit seen before.
func TestMeter(t *testing.T) {
	w := &linkSim{now: t0, h: Hop{SRTT: 20 * ms, MinRTT: 20 * ms, MSS: 1448}}
	w.runFor(time.Second, 10*unit.Mbps, 3*unit.Mbps)
	if r, limited := w.m.Rate(); !limited || !withinPercent(r, 3*unit.Mbps, 5) {
		t.Errorf("3 Mbit/s offered to 10: %v, limited %v", r, limited)
	}
	w.runFor(time.Second, 10*unit.Mbps, 20*unit.Mbps)
	if r, limited := w.m.Rate(); limited || !withinPercent(r, 10*unit.Mbps, 3) {
		t.Errorf("20 Mbit/s offered to 10: %v, limited %v", r, limited)
	}
	w.runFor(300*ms, unit.Mbps, unit.Mbps)
	if r, _ := w.m.Rate(); !withinPercent(r, unit.Mbps, 3) {
		t.Errorf("300 ms after the drop to 1: %v", r)
	}
	w.queue = 0
	w.runFor(time.Second, 10*unit.Mbps, 500*unit.Kbps)
	w.now = w.now.Add(time.Hour)
	if r, limited := w.m.Rate(); limited || !withinPercent(r, unit.Mbps, 3) {
		t.Errorf("hardly used, then idle: %v, limited %v", r, limited)
	}
	w.runFor(time.Second, 10*unit.Mbps, 2*unit.Mbps)
	if r, _ := w.m.Rate(); !withinPercent(r, 2*unit.Mbps, 5) {
		t.Errorf("2 Mbit/s carried where 1 was the limit: %v", r)
	}
}

// TestMeterWindowLimited checks that a hop limited by TCP's window counts as limited, although the
// network has no queue.
func TestMeterWindowLimited(t *testing.T) {
	w := &linkSim{now: t0, h: Hop{SRTT: 20 * ms, MinRTT: 20 * ms, MSS: 1448, Unsent: 16 << 10}}
	w.runFor(time.Second, 10*unit.Mbps, 4*unit.Mbps)
	if r, limited := w.m.Rate(); limited || !withinPercent(r, 4*unit.Mbps, 5) {
		t.Errorf("%v, limited %v", r, limited)
	}
}

func TestNothingKnown(t *testing.T) {
	for _, helped := range []bool{false, true} {
		p := Subflow{Helped: helped}
		if n := p.EstimateAt(t0); n.PAD <= 0 || n.PAD > time.Second || n.Th <= 0 {
			t.Errorf("helped=%v: %+v", helped, n)
		}
	}
}

// TestReportWithoutRate checks that a helper cannot make its subflow look fast by reporting no
// rate.
func TestReportWithoutRate(t *testing.T) {
	p := Subflow{Helped: true}
	p.AddLocalSample(t0, Hop{SRTT: 70 * ms, MinRTT: 70 * ms})
	p.AddHelperReport(t0, wire.HopState{RTT: 5 * ms})
	p.OnSent(t0, 10_000_000)
	if n := p.EstimateAt(t0); n.PAD < n.OWD || n.FarQueueTime < 0 {
		t.Errorf("%+v", n)
	}
	p.AddHelperReport(t0, wire.HopState{RTT: 5 * ms, Rate: 5 * unit.Mbps})
	p.AddHelperReport(t0, wire.HopState{RTT: 5 * ms})
	if n := p.EstimateAt(t0); n.Th2 != 5*unit.Mbps {
		t.Errorf("after a report without a rate: %+v", n)
	}
}
