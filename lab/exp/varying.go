// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/gonum/stat"

	"mpbond/base/unit"
	"mpbond/lab"
	"mpbond/lab/vary"
)

// minute is the length of transfers whose mean rate counts.
const minute = time.Minute

// maxRecordedRate is the limit of rates of recordings: what a machine with two processors can
// emulate several times at once.
const maxRecordedRate = 25 * unit.Mbps

const (
	// cellularQueue is a base station's queue for a phone, at the mean rate. It is deep, which is
	// an assumption, as for the lab's recorded drives.
	cellularQueue    = 200 * time.Millisecond
	minCellularQueue = 96 * unit.KB
)

// linkProfiles are the profiles of links by name.
type linkProfiles map[string]vary.Profile

// applyToTriangle returns a triangle (spec steady) whose links follow their profiles. Other
// settings stay. With a loop the profiles repeat.
func (v linkProfiles) applyToTriangle(steady string, loop time.Duration) (*lab.Topology, error) {
	t, err := lab.Triangle(steady)
	if err != nil {
		return nil, err
	}
	for name, p := range v {
		l := t.Link[name]
		if l == nil {
			return nil, fmt.Errorf("a triangle of %s has no link %s", steady, name)
		}
		delay, err := time.ParseDuration(l.Delay)
		if err != nil {
			return nil, err
		}
		mean := max(p.Mean(vary.MaxLength), unit.Mbps/10)
		l.Rate = strconv.FormatInt(int64(mean), 10)
		if !strings.HasPrefix(name, "pipe") {
			l.Queue = strconv.FormatInt(int64(max(minCellularQueue, mean.Bytes(cellularQueue))), 10)
		}
		l.Schedule, l.Outages = p.Schedule(delay), p.Outages()
		if loop > 0 {
			l.Loop = loop.String()
		}
	}
	return t, t.Check()
}

// readRecording reads a recording below a directory. CSV files have bytes by second, those of
// norway3g rates at times; all others are in mahimahi's format.
func readRecording(dir, name string) (p vary.Profile, err error) {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return p, err
	}
	defer f.Close()
	read := func(r io.Reader) (vary.Profile, error) { return vary.ReadMahimahi(r) }
	switch {
	case strings.HasSuffix(name, ".csv"):
		read = vary.ReadPerSecond
	case strings.HasPrefix(name, "norway3g/"):
		read = vary.ReadTimed
	}
	if p, err = read(f); err != nil {
		return p, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

// loadRecording reads the first length of a recording, which must not be shorter.
func loadRecording(dir, name string, length time.Duration) (vary.Profile, error) {
	p, err := readRecording(dir, name)
	if err != nil {
		return p, err
	}
	n := int(length / p.Step)
	if len(p.Rates) < n {
		return p, fmt.Errorf("%s is shorter than %v", name, length)
	}
	p.Rates = p.Rates[:n]
	return p.Clipped(maxRecordedRate), nil
}

// loadRecordings returns the profiles of links by their files' names.
func loadRecordings(dir string, length time.Duration, files map[string]string) (linkProfiles, error) {
	v := linkProfiles{}
	for link, name := range files {
		p, err := loadRecording(dir, name, length)
		if err != nil {
			return nil, err
		}
		v[link] = p
	}
	return v, nil
}

// payloadSamples returns RateSamples scaled so that they add up to the payload: headers and
// duplicates are taken off evenly.
func payloadSamples(step time.Duration) *Samples {
	s := RateSamples(step)
	packets := s.Of
	s.Of = func(r lab.Result) []float64 {
		rates, all := packets(r), 0.0
		for _, v := range rates {
			all += v * step.Seconds() * 1e6 / 8
		}
		if all == 0 {
			return nil
		}
		for i := range rates {
			rates[i] *= float64(payloadBytes(r)) / all
		}
		return rates
	}
	return s
}

// percentile is a percentile of samples of a step.
type percentile struct {
	share float64 // 0.5 is the median
	step  time.Duration
}

// quantileOfSamples returns the percentile of samples.
func (p percentile) quantileOfSamples(samples []float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	samples = slices.Sorted(slices.Values(samples))
	return stat.Quantile(p.share, stat.Empirical, samples, nil)
}

// newSampleMetric returns the metric of each transfer's samples.
func (p percentile) newSampleMetric(name string) Metric {
	return Metric{Name: name, Unit: "Mbit/s", More: true, needsPackets: true, Of: func(r lab.Result) (float64, bool) {
		s := payloadSamples(p.step).Of(r)
		return p.quantileOfSamples(s), len(s) > 0
	}}
}

// timeParts is into how many parts of equal length timePartChanges divides transfers.
const timeParts = 3

// timePartChanges returns by how many percent a percentile of all samples of several cells differs
// between two schemes: one value for each part of the time, so that there is an interval. Only
// repetitions count in which both schemes do.
func (p percentile) timePartChanges(d Data, cells []string, pair [2]string) (percent []float64) {
	var ours, base [timeParts][]float64
	for _, c := range cells {
		d.forEachResultPair(c, pair, func(x, y lab.Result) {
			a, b := payloadSamples(p.step).Of(x), payloadSamples(p.step).Of(y)
			for k := range timeParts {
				ours[k] = append(ours[k], a[k*len(a)/timeParts:(k+1)*len(a)/timeParts]...)
				base[k] = append(base[k], b[k*len(b)/timeParts:(k+1)*len(b)/timeParts]...)
			}
		})
	}
	for k := range timeParts {
		if b := p.quantileOfSamples(base[k]); b > 0 {
			percent = append(percent, 100*(p.quantileOfSamples(ours[k])/b-1))
		}
	}
	return percent
}

// BoundShare is the time in which perfect links would have carried the same bytes, as a share of
// the transfer's.
var BoundShare = Metric{Name: "perfect links' time", Unit: "%", More: true, Of: func(r lab.Result) (float64, bool) {
	return 100 * r.Efficiency, r.Efficiency > 0
}}

// perMegabyte returns an energy for each MB of payload.
func perMegabyte(energy Metric) Metric {
	of := energy.Of
	energy.Name, energy.Unit = energy.Name+" per MB", "J/MB"
	energy.Of = func(r lab.Result) (float64, bool) {
		v, ok := of(r)
		return v / (float64(r.Bytes) / float64(unit.MB)), ok && r.Bytes > 0
	}
	return energy
}

// LongestGap is the longest time without a byte for the client, including the time from the request
// to the first byte if it is known. Fixed ratios deliver all bytes at the end.
var LongestGap = Metric{Name: "longest gap", Unit: "s", Of: func(r lab.Result) (float64, bool) {
	return max(r.FirstByte, r.LongestGap), !isRatioScheme(r.Scheme)
}}
