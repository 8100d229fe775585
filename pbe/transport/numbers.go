// SPDX-License-Identifier: Apache-2.0

package transport

import "math/rand/v2"

const (
	skipEvery  = 256 // mean number of packets between skipped numbers
	maxSkipped = 16  // remembered skipped numbers
)

// packetNumbers allocates ascending packet numbers. It skips random numbers, so that a peer that
// acknowledges packets it has not received is detected (RFC 9000 section 21.4). It is not safe for
// concurrent use.
type packetNumbers struct {
	next        uint64                // number of the next packet
	skipAt      uint64                // next number to skip
	skipped     []uint64              // last skipped numbers, ascending
	randomBelow func(n uint64) uint64 // returns a random number below n
}

// newPacketNumbers starts at number 0.
func newPacketNumbers() packetNumbers {
	return packetNumbers{randomBelow: rand.Uint64N, skipAt: skipEvery/2 + rand.Uint64N(skipEvery)}
}

// skipNumberIfDue skips the next number if it is due and returns it. The distance to the next
// skipped number grows with the number of packets in flight.
func (n *packetNumbers) skipNumberIfDue(inFlight int) (number uint64, skipped bool) {
	if n.next != n.skipAt {
		return 0, false
	}
	number = n.next
	n.skipped = append(n.skipped[max(0, len(n.skipped)-maxSkipped+1):], number)
	n.next++
	n.skipAt = n.next + skipEvery/2 + n.randomBelow(max(skipEvery, uint64(inFlight)))
	return number, true
}

// allocateNumber returns the number of a new packet.
func (n *packetNumbers) allocateNumber() uint64 {
	n.next++
	return n.next - 1
}

// skippedInRanges returns a skipped number within the ranges, which must be in descending order.
func (n *packetNumbers) skippedInRanges(ranges []ackRange) (number uint64, found bool) {
	for i := len(n.skipped) - 1; i >= 0 && len(ranges) > 0; {
		switch number = n.skipped[i]; {
		case ranges[0].lo > number:
			ranges = ranges[1:]
		case ranges[0].hi >= number:
			return number, true
		default:
			i--
		}
	}
	return 0, false
}

// skippedBetween returns how many numbers above lo and below hi were skipped.
func (n *packetNumbers) skippedBetween(lo, hi uint64) (count uint64) {
	for i := len(n.skipped) - 1; i >= 0 && n.skipped[i] > lo; i-- {
		if n.skipped[i] < hi {
			count++
		}
	}
	return count
}
