// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"time"

	"mpbond/base/span"
)

// Specification.
const (
	ackDelay = 2 * time.Millisecond // delay before a single packet is acknowledged
	ackEvery = 2                    // ack-eliciting packets (RFC 9000 section 13.2.2)
)

// Tuning.
const (
	maxReceivedRanges = 256         // remembered ranges of packet numbers; older numbers count as received
	repeatDuration    = time.Second // a range is repeated for so long and in at least minRepeats ACKs
	minRepeats        = 8
)

// ackTracker records which packets of the peer have arrived, when an ACK is due (RFC 9000 section
// 13.2), and which ranges the ACK repeats. Times are those of the connection. It keeps a bounded
// number of ranges: older numbers count as received. It is not safe for concurrent use.
type ackTracker struct {
	received    span.Set[uint64] // packet numbers, from floor up
	floor       uint64           // numbers below count as received
	largestTime time.Duration    // arrival of the packet with the largest number
	oneWayDelay uint32           // one-way delay of that packet in µs, by two unsynchronized clocks

	eliciting uint64        // ack-eliciting packets received
	confirmed uint64        // ack-eliciting packets with an ACK that the peer has received
	pending   int           // ack-eliciting packets since the last ACK
	ackNow    bool          // an ACK is due now
	ackTime   time.Duration // when a delayed ACK is due; 0: none

	repeatFrom  uint64        // ranges below have been repeated often enough
	nextFrom    uint64        // next value of repeatFrom
	repeatSince time.Duration // when nextFrom was set
	repeats     int           // ACKs since then
}

// isNumberTooOld reports whether the tracker no longer knows if that number has arrived.
func (a *ackTracker) isNumberTooOld(number uint64) bool { return number < a.floor }

// isDuplicate reports whether a packet with that number has already arrived.
func (a *ackTracker) isDuplicate(number uint64) bool { return a.received.Has(number) }

// nextExpected returns the number after the largest that arrived.
func (a *ackTracker) nextExpected() uint64 {
	if n := len(a.received); n > 0 {
		return a.received[n-1].To
	}
	return 0
}

// onPacketReceived records a packet. The caller has checked isNumberTooOld and isDuplicate. An
// ack-eliciting packet is acknowledged with the next one or after ackDelay, and at once if it is
// out of order.
func (a *ackTracker) onPacketReceived(now time.Duration, number uint64, eliciting bool) {
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

// onAckDelayTimer makes a delayed ACK due when its time has come.
func (a *ackTracker) onAckDelayTimer(now time.Duration) {
	a.ackNow = a.ackNow || a.ackTime > 0 && now >= a.ackTime
}

// onAckConfirmed records that the peer has received an ACK of that many ack-eliciting packets.
func (a *ackTracker) onAckConfirmed(eliciting uint64) { a.confirmed = max(a.confirmed, eliciting) }

// shouldSend reports whether to send an ACK: one is due, or a packet leaves anyway (piggyback) and
// the peer may lack the newest ACK.
func (a *ackTracker) shouldSend(piggyback bool) bool {
	return len(a.received) > 0 && (a.ackNow || piggyback && a.eliciting > a.confirmed)
}

// appendAckFrame appends an ACK frame that allows the peer to send its stream up to maxData. At
// least one packet must have arrived.
func (a *ackTracker) appendAckFrame(now time.Duration, b []byte, maxData uint64) []byte {
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
	return f.appendEncodedAck(b)
}
