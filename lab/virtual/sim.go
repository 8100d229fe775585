// SPDX-License-Identifier: Apache-2.0

// Package virtual runs congestion controllers over model links in virtual time. It simulates
// thousands of seconds in seconds, and each run is repeatable. It connects the controllers of
// pbe/cc to a Link. In contrast to real transports every packet is full and has its own
// acknowledgement, which leaves at once, or with an uplink grant, and is never lost.
package virtual

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"mpbond/base/event"
	"mpbond/base/unit"
	"mpbond/lab/lte"
	"mpbond/pbe/cc"
)

// Never is a time that is not reached.
const Never = time.Duration(math.MaxInt64)

// Packet is one packet of a flow.
type Packet struct {
	Flow int
	Size unit.Bytes
	// Sent is when it left its sender, Arrived when it reached the link.
	Sent, Arrived time.Duration
	// RTprop is the sender's minimum RTT at that time, 0 at first.
	RTprop time.Duration

	seq      int64
	mark     cc.Mark
	received time.Duration   // when it reached its receiver
	radio    cc.CellFeedback // feedback in its acknowledgement
}

// Link is a bottleneck in virtual time.
type Link interface {
	// Offer passes a packet to the link, which then owns it. It returns false if the packet is
	// dropped.
	Offer(now time.Duration, p *Packet) bool
	// Next returns when Leave must be called next, Never if not before an Offer.
	Next() time.Duration
	// Leave appends the packets that leave the link at now.
	Leave(now time.Duration, out []*Packet) []*Packet
}

// Flow is one bulk transfer.
type Flow struct {
	Controller cc.Controller
	Start, End time.Duration
	// DelayToLink is the delay from the sender to the link, DelayFromLink from the link to the
	// receiver. AckDelay is the delay of acknowledgements.
	DelayToLink, DelayFromLink, AckDelay time.Duration
	// ExtraDelay, if set, is a further delay from the sender to the link, as of another route. Packets keep their order.
	ExtraDelay func(now time.Duration) time.Duration
	// Uplink, if set, delays acknowledgements until the device may send.
	Uplink *lte.Uplink
	// Feedback, if set, returns the feedback for a packet that reaches the receiver.
	Feedback func(now time.Duration, p *Packet) cc.CellFeedback
	// Loss is the share of packets dropped at random before the link, 0 to 1.
	Loss float64
	// Rate, if set, is the sending rate whatever the controller (which may be nil) allows: a
	// competitor.
	Rate func(now time.Duration) unit.Rate
}

// Result is the result of one flow.
type Result struct {
	Sent, Lost, Delivered unit.Bytes
	// Arrivals has the packets that arrived, in order.
	Arrivals []Arrival
	// SlotBytes are the bytes delivered in each slot of SlotLength since the beginning, SlotLost
	// the bytes declared lost.
	SlotBytes, SlotLost []unit.Bytes
}

// Arrival is a packet that reached its receiver.
type Arrival struct {
	At    time.Duration
	Delay time.Duration // one-way delay
}

// SlotLength is the length of a slot of Result.
const SlotLength = 100 * time.Millisecond

// Rate returns the mean rate between two times.
func (r Result) Rate(from, to time.Duration) unit.Rate {
	return unit.RateOf(sumSlotBytes(r.SlotBytes, from, to), to-from)
}

// Loss returns the share of bytes lost between two times.
func (r Result) Loss(from, to time.Duration) float64 {
	lost, came := sumSlotBytes(r.SlotLost, from, to), sumSlotBytes(r.SlotBytes, from, to)
	return float64(lost) / float64(max(lost+came, 1))
}

// sumSlotBytes returns the sum of the slots between two times.
func sumSlotBytes(each []unit.Bytes, from, to time.Duration) (n unit.Bytes) {
	for i := int(from / SlotLength); i < int(to/SlotLength) && i < len(each); i++ {
		n += each[i]
	}
	return n
}

// Delay returns quantile q (0 to 1) of the one-way delays of packets that arrived between two
// times, 0 if there are none.
func (r Result) Delay(from, to time.Duration, q float64) time.Duration {
	var d []time.Duration
	for _, a := range r.Arrivals {
		if a.At >= from && a.At < to {
			d = append(d, a.Delay)
		}
	}
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[min(int(q*float64(len(d))), len(d)-1)]
}

