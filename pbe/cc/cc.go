// SPDX-License-Identifier: Apache-2.0

// Package cc has congestion controllers: the sender of PBE-CC and those that it is compared with. A
// transport reports what it sends, what is acknowledged and what is lost. Its pacer asks for rate
// and window. The package is pure: times are durations since any fixed moment, the same for all
// calls, and never decrease.
//
// PBE-CC names two rates of a device's cells. C_t is what remains for the transport of the physical
// capacity C_p, without retransmissions and overhead. C_f is the device's fair share of the cells.
// The receiver computes both (package pbe/cell), and CellFeedback carries them in acknowledgements.
//
// Package lab/virtual runs controllers side by side in virtual time. Controllers cannot distinguish
// that from real sockets.
package cc

import (
	"time"

	"mpbond/base/unit"
)

// MSS is the size of a full packet with the headers of UDP and IP. Rates of controllers include
// headers, as those of links do.
const MSS unit.Bytes = 1500

// Ack describes the packets that one acknowledgement newly acknowledges.
type Ack struct {
	Now time.Duration
	// Bytes and Packets count what is newly acknowledged.
	Bytes   unit.Bytes
	Packets int
	// RTT is the round trip time of the newest acknowledged packet, 0 if unknown (that packet was
	// sent twice).
	RTT time.Duration
	// OneWay is the one-way delay of that packet by two unsynchronized clocks. Only differences are
	// meaningful.
	OneWay time.Duration
	// Sent is when the newest of them was sent. A controller ignores losses of packets sent before
	// its last reaction.
	Sent time.Duration
	// Rate is the delivery-rate sample (draft-cheng-iccrg-delivery-rate-estimation), 0 if there is
	// none. AppLimited reports that the application, not the network, limited it.
	Rate       unit.Rate
	AppLimited bool
	// Round reports the end of a round trip: the newest packet was sent after the previous round
	// had ended.
	Round bool
	// InFlight counts the bytes that are neither acknowledged nor lost.
	InFlight unit.Bytes
	// Delivered counts all bytes acknowledged since the beginning.
	Delivered unit.Bytes
	// Cells is the receiver's feedback on its cells. The zero value means that there is none.
	Cells CellFeedback
}

// CellFeedback is PBE-CC's feedback in an acknowledgement (section 4.2.3 of the paper, which sends
// the spacing of two packets instead of a rate).
type CellFeedback struct {
	// TransportRate is the flow's part of C_t; 0 means no feedback. FairRate is its part of C_f,
	// without retransmissions and overhead. The active flows of a device have equal parts.
	TransportRate, FairRate unit.Rate
	// Internet reports that the bottleneck is not the cell: one-way delays exceed the threshold, so
	// packets wait somewhere before the cell.
	Internet bool
	// Activated counts how often the network has activated another carrier.
	Activated uint8
	// Inactive reports that another cell could serve the device and does not.
	Inactive bool
	// Invalid reports that earlier feedback does not hold: the receiver knows that its measurements are wrong.
	// The sender uses its own at once.
	Invalid bool
}

// Loss describes packets declared lost at one time.
type Loss struct {
	Now   time.Duration
	Bytes unit.Bytes
	// Sent is when the newest of them left: a loss of before the last reaction asks
	// for no other one.
	Sent     time.Duration
	InFlight unit.Bytes
	// PersistentCongestion reports persistent congestion (RFC 9002 section 7.6): all packets of several probe
	// timeouts were lost. It is known when a packet arrives again.
	PersistentCongestion bool
}

// Limits are the current limits for a sender.
type Limits struct {
	// Rate is the pacing rate, 0 for none. Window bounds the bytes in flight.
	Rate   unit.Rate
	Window unit.Bytes
	// Until is when the window may grow by itself. A sender limited by the window asks again then.
	// Zero means that only an acknowledgement or a loss changes the window.
	Until time.Duration
}

// Controller is the congestion controller of one flow. Its methods are called in the order of
// events. It is not safe for concurrent use.
type Controller interface {
	// OnSent reports a sent packet. inFlight includes it.
	OnSent(now time.Duration, size, inFlight unit.Bytes)
	OnAck(Ack)
	OnLoss(Loss)
	// Limits may be called at any time.
	Limits(now time.Duration) Limits
}

// scaleRate returns r multiplied by a factor.
func scaleRate(r unit.Rate, by float64) unit.Rate { return unit.Rate(float64(r) * by) }
