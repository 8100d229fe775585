// SPDX-License-Identifier: Apache-2.0

package census

import "mpbond/pbe/cell"

// activityTimeout is how many subframes without a grant end an activity: the same RNTI after that
// is another user, or another activity. Networks deactivate additional cells after the same time
// (section 3 of the paper).
const activityTimeout = 1000

// activity has the sums of one user's grants between two silences.
type activity struct {
	first, last int64 // in the tally's time
	subframes   int
	prb         int
	sized       int
	bits        int64
	isDataUser  bool // passed the user filter
}

// activityTracker tracks the activities of one cell.
type activityTracker struct {
	open      map[cell.RNTI]*activity
	spare     []*activity
	lastSweep int64

	oneSubframe, fourPRB, both int64 // in one subframe only; with four PRBs a subframe; both
	subframes                  histogram
	span                       histogram // ms
	prb                        histogram // a subframe
	// Of data users.
	perPRB, rate histogram // Mbit/s
}

func newActivityTracker() activityTracker {
	return activityTracker{open: map[cell.RNTI]*activity{}, subframes: newLogIntegerHistogram(5),
		span: newLogIntegerHistogram(8), prb: newIntegerHistogram(cell.MaxPRB), perPRB: newLinearHistogram(0.02, 150),
		rate: newLogHistogram(0.01, 5)}
}

// addActivityShare adds a share at time now.
func (a *activityTracker) addActivityShare(now int64, h share) {
	x := a.open[h.user]
	if x != nil && now-x.last > activityTimeout {
		a.endActivity(h.user, x)
		x = nil
	}
	if x == nil {
		if n := len(a.spare); n > 0 {
			x, a.spare = a.spare[n-1], a.spare[:n-1]
		} else {
			x = &activity{}
		}
		*x = activity{first: now}
		a.open[h.user] = x
	}
	x.last = now
	x.subframes++
	x.prb += h.prb
	x.sized += h.sizedPRB
	x.bits += h.sizedBits
}

// markDataUser marks a user as passing the user filter.
func (a *activityTracker) markDataUser(user cell.RNTI) {
	if x := a.open[user]; x != nil {
		x.isDataUser = true
	}
}

// endExpired ends expired activities, once per activityTimeout.
func (a *activityTracker) endExpired(now int64) {
	if now-a.lastSweep < activityTimeout {
		return
	}
	a.lastSweep = now
	for user, x := range a.open {
		if now-x.last > activityTimeout {
			a.endActivity(user, x)
		}
	}
}

func (a *activityTracker) endAllActivities() {
	for user, x := range a.open {
		a.endActivity(user, x)
	}
}

// endActivity counts an activity of a user that has ended.
func (a *activityTracker) endActivity(user cell.RNTI, x *activity) {
	delete(a.open, user)
	a.spare = append(a.spare, x)
	one, four := x.subframes == 1, x.prb == 4*x.subframes
	if one {
		a.oneSubframe++
	}
	if four {
		a.fourPRB++
	}
	if one && four {
		a.both++
	}
	span := float64(x.last - x.first + 1)
	a.subframes.countValueInBin(float64(x.subframes))
	a.span.countValueInBin(span)
	a.prb.countValueInBin(float64(x.prb) / float64(x.subframes))
	if x.isDataUser && x.sized > 0 {
		a.perPRB.countValueInBin(float64(x.bits) / float64(x.sized) / 1000)
		a.rate.countValueInBin(float64(x.bits) / max(span, Window) / 1000)
	}
}
