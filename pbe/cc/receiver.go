package cc

import (
	"time"

	"mpbond/unit"
)

// Specification: section 4.2.3 of the paper.
const (
	// Threshold is what a one-way delay may be over the least one: three
	// retransmissions of 8 ms, and 3 ms of jitter.
	Threshold = 3*8*time.Millisecond + 3*time.Millisecond
	// switchSubframes times the bits of a subframe, in packets, is how many
	// packets in turn must be over it (or under it).
	switchSubframes = 6
)

// Receiver is PBE-CC's receiver: it tells by one-way delays whether the cell or
// the network before it is the bottleneck. The zero value is ready.
type Receiver struct {
	least    extreme
	begun    bool
	over     int
	under    int
	internet bool
}

// Capacity is what a Receiver needs to know of the cells.
type Capacity struct {
	Transport, Fair unit.Rate
	Activated       int
}

// OnPacket takes a packet that arrives with a one-way delay, by clocks that need
// not agree, and returns the feedback for its acknowledgement.
func (r *Receiver) OnPacket(now, oneWay time.Duration, c Capacity) Radio {
	if !r.begun {
		r.least.less, r.begun = true, true
	}
	r.least.add(int64(now), int64(oneWay), int64(pbeMinDelay))
	if oneWay > time.Duration(r.least.get())+Threshold {
		r.over, r.under = r.over+1, 0
	} else {
		r.over, r.under = 0, r.under+1
	}
	need := max(1, int(switchSubframes*c.Transport.Bytes(time.Millisecond)/MSS))
	if r.over >= need {
		r.internet = true
	} else if r.under >= need {
		r.internet = false
	}
	return Radio{Capacity: c.Transport, Fair: c.Fair, Internet: r.internet, Activated: uint8(c.Activated)}
}
