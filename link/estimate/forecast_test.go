// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"math/rand/v2"
	"testing"
	"time"

	"mpbond/base/unit"
)

const testMSS = 1448

// estimateWithForecast returns the estimate with its forecast.
func estimateWithForecast(p *Subflow, now time.Time) Estimate {
	n := p.EstimateAt(now)
	p.AddForecast(&n, now)
	return n
}

// tcpHop is one TCP in slow start over an ideal link, in virtual time. Bytes are whole packets.
type tcpHop struct {
	rate unit.Rate
	owd  time.Duration
	cwnd int // in packets

	waiting int         // packets given and not sent
	linkAt  time.Time   // when the link is free
	arrives []time.Time // of packets that have not arrived
	acks    []time.Time // of packets that are not acknowledged
	acked   int
}

// step moves on to time now. It returns how many packets arrived.
func (h *tcpHop) step(now time.Time) (arrived int) {
	for len(h.arrives) > 0 && !h.arrives[0].After(now) {
		h.arrives = h.arrives[1:]
		arrived++
	}
	for len(h.acks) > 0 && !h.acks[0].After(now) {
		h.acks = h.acks[1:]
		h.acked++
		h.cwnd++
	}
	for h.waiting > 0 && len(h.acks) < h.cwnd {
		if h.linkAt.Before(now) {
			h.linkAt = now
		}
		h.linkAt = h.linkAt.Add(h.rate.Time(testMSS))
		h.arrives = append(h.arrives, h.linkAt.Add(h.owd))
		h.acks = append(h.acks, h.linkAt.Add(2*h.owd))
		h.waiting--
	}
	return arrived
}

// sample returns what the kernel reports of the hop.
func (h *tcpHop) sample() Hop {
	return Hop{SRTT: 2 * h.owd, MinRTT: 2 * h.owd, Cwnd: unit.Bytes(h.cwnd) * testMSS, SlowStart: true, MSS: testMSS,
		Queue: unit.Bytes(h.waiting+len(h.acks)) * testMSS, Unsent: unit.Bytes(h.waiting) * testMSS,
		Acked: uint64(h.acked) * testMSS}
}

// TestForecastOfSlowStart checks that each packet arrives about when it was forecast to, while
// one or two hops are in slow start, if the rate of the slowest hop is known.
func TestForecastOfSlowStart(t *testing.T) {
	exact, total := 0, 0
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		draw := func() *tcpHop {
			return &tcpHop{rate: unit.Rate(1+r.IntN(40)) * unit.Mbps, owd: time.Duration(2+r.IntN(60)) * ms, cwnd: 10}
		}
		hops := []*tcpHop{draw()}
		if r.IntN(2) == 0 {
			hops = append(hops, draw())
		}
		bottleneck, owd := hops[0].rate, time.Duration(0)
		for _, h := range hops {
			bottleneck, owd = min(bottleneck, h.rate), owd+h.owd
		}
		p := Subflow{Helped: len(hops) == 2, JoinRTT: 2 * owd}
		p.SetTrain(bottleneck, 2*owd)
		p.AddLocalSample(t0, hops[0].sample())
		type report struct {
			at      time.Time
			packets int
		}
		var forecasts, errors []time.Duration
		var reports []report
		const packets = 120
		arrived := 0
		for now := t0; arrived < packets && now.Before(t0.Add(time.Minute)); now = now.Add(100 * time.Microsecond) {
			n := hops[0].step(now)
			if len(hops) == 2 {
				hops[1].waiting += n
				n = hops[1].step(now)
			}
			for ; n > 0; n-- {
				errors = append(errors, now.Sub(t0)-forecasts[arrived])
				arrived++
				reports = append(reports, report{now, arrived})
			}
			for len(reports) > 0 && !now.Before(reports[0].at.Add(owd)) {
				p.AddLocalSample(now, hops[0].sample())
				p.OnAcked(uint64(reports[0].packets)*testMSS, reports[0].at, owd)
				reports = reports[1:]
			}
			for len(forecasts) < packets && hops[0].waiting < 3 {
				p.AddLocalSample(now, hops[0].sample())
				forecasts = append(forecasts, now.Sub(t0)+estimateWithForecast(&p, now).Forecast)
				p.OnSent(now, testMSS)
				hops[0].waiting++
			}
		}
		if arrived < packets {
			t.Fatalf("seed %d: only %d packets arrive", seed, arrived)
		}
		// Packets that waited at the helper can be faster than the slowest hop.
		slack := 4*ms + 2*bottleneck.Time(testMSS)
		for i, e := range errors {
			if e > slack || e < -slack-forecasts[i]/4 {
				t.Errorf("seed %d: packet %d of %d hops arrives %v later than forecast, after %v", seed, i, len(hops), e,
					forecasts[i]+e)
				break
			}
			if e.Abs() <= slack {
				exact++
			}
			total++
		}
	}
	if exact < total*95/100 {
		t.Errorf("%d of %d packets arrive when forecast", exact, total)
	}
	t.Logf("%d of %d packets arrive when forecast", exact, total)
}

