// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"slices"
	"time"

	"mpbond/base/unit"
	"mpbond/core/sched"
	"mpbond/core/trace"
	"mpbond/link/wire"
)

// Copies: bytes of a stream of mode Redundant go over every subflow, and so do all bytes with a
// scheduler that sets sched.Decision.Copy. Messages of one packet may go over two subflows. When a
// subflow takes a segment of new bytes, they are listed for the others that get copies. Each
// subflow sends its list at its own pace, before new bytes, and skips bytes acknowledged by then.
// The receiver drops duplicates.

// copiedSpan is a part of a stream that another subflow already carries.
type copiedSpan struct {
	stream   *Stream
	from, to wire.DataSeq
	message  bool // it is a message of one packet, and not part of a redundant stream
}

// copyToOthers lists bytes that p carries for each other live subflow. A list holds at most what
// streams have in flight.
func (w *segmentWriter) copyToOthers(p *subflow, c copiedSpan) (copied bool) {
	for _, q := range w.subflows.list {
		if q == p || q.isSilent() || !w.filter.permissionAllows(&c.stream.permission, q.id) {
			continue
		}
		copied = true
		q.copies = append(q.dropUnneededCopies(w.filter), c)
	}
	return copied
}

const (
	maxMessage       = minSegment // bytes of a message that is copied: what a packet holds
	maxMessageCopies = 64         // no message is listed behind so many copies
	// Copies of messages may take one byte in messageCopyDivisor of those that a bond carries. A
	// request is small beside its answer. Credit is kept for 64 KB of copies.
	messageCopyDivisor = 100
	maxMessageCredit   = 64 * unit.KB * messageCopyDivisor
	// messageCopyCost is the cost of a copy beside its bytes: headers, and its acknowledgement.
	messageCopyCost = 100
)

// messageCredit is the budget for copies of messages. The zero value has none.
type messageCredit struct {
	carried uint64     // by the present subflows, in both directions, when last asked
	unspent unit.Bytes // carried bytes that paid for no copy yet
}

// takeCredit takes the credit for a copy of n bytes, if there is enough.
func (c *messageCredit) takeCredit(subflows []*subflow, n unit.Bytes) bool {
	carried := uint64(0)
	for _, p := range subflows {
		carried += p.bytesSent + p.bytesReceived
	}
	if carried > c.carried { // else a subflow was removed
		c.unspent = min(c.unspent+unit.Bytes(carried-c.carried), maxMessageCredit)
	}
	c.carried = carried
	cost := (n + messageCopyCost) * messageCopyDivisor
	if cost > c.unspent {
		return false
	}
	c.unspent -= cost
	return true
}

// copyMessage lists a message that p carries for the next best subflow, if it is one packet at most
// and there is credit. In a longer transfer, ACKs of later bytes soon show that p has failed or has a
// long queue; after a message there are no later bytes.
func (w *segmentWriter) copyMessage(p *subflow, c copiedSpan, priority wire.Priority, now time.Time) {
	n, perm := unit.Bytes(c.to-c.from), &c.stream.permission
	if !w.copiesMessages || perm.mode != wire.ModeBond || n == 0 || n > maxMessage || w.backlog.hasPendingAbove(priority) {
		return
	}
	q := w.filter.fastestPermitted(p, w.classes.findGroupClass(perm.group), now)
	if q == nil || q.possiblySilent(now) || !w.filter.permitsMessageCopy(q, c.stream) ||
		q.trainLeft > 0 && !now.After(q.trainUntil) ||
		q.est.EstimateAt(now).FarQueueTime > sched.MaxCopyFarWait || len(q.dropUnneededCopies(w.filter)) >= maxMessageCopies {
		return
	}
	if w.credit.takeCredit(w.subflows.list, n) {
		q.copies = append(q.copies, c)
	}
}

// dropUnneededCopies drops the oldest copies that are no longer needed, or not permitted any more,
// and returns the rest.
func (p *subflow) dropUnneededCopies(f *subflowFilter) []copiedSpan {
	n := 0
	for n < len(p.copies) &&
		(!p.copies[n].isCopyNeeded() || p.copies[n].message && !f.permitsMessageCopy(p, p.copies[n].stream)) {
		n++
	}
	p.copies = p.copies[n:]
	return p.copies
}

// isCopyNeeded reports whether a byte of the span is not acknowledged.
func (c copiedSpan) isCopyNeeded() bool {
	if c.stream.Done() {
		return false
	}
	return c.stream.send.hasUnacked(seqSpan{From: c.from, To: c.to})
}

// dropCopies drops unsent copies of a stream. The subflow that carries the bytes suffices from now
// on; if it is lost, others carry them again.
func (t *subflowTable) dropCopies(s *Stream) {
	for _, p := range t.list {
		p.copies = slices.DeleteFunc(p.copies, func(c copiedSpan) bool { return c.stream == s })
	}
}

// fillCopies appends a segment of copies for subflow p.
func (w *segmentWriter) fillCopies(p *subflow, now time.Time, buf []byte) []byte {
	room := p.targetSegmentSize(now)
	p.streamsFirst = false
	for room > wire.MaxDataHeader && len(p.dropUnneededCopies(w.filter)) > 0 {
		c := &p.copies[0]
		s, at := c.stream, len(buf)
		if c.from == 0 {
			buf = w.appendSecondOpen(p, s, buf)
		}
		n := max(1, room-(len(buf)-at)-wire.MaxDataHeader)
		part := seqSpan{From: c.from, To: min(c.to, c.from+wire.DataSeq(n))}
		c.from = part.To
		s.send.eachUnacked(part, func(part seqSpan) {
			start := len(buf)
			buf = wire.AppendData(buf, s.id, part.From, int(part.To-part.From))
			buf = s.send.appendSpan(buf, part)
			f := sentFrame{frameType: wire.TypeData, stream: s, from: part.From, to: part.To, noRecall: true}
			f.end = p.recordSentFrame(len(buf)-start, f)
			w.stats.Redundant += unit.Bytes(part.To - part.From)
			w.trace.traceBytes(now, trace.Segment, p, f, "copy")
		})
		if c.message {
			w.subflows.forbidRecall(p, s, part)
		}
		s.send.markSpanSent(part) // bytes recalled from a lost subflow are in flight again
		w.backlog.updateStream(s)
		room -= len(buf) - at
		if c.from >= c.to {
			p.copies = p.copies[1:]
		}
	}
	return buf
}

// forbidRecall makes subflows other than p keep a span of a stream that p carries too.
func (t *subflowTable) forbidRecall(p *subflow, s *Stream, part seqSpan) {
	for _, q := range t.list {
		if q != p {
			q.inFlight.forbidRecall(s, part)
		}
	}
}
