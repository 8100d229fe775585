// SPDX-License-Identifier: Apache-2.0

package coupled

import "fmt"

// Algorithm is a coupled congestion control: it increases the windows of all subflows of a connection
// together, so that over a shared bottleneck they take no more than one TCP connection would.
type Algorithm uint32

// The algorithms, in the order of coupled.c.
const (
	LIA   Algorithm = iota // RFC 6356
	OLIA                   // draft-khalili-mptcp-congestion-control-05
	BALIA                  // draft-walid-mptcp-congestion-control-04
	algorithms
)

var names = [algorithms]string{"lia", "olia", "balia"}

func (a Algorithm) String() string {
	if a < algorithms {
		return names[a]
	}
	return fmt.Sprintf("algorithm %d", uint32(a))
}

// Named returns the algorithm of that name.
func Named(name string) (a Algorithm, ok bool) {
	for i, n := range names {
		if n == name {
			return Algorithm(i), true
		}
	}
	return 0, false
}

// MaxPaths is how many subflows of a connection are coupled. Further ones follow Reno.
const MaxPaths = 8

// One is a packet in the units of Increase.
const One = 1 << 22

// Path is a subflow as the formulas see it.
type Path struct {
	Window  uint64 // packets, at most 2^16; 0: no subflow
	RTT     uint64 // microseconds, at least 1
	Quality uint64 // packets between losses, at most 2^25; OLIA uses it
}

// sums are sums over the subflows of a connection. Rates are relative to a window over the least round
// trip.
type sums struct {
	rtt, rates, maxRate, maxSquare, count, window, best, collected, large uint64
}

// rttRatio returns the least round trip over that of a path, in 1/4096.
func (s *sums) rttRatio(p Path) uint64 { return max((s.rtt<<12)/p.RTT, 1) }

// quality is the square of the rate that TCP alone would have: Quality is 1/p for a loss rate p.
// The kernel of the authors of OLIA computes it so.
func (s *sums) quality(p Path) uint64 { return p.Quality * s.rttRatio(p) * s.rttRatio(p) }

func sumPaths(paths []Path) sums {
	s := sums{rtt: ^uint64(0) >> 12}
	for _, p := range paths {
		if p.Window > 0 {
			s.rtt = min(s.rtt, p.RTT)
		}
	}
	for _, p := range paths {
		if p.Window == 0 {
			continue
		}
		rate := p.Window * s.rttRatio(p)
		s.rates += rate
		s.count++
		s.maxRate = max(s.maxRate, rate)
		s.maxSquare = max(s.maxSquare, rate*s.rttRatio(p))
		s.window = max(s.window, p.Window)
		s.best = max(s.best, s.quality(p))
	}
	for _, p := range paths {
		switch {
		case p.Window == 0:
		case p.Window == s.window:
			s.large++
		case s.quality(p) == s.best:
			s.collected++
		}
	}
	return s
}

// Increase returns by how much the window of paths[own] grows for each packet acknowledged on it, in
// packets/One. OLIA's may be negative. It computes with the integers of coupled.c.
func (a Algorithm) Increase(paths []Path, own int) int64 {
	p, s := paths[own], sumPaths(paths)
	if p.Window == 0 {
		return 0
	}
	x := s.rttRatio(p)
	rate, total := p.Window*x, s.rates*s.rates
	base := ((rate * x) << 22) / total
	switch a {
	case LIA:
		return int64(min((s.maxSquare<<22)/total, One/p.Window))
	case OLIA:
		switch {
		case s.collected == 0:
		case p.Window == s.window:
			return int64(base) - int64(One/(s.count*s.large*p.Window))
		case s.quality(p) == s.best:
			return int64(base + One/(s.count*s.collected*p.Window))
		}
		return int64(base)
	}
	alpha := min((s.maxRate<<10)/rate, 1<<20)
	return int64(base * (1024 + alpha) / 2048 * (4096 + alpha) / 5120)
}

// AfterLoss returns the window of paths[own] after a loss, in packets.
func (a Algorithm) AfterLoss(paths []Path, own int) uint32 {
	p, alpha := paths[own], uint64(1024)
	if a == BALIA && p.Window > 0 {
		s := sumPaths(paths)
		alpha = min((s.maxRate<<10)/(p.Window*s.rttRatio(p)), 1536)
	}
	return uint32(max(p.Window-p.Window*alpha/2048, 2))
}
