package cc

import (
	"slices"
	"time"

	"mpbond/base/unit"
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

// Device is what the receivers of one device have in common: its capacity is
// split equally among the flows that had a packet of late. (Each of two flows that
// were told all of it would send that.) It and its receivers are not safe for
// concurrent use. The zero value is ready.
type Device struct {
	receivers []*Receiver
}

// deviceIdle is how long a flow counts after its last packet.
const deviceIdle = 500 * time.Millisecond

// Receiver adds one to the device.
func (d *Device) Receiver() *Receiver {
	r := &Receiver{device: d}
	d.receivers = append(d.receivers, r)
	return r
}

// Remove takes one out whose flow has ended.
func (d *Device) Remove(r *Receiver) {
	d.receivers = slices.DeleteFunc(d.receivers, func(x *Receiver) bool { return x == r })
}

// active counts flows that had a packet of late.
func (d *Device) active(now time.Duration) (n unit.Rate) {
	for _, r := range d.receivers {
		if r.begun && now-r.heard <= deviceIdle {
			n++
		}
	}
	return n
}

// Receiver is PBE-CC's receiver: it tells by one-way delays whether the cell or
// the network before it is the bottleneck. The zero value is ready, and the only
// one of its device.
type Receiver struct {
	device   *Device
	least    extreme
	begun    bool
	heard    time.Duration
	over     int
	under    int
	internet bool
}

// Capacity is what a Receiver needs to know of the cells.
type Capacity struct {
	Transport, Fair unit.Rate
	Activated       int
	// Full says that the cells gave the device nearly all that it could have, so
	// that a queue is theirs. It is ours: the paper goes by delays alone, and takes a
	// neighbour who comes, or blocks that come again, for a bottleneck elsewhere.
	Full bool
}

// OnPacket takes a packet that arrives with a one-way delay, by clocks that need
// not agree, and returns the feedback for its acknowledgement.
func (r *Receiver) OnPacket(now, oneWay time.Duration, c Capacity) Radio {
	if !r.begun {
		r.least.less, r.begun = true, true
	}
	r.heard = now
	if r.device != nil {
		n := r.device.active(now)
		c.Transport, c.Fair = c.Transport/n, c.Fair/n
	}
	r.least.add(int64(now), int64(oneWay), int64(pbeMinDelay))
	if oneWay > time.Duration(r.least.get())+Threshold && !c.Full {
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
