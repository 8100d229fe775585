// SPDX-License-Identifier: Apache-2.0

package network

import (
	"time"

	"mpbond/base/unit"
	"mpbond/link/estimate"
	"mpbond/link/wire"
)

// Tuning of node/helper, which the model follows.
const (
	helperBuffer  = 4 * unit.MB
	writeTime     = 5 * time.Millisecond
	writeOverhead = wire.HeaderLen + recordOverhead
	minWrite      = mss - writeOverhead
	reportFast    = 20 * time.Millisecond
	reportSlow    = 100 * time.Millisecond
	reportBytes   = 16 << 10
	activeRTTs    = 3
	activeLeast   = 200 * time.Millisecond
	awakeTime     = 100 * time.Millisecond
)

// helper is the connection split of one subflow: both TCP connections end at it, with a buffer
// between them in each direction. It reports to each sender about the hop that it cannot see.
type helper struct {
	sim      *sim
	up, down relay
	pipe, hs hopWatch
	timer    *timer
	asleep   bool
	upSent   reportState
	downSent reportState
}

// relay is one direction.
type relay struct {
	helper  *helper
	in, out *channel
	isPipe  bool // out is a pipe: its frames are in TLS records, and bytes stay until they have arrived
	held    int  // bytes in the buffer
	unsent  int  // of these, not written
	segment int  // size of a write
	waiting bool // for out to be writable
	read    uint64
	marks   []mark // of writes to a pipe
}

// mark relates a position of the bytes on the pipe to one of the subflow.
type mark struct {
	end        uint64
	ciphertext int
}

// hopWatch is the reporter's view of a hop: that of the direction away from the helper, and what
// arrives from its other end.
type hopWatch struct {
	out, in     *channel
	state       estimate.Hop
	moved       uint64
	lastUsed    time.Duration
	lastArrival time.Duration
	arrived     uint64
	forwarded   uint64
	meter       estimate.Meter
}

// reportState is the last report about a direction.
type reportState struct {
	last wire.HopState
	at   time.Duration
	any  bool
}

// connectHelperHops connects the channels of both hops.
func connectHelperHops(s *sim, pipeIn, pipeOut, hsIn, hsOut *channel) *helper {
	h := &helper{sim: s, asleep: true}
	h.up = relay{helper: h, in: pipeIn, out: hsOut, segment: minWrite}
	h.down = relay{helper: h, in: hsIn, out: pipeOut, isPipe: true, segment: minWrite}
	h.pipe, h.hs = hopWatch{out: pipeOut, in: pipeIn}, hopWatch{out: hsOut, in: hsIn}
	h.timer = newSimTimer(s, h.handleReports)
	for _, r := range []*relay{&h.up, &h.down} {
		r.in.accept = r.bufferPiece
		r.out.from.onWritable = func() { r.waiting = false; r.writeUnsent() }
		r.out.from.onAcked = r.dropConfirmed
	}
	return h
}

// bufferPiece takes a piece into the buffer if there is room.
func (r *relay) bufferPiece(p *piece) bool {
	if r.held >= int(helperBuffer) {
		return false
	}
	r.held += p.ciphertext
	r.unsent += p.ciphertext
	r.read += uint64(p.ciphertext)
	if r.helper.asleep {
		r.helper.asleep = false
		r.helper.timer.setDueTime(r.helper.sim.now)
	}
	r.writeUnsent()
	return true
}

// writeUnsent writes bytes of the buffer while the hop is writable. The rest stays in the buffer,
// where it is counted.
func (r *relay) writeUnsent() {
	for r.unsent > 0 && !r.waiting {
		if !r.out.from.signalsPollOut() {
			r.waiting, r.out.from.wantsWrite = true, true
			return
		}
		n := min(r.unsent, r.segment)
		r.unsent -= n
		size := n + wire.HeaderLen
		if r.isPipe {
			size = sealedSize(size)
		} else {
			r.held -= n
		}
		r.out.queuePiece(size, n, nil)
		if r.isPipe {
			r.marks = append(r.marks, mark{r.out.written, n})
		}
		r.out.writeQueued()
		if !r.isPipe {
			r.in.passArrived()
		}
	}
}

// dropConfirmed drops the bytes from the buffer that have arrived over a pipe.
func (r *relay) dropConfirmed() {
	n := 0
	for n < len(r.marks) && r.marks[n].end <= r.out.from.unacked {
		r.held -= r.marks[n].ciphertext
		n++
	}
	if n > 0 {
		r.marks = r.marks[:copy(r.marks, r.marks[n:])]
		r.in.passArrived()
	}
}

