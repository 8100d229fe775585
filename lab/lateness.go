// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"time"
)

// A period is disturbed, and its measurements do not count, if the emulator was later than this.
// Emulated one-way delays are 2.5 ms and more. The machine itself stops for about 100 ms now and
// then.
const (
	maxLateP999 = 2 * time.Millisecond
	maxLate     = 20 * time.Millisecond
)

// Departures follow ideal times, whenever the thread woke. A pause of the emulator therefore moves
// the end of a transfer by its own length at most. That may be allowedLateShare of the transfer's
// time, or minAllowedLate. Few packets may be late at all, since schedulers rely on delays. Where
// gaps are measured, or something happens at a fixed time, the limit is maxLate even for long
// transfers.
const (
	allowedLateShare = 0.005
	minAllowedLate   = 2 * time.Millisecond
	allowedLateP99   = 2 * time.Millisecond
)

// isDisturbed reports whether lateness disturbs a transfer of that duration. timed is true if
// something happens at a fixed time.
func (l Lateness) isDisturbed(took time.Duration, timed bool) bool {
	most := max(minAllowedLate, time.Duration(allowedLateShare*float64(took)))
	if timed {
		most = maxLate
	}
	return l.P99 > allowedLateP99 || l.Max > most
}

// A lateness histogram has steps of lateStep. Its last bucket counts everything above.
const (
	lateStep    = 10 * time.Microsecond
	lateBuckets = 5001
)

// Lateness summarises how long after their ideal time packets were delivered in a period.
type Lateness struct {
	Packets   int64         `json:"packets"`
	P50       time.Duration `json:"p50_ns"`
	P99       time.Duration `json:"p99_ns"`
	P999      time.Duration `json:"p999_ns"`
	Max       time.Duration `json:"max_ns"`
	Disturbed bool          `json:"disturbed"`
}

// silenceMeter measures the longest time between two packets. The zero value is ready.
type silenceMeter struct {
	began         bool
	last, longest time.Duration
}

// notePacketTime counts a packet that enters or leaves a link.
func (m *silenceMeter) notePacketTime(now time.Duration) {
	if m.began {
		m.longest = max(m.longest, now-m.last)
	}
	m.began, m.last = true, now
}

// latenessHist is a histogram of lateness.
type latenessHist struct {
	count [lateBuckets]int64
	n     int64
	max   time.Duration
}

// addLateness counts a packet.
func (h *latenessHist) addLateness(d time.Duration) {
	h.count[min(max(d, 0)/lateStep, lateBuckets-1)]++
	h.n++
	h.max = max(h.max, d)
}

// summarizeLateness returns the quantiles of the histogram.
func (h *latenessHist) summarizeLateness() Lateness {
	at := func(q float64) time.Duration {
		i := quantileBucket(h.count[:], h.n, q)
		return min(time.Duration(i+1)*lateStep, h.max)
	}
	l := Lateness{Packets: h.n, P50: at(.5), P99: at(.99), P999: at(.999), Max: h.max}
	l.Disturbed = l.P999 > maxLateP999 || l.Max > maxLate
	return l
}
