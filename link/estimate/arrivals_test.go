// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// TestArrivalsBoundReports: a helper that reports 900 Gbit/s and an empty buffer, but forwards 200
// kbit/s, must be estimated by the arrivals within a second.
func TestArrivalsBoundReports(t *testing.T) {
	p := Subflow{Helped: true}
	now, acked := t0, uint64(0)
	for i := range 40 {
		now = t0.Add(time.Duration(i) * 25 * ms)
		p.AddLocalSample(now, Hop{SRTT: 70 * ms, MinRTT: 70 * ms, Acked: 10_000 * uint64(i)})
		if i < 20 {
			p.OnSent(now, 10_000)
		}
		p.AddHelperReport(now, wire.HopState{Received: 10_000 * uint64(i), Forwarded: 10_000 * uint64(i),
			Rate: 900 * unit.Gbps, RTT: ms})
		if i > 3 {
			acked += uint64((200 * unit.Kbps).Bytes(25 * ms))
			p.OnAcked(acked, now.Add(-35*ms), 35*ms)
		}
	}
	n := p.EstimateAt(now)
	if n.Th < 150*unit.Kbps || n.Th > 300*unit.Kbps {
		t.Errorf("throughput %v, want about 200 kbit/s: %+v", n.Th, n)
	}
	if least := (250 * unit.Kbps).Time(p.BytesInFlight()); n.PAD < least {
		t.Errorf("PAD %v with %v outstanding, want %v at least", n.PAD, p.BytesInFlight(), least)
	}
}

// TestLate checks that bytes are late if their acknowledgement misses the time estimated at
// sending, but not while they wait in a known queue.
func TestLate(t *testing.T) {
	p := Subflow{Helped: true, JoinRTT: 75 * ms}
	p.AddLocalSample(t0, Hop{SRTT: 5 * ms, MinRTT: 5 * ms})
	p.AddHelperReport(t0, wire.HopState{Rate: unit.Mbps, RTT: 70 * ms})
	p.OnSent(t0, 10_000)
	p.OnSent(t0.Add(10*ms), 10_000)
	within := p.flight.segments[1].due.Sub(t0)
	if within < 110*ms || within > 300*ms {
		t.Errorf("due after %v", within)
	}
	p.OnAcked(10_000, t0.Add(80*ms), 35*ms)
	if n := p.EstimateAt(t0.Add(within)); n.AckLate != 0 {
		t.Errorf("late by %v before it is due: %+v", n.AckLate, n)
	}
	if n := p.EstimateAt(t0.Add(within + 50*ms)); n.AckLate != 50*ms {
		t.Errorf("late by %v, want 50 ms: %+v", n.AckLate, n)
	}
	p.OnPause(50 * ms)
	if n := p.EstimateAt(t0.Add(within + 50*ms)); n.AckLate != 0 {
		t.Errorf("late by %v after this process stood still", n.AckLate)
	}
	p.OnAcked(20_000, t0.Add(within+50*ms), 35*ms)
	if n := p.EstimateAt(t0.Add(within + 60*ms)); n.AckLate != 0 || n.Acked != 20_000 {
		t.Errorf("after it came: %+v", n)
	}
}

// TestOverdue checks that a byte that has been in flight for long delays later ones, whatever is
// reported.
func TestOverdue(t *testing.T) {
	p := Subflow{Helped: true, JoinRTT: 75 * ms}
	p.AddLocalSample(t0, Hop{SRTT: 5 * ms, MinRTT: 5 * ms})
	p.OnSent(t0, 1400)
	p.AddHelperReport(t0, wire.HopState{Received: 1400, Forwarded: 1400, Rate: 900 * unit.Gbps, RTT: ms})
	if n := p.EstimateAt(t0.Add(time.Second)); n.Overdue < 800*ms || n.PAD < n.Overdue {
		t.Errorf("after a second without an acknowledgement: %+v", n)
	}
	p.OnAcked(1400, t0.Add(time.Second), 25*ms)
	if n := p.EstimateAt(t0.Add(time.Second)); n.Overdue != 0 {
		t.Errorf("after it came: %+v", n)
	}
}
