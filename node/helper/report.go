// SPDX-License-Identifier: Apache-2.0

package helper

import (
	"errors"
	"time"

	"mpbond/base/unit"
	"mpbond/core/trace"
	"mpbond/link/estimate"
	"mpbond/link/pipe"
	"mpbond/link/wire"
)

// Tuning of the reports. With about 100 bytes per report, including headers of TLS, TCP and IP,
// they stay below 1 % of the data: at most one per reportBytes, but a slow flow gets one every
// reportSlow.
const (
	reportFast  = 20 * time.Millisecond
	reportSlow  = 100 * time.Millisecond
	reportBytes = 16 << 10
	// A hop is watched for activeRTTs round trips after it carried data, and at least for
	// activeLeast.
	activeRTTs  = 3
	activeLeast = 200 * time.Millisecond
	// awakeTime is how long a radio stays awake after the last data from the server: LTE leaves
	// continuous reception 100 ms after the last packet (Huang et al., MobiSys 2012, T_i). Data
	// that the helper sends does not count, or reports and ACKs would keep the radio awake.
	awakeTime = 100 * time.Millisecond
)

// feedback chooses the hop over which the state of the pipe reaches the server: the HS-path, the
// pipe and the primary, or none. The modes differ only here. They are those that the MPBond paper
// compares (MobiSys 2020, section 4.3): "fixed" is always the HS-path.
type feedback func(hsAwake, pipeInUse bool) reportRoute

type reportRoute uint8

const (
	routeNone reportRoute = iota
	routeHS
	routePipe
)

func (r reportRoute) String() string { return [...]string{"silent", "hs-path", "pipe"}[r] }

// feedbackFlexible sends on the HS-path while that receives data, else over the pipe while that is
// in use. It never wakes a radio.
func feedbackFlexible(hsAwake, pipeInUse bool) reportRoute {
	switch {
	case hsAwake:
		return routeHS
	case pipeInUse:
		return routePipe
	}
	return routeNone
}

// feedbackAlways sends on the HS-path whenever something moved, and so keeps its radio awake while
// the pipe drains.
func feedbackAlways(_, _ bool) reportRoute { return routeHS }

// feedbackOnDemand sends on the HS-path only while that receives data: the server learns nothing of
// a pipe that drains later.
func feedbackOnDemand(hsAwake, _ bool) reportRoute {
	if hsAwake {
		return routeHS
	}
	return routeNone
}

// FeedbackModes returns the names of the modes, the default first.
func FeedbackModes() []string { return []string{"flexible", "fixed-always", "fixed-on-demand"} }

// feedbackModes maps the names in the configuration to modes.
var feedbackModes = map[string]feedback{
	"":                feedbackFlexible,
	"flexible":        feedbackFlexible,
	"fixed-always":    feedbackAlways,
	"fixed-on-demand": feedbackOnDemand,
}

// hopWatch is the reporter's view of one hop.
type hopWatch struct {
	link           pipe.Hop
	state          estimate.Hop
	movedBytes     uint64    // ciphertext received, sent and acknowledged
	lastUsed       time.Time // when movedBytes last changed
	lastArrival    time.Time // when data last arrived
	arrivedBytes   uint64    // ciphertext received by then
	forwardedBytes uint64    // ciphertext acknowledged by the far end
	meter          estimate.Meter
}

// updateHopView updates the view of the hop.
func (h *hopWatch) updateHopView(now time.Time) {
	sent := h.link.Sent() // read before the queue, so that forwardedBytes is never too large
	if p, err := h.link.Probe(); err == nil {
		h.state = p
		// The queue includes framing and TLS: while it is not empty, this is up to 1 % too small;
		// when it is empty it is exact.
		h.forwardedBytes = max(h.forwardedBytes, sent-min(sent, uint64(p.Queue)))
		h.meter.Add(now, p)
	}
	if n := h.link.Received(); n != h.arrivedBytes {
		h.arrivedBytes, h.lastArrival = n, now
	}
	if moved := sent + h.arrivedBytes + h.forwardedBytes; moved != h.movedBytes {
		h.movedBytes, h.lastUsed = moved, now
	}
}

