// SPDX-License-Identifier: Apache-2.0

package virtual

import (
	"slices"
	"time"

	"mpbond/base/unit"
	"mpbond/lab/lte"
	"mpbond/pbe/cc"
	"mpbond/pbe/cell"
)

// besideBusyDevice returns the default cell, beside a device that always has data.
var besideBusyDevice = besideRate(SteadyRate(60 * unit.Mbps))

// Ablations remove assumptions of PBE-CC that the model satisfies: exact constants, complete and
// timely messages, immediate feedback, equal shares. Each case is the default cell beside a device
// that always has data. The first removes nothing, the last several at once. Case.Strict selects
// the estimate of C_p.
var Ablations = slices.Concat(MessageAblations, airAblations)

// MessageAblations are those of what devices know and report, and of the wired part.
var MessageAblations = []NamedCase{
	{"as it is", nil, besideBusyDevice},
	{"γ is 5 %", setOverhead(0.05), besideBusyDevice},
	{"γ is 9 %", setOverhead(0.09), besideBusyDevice},
	{"reported block sizes 5 % too large", scaleBlockSizes(1.05), besideBusyDevice},
	{"reported block sizes 5 % too small", scaleBlockSizes(0.95), besideBusyDevice},
	{"no user filter", setUserFilter(cell.CountAllUsers), besideBusyDevice},
	{"the paper's user filter", setUserFilter(cell.FilterByPRB), besideBusyDevice},
	{"three of ten subframes are missed", missSubframes, besideBusyDevice},
	{"messages are 3 ms late", delayMessages(3), besideBusyDevice},
	{"feedback is 100 ms late", delayFeedback(100 * ms), besideBusyDevice},
	{"jitter of the wired part", addWiredJitter, besideBusyDevice},
}

// airAblations are those of block errors, the scheduler and signals.
var airAblations = []NamedCase{
	{"p is taken for a fifth", assumeErrorRate(4e-7), besideBusyDevice},
	{"p is taken for five times", assumeErrorRate(1e-5), besideBusyDevice},
	{"proportional fair", useProportionalFair, besideBusyDevice},
	{
		"proportional fair, signals of 12 and 20 dB that fade",
		combineChanges(useProportionalFair, addSignalFading), besideBusyDevice,
	},
	{"equal shares, signals of 12 and 20 dB that fade", addSignalFading, besideBusyDevice},
	{"γ 9 %, blocks 5 % too large, a third missed, 3 ms and 100 ms late, jitter, fading", combineChanges(
		setOverhead(0.09), scaleBlockSizes(1.05), missSubframes,
		delayMessages(3), delayFeedback(100*ms), addWiredJitter, addSignalFading,
	), besideBusyDevice},
}

// combineChanges returns a change that makes all changes of the list.
func combineChanges(list ...func(*Case)) func(*Case) {
	return func(c *Case) {
		for _, f := range list {
			f(c)
		}
	}
}

// changeMonitor changes the first user's monitor, if it has one.
func changeMonitor(change func(*cell.Monitor)) func(*Case) {
	return func(c *Case) {
		c.appendChange(func(c *Cell, _ []Flow) {
			if m := c.Monitor(0); m != nil {
				change(m)
			}
		})
	}
}

// setUserFilter selects which users the first user takes for its neighbors.
func setUserFilter(f cell.UserFilter) func(*Case) {
	return changeMonitor(func(m *cell.Monitor) { m.UserFilter = f })
}

// assumeErrorRate sets the bit error rate that the first user assumes.
func assumeErrorRate(p float64) func(*Case) {
	return changeMonitor(func(m *cell.Monitor) {
		m.FitErrorRate = false
		m.SetErrorRate(p)
	})
}

// setOverhead sets γ of the cell. The estimate keeps its own value.
func setOverhead(part float64) func(*Case) {
	return func(c *Case) { c.Network.Overhead = part }
}

// scaleBlockSizes multiplies the block sizes in control messages by a factor.
func scaleBlockSizes(by float64) func(*Case) {
	return func(c *Case) {
		c.filterSubframes(func(s *cell.Subframe) bool {
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

// MisreportRates multiplies the rates that the first device reports by a factor.
func (c *Case) MisreportRates(by float64) {
	c.appendChange(func(_ *Cell, flows []Flow) {
		for i := range flows {
			report := flows[i].Feedback
			if report == nil || c.UserOf(i) != 0 {
				continue
			}
			flows[i].Feedback = func(now time.Duration, p *Packet) cc.CellFeedback {
				f := report(now, p)
				f.TransportRate = unit.Rate(by * float64(f.TransportRate))
				f.FairRate = unit.Rate(by * float64(f.FairRate))
				return f
			}
		}
	})
}

// missSubframes drops three of ten subframes.
func missSubframes(c *Case) {
	c.filterSubframes(func(s *cell.Subframe) bool { return s.Number*7%10 > 2 })
}

// delayMessages delays control messages by a number of subframes. The last ones of a case are lost.
func delayMessages(by int) func(*Case) {
	return func(c *Case) {
		var held [cell.MaxCells][]cell.Subframe
		c.filterSubframes(func(s *cell.Subframe) bool {
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

// delayFeedback delays the feedback of the first flow.
func delayFeedback(by time.Duration) func(*Case) {
	return func(c *Case) {
		c.appendChange(func(_ *Cell, flows []Flow) {
			now := flows[0].Feedback
			if now == nil {
				return
			}
			var reports []cc.CellFeedback
			var at []time.Duration
			flows[0].Feedback = func(t time.Duration, p *Packet) cc.CellFeedback {
				reports, at = append(reports, now(t, p)), append(at, t)
				for len(at) > 1 && at[1] < t-by {
					reports, at = reports[1:], at[1:]
				}
				return reports[0]
			}
		})
	}
}

// addWiredJitter adds jitter before the cells.
func addWiredJitter(c *Case) {
	c.Wire = func() Link { return NewJitter(3*ms, 0.94, c.Seed) }
}

// useProportionalFair selects the proportional fair scheduler.
func useProportionalFair(c *Case) { c.Network.Scheduler = lte.ProportionalFair }

// addSignalFading gives users signals that vary by some decibels within milliseconds, about
// different means.
func addSignalFading(c *Case) {
	for i, mean := range []float64{12, 20} {
		c.Network.Users[i].SINR = Fading(c.Seed+uint64(i)<<32, mean, 3)
	}
}

// Fading returns a signal with fading about a mean (lte.Fading) that can be asked again, in any order.
func Fading(seed uint64, mean, deviation float64) func(int64) float64 {
	next := lte.NewFading(seed, deviation)
	var list []float64
	return func(n int64) float64 {
		for int64(len(list)) <= n {
			list = append(list, mean+next.Next())
		}
		return list[n]
	}
}
