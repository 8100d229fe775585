package bond

import (
	"cmp"
	"time"

	"mpbond/link/estimate"
)

const (
	checkInterval = 20 * time.Millisecond  // how often subflows with bytes in flight are looked at
	minSilence    = 200 * time.Millisecond // as TCP's least retransmission time-out in Linux
	maxSilence    = time.Second            // however long the queues

	// A receiver has nothing in flight on subflows that are dead: in a download it is the sender
	// who sees that nothing arrives, and only the receiver, the primary, can make a new subflow.
	//
	// minQuietTime is how long nothing must have come on any subflow before it asks, at least. The
	// pauses of what a stream brings are no reason to ask: maxQuietTime bounds how long is waited
	// for their sake.
	minQuietTime, maxQuietTime = time.Second, 4 * time.Second
	// recentActivity is how long after its last byte a subflow may be asked: so long its radio is awake
	// anyway (LTE's tail is about 10 s).
	recentActivity = 5 * time.Second
)

// silenceDetector finds subflows that make no progress with what they have in flight, and, at
// the end that opens, says which ones to ask for a sign of life though nothing is in flight.
// It keeps its times in the subflows; what a silent subflow had in flight is for its owner to
// send again. Not safe for concurrent use.
type silenceDetector struct {
	subflows     *subflowTable
	timer        *wakeTimer
	opensStreams bool // this end opens streams, and can make new subflows

	lastAck     time.Time     // arrival of the newest ACK
	lastData    time.Time     // arrival of the newest new stream byte or datagram
	lastPause   time.Duration // newest one over minSilence between new bytes, stalls apart; 0 after one of recently
	lastStalled time.Time     // when a subflow was last found stalled
}

// stall is what of a subflow makes no progress.
type stall uint8

const (
	notStalled stall = iota
	hopStalled       // what has not left the sending hop
	allStalled       // all that is in flight
)

// findStall returns what of p makes no progress. There are two signs. The sending hop's own TCP
// gets no acknowledgement: then what never left the hop is stuck. Or no data acknowledgement
// comes for the subflow although acknowledgements as such do come (or have failed to come for
// twice as long): then all it has in flight is stuck.
func (d *silenceDetector) findStall(p *subflow, now time.Time) stall {
	h, est := p.est.LastHop(), p.est.EstimateAt(now)
	// Where packets are far apart, because the pace of a hop is limited, two of them (what TCP
	// sends at once) are no silence.
	apart, hopApart := time.Duration(0), time.Duration(0)
	two := 2 * max(h.MSS, minSegment)
	if slowest := min(cmp.Or(h.PacingLimit, est.Th), cmp.Or(est.Th2, est.Th)); h.PacingLimit > 0 || est.Th2 > 0 {
		apart = min(slowest.Time(two), maxSilence)
	}
	if h.PacingLimit > 0 {
		hopApart = min(h.PacingLimit.Time(two), maxSilence)
	}
	limit, since := silenceLimit(est.SRTT+apart), now.Sub(p.lastProgress)
	switch {
	case p.inFlight.len() > 0 && since > limit && (d.lastAck.Sub(p.lastProgress) > limit || since > 2*limit):
		return allStalled
	case h.Queue > 0 && now.Sub(p.lastHopProgress) > hopSilenceLimit(h)+hopApart:
		return hopStalled
	}
	return notStalled
}

// silenceChange is what update has found about a subflow.
type silenceChange struct {
	began, ended bool // it became silent, or is no longer
	// recall tells that what it has in flight beyond a position of its own is to be sent by
	// others; beyond is 0 for all.
	recall bool
	beyond uint64
}

// updateSubflow looks for stalls of p. A subflow that is stalled is silent, and must not be used
// until it makes progress again, as long as another one is alive to take over.
func (d *silenceDetector) updateSubflow(p *subflow, now time.Time) (c silenceChange) {
	s := d.findStall(p, now)
	if s == notStalled {
		c.ended = p.isSilent()
		p.silentSince, p.stalledSince = time.Time{}, time.Time{}
		return c
	}
	if p.stalledSince.IsZero() {
		p.stalledSince = now
	}
	d.lastStalled = now
	if !d.subflows.hasOtherLive(p) {
		return c
	}
	if !p.isSilent() {
		p.silentSince = now
		c.began = true
	}
	c.recall = true
	if s == hopStalled { // the far hop still delivers what the helper has
		c.beyond = p.bytesSent - min(p.bytesSent, uint64(p.est.LastHop().Queue))
	}
	return c
}

// silenceLimit is how long a hop or subflow of that round trip may make no progress.
func silenceLimit(srtt time.Duration) time.Duration {
	return min(max(minSilence, 2*srtt), maxSilence)
}

// hopSilenceLimit is how long a hop's TCP may get no acknowledgement while bytes are
// queued: its retransmission time-out (RFC 6298 section 2), which is less than
// two round trips where a long queue makes those long and steady.
func hopSilenceLimit(h estimate.Hop) time.Duration {
	if h.RTTVar == 0 {
		return silenceLimit(h.SRTT)
	}
	return min(max(minSilence, h.SRTT+4*h.RTTVar), maxSilence)
}

