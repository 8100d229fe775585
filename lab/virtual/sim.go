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
	// Before and After are the delays between sender and link, and between link
	// and receiver; Back is that of acknowledgements.
	Before, After, Back time.Duration
	// Radio, if set, is asked for feedback when a packet arrives at the receiver.
	Radio func(now time.Duration, p *Packet) cc.Radio
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
	// Each is what was delivered in each slot of SlotLength since the beginning,
	// LostEach what was taken for lost.
	Each, LostEach []unit.Bytes
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
	return unit.RateOf(slots(r.Each, from, to), to-from)
}

// Loss is the part that was lost between two times.
func (r Result) Loss(from, to time.Duration) float64 {
	lost, came := slots(r.LostEach, from, to), slots(r.Each, from, to)
	return float64(lost) / float64(max(lost+came, 1))
}

func slots(each []unit.Bytes, from, to time.Duration) (n unit.Bytes) {
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
	threshold  = 3
	minTimeout = 200 * time.Millisecond
)

type kind uint8

const (
	wake    kind = iota // a flow may send
	arrive              // a packet comes to the link
	receive             // a packet comes to its receiver
	answer              // an acknowledgement comes to its sender
	timeout
)

type simEvent struct {
	at   time.Duration
	kind kind
	flow int
	p    *Packet
}

// flow is a Flow that runs.
type flow struct {
	Flow
	sampler  cc.Sampler
	next     int64     // sequence of the next packet
	flying   []*Packet // in order of seq; nil where acknowledged or lost
	first    int64     // seq of flying[0]
	inFlight unit.Bytes
	may      time.Duration // when the pacer lets the next one go
	woken    time.Duration // a wake is in the queue for then
	timed    bool          // a timeout is in the queue
	srtt     time.Duration
	minRTT   time.Duration
	heard    time.Duration // last acknowledgement
	result   Result
}

// world is one run.
type world struct {
	link   Link
	flows  []*flow
	events event.Queue[simEvent]
	rnd    *rand.Rand
	out    []*Packet
}

// Run runs the flows over the link for length; seed decides losses.
func Run(link Link, length time.Duration, seed uint64, flows ...Flow) []Result {
	w := &world{link: link, rnd: rand.New(rand.NewPCG(seed, 1))}
	for i, f := range flows {
		g := &flow{Flow: f, woken: Never}
		g.result.Each = make([]unit.Bytes, int(length/SlotLength)+1)
		g.result.LostEach = make([]unit.Bytes, len(g.result.Each))
		if g.End == 0 {
			g.End = length
		}
		w.flows = append(w.flows, g)
		g.woken = f.Start
		w.at(simEvent{at: f.Start, kind: wake, flow: i})
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
				w.at(simEvent{at: t + w.flows[p.Flow].After, kind: receive, flow: p.Flow, p: p})
			}
			continue
		}
		_, e := w.events.Pop()
		w.handle(e)
	}
	results := make([]Result, len(w.flows))
	for i, f := range w.flows {
		results[i] = f.result
	}
	return results
}

func (w *world) at(e simEvent) { w.events.Push(e.at, e) }

func (w *world) handle(e simEvent) {
	f := w.flows[e.flow]
	switch e.kind {
	case wake:
		if e.at != f.woken {
			return // an earlier one has taken its place
		}
		f.woken = Never
		w.send(e.at, e.flow, f)
	case arrive:
		e.p.Arrived = e.at
		if !(f.Loss > 0 && w.rnd.Float64() < f.Loss) {
			w.link.Offer(e.at, e.p)
		}
	case receive:
		f.result.Delivered += e.p.Size
		f.result.Arrivals = append(f.result.Arrivals, Arrival{e.at, e.at - e.p.Sent})
		f.result.Each[min(int(e.at/SlotLength), len(f.result.Each)-1)] += e.p.Size
		if f.Radio != nil {
			e.p.radio = f.Radio(e.at, e.p)
		}
		w.at(simEvent{at: e.at + f.Back, kind: answer, flow: e.flow, p: e.p})
	case answer:
		f.answer(e)
		w.send(e.at, e.flow, f)
	case timeout:
		f.timed = false
		w.timeout(e.at, e.flow, f)
	}
}

// send lets go what pacer and window allow, and asks to be woken for the next.
func (w *world) send(now time.Duration, i int, f *flow) {
	if f.Rate != nil {
		w.sendAt(now, i, f)
		return
	}
	for now < f.End {
		l := f.Controller.Limits(now)
		if f.inFlight+cc.MSS > l.Window {
			if l.Until > now {
				w.wake(l.Until, i, f)
			}
			return
		}
		if f.may > now {
			w.wake(f.may, i, f)
			return
		}
		w.emit(now, i, f)
		if l.Rate > 0 {
			f.may = max(f.may, now-l.Rate.Time(cc.MSS)) + l.Rate.Time(cc.MSS)
		}
	}
}

// wake asks for a wake of flow i at a time, if none comes before.
func (w *world) wake(at time.Duration, i int, f *flow) {
	if f.woken > at {
		f.woken = at
		w.at(simEvent{at: at, kind: wake, flow: i})
	}
}

