// Package shaper is the pure core of the lab's emulator: one direction of one
// emulated link. Before it stands the node that sends (its packets are read
// from a TUN device), after it the node that receives. It has no clock, no
// goroutine and no socket: every method takes the time, as a duration on the
// emulator's own clock, and times must not decrease from call to call.
//
//	Enqueue ─ drop-tail queue ─ serve at the rate ─ loss ─ delay, jitter ─ Deliver
//
// Lines may share the capacity of a Cell, or a Radio that sleeps, besides.
//
// All departures are ideal times, computed from the arrivals and the rate.
// How late the caller wakes up does not move them.
package shaper

import (
	"math"
	"math/rand/v2"
	"time"

	"mpbond/base/unit"
)

// Packet is one IP packet; Data is the caller's and is not looked at.
type Packet struct {
	Size unit.Bytes
	Data []byte
	// At is when it was offered to a line, which sets it.
	At time.Duration
}

// Counters add up what happened to packets since the line began.
type Counters struct {
	Sent        Count      `json:"sent"`         // offered by the sender
	Delivered   Count      `json:"delivered"`    // given to the receiver
	QueueDrops  Count      `json:"queue_drops"`  // no room in the queue
	LossDrops   Count      `json:"loss_drops"`   // random loss
	OutageDrops Count      `json:"outage_drops"` // black hole
	MaxQueued   unit.Bytes `json:"max_queued"`   // the fullest the queue has been
}

// Count is a number of packets and their IP bytes.
type Count struct {
	Packets int64      `json:"packets"`
	Bytes   unit.Bytes `json:"bytes"`
}

// Add counts one packet.
func (c *Count) Add(n unit.Bytes) { c.Packets++; c.Bytes += n }

// Line is one direction of a link. It is not safe for concurrent use.
type Line struct {
	Counters Counters
	// Drop, if set, is told of each packet that will not be delivered after
	// it had been accepted (loss, outage), so that its buffer can be reused.
	Drop func(Packet)

	pl     player
	zero   time.Duration // of the program's tracks
	gzero  time.Duration // of the program's grants
	rng    *rand.Rand
	queue  fifo[Packet]
	queued unit.Bytes
	since  time.Duration // the head of the queue is being sent since then, or will be,
	left   float64       // and had this many bits left at that time
	grant  time.Duration // grants up to here have been used or missed
	flight fifo[flying]
	last   time.Duration // latest due time given out: no overtaking
	radio  *Radio        // or nil
	cell   *Cell         // or nil
	share  float64       // bit/s that the cell gives it now, while there is a queue; at most the line's own rate
}

type flying struct {
	Packet
	due time.Duration
}

// New makes a line that follows p. The seed decides its losses and jitter.
func New(p Program, seed uint64) *Line {
	l := &Line{rng: rand.New(rand.NewPCG(seed, 0x6d70626f6e64))}
	l.pl = newPlayer(&p)
	return l
}

// Start makes now the time zero of the program and plays it from there.
func (l *Line) Start(now time.Duration) { l.StartAt(now, 0) }

// StartAt is Start so far into the program: what it does before that happens at
// once.
func (l *Line) StartAt(now, into time.Duration) {
	l.Rewind(now)
	l.pl.playing, l.zero, l.gzero = true, now-into, now-into
	l.advance(now)
}

// Rewind returns to the program's base and stops playing it. Packets under
// way stay.
func (l *Line) Rewind(now time.Duration) {
	l.advance(now)
	l.alter(now, func() { l.pl = newPlayer(l.pl.prog) })
	if l.radio != nil {
		l.radio.sleep()
	}
}

// Apply changes the setting from now on.
func (l *Line) Apply(now time.Duration, c Change) {
	l.advance(now)
	l.alter(now, func() { l.pl.now = c.Apply(l.pl.now) })
}

