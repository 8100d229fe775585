package bond

import (
	"slices"
	"time"

	"mpbond/base/unit"
	"mpbond/core/sched"
	"mpbond/core/trace"
	"mpbond/link/wire"
)

// Copies: the bytes of a stream of mode Redundant, or all bytes with a scheduler that
// says so (sched.Decision.Copy), go over every subflow. A segment of new bytes
// that one subflow takes is noted for each other one; each sends what is noted
// for it, at its own pace and before new bytes, and leaves out what has been
// acknowledged by then. The receiver drops what comes second.

// copyOf is a part of a stream that another subflow carries already.
type copyOf struct {
	s        *Stream
	from, to wire.DataSeq
}

// copyToOthers notes bytes that p carries for each other subflow that is
// alive. What is noted is at most what streams have in flight.
func (b *Bond) copyToOthers(p *subflow, c copyOf) (any bool) {
	for _, q := range b.subflows.list {
		if q == p || q.silent() || !b.filter.permits(&c.s.route, q.id) {
			continue
		}
		any = true
		q.copies = append(q.uptodate(), c)
	}
	return any
}

// uptodate drops the oldest copies that are not needed any more.
func (p *subflow) uptodate() []copyOf {
	n := 0
	for n < len(p.copies) && !p.copies[n].needed() {
		n++
	}
	p.copies = p.copies[n:]
	return p.copies
}

// needed reports whether a byte of it is not acknowledged.
func (c copyOf) needed() bool {
	if c.s.Done() {
		return false
	}
	return c.s.send.anyUnacked(span{c.from, c.to})
}

// dropCopies forgets copies of a stream that are not sent yet: the subflow that carries
// its bytes is enough from now on, and if that is lost they go over another one.
func (b *Bond) dropCopies(s *Stream) {
	for _, p := range b.subflows.list {
		p.copies = slices.DeleteFunc(p.copies, func(c copyOf) bool { return c.s == s })
	}
}

// copyTarget is an idle subflow that has copies to send, or nil.
func (b *Bond) copyTarget(now time.Time) *subflow {
	for _, p := range b.subflows.list {
		if !p.idle || p.silent() || len(p.copies) == 0 || len(p.uptodate()) == 0 {
			continue
		}
		if n := p.est.At(now); n.FarWait <= sched.StaleAfter && !p.holdsBulk(n, now, &b.timer) {
			return p
		}
	}
	return nil
}

// fillCopies appends a segment of copies for path p.
func (b *Bond) fillCopies(p *subflow, now time.Time, buf []byte) []byte {
	room := p.segmentSize(now)
	p.streamsFirst = false
	for len(p.copies) > 0 && room > wire.MaxDataHeader {
		c := &p.copies[0]
		part := span{c.from, min(c.to, c.from+wire.DataSeq(room-wire.MaxDataHeader))}
		c.from = part.to
		s := c.s
		if !s.Done() {
			at := len(buf)
			s.send.eachUnacked(part, func(part span) {
				start := len(buf)
				buf = wire.AppendData(buf, s.id, part.from, int(part.to-part.from))
				buf = s.send.append(buf, part)
				f := sentFrame{frameType: wire.TypeData, stream: s, from: part.from, to: part.to, copied: true}
				f.end = p.noteFrame(len(buf)-start, f)
				b.stats.Redundant += unit.Bytes(part.to - part.from)
				b.trace.bytes(now, trace.Segment, p, f, "copy")
			})
			s.send.markSent(part) // what was taken back from a lost subflow is on its way again
			b.backlog.update(s)
			room -= len(buf) - at
		}
		if c.from >= c.to {
			p.copies = p.copies[1:]
		}
	}
	return buf
}