// sendAt is for flows of a given rate: no window.
func (w *world) sendAt(now time.Duration, i int, f *flow) {
	if now >= f.End || f.woken != Never {
		return
	}
	r := f.Rate(now)
	next := now + time.Millisecond
	if r > 0 {
		w.emit(now, i, f)
		next = now + r.Time(cc.MSS)
	}
	w.wake(next, i, f)
}

func (w *world) emit(now time.Duration, i int, f *flow) {
	p := &Packet{Flow: i, Size: cc.MSS, Sent: now, RTprop: f.minRTT, seq: f.next, mark: f.sampler.Sent(now, f.inFlight)}
	if len(f.flying) == 0 {
		f.first = f.next
		f.heard = now
		if f.Controller != nil && !f.timed {
			f.timed = true
			w.at(simEvent{at: now + f.timeoutAfter(), kind: timeout, flow: i})
		}
	}
	f.next++
	f.flying = append(f.flying, p)
	f.inFlight += p.Size
	f.result.Sent += p.Size
	if f.Controller != nil {
		f.Controller.OnSent(now, p.Size, f.inFlight)
	}
	w.at(simEvent{at: now + f.Before, kind: arrive, flow: i, p: p})
}

func (f *flow) timeoutAfter() time.Duration {
	if f.srtt == 0 {
		return time.Second
	}
	return max(2*f.srtt, minTimeout)
}

// timeout takes all for lost if nothing was heard for long.
func (w *world) timeout(now time.Duration, i int, f *flow) {
	if len(f.flying) == 0 {
		return
	}
	if due := f.heard + f.timeoutAfter(); now < due {
		f.timed = true
		w.at(simEvent{at: due, kind: timeout, flow: i})
		return
	}
	l := cc.Loss{Now: now, Timeout: true}
	for _, p := range f.flying {
		if p != nil {
			l.Bytes += p.Size
			l.Sent = p.Sent
		}
	}
	f.flying, f.inFlight = f.flying[:0], 0
	f.lost(now, l.Bytes)
	f.Controller.OnLoss(l)
	f.may = now
	w.send(now, i, f)
}

func (f *flow) lost(now time.Duration, n unit.Bytes) {
	f.result.Lost += n
	f.result.LostEach[min(int(now/SlotLength), len(f.result.LostEach)-1)] += n
}

// answer handles the acknowledgement of one packet.
func (f *flow) answer(e simEvent) {
	f.heard = e.at
	i := e.p.seq - f.first
	if i < 0 || int(i) >= len(f.flying) || f.flying[i] == nil {
		return // taken for lost before
	}
	p := f.flying[i]
	f.flying[i] = nil
	f.inFlight -= p.Size
	rtt := e.at - p.Sent
	if f.srtt == 0 {
		f.srtt, f.minRTT = rtt, rtt
	}
	f.srtt += (rtt - f.srtt) / 8
	f.minRTT = min(f.minRTT, rtt)
	f.sampler.Delivered(e.at, p.Size)
	a := cc.Ack{Now: e.at, Bytes: p.Size, Packets: 1, RTT: rtt, OneWay: e.at - f.Back - p.Sent, Radio: p.radio}
	f.sampler.Fill(&a, p.mark, f.minRTT)
	for j := int64(0); j+threshold <= i; j++ {
		if q := f.flying[j]; q != nil {
			f.flying[j] = nil
			f.inFlight -= q.Size
			f.lost(e.at, q.Size)
			if f.Controller != nil {
				f.Controller.OnLoss(cc.Loss{Now: e.at, Bytes: q.Size, Sent: q.Sent, InFlight: f.inFlight})
			}
		}
	}
	drop := 0
	for drop < len(f.flying) && f.flying[drop] == nil {
		drop++
	}
	f.flying = f.flying[drop:]
	f.first += int64(drop)
	a.InFlight = f.inFlight
	if f.Controller != nil {
		f.Controller.OnAck(a)
	}
}

// Wire is a link of a rate that may change, with a queue of bounded bytes.
type Wire struct {
	rate   func(now time.Duration) unit.Rate
	buffer unit.Bytes
	queue  []*Packet
	queued unit.Bytes
	done   time.Duration // when the head has left
}

// NewWire serves packets one by one at the rate of the moment when each begins.
func NewWire(rate func(now time.Duration) unit.Rate, buffer unit.Bytes) *Wire {
	return &Wire{rate: rate, buffer: buffer, done: Never}
}

// Steady is a rate that does not change.
func Steady(r unit.Rate) func(time.Duration) unit.Rate {
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
		l.done = now + l.rate(now).Time(p.Size)
	}
	return true
}

// Next implements Link.
func (l *Wire) Next() time.Duration { return l.done }

// Leave implements Link.
func (l *Wire) Leave(now time.Duration, out []*Packet) []*Packet {
	for len(l.queue) > 0 && l.done <= now {
		p := l.queue[0]
		l.queue = l.queue[1:]
		l.queued -= p.Size
		out = append(out, p)
		if len(l.queue) == 0 {
			l.done = Never
		} else {
			l.done += l.rate(l.done).Time(l.queue[0].Size)
		}
	}
	return out
}
