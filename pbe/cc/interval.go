// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"math"
	"time"

	"mpbond/base/unit"
)

// monitorInterval is one monitor interval of PCC: packets sent at one rate, and their outcome.
type monitorInterval struct {
	rate       unit.Rate
	begin, end time.Duration // of sending
	useful     bool          // its utility is needed
	sent       int           // packets
	firstSent  time.Duration // when the first and the last packet were sent
	lastSent   time.Duration
	acked      int
	lost       int
	// Sums for the regression of round trips over sending times, in seconds since begin.
	n, x, y, xx, xy float64
}

// hasAllOutcomes reports whether every packet is acknowledged or lost.
func (m *monitorInterval) hasAllOutcomes() bool { return m.acked+m.lost >= m.sent }

// intervalLossRate returns the share of lost packets.
func (m *monitorInterval) intervalLossRate() float64 {
	if m.acked+m.lost == 0 {
		return 0
	}
	return float64(m.lost) / float64(m.acked+m.lost)
}

// rttGradient returns the increase of the round trip time, in seconds a second.
func (m *monitorInterval) rttGradient() float64 {
	d := m.n*m.xx - m.x*m.x
	if m.n < 2 || d <= 0 {
		return 0
	}
	return (m.n*m.xy - m.x*m.y) / d
}

// sendingRate returns the rate of the sent packets in Mbit/s. A sender without data or window sends
// less than the rate of the interval. Each packet counts with its own transmission time, so the
// result is as exact for few packets as for many.
func (m *monitorInterval) sendingRate() float64 {
	if m.sent == 0 {
		return 0
	}
	return float64(unit.RateOf(unit.Bytes(m.sent)*MSS, m.lastSent-m.firstSent+m.rate.Time(MSS))) / 1e6
}

// intervalList has the monitor intervals of a flow, oldest first. Packets are sent in the newest.
// The sending time of a packet identifies its interval.
type intervalList struct {
	list        []*monitorInterval
	smoothedRTT ewma
}

// pccMinPackets is the minimum number of packets in an interval.
const pccMinPackets = 10

// appendInterval begins an interval with that rate, which lasts for a number of round trips.
func (v *intervalList) appendInterval(now time.Duration, r unit.Rate, rtts float64) *monitorInterval {
	length := time.Duration(rtts * float64(v.smoothedRTT.value))
	if !v.smoothedRTT.valid {
		length = 100 * time.Millisecond
	}
	m := &monitorInterval{rate: r, begin: now, end: now + max(length, r.Time(pccMinPackets*MSS))}
	v.list = append(v.list, m)
	return m
}

// currentInterval returns the interval in which packets are sent, nil before the first.
func (v *intervalList) currentInterval() *monitorInterval {
	if len(v.list) == 0 {
		return nil
	}
	return v.list[len(v.list)-1]
}

// intervalAt returns the interval in which a packet was sent, or nil if it was evaluated already.
func (v *intervalList) intervalAt(sent time.Duration) *monitorInterval {
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

// countSentPacket counts a sent packet.
func (v *intervalList) countSentPacket(now time.Duration) {
	if m := v.intervalAt(now); m != nil {
		if m.sent == 0 {
			m.firstSent = now
		}
		m.sent, m.lastSent = m.sent+1, now
	}
}

// countAckedPackets counts acknowledged packets.
func (v *intervalList) countAckedPackets(a Ack) {
	if a.RTT > 0 {
		v.smoothedRTT.addWeightedDelay(a.RTT, 0.125)
	}
	v.attributePackets(a.Sent, a.Packets, func(m *monitorInterval, n int) { m.acked += n })
	if m := v.intervalAt(a.Sent); m != nil && a.RTT > 0 {
		x, y := (a.Sent - m.begin).Seconds(), a.RTT.Seconds()
		m.n, m.x, m.y, m.xx, m.xy = m.n+1, m.x+x, m.y+y, m.xx+x*x, m.xy+x*y
	}
}

// countLostPackets counts lost packets.
func (v *intervalList) countLostPackets(l Loss) {
	if l.PersistentCongestion {
		for _, m := range v.list {
			m.lost = m.sent - m.acked
		}
		return
	}
	v.attributePackets(l.Sent, max(1, int((l.Bytes+MSS/2)/MSS)), func(m *monitorInterval, n int) { m.lost += n })
}

// attributePackets distributes n acknowledged or lost packets over intervals. The newest was sent
// at that time. A single packet belongs to its own interval. Several belong to the oldest
// incomplete intervals, because they are in order.
func (v *intervalList) attributePackets(sent time.Duration, n int, add func(m *monitorInterval, n int)) {
	if n == 1 {
		if m := v.intervalAt(sent); m != nil && !m.hasAllOutcomes() {
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

// takeComplete removes and returns the oldest interval if it is complete, or if it ended two round
// trips and a second ago. Packets still missing then count as lost. Otherwise it returns nil.
func (v *intervalList) takeComplete(now time.Duration) *monitorInterval {
	if len(v.list) == 0 {
		return nil
	}
	m := v.list[0]
	if now < m.end || !m.hasAllOutcomes() && now < m.end+2*v.smoothedRTT.value+time.Second {
		return nil
	}
	if !m.hasAllOutcomes() {
		m.lost = m.sent - m.acked
	}
	v.list = v.list[1:]
	return m
}

// sigmoid returns 1/(1+e^x).
func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(x)) }
