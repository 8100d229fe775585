// Package virtual runs congestion controllers over model links in virtual time:
// thousands of seconds in seconds, each run repeatable. Before it stand the
// controllers of pbe/cc and a Link; behind it whoever judges them by what Run
// returns. What it simplifies beside real transports: every packet is
// full, every packet is acknowledged at once, and acknowledgements are never
// lost.
package virtual

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"mpbond/base/event"
	"mpbond/base/unit"
	"mpbond/pbe/cc"
)

// Never is a time that does not come.
const Never = time.Duration(math.MaxInt64)

// Packet is one packet of a flow.
type Packet struct {
	Flow int
	Size unit.Bytes
	// Sent is when it left its sender, Arrived when it came to the link.
	Sent, Arrived time.Duration
	// RTprop is the least round trip that its sender knew when it left, 0 at first.
	RTprop time.Duration

	seq   int64
	mark  cc.Mark
	radio cc.Radio // what its acknowledgement tells
}

// Link is a bottleneck in virtual time.
type Link interface {
	// Offer brings a packet to the link, which owns it from then on. False says
	// that it is dropped.
	Offer(now time.Duration, p *Packet) bool
	// Next is when Leave must be called next, Never for not before an Offer.
	Next() time.Duration
	// Leave appends the packets that leave the link at now.
	Leave(now time.Duration, out []*Packet) []*Packet
}

// Flow is one bulk transfer.
type Flow struct {
	Controller cc.Controller
	Start, End time.Duration
	// DelayToLink and After are the delays between sender and link, and between link
	// and receiver; Back is that of acknowledgements.
	DelayToLink, DelayFromLink, AckDelay time.Duration
	// Feedback, if set, is asked for feedback when a packet arrives at the receiver.
	Feedback func(now time.Duration, p *Packet) cc.Radio
	// Loss drops packets at random before the link, in parts of 1.
	Loss float64
	// Rate, if set, makes the flow send at this rate whatever its controller
	// would say (which may be nil): a competitor.
	Rate func(now time.Duration) unit.Rate
}

// Result is what came of one flow.
type Result struct {
	Sent, Lost, Delivered unit.Bytes
	// Arrivals are the packets that arrived, in order.
	Arrivals []Arrival
	// SlotBytes is what was delivered in each slot of SlotLength since the beginning,
	// SlotLost what was taken for lost.
	SlotBytes, SlotLost []unit.Bytes
}

// Arrival is one packet that came to its receiver.
type Arrival struct {
	At    time.Duration
	Delay time.Duration // one way
}

// SlotLength is the length of a slot of Result.Each.
const SlotLength = 100 * time.Millisecond

// Rate is the mean rate between two times.
func (r Result) Rate(from, to time.Duration) unit.Rate {
	return unit.RateOf(sumSlots(r.SlotBytes, from, to), to-from)
}

// Loss is the part that was lost between two times.
func (r Result) Loss(from, to time.Duration) float64 {
	lost, came := sumSlots(r.SlotLost, from, to), sumSlots(r.SlotBytes, from, to)
	return float64(lost) / float64(max(lost+came, 1))
}

func sumSlots(each []unit.Bytes, from, to time.Duration) (n unit.Bytes) {
	for i := int(from / SlotLength); i < int(to/SlotLength) && i < len(each); i++ {
		n += each[i]
	}
	return n
}

// Delay is the quantile q (0 to 1) of the one-way delays of the packets that
// arrived between two times, 0 if there were none.
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

// threshold is how many later packets must be acknowledged before one counts as
// lost (RFC 9002 section 6.1.1), minTimeout the least time until all do
// (RFC 6298 as Linux has it).
const (
	reorderThreshold = 3
	minTimeout       = 200 * time.Millisecond
)

type eventKind uint8

const (
	wakeEvent    eventKind = iota // a flow may send
	arriveEvent                   // a packet comes to the link
	receiveEvent                  // a packet comes to its receiver
	ackEvent                      // an acknowledgement comes to its sender
	timeoutEvent
)

type simEvent struct {
	at   time.Duration
	kind eventKind
	flow int
	p    *Packet
}

// flowState is a Flow that runs.
type flowState struct {
	Flow
	sampler          cc.Sampler
	nextSeq          int64     // sequence of the next packet
	unacked          []*Packet // in order of seq; nil where acknowledged or lost
	firstSeq         int64     // seq of flying[0]
	inFlight         unit.Bytes
	nextSendTime     time.Duration // when the pacer lets the next one go
	wakeTime         time.Duration // a wake is in the queue for then
	timeoutScheduled bool          // a timeout is in the queue
	srtt             time.Duration
	minRTT           time.Duration
	lastAckTime      time.Duration // last acknowledgement
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

// Run runs the flows over the link for length; seed decides losses.
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
		w.schedule(simEvent{at: f.Start, kind: wakeEvent, flow: i})
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
				w.schedule(simEvent{at: t + w.flows[p.Flow].DelayFromLink, kind: receiveEvent, flow: p.Flow, p: p})
			}
			continue
		}
		_, e := w.events.Pop()
		w.handleEvent(e)
	}
	results := make([]Result, len(w.flows))
	for i, f := range w.flows {
		results[i] = f.result
	}
	return results
}

func (w *simulation) schedule(e simEvent) { w.events.Push(e.at, e) }

