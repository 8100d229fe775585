// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"time"

	"mpbond/base/unit"
)

const (
	maxBurst = 2 * time.Millisecond // allowed burst, which makes up for late wake-ups
	maxPause = time.Second          // no controller knows a path well enough to pause for longer
)

// pacer spreads packets over time (RFC 9002 section 7.7). Times are those of the connection, sizes
// bytes on the wire. It is not safe for concurrent use.
type pacer struct {
	nextSendTime time.Duration
	maxRate      unit.Rate // set by the application; 0: no limit
}

// canSendPacket reports whether a packet may be sent now.
func (p *pacer) canSendPacket(now time.Duration) bool { return now >= p.nextSendTime }

// scheduleNextSend computes nextSendTime after a packet. rate is the controller's pacing rate, 0
// for none. Only maxRate can cause a pause over maxPause.
func (p *pacer) scheduleNextSend(now time.Duration, size unit.Bytes, rate unit.Rate) {
	from := max(p.nextSendTime, now-maxBurst)
	if rate > 0 {
		p.nextSendTime = min(from+rate.Time(size), now+maxPause)
	}
	if p.maxRate > 0 {
		p.nextSendTime = max(p.nextSendTime, from+p.maxRate.Time(size))
	}
}

// allowSendNow allows a packet to be sent now.
func (p *pacer) allowSendNow(now time.Duration) { p.nextSendTime = now }
