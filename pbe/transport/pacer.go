package transport

import (
	"time"

	"mpbond/base/unit"
)

const (
	maxBurst = 2 * time.Millisecond // what the pacer lets go at once, to make up for late wakings
	maxPause = time.Second          // no controller knows a path so well that it may be silent for longer
)

// pacer spreads packets over time (RFC 9002 section 7.7): it says when the next one may
// leave. Times are those of the connection, sizes bytes on the wire. It is not safe for
// concurrent use.
type pacer struct {
	nextSendTime time.Duration
	maxRate      unit.Rate // set by the app; 0: none
}

// canSend reports whether a packet may leave now.
func (p *pacer) canSend(now time.Duration) bool { return now >= p.nextSendTime }

// onSent counts a packet against the controller's rate, 0 for none, and maxRate. Only
// maxRate can ask for a pause over maxPause.
func (p *pacer) onSent(now time.Duration, size unit.Bytes, rate unit.Rate) {
	from := max(p.nextSendTime, now-maxBurst)
	if rate > 0 {
		p.nextSendTime = min(from+rate.Time(size), now+maxPause)
	}
	if p.maxRate > 0 {
		p.nextSendTime = max(p.nextSendTime, from+p.maxRate.Time(size))
	}
}

// reset lets a packet leave now.
func (p *pacer) reset(now time.Duration) { p.nextSendTime = now }
