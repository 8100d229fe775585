package policy

import (
	"math"
	"time"

	"mpbond/unit"
	"mpbond/wire"
)

// Lane is a subflow as far as the choice for a stream depends on it. Lanes that
// are silent or gone are left out.
type Lane struct {
	Own  bool      // by an interface of the primary's own; else by a helper
	Rate unit.Rate // what it carries, or is expected to
	// Window, if not 0, tells that nobody knows what it carries: TCP may have that
	// much in flight, and twice as much after each Round.
	Window unit.Bytes
	Round  time.Duration
	Delay  time.Duration // of a byte given to it now, queues included (PAD)
	Radio  wire.Radio
	// Idle is how long ago it last carried anything: within its tail the radio is
	// awake.
	Idle    time.Duration
	Metered bool
	// Used tells that the stream was allowed to use it by the last choice.
	Used bool
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
	// Up tells that the primary sends.
	Up bool
}

// expected is how much a stream is reckoned to send from now on: what waits, and
// as much again as it has sent without a pause. How large a download is nobody
// tells, but sizes are such that one which has lasted long goes on for long
// (Crovella, Bestavros: "Self-Similarity in World Wide Web Traffic", 1997). A
// flow that one path carries easily pauses all the time and stays small.
func (d Demand) expected() unit.Bytes { return d.Pending + d.Burst }

// Tuning of Choose, ours.
const (
	// perJoule is how much longer a user waits rather than spend a joule. With it
	// waking a cellular radio, 12.6 J with its tail, must save 126 ms, which is
	// about what people notice (Miller 1968: 0.1 s), and a whole battery of
	// 50 kJ is worth 8 minutes of waiting.
	perJoule = 10 * time.Millisecond
	// stay is what the price of a lane counts that the stream uses already, so
	// that a choice near the edge does not go back and forth.
	stay = 0.5
)

// Reasons of Choose.
const (
	ReasonOnly    = "the only path there is"
	ReasonFree    = "no path costs energy or money"
	ReasonOne     = "one path carries it in time: another would cost more energy than it saves time"
	ReasonOwn     = "together its own interfaces save more time than their energy is worth"
	ReasonHelpers = "helpers save more time than their energy is worth"
	ReasonPaid    = "only paths that cost money work"
)

// Choose marks the lanes that a stream may use now, at least one if there is
// any, and says why. Lanes that cost money are left out while one works that
// does not. Of the others those without a radio are all allowed, or, if there is
// none, the one by which the stream is done at the least price, time and energy
// taken together; then further ones, the primary's own before helpers, as long
// as each makes what the stream is expected to send complete sooner by more than
// its energy is worth. So a stream is never slower than by the best lane alone,
// except by what that one's energy is worth.
//
// It is pure and quick, and may be asked for each segment.
func Choose(lanes []Lane, d Demand) string {
	if len(lanes) == 1 {
		lanes[0].Allowed = true
		return ReasonOnly
	}
	free, some := false, false
	for i := range lanes {
		free = free || !lanes[i].Metered
	}
	usable := func(l *Lane) bool { return !free || !l.Metered }
	costs := false
	for i := range lanes {
		l := &lanes[i]
		l.Allowed = usable(l) && energies[l.Radio] == energy{}
		some = some || l.Allowed
		costs = costs || usable(l) && !l.Allowed
	}
	n := d.expected()
	if !some {
		best, least := -1, time.Duration(0)
		for i := range lanes {
			if l := &lanes[i]; usable(l) {
				l.Allowed = true
				if s := score(lanes, n, d.Up); best < 0 || s < least {
					best, least = i, s
				}
				l.Allowed = false
			}
		}
		if best < 0 {
			return ReasonOnly
		}
		lanes[best].Allowed = true
	}
	reason := ReasonOne
	switch {
	case !free:
		reason = ReasonPaid
	case !costs:
		reason = ReasonFree
	}
	for _, own := range [...]bool{true, false} {
		for grow(lanes, n, d.Up, func(l *Lane) bool { return l.Own == own && usable(l) }) {
			if reason = ReasonHelpers; own {
				reason = ReasonOwn
			}
		}
	}
	return reason
}

// grow allows the one lane more, of those that may be, that lowers the score
// most, and reports whether there is one.
func grow(lanes []Lane, n unit.Bytes, up bool, may func(*Lane) bool) bool {
	best, least := -1, score(lanes, n, up)
	for i := range lanes {
		l := &lanes[i]
		if l.Allowed || !may(l) {
			continue
		}
		l.Allowed = true
		if s := score(lanes, n, up); s < least {
			best, least = i, s
		}
		l.Allowed = false
	}
	if best >= 0 {
		lanes[best].Allowed = true
	}
	return best >= 0
}

// score is when the allowed lanes have delivered n bytes, with the time that
// their energy is worth.
func score(lanes []Lane, n unit.Bytes, up bool) time.Duration {
	end := finish(lanes, n)
	total := end
	for i := range lanes {
		l := &lanes[i]
		if !l.Allowed {
			continue
		}
		e := energies[l.Radio]
		price := (e.wake(l.Idle) + e.active(l.Rate, up).over(end-l.Delay)).worth()
		if l.Used {
			price = time.Duration(stay * float64(price))
		}
		total += price
	}
	return total
}

// finish is when the allowed lanes, all used from now on, have delivered n
// bytes: what each delivers after its delay adds up to n.
func finish(lanes []Lane, n unit.Bytes) time.Duration {
	// A lane whose delay is over the end that follows takes no part. Leaving it
	// out makes the end earlier, so that others may drop out in turn.
	for limit := maxFinish; ; {
		var rate, head float64 // bytes a second, and what delays cost
		first := maxFinish
		for i := range lanes {
			if l := &lanes[i]; l.Allowed {
				first = min(first, l.Delay)
				if l.Delay < limit {
					r := l.pace(n)
					rate += r
					head += r * l.Delay.Seconds()
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

// pace is at how many bytes a second the lane would carry n bytes.
func (l *Lane) pace(n unit.Bytes) float64 {
	if l.Window <= 0 || l.Round <= 0 {
		return float64(l.Rate) / 8
	}
	// Slow start (RFC 5681): what fits the window arrives at once, twice as much
	// after a round trip more.
	rounds := max(math.Log2(float64(n)/float64(l.Window)), leastRounds)
	return float64(n) / (rounds * l.Round.Seconds())
}

// leastRounds is what a window takes to arrive after its first byte: packets of a
// burst are not all there at once.
const leastRounds = 0.25

// maxFinish bounds what finish returns: some time beyond all patience.
const maxFinish = 1000 * time.Hour