// alter makes a change to a line that has come to now, and to what it sends with.
func (l *Line) alter(now time.Duration, change func()) {
	if l.cell != nil {
		l.cell.divide(now, change)
		return
	}
	l.split(now)
	change()
}

// Setting is the line's behaviour at the last time it was told.
func (l *Line) Setting() Setting { return l.pl.now }

// Pending is what is on the line: bytes in the queue and packets in flight.
func (l *Line) Pending() (queued unit.Bytes, inFlight int) { return l.queued, l.flight.len() }

// Enqueue offers a packet. It returns false if the packet was dropped; its
// buffer is then the caller's again.
func (l *Line) Enqueue(now time.Duration, p Packet) bool {
	l.advance(now) // what has left by now makes room
	l.Counters.Sent.Add(p.Size)
	p.At = now
	s := &l.pl.now
	switch {
	case s.Outage:
		l.Counters.OutageDrops.Add(p.Size)
		return false
	case l.queued > 0 && l.queued+p.Size > s.Queue && !l.unshaped():
		l.Counters.QueueDrops.Add(p.Size)
		return false
	}
	l.queued += p.Size
	l.Counters.MaxQueued = max(l.Counters.MaxQueued, l.queued)
	if l.queue.len() > 0 {
		l.queue.push(p)
		return true
	}
	from := now
	if l.radio != nil {
		from = l.radio.wake(now)
	}
	l.alter(now, func() {
		l.queue.push(p)
		l.since, l.left = from, float64(p.Size)*8
		l.grant = max(l.grant, from)
	})
	l.advance(now)
	return true
}

// Due returns when Deliver should next be called: something arrives then, or
// the line must look again. ok is false while nothing is on the line.
func (l *Line) Due() (at time.Duration, ok bool) {
	if l.flight.len() > 0 {
		return l.flight.head().due, true // nothing overtakes it
	}
	if l.queue.len() == 0 {
		return 0, false
	}
	if l.cell != nil {
		at, _, _ = l.cell.next() // on another line, it may change this one's share
	} else {
		at, _ = l.nextEvent()
	}
	return at, at != never
}

// Deliver takes out the next packet that has arrived by now, with the time at
// which it should have arrived. Call it until ok is false. Its now may be before
// what other methods were told.
func (l *Line) Deliver(now time.Duration) (p Packet, due time.Duration, ok bool) {
	l.advance(now)
	if l.flight.len() == 0 || l.flight.head().due > now {
		return Packet{}, 0, false
	}
	f := l.flight.pop()
	l.Counters.Delivered.Add(f.Size)
	return f.Packet, f.due, true
}

type event int

const (
	changeEvent event = iota
	doneEvent
	grantEvent
)

func (l *Line) unshaped() bool { return l.rate() == math.Inf(1) && len(l.pl.prog.Grants) == 0 }

// rate is what the line sends with, in bit/s: in a cell a share, which is no whole
// number.
func (l *Line) rate() float64 {
	switch {
	case l.cell != nil:
		return l.share
	case l.pl.now.Rate == Unlimited:
		return math.Inf(1)
	}
	return float64(l.pl.now.Rate)
}

// nextEvent says when and what happens next. A packet that is through when a
// change comes is through.
func (l *Line) nextEvent() (time.Duration, event) {
	at, what := l.change(), changeEvent
	if l.queue.len() == 0 {
		return at, what
	}
	if len(l.pl.prog.Grants) > 0 {
		if g := l.pl.prog.grantAfter(l.grant-l.gzero) + l.gzero; g <= at {
			at, what = g, grantEvent
		}
	} else if d := l.done(); d <= at && d != never {
		at, what = d, doneEvent
	}
	return at, what
}

func (l *Line) change() time.Duration {
	if at, track := l.pl.peek(); track >= 0 {
		return l.zero + at
	}
	return never
}

