// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"math"
	"slices"
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// Subflow is a subflow as ChooseSubflows sees it. Silent and ended subflows are left out.
type Subflow struct {
	Direct bool      // over an interface of the primary; else by a helper
	Rate   unit.Rate // measured or expected rate
	// Window, if not 0, means that the rate is unknown: TCP may have that many bytes in flight, and
	// twice as many after each RoundTrip.
	Window unit.Bytes
	// Ceiling bounds the rate that Window grows to; 0: no bound.
	Ceiling unit.Rate
	// RoundTrip is end to end, 0 if it is unknown. Spread is its mean deviation, and Loss the share of
	// packets that had to be sent again lately.
	RoundTrip, Spread time.Duration
	Loss              float64
	// Delay is the predicted delay of a byte given to it now, queues included (PAD), without the
	// time to wake its radio.
	Delay time.Duration
	// LeastDelay is Delay without queues; 0: unknown.
	LeastDelay time.Duration
	Radio      wire.Radio
	// QuietFor is the time since it last carried bytes. Within its tail the radio is awake.
	QuietFor time.Duration
	Tier     wire.Tier
	// InUse reports whether the last choice allowed it for the stream.
	InUse bool
	// Allowed is the result.
	Allowed bool
}

// Demand describes a stream at its sending end.
type Demand struct {
	// Pending is the number of bytes waiting to be sent, of all streams.
	Pending unit.Bytes
	// Burst is the number of bytes given to subflows since the stream last had none left to send.
	Burst unit.Bytes
	// BackloggedFor is how long the stream has had sendable bytes without a pause: its subflows
	// take no more.
	BackloggedFor time.Duration
	// More is how many bytes of the present message are expected beyond the pending ones, if
	// MoreKnown.
	More      unit.Bytes
	MoreKnown bool
	// Repetition holds messages that will probably follow. They add to the gain of waking a radio.
	Repetition Repetition
	// SourceRate is the rate at which the app writes the bytes that are not pending yet, if it is slower
	// than the subflows were so far; 0: it is not known to be.
	SourceRate unit.Rate
	// NeededIn is when the app needs the expected bytes: to have them sooner gains nothing. 0: it
	// needs them as soon as possible.
	NeededIn time.Duration
	// Upload reports that the primary sends.
	Upload bool
}

// Repetition is a number of messages that are expected to follow each other, each asked for when the
// one before has arrived.
type Repetition struct {
	Count int
	Bytes unit.Bytes    // of each
	Pause time.Duration // before each
}

// expectedBytes estimates how much the stream will send: the pending bytes, and those that are
// known to follow. If that is not known, as many are expected to follow as it sent without a pause.
// The size of a download is unknown, but sizes are such that a long one tends to last (Crovella,
// Bestavros: "Self-Similarity in World Wide Web Traffic", 1997). A stream that one subflow carries
// easily pauses often, and so stays small.
func (d Demand) expectedBytes() unit.Bytes {
	if d.MoreKnown {
		return d.Pending + d.More
	}
	return d.Pending + d.Burst
}

// gainsUntil returns the time before which it gains nothing to complete the expected bytes: the app
// does not need them sooner, or has not written them.
func (d Demand) gainsUntil() time.Duration {
	if d.SourceRate <= 0 {
		return d.NeededIn
	}
	return max(d.NeededIn, d.SourceRate.Time(d.expectedBytes()-d.Pending))
}

// Tuning of ChooseSubflows, ours.
const (
	// waitPerJoule is how much longer a user would wait to save one joule. Waking a cellular radio
	// takes 12.6 J with its tail, and so must save 126 ms, about the least that people notice
	// (Miller 1968: 0.1 s). A whole battery of 50 kJ is worth 8 minutes of waiting.
	waitPerJoule = 10 * time.Millisecond
	// stayFactor reduces the price of a subflow already in use, so that a close choice does not
	// oscillate.
	stayFactor = 0.5
	// maxStay is how long after a subflow last carried bytes stayFactor applies. After a longer pause
	// a choice cannot oscillate.
	maxStay = time.Second
	// fullTime is how long a stream must have had bytes without a pause until its subflows of tier
	// primary count as full. Users do not wait for what these carry within a second (Miller 1968),
	// and links that should be spared stay unused. If a subflow of tier secondary was in use within
	// fullTime, fullAgain suffices: a transfer that two tiers carry easily has pauses.
	fullTime  = time.Second
	fullAgain = fullTime / 4
	// maxSlowdown bounds how much later than over the best single subflow a stream may complete to
	// save energy.
	maxSlowdown = 1.03
)

