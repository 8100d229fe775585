package transport

import "math/rand/v2"

const (
	skipEvery  = 256 // packets or so; then a number is left out
	maxSkipped = 16  // numbers left out that are remembered
)

// packetNumbers draws the numbers of the packets that are sent: ascending, with one left
// out now and then that nobody can foretell, so that a peer that acknowledges what it has
// not received is found out (RFC 9000 section 21.4). It is not safe for concurrent use.
type packetNumbers struct {
	next        uint64                // number of the next packet
	skipAt      uint64                // this number is left out
	skipped     []uint64              // the last numbers left out, ascending
	randomBelow func(n uint64) uint64 // returns a random number below n
}

func newPacketNumbers() packetNumbers {
	return packetNumbers{randomBelow: rand.Uint64N, skipAt: skipEvery/2 + rand.Uint64N(skipEvery)}
}

// skipIfDue leaves the next number out if it is time, and returns whether it is, and which.
// More numbers are used until the next one where more packets are in flight.
func (n *packetNumbers) skipIfDue(inFlight int) (number uint64, skipped bool) {
	if n.next != n.skipAt {
		return 0, false
	}
	number = n.next
	n.skipped = append(n.skipped[max(0, len(n.skipped)-maxSkipped+1):], number)
	n.next++
	n.skipAt = n.next + skipEvery/2 + n.randomBelow(max(skipEvery, uint64(inFlight)))
	return number, true
}

// allocate returns the number of a packet.
func (n *packetNumbers) allocate() uint64 {
	n.next++
	return n.next - 1
}

// skippedIn returns a number left out that is in one of the ranges, which go downwards.
func (n *packetNumbers) skippedIn(ranges []ackRange) (number uint64, found bool) {
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

// skippedBetween returns how many numbers above lo and below hi were left out.
func (n *packetNumbers) skippedBetween(lo, hi uint64) (count uint64) {
	for i := len(n.skipped) - 1; i >= 0 && n.skipped[i] > lo; i-- {
		if n.skipped[i] < hi {
			count++
		}
	}
	return count
}
