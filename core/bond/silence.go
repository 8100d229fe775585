// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"cmp"
	"math"
	"time"

	"mpbond/link/estimate"
)

const (
	checkInterval = 20 * time.Millisecond  // how often subflows with bytes in flight are checked
	minSilence    = 200 * time.Millisecond // as TCP's least retransmission timeout in Linux
	// maxSilence bounds a limit if two round trips over empty queues are shorter. detectStall waits
	// for two limits at most.
	maxSilence = time.Second
	// maxRTT bounds the least round trip that counts for a limit: a helper can delay all that
	// passes.
	maxRTT = 2 * time.Second

	// A receiver has nothing in flight on dead subflows. In a download the sender sees that nothing
	// arrives, but only the receiver, the primary, can open a new subflow. So the primary probes:
	// with a PING once nothing has arrived on any subflow for at least minQuietTime. Regular pauses
	// of bytes that nothing asks for, as of a live stream, may extend the time to maxQuietTime.
	minQuietTime, maxQuietTime = time.Second, 4 * time.Second
	// A subflow may be probed for recentActivity after its last byte. Its radio is awake that long
	// anyway (LTE's tail is about 10 s).
	recentActivity = 5 * time.Second
)

// silenceDetector finds subflows that make no progress with bytes in flight. At the opening end it
// also chooses subflows to probe although nothing is in flight. It stores its times in the
// subflows. Its owner reinjects the bytes of silent subflows. Not safe for concurrent use.
type silenceDetector struct {
	subflows     *subflowTable
	filter       *subflowFilter
	timer        *wakeTimer
	opensStreams bool // this end opens streams, and can open subflows

	lastAck  time.Time // arrival of the newest ACK
	lastData time.Time // arrival of the newest new stream byte or datagram
	// last pause over minSilence between new bytes, without stalls; 0 after one over recentActivity
	lastPause   time.Duration
	lastStalled time.Time // when a subflow was last found stalled
	lastRequest time.Time // when stream bytes were last sent
	// isUnasked reports that nothing was sent between the last pause over minSilence and the bytes before it: these
	// answer no request, so more may follow without one.
	isUnasked bool
}

// stall says which bytes of a subflow make no progress.
type stall uint8

const (
	notStalled stall = iota
	hopStalled       // bytes that have not left the sending hop
	allStalled       // all bytes in flight
)

// detectStall returns which bytes of p make no progress. There are two signs. If the sending hop's
// TCP gets no acknowledgement, the bytes that never left the hop are stalled. If ACKs arrive but
// none acknowledges more of the subflow, or after twice that time even if no ACKs arrive, all bytes
// in flight are stalled.
func (d *silenceDetector) detectStall(p *subflow, now time.Time) stall {
	h, est := p.est.LocalHop(), p.est.EstimateAt(now)
	// If packets are far apart because a hop's rate is limited, a gap of two of them (TCP sends two
	// at once) is no silence.
	apart, hopApart := time.Duration(0), time.Duration(0)
	two := 2 * max(h.MSS, minSegment)
	if slowest := min(cmp.Or(h.PacingLimit, est.Th), cmp.Or(est.Th2, est.Th)); h.PacingLimit > 0 || est.Th2 > 0 {
		apart = min(slowest.Time(two), maxSilence)
	}
	if h.PacingLimit > 0 {
		hopApart = min(h.PacingLimit.Time(two), maxSilence)
	}
	limit, since := silenceLimit(est.SRTT+apart, est.MinRTT), now.Sub(p.lastProgress)
	switch {
	case p.inFlight.len() > 0 && since > limit && (d.lastAck.Sub(p.lastProgress) > limit || since > 2*limit):
		return allStalled
	case h.Queue > 0 && now.Sub(p.lastHopProgress) > p.hopLimit(h, now)+hopApart:
		return hopStalled
	}
	return notStalled
}

// hopProgress measures how regularly a hop acknowledges bytes. The zero value has seen nothing.
type hopProgress struct {
	busySince time.Time     // since then bytes are in flight; zero: none are
	last      time.Time     // when the last bytes were acknowledged
	gap       time.Duration // the longest time between two acknowledgements recently
}

const (
	// gapMemory is how long a gap counts: it fades by a factor of e in this time.
	gapMemory = 2 * time.Second
	// silentGaps is how many times the longest gap a silence takes.
	silentGaps = 3
)

// addSample takes a sample of the hop, which has acknowledged more or not.
func (g *hopProgress) addSample(now time.Time, isBusy, acknowledged bool) {
	switch {
	case !isBusy:
		g.busySince = time.Time{}
	case g.busySince.IsZero():
		g.busySince, g.last = now, now
	case acknowledged:
		since := now.Sub(g.last)
		g.gap = max(since, time.Duration(float64(g.gap)*math.Exp(-float64(since)/float64(gapMemory))))
		g.last = now
	}
}

