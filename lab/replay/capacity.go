package replay

import (
	"time"

	"mpbond/base/unit"
	"mpbond/core/trace"
)

// Hop is one direction of one hop.
type Hop struct {
	RTT time.Duration `json:"rtt_ns"` // with empty queues
	// Rates are in order of time; the first one counts from the beginning.
	Rates []Step `json:"rates"`
	// Measured is the part of the time in which the hop was at its limit, so
	// that its rate is known and no guess.
	Measured float64 `json:"measured"`
	// FirstWindow is the congestion window at first, Window what TCP and the
	// network's queue hold at most.
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
	// minBin is the shortest time over which a rate is taken; two round trips
	// where that is more, since acknowledgements come in bursts.
	minBin = 100 * time.Millisecond
	// A pause in the samples tells nothing about the hop.
	maxSampleGap = 250 * time.Millisecond
	// notSentLowat is what a socket holds unsent, besides its window: about as much
	// as TCP_NOTSENT_LOWAT leaves.
	notSentLowat = 16 << 10
)

// subflowHistory collects what the trace tells about a path.
type subflowHistory struct {
	Subflow
	firstHop, secondHop   []hopSample
	minSRTT, minSecondRTT time.Duration // the least
	maxReportedRate       unit.Rate     // that a helper reported of the far hop
	firstWindow, maxQueue unit.Bytes
}

// hopSample is a hop at an instant: bytes that it has carried, and those that are
// waiting or on their way.
type hopSample struct {
	at    time.Duration
	done  uint64
	queue unit.Bytes
}

func (h *subflowHistory) addState(at time.Duration, e *trace.Event) {
	if e.SRTT > 0 && (h.minSRTT == 0 || e.SRTT < h.minSRTT) {
		h.minSRTT = e.SRTT
	}
	if h.firstWindow == 0 {
		h.firstWindow = e.Cwnd
	}
	h.maxQueue = max(h.maxQueue, e.Length)
	h.firstHop = append(h.firstHop, hopSample{at, e.Count, e.Length})
}

func (h *subflowHistory) addReport(at time.Duration, e *trace.Event) {
	if e.SRTT > 0 && (h.minSecondRTT == 0 || e.SRTT < h.minSecondRTT) {
		h.minSecondRTT = e.SRTT
	}
	h.Helped = true
	h.maxReportedRate = max(h.maxReportedRate, e.Rate)
	h.secondHop = append(h.secondHop, hopSample{at, e.Offset - min(e.Offset, uint64(e.Backlog)), e.Backlog})
}

// buildSubflow makes the hops. It reports false if nothing is known of one.
func (h *subflowHistory) buildSubflow() (Subflow, bool) {
	p := h.Subflow
	// Path states tell the round trip of both hops.
	p.FirstHop.RTT = max(h.minSRTT-h.minSecondRTT, time.Millisecond)
	p.FirstHop.FirstWindow = max(h.firstWindow, 2*segment)
	p.FirstHop.Window = max(h.maxQueue-notSentLowat, 10*segment)
	p.FirstHop.estimateRates(h.firstHop, p.FirstHop.RTT/2)
	if p.Helped {
		p.SecondHop.RTT = max(h.minSecondRTT, time.Millisecond)
		p.SecondHop.estimateRates(h.secondHop, p.FirstHop.RTT/2)
		if p.SecondHop.Measured == 0 && len(p.SecondHop.Rates) > 0 {
			p.SecondHop.Rates[0].Rate = max(p.SecondHop.Rates[0].Rate, h.maxReportedRate)
		}
	}
	return p, len(p.FirstHop.Rates) > 0 && (!p.Helped || len(p.SecondHop.Rates) > 0)
}

// rateBin is a piece of time with what was carried in it.
type rateBin struct {
	start, duration time.Duration
	rate            unit.Rate
	atLimit         bool // the hop was at its limit
}

// estimateRates finds the hop's rates from samples, which the sender has got late.
func (h *Hop) estimateRates(samples []hopSample, late time.Duration) {
	bins := splitBins(samples, max(minBin, 2*h.RTT))
	for i := range bins {
		b := &bins[i]
		full := b.rate.Bytes(h.RTT)*5/4 + 2*segment
		for _, s := range samples {
			if s.at >= b.start && s.at <= b.start+b.duration && s.queue < full {
				b.atLimit = false
			}
		}
	}
	// While the rate still grows by a quarter from bin to bin, TCP's slow start
	// is what limits it.
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

// splitBins divides samples into bins of at least a length. A bin over a pause is not
// at the limit.
func splitBins(samples []hopSample, length time.Duration) (bins []rateBin) {
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
