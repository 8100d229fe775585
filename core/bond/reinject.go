package bond

import (
	"math"
	"time"

	"mpbond/base/unit"
	"mpbond/core/sched"
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
	if len(b.streams) > 0 {
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
		if p.est.At(now).Late > 0 && b.othersOnTime(p, now) {
			b.repeatControl(p, now)
		}
		c := b.silence.update(p, now)
		if c.began || c.ended {
			b.filter.expireAll()
		}
		if c.began {
			b.trace.at(now, trace.Event{Kind: trace.PathSilent, Path: uint32(p.id), Length: p.est.Outstanding()})
		}
		if c.recall {
			b.stats.Silent += b.recall(p, c.beyond, now, "silent")
		}
	}
}

// othersOnTime reports whether another subflow may carry control frames and is not late.
func (b *Bond) othersOnTime(not *subflow, now time.Time) bool {
	b.filter.refreshSmall(now)
	for _, p := range b.subflows.list {
		if p != not && !p.silent() && b.filter.permitsSmall(p) && p.est.At(now).Late == 0 {
			return true
		}
	}
	return false
}

// recall gives what path p has in flight beyond a position of its own back to
// the meta buffers, once, and returns how many stream bytes were sent in vain.
func (b *Bond) recall(p *subflow, beyond uint64, now time.Time, why string) (n unit.Bytes) {
	all := p.inFlight.all()
	for i := range all {
		f := &all[i]
		if f.end <= beyond || f.recalled {
			continue
		}
		p.inFlight.markRecalled(f)
		n += b.giveBack(f, p, now, false, why)
	}
	return n - min(n, b.withdraw(p))
}

// repeatControl lets the control frames that path p has in flight be sent again: a helper is
// late with them, and they are small. What was repeated is not for that reason again, or
// two subflows whose acknowledgements are always late would pass it to and fro.
func (b *Bond) repeatControl(p *subflow, now time.Time) {
	all := p.inFlight.all()
	for i := range all {
		f := &all[i]
		if f.recalled || f.repeated || f.frameType == wire.TypeData || f.frameType == wire.TypeDatagram || f.frameType == wire.TypePing {
			continue
		}
		p.inFlight.markRecalled(f)
		if f.frameType == wire.TypeFin {
			f.stream.finRecalled = true
		}
		b.giveBack(f, p, now, true, "late")
		b.control.repeatedOf(f.stream).add(f.frameType)
	}
}

// giveBack lets a frame in flight be sent again. While its own subflow is alive
// and carries it too, what comes of it is not recalled once more, or two subflows
// could pass the same bytes to and fro.
func (b *Bond) giveBack(f *sentFrame, p *subflow, now time.Time, alive bool, why string) (n unit.Bytes) {
	s := f.stream
	if s == nil && f.frameType != wire.TypeBye && f.frameType != wire.TypePlan || s != nil && s.err != nil && f.frameType != wire.TypeReset {
		return 0
	}
	if f.frameType == wire.TypePlan {
		b.control.addOnce(wire.TypePlan)
		return 0
	}
	if f.frameType != wire.TypeData {
		b.control.add(s, f.frameType)
		return 0
	}
	n = s.send.giveBack(span{f.from, f.to}, alive, func(part span) {
		b.trace.bytes(now, trace.Reinject, p, sentFrame{stream: s, from: part.from, to: part.to}, why)
	})
	b.backlog.update(s)
	return n
}

// rebalance is reinjection at the end of a transfer: when nothing is left to
// schedule and another subflow is idle, the newest bytes in flight on the
// slowest one return to the meta buffers, as many as the scheduler's rule says
// (sched.PaperRecall). Each byte returns at most once from a subflow.
func (b *Bond) rebalance(now time.Time) {
	if b.cfg.Eta < 0 || len(b.subflows.list) < 2 || !b.subflows.idleExcept(0) {
		return
	}
	b.schedView = b.schedView[:0]
	for _, p := range b.subflows.list {
		v := p.tailView(now)
		if p.silent() { // what it has still arrives, perhaps, but is not to wait for
			v.PAD = math.MaxInt64
		}
		if !p.silent() || v.InFlight > 0 {
			b.schedView = append(b.schedView, v)
		}
	}
	rule := sched.PaperRecall
	if s, ok := b.cfg.Scheduler.(sched.Recaller); ok {
		rule = s.Recall
	}
	r := rule(b.schedView, b.cfg.Eta, b.ledger)
	if r.From == 0 || !b.subflows.idleExcept(r.From) {
		return
	}
	slow := b.subflows.find(r.From)
	nothingElse := b.backlog.pending == 0
	if !nothingElse && slow.deliversSoon(now) {
		return
	}
	var back unit.Bytes
	all := slow.inFlight.all()
	for i := len(all) - 1; i >= 0 && r.Bytes > 0; i-- {
		f := &all[i]
		if f.wanted() && (f.stream == nil || b.filter.permitsOther(&f.stream.route, slow, r.Bytes, b.backlog.contended(f.stream), now)) {
			slow.inFlight.markRecalled(f)
			f.tooLate = true
			slow.inFlight.tooLate++
			if f.frameType == wire.TypeFin {
				f.stream.finRecalled = true
			}
			r.Bytes -= unit.Bytes(f.to - f.from)
			n := b.giveBack(f, slow, now, true, "eta")
			back += n
			if n > 0 && nothingElse {
				b.avoid = slow.id
			}
		}
	}
	back -= min(back, b.withdraw(slow))
	b.stats.Eta += back
	if r.Budgeted {
		b.ledger.Copied += back
	}
}

// tailView is the subflow as the rules of reinjection see it: who waits for what was
// recalled from it waits for another subflow. So its tail is when the newest of
// the others arrives, which what lies behind that does not delay; what lies before
// it does, recalled or not.
func (p *subflow) tailView(now time.Time) sched.Path {
	n := p.est.At(now)
	v := p.schedulerView(n, now)
	newest, some := p.inFlight.newest()
	if !some {
		v.InFlight = 0
	}
	v.Tail = max(n.Overdue, v.PAD-min(v.PAD, v.Th.Time(unit.Bytes(p.bytesSent-newest))))
	return v
}

// deliversSoon reports whether what a subflow holds is waited for while windows are full: it is
// not late, and is expected soon. Before arrivals by a helper were measured, its rate counts as
// that of a TCP which starts, often too little, and it has twice the time.
func (p *subflow) deliversSoon(now time.Time) bool {
	gap := blockedGap
	if p.est.Helped && !p.est.At(now).Measured {
		gap *= 2
	}
	v := p.tailView(now)
	return !v.Late && v.Tail < gap
}
