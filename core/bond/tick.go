// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"time"

	"mpbond/core/trace"
	"mpbond/link/wire"
)

// Tick does what is due: acknowledgements, silence detection and expiry. Call ObserveLocalHop for
// all subflows first.
func (b *Bond) Tick(now time.Time) {
	// A late Tick means that this process has paused.
	if pause := b.timer.wakeOverdueBy(now); pause > checkInterval {
		b.silence.discountPause(pause)
		b.acks.shiftSubflowDeadlines(pause)
	}
	b.timer.clearWakeTime()
	b.checkSilence(now)
	b.trace.traceEstimates(now, b.subflows.list)
	b.flows.expireUnusedFlows(now)
	b.flows.scheduleFlowExpiry(now)
	b.silence.scheduleStallCheck(now)
	if len(b.streams.all) > 0 {
		b.silence.markQuietProbes(now)
	}
	b.acks.scheduleNextAck(now)
}

// NextTick returns when to call Tick; zero means that nothing is due.
func (b *Bond) NextTick() time.Time { return b.timer.next }

// checkSilence reinjects what silent subflows have in flight, and repeats control frames that a
// helper is late with.
func (b *Bond) checkSilence(now time.Time) {
	for _, p := range b.subflows.list {
		if p.est.EstimateAt(now).AckLate > 0 && b.reinject.hasTimelyOther(p, now) {
			b.reinject.repeatControlFrames(p, now)
		}
		p.learnStallInTime(now)
		c := b.silence.updateSubflow(p, now)
		if c.began || c.ended {
			b.filter.expireAnswers()
		}
		if c.began {
			b.trace.emitTimestamped(now, trace.Event{Kind: trace.SubflowSilent, Subflow: uint32(p.id),
				Length: p.est.BytesInFlight()})
		}
		if c.recall {
			b.stats.ReinjectedSilent += b.reinject.recallInFlight(p, c.recallFrom, now, "silent")
		}
	}
}

// A segment that NextSegment has returned stays in this process until the subflow's writer calls
// BeginSegment. Bytes recalled before that are withdrawn: they were never sent. Afterwards they
// cannot be withdrawn, since TLS has numbered its records and the kernel may hold a part of them.

// BeginSegment reports whether the last segment that NextSegment returned for a subflow must be
// written. If it returns false, the segment was withdrawn: do not write it, and treat the subflow
// as idle.
func (b *Bond) BeginSegment(id wire.SubflowID) bool {
	p := b.subflows.subflowByID(id)
	if p == nil || p.withdrawn {
		return false
	}
	p.unwritten = 0
	return true
}
