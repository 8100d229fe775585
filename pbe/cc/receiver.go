package cc

import (
	"slices"
	"time"

	"mpbond/base/unit"
)

// Specification: section 4.2.3 of the paper.
const (
	// DelayThreshold is what a one-way delay may be over the least one: three
	// retransmissions of 8 ms, and 3 ms of jitter.
	DelayThreshold = 3*8*time.Millisecond + 3*time.Millisecond
	// switchPackets times the bits of a subframe, in packets, is how many
	// packets in turn must be over it (or under it).
	switchPackets = 6
)

// Device is what the receivers of one device have in common: its capacity is
// split equally among the flows that had a packet of late. (Each of two flows that
// were told all of it would send that.) It and its receivers are not safe for
// concurrent use. The zero value is ready.
type Device struct {
	receivers []*Receiver
}

// flowIdleTimeout is how long a flow counts after its last packet.
const flowIdleTimeout = 500 * time.Millisecond

// AddReceiver adds one to the device.
func (d *Device) AddReceiver() *Receiver {
	r := &Receiver{device: d}
	d.receivers = append(d.receivers, r)
	return r
}

// RemoveReceiver takes one out whose flow has ended.
func (d *Device) RemoveReceiver(r *Receiver) {
	d.receivers = slices.DeleteFunc(d.receivers, func(x *Receiver) bool { return x == r })
}

// countActiveFlows counts flows that had a packet of late.
func (d *Device) countActiveFlows(now time.Duration) (n unit.Rate) {
	for _, r := range d.receivers {
		if r.started && now-r.lastPacketTime <= flowIdleTimeout {
			n++
		}
	}
	return n
}

// Receiver is PBE-CC's receiver: it tells by one-way delays whether the cell or
// the network before it is the bottleneck. The zero value is ready, and the only
// one of its device.
type Receiver struct {
	device         *Device
	minDelay       windowedExtreme
	started        bool
	lastPacketTime time.Duration
	packetsOver    int
	packetsUnder   int
	internet       bool
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
	if !r.started {
		r.minDelay.keepsLeast, r.started = true, true
	}
	r.lastPacketTime = now
	if r.device != nil {
		n := r.device.countActiveFlows(now)
		c.Transport, c.Fair = c.Transport/n, c.Fair/n
	}
	r.minDelay.addSample(int64(now), int64(oneWay), int64(pbeMinRTTWindow))
	if oneWay > time.Duration(r.minDelay.value())+DelayThreshold && !c.Full {
		r.packetsOver, r.packetsUnder = r.packetsOver+1, 0
	} else {
		r.packetsOver, r.packetsUnder = 0, r.packetsUnder+1
	}
	need := max(1, int(switchPackets*c.Transport.Bytes(time.Millisecond)/MSS))
	if r.packetsOver >= need {
		r.internet = true
	} else if r.packetsUnder >= need {
		r.internet = false
	}
	return Radio{Capacity: c.Transport, Fair: c.Fair, Internet: r.internet, Activated: uint8(c.Activated)}
}
