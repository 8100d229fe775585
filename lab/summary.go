package lab

import (
	"slices"

	"mpbond/base/unit"
)

// Summary is what the transfers of one scheme came to. Those that were
// disturbed or failed do not count in its figures.
type Summary struct {
	Scheme    string                `json:"scheme"`
	N         int                   `json:"transfers"` // that count
	Discarded int                   `json:"discarded"` // because the emulator was late
	Failed    int                   `json:"failed"`
	Error     string                `json:"error,omitempty"` // of the last that failed
	Seconds   float64               `json:"median_seconds"`
	Min       float64               `json:"min_seconds"`
	Max       float64               `json:"max_seconds"`
	Bound     float64               `json:"bound_seconds"`
	Rate      unit.Rate             `json:"rate_bps"`                   // of the median
	Gap       float64               `json:"longest_gap_seconds"`        // of all
	MedianGap float64               `json:"median_gap_seconds"`         // of the longest gaps
	EndSpread float64               `json:"path_end_spread_seconds"`    // median
	Twice     float64               `json:"duplicate_share"`            // median, of the bytes
	Shares    map[string]float64    `json:"shares"`                     // means
	PeakRSS   map[string]unit.Bytes `json:"peak_rss_bytes,omitempty"`   // largest
	Unchecked bool                  `json:"sha256_unchecked,omitempty"` // else all that count were right
}

// Summarize sums up results, for each of the schemes. keepDisturbed is that of
// the plan.
func Summarize(schemes []string, results []Result, keepDisturbed bool) (all []Summary) {
	for _, scheme := range schemes {
		s := Summary{Scheme: scheme, Shares: map[string]float64{}, PeakRSS: map[string]unit.Bytes{}}
		var seconds, rates, bounds, gaps, spreads, twice []float64
		for _, r := range results {
			switch {
			case r.Scheme != scheme:
				continue
			case r.Error != "":
				s.Failed++
				s.Error = r.Error
				continue
			case r.Disturbed && !keepDisturbed:
				s.Discarded++
				continue
			}
			s.N++
			s.Unchecked = r.Unchecked
			s.Gap = max(s.Gap, r.LongestGap)
			bytes := r.Bytes * unit.Bytes(r.Streams)
			rates, bounds, gaps = append(rates, float64(8*bytes)/r.Seconds), append(bounds, r.Bound), append(gaps, r.LongestGap)
			seconds, spreads, twice = append(seconds, r.Seconds), append(spreads, r.EndSpread), append(twice, float64(r.Duplicate)/float64(max(1, bytes)))
			s.add(r)
		}
		if s.N > 0 {
			s.Seconds, s.Min, s.Max = median(seconds), slices.Min(seconds), slices.Max(seconds)
			s.Rate, s.Bound, s.MedianGap = unit.Rate(median(rates)), median(bounds), median(gaps)
			s.EndSpread, s.Twice = median(spreads), median(twice)
		}
		for device := range s.Shares {
			s.Shares[device] /= float64(s.N)
		}
		all = append(all, s)
	}
	return all
}

// add takes in what a result says by device.
func (s *Summary) add(r Result) {
	var sum unit.Bytes
	for _, n := range r.Devices {
		sum += n
	}
	for device, n := range r.Devices {
		if sum > 0 {
			s.Shares[device] += float64(n) / float64(sum)
		}
	}
	for node, n := range r.PeakRSS {
		s.PeakRSS[node] = max(s.PeakRSS[node], n)
	}
}

// median of v, which is not empty.
func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}
