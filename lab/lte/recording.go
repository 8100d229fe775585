// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"fmt"
	"sort"
	"strings"
	"time"

	"mpbond/base/unit"
)

// maxRecordedRate bounds the rates of a Recording: one block of a subframe carries no more in valid messages.
const maxRecordedRate = 350 * unit.Mbps

// Recording is the rate over time that a device alone gets from a cell, as it was measured. Rates are of packets. Each
// holds until the next one, the last one to the end or to the loop.
type Recording struct {
	points []ratePoint
	loop   time.Duration // 0: no repetition
}

// ratePoint is a rate from a time on.
type ratePoint struct {
	at   time.Duration
	rate unit.Rate
}

// NewRecording returns a recording of rates that each last for step, and repeat. There must be at least one. Rates over
// maxRecordedRate count as that.
func NewRecording(step time.Duration, rates []unit.Rate) *Recording {
	r := &Recording{loop: time.Duration(len(rates)) * step}
	for i, rate := range rates {
		rate = min(rate, maxRecordedRate)
		if i == 0 || rate != rates[i-1] {
			r.points = append(r.points, ratePoint{time.Duration(i) * step, rate})
		}
	}
	return r
}

// ParseRates parses points like "1.5s: 20Mbit/s" in order of time. With a loop over zero they repeat after that time.
func ParseRates(points []string, loop time.Duration) (*Recording, error) {
	r := &Recording{loop: loop}
	for _, text := range points {
		before, after, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(text), "at "), ":")
		at, err := time.ParseDuration(strings.TrimSpace(before))
		if !ok || err != nil {
			return nil, fmt.Errorf("rate %q: write it like \"1.5s: 20Mbit/s\"", text)
		}
		rate := unit.Rate(0)
		if after = strings.TrimSpace(after); after != "0" {
			if rate, err = unit.ParseRate(after); err != nil {
				return nil, fmt.Errorf("at %v: %w", at, err)
			}
		}
		switch n := len(r.points); {
		case rate < 0 || rate > maxRecordedRate:
			return nil, fmt.Errorf("rate %q: write a rate from 0 to %v", text, maxRecordedRate)
		case n == 0 && at != 0 || n > 0 && r.points[n-1].at >= at:
			return nil, fmt.Errorf("rate at %v: times must begin at 0s, and ascend", at)
		case n == maxSignalPoints:
			return nil, fmt.Errorf("there are more than %d rates", maxSignalPoints)
		}
		r.points = append(r.points, ratePoint{at, rate})
	}
	switch n := len(r.points); {
	case n == 0:
		return nil, fmt.Errorf("no rates: write them like rates = [\"0s: 20Mbit/s\", \"1.5s: 3Mbit/s\"]")
	case loop < 0 || loop > 0 && r.points[n-1].at >= loop:
		return nil, fmt.Errorf("a rate at %v is not before the end of the loop of %v", r.points[n-1].at, loop)
	}
	return r, nil
}

// At returns the rate at a time. Before time zero it is the first that carries anything, so that connections can begin.
// It allocates no memory.
func (r *Recording) At(t time.Duration) unit.Rate {
	if t < 0 {
		for _, p := range r.points {
			if p.rate >= minRate {
				return p.rate
			}
		}
	}
	if r.loop > 0 && t > 0 {
		t %= r.loop
	}
	i := sort.Search(len(r.points), func(i int) bool { return r.points[i].at > t })
	return r.points[max(i-1, 0)].rate
}

// Each calls f with each rate and the time from which it holds. It returns the time after which they repeat, 0 for
// never.
func (r *Recording) Each(f func(at time.Duration, rate unit.Rate)) (loop time.Duration) {
	for _, p := range r.points {
		f(p.at, p.rate)
	}
	return r.loop
}

// Best returns the maximum rate.
func (r *Recording) Best() unit.Rate {
	best := unit.Rate(0)
	for _, p := range r.points {
		best = max(best, p.rate)
	}
	return best
}
