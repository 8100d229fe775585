// SPDX-License-Identifier: Apache-2.0

// Package congestion chooses the congestion control of one TCP hop from what the hop shows. Package
// tcp, above it, reads the kernel's counters and applies the choice.
//
// CUBIC takes each loss for a full queue and reduces its window by 30 %. BBR does not. Where losses
// are random, as on a weak radio, BBR carries more. Where a loss means a full queue, it takes the
// share of others. So a hop begins with CUBIC, and gets BBR when its losses come without a queue, or
// when jitter has ended slow start. That is a trial: it ends when the losses turn out to be BBR's own
// (docs/adr/0017-congestion-control-by-hop.md, 0033-corrections-by-a-fair-comparison.md).
package congestion

import (
	"cmp"
	"math"
	"time"
)

// Algorithm is a congestion control of the kernel.
type Algorithm uint8

// Algorithms.
const (
	CUBIC Algorithm = iota
	BBR
)

// String returns the kernel's name.
func (a Algorithm) String() string { return [...]string{"cubic", "bbr"}[a] }

// Reason is why an algorithm was chosen.
type Reason uint8

// Reasons.
const (
	// FewLosses: too few losses for a decision. CUBIC.
	FewLosses Reason = iota
	// LossesWithoutQueue: packets were lost while no queue stood. BBR.
	LossesWithoutQueue
	// LossesWithQueue: packets were lost under BBR while the queue was long. CUBIC.
	LossesWithQueue
	// LossesGrew: a larger share was lost under BBR than under CUBIC. CUBIC.
	LossesGrew
	// Compared: BBR seems to lose a larger share, but CUBIC has sent too little to be sure. CUBIC.
	Compared
	// LossesEnded: so few packets are lost that CUBIC fills the hop too. CUBIC.
	LossesEnded
	// NotFull: slow start ended although the hop was not full, and nothing was lost. BBR.
	NotFull
)

// String returns a stable text, for programs and people.
func (r Reason) String() string {
	return [...]string{"few losses", "losses without a queue", "losses with a queue", "more losses than with cubic",
		"a comparison", "no more losses", "slow start ended too early"}[r]
}

// Choice is an algorithm and its reason.
type Choice struct {
	Algorithm Algorithm
	Reason    Reason
	// Changes counts the changes of the algorithm so far.
	Changes int
}

// Chooser is a connection that reports the choice for its hop. ok is false if the congestion
// control of the connection was set by its owner or by the system.
type Chooser interface {
	CongestionChoice() (choice Choice, ok bool)
}

// Sample is the state of a hop at its sending end. Counters are of packets since the connection
// began.
type Sample struct {
	At time.Duration // since any fixed moment
	// Sent counts data packets sent, Lost those that were sent again because they were lost.
	Sent, Lost   uint64
	SRTT, MinRTT time.Duration
	// InFlight counts the packets in flight. Window bounds them: the congestion window.
	InFlight, Window int
	// SlowStart reports that the window still doubles with each round trip.
	SlowStart bool
}

// isQueueLong reports whether the queue is so long that the hop stays full after CUBIC has reduced
// its window. Then a loss costs CUBIC nothing.
func (s Sample) isQueueLong() bool { return float64(s.SRTT)*cubicBeta >= float64(s.MinRTT) }

// Constants of CUBIC (RFC 9438).
const (
	// cubicBeta is the part of the window that a loss leaves.
	cubicBeta = 0.7
	// renoWindow is the mean window in packets, times √p, at a share p of lost packets. CUBIC
	// behaves as Reno where windows are small.
	renoWindow = 1.22
)

