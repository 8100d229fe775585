// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"math"
	"time"

	"mpbond/base/unit"
	"mpbond/core/sched"
	"mpbond/core/trace"
	"mpbond/link/wire"
)

// reinjector makes other subflows carry what a subflow has in flight: everything when the subflow
// is lost or silent, control frames that a helper is late with, and the newest bytes of the slowest
// subflow at the end of a transfer. Each byte is recalled at most once from a live subflow. If the
// segment that its writer has not begun is recalled as a whole, it is withdrawn. Not safe for
// concurrent use.
type reinjector struct {
	subflows  *subflowTable
	filter    *subflowFilter
	backlog   *backlog
	control   *controlQueue
	trace     *tracer
	stats     *Stats
	scheduler sched.Scheduler
	eta       float64 // Config.Eta

	ledger sched.Ledger // bytes given to subflows, and recalled ones
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

// recallInFlight queues again what subflow p has in flight beyond a byte count, unless it was
// recalled before. It returns how many stream bytes are sent twice by that.
func (r *reinjector) recallInFlight(p *subflow, beyond uint64, now time.Time, why string) (n unit.Bytes) {
	all := p.inFlight.unackedFrames()
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

// repeatControlFrames queues copies of the control frames that subflow p has in flight, because its
// helper is late and they are small. A repeated frame is not repeated again, or two subflows with
// late acknowledgements would pass it back and forth.
func (r *reinjector) repeatControlFrames(p *subflow, now time.Time) {
	all := p.inFlight.unackedFrames()
	for i := range all {
		f := &all[i]
		if f.recalled || f.repeated || !f.isControlFrame() {
			continue
		}
		p.inFlight.markRecalled(f)
		if f.frameType == wire.TypeFin {
			f.stream.finRecalled = true
		}
		r.requeueFrame(f, p, now, true, "late")
		r.control.repeatedTypes(f.stream).addFrameType(f.frameType)
		r.control.repeatedFrom = p.id
	}
}

// requeueFrame queues a frame in flight to be sent again. While its subflow is alive, the requeued
// bytes are not recalled once more, or two subflows could pass the same bytes back and forth. It
// returns how many stream bytes were not unsent before.
func (r *reinjector) requeueFrame(f *sentFrame, p *subflow, now time.Time, alive bool, why string) (n unit.Bytes) {
	s := f.stream
	if s == nil && f.frameType != wire.TypeBye && f.frameType != wire.TypeClassTable ||
		s != nil && s.err != nil && f.frameType != wire.TypeReset {
		return 0
	}
	if f.frameType == wire.TypeClassTable {
		r.control.queueBondFrameOnce(wire.TypeClassTable)
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

// reinjectTail reinjects at the end of a transfer. When nothing can be scheduled (all bytes are
// given to subflows, or windows are full) or a helper is overdue, and another subflow is idle, the
// newest bytes in flight on the slowest subflow return to the meta buffers, as many as the
// scheduler's rule says (sched.PaperRecall). Each byte is recalled at most once from a subflow.
func (r *reinjector) reinjectTail(now time.Time) {
	if r.eta < 0 || len(r.subflows.list) < 2 || !r.subflows.hasIdleExcept(0) {
		return
	}
	r.view = r.view[:0]
	for _, p := range r.subflows.list {
		v := p.reinjectionView(now)
		if p.isSilent() { // its bytes may still arrive, but do not wait for them
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
	recall := rule(r.view, r.eta, r.ledger)
	if recall.From == 0 || !r.subflows.hasIdleExcept(recall.From) {
		return
	}
	slow := r.subflows.subflowByID(recall.From)
	var recalled unit.Bytes
	all := slow.inFlight.unackedFrames()
	for i := len(all) - 1; i >= 0 && recall.Bytes > 0; i-- {
		f := &all[i]
		if f.isStillWanted() && (f.stream == nil || r.filter.permitsOtherSubflow(&f.stream.permission, slow, recall.Bytes,
			r.backlog.contendingBytes(f.stream), now)) {
			slow.inFlight.markRecalled(f)
			f.tailRecalled = true
			slow.inFlight.tailRecalledFrames++
			if f.frameType == wire.TypeFin {
				f.stream.finRecalled = true
			}
			recall.Bytes -= unit.Bytes(f.to - f.from)
			recalled += r.requeueFrame(f, slow, now, true, "eta")
		}
	}
	recalled -= min(recalled, r.withdrawSegment(slow))
	r.stats.ReinjectedTail += recalled
	r.ledger.CountRecalled(recall.Budget, recalled)
}

// reinjectionView returns the subflow as the rules of reinjection see it. The far end gets recalled
// bytes from another subflow. So the tail of this one ends with its newest byte that was not
// recalled: bytes before it delay that one, recalled or not, and bytes after it do not. PAD of a
// helped subflow includes its lateness (AckLate): the tail takes that long, or what its bytes take.
func (p *subflow) reinjectionView(now time.Time) sched.Subflow {
	n := p.est.EstimateAt(now)
	v := p.schedulerView(n, now)
	newest, found := p.inFlight.newestWanted()
	if !found {
		v.InFlight = 0
	}
	if !v.Helped {
		v.LateBy = p.est.AckLateness(now)
	}
	timelyPAD := v.PAD - n.AckLate
	v.Tail = max(n.AckLate, timelyPAD-min(timelyPAD, v.Th.Time(unit.Bytes(p.bytesSent-newest))))
	return v
}

// withdrawSegment withdraws the segment of subflow p that its writer has not begun, if it consists
// of recalled stream bytes only. It returns how many of them were not acknowledged.
func (r *reinjector) withdrawSegment(p *subflow) (n unit.Bytes) {
	all := p.inFlight.unackedFrames()
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
			f.stream.send.eachUnacked(seqSpan{From: f.from, To: f.to},
				func(part seqSpan) { n += unit.Bytes(part.To - part.From) })
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
		if s.tailRecalled {
			f.tailRecalledFrames--
		}
		s.stream = nil
	}
	f.frames = f.frames[:len(f.frames)-n]
}
