// SPDX-License-Identifier: Apache-2.0

package transport

import "time"

// Tuning of the search.
const (
	maxProbeTries   = 3 // consecutive tries of one length
	blackHoleLosses = 6 // consecutive losses of long packets after a short one arrived
	minSearchPause  = 5 * time.Second
	maxSearchPause  = 10 * time.Minute // PMTU_RAISE_TIMER of RFC 8899 section 5.1.1
)

// probeSizes are the UDP payload sizes to try, in order: for tunnels and mobile networks, for
// Ethernet with IPv6 and with IPv4, and for jumbo frames.
var probeSizes = [...]int{1400, 1452, 1472, maxPayload}

// mtuSearch finds the longest packets that the path carries. It sends padded probes (RFC 8899) and
// ignores ICMP. It is not safe for concurrent use.
type mtuSearch struct {
	size          int // current size of packets
	fixed         bool
	nextIndex     int // index in probeSizes
	tries         int
	probeInFlight bool          // a probe is in flight
	nextProbeTime time.Duration // earliest time of the next probe
	pause         time.Duration // pause after the last failure

	longAcked  uint64 // largest number of a long packet that arrived, + 1
	shortAcked uint64 // number of a later short packet that arrived, + 1; 0: none
	longLost   int    // long packets lost since that short one
}

// nextProbeSize returns the length of the probe to send now, 0 for none.
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

// onPacketAcked handles the first acknowledgement of a packet. size is its UDP payload.
func (m *mtuSearch) onPacketAcked(number uint64, size int, probe bool) {
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

// onPacketLost handles a lost packet. size is its UDP payload.
func (m *mtuSearch) onPacketLost(now time.Duration, number uint64, size int, probe bool) {
	switch {
	case probe:
		// Any packet may be lost: several consecutive losses end the search for a while.
		m.probeInFlight = false
		if m.tries++; m.tries >= maxProbeTries {
			m.pauseSearch(now)
		}
	case size > minPayload && m.shortAcked > 0 && number >= m.shortAcked:
		// Short packets arrive and long ones do not. An outage would lose both.
		if m.longLost++; m.longLost >= blackHoleLosses && m.size > minPayload {
			m.size = minPayload
			m.pauseSearch(now)
		}
	}
}

// onProbeRefused handles packets that the local system refused. If one was a probe, another try is
// useless.
func (m *mtuSearch) onProbeRefused(bytes int) {
	if m.probeInFlight && m.nextIndex < len(probeSizes) && bytes == probeSizes[m.nextIndex] {
		m.tries = maxProbeTries - 1
	}
}

// pauseSearch stops the search for a while. The pause doubles with each failure.
func (m *mtuSearch) pauseSearch(now time.Duration) {
	m.tries, m.longLost, m.nextIndex = 0, 0, 0
	m.pause = min(max(2*m.pause, minSearchPause), maxSearchPause)
	m.nextProbeTime = now + m.pause
}
