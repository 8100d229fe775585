// SPDX-License-Identifier: Apache-2.0

package allowance

import (
	"fmt"
	"math"
	"time"

	"mpbond/base/unit"
	"mpbond/control/policy"
)

// Parameters of cap tracking as in 3GOL (Rossi et al., CoNEXT 2013, section 6). A month's volume is
// the mean of what the last months left unused of the plan, minus some standard deviations; each
// day gets its part.
const (
	trackedMonths = 5
	marginSigmas  = 4
	// minKnownShare is the share of a month's days that must be known. The other days are assumed
	// to be like these.
	minKnownShare = 0.75
)

// Plan is the data plan of a link.
type Plan struct {
	Cap      policy.Volume // per month
	ResetDay int           // first day of the month, 1 to 31; 0 is 1
	// Bills are the volumes of the months before the history, oldest first, so that a new history
	// can be used at once.
	Bills []policy.Volume
}

// Day counts the bytes of the link on a day: all of them, and those for onloading.
type Day struct{ AllBytes, OnloadBytes unit.Bytes }

// History maps dates, YYYY-MM-DD, to days.
type History map[string]Day

// billingPeriod is the usage of one month of the plan.
type billingPeriod struct {
	ownerBytes, allBytes, onloadBytes unit.Bytes
	knownDays, days                   int
}

// sumPeriodUsage sums up the known days of a period.
func (h History) sumPeriodUsage(from, until time.Time) (p billingPeriod) {
	// Use noon: each day has it exactly once.
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

// estimateOwnerUse estimates the owner's volume of the whole month. ok is false if too few days are
// known.
func (p billingPeriod) estimateOwnerUse() (unit.Bytes, bool) {
	if p.days == 0 || float64(p.knownDays) < minKnownShare*float64(p.days) {
		return 0, false
	}
	return unit.Bytes(float64(p.ownerBytes) * float64(p.days) / float64(p.knownDays)), true
}

// DayLimit returns how much may be onloaded on the day of now. It allows nothing before five months
// are known.
func (p Plan) DayLimit(now time.Time, h History) DayLimit {
	from, until := policy.Month(now, max(p.ResetDay, 1))
	this := h.sumPeriodUsage(from, until)
	used := make([]unit.Bytes, 0, trackedMonths) // newest first
	for begin := from; len(used) < trackedMonths; {
		before, _ := policy.Month(begin.Add(-time.Second), max(p.ResetDay, 1))
		u, ok := h.sumPeriodUsage(before, begin).estimateOwnerUse()
		if !ok {
			break
		}
		used, begin = append(used, u), before
	}
	for i := len(p.Bills) - 1; i >= 0 && len(used) < trackedMonths; i-- {
		used = append(used, unit.Bytes(p.Bills[i]))
	}
	if len(used) < trackedMonths {
		return DayLimit{Reason: fmt.Sprintf(
			"the usage of %d months is known, and %d are needed (add `bills` of earlier months)",
			len(used), trackedMonths)}
	}
	mean, sigma := leftoverStats(unit.Bytes(p.Cap), used)
	month := mean - marginSigmas*sigma
	if month < 1 {
		return DayLimit{Reason: fmt.Sprintf(
			"the plan of %v left %v a month unused, with a standard deviation of %v: too uncertain to share any", p.Cap,
			volumeFromBytes(mean), volumeFromBytes(sigma))}
	}
	// The limit is for the whole day, part of which may have been carried already. The owner's use
	// of this month may exceed that of earlier months.
	today := h[now.Format(time.DateOnly)].OnloadBytes
	bytes := min(unit.Bytes(month/float64(this.days)), today+max(unit.Bytes(p.Cap)-this.allBytes, 0))
	if bytes <= 0 {
		return DayLimit{Reason: fmt.Sprintf("the plan of %v is used up for this month", p.Cap)}
	}
	return DayLimit{Bytes: bytes,
		Reason: fmt.Sprintf(
			"the plan of %v left %v a month unused in the last %d months, with a standard deviation of %v", p.Cap,
			volumeFromBytes(mean), trackedMonths, volumeFromBytes(sigma))}
}

// leftoverStats returns the mean of what months have left of a limit, and the sample standard
// deviation.
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

// volumeFromBytes converts bytes for messages.
func volumeFromBytes(b float64) policy.Volume { return policy.Volume(b) }
