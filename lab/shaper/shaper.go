// SPDX-License-Identifier: Apache-2.0

// Package shaper is the pure core of the lab's emulator: one direction of one emulated link. It
// takes packets from the sending node (read from a TUN device) and delivers them to the receiving
// node. It has no clock, no goroutine and no socket. Every method takes the time as a duration on
// the emulator's clock. Times must not decrease from call to call.
//
//	Enqueue ─ drop-tail queue ─ serve at the rate ─ loss ─ delay, jitter ─ Deliver
//
// Lines may share the capacity of a Cell, or a Radio that sleeps.
//
// All departures are ideal times, computed from the arrivals and the rate. A late caller does not
// delay them.
package shaper

import (
	"math"
	"math/rand/v2"
	"time"

	"mpbond/base/unit"
)

// Packet is one IP packet. Data belongs to the caller and is not read.
type Packet struct {
	Size unit.Bytes
	Data []byte
	// At is when it was offered. The line sets it.
	At time.Duration
}

// Counters count the packets of a line since its beginning.
type Counters struct {
	Sent        Count      `json:"sent"`         // offered by the sender
	Delivered   Count      `json:"delivered"`    // given to the receiver
	QueueDrops  Count      `json:"queue_drops"`  // no room in the queue
	LossDrops   Count      `json:"loss_drops"`   // random loss
	OutageDrops Count      `json:"outage_drops"` // black hole
	MaxQueued   unit.Bytes `json:"max_queued"`   // maximum length of the queue
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
	// Drop, if set, is called for each accepted packet that will not be delivered (loss, outage),
	// so that its buffer can be reused.
	Drop func(Packet)

	player          programPlayer
	startTime       time.Duration // of the program's tracks
	grantStartTime  time.Duration // of the program's grants
	random          *rand.Rand
	queue           fifo[Packet]
	queuedBytes     unit.Bytes
	headSince       time.Duration // when sending of the first packet began, or will begin
	headBitsLeft    float64       // bits of it left at that time
	grantsUsedUntil time.Duration // earlier grants were used or missed
	inFlight        fifo[flyingPacket]
	lastDue         time.Duration // latest due time so far: packets keep their order
	radio           *Radio        // or nil
	cell            *Cell         // or nil
	cellShare       float64       // bit/s from the cell while packets are queued, at most the line's own rate
}

// flyingPacket arrives when due.
type flyingPacket struct {
	Packet
	due time.Duration
}

// New returns a line that follows p. seed decides its losses and jitter.
func New(p Program, seed uint64) *Line {
	l := &Line{random: rand.New(rand.NewPCG(seed, 0x6d70626f6e64))}
	l.player = newProgramPlayer(&p)
	return l
}

// Start starts the program at time now.
func (l *Line) Start(now time.Duration) { l.StartAt(now, 0) }

// StartAt starts the program so far into it. Earlier changes are made at once.
func (l *Line) StartAt(now, into time.Duration) {
	l.Rewind(now)
	l.player.playing, l.startTime, l.grantStartTime = true, now-into, now-into
	l.advanceLineTo(now)
}

// Rewind stops the program and returns to its base. Packets on the line stay.
func (l *Line) Rewind(now time.Duration) {
	l.advanceLineTo(now)
	l.applyLineChange(now, func() { l.player = newProgramPlayer(l.player.program) })
	if l.radio != nil {
		l.radio.fallAsleep()
	}
}

// Apply changes the setting from now on.
func (l *Line) Apply(now time.Duration, c Change) {
	l.advanceLineTo(now)
	l.applyLineChange(now, func() { l.player.setting = c.Apply(l.player.setting) })
}

// applyLineChange makes a change at time now. The line must have advanced to now.
func (l *Line) applyLineChange(now time.Duration, change func()) {
	if l.cell != nil {
		l.cell.changeAndDivide(now, change)
		return
	}
	l.accountSent(now)
	change()
}

// Setting returns the setting at the last time passed to the line.
func (l *Line) Setting() Setting { return l.player.setting }

// Pending returns the bytes in the queue and the packets in flight.
func (l *Line) Pending() (queued unit.Bytes, inFlight int) { return l.queuedBytes, l.inFlight.len() }

// Enqueue offers a packet. It returns false if the packet was dropped. The caller then owns its
// buffer again.
func (l *Line) Enqueue(now time.Duration, p Packet) bool {
	l.advanceLineTo(now) // earlier departures make room
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
		l.queue.pushBack(p)
		return true
	}
	from := now
	if l.radio != nil {
		from = l.radio.wakeForPacket(now)
	}
	l.applyLineChange(now, func() {
		l.queue.pushBack(p)
		l.headSince, l.headBitsLeft = from, float64(p.Size)*8
		l.grantsUsedUntil = max(l.grantsUsedUntil, from)
	})
	l.advanceLineTo(now)
	return true
}

// Due returns when Deliver must be called next, because a packet arrives or the line must be
// updated. ok is false while the line is empty.
func (l *Line) Due() (at time.Duration, ok bool) {
	if l.inFlight.len() > 0 {
		return l.inFlight.head().due, true // no packet overtakes it
	}
	if l.queue.len() == 0 {
		return 0, false
	}
	if l.cell != nil {
		at, _, _ = l.cell.nextCellEvent() // an event on another line may change the share
	} else {
		at, _ = l.nextLineEvent()
	}
	return at, at != never
}

