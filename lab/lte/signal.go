package lte

import (
	"bufio"
	"fmt"
	"io"
	"sort"
	"strconv"
	"strings"
	"time"
)

// maxSignalPoints bounds what a trace of signals may take of memory: 24 hours of
// a sample each 100 ms.
const maxSignalPoints = 864_000

// Signal is how well a device hears its cells, over time: points with straight
// lines between them, the first before, the last after.
type Signal struct {
	points []signalPoint
	loop   time.Duration // 0: once
}

type signalPoint struct {
	at   time.Duration
	sinr float64
}

// Steady is a signal that does not change.
func Steady(sinr float64) *Signal { return &Signal{points: []signalPoint{{sinr: sinr}}} }

// ParseLevel reads a signal as SINR, "18dB", or as received power, "-85dBm"
// (SINROfSignal), and returns the SINR in dB.
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

// ParseWalk reads points like "5s: -105dBm", in order of time. With a loop over
// zero they begin again after so long.
func ParseWalk(points []string, loop time.Duration) (*Signal, error) {
	s := &Signal{loop: loop}
	for _, text := range points {
		at, level, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(text), "at "), ":")
		d, err := time.ParseDuration(strings.TrimSpace(at))
		if !ok || err != nil {
			return nil, fmt.Errorf("point %q: write it like \"5s: -105dBm\"", text)
		}
		if err := s.addPoint(d, level); err != nil {
			return nil, err
		}
	}
	return s, s.validate()
}

// ReadSignal reads lines "seconds,level" in order of time; a level without a unit
// is dBm, one of a hash is a comment.
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
		if err := s.addPoint(time.Duration(seconds*1e9), level); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := in.Err(); err != nil {
		return nil, err
	}
	return s, s.validate()
}

func (s *Signal) addPoint(at time.Duration, level string) error {
	v, err := ParseLevel(level)
	if err != nil {
		return err
	}
	if n := len(s.points); at < 0 || n > 0 && s.points[n-1].at >= at {
		return fmt.Errorf("signal at %v: times must ascend", at)
	}
	if len(s.points) == maxSignalPoints {
		return fmt.Errorf("a signal has %d points at most", maxSignalPoints)
	}
	s.points = append(s.points, signalPoint{at, v})
	return nil
}

func (s *Signal) validate() error {
	switch n := len(s.points); {
	case n == 0:
		return fmt.Errorf("a signal without any point")
	case s.loop < 0 || s.loop > 0 && s.points[n-1].at > s.loop:
		return fmt.Errorf("a signal at %v never comes in a loop of %v", s.points[n-1].at, s.loop)
	}
	return nil
}

// At is the SINR in dB at a time. It takes no memory.
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

// Best is the greatest SINR that the signal ever has.
func (s *Signal) Best() float64 {
	best := s.points[0].sinr
	for _, p := range s.points {
		best = max(best, p.sinr)
	}
	return best
}