// TestForecastOfFullWindow checks that a segment waits for an acknowledgement when as many packets are in
// flight as the window permits, though they are not full.
func TestForecastOfFullWindow(t *testing.T) {
	for _, c := range []struct {
		name          string
		packet        unit.Bytes
		packets       uint64
		full, unknown bool
	}{
		{"packets that are not full", 1000, 40, true, false},
		{"one packet less", 1000, 39, false, false},
		{"an unknown number of them", 1000, 40, false, true},
	} {
		p := Subflow{Helped: true, JoinRTT: 60 * ms}
		p.AddLocalSample(t0, Hop{SRTT: 50 * ms, MinRTT: 50 * ms, MSS: testMSS, Cwnd: 40 * testMSS, SlowStart: true})
		p.SetTrain(100*unit.Mbps, 60*ms)
		for range c.packets {
			p.OnSent(t0, c.packet)
		}
		h := Hop{SRTT: 50 * ms, MinRTT: 50 * ms, MSS: testMSS, Cwnd: 40 * testMSS, SlowStart: true, InFlight: c.packets,
			Queue: unit.Bytes(c.packets) * c.packet}
		if c.unknown {
			h.InFlight = 0
		}
		p.AddLocalSample(t0, h)
		// The acknowledgement of the oldest packets on hop 1 takes 50 ms, the way over both hops 30 ms.
		if n := estimateWithForecast(&p, t0); (n.Forecast >= 80*ms) != c.full {
			t.Errorf("%s: forecast %v, want a full window: %v", c.name, n.Forecast, c.full)
		}
	}
}

// TestForecastOfSmallPackets checks that a full window of small packets waits for the acknowledgement of
// the first one, and not for as many bytes as full packets would have.
func TestForecastOfSmallPackets(t *testing.T) {
	p := Subflow{Helped: true, JoinRTT: 60 * ms}
	h := Hop{SRTT: 50 * ms, MinRTT: 50 * ms, MSS: testMSS, Cwnd: 40 * testMSS, SlowStart: true}
	p.AddLocalSample(t0, h)
	p.SetTrain(100*unit.Mbps, 60*ms)
	for i := range time.Duration(40) {
		p.OnSent(t0.Add(i*ms), 100)
	}
	h.InFlight, h.Queue = 40, 4000
	p.AddLocalSample(t0.Add(40*ms), h)
	// That acknowledgement comes after 10 ms more, and the way over both hops takes 30 ms.
	if n := estimateWithForecast(&p, t0.Add(40*ms)); n.Forecast < 40*ms || n.Forecast > 43*ms {
		t.Errorf("forecast %v, want 40 ms", n.Forecast)
	}
}