// reorderThreshold is how many later packets must be acknowledged before one is declared lost (RFC
// 9002 section 6.1.1). minTimeout is the minimum timeout that declares all lost (RFC 6298 as in
// Linux).
const (
	reorderThreshold = 3
	minTimeout       = 200 * time.Millisecond
)

// eventKind is a kind of event.
type eventKind uint8

const (
	wakeEvent    eventKind = iota // a flow may send
	arriveEvent                   // a packet reaches the link
	receiveEvent                  // a packet reaches its receiver
	ackEvent                      // an acknowledgement reaches its sender
	timeoutEvent
)

// simEvent is an event of a flow.
type simEvent struct {
	at   time.Duration
	kind eventKind
	flow int
	p    *Packet
}

// flowState is the state of a running Flow.
type flowState struct {
	Flow
	sampler          cc.Sampler
	nextSeq          int64     // sequence number of the next packet
	unacked          []*Packet // by sequence number; nil where acknowledged or lost
	firstSeq         int64     // sequence number of unacked[0]
	inFlight         unit.Bytes
	nextSendTime     time.Duration // when the pacer allows the next packet
	wakeTime         time.Duration // time of the scheduled wakeEvent
	timeoutScheduled bool          // a timeoutEvent is scheduled
	srtt             time.Duration
	minRTT           time.Duration
	lastAckTime      time.Duration // last acknowledgement
	lastArrival      time.Duration // of a packet at the link
	result           Result
}

// simulation is one run.
type simulation struct {
	link   Link
	flows  []*flowState
	events event.Queue[simEvent]
	random *rand.Rand
	out    []*Packet
}

// Run simulates the flows over the link for length. seed decides losses.
func Run(link Link, length time.Duration, seed uint64, flows ...Flow) []Result {
	w := &simulation{link: link, random: rand.New(rand.NewPCG(seed, 1))}
	for i, f := range flows {
		g := &flowState{Flow: f, wakeTime: Never}
		g.result.SlotBytes = make([]unit.Bytes, int(length/SlotLength)+1)
		g.result.SlotLost = make([]unit.Bytes, len(g.result.SlotBytes))
		if g.End == 0 {
			g.End = length
		}
		w.flows = append(w.flows, g)
		g.wakeTime = f.Start
		w.scheduleSimEvent(simEvent{at: f.Start, kind: wakeEvent, flow: i})
	}
	for {
		t := w.link.Next()
		if w.events.Len() > 0 {
			t = min(t, w.events.Next())
		}
		if t > length {
			break
		}
		if w.link.Next() <= t {
			w.out = w.link.Leave(t, w.out[:0])
			for _, p := range w.out {
				w.scheduleSimEvent(simEvent{at: t + w.flows[p.Flow].DelayFromLink, kind: receiveEvent, flow: p.Flow, p: p})
			}
			continue
		}
		_, e := w.events.Pop()
		w.handleFlowEvent(e)
	}
	results := make([]Result, len(w.flows))
	for i, f := range w.flows {
		results[i] = f.result
	}
	return results
}

// scheduleSimEvent adds an event.
func (w *simulation) scheduleSimEvent(e simEvent) { w.events.Push(e.at, e) }

// handleFlowEvent handles an event at its time.
func (w *simulation) handleFlowEvent(e simEvent) {
	f := w.flows[e.flow]
	switch e.kind {
	case wakeEvent:
		if e.at != f.wakeTime {
			return // replaced by an earlier one
		}
		f.wakeTime = Never
		w.sendWithinLimits(e.at, e.flow, f)
	case arriveEvent:
		e.p.Arrived = e.at
		if !(f.Loss > 0 && w.random.Float64() < f.Loss) {
			w.link.Offer(e.at, e.p)
		}
	case receiveEvent:
		e.p.received = e.at
		f.result.Delivered += e.p.Size
		f.result.Arrivals = append(f.result.Arrivals, Arrival{e.at, e.at - e.p.Sent})
		f.result.SlotBytes[min(int(e.at/SlotLength), len(f.result.SlotBytes)-1)] += e.p.Size
		if f.Feedback != nil {
			e.p.radio = f.Feedback(e.at, e.p)
		}
		leaves := e.at
		if f.Uplink != nil {
			leaves = f.Uplink.NextGrant(e.at)
		}
		w.scheduleSimEvent(simEvent{at: leaves + f.AckDelay, kind: ackEvent, flow: e.flow, p: e.p})
	case ackEvent:
		f.handleFlowAck(e)
		w.sendWithinLimits(e.at, e.flow, f)
	case timeoutEvent:
		f.timeoutScheduled = false
		w.handleTimeout(e.at, e.flow, f)
	}
}