// Reasons of ChooseSubflows.
const (
	ReasonOnly    = "the only subflow"
	ReasonFree    = "no subflow costs energy or money"
	ReasonOne     = "one subflow suffices: another costs more energy than its time is worth"
	ReasonDirect  = "several interfaces save more time than their energy is worth"
	ReasonHelpers = "helpers save more time than their energy is worth"
	ReasonPaid    = "only subflows of tier backup work"
	ReasonTier    = "subflows of tier primary suffice"
)

// ChooseSubflows marks the subflows that a stream may use now, at least one if there is any, and
// returns the reason.
//
//  1. Subflows of tier backup are excluded while one of another tier works. Those of tier secondary
//     are excluded while one of tier primary works that is not full: the stream has pauses in which
//     it could take more.
//  2. All remaining subflows without a radio are allowed.
//  3. If these would complete the expected bytes over 3 % later than the best single subflow (whose
//     radio may have to wake first), one more is allowed: the one that keeps within that bound at
//     the least sum of time and energy price.
//  4. More are allowed, direct ones before helped ones, as long as each makes the stream complete
//     and its repetition earlier by more than the price of its energy. To complete before NeededIn,
//     or before the app has written the bytes, gains nothing.
//
// So energy decides only between sets of subflows that take at most 3 % longer than the best single
// one, as far as their rates are known. A subflow of unknown rate (Window) is assumed to be fast
// until it was measured (docs/adr/0008-which-subflows-a-stream-may-use.md).
//
// It is a pure function and fast enough to be called for each segment.
func ChooseSubflows(subflows []Subflow, d Demand) string {
	if len(subflows) <= 1 {
		for i := range subflows {
			subflows[i].Allowed = true
		}
		return ReasonOnly
	}
	most, full := usableTiers(subflows, d)
	usable := func(l *Subflow) bool { return l.Tier <= most }
	n := d.expectedBytes()
	some, costs, hasExcluded, best := false, false, false, maxFinish
	for i := range subflows {
		l := &subflows[i]
		l.Allowed = usable(l) && !UsesEnergy(l.Radio)
		hasExcluded = hasExcluded || !usable(l)
		if usable(l) {
			some = some || l.Allowed
			costs = costs || !l.Allowed
			best = min(best, l.finishAlone(n, d.comparedMoment()))
		}
	}
	reason := ReasonOne
	switch {
	case most == wire.TierBackup:
		reason = ReasonPaid
	case hasExcluded && most == wire.TierPrimary && !full:
		reason = ReasonTier
	case !costs:
		reason = ReasonFree
	}
	bound := time.Duration(maxSlowdown * float64(best))
	if !some || finishTime(subflows, n, d.comparedMoment()) > bound {
		if l := allowBestSubflow(subflows, d, usable, bound, math.MaxInt64); l != nil && some {
			reason = additionReason(l)
		}
	}
	for _, direct := range [...]bool{true, false} {
		eligible := func(l *Subflow) bool { return l.Direct == direct && usable(l) }
		for {
			l := allowBestSubflow(subflows, d, eligible, bound, scoreAllowed(subflows, d))
			if l == nil {
				break
			}
			reason = additionReason(l)
		}
	}
	return reason
}

