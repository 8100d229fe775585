// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// TestHelperDelay checks how long the last forwarded byte was at the helper, interpolated between
// reports and without the pipe's round trip.
func TestHelperDelay(t *testing.T) {
	var h helperDelay
	for i, c := range []struct {
		at                  time.Duration
		received, forwarded uint64
		want                time.Duration
	}{
		{0, 10_000, 0, 0},
		{100 * ms, 110_000, 10_000, 95 * ms},  // came at 0
		{200 * ms, 210_000, 60_000, 145 * ms}, // came at 50 ms
		{300 * ms, 210_000, 60_000, 145 * ms}, // nothing left
		{400 * ms, 210_000, 110_000, 295 * ms},
		{500 * ms, 210_000, 210_000, 295 * ms},
		{510 * ms, 211_000, 211_000, 0}, // forwarded at once
		{10_510 * ms, 261_000, 211_000, 0},
		{10_515 * ms, 261_000, 236_000, 50 * ms}, // came within 100 ms of that report, after 10 s without data
	} {
		h.addDelayReport(t0.Add(c.at), wire.HopState{Received: c.received, Forwarded: c.forwarded, RTT: 5 * ms})
		if !nearlyEqual(h.delay, c.want) {
			t.Errorf("report %d: %v, want %v", i, h.delay, c.want)
		}
	}
	for i := range uint64(5000) {
		h.addDelayReport(t0.Add(11*time.Second), wire.HopState{Received: 261_000 + i, Forwarded: 236_000})
		if len(h.marks) > maxMarks {
			t.Fatalf("%d marks", len(h.marks))
		}
	}
}

// TestPastPAD checks that PastPAD follows the measurement, however much waits, and equals PAD for a
// direct subflow.
func TestPastPAD(t *testing.T) {
	p := Subflow{Helped: true}
	p.localMeter.rate, p.localMeter.limitSeen = 10*unit.Mbps, true
	p.AddLocalSample(t0, Hop{SRTT: 70 * ms, MinRTT: 70 * ms})
	p.AddHelperReport(t0, wire.HopState{Rate: 5 * unit.Mbps, RTT: 5 * ms, Received: 100_000})
	p.OnSent(t0, 1_000_000)
	p.OnAcked(0, t0, 0)
	if n := p.EstimateAt(t0); !nearlyEqual(n.PastPAD, 37500*time.Microsecond) || n.PAD < time.Second {
		t.Errorf("nothing measured: %+v", n)
	}
	p.AddHelperReport(t0.Add(205*ms), wire.HopState{Rate: 5 * unit.Mbps, RTT: 5 * ms, Received: 200_000,
		Forwarded: 100_000})
	if n := p.EstimateAt(t0); !nearlyEqual(n.PastPAD, 237500*time.Microsecond) {
		t.Errorf("200 ms measured: %v", n.PastPAD)
	}
	d := Subflow{}
	d.AddLocalSample(t0, Hop{SRTT: 70 * ms, MinRTT: 50 * ms, Queue: 100_000})
	if n := d.EstimateAt(t0); n.PastPAD != n.PAD {
		t.Errorf("direct: %v and %v", n.PastPAD, n.PAD)
	}
}

// TestOvertakenReport checks that a reordered old report changes nothing.
func TestOvertakenReport(t *testing.T) {
	p := Subflow{Helped: true}
	p.AddHelperReport(t0, wire.HopState{Rate: 5 * unit.Mbps, RTT: 5 * ms, Received: 200_000, Forwarded: 100_000})
	for _, old := range []wire.HopState{{Rate: unit.Mbps, Received: 150_000, Forwarded: 100_000},
		{Rate: unit.Mbps, Received: 200_000, Forwarded: 50_000}} {
		if p.AddHelperReport(t0.Add(ms), old); p.farState.Rate != 5*unit.Mbps || p.farState.Received != 200_000 {
			t.Errorf("%+v", p.farState)
		}
	}
}
