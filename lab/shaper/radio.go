package shaper

import (
	"fmt"
	"time"
)

// Radio is what both lines of a link share that goes by a radio: when neither has
// anything to send for longer than the tail, it sleeps; the next packet, in either
// direction, has it wake first, which takes the promotion, and waits in its queue meanwhile,
// as do those that follow. It is asleep when its lines begin or rewind. It has
// no clock, and its lines must be used with the same one.
type Radio struct {
	promotion, tail time.Duration
	lines           []*Line
	lastActivity    time.Duration // what came last, or left last; or never
	awakeTime       time.Duration // it is awake, or will be, from then on
}

// NewRadio makes a radio that sleeps, with the lines of a link, on which nothing may be
// yet, and which may be in no cell.
func NewRadio(promotion, tail time.Duration, lines ...*Line) (*Radio, error) {
	if promotion <= 0 || tail <= 0 {
		return nil, fmt.Errorf("promotion and tail are times over 0, and belong together")
	}
	r := &Radio{promotion: promotion, tail: tail, lines: lines, lastActivity: never}
	for _, l := range lines {
		l.radio = r
	}
	return r, nil
}

// wakeFor takes in that something is to be sent, and returns from when it can be.
func (r *Radio) wakeFor(now time.Duration) time.Duration {
	busy := false
	for _, l := range r.lines {
		l.advanceTo(now) // it may have sent until lately
		busy = busy || l.queue.len() > 0
	}
	if !busy && (r.lastActivity == never || now > r.lastActivity+r.tail) {
		r.awakeTime = now + r.promotion
	}
	r.noteActivity(now)
	return max(now, r.awakeTime)
}

// noteActivity takes in that something came or left.
func (r *Radio) noteActivity(at time.Duration) {
	if r.lastActivity == never || at > r.lastActivity {
		r.lastActivity = at
	}
}

// fallAsleep has it asleep, unless something is under way.
func (r *Radio) fallAsleep() { r.lastActivity = never }
