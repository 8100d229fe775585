// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// NextSegment appends the next segment to buf, returns the subflow that must carry it as a whole,
// and marks that subflow busy. If there is no segment to send now it returns 0: ask again after the
// next event (a frame received, a subflow idle, bytes written, a tick). Call BeginSegment before
// writing the segment.
func (b *Bond) NextSegment(now time.Time, buf []byte) (wire.SubflowID, []byte) {
	start := len(buf)
	b.queueDueHints(now)
	if p := b.acks.subflowOwingAck(now); p != nil {
		p.startSilenceWatch(now)
		buf = p.appendUnreliable(buf, b.acks.buildAckFrame(p, now))
		b.recordGivenSegment(p, len(buf)-start, now)
		return p.id, buf
	}
	if b.backlog.allScheduled(b.subflows.list) || b.subflows.hasOverdue(now) {
		b.reinject.reinjectTail(now)
	}
	carrier, idle := b.chooser.surveySubflows(now)
	if !idle {
		return 0, buf
	}
	t := b.chooser.chooseTurn(now)
	p := t.subflow
	if carrier != nil && (!b.control.hasNoFrames() || b.acks.isSharedAckDue(now)) {
		p = carrier
	}
	if p == nil {
		p = b.subflows.probeTarget()
	}
	train := p == nil && b.backlog.pending+b.backlog.lowLatencyPending == 0
	if train {
		p = b.filter.trainTarget(now)
	}
	if p == nil {
		return 0, buf
	}
	p.startSilenceWatch(now)
	if p == carrier {
		buf = b.writer.fillControl(p, now, buf)
	}
	bulkOnly := t.kind == turnBulk && len(buf) == start && !p.probeDue
	if p == t.subflow {
		before := p.streamBytesSent
		if buf = b.writer.fillTurnData(t, now, buf); p.streamBytesSent > before {
			b.silence.lastRequest = now
		}
	}
	buf = p.appendProbe(buf)
	if train {
		buf = p.appendTrain(buf)
	}
	n := len(buf) - start
	if n == 0 {
		return 0, buf
	}
	b.recordGivenSegment(p, n, now)
	if bulkOnly {
		p.unwritten = unit.Bytes(n)
	}
	return p.id, buf
}

// recordGivenSegment records that a segment of n bytes was given to subflow p.
func (b *Bond) recordGivenSegment(p *subflow, n int, now time.Time) {
	p.est.OnSent(now, unit.Bytes(n))
	b.acks.recordAckInSegment(p, n, now)
	p.settleWhenIdle(now)
	p.idle, p.lastActive, p.lastSent, p.unwritten, p.withdrawn = false, now, now, 0, false
	b.timer.requestWakeAt(now.Add(checkInterval))
}

// SendBye queues a BYE frame: this end ends the bond.
func (b *Bond) SendBye() { b.control.queueFrame(nil, wire.TypeBye) }

// ControlAcknowledged reports whether the other end has acknowledged every control frame.
func (b *Bond) ControlAcknowledged() bool {
	for _, p := range b.subflows.list {
		for _, f := range p.inFlight.unackedFrames() {
			if f.isControlFrame() && !f.recalled {
				return false
			}
		}
	}
	return len(b.control.frames) == 0
}
