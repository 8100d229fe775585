// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"time"

	"mpbond/base/unit"
	"mpbond/pbe/cc"
)

// sentPacket is the record of a sent packet.
type sentPacket struct {
	sentTime     time.Duration
	size         unit.Bytes // bytes on the wire while in flight; 0 if not
	mark         cc.Mark
	lo, hi       uint64 // bytes of the stream; equal if it has none
	fin          bool
	probe        bool   // MTU probe
	lost         bool   // declared lost and not acknowledged since
	nonEliciting bool   // it asks for no ACK, so that none may ever come
	acks         uint64 // ack-eliciting packets of the peer that its ACK covers
}

// setSegment records the part of the stream in the packet.
func (p *sentPacket) setSegment(seg segment) { p.lo, p.hi, p.fin = seg.lo, seg.hi, seg.fin }

// segment returns the part of the stream in the packet.
func (p *sentPacket) segment() segment { return segment{p.lo, p.hi, p.fin} }

// sentPackets stores consecutive sent packets by number. The zero value is empty. It is not safe
// for concurrent use.
type sentPackets struct {
	first        uint64
	count        int
	nonEliciting int          // packets that elicit no ACK
	ring         []sentPacket // its length is a power of two, or 0
}

// endNumber returns the number after the largest one.
func (s *sentPackets) endNumber() uint64 { return s.first + uint64(s.count) }

// lookup returns the packet with that number, or nil. It is valid until the next add.
func (s *sentPackets) lookup(number uint64) *sentPacket {
	if number < s.first || number-s.first >= uint64(s.count) {
		return nil
	}
	return &s.ring[number&uint64(len(s.ring)-1)]
}

// add stores a packet. Its number must be endNumber, unless the store is empty.
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

// dropFirst removes the packet with the smallest number.
func (s *sentPackets) dropFirst() {
	if s.lookup(s.first).nonEliciting {
		s.nonEliciting--
	}
	s.first++
	s.count--
}

// dropWhile removes packets in ascending order while done returns true.
func (s *sentPackets) dropWhile(done func(p *sentPacket) bool) {
	for s.count > 0 && done(s.lookup(s.first)) {
		s.dropFirst()
	}
}