// Tuning. The values were chosen over model links (TestLossyHop, TestBesideCUBIC).
const (
	// errorProbability is that of the first decision for BBR. Each failed trial squares it for the
	// next trial.
	errorProbability = 1.0 / 8
	// rankedSamples is how many recent samples a loss is compared with. lowRank and highRank are
	// the shares of them that bound a low and a high queue.
	rankedSamples     = 256
	lowRank, highRank = 0.25, 0.75
	// A loss event is a burst if more than burstPackets and more than burstShare of the packets in
	// flight were lost. A full queue loses bursts.
	burstPackets = 2
	burstShare   = 1.0 / 8
	// settlingRounds is how many round trips BBR takes at most to find the rate and to drain the
	// queue that it caused meanwhile. They say nothing about the hop.
	settlingRounds = 10
	// maxSentRatio bounds how many packets BBR sends for each one that CUBIC has sent, while BBR
	// seems to lose a larger share. Then CUBIC sends as many again as before, so that the shares
	// can be compared.
	maxSentRatio = 8
	// enoughGrowth is by which part the window must grow after slow start before the round trips are
	// compared.
	enoughGrowth = 0.25
	// growthTime is the least time between. What ends sooner gains nothing by BBR, which searches the
	// rate first.
	growthTime = time.Second
	// maxCompared bounds the losses of CUBIC that are compared, and so the work of a comparison.
	maxCompared = 512
)

// queueClass is the queue at a loss event.
type queueClass uint8

const (
	lowQueue   queueClass = iota // among the shortest of the recent ones
	usualQueue                   // between
	highQueue                    // among the longest, or long, or with a burst of losses
)

// evidenceOf is the logarithm of the odds that a loss event of each class gives for random losses.
// Random losses come at any queue, but some of them in a burst or at a long queue.
var evidenceOf = [...]float64{
	lowQueue:   math.Log(0.25 / 0.03),
	usualQueue: math.Log(0.40 / 0.19),
	highQueue:  math.Log(0.35 / 0.78),
}

// Selector chooses the algorithm of one hop. The zero value has chosen CUBIC. It is not safe for
// concurrent use.
type Selector struct {
	choice Choice
	failed int // trials of BBR that ended because the losses were its own

	last   Sample
	queues [rankedSamples]time.Duration // of recent samples, a ring
	added  int                          // samples added to queues
	event  lossEvent                    // the newest one

	evidence         float64 // against the present choice
	settled          int     // round trips of BBR so far, up to settlingRounds
	roundEnd         time.Duration
	growth           windowGrowth
	cubicLost        uint64 // packets lost under CUBIC neither in a burst nor with a long queue
	cubicSent        uint64
	cubicWanted      uint64 // packets that CUBIC has to send before the next trial
	bbrLost, bbrSent uint64 // since BBR has settled
}

// windowGrowth tells whether the hop was full when slow start ended without a loss. HyStart (RFC
// 9406) ends it when the round trip grows. If a queue was the reason, each further packet waits in
// it, and the round trip grows with the window. If jitter was, the round trip stays, and CUBIC needs
// seconds to fill the hop. The zero value has seen nothing.
type windowGrowth struct {
	window  int           // when slow start had ended, in packets; 0: it has not
	srtt    time.Duration // at that time
	began   time.Duration // that time
	decided bool
}

// showsEmptyQueue reports, once after each slow start, that the window has grown by enoughGrowth in
// at least growthTime, and the round trip by less than half of what a full hop would have added.
func (g *windowGrowth) showsEmptyQueue(n Sample) bool {
	switch {
	case n.SlowStart:
		*g = windowGrowth{}
		return false
	case g.window == 0:
		g.window, g.srtt, g.began = n.Window, n.SRTT, n.At
		return false
	}
	growth := float64(n.Window)/float64(g.window) - 1
	if g.decided || growth < enoughGrowth || n.At-g.began < growthTime {
		return false
	}
	g.decided = true
	return n.SRTT-g.srtt < time.Duration(growth*float64(n.MinRTT))/2
}

// lossEvent is what was lost within one round trip.
type lossEvent struct {
	at     time.Duration // when it began
	lost   uint64        // packets; 0: there was no event yet
	class  queueClass
	long   bool    // Sample.isQueueLong
	before float64 // Selector.evidence before it
}

// isLossBurst reports whether the event has lost so much of the window that the queue must be full.
func (e *lossEvent) isLossBurst(s Sample) bool {
	return e.lost > burstPackets && float64(e.lost) > burstShare*float64(s.InFlight)
}