// usableTiers returns the last tier that may be used, and whether the tier before it is full.
func usableTiers(subflows []Subflow, d Demand) (most wire.Tier, full bool) {
	most = wire.TierBackup
	wait := time.Duration(math.MaxInt64)
	for i := range subflows {
		l := &subflows[i]
		most = min(most, l.Tier)
		switch {
		case l.Tier != wire.TierSecondary:
		case l.QuietFor < fullTime:
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

// additionReason returns the reason for adding a subflow.
func additionReason(l *Subflow) string {
	if l.Direct {
		return ReasonDirect
	}
	return ReasonHelpers
}

// allowBestSubflow allows one more of the eligible subflows: the one of least score below least
// with which the stream completes by bound. It returns that subflow, or nil if there is none.
func allowBestSubflow(subflows []Subflow, d Demand, eligible func(*Subflow) bool, bound,
	least time.Duration) (best *Subflow) {
	each := d.repetitionTime(subflows)
	for i := range subflows {
		l := &subflows[i]
		if l.Allowed || !eligible(l) {
			continue
		}
		l.Allowed = true
		if end := finishTime(subflows, d.expectedBytes(), d.comparedMoment()); end <= bound {
			with := d.repetitionTime(subflows)
			if isGuess := l.Window > 0 && l.Ceiling == 0; each < maxFinish &&
				(isGuess || with > each-each/leastRepetitionGain) {
				with = max(with, each)
			}
			if s := scoreOf(subflows, d, end, with); s < least {
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

// scoreAllowed returns the score of the allowed subflows.
func scoreAllowed(subflows []Subflow, d Demand) time.Duration {
	end := finishTime(subflows, d.expectedBytes(), d.comparedMoment())
	return scoreOf(subflows, d, end, d.repetitionTime(subflows))
}

// repetitionTime returns how long the allowed subflows take for one message of the repetition, over
// radios that are awake then; 0 if there is no repetition.
func (d Demand) repetitionTime(subflows []Subflow) time.Duration {
	if d.Repetition.Count <= 0 {
		return 0
	}
	return finishTime(subflows, d.Repetition.Bytes, repetition)
}

// leastRepetitionGain: a repetition gains by a subflow only if that makes each message faster by one
// part in leastRepetitionGain, and its rate is measured or bounded. Forecasts of single messages are
// often wrong by nearly as much.
const leastRepetitionGain = 3

// scoreOf returns when the app gains by the expected bytes, if the allowed subflows complete them at
// end, plus the price of their energy. To this it adds the time and the price of the
// repetition; each is the time of one of its messages.
func scoreOf(subflows []Subflow, d Demand, end, each time.Duration) time.Duration {
	total := max(end, d.gainsUntil()) + energyPrice(subflows, d, end)
	if r := d.Repetition; r.Count > 0 {
		total += time.Duration(r.Count) * (max(each, d.NeededIn) + repetitionPrice(subflows, d, each))
	}
	return total
}

// energyPrice returns the time that the energy of the allowed subflows until end is worth.
func energyPrice(subflows []Subflow, d Demand, end time.Duration) (total time.Duration) {
	for i := range subflows {
		if l := &subflows[i]; l.Allowed {
			total += l.priceOf(l.energyUntil(end, d.Upload))
		}
	}
	return total
}

// repetitionPrice returns the time that the energy of the allowed subflows is worth for one message of
// the repetition, which takes a time, and for the pause before it.
func repetitionPrice(subflows []Subflow, d Demand, each time.Duration) (total time.Duration) {
	for i := range subflows {
		if l := &subflows[i]; l.Allowed {
			e := radioEnergies[l.Radio]
			total += l.priceOf(e.tail.energyOver(min(d.Repetition.Pause, e.tailTime)) +
				e.activePower(l.Rate, d.Upload).energyOver(each-l.delayAt(repetition)))
		}
	}
	return total
}

// priceOf returns the time that energy of the subflow's radio is worth.
func (s *Subflow) priceOf(e unit.Joules) time.Duration {
	p := energyAsWaitTime(e)
	if s.InUse && s.QuietFor < maxStay {
		p = time.Duration(stayFactor * float64(p))
	}
	return p
}

// energyUntil returns the energy to use the subflow until end, with the tail of its radio.
func (s *Subflow) energyUntil(end time.Duration, up bool) unit.Joules {
	e := radioEnergies[s.Radio]
	return e.wakeEnergy(s.QuietFor) + e.activePower(s.Rate, up).energyOver(end-s.totalDelay())
}

// finishAlone returns when the subflow alone would deliver n bytes that are given to it at a moment.
func (s Subflow) finishAlone(n unit.Bytes, m moment) time.Duration {
	s.Allowed = true
	return finishTime([]Subflow{s}, n, m)
}

// moment says when bytes are given to subflows.
type moment uint8

// Moments.
const (
	present    moment = iota // now
	drained                  // when the queues of now are empty
	repetition               // later, when radios are awake too
)

// delayAt returns the delay of a byte given to the subflow at a moment.
func (s *Subflow) delayAt(m moment) time.Duration {
	least := cmp.Or(s.LeastDelay, s.Delay)
	switch m {
	case drained:
		return least + radioEnergies[s.Radio].wakeDelay(s.QuietFor)
	case repetition:
		return least
	}
	return s.totalDelay()
}

// comparedMoment returns the moment for which sets of subflows are compared. If the app needs the bytes
// only later, queues that are empty by then do not count: most of them are of the same message.
func (d Demand) comparedMoment() moment {
	if d.NeededIn > 0 {
		return drained
	}
	return present
}

// totalDelay returns the delay of a byte given to the subflow now, with the time to wake its radio.
func (s *Subflow) totalDelay() time.Duration {
	return s.Delay + radioEnergies[s.Radio].wakeDelay(s.QuietFor)
}

// WakeDelay returns how long the first packet over the subflow waits until its radio is awake.
func (s *Subflow) WakeDelay() time.Duration { return radioEnergies[s.Radio].wakeDelay(s.QuietFor) }

// IsAsleep reports whether the first packet over the subflow has to wake a radio.
func (s *Subflow) IsAsleep() bool {
	e := radioEnergies[s.Radio]
	return e.tailTime > 0 && s.QuietFor >= e.tailTime
}

// jointFinishTime returns when the allowed subflows deliver n bytes together that are given to them
// now.
func jointFinishTime(subflows []Subflow, n unit.Bytes) time.Duration {
	return finishTime(subflows, n, present)
}

// finishTime returns when the allowed subflows deliver n bytes together, counted from the moment at
// which these are given to them: each delivers at its rate after its delay.
func finishTime(subflows []Subflow, n unit.Bytes, m moment) time.Duration {
	// A subflow with a delay beyond the resulting end takes no part. Leaving it out makes the end
	// earlier, so that more of them may drop out.
	for limit := maxFinish; ; {
		var rate, head float64 // in bytes per second, and the bytes lost to delays
		first := maxFinish
		for i := range subflows {
			if l := &subflows[i]; l.Allowed {
				delay := l.delayAt(m)
				first = min(first, delay+l.repairTime(0))
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
			return min(limit+leastRepairTime(subflows, n, limit, m), maxFinish)
		}
		limit = end
	}
}

// leastRepairTime returns how much later than limit the last of n bytes is expected because packets
// are lost, if the allowed subflows carry them. What one of them loses, another one can carry too.
// So the one counts with which this takes the least time: until it has carried the last packets,
// and has repeated those that it lost. Nothing counts for a repetition: most losses of transfers that
// follow each other are of queues that these fill, and another subflow has a queue as well.
func leastRepairTime(subflows []Subflow, n unit.Bytes, limit time.Duration, m moment) time.Duration {
	if m == repetition || !slices.ContainsFunc(subflows, func(s Subflow) bool { return s.Allowed && s.Loss > 0 }) {
		return 0
	}
	least := maxFinish
	for i := range subflows {
		s := &subflows[i]
		if !s.Allowed {
			continue
		}
		tail := time.Duration(0)
		if r := s.expectedRate(n); r > 0 {
			tail = time.Duration(float64(min(n, lastPackets*segmentBytes)) / r * 1e9)
		}
		least = min(least, max(0, s.delayAt(m)+tail-limit)+s.repairTime(n))
	}
	return least
}

// The packets of a transfer. If fewer than lastPackets follow a lost one, TCP notices the loss by
// its timeout.
const (
	segmentBytes = 1448 // bytes
	lastPackets  = 3
)

// repairTime returns how much later the last of n bytes is expected over the subflow because
// packets are lost. If fewer than lastPackets follow a lost packet, it is repeated after TCP's
// retransmission timeout (RFC 6298, as in Linux), else after a round trip (RFC 5681).
func (s *Subflow) repairTime(n unit.Bytes) time.Duration {
	if s.Loss <= 0 {
		return 0
	}
	packets := max(1, (n+segmentBytes-1)/segmentBytes)
	last := min(packets, lastPackets)
	arriveLast := 1.0
	for range last {
		arriveLast *= 1 - s.Loss
	}
	lostBefore := -math.Expm1(float64(packets-last) * math.Log1p(-min(s.Loss, .99)))
	timeout := s.RoundTrip + max(minTimeout, 4*s.Spread)
	return time.Duration((1-arriveLast)*float64(timeout) + arriveLast*lostBefore*float64(s.RoundTrip))
}

// minTimeout is the least retransmission timeout of Linux.
const minTimeout = 200 * time.Millisecond

// expectedRate returns the rate, in bytes per second, at which the subflow would carry n bytes.
func (s *Subflow) expectedRate(n unit.Bytes) float64 {
	if s.Window <= 0 || s.RoundTrip <= 0 {
		return float64(s.Rate) / 8
	}
	// Slow start (RFC 5681): one window arrives at once, twice as much each round trip later.
	rounds := max(math.Log2(float64(n)/float64(s.Window)), minRounds)
	rate := float64(n) / (rounds * s.RoundTrip.Seconds())
	if s.Ceiling > 0 {
		rate = min(rate, float64(s.Ceiling)/8)
	}
	return rate
}

// minRounds is the time, in round trips, from the first to the last byte of one window.
const minRounds = 0.25

// maxFinish bounds the result of jointFinishTime.
const maxFinish = 1000 * time.Hour
