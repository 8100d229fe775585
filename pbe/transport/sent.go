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

// setStreamSegment records the part of the stream in the packet.
func (p *sentPacket) setStreamSegment(seg segment) { p.lo, p.hi, p.fin = seg.lo, seg.hi, seg.fin }

// streamSegment returns the part of the stream in the packet.
func (p *sentPacket) streamSegment() segment { return segment{p.lo, p.hi, p.fin} }

// sentPackets stores consecutive sent packets by number. The zero value is empty. It is not safe
// for concurrent use.
type sentPackets struct {
	first        uint64
	count        int
	nonEliciting int          // packets that elicit no ACK
	ring         []sentPacket // its length is a power of two, or 0
}

// endPacketNumber returns the number after the largest one.
func (s *sentPackets) endPacketNumber() uint64 { return s.first + uint64(s.count) }

// findSentPacket returns the packet with that number, or nil. It is valid until the next add.
func (s *sentPackets) findSentPacket(number uint64) *sentPacket {
	if number < s.first || number-s.first >= uint64(s.count) {
		return nil
	}
	return &s.ring[number&uint64(len(s.ring)-1)]
}

// addSentPacket stores a packet. Its number must be endPacketNumber, unless the store is empty.
func (s *sentPackets) addSentPacket(number uint64, p sentPacket) {
	if s.count == 0 {
		s.first = number
	}
	if s.count == len(s.ring) {
		old := *s
		s.ring = make([]sentPacket, max(16, 2*len(old.ring)))
		for i := range uint64(old.count) {
			*s.findSentPacket(old.first + i) = *old.findSentPacket(old.first + i)
		}
	}
	s.count++
	if p.nonEliciting {
		s.nonEliciting++
	}
	*s.findSentPacket(number) = p
}

// dropFirstPacket removes the packet with the smallest number.
func (s *sentPackets) dropFirstPacket() {
	if s.findSentPacket(s.first).nonEliciting {
		s.nonEliciting--
	}
	s.first++
	s.count--
}

// dropPacketsWhile removes packets in ascending order while done returns true.
func (s *sentPackets) dropPacketsWhile(done func(p *sentPacket) bool) {
	for s.count > 0 && done(s.findSentPacket(s.first)) {
		s.dropFirstPacket()
	}
}
