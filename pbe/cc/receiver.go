// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"slices"
	"time"

	"mpbond/base/unit"
)

// Specification: section 4.2.3 of the paper.
const (
	// DelayThreshold bounds how much a one-way delay exceeds the minimum without a queue before the
	// cell: three retransmissions of 8 ms, and 3 ms of jitter.
	DelayThreshold = 3*8*time.Millisecond + 3*time.Millisecond
	// switchPackets, times the packets of a subframe, is the number of consecutive packets over or
	// under DelayThreshold that change the state.
	switchPackets = 6
	// minDelayWindow is how long the least delay counts. Senders empty a queue that stood for pbeMinRTTWindow
	// (our choice).
	minDelayWindow = pbeMinRTTWindow + pbeMaxProbe
)

// Device is the common state of the receivers of one device. It divides the capacity equally among
// the active flows. Otherwise each of them would use all of it. The zero value is ready. A Device
// and its receivers are not safe for concurrent use.
type Device struct {
	receivers []*Receiver
}

// flowIdleTimeout is how long a flow counts as active after its last packet.
const flowIdleTimeout = 500 * time.Millisecond

// AddReceiver adds the receiver of a new flow.
func (d *Device) AddReceiver() *Receiver {
	r := &Receiver{device: d}
	d.receivers = append(d.receivers, r)
	return r
}

// RemoveReceiver removes the receiver of a flow that has ended.
func (d *Device) RemoveReceiver(r *Receiver) {
	d.receivers = slices.DeleteFunc(d.receivers, func(x *Receiver) bool { return x == r })
}

// countActiveFlows counts flows that received a packet within flowIdleTimeout.
func (d *Device) countActiveFlows(now time.Duration) (n unit.Rate) {
	for _, r := range d.receivers {
		if r.started && now-r.lastPacketTime <= flowIdleTimeout {
			n++
		}
	}
	return n
}

// Receiver is PBE-CC's receiver. By one-way delays it decides whether the cell or the network
// before it is the bottleneck. The zero value is ready and the only receiver of its device.
type Receiver struct {
	device         *Device
	minDelay       windowedExtreme
	started        bool
	lastPacketTime time.Duration
	packetsOver    int
	packetsUnder   int
	internet       bool
}

// CellRates is the state of a device's cells that a Receiver needs.
type CellRates struct {
	// Transport is C_t, Fair is C_f without retransmissions and overhead. Both are of the device.
	Transport, Fair unit.Rate
	// Activated counts how often the network has activated another carrier.
	Activated int
	// Inactive reports that another carrier could be activated.
	Inactive bool
	// Full reports that the cells gave the device nearly all it could get, so the queue is in the
	// cells. This is our addition: the paper uses delays alone and takes new neighbors or
	// retransmitted blocks for a bottleneck elsewhere.
	Full bool
	// Invalid reports that the state is known to be wrong.
	Invalid bool
}

// OnPacket handles an arriving packet and returns the feedback for its acknowledgement. The clocks
// of the one-way delay need not be synchronized.
func (r *Receiver) OnPacket(now, oneWay time.Duration, c CellRates) CellFeedback {
	if !r.started {
		r.minDelay.keepsLeast, r.started = true, true
	}
	r.lastPacketTime = now
	if r.device != nil {
		n := r.device.countActiveFlows(now)
		c.Transport, c.Fair = c.Transport/n, c.Fair/n
	}
	r.minDelay.addSampleAt(int64(now), int64(oneWay), int64(minDelayWindow))
	if oneWay > time.Duration(r.minDelay.extremeValue())+DelayThreshold && !c.Full {
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
	return CellFeedback{TransportRate: c.Transport, FairRate: c.Fair, Internet: r.internet,
		Activated: uint8(c.Activated), Inactive: c.Inactive, Invalid: c.Invalid}
}
