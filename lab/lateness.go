package lab

import (
	"time"
)

// A period is disturbed, and what was measured in it worthless, when the
// emulator was late by more than this. The emulated one-way delays are 2.5 ms
// and more; the machine itself stops for ~100 ms now and then.
const (
	maxLateP999 = 2 * time.Millisecond
	maxLate     = 20 * time.Millisecond
)

// Departures follow ideal times, whenever the thread woke, so that a stop of the
// emulator moves the end of a transfer by its own length at most: that may be
// allowedLateShare of the transfer's time, or minAllowedLate. Few packets may be late at all:
// delays are what schedulers go by. Where gaps are measured, or something happens
// at a certain time, a long transfer allows no more than maxLate.
const (
	allowedLateShare = 0.005
	minAllowedLate   = 2 * time.Millisecond
	allowedLateP99   = 2 * time.Millisecond
)

// isDisturbed decides on a transfer that took so long.
func (l Lateness) isDisturbed(took time.Duration, timed bool) bool {
	most := max(minAllowedLate, time.Duration(allowedLateShare*float64(took)))
	if timed {
		most = maxLate
	}
	return l.P99 > allowedLateP99 || l.Max > most
}

// lateBuckets counts lateness in steps of lateStep, the last one all above.
const (
	lateStep    = 10 * time.Microsecond
	lateBuckets = 5001
)

// Lateness is how long after their ideal time packets were delivered, over a
// period.
type Lateness struct {
	Packets   int64         `json:"packets"`
	P50       time.Duration `json:"p50_ns"`
	P99       time.Duration `json:"p99_ns"`
	P999      time.Duration `json:"p999_ns"`
	Max       time.Duration `json:"max_ns"`
	Disturbed bool          `json:"disturbed"`
}

// latenessHist is a histogram of lateness.
type latenessHist struct {
	count [lateBuckets]int64
	n     int64
	max   time.Duration
}

func (h *latenessHist) addLateness(d time.Duration) {
	h.count[min(max(d, 0)/lateStep, lateBuckets-1)]++
	h.n++
	h.max = max(h.max, d)
}

func (h *latenessHist) summarize() Lateness {
	at := func(q float64) time.Duration {
		i := quantileBucket(h.count[:], h.n, q)
		return min(time.Duration(i+1)*lateStep, h.max)
	}
	l := Lateness{Packets: h.n, P50: at(.5), P99: at(.99), P999: at(.999), Max: h.max}
	l.Disturbed = l.P999 > maxLateP999 || l.Max > maxLate
	return l
}