// sampleWatchedHop updates the view of a hop with a sample of its TCP.
func (h *hopWatch) sampleWatchedHop(now time.Duration) {
	h.state = h.out.from.readTCPInfo().Hop()
	h.forwarded = max(h.forwarded, h.out.sent-min(h.out.sent, uint64(h.state.Queue)))
	h.meter.Add(epoch.Add(now), h.state)
	if n := h.in.received; n != h.arrived {
		h.arrived, h.lastArrival = n, now
	}
	if moved := h.out.sent + h.arrived + h.forwarded; moved != h.moved {
		h.moved, h.lastUsed = moved, now
	}
}

// isRadioAwake reports whether bytes have arrived so recently that the hop's radio has not gone to
// sleep.
func (h *hopWatch) isRadioAwake(now time.Duration) bool {
	return h.arrived > 0 && now-h.lastArrival < awakeTime
}

// hasRecentTraffic reports whether the hop has carried bytes in either direction within a few round
// trips.
func (h *hopWatch) hasRecentTraffic(now time.Duration) bool {
	return h.moved > 0 && now-h.lastUsed < max(activeRTTs*h.state.SRTT, activeLeast)
}

// handleReports samples both hops and sends the reports that are due. While a hop is in use it sets
// the timer for the next call; otherwise the helper sleeps until bytes arrive.
func (h *helper) handleReports() {
	now := h.sim.now
	h.pipe.sampleWatchedHop(now)
	h.hs.sampleWatchedHop(now)
	h.up.setWriteSize(&h.hs)
	h.down.setWriteSize(&h.pipe)
	awake, pipeUsed := h.hs.isRadioAwake(now), h.pipe.hasRecentTraffic(now)
	if s, due := h.upSent.nextHopReport(&h.up, &h.hs, now); due && pipeUsed {
		h.writeHopReport(&h.upSent, s, h.pipe.out, now)
	}
	if s, due := h.downSent.nextHopReport(&h.down, &h.pipe, now); due {
		switch {
		case awake:
			h.writeHopReport(&h.downSent, s, h.hs.out, now)
		case pipeUsed:
			s.AboutPipe = true
			h.writeHopReport(&h.downSent, s, h.pipe.out, now)
		}
	}
	if pipeUsed || h.hs.hasRecentTraffic(now) || h.pipe.state.Queue+h.hs.state.Queue > 0 {
		h.timer.setDueTime(now + reportFast)
	} else {
		h.asleep = true
	}
}

// writeHopReport writes a report into a channel.
func (h *helper) writeHopReport(r *reportState, s wire.HopState, over *channel, now time.Duration) {
	over.queuePiece(reportSize+recordOverhead, 0, &s)
	over.writeQueued()
	r.last, r.at, r.any = s, now, true
}

// setWriteSize sets the size of writes from the hop's rate.
func (r *relay) setWriteSize(h *hopWatch) {
	rate, _ := h.meter.Rate()
	r.segment = int(max(minWrite, min(maxHopData, rate.Bytes(writeTime)/mss*mss-writeOverhead)))
}

// nextHopReport returns the report about the hop beyond, and whether it must be sent now.
func (r *reportState) nextHopReport(in *relay, beyond *hopWatch, now time.Duration) (s wire.HopState, due bool) {
	s = wire.HopState{Received: in.read, Forwarded: min(beyond.forwarded, in.read), RTT: beyond.state.MinRTT}
	s.Rate, s.AppLimited = beyond.meter.Rate()
	moved := s.Received - r.last.Received + s.Forwarded - r.last.Forwarded
	since := now - r.at
	switch {
	case moved == 0:
		return s, false
	case since >= reportSlow || !r.any:
		return s, true
	}
	return s, since >= reportFast && moved >= reportBytes && hasChangedMuch(s, r.last)
}

// hasChangedMuch reports whether rate or backlog differ by more than a tenth.
func hasChangedMuch(a, b wire.HopState) bool {
	differ := func(x, y, least uint64) bool { return max(x, y)-min(x, y) > max(y/10, least) }
	return a.AppLimited != b.AppLimited || differ(uint64(a.Rate), uint64(b.Rate), 0) ||
		differ(a.Received-a.Forwarded, b.Received-b.Forwarded, 4<<10)
}
