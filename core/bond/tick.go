package bond

import (
	"time"

	"mpbond/core/trace"
	"mpbond/link/wire"
)

// Tick does what is due by time: acknowledgements and the watch for subflows
// that fell silent. The caller takes Local samples of all paths first.
func (b *Bond) Tick(now time.Time) {
	if late := b.timer.overdueBy(now); late > probeEvery {
		b.silence.stoodStill(late)
		b.acks.stoodStill(late)
	}
	b.timer.clear()
	b.checkSilence(now)
	b.trace.estimates(now, b.subflows.list)
	b.flows.expire(now)
	b.flows.wake(now)
	b.silence.wake(now)
	if len(b.streams.all) > 0 {
		b.silence.probeQuiet(now)
	}
	b.acks.wake(now)
}

// NextTick is when Tick is to be called; zero means that nothing is due.
func (b *Bond) NextTick() time.Time { return b.timer.next }

// checkSilence lets what silent subflows have in flight be sent by others, and control frames
// that a helper is late with.
func (b *Bond) checkSilence(now time.Time) {
	for _, p := range b.subflows.list {
		if p.est.At(now).Late > 0 && b.reinject.othersOnTime(p, now) {
			b.reinject.repeatControl(p, now)
		}
		c := b.silence.update(p, now)
		if c.began || c.ended {
			b.filter.expireAll()
		}
		if c.began {
			b.trace.at(now, trace.Event{Kind: trace.PathSilent, Path: uint32(p.id), Length: p.est.Outstanding()})
		}
		if c.recall {
			b.stats.Silent += b.reinject.recall(p, c.beyond, now, "silent")
		}
	}
}

// A segment that Next has given for a subflow lies in this process until that
// subflow's writer begins to write it (Begun). What is recalled meanwhile is
// taken back: it was never sent, and need not be. From then on it cannot be,
// since TLS has numbered its records and the kernel may have a part of them.

// Begun tells that the segment which Next gave last for a subflow is about to
// be written. It reports false if the segment has been withdrawn: then it must
// not be written, and the subflow is idle as if there had been none.
func (b *Bond) Begun(id wire.PathID) bool {
	p := b.subflows.find(id)
	if p == nil || p.withdrawn {
		return false
	}
	p.unwritten = 0
	return true
}
