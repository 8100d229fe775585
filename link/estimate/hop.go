// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"time"

	"mpbond/base/unit"
)

// Hop is the kernel's view of one TCP hop at its sending end at one time (TCP_INFO and SIOCOUTQ on
// Linux). An unknown field is zero.
type Hop struct {
	// Blind reports that the system or carrier knows nothing but Queue and Unsent, and perhaps not
	// even these. The rest is then estimated from the far end's acknowledgements.
	Blind        bool
	SRTT, MinRTT time.Duration
	RTTVar       time.Duration // mean deviation of SRTT (RFC 6298)
	// Rate is the newest delivery-rate sample. AppLimited reports that the application, not the
	// network, limited it: the hop may be faster.
	Rate       unit.Rate
	AppLimited bool
	// Cwnd is the congestion window. SlowStart reports that it still doubles.
	Cwnd      unit.Bytes
	SlowStart bool
	MSS       unit.Bytes
	// Queue counts bytes written to the socket that the hop's other end has not acknowledged in
	// order, so its reader cannot have them. Unsent is the part of Queue that has never left the
	// kernel.
	Queue, Unsent unit.Bytes
	// InFlight is the number of packets in flight; 0 if it is not known. TCP bounds their number,
	// whatever their size, so packets that are not full leave less of Cwnd than their bytes show.
	InFlight uint64
	// Acked counts all bytes that the hop's other end is known to have, including selectively
	// acknowledged ones. It may fall a little.
	Acked uint64
	// Received counts the bytes received in order from the other direction.
	Received uint64
	// WireIn and WireOut count the bytes of IP packets in each direction, with headers and with
	// every retransmission; 0 if the system does not report them. They may be some percent too
	// high. Bytes behind a gap are estimated (before Linux 5.4 they are counted later), so WireIn may
	// fall when the estimate is corrected.
	WireIn, WireOut uint64
	// PathMTU is the longest packet known to fit the path to the hop's other end. Packets counts
	// data packets sent. Retransmitted counts those of them that had been sent before.
	PathMTU                unit.Bytes
	Packets, Retransmitted uint64
	// PacingLimit is the pace set for the sending direction, 0 for none. Measurements under it say
	// nothing about the network.
	PacingLimit unit.Rate
	// Cells is what the receiver reports about its cells (PBE-CC); zero if it never did.
	Cells Cells
}

// isRateGrowing reports whether TCP is in slow start and has not filled the hop: no queue adds to
// the round trip. The bound on the queue is that of HyStart (RFC 9406 section 4.3).
func (h *Hop) isRateGrowing() bool {
	return h.SlowStart && h.SRTT <= h.MinRTT+min(max(h.MinRTT/8, 4*time.Millisecond), 16*time.Millisecond)
}

// Cells is a receiver's report about its cells, and how the sender uses it.
type Cells struct {
	// State names the sender's state; "" before the first report.
	State string
	// Capacity is what the receiver could have now, Fair is its fair share, both as last reported.
	Capacity, Fair unit.Rate
	// Followed reports that the sender follows the report; otherwise it uses its own measurements.
	// With Doubted it does so in part, because less arrives than was reported.
	Followed, Doubted bool
}
