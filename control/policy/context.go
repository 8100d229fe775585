package policy

import (
	"math"
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// Subflow is a subflow as far as the choice for a stream depends on it. Lanes that
// are silent or gone are left out.
type Subflow struct {
	Local bool      // by an interface of the primary's own; else by a helper
	Rate  unit.Rate // what it carries, or is expected to
	// Window, if not 0, tells that nobody knows what it carries: TCP may have that
	// much in flight, and twice as much after each Round.
	Window    unit.Bytes
	RoundTrip time.Duration
	// Delay is that of a byte given to it now, queues included (PAD), but for what a
	// radio takes to wake.
	Delay time.Duration
	Radio wire.Radio
	// Idle is how long ago it last carried anything: within its tail the radio is
	// awake.
	Idle time.Duration
	Tier wire.Tier
	// InUse tells that the stream was allowed to use it by the last choice.
	InUse bool
	// Allowed is the answer.
	Allowed bool
}

// Demand is what is known of a stream, at its sending end.
type Demand struct {
	// Pending bytes wait to be sent, of all streams.
	Pending unit.Bytes
	// Burst is what the stream has been given to carry since it last had nothing
	// left to send.
	Burst unit.Bytes
	// BackloggedFor is for how long the stream has had something that could be sent, without
	// a pause: its paths take no more.
	BackloggedFor time.Duration
	// Upload tells that the primary sends.
	Upload bool
}

// expectedBytes is how much a stream is reckoned to send from now on: what waits, and
// as much again as it has sent without a pause. How large a download is nobody
// tells, but sizes are such that one which has lasted long goes on for long
// (Crovella, Bestavros: "Self-Similarity in World Wide Web Traffic", 1997). A
// flow that one path carries easily pauses all the time and stays small.
func (d Demand) expectedBytes() unit.Bytes { return d.Pending + d.Burst }

// Tuning of Choose, ours.
const (
	// waitPerJoule is how much longer a user waits rather than spend a joule. With it
	// waking a cellular radio, 12.6 J with its tail, must save 126 ms, which is
	// about what people notice (Miller 1968: 0.1 s), and a whole battery of
	// 50 kJ is worth 8 minutes of waiting.
	waitPerJoule = 10 * time.Millisecond
	// stayFactor is what the price of a lane counts that the stream uses already, so
	// that a choice near the edge does not go back and forth.
	stayFactor = 0.5
	// fullTime is how long a stream must have had bytes for paths of tier primary
	// without a pause until these count as full: what they carry within a second
	// keeps nobody waiting (Miller 1968), and spends nothing of a link that the
	// owner wants to spare. While one of tier secondary was in use a moment ago,
	// fullAgain is enough: bulk that two tiers together carry easily has pauses.
	fullTime  = time.Second
	fullAgain = fullTime / 4
	// maxSlowdown is how much later than by the best lane alone a stream may be done,
	// for the sake of energy.
	maxSlowdown = 1.03
)

// Reasons of Choose.
const (
	ReasonOnly    = "the only path there is"
	ReasonFree    = "no path costs energy or money"
	ReasonOne     = "one path carries it in time: another would cost more energy than it saves time"
	ReasonLocal   = "together its own interfaces save more time than their energy is worth"
	ReasonHelpers = "helpers save more time than their energy is worth"
	ReasonPaid    = "only paths of tier backup work"
	ReasonTier    = "paths of tier primary carry it"
)

// ChooseSubflows marks the lanes that a stream may use now, at least one if there is
// any, and says why.
//
//  1. Lanes of tier backup are left out while one of another tier works, and those
//     of tier secondary while one of tier primary works that is not full: the
//     stream has pauses, in which it could take more.
//  2. Of the others, those without a radio are all allowed.
//  3. If these would complete what the stream is expected to send over 3 % later
//     than the best lane alone (whose radio may have to wake first), one more is
//     allowed: of those with which they would not, the one with which time and
//     energy together are least.
//  4. Further ones are allowed, the primary's own before helpers, as long as each
//     makes it complete sooner by more than its energy is worth.
//
// So energy decides only between sets of lanes that are within 3 % of the best
// lane alone, or quicker than it, as far as the lanes tell what they carry. Of a
// lane that nobody knows (Window) what a quick link would do is believed, until
// it is known; see docs/adr/0008.
//
// It is pure and quick, and may be asked for each segment.
func ChooseSubflows(lanes []Subflow, d Demand) string {
	if len(lanes) <= 1 {
		for i := range lanes {
			lanes[i].Allowed = true
		}
		return ReasonOnly
	}
	most, full := usableTiers(lanes, d)
	usable := func(l *Subflow) bool { return l.Tier <= most }
	n := d.expectedBytes()
	some, costs, left, best := false, false, false, maxFinish
	for i := range lanes {
		l := &lanes[i]
		l.Allowed = usable(l) && !UsesEnergy(l.Radio)
		left = left || !usable(l)
		if usable(l) {
			some = some || l.Allowed
			costs = costs || !l.Allowed
			best = min(best, l.finishAlone(n))
		}
	}
	reason := ReasonOne
	switch {
	case most == wire.TierBackup:
		reason = ReasonPaid
	case left && most == wire.TierPrimary && !full:
		reason = ReasonTier
	case !costs:
		reason = ReasonFree
	}
	bound := time.Duration(maxSlowdown * float64(best))
	if !some || finishTime(lanes, n) > bound {
		if l := addSubflow(lanes, d, usable, bound, math.MaxInt64); l != nil && some {
			reason = additionReason(l)
		}
	}
	for _, own := range [...]bool{true, false} {
		may := func(l *Subflow) bool { return l.Local == own && usable(l) }
		for l := addSubflow(lanes, d, may, bound, scoreAllowed(lanes, d)); l != nil; l = addSubflow(lanes, d, may, bound, scoreAllowed(lanes, d)) {
			reason = additionReason(l)
		}
	}
	return reason
}

// usableTiers is the last tier of which lanes may be used, and whether the one before
// is full.
func usableTiers(lanes []Subflow, d Demand) (most wire.Tier, full bool) {
	most = wire.TierBackup
	wait := time.Duration(math.MaxInt64)
	for i := range lanes {
		l := &lanes[i]
		most = min(most, l.Tier)
		switch {
		case l.Tier != wire.TierSecondary:
		case l.Idle < fullTime:
			wait = fullAgain
		default:
			wait = min(wait, fullTime)
		}
	}
	if most == wire.TierPrimary && d.BackloggedFor >= wait {
		return wire.TierSecondary, true
	}
	return most, false
}

func additionReason(l *Subflow) string {
	if l.Local {
		return ReasonLocal
	}
	return ReasonHelpers
}

// addSubflow allows the one lane more, of those that may be, with which the stream is
// complete by the bound and the score is least, and less than that one. It
// returns that lane, or nil if there is none.
func addSubflow(lanes []Subflow, d Demand, may func(*Subflow) bool, bound, least time.Duration) (best *Subflow) {
	for i := range lanes {
		l := &lanes[i]
		if l.Allowed || !may(l) {
			continue
		}
		l.Allowed = true
		if end := finishTime(lanes, d.expectedBytes()); end <= bound {
			if s := end + energyPrice(lanes, d.Upload, end); s < least {
				best, least = l, s
			}
		}
		l.Allowed = false
	}
	if best != nil {
		best.Allowed = true
	}
	return best
}

// scoreAllowed is when the allowed lanes have delivered what is expected, with the time
// that their energy is worth.
func scoreAllowed(lanes []Subflow, d Demand) time.Duration {
	end := finishTime(lanes, d.expectedBytes())
	return end + energyPrice(lanes, d.Upload, end)
}

// energyPrice is what the energy of the allowed lanes is worth, used until end.
func energyPrice(lanes []Subflow, up bool, end time.Duration) (total time.Duration) {
	for i := range lanes {
		l := &lanes[i]
		if !l.Allowed {
			continue
		}
		e := radioEnergies[l.Radio]
		p := timeWorth(e.wakeEnergy(l.Idle) + e.activePower(l.Rate, up).energyOver(end-l.totalDelay()))
		if l.InUse {
			p = time.Duration(stayFactor * float64(p))
		}
		total += p
	}
	return total
}

// finishAlone is when the lane has delivered n bytes by itself.
func (l Subflow) finishAlone(n unit.Bytes) time.Duration {
	l.Allowed = true
	return finishTime([]Subflow{l}, n)
}

// totalDelay is that of a byte given to the lane now.
func (l *Subflow) totalDelay() time.Duration {
	return l.Delay + radioEnergies[l.Radio].wakeDelay(l.Idle)
}

// finishTime is when the allowed lanes, all used from now on, have delivered n
// bytes: what each delivers after its delay adds up to n.
func finishTime(lanes []Subflow, n unit.Bytes) time.Duration {
	// A lane whose delay is over the end that follows takes no part. Leaving it
	// out makes the end earlier, so that others may drop out in turn.
	for limit := maxFinish; ; {
		var rate, head float64 // bytes a second, and what delays cost
		first := maxFinish
		for i := range lanes {
			if l := &lanes[i]; l.Allowed {
				delay := l.totalDelay()
				first = min(first, delay)
				if delay < limit {
					r := l.expectedRate(n)
					rate += r
					head += r * delay.Seconds()
				}
			}
		}
		switch {
		case n <= 0:
			return first
		case rate == 0:
			return maxFinish
		}
		end := time.Duration(min((float64(n)+head)/rate*1e9, float64(maxFinish)))
		if end >= limit {
			return limit
		}
		limit = end
	}
}

// expectedRate is at how many bytes a second the lane would carry n bytes.
func (l *Subflow) expectedRate(n unit.Bytes) float64 {
	if l.Window <= 0 || l.RoundTrip <= 0 {
		return float64(l.Rate) / 8
	}
	// Slow start (RFC 5681): what fits the window arrives at once, twice as much
	// after a round trip more.
	rounds := max(math.Log2(float64(n)/float64(l.Window)), minRounds)
	return float64(n) / (rounds * l.RoundTrip.Seconds())
}

// minRounds is what a window takes to arrive after its first byte: packets of a
// burst are not all there at once.
const minRounds = 0.25

// maxFinish bounds what finish returns: some time beyond all patience.
const maxFinish = 1000 * time.Hour