// Deliver removes the next packet that has arrived by now, and returns it with its ideal arrival
// time. Call it until ok is false. now may be earlier than the times passed to other methods.
func (l *Line) Deliver(now time.Duration) (p Packet, due time.Duration, ok bool) {
	l.advanceLineTo(now)
	if l.inFlight.len() == 0 || l.inFlight.head().due > now {
		return Packet{}, 0, false
	}
	f := l.inFlight.popFront()
	l.Counters.Delivered.Add(f.Size)
	return f.Packet, f.due, true
}

// eventKind is a kind of event of a line.
type eventKind int

const (
	changeEvent eventKind = iota
	doneEvent
	grantEvent
)

// isUnshaped reports whether packets pass without delay by a rate.
func (l *Line) isUnshaped() bool {
	return l.sendingBitRate() == math.Inf(1) && len(l.player.program.Grants) == 0
}

// sendingBitRate returns the sending rate in bit/s. In a cell it is a share and need not be an
// integer.
func (l *Line) sendingBitRate() float64 {
	switch {
	case l.cell != nil:
		return l.cellShare
	case l.player.setting.Rate == Unlimited:
		return math.Inf(1)
	}
	return float64(l.player.setting.Rate)
}

// nextLineEvent returns the time and kind of the next event. A departure precedes a change at the
// same time.
func (l *Line) nextLineEvent() (time.Duration, eventKind) {
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

// nextChangeTime returns the time of the program's next change, or never.
func (l *Line) nextChangeTime() time.Duration {
	if at, track := l.player.peekChange(); track >= 0 {
		return l.startTime + at
	}
	return never
}

// headDeparture returns when the first packet leaves at the current rate.
func (l *Line) headDeparture() time.Duration {
	ns := math.Round(l.headBitsLeft / l.sendingBitRate() * 1e9)
	if !(ns <= math.MaxInt64/4) { // the rate is 0 or tiny
		return never
	}
	return l.headSince + time.Duration(ns)
}

// accountSent subtracts the bits of the first packet sent at the current rate. It must be called
// before the rate changes.
func (l *Line) accountSent(now time.Duration) {
	if l.queue.len() == 0 || now <= l.headSince {
		return
	}
	if len(l.player.program.Grants) == 0 {
		l.headBitsLeft = max(0, l.headBitsLeft-l.sendingBitRate()*(now-l.headSince).Seconds())
	}
	l.headSince = now
}

// advanceLineTo handles all events up to now in order.
func (l *Line) advanceLineTo(now time.Duration) {
	if l.cell != nil {
		l.cell.advanceCellTo(now)
		return
	}
	for {
		at, what := l.nextLineEvent()
		if at > now {
			return
		}
		l.handleLineEvent(at, what)
	}
}

// handleLineEvent handles an event at its time.
func (l *Line) handleLineEvent(at time.Duration, what eventKind) {
	switch what {
	case changeEvent:
		_, track := l.player.peekChange()
		l.accountSent(at)
		l.player.applyNextChange(track)
	case doneEvent:
		l.departHead(at)
	case grantEvent:
		l.grantsUsedUntil = at + 1
		budget := float64(GrantBytes*8) * float64(l.player.program.countGrantsAt(at-l.grantStartTime))
		for budget > 0 && l.queue.len() > 0 {
			used := min(budget, l.headBitsLeft)
			budget -= used
			if l.headBitsLeft -= used; l.headBitsLeft <= 0 {
				l.departHead(at)
			}
		}
	}
}

// departHead moves the first packet of the queue into flight, or loses it.
func (l *Line) departHead(at time.Duration) {
	p, s := l.queue.popFront(), &l.player.setting
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
		l.inFlight.pushBack(flyingPacket{p, l.lastDue})
		if s.Reorder > 0 && l.random.Float64() < s.Reorder {
			l.overtakeOthers()
		}
		return
	}
	if l.Drop != nil {
		l.Drop(p)
	}
}

// reorderBy is how many packets one overtakes. With three, TCP takes the first for lost (RFC 5681).
const reorderBy = 3

// overtakeOthers moves the last packet forward. Arrival times stay in their places.
func (l *Line) overtakeOthers() {
	for i := l.inFlight.len() - 1; i > max(0, l.inFlight.len()-1-reorderBy); i-- {
		a, b := l.inFlight.at(i-1), l.inFlight.at(i)
		a.Packet, b.Packet = b.Packet, a.Packet
	}
}

// fifo is a growing ring buffer.
type fifo[T any] struct {
	buf        []T
	first, num int
}

func (f *fifo[T]) len() int { return f.num }
func (f *fifo[T]) head() *T { return f.at(0) }

func (f *fifo[T]) at(i int) *T { return &f.buf[(f.first+i)%len(f.buf)] }

func (f *fifo[T]) pushBack(v T) {
	if f.num == len(f.buf) {
		grown := make([]T, max(16, 2*len(f.buf)))
		n := copy(grown, f.buf[f.first:])
		copy(grown[n:], f.buf[:f.first])
		f.buf, f.first = grown, 0
	}
	f.buf[(f.first+f.num)%len(f.buf)] = v
	f.num++
}

func (f *fifo[T]) popFront() T {
	v := f.buf[f.first]
	var zero T
	f.buf[f.first] = zero
	f.first = (f.first + 1) % len(f.buf)
	f.num--
	return v
}
