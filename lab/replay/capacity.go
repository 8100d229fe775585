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
	// leastBin is the shortest time over which a rate is taken; two round trips
	// where that is more, since acknowledgements come in bursts.
	leastBin = 100 * time.Millisecond
	// A pause in the samples tells nothing about the hop.
	longestGap = 250 * time.Millisecond
	// notSent is what a socket holds unsent, besides its window: about as much
	// as TCP_NOTSENT_LOWAT leaves.
	notSent = 16 << 10
)

// history collects what the trace tells about a path.
type history struct {
	Path
	near, far      []sample
	srtt, farRTT   time.Duration // the least
	mostRate       unit.Rate     // that a helper reported of the far hop
	window, atMost unit.Bytes
}

// sample is a hop at an instant: bytes that it has carried, and those that are
// waiting or on their way.
type sample struct {
	at    time.Duration
	done  uint64
	queue unit.Bytes
}

func (h *history) state(at time.Duration, e *trace.Event) {
	if e.SRTT > 0 && (h.srtt == 0 || e.SRTT < h.srtt) {
		h.srtt = e.SRTT
	}
	if h.window == 0 {
		h.window = e.Cwnd
	}
	h.atMost = max(h.atMost, e.Length)
	h.near = append(h.near, sample{at, e.Count, e.Length})
}

func (h *history) report(at time.Duration, e *trace.Event) {
	if e.SRTT > 0 && (h.farRTT == 0 || e.SRTT < h.farRTT) {
		h.farRTT = e.SRTT
	}
	h.Helped = true
	h.mostRate = max(h.mostRate, e.Rate)
	h.far = append(h.far, sample{at, e.Offset - min(e.Offset, uint64(e.Backlog)), e.Backlog})
}

// path makes the hops. It reports false if nothing is known of one.
func (h *history) path() (Path, bool) {
	p := h.Path
	// Path states tell the round trip of both hops.
	p.Near.RTT = max(h.srtt-h.farRTT, time.Millisecond)
	p.Near.FirstWindow = max(h.window, 2*segment)
	p.Near.Window = max(h.atMost-notSent, 10*segment)
	p.Near.measure(h.near, p.Near.RTT/2)
	if p.Helped {
		p.Far.RTT = max(h.farRTT, time.Millisecond)
		p.Far.measure(h.far, p.Near.RTT/2)
		if p.Far.Measured == 0 && len(p.Far.Rates) > 0 {
			p.Far.Rates[0].Rate = max(p.Far.Rates[0].Rate, h.mostRate)
		}
	}
	return p, len(p.Near.Rates) > 0 && (!p.Helped || len(p.Far.Rates) > 0)
}

// bin is a piece of time with what was carried in it.
type bin struct {
	at, took time.Duration
	rate     unit.Rate
	limit    bool // the hop was at its limit
}

// measure finds the hop's rates from samples, which the sender has got late.
func (h *Hop) measure(samples []sample, late time.Duration) {
	bins := cut(samples, max(leastBin, 2*h.RTT))
	for i := range bins {
		b := &bins[i]
		full := b.rate.Bytes(h.RTT)*5/4 + 2*segment
		for _, s := range samples {
			if s.at >= b.at && s.at <= b.at+b.took && s.queue < full {
				b.limit = false
			}
		}
	}
	// While the rate still grows by a quarter from bin to bin, TCP's slow start
	// is what limits it.
	for i := 0; i+1 < len(bins) && bins[i+1].rate > bins[i].rate*5/4; i++ {
		bins[i].limit = false
	}
	var measured, all time.Duration
	best := unit.Rate(0)
	for _, b := range bins {
		all += b.took
		best = max(best, b.rate)
		if b.limit {
			measured += b.took
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
		if b.limit {
			known = b.rate
			break
		}
	}
	for _, b := range bins {
		if b.limit {
			known = b.rate
		}
		r := max(known, b.rate)
		if n := len(h.Rates); n == 0 || h.Rates[n-1].Rate != r {
			h.Rates = append(h.Rates, Step{max(0, b.at-late), r})
		}
	}
}

// cut divides samples into bins of at least a length. A bin over a pause is not
// at the limit.
func cut(samples []sample, length time.Duration) (bins []bin) {
	for i := 0; i < len(samples); {
		gap := false
		j := i + 1
		for ; j < len(samples); j++ {
			gap = gap || samples[j].at-samples[j-1].at > longestGap
			if samples[j].at-samples[i].at >= length {
				break
			}
		}
		if j == len(samples) {
			return bins
		}
		a, b := samples[i], samples[j]
		bins = append(bins, bin{a.at, b.at - a.at, unit.RateOf(unit.Bytes(b.done-min(a.done, b.done)), b.at-a.at), !gap})
		i = j
	}
	return bins
}
