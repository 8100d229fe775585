// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"sort"
	"strconv"
	"strings"
	"time"
)

// maxSignalPoints bounds the memory of a signal trace: 24 hours with a sample each 100 ms.
const maxSignalPoints = 864_000

// Signal is a device's reception over time. It is linear between points and constant before the
// first and after the last one.
type Signal struct {
	points []signalPoint
	loop   time.Duration // 0: no repetition
}

// signalPoint is the SINR in dB at a time.
type signalPoint struct {
	at   time.Duration
	sinr float64
}

// Steady returns a constant signal.
func Steady(sinr float64) *Signal { return &Signal{points: []signalPoint{{sinr: sinr}}} }

// ParseLevel parses a SINR, "18dB", or a received power, "-85dBm" (SINROfSignal), and returns the
// SINR in dB.
func ParseLevel(s string) (sinr float64, err error) {
	s = strings.TrimSpace(s)
	number, power := strings.CutSuffix(s, "dBm")
	if !power {
		var ok bool
		if number, ok = strings.CutSuffix(s, "dB"); !ok {
			return 0, fmt.Errorf("signal %q: write it like 18dB (over noise and neighbours) or -85dBm", s)
		}
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || !(v >= -200 && v <= 100) {
		return 0, fmt.Errorf("signal %q: write it like 18dB (over noise and neighbours) or -85dBm", s)
	}
	if power {
		v = SINROfSignal(v)
	}
	return v, nil
}

// ParseWalk parses points like "5s: -105dBm" in order of time. With a loop over zero they repeat
// after that time.
func ParseWalk(points []string, loop time.Duration) (*Signal, error) {
	s := &Signal{loop: loop}
	for _, text := range points {
		at, level, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(text), "at "), ":")
		d, err := time.ParseDuration(strings.TrimSpace(at))
		if !ok || err != nil {
			return nil, fmt.Errorf("point %q: write it like \"5s: -105dBm\"", text)
		}
		if err := s.addSignalPoint(d, level); err != nil {
			return nil, err
		}
	}
	return s, s.validatePoints()
}

// ReadSignal reads lines "seconds,level" in order of time. A level without a unit is in dBm. Lines
// beginning with # are comments.
func ReadSignal(r io.Reader, loop time.Duration) (*Signal, error) {
	s := &Signal{loop: loop}
	in := bufio.NewScanner(r)
	for n := 1; in.Scan(); n++ {
		line := strings.TrimSpace(in.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		at, level, _ := strings.Cut(line, ",")
		seconds, err := strconv.ParseFloat(strings.TrimSpace(at), 64)
		if err != nil || !(seconds >= 0 && seconds < 1e9) {
			return nil, fmt.Errorf("line %d: %q: write seconds,level, like 0.1,-85", n, line)
		}
		if level = strings.TrimSpace(level); level != "" && level[len(level)-1] >= '0' && level[len(level)-1] <= '9' {
			level += "dBm"
		}
		if err := s.addSignalPoint(time.Duration(seconds*1e9), level); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := in.Err(); err != nil {
		return nil, err
	}
	return s, s.validatePoints()
}

// addSignalPoint appends a point.
func (s *Signal) addSignalPoint(at time.Duration, level string) error {
	v, err := ParseLevel(level)
	if err != nil {
		return err
	}
	if n := len(s.points); at < 0 || n > 0 && s.points[n-1].at >= at {
		return fmt.Errorf("signal point at %v: times must ascend", at)
	}
	if len(s.points) == maxSignalPoints {
		return fmt.Errorf("signal has more than %d points", maxSignalPoints)
	}
	s.points = append(s.points, signalPoint{at, v})
	return nil
}

// validatePoints reports whether the signal has points and they fit into its loop.
func (s *Signal) validatePoints() error {
	switch n := len(s.points); {
	case n == 0:
		return fmt.Errorf("signal has no points")
	case s.loop < 0 || s.loop > 0 && s.points[n-1].at > s.loop:
		return fmt.Errorf("signal has a point at %v, after its loop of %v", s.points[n-1].at, s.loop)
	}
	return nil
}

// At returns the SINR in dB at a time. It allocates no memory.
func (s *Signal) At(t time.Duration) float64 {
	if s.loop > 0 && t > 0 {
		t %= s.loop
	}
	i := sort.Search(len(s.points), func(i int) bool { return s.points[i].at > t })
	switch i {
	case 0:
		return s.points[0].sinr
	case len(s.points):
		return s.points[i-1].sinr
	}
	a, b := s.points[i-1], s.points[i]
	return a.sinr + (b.sinr-a.sinr)*float64(t-a.at)/float64(b.at-a.at)
}

// Best returns the maximum SINR of the signal.
func (s *Signal) Best() float64 {
	best := s.points[0].sinr
	for _, p := range s.points {
		best = max(best, p.sinr)
	}
	return best
}

// Fading is a deviation from the mean signal in dB that halves in 20 ms without new influences.
type Fading struct {
	random           *rand.Rand
	deviation, value float64
}

// FadingDeviation is the standard deviation of signals in cells as they are, in dB. It is our choice.
const FadingDeviation = 2.5

// fadingKept is the part of the deviation that is left after a subframe.
var fadingKept = math.Exp(-math.Ln2 / 20)

// NewFading returns a fading with a standard deviation in dB.
func NewFading(seed uint64, deviation float64) *Fading {
	f := &Fading{random: rand.New(rand.NewPCG(seed, 11)), deviation: deviation}
	f.value = deviation * f.random.NormFloat64()
	return f
}

// Next returns the deviation of the next subframe.
func (f *Fading) Next() float64 {
	v := f.value
	f.value = fadingKept*v + f.deviation*math.Sqrt(1-fadingKept*fadingKept)*f.random.NormFloat64()
	return v
}
