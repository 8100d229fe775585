// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"testing"
	"time"
)

// TestMeasureMinRTT: RTprop falls at once. It rises when no round trip has confirmed it for 10 s and the queue
// had time to leave, but not by what was sent before, after a pause, or when the controller changed.
func TestMeasureMinRTT(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name    string
		longer  time.Duration // how long round trips are longer
		disturb func(p *PBE, a *Ack)
		rises   bool
	}{
		{"not for long", 9 * time.Second, nil, false},
		{"for long", 12 * time.Second, nil, true},
		{"all sent before", 12 * time.Second, func(_ *PBE, a *Ack) { a.Sent = 0 }, false},
		{"with a pause before the end", 12 * time.Second, func(p *PBE, a *Ack) {
			if a.Now > 10*time.Second && p.confirmedTime < 9*time.Second {
				p.lastAckTime = a.Now - 2*pbeIdle
			}
		}, false},
		{"the Internet is the bottleneck", 12 * time.Second, func(p *PBE, _ *Ack) { p.state = Internet }, false},
		{"that for longer", 24 * time.Second, func(p *PBE, _ *Ack) { p.state = Internet }, true},
		{"the controller changes", 12 * time.Second, func(p *PBE, a *Ack) {
			p.passive = a.Now > 10*time.Second+50*ms
		}, false},
	} {
		p := NewPBE(1)
		p.state, p.hasFeedback = Wireless, true
		for at := time.Duration(0); at < c.longer; at += 10 * ms {
			a := Ack{Now: at, Sent: at - 90*ms, RTT: 90 * ms}
			if at == 0 {
				a.RTT = 50 * ms
			}
			if c.disturb != nil {
				c.disturb(p, &a)
			}
			p.measureMinRTT(a)
			p.lastAckTime = at
		}
		if got := p.minRTT; got != 50*ms && !c.rises || got != 90*ms && c.rises {
			t.Errorf("%s: %v", c.name, got)
		}
		if p.measureMinRTT(Ack{Now: c.longer, Sent: c.longer, RTT: 40 * ms}); p.minRTT != 40*ms || p.isProbing() {
			t.Errorf("%s, then a shorter round trip: %v", c.name, p.minRTT)
		}
	}
}
