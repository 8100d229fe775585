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

// Tuning of the reports. With about 100 bytes a report, headers of TLS, TCP and
// IP included, they stay below 1 % of the data: at most one per reportBytes,
// except that a slow flow gets one each reportSlow.
const (
	reportFast  = 20 * time.Millisecond
	reportSlow  = 100 * time.Millisecond
	reportBytes = 16 << 10
	// A hop is watched for activeRTTs round trips after it carried data, and at
	// least activeLeast.
	activeRTTs  = 3
	activeLeast = 200 * time.Millisecond
	// awakeTime is how long after the last data from the server a radio is awake
	// anyway: LTE leaves continuous reception 100 ms after the last packet (Huang
	// et al., MobiSys 2012, T_i). What the helper itself sends counts nothing, or
	// reports and ACKs would keep awake what should sleep.
	awakeTime = 100 * time.Millisecond
)

// feedback chooses over which hop the state of the pipe reaches the server:
// the HS-path, the pipe and the primary, or neither. It is the one place where
// the modes differ. They are those that the MPBond paper compares (MobiSys
// 2020, section 4.3): "fixed" is always the HS-path.
type feedback func(hsAwake, pipeInUse bool) route

type route uint8

const (
	silent route = iota
	onHS
	onPipe
)

func (r route) String() string { return [...]string{"silent", "hs-path", "pipe"}[r] }

// flexible sends on the HS-path while data comes by that, else over the pipe
// while that is in use, and never wakes a radio.
func flexible(hsAwake, pipeInUse bool) route {
	switch {
	case hsAwake:
		return onHS
	case pipeInUse:
		return onPipe
	}
	return silent
}

// fixedAlways sends on the HS-path whenever something moved, and so keeps its
// radio awake while the pipe drains.
func fixedAlways(_, _ bool) route { return onHS }

// fixedOnDemand sends on the HS-path only while data comes by that: the server
// learns nothing of a pipe that drains after it.
func fixedOnDemand(hsAwake, _ bool) route {
	if hsAwake {
		return onHS
	}
	return silent
}

// FeedbackModes are the names of the modes, the default first.
func FeedbackModes() []string { return []string{"flexible", "fixed-always", "fixed-on-demand"} }

// feedbackModes are the modes by the name they have in the configuration.
var feedbackModes = map[string]feedback{"": flexible, "flexible": flexible, "fixed-always": fixedAlways, "fixed-on-demand": fixedOnDemand}

// hop is what the reporter knows of one hop.
type hop struct {
	link      pipe.Hop
	now       estimate.Hop
	moved     uint64    // ciphertext that came, was sent, and was acknowledged
	used      time.Time // when moved last changed
	came      time.Time // when data last arrived on it
	arrived   uint64    // ciphertext that had come by then
	forwarded uint64    // ciphertext that its far end has acknowledged
	meter     estimate.Meter
}

// observe probes the hop.
func (h *hop) observe(now time.Time) {
	sent := h.link.Sent() // before the queue is asked, so that forwarded is never too much
	if p, err := h.link.Probe(); err == nil {
		h.now = p
		// The queue holds framing and TLS as well, so that while it is not empty
		// this is up to 1 % of it too little; when it is empty it is exact.
		h.forwarded = max(h.forwarded, sent-min(sent, uint64(p.Queue)))
		h.meter.Add(now, p)
	}
	if n := h.link.Received(); n != h.arrived {
		h.arrived, h.came = n, now
	}
	if moved := sent + h.arrived + h.forwarded; moved != h.moved {
		h.moved, h.used = moved, now
	}
}

// awake reports whether the hop's radio is awake anyway, since data has just
// come by it.
func (h *hop) awake(now time.Time) bool {
	return !h.came.IsZero() && now.Sub(h.came) < awakeTime
}

func (h *hop) inUse(now time.Time) bool {
	return !h.used.IsZero() && now.Sub(h.used) < max(activeRTTs*h.now.SRTT, activeLeast)
}

// report is what the reporter knows about one direction.
type report struct {
	d    *direction
	last wire.HopState
	sent time.Time
}

// due makes the report about the hop beyond, if it is time for one.
func (r *report) due(beyond *hop, now time.Time) (s wire.HopState, ok bool) {
	s = wire.HopState{Received: r.d.read.Load(), Forwarded: beyond.forwarded, RTT: beyond.now.MinRTT}
	s.Forwarded = min(s.Forwarded, s.Received)
	s.Rate, s.AppLimited = beyond.meter.Rate()
	if limit := beyond.now.Limit; limit > 0 && (s.Rate == 0 || limit < s.Rate) {
		s.Rate, s.AppLimited = limit, false
	}
	moved := s.Received - r.last.Received + s.Forwarded - r.last.Forwarded
	since := now.Sub(r.sent)
	switch {
	case moved == 0:
		return s, false
	case since >= reportSlow:
		return s, true
	}
	return s, since >= reportFast && moved >= reportBytes && changed(s, r.last)
}

