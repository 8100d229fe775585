// Package cc decides how fast a sender may send: PBE-CC's sender and those that
// it is compared with. Before it stands the acknowledgement side of a transport,
// which tells what was sent, acknowledged and lost; behind it that transport's
// pacer, which asks for rate and window. Everything is pure: times are durations
// since any fixed moment, the same for all calls, and never go back.
//
// Controllers run beside each other in virtual time in lab/virtual; they cannot
// tell that from real sockets.
package cc

import (
	"time"

	"mpbond/base/unit"
)

// MSS is the size of a full packet, headers of UDP and IP included: the rates of
// controllers count those too, as the link does.
const MSS unit.Bytes = 1500

// Ack tells of one arrived acknowledgement.
type Ack struct {
	Now time.Duration
	// Bytes are newly acknowledged; Packets are how many packets those were.
	Bytes   unit.Bytes
	Packets int
	// RTT is of the newest packet acknowledged, 0 if it cannot be told (that
	// packet was sent twice).
	RTT time.Duration
	// OneWay is its one-way delay by the two clocks, which differ by a constant
	// that nobody knows: only differences mean something.
	OneWay time.Duration
	// Sent is when that packet left.
	Sent time.Duration
	// Rate is the delivery-rate sample (draft-cheng-iccrg-delivery-rate-estimation),
	// 0 if there is none. SetAppLimited says that the app, not the network, bounded it.
	Rate       unit.Rate
	AppLimited bool
	// Round says that a round trip has passed: the newest packet was sent after
	// the last round had ended.
	Round bool
	// InFlight is what is not acknowledged yet, and not lost.
	InFlight unit.Bytes
	// Delivered is all that was acknowledged since the beginning.
	Delivered unit.Bytes
	// Radio is what the receiver knows of its cells. The zero value says: nothing.
	Radio Radio
}

// Radio is PBE-CC's feedback, in each acknowledgement (section 4.2.3 of the
// paper; it sends the spacing of two packets there, which is the same).
type Radio struct {
	// Capacity is C_t and Fair the transport's part of C_f; 0 for no feedback.
	Capacity, Fair unit.Rate
	// Internet says that the bottleneck is not the cell: one-way delays are over
	// the threshold, so that packets wait somewhere before it.
	Internet bool
	// Activated counts how often the network gave another carrier.
	Activated uint8
}

// Loss tells of packets that are taken for lost, one or several at once.
type Loss struct {
	Now   time.Duration
	Bytes unit.Bytes
	// Sent is when the newest of them left: a loss of before the last reaction asks
	// for no other one.
	Sent     time.Duration
	InFlight unit.Bytes
	// Timeout says that nothing came through for several probe timeouts, as is
	// known now that something does (RFC 9002 section 7.6, persistent congestion), and
	// that what was in flight meanwhile is lost.
	Timeout bool
}

// Limits is what a sender may do now.
type Limits struct {
	// Rate paces packets, 0 for not at all. Window bounds the bytes in flight.
	Rate   unit.Rate
	Window unit.Bytes
	// Until is when the window may grow by time alone, 0 for only with what is
	// told: who is held by the window asks again then.
	Until time.Duration
}

// Controller is one congestion controller of one flow. It is told everything in
// the order in which it happens, by one goroutine.
type Controller interface {
	// OnSent tells that a packet left; inFlight counts it.
	OnSent(now time.Duration, size, inFlight unit.Bytes)
	OnAck(Ack)
	OnLoss(Loss)
	// Limits may be asked at any time.
	Limits(now time.Duration) Limits
}

// scaleRate is r times a factor.
func scaleRate(r unit.Rate, by float64) unit.Rate { return unit.Rate(float64(r) * by) }
