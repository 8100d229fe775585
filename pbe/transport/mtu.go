package transport

import "time"

// Tuning of the search.
const (
	probeTries   = 3 // of one length, one after the other
	blackHole    = 6 // long packets lost in turn, after a short one arrived
	firstPause   = 5 * time.Second
	longestPause = 10 * time.Minute // RFC 8899 section 5.1.1: PMTU_RAISE_TIMER
)

// payloads are the UDP payloads that are tried, in this order: what is left in
// tunnels and mobile networks, of Ethernet with IPv6 and with IPv4, of jumbo frames.
var payloads = [...]int{1400, 1452, 1472, maxPayload}

// mtuSearch finds which packets the path carries, by sending longer ones that carry
// nothing (RFC 8899; no ICMP is believed).
type mtuSearch struct {
	size  int // that of packets now
	fixed bool
	next  int // index in payloads
	tries int
	out   bool          // a probe is in flight
	at    time.Duration // not before
	pause time.Duration // after the next failure

	longAcked uint64 // highest number of a long packet that arrived, + 1
	short     uint64 // number of one later that was short and arrived, + 1; 0: none is known
	longLost  int    // long ones after that that were lost
}

// probe is the length of packet to try now, 0 for none.
func (m *mtuSearch) probe(now time.Duration) int {
	for m.next < len(payloads) && payloads[m.next] <= m.size {
		m.next++
	}
	if m.fixed || m.out || now < m.at || m.next >= len(payloads) {
		return 0
	}
	m.out = true
	return payloads[m.next]
}

// arrived is told of each packet's payload that arrived for the first time, and
// whether it was a probe.
func (m *mtuSearch) arrived(number uint64, size int, probe bool) {
	if probe {
		m.out, m.tries, m.pause = false, 0, 0
		m.size = max(m.size, size)
	}
	switch {
	case size > minPayload:
		m.longAcked, m.longLost = max(m.longAcked, number+1), 0
		if m.short <= m.longAcked {
			m.short = 0
		}
	case m.short == 0 && number >= m.longAcked:
		m.short = number + 1
	}
}

// lost is told of each packet that was lost.
func (m *mtuSearch) lost(now time.Duration, number uint64, size int, probe bool) {
	switch {
	case probe:
		// Any packet may be lost: only several in turn say something, and not for
		// ever.
		m.out = false
		if m.tries++; m.tries >= probeTries {
			m.rest(now)
		}
	case size > minPayload && m.short > 0 && number >= m.short:
		// Where short ones arrive and long ones do not; an outage takes both.
		if m.longLost++; m.longLost >= blackHole && m.size > minPayload {
			m.size = minPayload
			m.rest(now)
		}
	}
}

// refused is told that the device did not take packets of so many bytes. If that was
// a probe, another try is of no use.
func (m *mtuSearch) refused(bytes int) {
	if m.out && m.next < len(payloads) && bytes == payloads[m.next] {
		m.tries = probeTries - 1
	}
}

// rest ends the search for a while.
func (m *mtuSearch) rest(now time.Duration) {
	m.tries, m.longLost, m.next = 0, 0, 0
	m.pause = min(max(2*m.pause, firstPause), longestPause)
	m.at = now + m.pause
}
