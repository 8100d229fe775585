// SPDX-License-Identifier: Apache-2.0

package virtual

import (
	"math"
	"math/rand/v2"
	"time"

	"mpbond/base/unit"
)

// chain is two links in a row.
type chain struct {
	first, second  Link
	endsAfterFirst func(*Packet) bool // nil: none does
	skipsFirst     func(*Packet) bool // nil: none does
}

// Chain joins two links. Packets that leave the first arrive at the second at once.
func Chain(first, second Link) Link { return &chain{first: first, second: second} }

// Offer implements Link.
func (c *chain) Offer(now time.Duration, p *Packet) bool {
	if c.skipsFirst != nil && c.skipsFirst(p) {
		return c.second.Offer(now, p)
	}
	return c.first.Offer(now, p)
}

// Next implements Link.
func (c *chain) Next() time.Duration { return min(c.first.Next(), c.second.Next()) }

// Leave implements Link.
func (c *chain) Leave(now time.Duration, out []*Packet) []*Packet {
	if c.first.Next() <= now {
		for _, p := range c.first.Leave(now, nil) {
			if c.endsAfterFirst != nil && c.endsAfterFirst(p) {
				out = append(out, p)
			} else {
				c.second.Offer(now, p)
			}
		}
	}
	if c.second.Next() <= now {
		out = c.second.Leave(now, out)
	}
	return out
}

// policer passes a rate and drops the excess.
type policer struct {
	Link
	rate           unit.Rate
	bucket, tokens unit.Bytes
	at             time.Duration // of the newest token
}

// newPolicer returns a link that passes packets at once while tokens are left: rate adds some all the time, up to
// bucket.
func newPolicer(rate unit.Rate, bucket unit.Bytes) *policer {
	return &policer{Link: NewWire(SteadyRate(unit.Gbps), unit.MB), rate: rate, bucket: bucket, tokens: bucket}
}

// Offer implements Link.
func (l *policer) Offer(now time.Duration, p *Packet) bool {
	if more := l.rate.Bytes(now - l.at); more > 0 {
		l.tokens, l.at = min(l.bucket, l.tokens+more), l.at+l.rate.Time(more)
	}
	if l.tokens < p.Size {
		return false
	}
	l.tokens -= p.Size
	return l.Link.Offer(now, p)
}

// jitter is a link that delays packets randomly.
type jitter struct {
	mean time.Duration
	rnd  *rand.Rand
	held []delayedPacket
}

// delayedPacket leaves at a time.
type delayedPacket struct {
	at time.Duration
	p  *Packet
}

// NewJitter returns a link with exponentially distributed delays, of which the share within is at
// most limit. Packets keep their order. In 94 % of the authors' cases wired parts had 3 ms at
// most (section 4.2.3 of PBE-CC).
func NewJitter(limit time.Duration, within float64, seed uint64) Link {
	return &jitter{mean: time.Duration(float64(limit) / -math.Log(1-within)), rnd: rand.New(rand.NewPCG(seed, 12))}
}

// Offer implements Link.
func (j *jitter) Offer(now time.Duration, p *Packet) bool {
	at := now + time.Duration(float64(j.mean)*j.rnd.ExpFloat64())
	if n := len(j.held); n > 0 {
		at = max(at, j.held[n-1].at)
	}
	j.held = append(j.held, delayedPacket{at, p})
	return true
}

// Next implements Link.
func (j *jitter) Next() time.Duration {
	if len(j.held) == 0 {
		return Never
	}
	return j.held[0].at
}

// Leave implements Link.
func (j *jitter) Leave(now time.Duration, out []*Packet) []*Packet {
	for len(j.held) > 0 && j.held[0].at <= now {
		out = append(out, j.held[0].p)
		j.held = j.held[1:]
	}
	return out
}