// radioAwake reports whether the hop's radio is awake because data has just arrived.
func (h *hopWatch) radioAwake(now time.Time) bool {
	return !h.lastArrival.IsZero() && now.Sub(h.lastArrival) < awakeTime
}

func (h *hopWatch) wasUsedRecently(now time.Time) bool {
	return !h.lastUsed.IsZero() && now.Sub(h.lastUsed) < max(activeRTTs*h.state.SRTT, activeLeast)
}

// hopReport is the report about one direction.
type hopReport struct {
	direction *direction
	last      wire.HopState
	sentAt    time.Time
}

// dueHopReport returns the report about the hop beyond, and whether it must be sent now.
func (r *hopReport) dueHopReport(beyond *hopWatch, now time.Time) (s wire.HopState, ok bool) {
	s = wire.HopState{
		Received:  r.direction.bytesRead.Load(),
		Forwarded: beyond.forwardedBytes,
		RTT:       beyond.state.MinRTT,
	}
	s.Forwarded = min(s.Forwarded, s.Received)
	s.Rate, s.AppLimited = beyond.meter.Rate()
	if limit := beyond.state.PacingLimit; limit > 0 && (s.Rate == 0 || limit < s.Rate) {
		s.Rate, s.AppLimited = limit, false
	}
	moved := s.Received - r.last.Received + s.Forwarded - r.last.Forwarded
	since := now.Sub(r.sentAt)
	switch {
	case moved == 0:
		return s, false
	case since >= reportSlow:
		return s, true
	}
	return s, since >= reportFast && moved >= reportBytes && differsEnough(s, r.last)
}

// differsEnough reports whether rate or backlog differ by more than a tenth.
func differsEnough(a, b wire.HopState) bool {
	differ := func(x, y, least uint64) bool { return max(x, y)-min(x, y) > max(y/10, least) }
	return a.AppLimited != b.AppLimited || differ(uint64(a.Rate), uint64(b.Rate), 0) ||
		differ(a.Received-a.Forwarded, b.Received-b.Forwarded, 4<<10)
}

// reporter watches both hops of a relay while they carry data, and reports to each sender about the
// hop that it cannot see. When nothing moves, it sleeps.
type reporter struct {
	r           *relay
	feedback    feedback
	traceReport func(trace.Event) // may be nil
	pipe, hs    hopWatch
	up, down    hopReport
	toPrimary   hopReport // about the pipe, to the primary
	endSeenAt   time.Time // when it was noticed that a direction had ended
}

func newReporter(r *relay, mode feedback, traceReport func(trace.Event)) *reporter {
	return &reporter{
		r:           r,
		feedback:    mode,
		traceReport: traceReport,
		pipe:        hopWatch{link: r.pipe},
		hs:          hopWatch{link: r.hs},
		up:          hopReport{direction: &r.up},
		down:        hopReport{direction: &r.down},
		toPrimary:   hopReport{direction: &r.down},
	}
}

// runReports sends reports until the relay ends. It sleeps while nothing moves.
func (p *reporter) runReports() {
	timer := time.NewTimer(reportFast)
	defer timer.Stop()
	for {
		select {
		case <-p.r.done:
			return
		case <-p.r.up.wake:
		case <-timer.C:
		}
		now := time.Now()
		p.sendDueReports(now)
		if p.endSeenAt.IsZero() && p.r.ended.Load() > 0 {
			p.endSeenAt = now
		}
		switch {
		case p.isAbandoned(now):
			p.r.closeRelay(errors.New("one direction ended, and the other stayed idle"))
			return
		case p.mustWatchHops(now):
			timer.Reset(reportFast)
		default:
			p.awaitRelayData(timer)
		}
	}
}

