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
	last            time.Duration // what came last, or left last; or never
	up              time.Duration // it is awake, or will be, from then on
}

// NewRadio makes a radio that sleeps, with the lines of a link, on which nothing may be
// yet, and which may be in no cell.
func NewRadio(promotion, tail time.Duration, lines ...*Line) (*Radio, error) {
	if promotion <= 0 || tail <= 0 {
		return nil, fmt.Errorf("promotion and tail are times over 0, and belong together")
	}
	r := &Radio{promotion: promotion, tail: tail, lines: lines, last: never}
	for _, l := range lines {
		l.radio = r
	}
	return r, nil
}

// wake takes in that something is to be sent, and returns from when it can be.
func (r *Radio) wake(now time.Duration) time.Duration {
	busy := false
	for _, l := range r.lines {
		l.advance(now) // it may have sent until lately
		busy = busy || l.queue.len() > 0
	}
	if !busy && (r.last == never || now > r.last+r.tail) {
		r.up = now + r.promotion
	}
	r.moved(now)
	return max(now, r.up)
}

// moved takes in that something came or left.
func (r *Radio) moved(at time.Duration) {
	if r.last == never || at > r.last {
		r.last = at
	}
}

// sleep has it asleep, unless something is under way.
func (r *Radio) sleep() { r.last = never }
