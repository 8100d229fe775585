// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"time"

	"mpbond/base/unit"
)

// Messages divides the bytes of one stream into messages: requests and their answers. A message
// ends when its sender answers the other end, or pauses for over messageGap. The zero value is a
// new stream.
type Messages struct {
	directions [2]messageDirection // down, up
	rtt        time.Duration       // from AddBytes; 0: unknown
}

// messageDirection is one direction of a stream.
type messageDirection struct {
	size unit.Bytes // of the present message so far; 0: there was none
	last time.Time  // when bytes last moved
	// asked is when the other direction moved what the next bytes may answer; zero: not since last.
	asked time.Time
}

// Message is a message that has ended.
type Message struct {
	Up   bool
	Size unit.Bytes
	End  time.Time // when its last bytes moved
}

const (
	// messageGap is the longest pause within a message. A server that reads from a disk or another
	// server pauses for less.
	messageGap = 500 * time.Millisecond
	// LeastMessage is the least size of a piece that begins a message, or can be answered. Window
	// updates of HTTP/2 are smaller, and come within an answer.
	LeastMessage = 64
	// An answer comes no sooner after its request than answerShare of the least round trip, or
	// leastAnswerTime. Bytes that come sooner were on their way already.
	leastAnswerTime = 5 * time.Millisecond
	answerShare     = 0.75
)

// AddBytes records that n bytes moved in one direction. It returns the message that they end, if
// they begin another one. leastRTT returns the least round trip to the far end, 0 if it is unknown;
// it is called only for bytes that may answer.
func (m *Messages) AddBytes(now time.Time, up bool, n unit.Bytes, leastRTT func() time.Duration) (ended Message,
	hasEnded bool) {
	own, other := m.direction(up), m.direction(!up)
	if !up && !own.asked.IsZero() {
		m.rtt = leastRTT()
	}
	if !m.continues(now, up) {
		if n < LeastMessage {
			return ended, false
		}
		if hasEnded = own.size > 0; hasEnded {
			ended = Message{Up: up, Size: own.size, End: own.last}
		}
		own.size = 0
	}
	own.size += n
	own.last, own.asked = now, time.Time{}
	if n >= LeastMessage && other.asked.IsZero() {
		other.asked = now
	}
	return ended, hasEnded
}

// continues reports whether bytes that move now belong to the present message of their direction.
func (m *Messages) continues(now time.Time, up bool) bool {
	d := m.direction(up)
	if d.size == 0 || now.Sub(d.last) > messageGap {
		return false
	}
	since := d.asked
	if up { // an app answers at once, but not before the answer to its last bytes
		since = d.last
	}
	return d.asked.IsZero() || now.Sub(since) < m.leastAnswer()
}

// leastAnswer returns how long an answer takes at least.
func (m *Messages) leastAnswer() time.Duration {
	return max(leastAnswerTime, time.Duration(answerShare*float64(m.rtt)))
}

// EndOpen returns the messages that are open when the stream ends.
func (m *Messages) EndOpen() (ended []Message) {
	for _, up := range [...]bool{false, true} {
		if d := m.direction(up); d.size > 0 {
			ended = append(ended, Message{Up: up, Size: d.size, End: d.last})
			d.size = 0
		}
	}
	return ended
}

// PresentSize returns the size of the present message of a direction so far. It is 0 if there is
// none, or if it has been quiet for as long as an answer takes at least: then it is complete as far
// as can be known.
func (m *Messages) PresentSize(now time.Time, up bool) unit.Bytes {
	d := m.direction(up)
	if d.size == 0 || now.Sub(d.last) > m.leastAnswer() {
		return 0
	}
	return d.size
}

// direction returns one direction.
func (m *Messages) direction(up bool) *messageDirection {
	if up {
		return &m.directions[1]
	}
	return &m.directions[0]
}
