package bond

import (
	"math"
	"time"

	"mpbond/base/unit"
	"mpbond/core/sched"
	"mpbond/core/trace"
	"mpbond/link/wire"
)

// reinjector gives what a subflow has in flight back to be sent by others: all of it when the
// subflow is lost or silent, control frames that a helper is late with, and the newest bytes
// of the slowest subflow at the end of a transfer. Each byte returns at most once from a
// subflow that is alive. A segment that its writer has not begun is withdrawn instead, if all
// of it is given back. Not safe for concurrent use.
type reinjector struct {
	subflows  *subflowTable
	filter    *subflowFilter
	backlog   *backlog
	control   *controlQueue
	trace     *tracer
	stats     *Stats
	scheduler sched.Scheduler
	eta       float64 // Config.Eta

	ledger sched.Ledger // bytes given to subflows, and of these again
	view   []sched.Subflow
}

// hasTimelyOther reports whether another subflow may carry control frames and is not late.
func (r *reinjector) hasTimelyOther(not *subflow, now time.Time) bool {
	r.filter.refreshSmallAnswer(now)
	for _, p := range r.subflows.list {
		if p != not && !p.isSilent() && r.filter.permitsSmall(p) && p.est.EstimateAt(now).AckLate == 0 {
			return true
		}
	}
	return false
}

// recallInFlight gives what subflow p has in flight beyond a position of its own back to
// the meta buffers, once, and returns how many stream bytes were sent in vain.
func (r *reinjector) recallInFlight(p *subflow, beyond uint64, now time.Time, why string) (n unit.Bytes) {
	all := p.inFlight.all()
	for i := range all {
		f := &all[i]
		if f.end <= beyond || f.recalled {
			continue
		}
		p.inFlight.markRecalled(f)
		n += r.requeueFrame(f, p, now, false, why)
	}
	return n - min(n, r.withdrawSegment(p))
}

// repeatControlFrames lets the control frames that subflow p has in flight be sent again: a helper is
// late with them, and they are small. What was repeated is not for that reason again, or
// two subflows whose acknowledgements are always late would pass it to and fro.
func (r *reinjector) repeatControlFrames(p *subflow, now time.Time) {
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
		r.requeueFrame(f, p, now, true, "late")
		r.control.repeatedTypes(f.stream).add(f.frameType)
	}
}

// requeueFrame lets a frame in flight be sent again. While its own subflow is alive
// and carries it too, what comes of it is not recalled once more, or two subflows
// could pass the same bytes to and fro.
func (r *reinjector) requeueFrame(f *sentFrame, p *subflow, now time.Time, alive bool, why string) (n unit.Bytes) {
	s := f.stream
	if s == nil && f.frameType != wire.TypeBye && f.frameType != wire.TypeClassTable || s != nil && s.err != nil && f.frameType != wire.TypeReset {
		return 0
	}
	if f.frameType == wire.TypeClassTable {
		r.control.queueOnce(wire.TypeClassTable)
		return 0
	}
	if f.frameType != wire.TypeData {
		r.control.queueFrame(s, f.frameType)
		return 0
	}
	n = s.send.requeueSpan(seqSpan{From: f.from, To: f.to}, alive, func(part seqSpan) {
		r.trace.traceBytes(now, trace.Reinject, p, sentFrame{stream: s, from: part.From, to: part.To}, why)
	})
	r.backlog.updateStream(s)
	return n
}

// reinjectTail is reinjection at the end of a transfer: when nothing is left to
// schedule and another subflow is idle, the newest bytes in flight on the
// slowest one return to the meta buffers, as many as the scheduler's rule says
// (sched.PaperRecall). Each byte returns at most once from a subflow.
func (r *reinjector) reinjectTail(now time.Time) {
	if r.eta < 0 || len(r.subflows.list) < 2 || !r.subflows.hasIdleExcept(0) {
		return
	}
	r.view = r.view[:0]
	for _, p := range r.subflows.list {
		v := p.tailView(now)
		if p.isSilent() { // what it has still arrives, perhaps, but is not to wait for
			v.PAD = math.MaxInt64
		}
		if !p.isSilent() || v.InFlight > 0 {
			r.view = append(r.view, v)
		}
	}
	rule := sched.PaperRecall
	if s, ok := r.scheduler.(sched.Recaller); ok {
		rule = s.Recall
	}
	what := rule(r.view, r.eta, r.ledger)
	if what.From == 0 || !r.subflows.hasIdleExcept(what.From) {
		return
	}
	slow := r.subflows.find(what.From)
	nothingElse := r.backlog.pending == 0
	if !nothingElse && slow.deliversSoon(now) {
		return
	}
	var back unit.Bytes
	all := slow.inFlight.all()
	for i := len(all) - 1; i >= 0 && what.Bytes > 0; i-- {
		f := &all[i]
		if f.isWanted() && (f.stream == nil || r.filter.permitsOtherSubflow(&f.stream.route, slow, what.Bytes, r.backlog.contendingBytes(f.stream), now)) {
			slow.inFlight.markRecalled(f)
			f.tooLate = true
			slow.inFlight.tooLate++
			if f.frameType == wire.TypeFin {
				f.stream.finRecalled = true
			}
			what.Bytes -= unit.Bytes(f.to - f.from)
			n := r.requeueFrame(f, slow, now, true, "eta")
			back += n
			if n > 0 && nothingElse {
				r.backlog.avoided = slow.id
			}
		}
	}
	back -= min(back, r.withdrawSegment(slow))
	r.stats.Eta += back
	if what.Budgeted {
		r.ledger.Copied += back
	}
}

// tailView is the subflow as the rules of reinjection see it: who waits for what was
// recalled from it waits for another subflow. So its tail is when the newest of
// the others arrives, which what lies behind that does not delay; what lies before
// it does, recalled or not.
func (p *subflow) tailView(now time.Time) sched.Subflow {
	n := p.est.EstimateAt(now)
	v := p.schedulerView(n, now)
	newest, some := p.inFlight.newestWanted()
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
	gap := maxDeliveryGap
	if p.est.Helped && !p.est.EstimateAt(now).ArrivalsMeasured {
		gap *= 2
	}
	v := p.tailView(now)
	return !v.Late && v.Tail < gap
}

// withdrawSegment takes the segment of subflow p that its writer has not begun back, if
// all of it is stream bytes that have been recalled, and returns how many of
// them were still wanted.
func (r *reinjector) withdrawSegment(p *subflow) (n unit.Bytes) {
	all := p.inFlight.all()
	first := len(all)
	for first > 0 && all[first-1].end > p.bytesSent-uint64(p.unwritten) {
		if first--; !all[first].recalled {
			return 0
		}
	}
	if first == len(all) {
		return 0
	}
	var size unit.Bytes
	for _, f := range all[first:] {
		size += unit.Bytes(f.to - f.from)
		if f.stream.err == nil {
			f.stream.send.eachUnacked(seqSpan{From: f.from, To: f.to}, func(part seqSpan) { n += unit.Bytes(part.To - part.From) })
		}
	}
	p.inFlight.dropNewest(len(all) - first)
	p.est.OnUnsent(p.unwritten)
	p.bytesSent -= uint64(p.unwritten)
	p.streamBytesSent -= size
	r.ledger.Given -= size
	p.unwritten, p.withdrawn = 0, true
	return n
}

// dropNewest removes the newest n frames, which were recalled.
func (f *sentFrames) dropNewest(n int) {
	for i := range n {
		s := &f.frames[len(f.frames)-1-i]
		if s.tooLate {
			f.tooLate--
		}
		s.stream = nil
	}
	f.frames = f.frames[:len(f.frames)-n]
}
