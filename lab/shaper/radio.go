// SPDX-License-Identifier: Apache-2.0

package shaper

import (
	"fmt"
	"time"
)

// Radio is shared by both lines of a radio link. It sleeps when neither line has sent for longer
// than the tail. The next packet in either direction wakes it, which takes the promotion time.
// Packets wait in their queue meanwhile. The radio sleeps when its lines start or rewind. It has no
// clock. Its lines must use the same clock.
type Radio struct {
	promotion, tail time.Duration
	lines           []*Line
	lastActivity    time.Duration // last arrival or departure; never after fallAsleep
	awakeTime       time.Duration // when it is or will be awake
}

// NewRadio returns a sleeping radio with the lines of a link. The lines must be empty and in no
// cell.
func NewRadio(promotion, tail time.Duration, lines ...*Line) (*Radio, error) {
	if promotion <= 0 || tail <= 0 {
		return nil, fmt.Errorf("promotion and tail must both be over 0")
	}
	r := &Radio{promotion: promotion, tail: tail, lines: lines, lastActivity: never}
	for _, l := range lines {
		l.radio = r
	}
	return r, nil
}

// wakeForPacket wakes the radio for a packet and returns when sending can begin.
func (r *Radio) wakeForPacket(now time.Duration) time.Duration {
	busy := false
	for _, l := range r.lines {
		l.advanceLineTo(now) // it may have sent recently
		busy = busy || l.queue.len() > 0
	}
	if !busy && (r.lastActivity == never || now > r.lastActivity+r.tail) {
		r.awakeTime = now + r.promotion
	}
	r.noteActivity(now)
	return max(now, r.awakeTime)
}

// noteActivity records an arrival or departure.
func (r *Radio) noteActivity(at time.Duration) {
	if r.lastActivity == never || at > r.lastActivity {
		r.lastActivity = at
	}
}

// fallAsleep puts the radio to sleep.
func (r *Radio) fallAsleep() { r.lastActivity = never }