// TestForecastCorrects checks that segments in flight count as late as those before them, that a
// withdrawn segment counts no more, and that nothing is late once all has arrived.
func TestForecastCorrects(t *testing.T) {
	var p Subflow
	p.AddLocalSample(t0, Hop{SRTT: 50 * ms, MinRTT: 50 * ms, Cwnd: 100_000})
	p.SetTrain(8*unit.Mbps, 50*ms)
	for range 10 {
		p.OnSent(t0, 5000) // of 5 ms each
	}
	check := func(name string, end uint64, at, want time.Duration) {
		t.Helper()
		s, _ := p.flight.findSegmentAt(end-1, p.flight.late)
		if got := s.arrives.Sub(t0.Add(at)); !nearlyEqual(got, want) {
			t.Errorf("%s: bytes before %d arrive in %v, want %v", name, end, got, want)
		}
	}
	check("at once", 5000, 0, 30*ms)
	check("at once", 50_000, 0, 75*ms)
	check("later", 50_000, 40*ms, 35*ms)
	p.OnAcked(5000, t0.Add(60*ms), 25*ms)   // 30 ms later than forecast, or some of it
	p.OnAcked(10_000, t0.Add(70*ms), 25*ms) // not before 60 ms
	check("the second was 25 ms late", 50_000, 70*ms, 30*ms)
	p.OnAcked(20_000, t0.Add(60*ms), 25*ms)
	check("the fourth was 5 ms early after that", 50_000, 60*ms, 30*ms)
	p.OnUnsent(5000)
	if n := estimateWithForecast(&p, t0.Add(60*ms)); !nearlyEqual(n.Forecast, 25*ms+(8*unit.Mbps).Time(guessMSS)) {
		t.Errorf("after the newest segment was withdrawn: %v", n.Forecast)
	}
	p.OnAcked(45_000, t0.Add(90*ms), 25*ms)
	n := estimateWithForecast(&p, t0.Add(90*ms))
	if !nearlyEqual(n.Forecast, 25*ms+(8*unit.Mbps).Time(guessMSS)) || p.flight.late != 0 {
		t.Errorf("when all has arrived: %v, %v late", n.Forecast, p.flight.late)
	}
}

// TestForecastAfterIdle checks that an idle time shrinks the windows of both hops as TCP does, and
// that they grow again from there.
func TestForecastAfterIdle(t *testing.T) {
	for _, c := range []struct {
		idle time.Duration
		want unit.Bytes // in initial windows
	}{{100 * ms, 8}, {300 * ms, 4}, {600 * ms, 2}, {time.Hour, 1}, {-time.Second, 8}} {
		p := Subflow{Helped: true, JoinRTT: 100 * ms}
		p.AddLocalSample(t0, Hop{SRTT: 50 * ms, MinRTT: 50 * ms, Cwnd: 8 * initialWindow, SlowStart: true})
		for i := range 7 {
			p.OnSent(t0, initialWindow)
			p.OnAcked(uint64(i+1)*initialWindow, t0, 50*ms)
		}
		later := t0.Add(c.idle)
		if got := p.windowAfterIdle(later, 8*initialWindow, 250*ms); got != c.want*initialWindow {
			t.Errorf("idle for %v: window %v, want %v", c.idle, got, c.want*initialWindow)
		}
		for n := range 3 {
			if got := p.farWindow(p.acked); n > 0 && got != c.want*initialWindow {
				t.Errorf("%d segments after %v: hop 2 has a window of %v, want %v", n, c.idle, got, c.want*initialWindow)
			}
			p.OnSent(later, 1000)
		}
		p.OnAcked(p.sent, later, 50*ms)
		if got := p.farWindow(p.acked); got != c.want*initialWindow+3000 {
			t.Errorf("idle for %v: after 3000 bytes the window of hop 2 is %v", c.idle, got)
		}
	}
}

// TestForecastOfStall checks that bytes whose acknowledgements do not come count as waiting, and that
// a clock that goes back does no harm.
func TestForecastOfStall(t *testing.T) {
	for _, helped := range []bool{false, true} {
		p := Subflow{Helped: helped, JoinRTT: 50 * ms}
		p.SetTrain(8*unit.Mbps, 50*ms)
		p.AddLocalSample(t0, Hop{SRTT: 50 * ms, MinRTT: 50 * ms, Cwnd: 100_000, SlowStart: true, Queue: 50_000})
		for range 10 {
			p.OnSent(t0, 5000) // of 5 ms each
		}
		for _, after := range []time.Duration{-time.Hour, 0, 50 * ms, 100 * ms, time.Second, 10 * time.Second} {
			n := estimateWithForecast(&p, t0.Add(after))
			if n.Forecast < n.OWD || n.HalfArrives < -n.OWD-ackSlack {
				t.Errorf("helped %v, after %v: forecast %v, half in %v", helped, after, n.Forecast, n.HalfArrives)
			}
			// The first 5 KB may have arrived: their acknowledgement takes 65 ms. 45 KB take 45 ms.
			if after >= time.Second && (n.Forecast > 100*ms) != helped {
				t.Errorf("helped %v, after %v: forecast %v", helped, after, n.Forecast)
			}
		}
	}
}

