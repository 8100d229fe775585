package virtual

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"mpbond/base/unit"
	"mpbond/lab/lte"
	"mpbond/pbe/cc"
	"mpbond/pbe/cell"
)

// busy is the default cell, beside a device that always has data.
var busy = beside(Steady(60 * unit.Mbps))

// Ablations take away from PBE-CC, beside a device that always has data, what the
// model gives to it: what it takes for granted is true there, all messages are
// heard, feedback comes at once, shares are equal. They begin with none, and end
// with many at once.
// Case.Strict says which C_p meets them.
var Ablations = []Named{
	{"as it is", nil, busy},
	{"p is taken for a fifth", takenFor(4e-7), busy},
	{"p is taken for five times", takenFor(1e-5), busy},
	{"γ is 5 %", overhead(0.05), busy},
	{"γ is 9 %", overhead(0.09), busy},
	{"blocks are told 5 % too large", sized(1.05), busy},
	{"blocks are told 5 % too small", sized(0.95), busy},
	{"no user filter", unfiltered, busy},
	{"three of ten subframes are missed", missed, busy},
	{"messages are 3 ms late", decoding(3), busy},
	{"feedback is 100 ms late", late(100 * ms), busy},
	{"jitter of the wired part", jittering, busy},
	{"proportional fair", proportional, busy},
	{"proportional fair, signals of 12 and 20 dB that fade", both(proportional, fading), busy},
	{"equal shares, signals of 12 and 20 dB that fade", fading, busy},
	{"γ 9 %, blocks 5 % too large, a third missed, 3 ms and 100 ms late, jitter, fading", both(overhead(0.09), sized(1.05), missed, decoding(3), late(100*ms), jittering, fading), busy},
}

func both(list ...func(*Case)) func(*Case) {
	return func(c *Case) {
		for _, f := range list {
			f(c)
		}
	}
}

// monitoring changes what the first user hears with, if it listens.
func monitoring(change func(*cell.Monitor)) func(*Case) {
	return func(c *Case) {
		c.also(func(c *Cell, _ []Flow) {
			if m := c.Monitor(0); m != nil {
				change(m)
			}
		})
	}
}

var unfiltered = monitoring((*cell.Monitor).Unfiltered)

// takenFor has it believe that bits are wrong with p.
func takenFor(p float64) func(*Case) {
	return monitoring(func(m *cell.Monitor) {
		m.Fit = false
		m.SetErrorRate(p)
	})
}

// overhead is γ of the cell; the estimate goes on with its own.
func overhead(part float64) func(*Case) {
	return func(c *Case) { c.Network.Overhead = part }
}

// sized has blocks told with wrong sizes.
func sized(by float64) func(*Case) {
	return func(c *Case) {
		c.hear(func(s *cell.Subframe) bool {
			for i := range s.Grants {
				for k := range s.Grants[i].Blocks {
					b := &s.Grants[i].Blocks[k]
					b.Size = cell.Bits(float64(b.Size) * by)
				}
			}
			return true
		})
	}
}

func missed(c *Case) { c.hear(func(s *cell.Subframe) bool { return s.Number*7%10 > 2 }) }

// decoding tells each subframe later than it was, by a number of them; at the end of the
// case as many were not told.
func decoding(by int) func(*Case) {
	return func(c *Case) {
		var held [cell.MaxCells][]cell.Subframe
		c.hear(func(s *cell.Subframe) bool {
			h, now := &held[s.Cell], *s
			now.Grants = slices.Clone(s.Grants)
			*h = append(*h, now)
			if len(*h) <= by {
				return false
			}
			*s = (*h)[0]
			*h = (*h)[1:]
			return true
		})
	}
}

// late is feedback that comes so much later.
func late(by time.Duration) func(*Case) {
	return func(c *Case) {
		c.also(func(_ *Cell, flows []Flow) {
			now := flows[0].Radio
			if now == nil {
				return
			}
			var told []cc.Radio
			var at []time.Duration
			flows[0].Radio = func(t time.Duration, p *Packet) cc.Radio {
				told, at = append(told, now(t, p)), append(at, t)
				for len(at) > 1 && at[1] < t-by {
					told, at = told[1:], at[1:]
				}
				return told[0]
			}
		})
	}
}

func jittering(c *Case) {
	c.Wire = func() Link { return NewJitter(3*ms, 0.94, c.Seed) }
}

func proportional(c *Case) { c.Network.Scheduler = lte.ProportionalFair }

// fading has signals that go up and down by some decibels every few milliseconds,
// about means that differ.
func fading(c *Case) {
	for i, mean := range []float64{12, 20} {
		c.Network.Users[i].SINR = Fading(c.Seed+uint64(i)<<32, mean, 3)
	}
}

// Fading is a signal that keeps half of its distance from the mean for 20 ms, with
// a standard deviation in dB.
func Fading(seed uint64, mean, deviation float64) func(int64) float64 {
	r := rand.New(rand.NewPCG(seed, 11))
	keep := math.Exp(-math.Ln2 / 20)
	var list []float64
	v := deviation * r.NormFloat64()
	return func(n int64) float64 {
		for int64(len(list)) <= n {
			list = append(list, mean+v)
			v = keep*v + deviation*math.Sqrt(1-keep*keep)*r.NormFloat64()
		}
		return list[n]
	}
}