// changed reports whether rate or backlog differ by more than a tenth.
func changed(a, b wire.HopState) bool {
	differ := func(x, y, least uint64) bool { return max(x, y)-min(x, y) > max(y/10, least) }
	return a.AppLimited != b.AppLimited || differ(uint64(a.Rate), uint64(b.Rate), 0) ||
		differ(a.Received-a.Forwarded, b.Received-b.Forwarded, 4<<10)
}

// reporter watches both hops of a relay while they carry data, and tells each
// sender about the hop that it cannot see. When nothing moves, it sleeps.
type reporter struct {
	r        *relay
	mode     feedback
	told     func(trace.Event) // or nil
	pipe, hs hop
	up, down report
	here     report    // about the pipe, to the primary
	ended    time.Time // when it was seen that a direction had ended
}

func newReporter(r *relay, mode feedback, told func(trace.Event)) *reporter {
	return &reporter{r: r, mode: mode, told: told, pipe: hop{link: r.pipe}, hs: hop{link: r.hs},
		up: report{d: &r.up}, down: report{d: &r.down}, here: report{d: &r.down}}
}

func (p *reporter) run() {
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
		p.tick(now)
		if p.ended.IsZero() && p.r.ended.Load() > 0 {
			p.ended = now
		}
		switch {
		case p.deserted(now):
			p.r.close(errors.New("one direction ended and the other did not follow"))
			return
		case p.busy(now):
			timer.Reset(reportFast)
		default:
			p.sleep(timer)
		}
	}
}

// deserted reports whether one direction has ended, and nothing has moved since
// for so long that the other is not waited for.
func (p *reporter) deserted(now time.Time) bool {
	long := func(since time.Time) bool { return now.Sub(since) > lingerTime }
	return !p.ended.IsZero() && long(p.ended) && long(p.pipe.used) && long(p.hs.used)
}

// sleep lets the next data wake the reporter; now and then it looks whether a
// direction has ended.
func (p *reporter) sleep(timer *time.Timer) {
	before := p.r.up.read.Load() + p.r.down.read.Load()
	p.r.up.asleep.Store(true)
	p.r.down.asleep.Store(true)
	if p.r.up.read.Load()+p.r.down.read.Load() != before { // it came before the flags were seen
		timer.Reset(0)
		return
	}
	timer.Reset(lingerTime)
}

// busy reports whether the hops must be watched.
func (p *reporter) busy(now time.Time) bool {
	return p.pipe.inUse(now) || p.hs.inUse(now) || p.pipe.now.Queue+p.hs.now.Queue > 0
}

func (p *reporter) tick(now time.Time) {
	p.r.up.asleep.Store(false)
	p.r.down.asleep.Store(false)
	p.pipe.observe(now)
	p.hs.observe(now)
	if p.r.pipe.Stalled(now) {
		p.r.pipe.Upset()
	}
	p.r.up.setSegment(&p.hs)
	p.r.down.setSegment(&p.pipe)
	hs, pipe := p.hs.awake(now), p.pipe.inUse(now)

	if s, ok := p.up.due(&p.hs, now); ok && pipe {
		p.send(&p.up, s, onPipe, now)
	}
	if s, ok := p.down.due(&p.pipe, now); ok {
		if over := p.mode(hs, pipe); over != silent {
			s.OfPipe = over == onPipe
			p.send(&p.down, s, over, now)
		}
	}
	if pipe && now.Sub(p.here.sent) >= reportSlow && p.r.several != nil && p.r.several() {
		if s, ok := p.here.due(&p.pipe, now); ok {
			s.OfPipe, s.Stays = true, p.mode(hs, pipe) != onPipe
			if s.Stays { // else the primary has it anyway
				p.send(&p.here, s, onPipe, now)
			}
		}
	}
}

// send sends a report over a hop, and remembers it if it has left.
func (p *reporter) send(r *report, s wire.HopState, over route, now time.Time) {
	hop, about := &p.hs, "hs-path"
	if over == onPipe {
		hop = &p.pipe
	}
	if r != &p.up {
		about = "pipe"
	}
	if hop.link.SendState(s) != nil {
		return
	}
	r.last, r.sent = s, now
	if p.told != nil {
		p.told(trace.Event{Kind: trace.HopReport, Rate: s.Rate, SRTT: s.RTT, Backlog: unit.Bytes(s.Received - s.Forwarded), Reason: "over the " + over.String(), Text: "about the " + about})
	}
}

// setSegment chooses how much is written at once.
func (d *direction) setSegment(h *hop) {
	rate, _ := h.meter.Rate()
	d.rate.Store(int64(rate))
	d.segment.Store(int64(max(minSegment, min(maxSegment, rate.Bytes(segmentTime)/packet*packet-overhead))))
}
