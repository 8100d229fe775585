package transport

import "time"

// Tuning of the search.
const (
	maxProbeTries   = 3 // of one length, one after the other
	blackHoleLosses = 6 // long packets lost in turn, after a short one arrived
	minSearchPause  = 5 * time.Second
	maxSearchPause  = 10 * time.Minute // RFC 8899 section 5.1.1: PMTU_RAISE_TIMER
)

// probeSizes are the UDP payloads that are tried, in this order: what is left in
// tunnels and mobile networks, of Ethernet with IPv6 and with IPv4, of jumbo frames.
var probeSizes = [...]int{1400, 1452, 1472, maxPayload}

// mtuSearch finds which packets the path carries, by sending longer ones that carry
// nothing (RFC 8899; no ICMP is believed).
type mtuSearch struct {
	size          int // that of packets now
	fixed         bool
	nextIndex     int // index in payloads
	tries         int
	probeInFlight bool          // a probe is in flight
	nextProbeTime time.Duration // not before
	pause         time.Duration // after the next failure

	longAcked  uint64 // highest number of a long packet that arrived, + 1
	shortAcked uint64 // number of one later that was short and arrived, + 1; 0: none is known
	longLost   int    // long ones after that that were lost
}

// nextProbeSize is the length of packet to try now, 0 for none.
func (m *mtuSearch) nextProbeSize(now time.Duration) int {
	for m.nextIndex < len(probeSizes) && probeSizes[m.nextIndex] <= m.size {
		m.nextIndex++
	}
	if m.fixed || m.probeInFlight || now < m.nextProbeTime || m.nextIndex >= len(probeSizes) {
		return 0
	}
	m.probeInFlight = true
	return probeSizes[m.nextIndex]
}

// onAcked is told of each packet's payload that arrived for the first time, and
// whether it was a probe.
func (m *mtuSearch) onAcked(number uint64, size int, probe bool) {
	if probe {
		m.probeInFlight, m.tries, m.pause = false, 0, 0
		m.size = max(m.size, size)
	}
	switch {
	case size > minPayload:
		m.longAcked, m.longLost = max(m.longAcked, number+1), 0
		if m.shortAcked <= m.longAcked {
			m.shortAcked = 0
		}
	case m.shortAcked == 0 && number >= m.longAcked:
		m.shortAcked = number + 1
	}
}

// onLost is told of each packet that was lost.
func (m *mtuSearch) onLost(now time.Duration, number uint64, size int, probe bool) {
	switch {
	case probe:
		// Any packet may be lost: only several in turn say something, and not for
		// ever.
		m.probeInFlight = false
		if m.tries++; m.tries >= maxProbeTries {
			m.pauseSearch(now)
		}
	case size > minPayload && m.shortAcked > 0 && number >= m.shortAcked:
		// Where short ones arrive and long ones do not; an outage takes both.
		if m.longLost++; m.longLost >= blackHoleLosses && m.size > minPayload {
			m.size = minPayload
			m.pauseSearch(now)
		}
	}
}

// onSendRefused is told that the device did not take packets of so many bytes. If that was
// a probe, another try is of no use.
func (m *mtuSearch) onSendRefused(bytes int) {
	if m.probeInFlight && m.nextIndex < len(probeSizes) && bytes == probeSizes[m.nextIndex] {
		m.tries = maxProbeTries - 1
	}
}

// pauseSearch ends the search for a while.
func (m *mtuSearch) pauseSearch(now time.Duration) {
	m.tries, m.longLost, m.nextIndex = 0, 0, 0
	m.pause = min(max(2*m.pause, minSearchPause), maxSearchPause)
	m.nextProbeTime = now + m.pause
}
