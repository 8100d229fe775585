// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"time"

	"mpbond/base/unit"
	"mpbond/core/trace"
)

// Hop is one direction of one hop.
type Hop struct {
	RTT time.Duration `json:"rtt_ns"` // with empty queues
	// Rates are in order of time. The first one applies from the beginning.
	Rates []Step `json:"rates"`
	// Measured is the share of time in which the hop was the limit, so its rate is measured.
	Measured float64 `json:"measured"`
	// FirstWindow is the initial congestion window. Window is the maximum that TCP and the queue of
	// the network hold.
	FirstWindow unit.Bytes `json:"first_window,omitempty"`
	Window      unit.Bytes `json:"window,omitempty"`
}

// Step is a rate from a time on.
type Step struct {
	At   time.Duration `json:"at_ns"`
	Rate unit.Rate     `json:"rate_bps"`
}

// Tuning.
const (
	segment = 1448
	// minBin is the shortest time over which a rate is measured. Two round trips are used if
	// longer, because acknowledgements arrive in bursts.
	minBin = 100 * time.Millisecond
	// maxSampleGap is the longest gap between samples that still shows the rate.
	maxSampleGap = 250 * time.Millisecond
	// notSentLowat is what a socket holds unsent in addition to its window, about
	// TCP_NOTSENT_LOWAT.
	notSentLowat = 16 << 10
)

// subflowHistory has the events of one subflow.
type subflowHistory struct {
	Subflow
	localHop, farHop      []hopSample
	minSRTT, minFarRTT    time.Duration // of the whole subflow, and of the far hop
	maxReportedRate       unit.Rate     // of the far hop, reported by the helper
	firstWindow, maxQueue unit.Bytes
}

// hopSample is the state of a hop: bytes carried, and bytes waiting or in flight.
type hopSample struct {
	at    time.Duration
	done  uint64
	queue unit.Bytes
}

// addSubflowState adds a state of the subflow.
func (h *subflowHistory) addSubflowState(at time.Duration, e *trace.Event) {
	if e.SRTT > 0 && (h.minSRTT == 0 || e.SRTT < h.minSRTT) {
		h.minSRTT = e.SRTT
	}
	if h.firstWindow == 0 {
		h.firstWindow = e.Cwnd
	}
	h.maxQueue = max(h.maxQueue, e.Length)
	h.localHop = append(h.localHop, hopSample{at, e.Count, e.Length})
}

// addFarHopReport adds a helper's report of the far hop.
func (h *subflowHistory) addFarHopReport(at time.Duration, e *trace.Event) {
	if e.SRTT > 0 && (h.minFarRTT == 0 || e.SRTT < h.minFarRTT) {
		h.minFarRTT = e.SRTT
	}
	h.Helped = true
	h.maxReportedRate = max(h.maxReportedRate, e.Rate)
	h.farHop = append(h.farHop, hopSample{at, e.Offset - min(e.Offset, uint64(e.FarBacklog)), e.FarBacklog})
}

// buildSubflow computes the hops. It returns false if one of them has no known rate.
func (h *subflowHistory) buildSubflow() (Subflow, bool) {
	p := h.Subflow
	// States of a helped subflow have the RTT of both hops.
	p.LocalHop.RTT = max(h.minSRTT-h.minFarRTT, time.Millisecond)
	p.LocalHop.FirstWindow = max(h.firstWindow, 2*segment)
	p.LocalHop.Window = max(h.maxQueue-notSentLowat, 10*segment)
	p.LocalHop.estimateRates(h.localHop, p.LocalHop.RTT/2)
	if p.Helped {
		p.FarHop.RTT = max(h.minFarRTT, time.Millisecond)
		p.FarHop.estimateRates(h.farHop, p.LocalHop.RTT/2)
		if p.FarHop.Measured == 0 && len(p.FarHop.Rates) > 0 {
			p.FarHop.Rates[0].Rate = max(p.FarHop.Rates[0].Rate, h.maxReportedRate)
		}
	}
	return p, len(p.LocalHop.Rates) > 0 && (!p.Helped || len(p.FarHop.Rates) > 0)
}

// rateBin is a period with its rate.
type rateBin struct {
	start, duration time.Duration
	rate            unit.Rate
	atLimit         bool // the hop was the limit
}

// estimateRates computes the hop's rates from samples. late is their delay at the sender.
func (h *Hop) estimateRates(samples []hopSample, late time.Duration) {
	bins := splitIntoRateBins(samples, max(minBin, 2*h.RTT))
	for i := range bins {
		b := &bins[i]
		full := b.rate.Bytes(h.RTT)*5/4 + 2*segment
		for _, s := range samples {
			if s.at >= b.start && s.at <= b.start+b.duration && s.queue < full {
				b.atLimit = false
			}
		}
	}
	// While the rate grows by a quarter from bin to bin, TCP's slow start is the limit.
	for i := 0; i+1 < len(bins) && bins[i+1].rate > bins[i].rate*5/4; i++ {
		bins[i].atLimit = false
	}
	var measured, all time.Duration
	best := unit.Rate(0)
	for _, b := range bins {
		all += b.duration
		best = max(best, b.rate)
		if b.atLimit {
			measured += b.duration
		}
	}
	if measured == 0 {
		if best > 0 {
			h.Rates = []Step{{0, best}}
		}
		return
	}
	h.Measured = float64(measured) / float64(all)
	known := unit.Rate(0)
	for _, b := range bins {
		if b.atLimit {
			known = b.rate
			break
		}
	}
	for _, b := range bins {
		if b.atLimit {
			known = b.rate
		}
		r := max(known, b.rate)
		if n := len(h.Rates); n == 0 || h.Rates[n-1].Rate != r {
			h.Rates = append(h.Rates, Step{max(0, b.start-late), r})
		}
	}
}

// splitIntoRateBins divides samples into bins of at least a length. A bin with a gap is not at the
// limit.
func splitIntoRateBins(samples []hopSample, length time.Duration) (bins []rateBin) {
	for i := 0; i < len(samples); {
		gap := false
		j := i + 1
		for ; j < len(samples); j++ {
			gap = gap || samples[j].at-samples[j-1].at > maxSampleGap
			if samples[j].at-samples[i].at >= length {
				break
			}
		}
		if j == len(samples) {
			return bins
		}
		a, b := samples[i], samples[j]
		bins = append(bins, rateBin{a.at, b.at - a.at, unit.RateOf(unit.Bytes(b.done-min(a.done, b.done)), b.at-a.at), !gap})
		i = j
	}
	return bins
}
