// SPDX-License-Identifier: Apache-2.0

package cc_test

import (
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/lab/virtual"
	"mpbond/pbe/cc"
)

// TestFeedbackFollower: without feedback the result is that of the initial controller, packet by
// packet. From the first feedback on it is PBE-CC, and BBR when feedback fails.
func TestFeedbackFollower(t *testing.T) {
	const r = 16 * mbps
	a := virtual.Run(newTestLink(virtual.SteadyRate(r), r), 5*sec, 1, defaultFlow(cc.NewCUBIC()))[0]
	b := virtual.Run(newTestLink(virtual.SteadyRate(r), r), 5*sec, 1,
		defaultFlow(cc.NewFeedbackFollower(cc.NewCUBIC(), 1)))[0]
	if a.Delivered != b.Delivered || a.Delay(0, 5*sec, 0.9) != b.Delay(0, 5*sec, 0.9) {
		t.Errorf("%v and %v", a.Delivered, b.Delivered)
	}
	h := cc.NewFeedbackFollower(cc.NewCUBIC(), 1)
	x := &ackSequence{PBE: h.PBE, rtt: 100 * ms, rate: 10 * mbps}
	run := func(n int) unit.Rate {
		for range n {
			x.now += ms
			h.OnSent(x.now, cc.MSS, x.rate.Bytes(x.rtt))
			h.OnAck(cc.Ack{Now: x.now, Bytes: cc.MSS, Packets: 1, RTT: x.rtt, Sent: x.now - x.rtt, Rate: x.rate,
				InFlight: x.rate.Bytes(x.rtt), Cells: x.radio, Round: x.now%x.rtt == 0})
		}
		return h.Limits(x.now).Rate
	}
	run(500)
	if st := h.Status(); st.Fresh || st.Feedback.TransportRate > 0 {
		t.Errorf("before feedback: %+v", st)
	}
	x.radio = cc.CellFeedback{TransportRate: 30 * mbps, FairRate: 30 * mbps}
	expectRate(t, "with feedback", run(400), 30*mbps, 30*mbps)
	if st := h.Status(); !st.Fresh || st.Feedback != x.radio || st.State != cc.Wireless {
		t.Errorf("with feedback: %+v", st)
	}
	x.radio = cc.CellFeedback{}
	expectRate(t, "BBR", run(600), 5*mbps, 29*mbps)
	if h.Status().Fresh {
		t.Error("feedback of long ago is followed")
	}
}

// TestFeedbackFollowerMeasures: the initial controller keeps a queue for longer than BBR remembers
// an RTT. BBR's measurements must still be current when feedback arrives.
func TestFeedbackFollowerMeasures(t *testing.T) {
	h := cc.NewFeedbackFollower(cc.NewCUBIC(), 1)
	now := time.Duration(0)
	run := func(n int, rate unit.Rate, rtt time.Duration, radio cc.CellFeedback) unit.Rate {
		for range n {
			now += ms
			h.OnSent(now, cc.MSS, rate.Bytes(rtt))
			h.OnAck(cc.Ack{Now: now, Bytes: cc.MSS, Packets: 1, RTT: rtt, Sent: now - rtt, Rate: rate,
				InFlight: rate.Bytes(rtt), Cells: radio, Round: now%rtt == 0})
		}
		return h.Limits(now).Rate
	}
	run(1000, 40*mbps, 50*ms, cc.CellFeedback{})
	run(14_000, 40*mbps, 100*ms, cc.CellFeedback{})
	run(15_000, 10*mbps, 100*ms, cc.CellFeedback{})
	expectRate(t, "the beginning of the approach", run(10, 10*mbps, 100*ms,
		cc.CellFeedback{TransportRate: 40 * mbps, FairRate: 40 * mbps}), 9*mbps, 12*mbps)
}