func (w *simulation) handleEvent(e simEvent) {
	f := w.flows[e.flow]
	switch e.kind {
	case wakeEvent:
		if e.at != f.wakeTime {
			return // an earlier one has taken its place
		}
		f.wakeTime = Never
		w.sendAllowed(e.at, e.flow, f)
	case arriveEvent:
		e.p.Arrived = e.at
		if !(f.Loss > 0 && w.random.Float64() < f.Loss) {
			w.link.Offer(e.at, e.p)
		}
	case receiveEvent:
		f.result.Delivered += e.p.Size
		f.result.Arrivals = append(f.result.Arrivals, Arrival{e.at, e.at - e.p.Sent})
		f.result.SlotBytes[min(int(e.at/SlotLength), len(f.result.SlotBytes)-1)] += e.p.Size
		if f.Feedback != nil {
			e.p.radio = f.Feedback(e.at, e.p)
		}
		w.schedule(simEvent{at: e.at + f.AckDelay, kind: ackEvent, flow: e.flow, p: e.p})
	case ackEvent:
		f.handleAck(e)
		w.sendAllowed(e.at, e.flow, f)
	case timeoutEvent:
		f.timeoutScheduled = false
		w.handleTimeout(e.at, e.flow, f)
	}
}

// sendAllowed lets go what pacer and window allow, and asks to be woken for the next.
func (w *simulation) sendAllowed(now time.Duration, i int, f *flowState) {
	if f.Rate != nil {
		w.sendAtRate(now, i, f)
		return
	}
	for now < f.End {
		l := f.Controller.Limits(now)
		if f.inFlight+cc.MSS > l.Window {
			if l.Until > now {
				w.scheduleWake(l.Until, i, f)
			}
			return
		}
		if f.nextSendTime > now {
			w.scheduleWake(f.nextSendTime, i, f)
			return
		}
		w.sendPacket(now, i, f)
		if l.Rate > 0 {
			f.nextSendTime = max(f.nextSendTime, now-l.Rate.Time(cc.MSS)) + l.Rate.Time(cc.MSS)
		}
	}
}

// scheduleWake asks for a wake of flow i at a time, if none comes before.
func (w *simulation) scheduleWake(at time.Duration, i int, f *flowState) {
	if f.wakeTime > at {
		f.wakeTime = at
		w.schedule(simEvent{at: at, kind: wakeEvent, flow: i})
	}
}

// sendAtRate is for flows of a given rate: no window.
func (w *simulation) sendAtRate(now time.Duration, i int, f *flowState) {
	if now >= f.End || f.wakeTime != Never {
		return
	}
	r := f.Rate(now)
	next := now + time.Millisecond
	if r > 0 {
		w.sendPacket(now, i, f)
		next = now + r.Time(cc.MSS)
	}
	w.scheduleWake(next, i, f)
}

func (w *simulation) sendPacket(now time.Duration, i int, f *flowState) {
	p := &Packet{Flow: i, Size: cc.MSS, Sent: now, RTprop: f.minRTT, seq: f.nextSeq, mark: f.sampler.OnSent(now, f.inFlight)}
	if len(f.unacked) == 0 {
		f.firstSeq = f.nextSeq
		f.lastAckTime = now
		if f.Controller != nil && !f.timeoutScheduled {
			f.timeoutScheduled = true
			w.schedule(simEvent{at: now + f.timeoutDelay(), kind: timeoutEvent, flow: i})
		}
	}
	f.nextSeq++
	f.unacked = append(f.unacked, p)
	f.inFlight += p.Size
	f.result.Sent += p.Size
	if f.Controller != nil {
		f.Controller.OnSent(now, p.Size, f.inFlight)
	}
	w.schedule(simEvent{at: now + f.DelayToLink, kind: arriveEvent, flow: i, p: p})
}

func (f *flowState) timeoutDelay() time.Duration {
	if f.srtt == 0 {
		return time.Second
	}
	return max(2*f.srtt, minTimeout)
}

// handleTimeout takes all for lost if nothing was heard for long.
func (w *simulation) handleTimeout(now time.Duration, i int, f *flowState) {
	if len(f.unacked) == 0 {
		return
	}
	if due := f.lastAckTime + f.timeoutDelay(); now < due {
		f.timeoutScheduled = true
		w.schedule(simEvent{at: due, kind: timeoutEvent, flow: i})
		return
	}
	l := cc.Loss{Now: now, Timeout: true}
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
	w.sendAllowed(now, i, f)
}

func (f *flowState) recordLost(now time.Duration, n unit.Bytes) {
	f.result.Lost += n
	f.result.SlotLost[min(int(now/SlotLength), len(f.result.SlotLost)-1)] += n
}

// handleAck handles the acknowledgement of one packet.
func (f *flowState) handleAck(e simEvent) {
	f.lastAckTime = e.at
	i := e.p.seq - f.firstSeq
	if i < 0 || int(i) >= len(f.unacked) || f.unacked[i] == nil {
		return // taken for lost before
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
	a := cc.Ack{Now: e.at, Bytes: p.Size, Packets: 1, RTT: rtt, OneWay: e.at - f.AckDelay - p.Sent, Radio: p.radio}
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

// Wire is a link of a rate that may change, with a queue of bounded bytes.
type Wire struct {
	rate          func(now time.Duration) unit.Rate
	buffer        unit.Bytes
	queue         []*Packet
	queued        unit.Bytes
	headDeparture time.Duration // when the head has left
}

// NewWire serves packets one by one at the rate of the moment when each begins.
func NewWire(rate func(now time.Duration) unit.Rate, buffer unit.Bytes) *Wire {
	return &Wire{rate: rate, buffer: buffer, headDeparture: Never}
}

// SteadyRate is a rate that does not change.
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
