package allowance

import (
	"fmt"
	"math"
	"time"

	"mpbond/base/unit"
	"mpbond/control/policy"
)

// Cap tracking, as 3GOL has it (Rossi et al., CoNEXT 2013, section 6): what may be used
// in a month is the mean of what the last months have left over of the plan, less so many
// standard deviations; and of that each day its part.
const (
	trackedMonths = 5
	marginSigmas  = 4
	// minKnownShare is the part of a month's days of which something must be known. What
	// was used on the others is taken to be as on these.
	minKnownShare = 0.75
)

// Plan is what the owner of a link pays for.
type Plan struct {
	Cap      policy.Volume // of a month
	ResetDay int           // 1 to 31, when a month begins; 0 is 1
	// Bills are what months before those of the history have used, oldest first, so that
	// a new history need not wait for half a year.
	Bills []policy.Volume
}

// Day is what the plan's link carried on a day, all that used it together, and Onload
// what of that was for onloading.
type Day struct{ AllBytes, OnloadBytes unit.Bytes }

// History are days by their date, YYYY-MM-DD.
type History map[string]Day

// billingPeriod is one month of the plan.
type billingPeriod struct {
	ownerBytes, allBytes, onloadBytes unit.Bytes
	knownDays, days                   int
}

// sumPeriod sums up the days from one time on, until another, that the history knows.
func (h History) sumPeriod(from, until time.Time) (p billingPeriod) {
	// At noon, which each day has once.
	for d := from.Add(12 * time.Hour); d.Before(until); d = d.AddDate(0, 0, 1) {
		p.days++
		if day, ok := h[d.Format(time.DateOnly)]; ok {
			p.knownDays++
			p.allBytes += day.AllBytes
			p.onloadBytes += day.OnloadBytes
			p.ownerBytes += max(day.AllBytes-day.OnloadBytes, 0)
		}
	}
	return p
}

// estimateOwnerUse is what the owner used in a whole month, and whether that can be said.
func (p billingPeriod) estimateOwnerUse() (unit.Bytes, bool) {
	if p.days == 0 || float64(p.knownDays) < minKnownShare*float64(p.days) {
		return 0, false
	}
	return unit.Bytes(float64(p.ownerBytes) * float64(p.days) / float64(p.knownDays)), true
}

// DayLimit is what may be onloaded in all on the day of now. Without five months that are
// known it is nothing.
func (p Plan) DayLimit(now time.Time, h History) DayLimit {
	from, until := policy.Month(now, max(p.ResetDay, 1))
	this := h.sumPeriod(from, until)
	used := make([]unit.Bytes, 0, trackedMonths) // newest first
	for begin := from; len(used) < trackedMonths; {
		before, _ := policy.Month(begin.Add(-time.Second), max(p.ResetDay, 1))
		u, ok := h.sumPeriod(before, begin).estimateOwnerUse()
		if !ok {
			break
		}
		used, begin = append(used, u), before
	}
	for i := len(p.Bills) - 1; i >= 0 && len(used) < trackedMonths; i-- {
		used = append(used, unit.Bytes(p.Bills[i]))
	}
	if len(used) < trackedMonths {
		return DayLimit{Reason: fmt.Sprintf("what the plan leaves over is known of %d months, and %d are needed (bills of earlier ones count too)", len(used), trackedMonths)}
	}
	mean, sigma := leftoverStats(unit.Bytes(p.Cap), used)
	month := mean - marginSigmas*sigma
	if month < 1 {
		return DayLimit{Reason: fmt.Sprintf("the plan of %v has left over %v a month, which sways by %v: nothing is sure to be left", p.Cap, toVolume(mean), toVolume(sigma))}
	}
	// The bound is of the whole day, of which a part may have been carried already; this
	// month's own use may be beyond what the last ones tell.
	today := h[now.Format(time.DateOnly)].OnloadBytes
	bytes := min(unit.Bytes(month/float64(this.days)), today+max(unit.Bytes(p.Cap)-this.allBytes, 0))
	if bytes <= 0 {
		return DayLimit{Reason: fmt.Sprintf("the plan of %v is used up in this month", p.Cap)}
	}
	return DayLimit{Bytes: bytes, Reason: fmt.Sprintf("the plan of %v has left over %v a month in the last %d, which sways by %v", p.Cap, toVolume(mean), trackedMonths, toVolume(sigma))}
}

// leftoverStats is the mean of what months have left of a cap, and its standard deviation as
// of a sample.
func leftoverStats(limit unit.Bytes, used []unit.Bytes) (mean, sigma float64) {
	for _, u := range used {
		mean += float64(max(limit-u, 0)) / float64(len(used))
	}
	for _, u := range used {
		d := float64(max(limit-u, 0)) - mean
		sigma += d * d / float64(len(used)-1)
	}
	return mean, math.Sqrt(sigma)
}

func toVolume(b float64) policy.Volume { return policy.Volume(b) }