// shiftDeadlines notes that this process itself did not run for a time: no subflow is to blame.
func (d *silenceDetector) shiftDeadlines(late time.Duration) {
	for _, p := range d.subflows.list {
		p.lastProgress = p.lastProgress.Add(late)
		p.lastHopProgress = p.lastHopProgress.Add(late)
		p.est.OnPause(late)
	}
}

// scheduleWake sets the timer for the next look at subflows with bytes in flight.
func (d *silenceDetector) scheduleWake(now time.Time) {
	for _, p := range d.subflows.list {
		if p.inFlight.len() > 0 || p.est.LastHop().Queue > 0 {
			d.timer.wakeAt(now.Add(checkInterval))
		}
	}
}

// recordNewBytes notes that p has brought new bytes.
func (d *silenceDetector) recordNewBytes(p *subflow, now time.Time) {
	if pause := now.Sub(d.lastData); pause >= recentActivity {
		d.lastPause = 0 // a new beginning
	} else if pause > minSilence && !d.lastStalled.After(d.lastData) {
		d.lastPause = pause // else it was a stall, of which nothing is to be expected
	}
	p.lastData, d.lastData = now, now
	if d.opensStreams {
		d.timer.wakeAt(now.Add(minQuietTime))
	}
}

// markQuietProbes marks subflows that are to be asked for a sign of life: when all have been quiet,
// those that carried bytes a moment ago, once; when one is stalled, all others that bring no
// bytes, once, to know which way is left. It is called while streams are open.
//
// Each question wakes the radios of its subflow. So of subflows that brought bytes to
// the end one is asked: if another died with bytes in flight, the far end sends
// them again by this one, within two seconds or so, and then the other is asked
// too, since it brought none of those. If copies of all of them had come before,
// nothing is sent again, and it is asked after the next bytes only, if those come
// soon. And one that was well after its last byte is not asked in a pause up to a
// quarter longer than the newest one, as between the segments of a video.
func (d *silenceDetector) markQuietProbes(now time.Time) {
	if !d.opensStreams {
		return
	}
	var trouble time.Time
	for _, p := range d.subflows.list {
		if p.stalledSince.After(trouble) {
			trouble = p.stalledSince
		}
	}
	one := d.probeCandidate()
	for _, p := range d.subflows.list {
		if p.inFlight.len() > 0 {
			continue // what is in flight asks as well
		}
		var at time.Time
		switch {
		case trouble.After(p.lastProbeTime) && !p.lastData.After(trouble):
			at = p.lastData.Add(minSilence) // until then it may be bringing bytes
		case p.lastData.After(p.lastProbeTime) && now.Sub(p.lastData) < recentActivity && (p == one || !d.broughtNewest(p)):
			at = d.lastData.Add(d.quietTime(p))
		default:
			continue
		}
		if now.Before(at) {
			d.timer.wakeAt(at)
		} else {
			p.lastProbeTime, p.probeDue = now, true
		}
	}
}

// quietTime is how long nothing must have come before p is asked.
func (d *silenceDetector) quietTime(p *subflow) time.Duration {
	if d.broughtNewest(p) && p.isConfirmedAlive() {
		return max(minQuietTime, min(d.lastPause*5/4, maxQuietTime))
	}
	return minQuietTime
}

// broughtNewest reports whether p brought bytes to the end, as far as can be told:
// since then the far end has not had the time to find it silent.
func (d *silenceDetector) broughtNewest(p *subflow) bool {
	return d.lastData.Sub(p.lastData) < minSilence
}

// probeCandidate returns the subflow that is asked for all that brought bytes to the end: a direct
// one if there is one, since no helper is woken then, and of those the one that brought the
// newest bytes; nil if there is none.
func (d *silenceDetector) probeCandidate() (one *subflow) {
	for _, p := range d.subflows.list {
		if d.broughtNewest(p) && (one == nil || one.est.Helped && !p.est.Helped ||
			one.est.Helped == p.est.Helped && p.lastData.After(one.lastData)) {
			one = p
		}
	}
	return one
}

// isConfirmedAlive reports whether all that was sent on a direct subflow, the last thing not
// before its last bytes came, is known to have arrived: both its directions worked then.
func (p *subflow) isConfirmedAlive() bool {
	return !p.est.Helped && !p.lastSent.Before(p.lastData) && p.est.LastHop().Queue == 0
}

// possiblySilent reports that p is silent or may be: nothing was acknowledged for as
// long as silence takes. Whether that is for want of acknowledgements does not
// matter to a flow, which moves at no cost.
func (p *subflow) possiblySilent(now time.Time) bool {
	return p.isSilent() || p.inFlight.len() > 0 && now.Sub(p.lastProgress) > silenceLimit(p.est.EstimateAt(now).SRTT)
}
