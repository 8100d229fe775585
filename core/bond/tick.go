package bond

import (
	"time"

	"mpbond/core/trace"
	"mpbond/link/wire"
)

// Tick does what is due by time: acknowledgements and the watch for subflows
// that fell silent. The caller takes Local samples of all paths first.
func (b *Bond) Tick(now time.Time) {
	if late := b.timer.overdueBy(now); late > checkInterval {
		b.silence.shiftDeadlines(late)
		b.acks.shiftDeadlines(late)
	}
	b.timer.clear()
	b.checkSilence(now)
	b.trace.traceEstimates(now, b.subflows.list)
	b.flows.expireFlows(now)
	b.flows.scheduleWake(now)
	b.silence.scheduleWake(now)
	if len(b.streams.all) > 0 {
		b.silence.markQuietProbes(now)
	}
	b.acks.scheduleWake(now)
}

// NextTick is when Tick is to be called; zero means that nothing is due.
func (b *Bond) NextTick() time.Time { return b.timer.next }

// checkSilence lets what silent subflows have in flight be sent by others, and control frames
// that a helper is late with.
func (b *Bond) checkSilence(now time.Time) {
	for _, p := range b.subflows.list {
		if p.est.EstimateAt(now).AckLate > 0 && b.reinject.hasTimelyOther(p, now) {
			b.reinject.repeatControlFrames(p, now)
		}
		c := b.silence.updateSubflow(p, now)
		if c.began || c.ended {
			b.filter.expireAnswers()
		}
		if c.began {
			b.trace.emitAt(now, trace.Event{Kind: trace.SubflowSilent, Subflow: uint32(p.id), Length: p.est.BytesInFlight()})
		}
		if c.recall {
			b.stats.Silent += b.reinject.recallInFlight(p, c.beyond, now, "silent")
		}
	}
}

// A segment that Next has given for a subflow lies in this process until that
// subflow's writer begins to write it (Begun). What is recalled meanwhile is
// taken back: it was never sent, and need not be. From then on it cannot be,
// since TLS has numbered its records and the kernel may have a part of them.

// BeginSegment tells that the segment which Next gave last for a subflow is about to
// be written. It reports false if the segment has been withdrawn: then it must
// not be written, and the subflow is idle as if there had been none.
func (b *Bond) BeginSegment(id wire.SubflowID) bool {
	p := b.subflows.find(id)
	if p == nil || p.withdrawn {
		return false
	}
	p.unwritten = 0
	return true
}