// sendWithinLimits sends what pacer and window allow, and schedules the next attempt.
func (w *simulation) sendWithinLimits(now time.Duration, i int, f *flowState) {
	if f.Rate != nil {
		w.sendAtRate(now, i, f)
		return
	}
	for now < f.End {
		l := f.Controller.Limits(now)
		if f.inFlight+cc.MSS > l.Window {
			if l.Until > now {
				w.scheduleFlowWake(l.Until, i, f)
			}
			return
		}
		if f.nextSendTime > now {
			w.scheduleFlowWake(f.nextSendTime, i, f)
			return
		}
		w.sendFlowPacket(now, i, f)
		if l.Rate > 0 {
			f.nextSendTime = max(f.nextSendTime, now-l.Rate.Time(cc.MSS)) + l.Rate.Time(cc.MSS)
		}
	}
}

// scheduleFlowWake schedules a wakeEvent of flow i unless an earlier one is scheduled.
func (w *simulation) scheduleFlowWake(at time.Duration, i int, f *flowState) {
	if f.wakeTime > at {
		f.wakeTime = at
		w.scheduleSimEvent(simEvent{at: at, kind: wakeEvent, flow: i})
	}
}

// sendAtRate sends the packets of a flow with a given rate, without a window.
func (w *simulation) sendAtRate(now time.Duration, i int, f *flowState) {
	if now >= f.End || f.wakeTime != Never {
		return
	}
	r := f.Rate(now)
	next := now + time.Millisecond
	if r > 0 {
		w.sendFlowPacket(now, i, f)
		next = now + r.Time(cc.MSS)
	}
	w.scheduleFlowWake(next, i, f)
}

// sendFlowPacket sends one packet of flow i.
func (w *simulation) sendFlowPacket(now time.Duration, i int, f *flowState) {
	p := &Packet{
		Flow:   i,
		Size:   cc.MSS,
		Sent:   now,
		RTprop: f.minRTT,
		seq:    f.nextSeq,
		mark:   f.sampler.OnSent(now, f.inFlight),
	}
	if len(f.unacked) == 0 {
		f.firstSeq = f.nextSeq
		f.lastAckTime = now
		if f.Controller != nil && !f.timeoutScheduled {
			f.timeoutScheduled = true
			w.scheduleSimEvent(simEvent{at: now + f.timeoutDelay(), kind: timeoutEvent, flow: i})
		}
	}
	f.nextSeq++
	f.unacked = append(f.unacked, p)
	f.inFlight += p.Size
	f.result.Sent += p.Size
	if f.Controller != nil {
		f.Controller.OnSent(now, p.Size, f.inFlight)
	}
	at := now + f.DelayToLink
	if f.ExtraDelay != nil {
		at += f.ExtraDelay(now)
	}
	f.lastArrival = max(f.lastArrival, at)
	w.scheduleSimEvent(simEvent{at: f.lastArrival, kind: arriveEvent, flow: i, p: p})
}

// timeoutDelay returns the retransmission timeout.
func (f *flowState) timeoutDelay() time.Duration {
	if f.srtt == 0 {
		return time.Second
	}
	return max(2*f.srtt, minTimeout)
}

