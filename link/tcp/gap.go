// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"time"

	"mpbond/base/unit"
)

// receiveGap estimates the bytes that a TCP connection has received behind a gap. The kernel counts
// received bytes when they are in order, but packets at once. The zero value is ready. Not safe for
// concurrent use.
type receiveGap struct {
	seen    receivedCounts
	waiting unit.Bytes
	openAt  time.Time // when a packet last came out of order
}

// receivedCounts are counters of TCP_INFO.
type receivedCounts struct {
	packets, outOfOrder uint32
	bytes               uint64 // in order
}

// gapForgotten is how long after the last packet out of order nothing is behind a gap any more. A
// packet that is not full makes the estimate too high, and this ends it.
const gapForgotten = time.Second

// updateGap takes the counters at a time, and the size of packets. It returns the estimate.
func (g *receiveGap) updateGap(now time.Time, c receivedCounts, packet unit.Bytes) unit.Bytes {
	packets, bytes := unit.Bytes(c.packets-g.seen.packets), unit.Bytes(c.bytes-g.seen.bytes)
	behind := min(unit.Bytes(c.outOfOrder-g.seen.outOfOrder), packets)
	g.seen = c
	if behind > 0 {
		g.openAt = now
	}
	// What came in order beyond the size of the packets that did has waited behind the gap.
	g.waiting = max(0, g.waiting+behind*packet-max(0, bytes-(packets-behind)*packet))
	if now.Sub(g.openAt) > gapForgotten {
		g.waiting = 0
	}
	return g.waiting
}
