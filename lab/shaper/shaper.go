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

	player          programPlayer
	startTime       time.Duration // of the program's tracks
	grantStartTime  time.Duration // of the program's grants
	random          *rand.Rand
	queue           fifo[Packet]
	queuedBytes     unit.Bytes
	headSince       time.Duration // the head of the queue is being sent since then, or will be,
	headBitsLeft    float64       // and had this many bits left at that time
	grantsUsedUntil time.Duration // grants up to here have been used or missed
	inFlight        fifo[flyingPacket]
	lastDue         time.Duration // latest due time given out: no overtaking
	radio           *Radio        // or nil
	cell            *Cell         // or nil
	cellShare       float64       // bit/s that the cell gives it now, while there is a queue; at most the line's own rate
}

type flyingPacket struct {
	Packet
	due time.Duration
}

// New makes a line that follows p. The seed decides its losses and jitter.
func New(p Program, seed uint64) *Line {
	l := &Line{random: rand.New(rand.NewPCG(seed, 0x6d70626f6e64))}
	l.player = newPlayer(&p)
	return l
}

// Start makes now the time zero of the program and plays it from there.
func (l *Line) Start(now time.Duration) { l.StartAt(now, 0) }

// StartAt is Start so far into the program: what it does before that happens at
// once.
func (l *Line) StartAt(now, into time.Duration) {
	l.Rewind(now)
	l.player.playing, l.startTime, l.grantStartTime = true, now-into, now-into
	l.advanceTo(now)
}

// Rewind returns to the program's base and stops playing it. Packets under
// way stay.
func (l *Line) Rewind(now time.Duration) {
	l.advanceTo(now)
	l.applyChange(now, func() { l.player = newPlayer(l.player.program) })
	if l.radio != nil {
		l.radio.fallAsleep()
	}
}

// Apply changes the setting from now on.
func (l *Line) Apply(now time.Duration, c Change) {
	l.advanceTo(now)
	l.applyChange(now, func() { l.player.setting = c.Apply(l.player.setting) })
}

// applyChange makes a change to a line that has come to now, and to what it sends with.
func (l *Line) applyChange(now time.Duration, change func()) {
	if l.cell != nil {
		l.cell.changeAndDivide(now, change)
		return
	}
	l.accountSent(now)
	change()
}

// Setting is the line's behaviour at the last time it was told.
func (l *Line) Setting() Setting { return l.player.setting }

// Pending is what is on the line: bytes in the queue and packets in flight.
func (l *Line) Pending() (queued unit.Bytes, inFlight int) { return l.queuedBytes, l.inFlight.len() }

// Enqueue offers a packet. It returns false if the packet was dropped; its
// buffer is then the caller's again.
func (l *Line) Enqueue(now time.Duration, p Packet) bool {
	l.advanceTo(now) // what has left by now makes room
	l.Counters.Sent.Add(p.Size)
	p.At = now
	s := &l.player.setting
	switch {
	case s.Outage:
		l.Counters.OutageDrops.Add(p.Size)
		return false
	case l.queuedBytes > 0 && l.queuedBytes+p.Size > s.Queue && !l.isUnshaped():
		l.Counters.QueueDrops.Add(p.Size)
		return false
	}
	l.queuedBytes += p.Size
	l.Counters.MaxQueued = max(l.Counters.MaxQueued, l.queuedBytes)
	if l.queue.len() > 0 {
		l.queue.push(p)
		return true
	}
	from := now
	if l.radio != nil {
		from = l.radio.wakeFor(now)
	}
	l.applyChange(now, func() {
		l.queue.push(p)
		l.headSince, l.headBitsLeft = from, float64(p.Size)*8
		l.grantsUsedUntil = max(l.grantsUsedUntil, from)
	})
	l.advanceTo(now)
	return true
}

// Due returns when Deliver should next be called: something arrives then, or
// the line must look again. ok is false while nothing is on the line.
func (l *Line) Due() (at time.Duration, ok bool) {
	if l.inFlight.len() > 0 {
		return l.inFlight.head().due, true // nothing overtakes it
	}
	if l.queue.len() == 0 {
		return 0, false
	}
	if l.cell != nil {
		at, _, _ = l.cell.nextEvent() // on another line, it may change this one's share
	} else {
		at, _ = l.nextEvent()
	}
	return at, at != never
}

// Deliver takes out the next packet that has arrived by now, with the time at
// which it should have arrived. Call it until ok is false. Its now may be before
// what other methods were told.
func (l *Line) Deliver(now time.Duration) (p Packet, due time.Duration, ok bool) {
	l.advanceTo(now)
	if l.inFlight.len() == 0 || l.inFlight.head().due > now {
		return Packet{}, 0, false
	}
	f := l.inFlight.pop()
	l.Counters.Delivered.Add(f.Size)
	return f.Packet, f.due, true
}