// handleTimeout declares all packets lost if no acknowledgement has arrived for a timeout.
func (w *simulation) handleTimeout(now time.Duration, i int, f *flowState) {
	if len(f.unacked) == 0 {
		return
	}
	if due := f.lastAckTime + f.timeoutDelay(); now < due {
		f.timeoutScheduled = true
		w.scheduleSimEvent(simEvent{at: due, kind: timeoutEvent, flow: i})
		return
	}
	l := cc.Loss{Now: now, PersistentCongestion: true}
	for _, p := range f.unacked {
		if p != nil {
			l.Bytes += p.Size
			l.Sent = p.Sent
		}
	}
	f.unacked, f.inFlight = f.unacked[:0], 0
	f.recordLost(now, l.Bytes)
	f.Controller.OnLoss(l)
	f.nextSendTime = now
	w.sendWithinLimits(now, i, f)
}

// recordLost counts n lost bytes.
func (f *flowState) recordLost(now time.Duration, n unit.Bytes) {
	f.result.Lost += n
	f.result.SlotLost[min(int(now/SlotLength), len(f.result.SlotLost)-1)] += n
}

// handleFlowAck handles the acknowledgement of one packet.
func (f *flowState) handleFlowAck(e simEvent) {
	f.lastAckTime = e.at
	i := e.p.seq - f.firstSeq
	if i < 0 || int(i) >= len(f.unacked) || f.unacked[i] == nil {
		return // declared lost before
	}
	p := f.unacked[i]
	f.unacked[i] = nil
	f.inFlight -= p.Size
	rtt := e.at - p.Sent
	if f.srtt == 0 {
		f.srtt, f.minRTT = rtt, rtt
	}
	f.srtt += (rtt - f.srtt) / 8
	f.minRTT = min(f.minRTT, rtt)
	f.sampler.OnDelivered(e.at, p.Size)
	a := cc.Ack{Now: e.at, Bytes: p.Size, Packets: 1, RTT: rtt, OneWay: p.received - p.Sent, Cells: p.radio}
	f.sampler.FillAck(&a, p.mark, f.minRTT)
	for j := int64(0); j+reorderThreshold <= i; j++ {
		if q := f.unacked[j]; q != nil {
			f.unacked[j] = nil
			f.inFlight -= q.Size
			f.recordLost(e.at, q.Size)
			if f.Controller != nil {
				f.Controller.OnLoss(cc.Loss{Now: e.at, Bytes: q.Size, Sent: q.Sent, InFlight: f.inFlight})
			}
		}
	}
	drop := 0
	for drop < len(f.unacked) && f.unacked[drop] == nil {
		drop++
	}
	f.unacked = f.unacked[drop:]
	f.firstSeq += int64(drop)
	a.InFlight = f.inFlight
	if f.Controller != nil {
		f.Controller.OnAck(a)
	}
}

// Wire is a link with a variable rate and a bounded queue.
type Wire struct {
	rate          func(now time.Duration) unit.Rate
	buffer        unit.Bytes
	queue         []*Packet
	queued        unit.Bytes
	headDeparture time.Duration // when the first packet leaves
}

// NewWire returns a link that sends packets one by one, each at the rate when its transmission
// begins.
func NewWire(rate func(now time.Duration) unit.Rate, buffer unit.Bytes) *Wire {
	return &Wire{rate: rate, buffer: buffer, headDeparture: Never}
}

// SteadyRate returns a constant rate.
func SteadyRate(r unit.Rate) func(time.Duration) unit.Rate {
	return func(time.Duration) unit.Rate { return r }
}

// Offer implements Link.
func (l *Wire) Offer(now time.Duration, p *Packet) bool {
	if l.queued+p.Size > l.buffer {
		return false
	}
	l.queue = append(l.queue, p)
	l.queued += p.Size
	if len(l.queue) == 1 {
		l.headDeparture = now + l.rate(now).Time(p.Size)
	}
	return true
}

// Next implements Link.
func (l *Wire) Next() time.Duration { return l.headDeparture }

// Leave implements Link.
func (l *Wire) Leave(now time.Duration, out []*Packet) []*Packet {
	for len(l.queue) > 0 && l.headDeparture <= now {
		p := l.queue[0]
		l.queue = l.queue[1:]
		l.queued -= p.Size
		out = append(out, p)
		if len(l.queue) == 0 {
			l.headDeparture = Never
		} else {
			l.headDeparture += l.rate(l.headDeparture).Time(l.queue[0].Size)
		}
	}
	return out
}