// TestForecastWithoutRate checks that PAD replaces the forecast of a hop that shows neither a rate nor
// a window.
func TestForecastWithoutRate(t *testing.T) {
	var p Subflow
	p.OnSent(t0, 100_000)
	p.AddLocalSample(t0, p.FillBlindHop(Hop{Blind: true}))
	if n := estimateWithForecast(&p, t0); n.Forecast < n.PAD || n.PAD < 500*ms {
		t.Errorf("forecast %v, PAD %v", n.Forecast, n.PAD)
	}
}

// TestForecastOfReorderedAcks checks that acknowledgements that are repeated, or describe an earlier
// time than the one before, keep the forecast within what they prove.
func TestForecastOfReorderedAcks(t *testing.T) {
	var p Subflow
	p.AddLocalSample(t0, Hop{SRTT: 50 * ms, MinRTT: 50 * ms, Cwnd: 100_000})
	p.SetTrain(8*unit.Mbps, 50*ms)
	for range 10 {
		p.OnSent(t0, 5000)
	}
	p.OnAcked(5000, t0.Add(80*ms), 25*ms) // it queued on its way
	p.OnAcked(5000, t0.Add(90*ms), 25*ms)
	p.OnAcked(10_000, t0.Add(35*ms), 25*ms)
	s, _ := p.flight.findSegmentAt(10_000, p.flight.late)
	if got := s.arrives.Sub(t0); got < 35*ms || got > 41*ms {
		t.Errorf("the third segment arrives after %v, the second one did by 35 ms", got)
	}
}

// TestDueInOrder checks that no acknowledgement is due after that of a later segment, since bytes
// arrive in order: a helper that was slow for a time is not excused afterwards.
func TestDueInOrder(t *testing.T) {
	var f flight
	for _, due := range []time.Duration{3000 * ms, 4000 * ms, 500 * ms, 800 * ms} {
		f.addFlightSegment(segmentForecast{end: uint64(len(f.segments) + 1), due: t0.Add(due)}, 0)
	}
	for i, want := range []time.Duration{500 * ms, 500 * ms, 500 * ms, 800 * ms} {
		if got := f.segments[i].due.Sub(t0); got != want {
			t.Errorf("segment %d is due after %v, want %v", i, got, want)
		}
	}
	if late := f.ackLateBy(t0.Add(time.Second)); late != 500*ms {
		t.Errorf("late by %v after a second", late)
	}
}

// TestForecastMemory checks that a helper that acknowledges nothing cannot make forecasts take more
// and more memory, and that all bytes in flight still count.
func TestForecastMemory(t *testing.T) {
	p := Subflow{Helped: true}
	p.SetTrain(8*unit.Mbps, 50*ms)
	for i := range 10 * maxMarks {
		p.OnSent(t0.Add(time.Duration(i)*ms), 1000)
	}
	if n := len(p.flight.segments); n > maxMarks {
		t.Errorf("%d segments are kept", n)
	}
	if in := p.flight.newestArrival(p.flight.late).Sub(t0); in < 10*maxMarks*ms {
		t.Errorf("the newest byte arrives in %v", in)
	}
	due := p.flight.segments[maxMarks-1].due
	if p.OnUnsent(1000); len(p.flight.segments) != maxMarks || p.flight.segments[maxMarks-1].end != p.sent {
		t.Errorf("after the newest segment was withdrawn, %d are kept", len(p.flight.segments))
	}
	if now := t0.Add(maxMarks * ms); due.After(now.Add(10 * maxMarks * ms)) {
		t.Errorf("merged segments are due at %v", due.Sub(t0))
	}
	p.OnAcked(p.sent-1, t0.Add(20*maxMarks*ms), 25*ms)
	if n := len(p.flight.segments); n != 1 {
		t.Errorf("with one byte in flight %d segments are kept", n)
	}
}
