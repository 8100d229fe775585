// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"slices"
	"strings"

	"mpbond/base/unit"
	"mpbond/lab"
)

// Summary summarises the transfers of one scheme with medians, unless stated otherwise. Disturbed
// and failed transfers do not count.
type Summary struct {
	Scheme         string
	N              int // transfers that count
	Discarded      int // the emulator was late
	Failed         int
	Error          string  // of the last failed transfer
	Seconds        float64 // with the least and the most in Min and Max
	Min, Max       float64
	Bound          float64 // s
	Rate           unit.Rate
	Gap            float64               // the longest of all, s
	MedianGap      float64               // of the longest gaps, s
	Cold, Warm     float64               // times of objects, s; 0 without objects
	EndSpread      float64               // between the ends of subflows, s
	DuplicateShare float64               // part of the bytes that arrived more than once
	Shares         map[string]float64    // means
	PeakRSS        map[string]unit.Bytes // largest
	Unchecked      bool                  // otherwise the content of all that count was right
}

// schemeSummary returns the summary of one scheme in a cell. ok reports whether any of its
// transfers counts.
func (d Data) schemeSummary(cell, scheme string) (s Summary, ok bool) {
	s = summarizeScheme(scheme, d[cell])
	return s, s.N > 0
}

// SummarizeSchemes summarises results by scheme.
func SummarizeSchemes(schemes []string, results []lab.Result) (all []Summary) {
	for _, scheme := range schemes {
		all = append(all, summarizeScheme(scheme, results))
	}
	return all
}

// summarizeScheme summarises the results of a scheme.
func summarizeScheme(scheme string, results []lab.Result) Summary {
	s := Summary{Scheme: scheme, Shares: map[string]float64{}, PeakRSS: map[string]unit.Bytes{}}
	var seconds, rates, bounds, gaps, spreads, twice, cold, warm []float64
	for _, r := range results {
		switch {
		case r.Scheme != scheme:
			continue
		case r.Error != "":
			s.Failed++
			s.Error = r.Error
			continue
		case r.Disturbed:
			s.Discarded++
			continue
		}
		s.N++
		s.Unchecked = r.Unchecked
		bytes := payloadBytes(r)
		rates, bounds, gaps = append(rates, float64(8*bytes)/r.Seconds), append(bounds, r.Bound),
			append(gaps, r.LongestGap)
		seconds, spreads, twice = append(seconds, r.Seconds), append(spreads, r.EndSpread),
			append(twice, float64(r.Duplicate)/float64(max(1, bytes)))
		if r.Objects != nil {
			cold, warm = append(cold, r.Objects.Cold), append(warm, r.Objects.Warm)
		}
		s.addDevices(r)
	}
	if s.N == 0 {
		return s
	}
	s.Seconds, s.Min, s.Max = medianOfValues(seconds), slices.Min(seconds), slices.Max(seconds)
	s.Rate, s.Bound, s.Gap, s.MedianGap = unit.Rate(medianOfValues(rates)), medianOfValues(bounds), slices.Max(gaps),
		medianOfValues(gaps)
	s.EndSpread, s.DuplicateShare = medianOfValues(spreads), medianOfValues(twice)
	if len(cold) > 0 {
		s.Cold, s.Warm = medianOfValues(cold), medianOfValues(warm)
	}
	for device := range s.Shares {
		s.Shares[device] /= float64(s.N)
	}
	return s
}

// addDevices adds the values by device of a result.
func (s *Summary) addDevices(r lab.Result) {
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

// medianOfValues returns the median of v, which must not be empty.
func medianOfValues(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// baselines are the schemes that SchemeTable compares others with, in order.
var baselines = []string{
	singleScheme, helperLinkScheme, mptcp, mptcp + ":direct", mptcp + ":direct:subflows=2", "relay", "relay:copy",
}

// SchemeTable has a row for each scheme of a cell, with its rate relative to each baseline.
func SchemeTable(title string, all []Summary) Table {
	t := Table{Title: title, Head: []string{"scheme", "counted", "median", "min–max", "rate", "of bound", "cold",
		"warm"}}
	for _, base := range baselines {
		t.Head = append(t.Head, "× "+base)
	}
	t.Head = append(t.Head, "longest gap", "median gap", "ends apart", "duplicates", "shares", "peak memory", "remarks")
	for _, s := range all {
		row := []string{s.Scheme, fmt.Sprint(s.N)}
		if s.N == 0 {
			t.Add(append(append(row, make([]string, len(t.Head)-3)...), s.remarkText())...)
			continue
		}
		row = append(row, formatSeconds(s.Seconds), fmt.Sprintf("%.3f–%.3f s", s.Min, s.Max), s.Rate.String(),
			s.boundShareText(), formatMeasured(s.Cold), formatMeasured(s.Warm))
		for _, base := range baselines {
			row = append(row, s.relativeRateText(all, base))
		}
		t.Add(append(row, formatNoticeable(s.Gap), formatNoticeable(s.MedianGap), formatNoticeable(s.EndSpread),
			formatNonZeroShare(s.DuplicateShare), lab.FormatByDevice(s.Shares, formatNonZeroShare),
			lab.FormatByDevice(s.PeakRSS, unit.Bytes.String), s.remarkText())...)
	}
	return t
}

// boundShareText returns the share of the fluid bound's rate; empty for unlimited links.
func (s Summary) boundShareText() string {
	if s.Bound <= 0 || s.Unchecked {
		return ""
	}
	return fmt.Sprintf("%.0f %% of %.2f s", 100*s.Bound/s.Seconds, s.Bound)
}

// relativeRateText returns the rate relative to a baseline.
func (s Summary) relativeRateText(all []Summary, baseline string) string {
	i := slices.IndexFunc(all, func(b Summary) bool { return b.Scheme == baseline && b.N > 0 })
	if i < 0 || s.Scheme == baseline {
		return ""
	}
	return fmt.Sprintf("%.2f", all[i].Seconds/s.Seconds)
}

// remarkText returns notes on checks, disturbances and failures.
func (s Summary) remarkText() string {
	var all []string
	if s.Unchecked {
		all = append(all, "size checked")
	} else if s.N > 0 {
		all = append(all, "SHA-256 right")
	}
	if s.Discarded > 0 {
		all = append(all, fmt.Sprintf("%d disturbed, discarded", s.Discarded))
	}
	if s.Failed > 0 {
		all = append(all, fmt.Sprintf("%d failed: %s", s.Failed, s.Error))
	}
	return strings.Join(all, "; ")
}

func formatSeconds(v float64) string { return fmt.Sprintf("%.3f s", v) }

// formatMeasured formats seconds; 0 is empty.
func formatMeasured(v float64) string {
	if v == 0 {
		return ""
	}
	return formatSeconds(v)
}

// formatNoticeable formats seconds if they are not negligible.
func formatNoticeable(v float64) string {
	if v < 0.005 {
		return ""
	}
	return fmt.Sprintf("%.2f s", v)
}

func formatNonZeroShare(v float64) string {
	if v == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f %%", 100*v)
}
