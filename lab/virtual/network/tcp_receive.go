// SPDX-License-Identifier: Apache-2.0

package network

import (
	"slices"
	"time"
)

// receiver is the receiving half of a tcpEnd: reassembly and acknowledgements.
type receiver struct {
	end      *tcpEnd
	next     uint64 // the next byte expected: all before it have arrived
	read     uint64 // bytes that the app has read
	gaps     []span // what has arrived beyond next, by position
	recent   []uint64
	onData   func() // next has advanced
	reported uint64 // end of the window reported last

	// The buffer grows with what the app reads in a round trip (tcp_rcv_space_adjust).
	buffer    uint64
	roundRead uint64 // what the app had read when the round began
	roundAt   time.Duration
	readBest  uint64 // the most that it read in a round

	ackedTo    uint64        // reported last
	stamp      time.Duration // the time stamp to return
	quick      int           // acknowledgements to send at once
	lastData   time.Duration
	delayTimer *timer
}

func (r *receiver) init(s *sim, e *tcpEnd) {
	r.end, r.quick = e, quickAcks
	r.delayTimer = newSimTimer(s, r.sendPureAck)
	r.buffer, r.reported = firstReadBuffer, firstReadBuffer
}

// receiveTCPPacket handles a packet.
func (e *tcpEnd) receiveTCPPacket(p *packet) {
	e.receiver.handlePacketData(p)
	e.handlePacketAck(p)
	if f := e.onAnswer; f != nil {
		e.onAnswer = nil
		f()
	}
	e.sim.recyclePacket(p)
}

// handlePacketData handles the data of a packet.
func (r *receiver) handlePacketData(p *packet) {
	if p.length == 0 {
		if p.isProbe {
			r.sendPureAck()
		}
		return
	}
	now := r.end.sim.now
	if p.seq <= r.ackedTo {
		r.stamp = p.sentAt
	}
	if r.lastData > 0 && now-r.lastData > r.end.retransmitTimeout() {
		r.quick = quickAcks
	}
	r.lastData = now
	end := p.seq + uint64(p.length)
	if p.seq > r.next || end <= r.next { // beyond a gap, or a duplicate
		if end > r.next {
			r.storeOutOfOrder(span{p.seq, end})
		}
		r.sendPureAck()
		return
	}
	hadGaps := len(r.gaps) > 0
	r.next = end
	for len(r.gaps) > 0 && r.gaps[0].from <= r.next {
		r.next = max(r.next, r.gaps[0].to)
		r.gaps = slices.Delete(r.gaps, 0, 1)
	}
	switch {
	case hadGaps || r.quick > 0:
		if !hadGaps {
			r.quick--
		}
		r.sendPureAck()
	case r.next-r.ackedTo > mss:
		r.sendPureAck()
	case r.delayTimer.due == never:
		r.delayTimer.setDueTime(now + delayedAck)
	}
	r.onData()
}

// storeOutOfOrder adds a range beyond a gap.
func (r *receiver) storeOutOfOrder(s span) {
	i := 0
	for i < len(r.gaps) && r.gaps[i].to < s.from {
		i++
	}
	j := i
	for j < len(r.gaps) && r.gaps[j].from <= s.to {
		s.from, s.to = min(s.from, r.gaps[j].from), max(s.to, r.gaps[j].to)
		j++
	}
	r.gaps = slices.Replace(r.gaps, i, j, s)
	// The ranges reported first are those that changed last.
	r.recent = slices.DeleteFunc(r.recent, func(at uint64) bool { return at >= s.from && at < s.to || at < r.next })
	r.recent = slices.Insert(r.recent, 0, s.from)
	r.recent = r.recent[:min(len(r.recent), 4)]
}

// sendPureAck sends an acknowledgement.
func (r *receiver) sendPureAck() { r.end.sendPacketWithAck(r.end.sim.allocatePacket()) }

// fillPacketAck puts the acknowledgement of everything that has arrived into a packet.
func (r *receiver) fillPacketAck(p *packet) {
	r.delayTimer.clearDueTime()
	p.ack, p.echo, p.window = r.next, r.stamp, r.read+r.buffer-min(r.read+r.buffer, r.next)
	r.ackedTo, r.reported = r.next, r.next+p.window
	for _, at := range r.recent {
		if p.sackCount == len(p.sacks) {
			break
		}
		for _, g := range r.gaps {
			if at >= g.from && at < g.to {
				p.sacks[p.sackCount] = g
				p.sackCount++
				break
			}
		}
	}
}

// recordAppRead records that the app has read up to a position. If that opens the window by much,
// it sends an acknowledgement.
func (r *receiver) recordAppRead(to uint64) {
	r.read = to
	r.growReceiveBuffer()
	if left := r.reported - r.next; left < r.buffer/4 && r.read+r.buffer-r.next >= max(2*left, 2*mss) {
		r.sendPureAck()
	}
}

// growReceiveBuffer grows the buffer to twice what the app has read in a round trip, or more while
// that grows, once per round trip (tcp_rcv_space_adjust).
func (r *receiver) growReceiveBuffer() {
	now := r.end.sim.now
	if now-r.roundAt < r.end.srtt {
		return
	}
	if n := r.read - r.roundRead; n > max(r.readBest, 1) {
		more := 2*n + 16*mss
		if r.readBest > 0 {
			more += 2 * (more * (n - r.readBest) / r.readBest)
		}
		r.buffer, r.readBest = min(max(r.buffer, more), maxReadBuffer), n
	}
	r.roundRead, r.roundAt = r.read, now
}