type eventKind int

const (
	changeEvent eventKind = iota
	doneEvent
	grantEvent
)

func (l *Line) isUnshaped() bool {
	return l.currentRate() == math.Inf(1) && len(l.player.program.Grants) == 0
}

// currentRate is what the line sends with, in bit/s: in a cell a share, which is no whole
// number.
func (l *Line) currentRate() float64 {
	switch {
	case l.cell != nil:
		return l.cellShare
	case l.player.setting.Rate == Unlimited:
		return math.Inf(1)
	}
	return float64(l.player.setting.Rate)
}

// nextEvent says when and what happens next. A packet that is through when a
// change comes is through.
func (l *Line) nextEvent() (time.Duration, eventKind) {
	at, what := l.nextChangeTime(), changeEvent
	if l.queue.len() == 0 {
		return at, what
	}
	if len(l.player.program.Grants) > 0 {
		if g := l.player.program.grantAfter(l.grantsUsedUntil-l.grantStartTime) + l.grantStartTime; g <= at {
			at, what = g, grantEvent
		}
	} else if d := l.headDeparture(); d <= at && d != never {
		at, what = d, doneEvent
	}
	return at, what
}

func (l *Line) nextChangeTime() time.Duration {
	if at, track := l.player.peekChange(); track >= 0 {
		return l.startTime + at
	}
	return never
}

// headDeparture is when the head will have left at the present rate.
func (l *Line) headDeparture() time.Duration {
	ns := math.Round(l.headBitsLeft / l.currentRate() * 1e9)
	if !(ns <= math.MaxInt64/4) { // the rate is 0, or nearly
		return never
	}
	return l.headSince + time.Duration(ns)
}

// accountSent accounts for what the present rate has sent of the head, before the
// rate changes at time now.
func (l *Line) accountSent(now time.Duration) {
	if l.queue.len() == 0 || now <= l.headSince {
		return
	}
	if len(l.player.program.Grants) == 0 {
		l.headBitsLeft = max(0, l.headBitsLeft-l.currentRate()*(now-l.headSince).Seconds())
	}
	l.headSince = now
}

// advanceTo makes everything happen that happens up to now, in order.
func (l *Line) advanceTo(now time.Duration) {
	if l.cell != nil {
		l.cell.advanceTo(now)
		return
	}
	for {
		at, what := l.nextEvent()
		if at > now {
			return
		}
		l.handleEvent(at, what)
	}
}

// handleEvent makes the next event happen, at its time.
func (l *Line) handleEvent(at time.Duration, what eventKind) {
	switch what {
	case changeEvent:
		_, track := l.player.peekChange()
		l.accountSent(at)
		l.player.applyChange(track)
	case doneEvent:
		l.departHead(at)
	case grantEvent:
		l.grantsUsedUntil = at + 1
		budget := float64(GrantBytes*8) * float64(l.player.program.grantsAt(at-l.grantStartTime))
		for budget > 0 && l.queue.len() > 0 {
			used := min(budget, l.headBitsLeft)
			budget -= used
			if l.headBitsLeft -= used; l.headBitsLeft <= 0 {
				l.departHead(at)
			}
		}
	}
}

// departHead moves the head of the queue into flight, or loses it.
func (l *Line) departHead(at time.Duration) {
	p, s := l.queue.pop(), &l.player.setting
	l.queuedBytes -= p.Size
	if l.radio != nil {
		l.radio.noteActivity(at)
	}
	l.headSince = at
	if l.queue.len() > 0 {
		l.headBitsLeft = float64(l.queue.head().Size) * 8
	}
	switch {
	case s.Outage:
		l.Counters.OutageDrops.Add(p.Size)
	case s.Loss > 0 && l.random.Float64() < s.Loss:
		l.Counters.LossDrops.Add(p.Size)
	default:
		due := at + s.Delay
		if s.Jitter > 0 {
			due += time.Duration(l.random.Int64N(int64(s.Jitter) + 1))
		}
		l.lastDue = max(l.lastDue, due)
		l.inFlight.push(flyingPacket{p, l.lastDue})
		if s.Reorder > 0 && l.random.Float64() < s.Reorder {
			l.overtakeOthers()
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

// overtakeOthers moves the last packet forward. Times of arrival stay as they are.
func (l *Line) overtakeOthers() {
	for i := l.inFlight.len() - 1; i > max(0, l.inFlight.len()-1-reorderBy); i-- {
		a, b := l.inFlight.at(i-1), l.inFlight.at(i)
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