// Memory is what a Selector has learned about a hop, for the next connection over it.
type Memory struct {
	choice               Choice
	failed               int
	cubicLost, cubicSent uint64
}

// Resume returns a Selector that continues where another one of the same hop ended.
func Resume(m Memory) *Selector {
	m.choice.Changes = 0
	return &Selector{choice: m.choice, failed: m.failed, cubicLost: m.cubicLost, cubicSent: m.cubicSent}
}

// Memory returns what the Selector has learned.
func (s *Selector) Memory() Memory { return Memory{s.choice, s.failed, s.cubicLost, s.cubicSent} }

// Choice returns the present choice.
func (s *Selector) Choice() Choice { return s.choice }

// Add adds a sample and reports whether the algorithm has changed. Samples should come several
// times in a round trip while packets are sent.
func (s *Selector) Add(n Sample) (changed bool) {
	if n.SRTT <= 0 || n.MinRTT <= 0 || n.Sent <= s.last.Sent {
		return false
	}
	sent, lost := n.Sent-s.last.Sent, n.Lost-min(n.Lost, s.last.Lost)
	n.Lost = max(n.Lost, s.last.Lost) // it falls when a loss turns out to be none
	s.last = n
	counts := s.choice.Algorithm == CUBIC || s.hasSettled(n)
	if lost > 0 && counts {
		s.addLostPackets(n, lost)
	}
	s.queues[s.added%rankedSamples] = n.SRTT - n.MinRTT
	s.added++
	if s.choice.Algorithm == CUBIC {
		s.cubicSent += sent
		return s.evaluateCUBIC(n)
	}
	if !counts {
		return false
	}
	s.bbrSent += sent
	s.bbrLost += lost
	return s.evaluateBBR(n, lost > 0)
}

// addLostPackets adds lost packets to the newest loss event, or begins one.
func (s *Selector) addLostPackets(n Sample, lost uint64) {
	cubic, e := s.choice.Algorithm == CUBIC, &s.event
	if e.lost == 0 || n.At-e.at > n.SRTT {
		*e = lossEvent{at: n.At, class: s.classifyQueue(n), long: n.isQueueLong(), before: s.evidence}
		s.addEvidence(e.class)
	}
	e.lost += lost
	if !cubic {
		return
	}
	if e.isLossBurst(n) && e.class != highQueue {
		e.class, s.evidence = highQueue, e.before
		s.addEvidence(highQueue)
	}
	if e.long || e.isLossBurst(n) {
		return
	}
	s.cubicLost += lost
	if s.cubicLost >= maxCompared { // what is recent counts more
		s.cubicLost /= 2
		s.cubicSent /= 2
	}
}

// classifyQueue returns the class of the queue at a loss. Under BBR only a long queue counts,
// because BBR varies the queue by itself.
func (s *Selector) classifyQueue(n Sample) queueClass {
	known := s.queues[:min(s.added, rankedSamples)]
	switch {
	case n.isQueueLong():
		return highQueue
	case s.choice.Algorithm == BBR || len(known) == 0:
		return usualQueue
	}
	shorter, longer := 0, 0
	for _, q := range known {
		switch c := cmp.Compare(q, n.SRTT-n.MinRTT); {
		case c < 0:
			shorter++
		case c > 0:
			longer++
		}
	}
	switch rank := (1 + float64(shorter-longer)/float64(len(known))) / 2; {
	case rank < lowRank:
		return lowQueue
	case rank < highRank:
		return usualQueue
	}
	return highQueue
}

// addEvidence adds a loss event to the evidence against the present choice, by Page's cumulative
// sum test: the log of the likelihood ratio, not below 0.
func (s *Selector) addEvidence(c queueClass) {
	random := evidenceOf[c]
	if s.choice.Algorithm == BBR {
		random = -random
	}
	s.evidence = max(0, s.evidence+random)
}

// hasSettled counts the round trips of BBR and reports whether it has settled.
func (s *Selector) hasSettled(n Sample) bool {
	if s.settled < settlingRounds && n.At >= s.roundEnd {
		s.settled++
		s.roundEnd = n.At + n.SRTT
	}
	return s.settled >= settlingRounds
}

