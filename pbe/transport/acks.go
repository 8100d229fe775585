package transport

import (
	"time"

	"mpbond/base/span"
)

// Specification.
const (
	ackDelay = 2 * time.Millisecond // a lone packet is acknowledged then
	ackEvery = 2                    // packets, else (RFC 9000 section 13.2.2)
)

// Tuning.
const (
	maxReceivedRanges = 256         // ranges of packets received that are remembered; of older ones each counts as received
	repeatDuration    = time.Second // a range is in acknowledgements, and in minRepeats at least
	minRepeats        = 8
)

// ackTracker remembers which packets of the peer have arrived, when the peer must get an
// acknowledgement of them (RFC 9000 section 13.2), and which ranges that repeats. It
// counts packets by their numbers; times are those of the connection. It remembers a
// bounded number of ranges: what is older counts as received. It is not safe for
// concurrent use.
type ackTracker struct {
	received    span.Set[uint64] // numbers, from floor on
	floor       uint64           // what is below counts as received
	largestTime time.Duration    // when the packet of the highest number arrived
	oneWayDelay uint32           // its one-way delay, µs by the two clocks

	eliciting uint64        // packets that asked for an ACK
	confirmed uint64        // of them, those whose ACK the peer is known to have
	pending   int           // of them, since the last ACK
	ackNow    bool          // an ACK is due now
	ackTime   time.Duration // an ACK is due then; 0: none

	repeatFrom  uint64        // ranges below were repeated for long enough
	nextFrom    uint64        // those below will have been
	repeatSince time.Duration // nextFrom was set then
	repeats     int           // acknowledgements since
}

// isTooOld reports whether nothing is remembered of a number any more.
func (a *ackTracker) isTooOld(number uint64) bool { return number < a.floor }

// isDuplicate reports whether a packet of that number has arrived before.
func (a *ackTracker) isDuplicate(number uint64) bool { return a.received.Has(number) }

// nextExpected returns the number after the highest that arrived.
func (a *ackTracker) nextExpected() uint64 {
	if n := len(a.received); n > 0 {
		return a.received[n-1].To
	}
	return 0
}

// onPacket notes a packet that is neither old nor a duplicate. One that elicits an ACK
// gets it with the next such packet, or a little later; at once if it is out of order.
func (a *ackTracker) onPacket(now time.Duration, number uint64, eliciting bool) {
	expected := a.nextExpected()
	if number >= expected {
		a.largestTime = now
	}
	a.received.Add(number, number+1)
	if n := len(a.received); n > maxReceivedRanges {
		a.floor = a.received[n-maxReceivedRanges].From
		a.received.KeepLast(maxReceivedRanges)
	}
	a.repeatFrom = min(a.repeatFrom, number)
	if !eliciting {
		return
	}
	a.eliciting++
	a.pending++
	if a.pending >= ackEvery || number != expected {
		a.ackNow = true
	} else if a.ackTime == 0 {
		a.ackTime = now + ackDelay
	}
}

// onTimer makes an ACK due whose time has come.
func (a *ackTracker) onTimer(now time.Duration) {
	a.ackNow = a.ackNow || a.ackTime > 0 && now >= a.ackTime
}

// onConfirmed notes that the peer has the ACK that was appended when so many packets had
// asked for one.
func (a *ackTracker) onConfirmed(eliciting uint64) { a.confirmed = max(a.confirmed, eliciting) }

// shouldSend reports whether an ACK is due, or goes with what leaves anyway as none of the
// same packets is known to have arrived.
func (a *ackTracker) shouldSend(piggyback bool) bool {
	return len(a.received) > 0 && (a.ackNow || piggyback && a.eliciting > a.confirmed)
}

// appendAck appends an ACK frame that lets the peer send its stream up to maxData. At
// least one packet has arrived.
func (a *ackTracker) appendAck(now time.Duration, b []byte, maxData uint64) []byte {
	if a.repeats++; now >= a.repeatSince+repeatDuration && a.repeats > minRepeats {
		a.repeatSince, a.repeats, a.repeatFrom, a.nextFrom = now, 0, a.nextFrom, a.nextExpected()-1
	}
	f := ackFrame{delay: now - a.largestTime, oneWayDelay: a.oneWayDelay, maxData: maxData}
	for i := len(a.received) - 1; i >= 0 && f.count < maxAckRanges; i-- {
		if f.count > 0 && a.received[i].To <= a.repeatFrom {
			break
		}
		f.ranges[f.count] = ackRange{a.received[i].From, a.received[i].To - 1}
		f.count++
	}
	a.pending, a.ackNow, a.ackTime = 0, false, 0
	return f.appendTo(b)
}
