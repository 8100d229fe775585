package transport

import (
	"time"

	"mpbond/base/unit"
	"mpbond/pbe/cc"
)

// sentPacket is one that was sent.
type sentPacket struct {
	sentTime     time.Duration
	size         unit.Bytes // on the wire while it is in flight, else 0
	mark         cc.Mark
	lo, hi       uint64 // of the stream, lo == hi for none
	fin          bool
	probe        bool   // of the path's MTU
	lost         bool   // and nothing was heard of it since
	nonEliciting bool   // it asks for no ACK, so that none may ever come
	acks         uint64 // its ACK is of so many packets that ask for one
}

// setSegment notes what of the stream the packet carries; segment returns it.
func (p *sentPacket) setSegment(seg segment) { p.lo, p.hi, p.fin = seg.lo, seg.hi, seg.fin }

func (p *sentPacket) segment() segment { return segment{p.lo, p.hi, p.fin} }

// sentPackets are the packets sent that are remembered, by their numbers, which have no
// gaps. The zero value is empty. It is not safe for concurrent use.
type sentPackets struct {
	first        uint64
	count        int
	nonEliciting int          // of them
	ring         []sentPacket // length a power of two, or none
}

// endNumber returns the number after the highest.
func (s *sentPackets) endNumber() uint64 { return s.first + uint64(s.count) }

// lookup returns the packet of a number, nil if it is not remembered. It is valid until the
// next add.
func (s *sentPackets) lookup(number uint64) *sentPacket {
	if number < s.first || number-s.first >= uint64(s.count) {
		return nil
	}
	return &s.ring[number&uint64(len(s.ring)-1)]
}

// add remembers the packet of the number after the highest.
func (s *sentPackets) add(number uint64, p sentPacket) {
	if s.count == 0 {
		s.first = number
	}
	if s.count == len(s.ring) {
		old := *s
		s.ring = make([]sentPacket, max(16, 2*len(old.ring)))
		for i := range uint64(old.count) {
			*s.lookup(old.first + i) = *old.lookup(old.first + i)
		}
	}
	s.count++
	if p.nonEliciting {
		s.nonEliciting++
	}
	*s.lookup(number) = p
}

// dropFirst forgets the lowest.
func (s *sentPackets) dropFirst() {
	if s.lookup(s.first).nonEliciting {
		s.nonEliciting--
	}
	s.first++
	s.count--
}

// dropWhile forgets the lowest ones that are done.
func (s *sentPackets) dropWhile(done func(p *sentPacket) bool) {
	for s.count > 0 && done(s.lookup(s.first)) {
		s.dropFirst()
	}
}
