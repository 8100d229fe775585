package cc

import (
	"math"
	"time"

	"mpbond/base/unit"
)

// interval is one monitor interval of PCC: what is sent at one rate, and what
// becomes of it.
type interval struct {
	rate       unit.Rate
	begin, end time.Duration // of sending
	useful     bool          // its utility is asked for
	sent       int           // packets
	first      time.Duration // when the first of them left, and the last
	last       time.Duration
	acked      int
	lost       int
	// Sums for the regression of round trips over sending times, in seconds since
	// begin.
	n, x, y, xx, xy float64
}

func (m *interval) done() bool { return m.acked+m.lost >= m.sent }

// loss is the part that was lost.
func (m *interval) loss() float64 {
	if m.acked+m.lost == 0 {
		return 0
	}
	return float64(m.lost) / float64(m.acked+m.lost)
}

// slope is how much round trips grow in a second.
func (m *interval) slope() float64 {
	d := m.n*m.xx - m.x*m.x
	if m.n < 2 || d <= 0 {
		return 0
	}
	return (m.n*m.xy - m.x*m.y) / d
}

// throughput is what was sent, in Mbit/s: a sender that had nothing to send, or no
// window, sends less than the rate. Each packet has its share of the time, so
// that few packets tell the rate as exactly as many.
func (m *interval) throughput() float64 {
	if m.sent == 0 {
		return 0
	}
	return float64(unit.RateOf(unit.Bytes(m.sent)*MSS, m.last-m.first+m.rate.Time(MSS))) / 1e6
}

// intervals are the monitor intervals of a flow, the oldest first; the newest is
// being sent. Packets are told apart by their sending times.
type intervals struct {
	list []*interval
	rtt  smooth
}

// pccPackets are in an interval at least.
const pccPackets = 10

// begin starts an interval of a rate that lasts for some round trips.
func (v *intervals) begin(now time.Duration, r unit.Rate, rtts float64) *interval {
	length := time.Duration(rtts * float64(v.rtt.v))
	if !v.rtt.set {
		length = 100 * time.Millisecond
	}
	m := &interval{rate: r, begin: now, end: now + max(length, r.Time(pccPackets*MSS))}
	v.list = append(v.list, m)
	return m
}

// newest is the interval that is being sent, nil before the first.
func (v *intervals) newest() *interval {
	if len(v.list) == 0 {
		return nil
	}
	return v.list[len(v.list)-1]
}

// of is the interval in which a packet was sent, nil if it is judged already.
func (v *intervals) of(sent time.Duration) *interval {
	for i := len(v.list) - 1; i >= 0; i-- {
		if m := v.list[i]; sent >= m.begin {
			if sent < m.end {
				return m
			}
			return nil
		}
	}
	return nil
}

func (v *intervals) sent(now time.Duration) {
	if m := v.of(now); m != nil {
		if m.sent == 0 {
			m.first = now
		}
		m.sent, m.last = m.sent+1, now
	}
}

func (v *intervals) acked(a Ack) {
	if a.RTT > 0 {
		v.rtt.add(a.RTT, 0.125)
	}
	v.answered(a.Sent, a.Packets, func(m *interval, n int) { m.acked += n })
	if m := v.of(a.Sent); m != nil && a.RTT > 0 {
		x, y := (a.Sent - m.begin).Seconds(), a.RTT.Seconds()
		m.n, m.x, m.y, m.xx, m.xy = m.n+1, m.x+x, m.y+y, m.xx+x*x, m.xy+x*y
	}
}

func (v *intervals) lost(l Loss) {
	if l.Timeout {
		for _, m := range v.list {
			m.lost = m.sent - m.acked
		}
		return
	}
	v.answered(l.Sent, max(1, int((l.Bytes+MSS/2)/MSS)), func(m *interval, n int) { m.lost += n })
}

// answered tells to which intervals n packets belong that are answered for at
// once, the newest of them sent at a time: one to its own; several to the oldest
// intervals that miss some, since they are in order.
func (v *intervals) answered(sent time.Duration, n int, add func(m *interval, n int)) {
	if n == 1 {
		if m := v.of(sent); m != nil && !m.done() {
			add(m, 1)
		}
		return
	}
	for _, m := range v.list {
		if k := min(n, m.sent-m.acked-m.lost); k > 0 && m.begin <= sent {
			add(m, k)
			n -= k
		}
	}
}

// take returns the oldest interval if all of it is answered for, at now: also
// when it has been over for two round trips and a second, whatever was heard.
func (v *intervals) take(now time.Duration) *interval {
	if len(v.list) == 0 {
		return nil
	}
	m := v.list[0]
	if now < m.end || !m.done() && now < m.end+2*v.rtt.v+time.Second {
		return nil
	}
	if !m.done() {
		m.lost = m.sent - m.acked
	}
	v.list = v.list[1:]
	return m
}

// sigmoid is 1/(1+e^x).
func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(x)) }
