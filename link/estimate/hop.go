package estimate

import (
	"time"

	"mpbond/base/unit"
)

// Hop is what the kernel at its sending end tells about one TCP hop at an
// instant (TCP_INFO and SIOCOUTQ on Linux). A field that is not known is zero.
type Hop struct {
	// Blind tells that the system, or the carrier, knows nothing of the hop but
	// Queue and Unsent, if these: others reckon from what the far end acknowledges.
	Blind        bool
	SRTT, MinRTT time.Duration
	RTTVar       time.Duration // mean deviation of SRTT (RFC 6298)
	// Rate is the newest delivery-rate sample. AppLimited tells that it was
	// taken while the application, and not the network, set the pace: the hop
	// may be faster.
	Rate       unit.Rate
	AppLimited bool
	// Cwnd is the congestion window; SlowStart tells that it still doubles.
	Cwnd      unit.Bytes
	SlowStart bool
	MSS       unit.Bytes
	// Queue is what was written to the socket and is not acknowledged in order
	// by the hop's other end: the reader there cannot have it. Unsent is the part of it that has never left the kernel.
	Queue, Unsent unit.Bytes
	// Acked counts all bytes that the hop's other end is known to have,
	// selectively acknowledged ones included. It may fall a little.
	Acked uint64
	// Received counts what this end has of the other direction, in order.
	Received uint64
	// WireIn and WireOut count what came and left as IP packets, headers included,
	// a packet each time that it left; 0 where the system does not tell. They may
	// be some percent too much, and what came behind a gap is counted later.
	WireIn, WireOut uint64
	// PathMTU is the longest packet that the way to the hop's other end is known
	// to take. Packets counts those with data that left, Resent those of them that
	// had left before.
	PathMTU                unit.Bytes
	Packets, Retransmitted uint64
	// PacingLimit is the pace that the sending direction was told to keep to, 0 if
	// none. What is measured under it says nothing about the network.
	PacingLimit unit.Rate
	// Cells is what the hop's other end tells of its cells (PBE-CC), if it ever did.
	Cells Cells
}

// Cells is what a receiver tells of its cells, and what the sender makes of it.
type Cells struct {
	// State is a word for where the sender stands, "" if nothing was told yet.
	State string
	// Capacity is what the receiver could have now, Fair its fair share, both as told last.
	Capacity, Fair unit.Rate
	// Followed says that this is followed; else the sender goes by its own measurements,
	// as it does in part if it doubts what is told, as that does not get through.
	Followed, Doubted bool
}