// evaluateCUBIC changes to BBR if losses come without a queue, or if slow start ended too early.
func (s *Selector) evaluateCUBIC(n Sample) bool {
	if n.Lost == 0 && s.failed == 0 && s.growth.showsEmptyQueue(n) {
		s.changeAlgorithm(BBR, NotFull, n)
		return true
	}
	if s.cubicSent < s.cubicWanted || s.evidence < math.Ldexp(math.Log(1/errorProbability), s.failed) {
		return false
	}
	s.changeAlgorithm(BBR, LossesWithoutQueue, n)
	return true
}

// evaluateBBR changes to CUBIC if BBR causes the losses or is not needed. It runs with each sample,
// so it must be surer than evaluateCUBIC: its error probability is the square.
func (s *Selector) evaluateBBR(n Sample, hasLost bool) bool {
	switch {
	case hasLost && chanceOfGrowth(s.cubicLost, s.cubicSent, s.bbrLost, s.bbrSent) <
		errorProbability*errorProbability:
		s.failed++
		s.changeAlgorithm(CUBIC, LossesGrew, n)
	case s.evidence >= 2*math.Log(1/errorProbability):
		s.failed++
		s.changeAlgorithm(CUBIC, LossesWithQueue, n)
	case s.bbrSent > maxSentRatio*s.cubicSent && s.bbrLost*s.cubicSent > s.cubicLost*s.bbrSent:
		s.changeAlgorithm(CUBIC, Compared, n)
	case renoWindow/math.Sqrt(upperShare(s.bbrLost, s.bbrSent)) >= float64(n.InFlight):
		s.changeAlgorithm(CUBIC, LossesEnded, n)
	default:
		return false
	}
	return true
}

// changeAlgorithm makes a choice and begins to count anew.
func (s *Selector) changeAlgorithm(a Algorithm, r Reason, n Sample) {
	s.choice = Choice{a, r, s.choice.Changes + 1}
	s.evidence = 0
	switch {
	case a == BBR:
		s.bbrLost, s.bbrSent, s.settled, s.roundEnd = 0, 0, 0, n.At+n.SRTT
	case r == Compared:
		s.cubicWanted = 2 * s.cubicSent
	default:
		s.cubicLost, s.cubicSent, s.cubicWanted = 0, 0, 0
	}
}

// chanceOfGrowth returns the probability that lostAfter or more of all losses come after a change
// by chance alone, that is if the share of lost packets is the same before and after. It is 1 if
// nothing was sent before, or nothing sent or lost after.
func chanceOfGrowth(lostBefore, sentBefore, lostAfter, sentAfter uint64) float64 {
	if sentBefore == 0 || sentAfter == 0 || lostAfter == 0 {
		return 1
	}
	return binomialTail(int(lostAfter), int(lostBefore+lostAfter), float64(sentAfter)/float64(sentBefore+sentAfter))
}

// binomialTail returns the probability of k or more successes in n trials of probability p.
func binomialTail(k, n int, p float64) (sum float64) {
	logFactorial := func(i int) float64 { v, _ := math.Lgamma(float64(i + 1)); return v }
	if p >= 1 {
		return 1
	}
	for i := k; i <= n; i++ {
		term := math.Exp(logFactorial(n) - logFactorial(i) - logFactorial(n-i) +
			float64(i)*math.Log(p) + float64(n-i)*math.Log1p(-p))
		sum += term
		if float64(i) > p*float64(n) && term < sum*1e-9 { // terms only fall from here
			break
		}
	}
	return min(sum, 1)
}

// upperShare returns an upper bound of the share of packets that get lost, after lost of sent
// packets were. The bound is wrong with errorProbability (Wilson's score interval).
func upperShare(lost, sent uint64) float64 {
	if sent == 0 {
		return 1
	}
	const z = 1.15 // the quantile 1-errorProbability of the normal distribution
	p, n := float64(lost)/float64(sent), float64(sent)
	return (p + z*z/(2*n) + z*math.Sqrt(p*(1-p)/n+z*z/(4*n*n))) / (1 + z*z/n)
}