// done is when the head will have left at the present rate.
func (l *Line) done() time.Duration {
	ns := math.Round(l.left / l.rate() * 1e9)
	if !(ns <= math.MaxInt64/4) { // the rate is 0, or nearly
		return never
	}
	return l.since + time.Duration(ns)
}

// split accounts for what the present rate has sent of the head, before the
// rate changes at time now.
func (l *Line) split(now time.Duration) {
	if l.queue.len() == 0 || now <= l.since {
		return
	}
	if len(l.pl.prog.Grants) == 0 {
		l.left = max(0, l.left-l.rate()*(now-l.since).Seconds())
	}
	l.since = now
}

// advance makes everything happen that happens up to now, in order.
func (l *Line) advance(now time.Duration) {
	if l.cell != nil {
		l.cell.advance(now)
		return
	}
	for {
		at, what := l.nextEvent()
		if at > now {
			return
		}
		l.happen(at, what)
	}
}

// happen makes the next event happen, at its time.
func (l *Line) happen(at time.Duration, what event) {
	switch what {
	case changeEvent:
		_, track := l.pl.peek()
		l.split(at)
		l.pl.step(track)
	case doneEvent:
		l.depart(at)
	case grantEvent:
		l.grant = at + 1
		budget := float64(GrantBytes*8) * float64(l.pl.prog.grantsAt(at-l.gzero))
		for budget > 0 && l.queue.len() > 0 {
			used := min(budget, l.left)
			budget -= used
			if l.left -= used; l.left <= 0 {
				l.depart(at)
			}
		}
	}
}

// depart moves the head of the queue into flight, or loses it.
func (l *Line) depart(at time.Duration) {
	p, s := l.queue.pop(), &l.pl.now
	l.queued -= p.Size
	if l.radio != nil {
		l.radio.moved(at)
	}
	l.since = at
	if l.queue.len() > 0 {
		l.left = float64(l.queue.head().Size) * 8
	}
	switch {
	case s.Outage:
		l.Counters.OutageDrops.Add(p.Size)
	case s.Loss > 0 && l.rng.Float64() < s.Loss:
		l.Counters.LossDrops.Add(p.Size)
	default:
		due := at + s.Delay
		if s.Jitter > 0 {
			due += time.Duration(l.rng.Int64N(int64(s.Jitter) + 1))
		}
		l.last = max(l.last, due)
		l.flight.push(flying{p, l.last})
		if s.Reorder > 0 && l.rng.Float64() < s.Reorder {
			l.overtake()
		}
		return
	}
	if l.Drop != nil {
		l.Drop(p)
	}
}

// reorderBy is how many packets one overtakes: three make TCP take the first for
// lost (RFC 5681).
const reorderBy = 3

// overtake moves the last packet forward. Times of arrival stay as they are.
func (l *Line) overtake() {
	for i := l.flight.len() - 1; i > max(0, l.flight.len()-1-reorderBy); i-- {
		a, b := l.flight.at(i-1), l.flight.at(i)
		a.Packet, b.Packet = b.Packet, a.Packet
	}
}

// fifo is a growing ring.
type fifo[T any] struct {
	buf        []T
	first, num int
}

func (f *fifo[T]) len() int { return f.num }
func (f *fifo[T]) head() *T { return f.at(0) }

func (f *fifo[T]) at(i int) *T { return &f.buf[(f.first+i)%len(f.buf)] }

func (f *fifo[T]) push(v T) {
	if f.num == len(f.buf) {
		grown := make([]T, max(16, 2*len(f.buf)))
		n := copy(grown, f.buf[f.first:])
		copy(grown[n:], f.buf[:f.first])
		f.buf, f.first = grown, 0
	}
	f.buf[(f.first+f.num)%len(f.buf)] = v
	f.num++
}

func (f *fifo[T]) pop() T {
	v := f.buf[f.first]
	var zero T
	f.buf[f.first] = zero
	f.first = (f.first + 1) % len(f.buf)
	f.num--
	return v
}