// limitFor returns how long the hop may acknowledge nothing. That is the limit by its round trips, which a
// long queue makes long, until it has been busy for twice that. Then it is a few of its gaps.
func (g *hopProgress) limitFor(byRoundTrips time.Duration) time.Duration {
	if g.busySince.IsZero() || g.last.Sub(g.busySince) < 2*byRoundTrips {
		return byRoundTrips
	}
	return min(byRoundTrips, max(minSilence, silentGaps*g.gap))
}

// silenceChange is the result of updateSubflow.
type silenceChange struct {
	began, ended bool // it became silent, or is no longer silent
	// recall demands that other subflows carry its frames in flight that end after the byte count
	// recallFrom; 0 means all.
	recall     bool
	recallFrom uint64
}

// updateSubflow checks p for a stall. A stalled subflow is silent, and must not be used until it
// makes progress, while another subflow is alive.
func (d *silenceDetector) updateSubflow(p *subflow, now time.Time) (c silenceChange) {
	s := d.detectStall(p, now)
	if s == notStalled {
		c.ended = p.isSilent()
		if !p.stalledSince.IsZero() {
			p.stallEnded = now
		}
		p.silentSince, p.stalledSince = time.Time{}, time.Time{}
		return c
	}
	if p.stalledSince.IsZero() {
		p.stalledSince, p.stallBegan = now, p.lastProgress
		if s == hopStalled {
			p.stallBegan = p.lastHopProgress
		}
	}
	d.lastStalled = now
	if !d.subflows.hasOtherLive(p) {
		return c
	}
	// To wake a radio takes as long as most stalls: it waits for as long again.
	if wait := d.filter.wakeDelayOfOthers(p, now); now.Sub(p.stalledSince) < wait {
		d.timer.requestWakeAt(p.stalledSince.Add(wait))
		return c
	}
	if !p.isSilent() {
		p.silentSince = now
		c.began = true
	}
	c.recall = true
	if s == hopStalled { // the far hop still delivers the helper's bytes
		c.recallFrom = p.bytesSent - min(p.bytesSent, uint64(p.est.LocalHop().Queue))
	}
	return c
}

// silenceLimit returns how long a hop or subflow of these round trips may make no progress: minRTT
// is the least that was measured, srtt may be what a helper reports.
func silenceLimit(srtt, minRTT time.Duration) time.Duration {
	return min(max(minSilence, 2*srtt), max(maxSilence, 2*min(minRTT, maxRTT)))
}

// hopSilenceLimit returns how long a hop's TCP may get no acknowledgement while bytes are queued.
// It is TCP's retransmission timeout (RFC 6298 section 2), which is less than two round trips if a
// long queue makes these long and steady.
func hopSilenceLimit(h estimate.Hop) time.Duration {
	if h.RTTVar == 0 {
		return silenceLimit(h.SRTT, h.MinRTT)
	}
	return min(max(minSilence, h.SRTT+4*h.RTTVar), max(maxSilence, 2*min(h.MinRTT, maxRTT)))
}

// hopLimit returns how long the sending hop may acknowledge nothing. It is less than its round trips if it
// acknowledged more often before, and the acknowledgement of the oldest bytes in flight is late. Of a blind hop
// only the acknowledgements of the bond are known, which come over other subflows too.
func (p *subflow) hopLimit(h estimate.Hop, now time.Time) time.Duration {
	limit := hopSilenceLimit(h)
	if !h.Blind && p.est.IsOverdue(now) {
		limit = p.progress.limitFor(limit)
	}
	return limit
}

// discountPause moves all times by a pause of this process: a subflow is not silent because of it.
func (d *silenceDetector) discountPause(pause time.Duration) {
	for _, p := range d.subflows.list {
		p.lastProgress = p.lastProgress.Add(pause)
		p.lastHopProgress = p.lastHopProgress.Add(pause)
		p.progress = hopProgress{} // what was acknowledged in the pause came at unknown times
		p.est.OnPause(pause)
	}
}

// scheduleStallCheck sets the timer for the next check of subflows with bytes in flight.
func (d *silenceDetector) scheduleStallCheck(now time.Time) {
	for _, p := range d.subflows.list {
		if p.inFlight.len() > 0 {
			p.noteInFlight(now)
		}
		if p.inFlight.len() > 0 || p.est.LocalHop().Queue > 0 {
			d.timer.requestWakeAt(now.Add(checkInterval))
		}
	}
}