// isAbandoned reports whether one direction has ended and nothing has moved for so long that the
// other is not awaited.
func (p *reporter) isAbandoned(now time.Time) bool {
	long := func(since time.Time) bool { return now.Sub(since) > lingerTimeout }
	return !p.endSeenAt.IsZero() && long(p.endSeenAt) && long(p.pipe.lastUsed) && long(p.hs.lastUsed)
}

// awaitRelayData sleeps until data, or the end of a direction, wakes the reporter. After that end it
// checks now and then whether the other one is still used.
func (p *reporter) awaitRelayData(timer *time.Timer) {
	before := p.r.up.bytesRead.Load() + p.r.down.bytesRead.Load()
	p.r.up.reporterAsleep.Store(true)
	p.r.down.reporterAsleep.Store(true)
	if p.r.up.bytesRead.Load()+p.r.down.bytesRead.Load() != before { // data came before the flags were set
		timer.Reset(0)
		return
	}
	if timer.Stop(); !p.endSeenAt.IsZero() {
		timer.Reset(lingerTimeout)
	}
}

// mustWatchHops reports whether the hops must be watched.
func (p *reporter) mustWatchHops(now time.Time) bool {
	return p.pipe.wasUsedRecently(now) || p.hs.wasUsedRecently(now) || p.pipe.state.Queue+p.hs.state.Queue > 0
}

// sendDueReports samples both hops and sends the reports that are due.
func (p *reporter) sendDueReports(now time.Time) {
	p.r.up.reporterAsleep.Store(false)
	p.r.down.reporterAsleep.Store(false)
	p.pipe.updateHopView(now)
	p.hs.updateHopView(now)
	if p.r.pipe.CheckStalled(now) {
		p.r.pipe.RequestConn()
	}
	p.r.up.updateSegmentSize(&p.hs)
	p.r.down.updateSegmentSize(&p.pipe)
	hs, pipe := p.hs.radioAwake(now), p.pipe.wasUsedRecently(now)

	if s, ok := p.up.dueHopReport(&p.hs, now); ok && pipe {
		p.sendHopReport(&p.up, s, routePipe, now)
	}
	if s, ok := p.down.dueHopReport(&p.pipe, now); ok {
		if over := p.feedback(hs, pipe); over != routeNone {
			s.AboutPipe = over == routePipe
			p.sendHopReport(&p.down, s, over, now)
		}
	}
	if pipe && now.Sub(p.toPrimary.sentAt) >= reportSlow && p.r.hasPipeChoice != nil && p.r.hasPipeChoice() {
		if s, ok := p.toPrimary.dueHopReport(&p.pipe, now); ok {
			s.AboutPipe, s.ForPrimary = true, p.feedback(hs, pipe) != routePipe
			if s.ForPrimary { // else the primary receives it anyway
				p.sendHopReport(&p.toPrimary, s, routePipe, now)
			}
		}
	}
}

// sendHopReport sends a report over a hop and remembers it if it was sent.
func (p *reporter) sendHopReport(r *hopReport, s wire.HopState, over reportRoute, now time.Time) {
	hop, about := &p.hs, "hs-path"
	if over == routePipe {
		hop = &p.pipe
	}
	if r != &p.up {
		about = "pipe"
	}
	if hop.link.SendState(s) != nil {
		return
	}
	r.last, r.sentAt = s, now
	if p.traceReport != nil {
		p.traceReport(
			trace.Event{
				Kind:       trace.HopReport,
				Rate:       s.Rate,
				SRTT:       s.RTT,
				FarBacklog: unit.Bytes(s.Received - s.Forwarded),
				Reason:     "over the " + over.String(),
				Text:       "about the " + about,
			},
		)
	}
}

// updateSegmentSize sets the size of writes from the hop's rate.
func (d *direction) updateSegmentSize(h *hopWatch) {
	rate, _ := h.meter.Rate()
	d.rate.Store(int64(rate))
	d.segment.Store(
		int64(max(minSegment, min(maxSegment, rate.Bytes(segmentTime)/packetSize*packetSize-frameOverhead))),
	)
}
