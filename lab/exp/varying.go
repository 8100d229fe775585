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

// minute is how long a transfer takes whose mean rate counts.
const minute = time.Minute

// mostRate is what rates of recordings are clipped to: what a machine with two
// processors can emulate several times at once.
const mostRate = 25 * unit.Mbps

// cellularQueue is a base station's queue for a phone, at the mean rate: deep, as
// they are. An assumption, that of the lab's recorded drives too.
const (
	cellularQueue = 200 * time.Millisecond
	leastQueue    = 96 * unit.KB
)

// varying is how links of a house vary, by their names.
type varying map[string]vary.Profile

// house makes the network: a house of so many devices whose links follow their
// profiles; what else is said of them in steady (a House) stays. With a loop they
// begin again after it.
func (v varying) house(steady string, loop time.Duration) (*lab.Topology, error) {
	t, err := lab.House(steady)
	if err != nil {
		return nil, err
	}
	for name, p := range v {
		l := t.Link[name]
		if l == nil {
			return nil, fmt.Errorf("a house of %s has no link %s", steady, name)
		}
		delay, err := time.ParseDuration(l.Delay)
		if err != nil {
			return nil, err
		}
		mean := max(p.Mean(vary.Longest), unit.Mbps/10)
		l.Rate = strconv.FormatInt(int64(mean), 10)
		if !strings.HasPrefix(name, "pipe") {
			l.Queue = strconv.FormatInt(int64(max(leastQueue, mean.Bytes(cellularQueue))), 10)
		}
		l.Schedule, l.Outages = p.Schedule(delay), p.Outages()
		if loop > 0 {
			l.Loop = loop.String()
		}
	}
	return t, t.Check()
}

// readRecording reads one below a directory: CSV is bytes by second, Norway's are
// rates at times, all else is mahimahi's.
func readRecording(dir, name string) (p vary.Profile, err error) {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return p, err
	}
	defer f.Close()
	read := func(r io.Reader) (vary.Profile, error) { return vary.Mahimahi(r) }
	switch {
	case strings.HasSuffix(name, ".csv"):
		read = vary.PerSecond
	case strings.HasPrefix(name, "norway3g/"):
		read = vary.Timed
	}
	if p, err = read(f); err != nil {
		return p, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

// recorded is a recording, of which what is longer than a length is cut; none may be
// shorter.
func recorded(dir, name string, length time.Duration) (vary.Profile, error) {
	p, err := readRecording(dir, name)
	if err != nil {
		return p, err
	}
	n := int(length / p.Step)
	if len(p.Rates) < n {
		return p, fmt.Errorf("%s is shorter than %v", name, length)
	}
	p.Rates = p.Rates[:n]
	return p.Clip(mostRate), nil
}

// recordings are the profiles of links by their files' names.
func recordings(dir string, length time.Duration, files map[string]string) (varying, error) {
	v := varying{}
	for link, name := range files {
		p, err := recorded(dir, name, length)
		if err != nil {
			return nil, err
		}
		v[link] = p
	}
	return v, nil
}

// payloadSamples are RateSamples, scaled so that they add up to the payload: headers,
// and what came twice, are taken off evenly.
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
			rates[i] *= float64(payload(r)) / all
		}
		return rates
	}
	return s
}

// percentile of samples of a step.
type percentile struct {
	share float64 // 0.5 is the median
	step  time.Duration
}

func (p percentile) of(samples []float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	samples = slices.Sorted(slices.Values(samples))
	return stat.Quantile(p.share, stat.Empirical, samples, nil)
}

// metric is the percentile of each transfer's samples.
func (p percentile) metric(name string) Metric {
	return Metric{Name: name, Unit: "Mbit/s", More: true, packets: true, Of: func(r lab.Result) (float64, bool) {
		s := payloadSamples(p.step).Of(r)
		return p.of(s), len(s) > 0
	}}
}

// parts is into how many parts of the same length changes divides transfers.
const parts = 3

// changes are by how many percent a percentile of all samples of several cells
// differs between two schemes: one value for each part of the time, so that there
// is an interval. Only repetitions count in which both schemes do.
func (p percentile) changes(d Data, cells []string, pair [2]string) (percent []float64) {
	var ours, base [parts][]float64
	for _, c := range cells {
		d.paired(c, pair, func(x, y lab.Result) {
			a, b := payloadSamples(p.step).Of(x), payloadSamples(p.step).Of(y)
			for k := range parts {
				ours[k] = append(ours[k], a[k*len(a)/parts:(k+1)*len(a)/parts]...)
				base[k] = append(base[k], b[k*len(b)/parts:(k+1)*len(b)/parts]...)
			}
		})
	}
	for k := range parts {
		if b := p.of(base[k]); b > 0 {
			percent = append(percent, 100*(p.of(ours[k])/b-1))
		}
	}
	return percent
}

// Efficient is the time in which perfect links would have carried the same bytes,
// as a share of the transfer's.
var Efficient = Metric{Name: "perfect links' time", Unit: "%", More: true, Of: func(r lab.Result) (float64, bool) {
	return 100 * r.Efficiency, r.Efficiency > 0
}}

// perMB is an energy for each MB of payload.
func perMB(energy Metric) Metric {
	of := energy.Of
	energy.Name, energy.Unit = energy.Name+" per MB", "J/MB"
	energy.Of = func(r lab.Result) (float64, bool) {
		v, told := of(r)
		return v / (float64(r.Bytes) / float64(unit.MB)), told && r.Bytes > 0
	}
	return energy
}

// Stall is the longest time without a byte for the client, from the request on if
// its answer's first byte is told. Fixed ratios give all bytes at the end.
var Stall = Metric{Name: "longest gap", Unit: "s", Of: func(r lab.Result) (float64, bool) {
	return max(r.FirstByte, r.LongestGap), !isOracle(r.Scheme)
}}