// recordNewBytes records that p delivered new bytes.
func (d *silenceDetector) recordNewBytes(p *subflow, now time.Time) {
	pause := now.Sub(d.lastData)
	if pause > minSilence {
		d.isUnasked = !d.lastRequest.After(d.lastData)
	}
	if pause >= recentActivity {
		d.lastPause = 0 // activity begins again
	} else if pause > minSilence && !d.lastStalled.After(d.lastData) {
		d.lastPause = pause // otherwise it was a stall, which predicts nothing
	}
	p.lastData, d.lastData = now, now
	if d.opensStreams {
		d.timer.requestWakeAt(now.Add(minQuietTime))
	}
}

// markQuietProbes marks subflows to probe. When all are quiet it marks recently active ones, once.
// When one is stalled it marks all others without recent bytes, once, to find one that works. It is
// called while streams are open.
//
// Each probe wakes the radios of its subflow. So of the subflows that delivered bytes until the end
// only one is probed. If another one died with bytes in flight, the far end sends them again over
// the probed one within about two seconds. Then the other one is probed too, since it delivered
// none of them. If copies of all these bytes had arrived before, nothing is sent again; then it is
// probed after the next bytes, if they come soon. A subflow that was alive after the end of an answer is
// not probed: the app asks for what comes next, and a request shows whether the subflow works.
func (d *silenceDetector) markQuietProbes(now time.Time) {
	if !d.opensStreams {
		return
	}
	var newestStall time.Time
	for _, p := range d.subflows.list {
		isWaiting := !p.isSilent() && d.subflows.hasOtherLive(p) // a probe would wake the radio
		if p.stalledSince.After(newestStall) && !isWaiting {
			newestStall = p.stalledSince
		}
	}
	candidate := d.probeCandidate()
	for _, p := range d.subflows.list {
		if p.inFlight.len() > 0 {
			continue // bytes in flight serve as a probe
		}
		var at time.Time
		switch {
		case newestStall.After(p.lastProbeTime) && !p.lastData.After(newestStall):
			at = p.lastData.Add(minSilence) // until then it may be delivering bytes
		case p.lastData.After(p.lastProbeTime) && now.Sub(p.lastData) < recentActivity && d.needsProbe(p, candidate):
			at = d.lastData.Add(d.probeQuietTime(p))
		default:
			continue
		}
		if now.Before(at) {
			d.timer.requestWakeAt(at)
		} else {
			p.lastProbeTime, p.probeDue = now, true
		}
	}
}

// needsProbe reports whether p may have died with bytes in flight. Of the subflows that delivered bytes until
// the end only the candidate may.
func (d *silenceDetector) needsProbe(p, candidate *subflow) bool {
	return !d.deliveredLast(p) || p == candidate && (d.isUnasked || !p.isConfirmedAlive())
}

// probeQuietTime returns how long nothing must have arrived before p is probed.
func (d *silenceDetector) probeQuietTime(p *subflow) time.Duration {
	if d.deliveredLast(p) && p.isConfirmedAlive() {
		return max(minQuietTime, min(d.lastPause*5/4, maxQuietTime))
	}
	return minQuietTime
}

// deliveredLast reports whether p delivered bytes within minSilence before the newest: the far end
// has had no time to find it silent.
func (d *silenceDetector) deliveredLast(p *subflow) bool {
	return d.lastData.Sub(p.lastData) < minSilence
}

// probeCandidate returns the subflow to probe among those that delivered bytes until the end, or
// nil. It prefers direct ones, which wake no helper, and then the one with the newest bytes.
func (d *silenceDetector) probeCandidate() (best *subflow) {
	for _, p := range d.subflows.list {
		if d.deliveredLast(p) && (best == nil || best.est.Helped && !p.est.Helped ||
			best.est.Helped == p.est.Helped && p.lastData.After(best.lastData)) {
			best = p
		}
	}
	return best
}

// isConfirmedAlive reports whether everything sent on a direct subflow has arrived, including data
// sent after its last received bytes. Both its directions worked then. A blind hop does not tell.
func (p *subflow) isConfirmedAlive() bool {
	h := p.est.LocalHop()
	return !p.est.Helped && !h.Blind && !p.lastSent.Before(p.lastData) && h.Queue == 0
}

// possiblySilent reports whether p is silent or may be: nothing was acknowledged for the time of a
// silence. Missing ACKs on other subflows may be the cause, but a flow can move at no cost.
func (p *subflow) possiblySilent(now time.Time) bool {
	n := p.est.EstimateAt(now)
	return p.isSilent() || p.inFlight.len() > 0 && now.Sub(p.lastProgress) > silenceLimit(n.SRTT, n.MinRTT)
}
