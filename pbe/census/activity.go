package census

import "mpbond/pbe/cell"

// quiet is how many subframes end an activity: a user who was given nothing for so long
// and is heard again is another one, or begins another one. Networks turn further
// cells off after as long (section 3 of the paper).
const quiet = 1000

// activity is what one user was given between two silences.
type activity struct {
	first, last int64 // by the tally's time
	subframes   int
	prb         int
	sized       int
	bits        int64
	data        bool // it passed the user filter
}

// activities are those of one cell.
type activities struct {
	open  map[cell.RNTI]*activity
	spare []*activity
	swept int64

	once, four, both int64 // heard in one subframe only; with four PRBs a subframe; both
	subframes        spread
	span             spread // ms
	prb              spread // a subframe
	// Of those who passed the filter.
	perPRB, rate spread // Mbit/s
}

func newActivities() activities {
	return activities{open: map[cell.RNTI]*activity{}, subframes: wide(5), span: wide(8), prb: numbers(cell.MaxPRB), perPRB: steps(0.02, 150), rate: ratios(0.01, 5)}
}

// add takes what a user was given at a time.
func (a *activities) add(now int64, h share) {
	x := a.open[h.user]
	if x != nil && now-x.last > quiet {
		a.end(h.user, x)
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
	x.sized += h.sized
	x.bits += h.bits
}

// passed says that a user shares the cell.
func (a *activities) passed(user cell.RNTI) {
	if x := a.open[user]; x != nil {
		x.data = true
	}
}

// sweep ends what has ended, now and then.
func (a *activities) sweep(now int64) {
	if now-a.swept < quiet {
		return
	}
	a.swept = now
	for user, x := range a.open {
		if now-x.last > quiet {
			a.end(user, x)
		}
	}
}

// close ends all.
func (a *activities) close() {
	for user, x := range a.open {
		a.end(user, x)
	}
}

func (a *activities) end(user cell.RNTI, x *activity) {
	delete(a.open, user)
	a.spare = append(a.spare, x)
	one, four := x.subframes == 1, x.prb == 4*x.subframes
	if one {
		a.once++
	}
	if four {
		a.four++
	}
	if one && four {
		a.both++
	}
	span := float64(x.last - x.first + 1)
	a.subframes.add(float64(x.subframes))
	a.span.add(span)
	a.prb.add(float64(x.prb) / float64(x.subframes))
	if x.data && x.sized > 0 {
		a.perPRB.add(float64(x.bits) / float64(x.sized) / 1000)
		a.rate.add(float64(x.bits) / max(span, Window) / 1000)
	}
}
